"""Mapping of a function over all samples, with its results in new shards, one tar, or a column."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack

import numpy as np

from wids.base.omissions import Omissions
from wids.base.progress import progress
from wids.base.urls import display_url
from wids.base.warn import warn
from wids.codecs.formats import is_class
from wids.errors import WidsError
from wids.specs.merging import class_names, classes_by_column, without_classes
from wids.tools.columnfile import ColumnFile
from wids.tools.newshards import (
    NewShards,
    check_none_left_out,
    header_of,
    key_rule_of,
    note_entry_keys,
    skipped_members,
)
from wids.tools.parts import Part, begun_with
from wids.views.joining import refuse_joined
from wids.views.plan import has_function
from wids.views.storage import shards_of_rows, written_names
from wids.writing.sampleencoder import SampleEncoder
from wids.writing.shardfile import ShardOptions, shard_options
from wids.writing.tarwriter import TarWriter

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from numpy.typing import NDArray

    from wids.views.viewable import Viewable
    from wids.writing.memberwriter import SampleArchive

__all__ = ["MapResult", "NamedFunction", "map_samples"]

Function = Callable[[Any], Any]

_MOST_NAMED = 20  # fields in a message
_LEAST_OF_A_PART = 1000  # samples, where no other number is asked for
_MOST_TOLD = 20  # samples that were skipped, of each part


@dataclass(frozen=True)
class MapResult:
    """Result of `map_samples`.

    Attributes:
        num_samples: Number of samples, or of values of a column, that were written.
        num_dropped: Number of samples for which the function returned None.
        num_skipped: Number of samples for which it failed, with `on_error="skip"`.
        skipped: Why, for the first of them: a message with index, key and shard of the sample.
        entries: Spec entries of the new shards, in order; none for one tar or a column.
        failures: Files or parts that could not be written: name to error. Nothing else was
            published then but the shards that are complete.
        omissions: Counts of the data of the old shards that the new ones do not have.
    """

    num_samples: int = 0
    num_dropped: int = 0
    num_skipped: int = 0
    skipped: list[str] = field(default_factory=list)
    entries: list[dict[str, Any]] = field(default_factory=list)
    failures: dict[str, Exception] = field(default_factory=dict)
    omissions: Omissions = field(default_factory=Omissions)


def map_samples(
    samples: Viewable,
    function: Function | None,
    output: str | os.PathLike[str],
    *,
    rename: Mapping[str, str] | None = None,
    only_new: bool = False,
    maxcount: int | None = None,
    on_error: Literal["raise", "skip"] = "raise",
    resume: bool = False,
    executor: Executor | None = None,
    workers: int | None = None,
    strict: bool = False,
    **options: Unpack[ShardOptions],
) -> MapResult:
    """Call a function for every sample, and write what it returns.

    For shards, it returns a dict of the fields that are new or changed; all others are copied as
    they are stored. A field that is None is left out, and so is a sample for which it returns None.
    For a table it returns a value, or a dict of several.

    Args:
        samples: A dataset, a view or a join; the function gets `samples[index]`. Only its `fields`
            are copied. Results of `map` have no stored fields, and so need `only_new`, or a column.
        function: The function; picklable, for processes. None copies the samples.
        output: Where it goes: shards (`"new-%06d.tar"`, with their spec `new.json`), one tar on
            standard output (`"-"`, in this process), or a table of keys and values: `"x.parquet"`.
        rename: New names of stored fields, such as `{".txt": ".caption.txt"}`.
        only_new: Write the fields that the function returns alone: shards to be joined to these.
        maxcount: Most samples in a new shard. By default samples of one shard stay together, 1000
            or more in each.
        on_error: "skip" to leave out samples for which the function fails.
        resume: Keep the parts that an earlier run with the same arguments has finished. It must
            have had the same sources, and a function of the same text; what that calls is not
            compared.
        executor: Executor that maps the parts; a process pool by default.
        workers: Processes of that pool; by default one per core.
        strict: Fail before anything is written if members in no sample or keys of spec entries
            would be left out; only where stored fields are copied.
        options: `sidecars`, `digests`, `mtime` and `fsync` of new shards, as for `ShardWriter`.

    Returns:
        Exact counts, the entries of new shards, and the parts that failed. The spec or the column
        is written only where none failed.

    Raises:
        ValueError: There are no samples, the output is none of these, an option is wrong, data
            would be left out and `strict` is set, or a run is resumed that was begun with something
            else.

    >>> import tempfile, wids
    >>> folder = tempfile.mkdtemp()
    >>> with wids.ShardWriter(f"{folder}/old-%d.tar") as writer:
    ...     for number in range(3):
    ...         writer.write({"__key__": f"{number}", ".cls": number})
    >>> dataset = wids.ShardListDataset(folder)
    >>> done = map_samples(
    ...     dataset, lambda sample: {".txt": str(sample[".cls"])}, f"{folder}/new-%d.tar", workers=1
    ... )
    >>> done.num_samples, sorted(wids.ShardListDataset(f"{folder}/new.json")[2])[:2]
    (3, ['.cls', '.txt'])
    """
    target = os.fspath(output)
    if on_error not in {"raise", "skip"}:
        raise ValueError(f'on_error: expected "raise" or "skip", got {on_error!r}')
    if maxcount is not None and maxcount < 1:
        raise ValueError(f"maxcount: expected a number >= 1, got {maxcount}")
    if not len(samples):
        raise ValueError(f"{target}: there are no samples to map, nothing was written")
    make = _Maker(
        samples, function, dict(rename or {}), only_new=only_new, skips=on_error == "skip"
    )
    # Fields that the first sample lacks are probably misspelt.
    there = make.samples.field_sizes(0) if make.rename else {}
    if unknown := [name for name in make.rename if name not in there]:
        warn(
            f"rename: the first sample has no {unknown[0]!r:.80}, and samples without it are not "
            f"changed; it has {', '.join(sorted(there)[:_MOST_NAMED])}"
        )
    is_tar = target == "-" or target.endswith(".tar")
    if is_tar and not only_new:
        if has_function(samples):
            raise ValueError(
                f"{target}: the stored fields of the samples are copied, and these samples are "
                "results of map() or windows(); give its function to map_samples, with the dataset "
                "as it is without these, or only_new=True to write only what the function given "
                "here returns"
            )
        if strict:
            check_none_left_out(samples, entries=target != "-")
    of_shards = {} if target.endswith(".tar") else dict.fromkeys(options, True)
    if not is_tar:
        of_shards |= {"rename": bool(rename), "only_new": only_new, "strict": strict}
    if given := [name for name, value in of_shards.items() if value]:
        raise ValueError(f"{target}: {', '.join(given)}: for new shards, and the output is none")
    if target == "-":
        return _to_stream(make)
    total = len(samples)
    if maxcount is None:
        cuts = _cut_runs(list(map(int, samples.lengths)), _LEAST_OF_A_PART)
    else:
        cuts = [range(start, min(start + maxcount, total)) for start in range(0, total, maxcount)]
    parts = [Part(number, cut.start, np.array(cut, np.int64)) for number, cut in enumerate(cuts)]
    run: dict[str, Any] = {
        "executor": executor,
        "workers": workers,
        "desc": "mapping samples",
        "resume": resume,
    }
    if is_tar:
        return _to_shards(make, parts, target, options, run)
    column = ColumnFile(samples, Path(target), make.values)
    refuse_joined(Path(target), samples)
    if function is None:
        raise ValueError(f"{target}: expected a function that returns the values of the column")
    rows, failures = column.write(parts, make.begun({}), **run)
    if not failures:
        column.publish(parts)
    return _result(rows, failures)


def _cut_runs(lengths: Sequence[int], least: int) -> list[range]:
    """Return ranges of whole shards, each but the last with at least `least` samples.

    >>> _cut_runs([3, 1, 1, 4], 2)
    [range(0, 3), range(3, 5), range(5, 9)]
    """
    parts, start, stop = [], 0, 0
    for length in lengths:
        stop += length
        if stop - start >= least:
            parts.append(range(start, stop))
            start = stop
    return [*parts, range(start, stop)] if start < stop else parts


class _Maker:
    """Function from an index to the new sample or value; picklable."""

    def __init__(
        self,
        samples: Viewable,
        function: Function | None,
        rename: dict[str, str],
        *,
        only_new: bool,
        skips: bool,
    ) -> None:
        self.samples = samples
        self.skips = skips
        self.function = function
        self.rename = {_dotted(old): _dotted(new) for old, new in rename.items()}
        self.only_new = only_new
        self._origins = {new: old for old, new in self.rename.items()}

    def value(self, index: int) -> Any:
        """Return what the function returns for a sample.

        Raises:
            WidsError: It failed; the message names the sample and its shard.
        """
        try:
            return {} if self.function is None else self.function(self.samples[index])
        except Exception as error:
            raise self.error(index, f"{type(error).__name__}: {error}") from error

    def sample(self, index: int, counts: dict[str, Any]) -> dict[str, Any] | None:
        """Return the new sample, or None if the function drops it; count its class fields.

        Raises:
            WidsError: The function failed, or returned something else.
        """
        made = self.value(index)
        if made is None:
            return None
        if not isinstance(made, Mapping):
            raise self.error(
                index,
                f"the function returned a {type(made).__name__}; for shards it returns a dict of "
                "fields, or None to leave out the sample",
            )
        changed = {name if _is_label(name) else _dotted(name): made[name] for name in made}
        stored = {} if self.only_new else self._stored(index, changed)
        key = changed.get("__key__") or self.samples.key_at(index)
        fields = {name: data for name, data in (stored | changed).items() if not _is_label(name)}
        written = {name: data for name, data in fields.items() if data is not None}
        had = [name for name in stored if is_class(self._origins.get(name, name))]
        kept = [name for name in had if is_class(name) and name in written]
        counts["class_fields"] = sorted({*counts["class_fields"], *had})
        counts["class_kept"] |= bool(kept)
        counts["class_moved"] |= kept != had or not self._origins.keys().isdisjoint(had)
        return {"__key__": key} | written

    def _stored(self, index: int, changed: Collection[str]) -> dict[str, Any]:
        raw, names = self.samples.read_raw(index), written_names(self.samples, index)
        fields = {
            name if name in changed else names.get(name, name): data
            for name, data in raw.items()
            if not _is_label(name)
        }
        renamed = {self.rename.get(name, name): data for name, data in fields.items()}
        if len(renamed) < len(fields):
            raise self.error(index, f"rename gives the same name to two of {', '.join(fields)}")
        return renamed

    def error(self, index: int, what: str) -> WidsError:
        """Return an error that names a sample and its shard."""
        key, url = self.samples.key_at(index), self.samples.locate(index).shard.url
        return WidsError(f"sample {index}, key {key!r}, of {display_url(url)}: {what}")

    def encoded(self, indexes: Iterable[int], counts: dict[str, Any]) -> Iterator[tuple[str, Any]]:
        """Yield key and members of each new sample; count written, dropped and failed ones."""
        encode = SampleEncoder(key_rule=key_rule_of(self.samples))
        for index in indexes:
            try:
                sample = self.sample(index, counts)
                if sample is None:
                    counts["dropped"] += 1
                    continue
                made = encode(sample)
            except WidsError as error:
                self.failed(error, counts)
                continue
            except (ValueError, TypeError) as error:
                self.failed(self.error(index, str(error)), counts)
                continue
            counts["written"] += 1
            yield made

    def failed(self, error: WidsError, counts: dict[str, Any]) -> None:
        """Count a sample that failed; raise the error unless such samples are skipped."""
        if not self.skips:
            raise error
        counts["failed"] += 1
        if len(counts["skipped"]) < _MOST_TOLD:
            counts["skipped"].append(str(error))

    def fill(self, part: Part, archive: SampleArchive) -> dict[str, Any]:
        """Write the new samples of a part to an archive; return their counts."""
        counts = _no_counts()
        for key, members in self.encoded(part.indexes.tolist(), counts):
            archive.write(key, members)
        counts["members"] = self.members_left_out(part.indexes)
        return counts

    def values(self, part: Part) -> tuple[dict[str, Any], list[tuple[str, Any]]]:
        """Return the counts of a part, and the keys and values of its samples."""
        counts, rows = _no_counts(), []
        for index in part.indexes.tolist():
            try:
                value = self.value(index)
            except WidsError as error:
                self.failed(error, counts)
                continue
            if value is None:
                counts["dropped"] += 1
            else:
                counts["written"] += 1
                rows.append((self.samples.key_at(index), value))
        return counts, rows

    def members_left_out(self, indexes: range | NDArray[np.int64]) -> dict[str, dict[str, int]]:
        """Return the counts of members in no sample, by shard, if stored fields are copied."""
        return {} if self.only_new else skipped_members(self.samples, indexes)

    def begun(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return what a run is begun with."""
        how = {"rename": self.rename, "only_new": self.only_new, "skips": self.skips}
        rows = np.arange(len(self.samples), dtype=np.int64)
        return begun_with(self.samples, rows, {**how, **options}, self.function)


