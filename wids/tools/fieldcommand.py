"""Functions that `wids map` applies to samples: a program, or a Python function by name."""

from __future__ import annotations

import importlib
import importlib.util
import os
import shlex
import subprocess
import sys
from operator import attrgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from wids.errors import WidsError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["FieldCommand", "NamedFunction"]

_STEM = "sample"
_MOST_TOLD = 500  # characters of what a command that failed has printed


class FieldCommand:
    """Function that runs a program on the fields of a sample, which it finds as files.

    The program runs in an empty folder that holds each field as a file: `sample.jpg`,
    `sample.cls`. The files `sample.*` that are there when it ends are the fields of the new sample.
    `WIDS_KEY` and `WIDS_INDEX` in its environment say which sample it is.

    Args:
        command: The program and its arguments, split as by a shell; no shell runs them.

    Raises:
        ValueError: It is empty, or a quote is open.

    >>> FieldCommand("cp sample.txt sample.copy")({".txt": b"one", "__key__": "a"})
    {'.copy': b'one'}
    """

    def __init__(self, command: str) -> None:
        try:
            self._arguments = shlex.split(command)
        except ValueError as error:
            raise ValueError(f"--command: {error} in {command!r:.200}") from error
        if not self._arguments:
            raise ValueError("--command: expected a program and its arguments, got none")

    def __repr__(self) -> str:
        return f"FieldCommand({shlex.join(self._arguments)!r})"

    def __call__(self, sample: Mapping[str, Any]) -> dict[str, bytes | None]:
        """Return the fields that the program added or changed, and None for removed ones.

        Raises:
            WidsError: The program failed, cannot be run, or made a folder, a link, or a file of
                another name.
        """
        old = {name: bytes(sample[name]) for name in sample if name.startswith(".")}
        with TemporaryDirectory(prefix="wids-map-") as folder:
            for name, data in old.items():
                Path(folder, f"{_STEM}{name}").write_bytes(data)
            labels = {
                "WIDS_KEY": sample.get("__key__", ""),
                "WIDS_INDEX": sample.get("__index__", ""),
            }
            try:
                done = subprocess.run(  # noqa: S603 (what the user asked for)
                    self._arguments,
                    cwd=folder,
                    env={**os.environ, **{name: str(value) for name, value in labels.items()}},
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,  # standard output may be that of `-o -`
                    stderr=subprocess.STDOUT,
                    check=False,
                )
            except OSError as error:
                raise WidsError(f"{self._arguments[0]}: cannot be run: {error.strerror}") from error
            if done.returncode:
                told = done.stdout.decode("utf-8", "replace").strip()[-_MOST_TOLD:]
                raise WidsError(
                    f"{shlex.join(self._arguments)} ended with exit code {done.returncode}: "
                    f"{told or 'it printed nothing'}"
                )
            made = sorted(Path(folder).iterdir())
            for path in made:  # what cannot become a field would silently be lost
                plain = path.is_file() and not path.is_symlink()
                if not (plain and path.name.startswith(f"{_STEM}.")):
                    raise WidsError(
                        f"{self._arguments[0]}: made {path.name}, which is no field; expected "
                        f"files named {_STEM}.EXT alone, no folders and links: name it so, or "
                        "remove it at the end of the command"
                    )
            new = {path.name.removeprefix(_STEM): path.read_bytes() for path in made}
        gone: dict[str, bytes | None] = dict.fromkeys(old.keys() - new.keys())
        return gone | {name: data for name, data in new.items() if old.get(name) != data}


class NamedFunction:
    """Python function that is pickled by its name and imported by each process.

    Args:
        name: `module:function`, or `file.py:function`.

    Attributes:
        function: The function itself.

    Raises:
        ValueError: There is no such module, file or function.

    >>> NamedFunction("math:floor")(3.7)
    3
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self.function = _find(name)

    def __repr__(self) -> str:
        return f"NamedFunction({self._name!r})"

    def __call__(self, sample: Any) -> Any:
        """Return the result of the function."""
        return self.function(sample)

    def __reduce__(self) -> tuple[Callable[[str], NamedFunction], tuple[str]]:
        # A module of a file cannot be imported by its name where a worker unpickles it.
        return NamedFunction, (self._name,)


def _find(name: str) -> Callable[[Any], Any]:
    home, _, attribute = name.rpartition(":")
    if not home or not attribute:
        raise ValueError(
            f"--function: expected module:function or file.py:function, got {name!r:.200}"
        )
    try:
        found = attrgetter(attribute)(_module(home))
    except (ImportError, OSError, AttributeError, SyntaxError) as error:
        raise ValueError(f"--function: {name}: {error}") from error
    if not callable(found):
        raise ValueError(f"--function: {name}: expected a function, found {found!r:.80}")  # noqa: TRY004 (an argument of a command)
    function: Callable[[Any], Any] = found
    return function


def _module(home: str) -> Any:
    """Import and return a module, given by its name or by the path of its file."""
    if not home.endswith(".py"):
        if "" not in sys.path and os.curdir not in sys.path:
            sys.path.insert(0, str(Path.cwd()))  # as `python -m` does
        return importlib.import_module(home)
    path = Path(home).resolve()
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise FileNotFoundError(f"{home}: there is no such Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
