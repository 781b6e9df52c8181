"""What a run was begun with: its options, its function and its sources, for its resumption.

Parts that a stopped run has finished are kept when it is resumed. They must be what the resumed run
would write: one of other options, or of another version of a shard, would be mixed with the rest.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
from typing import TYPE_CHECKING, Any

from wids.base.urls import display_url, is_local, local_path
from wids.tools.fieldcommand import FieldCommand, NamedFunction
from wids.views.joining import tables_of
from wids.views.plan import datasets_in
from wids.views.storage import shards_of_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from wids.views.viewable import Viewable

__all__ = ["begun_with", "refuse_other_options", "refuse_other_sources"]


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
    if isinstance(function, FieldCommand):
        return repr(function)
    if isinstance(function, NamedFunction):
        function = function.function
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


def refuse_other_options(output: str, noted: Mapping[str, Any] | None, now: Any) -> None:
    """Raise if a run that is to be resumed had other options, or another function.

    Args:
        output: The output, for the message.
        noted: What the run was begun with; None if that was not noted.
        now: What this one is begun with.

    Raises:
        ValueError: They differ; the message names the first difference.
    """
    _compare(output, {} if noted is None else noted["options"], now["options"])


def refuse_other_sources(
    noted: Mapping[str, Any] | None,
    now: Mapping[str, Any],
    samples: Viewable,
    finished: Iterable[tuple[Path, NDArray[np.int64]]],
) -> None:
    """Raise if a source has changed since a finished part was made of it.

    Other sources may have been mended in between.

    Args:
        noted: What the run was begun with; None if that was not noted.
        now: What this one is begun with.
        samples: The samples that it reads.
        finished: File of each finished part, and the indexes of its samples.

    Raises:
        ValueError: One has changed; the message names the part and the source.
    """
    then = {} if noted is None else noted["sources"]
    changed = {name for name, version in now["sources"].items() if then.get(name) != version}
    for path, rows in finished if changed else ():
        sources = _sources(samples, rows)
        _compare(str(path), then, {name: sources[name] for name in sources if name in changed})
        if noted is None:
            made = path.stat().st_mtime_ns
            for source, version in sources.items():
                _, _, date = version.rpartition(", of ")
                if date.endswith(" ns") and int(date.removesuffix(" ns")) > made:
                    raise ValueError(
                        f"{path}: resume: is older than {source}, from which it was made; begin "
                        "anew without resume (--resume)"
                    )


def _compare(output: str, then: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    for name in now:
        if name in then and then[name] != now[name]:
            raise ValueError(
                f"{output}: resume: what is there was made with another {name}, "
                f"{then[name]!r:.120}; now it is {now[name]!r:.120}. Give what was given then, or "
                "begin anew without resume (--resume)"
            )