def _no_counts() -> dict[str, Any]:
    classes = {"class_fields": [], "class_kept": False, "class_moved": False}
    return {"written": 0, "dropped": 0, "failed": 0, "skipped": [], "members": {}, **classes}


def _dotted(name: Any) -> str:
    return name if isinstance(name, str) and name.startswith(".") else f".{name}"


def _is_label(name: Any) -> bool:
    return isinstance(name, str) and name.startswith("__") and name.endswith("__")


def _to_stream(make: _Maker) -> MapResult:
    counts = _no_counts()
    shown = progress(range(len(make.samples)), total=len(make.samples), desc="mapping samples")
    with TarWriter("-") as writer:
        for key, members in make.encoded(shown, counts):
            fields = {name.removeprefix(key): data for name, data in members}
            writer.write({"__key__": key, **fields})
    counts["members"] = make.members_left_out(range(len(make.samples)))
    return _result([counts])


def _result(
    parts: Sequence[Mapping[str, Any]], failures: Mapping[str, Exception] | None = None
) -> MapResult:
    """Return the sum of the counts of parts."""
    members: dict[str, Any] = {}
    for counts in parts:  # a shard counts once, though several parts have read it
        members |= counts["members"]
    omissions = Omissions()
    for url, skipped in members.items():
        omissions.add_members(skipped, url)
    return MapResult(
        sum(counts["written"] for counts in parts),
        sum(counts["dropped"] for counts in parts),
        sum(counts["failed"] for counts in parts),
        [text for counts in parts for text in counts["skipped"]],
        [counts["entry"] for counts in parts if counts.get("entry")],
        dict(failures or {}),
        omissions,
    )


