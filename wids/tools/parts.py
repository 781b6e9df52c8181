"""Parts of a long run: samples that become one file each, written in parallel, kept on resumption.

Any executor writes parts, and one that fails does not stop the others. A journal notes those that
are complete. A run that is resumed keeps them, if they are what it would write: parts made with
other options, or of another version of a shard, would be mixed with the rest.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from wids.base.processes import run_each
from wids.base.urls import display_url, is_local, local_path
from wids.errors import WidsError
from wids.specs.journal import set_aside
from wids.views.joining import tables_of
from wids.views.plan import datasets_in
from wids.views.storage import shards_of_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from wids.specs.journal import Journal
    from wids.views.viewable import Viewable

__all__ = ["Part", "PartWriter", "begun_with", "noted_part", "write_parts"]


@dataclass(frozen=True, eq=False)
class Part:
    """Samples that become one file.

    Attributes:
        number: Its number, which is part of the name of the file.
        first_number: Number of its first sample among all that are written.
        indexes: Global indexes of its samples, in their new order; int64, shape `(n,)`.
        nbytes: Bytes that each takes in the file, of the same shape; None if not known.
    """

    number: int
    first_number: int
    indexes: NDArray[np.int64]
    nbytes: NDArray[np.int64] | None = None


class PartWriter(Protocol):
    """Writer of parts to files; picklable, for processes."""

    def path(self, part: Part) -> Path:
        """Return the path of the file of a part."""

    def __call__(self, part: Part) -> dict[str, Any]:
        """Write the file of a part, whole or not at all; return what `noted_part` makes of it."""


def noted_part(
    samples: Viewable, part: Part, path: Path, counts: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what a journal notes of a part that was written.

    Args:
        samples: The samples that were read.
        part: The part.
        path: Its file, which is not there if none of its samples is left.
        counts: What else is to be known of it, for JSON.
    """
    nbytes = path.stat().st_size if path.is_file() else None
    return {**counts, "url": path.name, "nbytes": nbytes, "of": _keys_digest(samples, part)}


def write_parts(
    write: PartWriter,
    parts: Sequence[Part],
    samples: Viewable,
    journal: Journal,
    begun: Mapping[str, Any],
    *,
    resume: bool,
    output: str,
    spec: Path | None = None,
    **run: Any,
) -> tuple[list[dict[str, Any]], dict[int, Exception]]:
    """Write parts in parallel, but not those that the journal notes if the run is resumed.

    Args:
        write: Writes a part.
        parts: The parts.
        samples: The samples that are read.
        journal: Journal of the run, which the caller removes once all is complete.
        begun: What the run is begun with, as `begun_with` returns it.
        resume: Keep what the journal notes.
        output: The output, for messages.
        spec: Spec of an earlier run, which is set aside before its first shard is replaced.
        run: `executor`, `workers` and `desc`, as for `run_each`.

    Returns:
        What is noted of each complete part, in their order, and the errors of the others by number.

    Raises:
        ValueError: A run is resumed that had other options or another function, or whose sources
            have changed since; the message names the first difference.
    """
    if not resume:
        journal.remove()
    noted, then = journal.entries(), journal.begun or {"options": {}, "sources": {}}
    _refuse_others(output, then["options"], begun["options"])
    found: dict[int, dict[str, Any]] = {}
    for part in parts:
        path = write.path(part)
        row = noted.get(path.name)
        if row is None or row.get("of") != _keys_digest(samples, part):
            continue
        if row["nbytes"] == (path.stat().st_size if path.is_file() else None):
            found[part.number] = row
    # Of other sources nothing was used so far: they may have been mended in between.
    changed = {n for n, version in begun["sources"].items() if then["sources"].get(n) != version}
    for part in parts if changed else ():
        if part.number in found:
            now = _sources(samples, part.indexes)
            now = {name: now[name] for name in now if name in changed}
            _refuse_others(str(write.path(part)), then["sources"], now)
    missing = [part for part in parts if part.number not in found]
    if spec is not None:
        set_aside(spec, map(write.path, missing))
    journal.note({"begun": begun})
    failures: dict[int, Exception] = {}

    def note(part: Part, outcome: dict[str, Any] | Exception) -> None:
        if isinstance(outcome, Exception):
            failures[part.number] = outcome
        else:
            found[part.number] = outcome
            journal.note(outcome)

    run_each(write, missing, done=note, **run)
    return [found[number] for number in sorted(found)], dict(sorted(failures.items()))


def begun_with(
    samples: Viewable,
    rows: NDArray[np.int64],
    options: Mapping[str, Any],
    function: Callable[..., Any] | None = None,
) -> dict[str, Any]:
    """Return the options and the sources that a run is begun with, as values for JSON.

    Args:
        samples: The samples that it reads.
        rows: Indexes of these that it reads.
        options: Its options; `fsync` does not count, since it changes no byte.
        function: The function that it calls; told apart by its source, as far as there is one.
    """
    noted: dict[str, Any] = {name: options[name] for name in options if name != "fsync"}
    fields = [dataset.pipeline.fields for dataset in datasets_in(samples)]
    noted["fields"] = [None if each is None else sorted(each) for each in fields]
    noted["function"] = _text_of(function)
    begun = {"options": noted, "sources": _sources(samples, rows)}
    return dict(json.loads(json.dumps(begun)))  # as it is read back


def _text_of(function: Any) -> str:
    """Return a digest of the source of a function, or its name where there is none."""
    function = inspect.unwrap(function)
    while isinstance(function, functools.partial):
        function = function.func
    if not (inspect.isroutine(function) or inspect.isclass(function)):
        function = type(function)
    try:
        source = inspect.getsource(function)
    except (OSError, TypeError):  # of a builtin, or typed at a prompt
        return f"{function.__module__}.{function.__qualname__}"
    return hashlib.sha256(source.encode("utf-8", "replace")).hexdigest()[:32]


def _sources(samples: Viewable, rows: NDArray[np.int64]) -> dict[str, str]:
    """Return the shards and tables from which samples are read, with what tells their versions.

    Args:
        samples: A dataset, a view, a join or a concatenation.
        rows: Indexes of the samples.
    """
    found = {}
    for dataset, first in shards_of_rows(samples, rows):
        shard = dataset.locate(first).shard
        version = f"{shard.filesize} bytes, {shard.digests}"
        if is_local(shard.url):
            try:
                status = local_path(shard.url).stat()
                version = f"{status.st_size} bytes, of {status.st_mtime_ns} ns"
            except OSError:
                version = "absent"
        found[display_url(shard.url)] = version
    for table in tables_of(samples):
        if (origin := table.table.origin) is not None:
            found[table.table.name] = f"{origin.stamp.nbytes} bytes, {origin.stamp.digest}"
    return found


def _keys_digest(samples: Viewable, part: Part) -> str:
    """Return a digest of the keys of a part's samples, by which a later run recognises it."""
    keys: list[str] | None = None
    # Samples of a shard that cannot be read may be skipped; once it can, the part is new.
    with suppress(WidsError, OSError):
        keys = samples.keys_at(part.indexes)
    return hashlib.sha256(json.dumps([part.number, keys]).encode()).hexdigest()[:32]


def _refuse_others(output: str, then: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    for name in now:
        if name in then and then[name] != now[name]:
            raise ValueError(
                f"{output}: resume: what is there was made with another {name}, "
                f"{then[name]!r:.120}; now it is {now[name]!r:.120}. Give what was given then, or "
                "begin anew without resume (--resume)"
            )