def _to_shards(
    make: _Maker,
    parts: list[Part],
    pattern: str,
    options: ShardOptions,
    run: Mapping[str, Any],
) -> MapResult:
    shards = NewShards(make.samples, pattern, make.fill, options)
    rows, failures = shards.write(parts, make.begun(shard_options(**options)), **run)
    done = _result(rows, failures)
    if not make.only_new:
        note_entry_keys(make.samples, done.omissions)
    if failures:
        return done
    if not done.entries:
        why = f"; {done.num_skipped} failed, the first: " if done.skipped else ""
        raise ValueError(
            f"{pattern}: no sample is left, no spec was written{why}{''.join(done.skipped[:1])}"
        )
    header = header_of(make.samples)
    if not _keeps_classes(make, rows, len(classes_by_column(header))):
        if names := class_names(header):
            what = "class names, as the field of the classes is not copied under a class extension"
            done.omissions.add(what, names[min(names)], len(names))
        elif columns := classes_by_column(header):
            what = (
                "class columns whose names are left out, as not all class fields are copied as "
                "named"
            )
            done.omissions.add(what, next(iter(columns)), len(columns))
        header = without_classes(header)
    header["lineage"] = getattr(make.samples, "lineage", None)
    shards.publish(done.entries, header, len(parts))
    return done


def _keeps_classes(make: _Maker, parts: Sequence[Mapping[str, Any]], num_columns: int) -> bool:
    """Return whether the class names of the spec still belong to a field of the new samples.

    They do if a class field is copied under a class extension, or if no sample had a class field:
    then they name another value, such as one in `.json`. Names by column belong to fields by their
    name, so that all class fields have to be copied as they are.

    Args:
        make: Function that made the samples.
        parts: Counts of each part.
        num_columns: Number of class columns that the spec names apart; 0 if it does not.
    """
    if make.only_new:
        return False
    fields = {name for counts in parts for name in counts["class_fields"]}
    if num_columns and fields:
        moved = any(counts["class_moved"] for counts in parts)
        return not moved and len(fields) >= num_columns
    if any(counts["class_kept"] for counts in parts):
        return True
    return not fields and not _stores_class(make.samples)


def _stores_class(samples: Viewable) -> bool:
    """Return whether the first sample has a class field in its shard, even if it is not read."""
    for dataset, first in shards_of_rows(samples, np.zeros(1, np.int64)):
        try:
            shard, local_index, _ = dataset.locate_sample(first)
        except (WidsError, OSError):
            continue
        if any(is_class(extension) for extension, _, _ in shard.index.fields(local_index)):
            return True
    return False


class NamedFunction:
    """Python function that is pickled by its name and imported by each process.

    Args:
        name: `module:function`, or `file.py:function`.

    Raises:
        ValueError: There is no such module, file or function.

    >>> NamedFunction("math:floor")(3.7)
    3
    """

    def __init__(self, name: str) -> None:
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
        self._name = name
        self.__wrapped__ = found  # where `inspect` looks for its source

    def __repr__(self) -> str:
        return f"NamedFunction({self._name!r})"

    def __call__(self, sample: Any) -> Any:
        """Return the result of the function."""
        return self.__wrapped__(sample)

    def __reduce__(self) -> tuple[Callable[[str], NamedFunction], tuple[str]]:
        # A module of a file cannot be imported by its name where a worker unpickles it.
        return NamedFunction, (self._name,)


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
