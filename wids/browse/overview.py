"""Dataset page: facts of the spec, shards and their states, faults, statistics, histograms."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import threading
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from wids.base.urls import display_url, file_name, hide_credentials, is_local, local_path
from wids.browse.tallies import NumberTally
from wids.display.safejson import safe_text
from wids.reading.describe import nbytes_of
from wids.specs.shardtable import UNKNOWN
from wids.tools.stats import SizeStats, Stats

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from wids.base.shardref import ShardRef
    from wids.browse.facets import ColumnValues, FacetColumn
    from wids.browse.fieldreader import FieldReader

__all__ = [
    "CheckReport",
    "FigureVisitor",
    "OverShards",
    "ShardProfile",
    "StatisticsVisitor",
    "dataset_facts",
    "find_report",
    "over_shards",
    "read_report",
    "shard_rows",
    "spread",
]

_MOST_NBYTES = 64 << 20
_MOST_IDENTIFIED = 200  # shards that tell a dataset from others
_MOST_BLOCKS = 400  # of them together
_BLOCK_NBYTES = 4096

CheckReport = dict[str, Any]


def find_report(source: str) -> CheckReport | None:
    """Read the report of `wids check` on a spec: `train.check.json` for `train.json`.

    Args:
        source: The spec, as given on the command line.

    Returns:
        The report, or None if there is no readable one.
    """
    if not is_local(source) or not source.endswith(".json"):
        return None
    path = local_path(source).with_suffix(".check.json")
    try:
        return read_report(path) if path.is_file() else None
    except (OSError, ValueError):
        return None


def read_report(path: Path) -> CheckReport:
    """Read a report.

    Returns:
        `num_shards`, `num_errors`, and `faults`, each with shard, place, what, cure, severity.

    Raises:
        ValueError: The file is not a report.
        OSError: It cannot be read.
    """
    if path.stat().st_size > _MOST_NBYTES:
        raise ValueError(f"{path}: expected at most {_MOST_NBYTES} bytes of a report")
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
    except RecursionError as error:
        raise ValueError(f"{path}: more levels of JSON than are read") from error
    faults = report.get("faults") if isinstance(report, dict) else None
    if not isinstance(faults, list) or not all(isinstance(fault, dict) for fault in faults):
        raise ValueError(
            f"{path}: expected what `wids check SPEC --json` prints, found no list of faults"
        )
    names = ("shard", "place", "what", "cure", "severity")
    kept = [{name: str(fault.get(name, "")) for name in names} for fault in faults]
    counts = {name: report.get(name) for name in ("num_shards", "num_errors")}
    return {
        **{name: count if isinstance(count, int) else 0 for name, count in counts.items()},
        "faults": kept,
    }


def dataset_facts(reader: FieldReader) -> dict[str, Any]:
    """Return the facts of the dataset from its spec alone; opens no shard."""
    dataset = reader.dataset
    shards = dataset.shards
    known = shards.filesize != UNKNOWN
    nbytes = nbytes_of(shards)
    if nbytes is None and known.any():
        nbytes = int(shards.filesize[known].sum())
    return {
        "name": dataset.header["name"],
        "identity": _identity(reader),
        "num_samples": len(reader),
        "num_shards": len(shards),
        "num_uncounted": reader.num_uncounted,
        "nbytes": nbytes,
        "base": display_url(dataset.base) if dataset.base else "",
    }


def _identity(reader: FieldReader) -> str:
    """Return a text that differs for other shards, and for shards that were written anew.

    A copy has the text of the original, so it depends neither on the folder nor on times of files.
    Of a large dataset, some of the shards are looked at, beside the lengths of all.
    """
    shards = reader.dataset.shards
    digest = hashlib.blake2b(digest_size=12)
    digest.update(np.asarray(shards.nsamples, np.int64).tobytes())
    digest.update(np.asarray(shards.filesize, np.int64).tobytes())
    numbers = spread(len(shards), _MOST_IDENTIFIED)
    count = min(max(_MOST_BLOCKS // max(len(numbers), 1), 2), 16)
    for number in numbers:
        ref = shards[number]
        url = ref.url
        # Without a digest, only its place tells a remote shard from others of its name.
        by_name = is_local(url) or ref.digests
        facts: list[Any] = [file_name(url) if by_name else display_url(url)]
        facts += sorted(ref.digests.items())
        if is_local(url):
            with suppress(OSError):
                facts += _blocks(local_path(url), count)
        digest.update(repr(facts).encode("utf-8", "replace"))
    return digest.hexdigest()


def _blocks(path: Path, count: int) -> list[Any]:
    """Return the size of a file, and blocks of bytes spread evenly over it.

    A sample of another length moves the headers of all samples behind it.
    """
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):  # reading a pipe would wait for its writer
        return []
    with path.open("rb", buffering=0) as file:
        starts = [number * status.st_size // count for number in range(count)]
        return [status.st_size, *(os.pread(file.fileno(), _BLOCK_NBYTES, at) for at in starts)]


def shard_rows(
    reader: FieldReader, start: int, count: int, faults: dict[str, list[dict[str, str]]]
) -> list[dict[str, Any]]:
    """Return rows of the table of shards: spec entry, state on disk, known faults.

    Args:
        reader: The dataset.
        start: The first shard.
        count: Number of shards.
        faults: Faults that `wids check` found, by URL.

    Returns:
        A dict for each: `shard`, `url`, `first_index`, `num_samples`, `nbytes` (None if unknown),
        `state` ("local", "cached", "remote", "missing", "denied", "unreachable" or "damaged") and
        `messages`.
    """
    stop = min(start + count, reader.num_shards)
    return [_row(reader, number, faults) for number in range(max(start, 0), stop)]


def _row(
    reader: FieldReader, number: int, faults: dict[str, list[dict[str, str]]]
) -> dict[str, Any]:
    ref = reader.dataset.shards[number]
    state, nbytes = _state(reader, ref)
    found = faults.get(ref.url, [])
    messages = [hide_credentials(f"{fault['place']}: {fault['what']}") for fault in found]
    failure = reader.failures.of_shard(number, ref.url)
    if failure is not None:
        messages.insert(0, failure.message)
    if failure is not None and failure.kind != "damaged":
        # A failure of the server does not matter for a shard in the cache.
        told = "unreachable" if failure.unreachable else failure.kind
        state = told if state == "remote" else state
    # A note of `wids check`, such as bytes after the end, is not damage.
    elif failure is not None or any(fault.get("severity") == "error" for fault in found):
        state = "missing" if state == "missing" else "damaged"
    return {
        "shard": number,
        "url": display_url(ref.url),
        "first_index": reader.first_index(number),
        "num_samples": reader.num_samples(number),
        "nbytes": nbytes,
        "state": state,
        "messages": messages[:5],
    }


def _state(reader: FieldReader, ref: ShardRef) -> tuple[str, int | None]:
    """Return the state of a shard, and the size of its file or, without a file, of the spec."""
    # For a remote shard only the spec is used, since each row would cost a request to the server.
    if reader.is_far(ref):
        return "remote", ref.filesize
    if not reader.dataset.cache.is_local(ref.url):
        return "cached", ref.filesize
    try:
        status = local_path(ref.url).stat()
    except OSError:
        return "missing", ref.filesize
    # A size that differs from the spec is damage, and is noticed without opening the shard.
    size = ref.filesize
    return ("local" if size in (None, status.st_size) else "damaged"), status.st_size


_CLASS_FIELDS = (".cls", ".cls2", ".label", ".class")
# More than any dataset has classes, and few enough to take little memory.
_MOST_CLASSES = 100_000
_MOST_SHOWN = 60
_MOST_PROFILES = 2_000  # shards whose own counts are kept
_MOST_OWN_CLASSES = 200  # of a shard, among them
_MOST_FIELDS = 48
_MOST_LABEL_NBYTES = 200


def spread(num_shards: int, count: int) -> list[int]:
    """Choose some shards at even distances, the first among them.

    >>> spread(10, 4), spread(3, 8)
    ([0, 2, 5, 7], [0, 1, 2])
    """
    if count >= num_shards:
        return list(range(num_shards))
    return [number * num_shards // count for number in range(count)]


class StatisticsVisitor:
    """Sums up fields and classes of the shards it visits.

    Args:
        reader: The dataset.
        class_names: Names of classes, by number.
    """

    def __init__(self, reader: FieldReader, class_names: Mapping[int, str]) -> None:
        self._reader = reader
        self._class_names = class_names
        self._stats = Stats()
        self._profiles: list[ShardProfile] = []
        self._class_field: str | None = None
        self._num_unclassed = 0
        self._crowded = False
        self._lock = threading.Lock()

    def visit(self, shard_index: int) -> bool:
        """Add one shard."""
        index = self._reader.tar_index(shard_index)
        if index is None:
            return self._reader.num_samples(shard_index) == 0
        columns = index.columns()
        sizes = columns.sizes_by_extension()
        fields = {extension: SizeStats.of(found) for extension, found in sorted(sizes.items())}
        values = self._classes(shard_index, sizes)
        whole = columns.sample_sizes()
        with self._lock:
            if len(self._profiles) < _MOST_PROFILES:
                counts = {extension: int(each.size) for extension, each in sizes.items()}
                own = dict(values.most_common(_MOST_OWN_CLASSES))
                self._profiles.append(ShardProfile(shard_index, whole.size, counts, own))
            self._stats += Stats(SizeStats.of(whole), fields, values)
            num_samples = self._reader.num_samples(shard_index)
            self._num_unclassed += max(num_samples - values.total(), 0)
            # Texts that all differ are not classes, and would only fill the memory.
            self._crowded = len(self._stats.values) > _MOST_CLASSES
            if self._crowded:
                self._stats.values.clear()
        return True

    def _classes(self, shard_index: int, sizes: Mapping[str, Any]) -> Counter[str]:
        if self._class_field is None:
            # The first shard decides on the field, so that all shards are counted by the same one.
            self._class_field = next((name for name in _CLASS_FIELDS if name in sizes), None)
        field = self._class_field
        if field is None or self._crowded:
            return Counter()
        if self._reader.may_be_joined(field):
            values = self._reader.joined_values(shard_index, field)
            return Counter(str(each) for each in values if each is not None and each != "")
        if field not in sizes:
            return Counter()
        rows = self._reader.rows(shard_index, (field,), _MOST_LABEL_NBYTES) or ()
        labels = (bytes(row[field]) for row in rows if row.get(field) is not None)
        named = Counter(label.decode("utf-8", "replace").strip() for label in labels)
        del named[""]  # an empty field is no class
        return named

    def as_dict(self) -> dict[str, Any]:
        """Return the results so far as JSON."""
        with self._lock:
            stats = self._stats
            # If there are thousands of fields, those that most samples have.
            names = sorted(stats.fields, key=lambda name: (-stats.fields[name].count, name))
            commonest = stats.values.most_common()
            counts = np.array([count for _, count in commonest] or [0])
            classes = [
                (label, self._name(label), count) for label, count in commonest[:_MOST_SHOWN]
            ]
            over = over_shards(self._profiles)
            over_named = [(label, self._name(label), each) for label, each in over.classes]
            return {
                "samples": _sizes("sample", stats.samples),
                "fields": [_sizes(name, stats.fields[name]) for name in names[:_MOST_FIELDS]],
                "num_fields": len(stats.fields),
                "class_field": self._class_field,
                "num_classes": len(stats.values),
                "unclassed": self._num_unclassed,
                # Most classes are numbers, which are sorted as numbers: 10 after 9.
                "classes": sorted(
                    classes, key=lambda row: (int(row[0]) if _is_number(row[0]) else 2**31, row[0])
                ),
                "counts": {
                    "least": int(counts.min()),
                    "median": float(np.median(counts)),
                    "most": int(counts.max()),
                },
                "extremes": [
                    (self._name(label) or label, count)
                    for label, count in (commonest and (commonest[0], commonest[-1]))
                ],
                "over_shards": {**over._asdict(), "classes": over_named},
            }

    def _name(self, label: str) -> str | None:
        return self._class_names.get(int(label)) if _is_number(label) else None


def _is_number(label: str) -> bool:
    return label.isdecimal() and len(label) < 10


def _sizes(name: str, sizes: SizeStats) -> dict[str, Any]:
    return {"name": name, **vars(sizes), "mean": sizes.mean}


class FigureVisitor:
    """Histograms of what headers state, such as widths, and of the aspect ratios of images.

    Args:
        reader: The dataset.
        values: Values of its columns.
    """

    def __init__(self, reader: FieldReader, values: ColumnValues) -> None:
        self._reader = reader
        self._values = values
        self._columns = [each for each in values.group(in_json=False) if each.is_number]
        self._tallies = {column: NumberTally() for column in self._columns}
        self._aspects: dict[str, NumberTally] = {}
        self._lock = threading.Lock()

    def visit(self, shard_index: int) -> bool:
        """Count one shard; of a remote one no headers are fetched."""
        ref = self._reader.dataset.shards[shard_index]
        if self._reader.is_far(ref) or self._reader.tar_index(shard_index) is None:
            return True
        found = self._values.of(shard_index, in_json=False)
        with self._lock:
            for column in self._columns:
                self._tallies[column].add(np.asarray(found[column]))
                if column.path == ("width",):
                    self._add_aspect(column, np.asarray(found[column]), found)
        return True

    def _add_aspect(self, width: FacetColumn, widths: np.ndarray, found: dict[Any, Any]) -> None:
        heights = next(
            (found[c] for c in self._columns if (c.field, c.path) == (width.field, ("height",))),
            None,
        )
        if heights is None:
            return
        with np.errstate(divide="ignore", invalid="ignore"):
            shares = np.round(widths / heights, 2)
        self._aspects.setdefault(width.field, NumberTally()).add(shares)

    def as_list(self) -> list[dict[str, Any]]:
        """Return the histograms so far as JSON; `name` is what filters call a column, else None."""
        with self._lock:
            columns = [
                {"field": each.field, "fact": each.path[0], "name": each.name, **tally.as_dict()}
                for each, tally in self._tallies.items()
                if tally.is_of_use
            ]
            aspects = [
                {"field": field, "fact": "aspect", "name": None, **tally.as_dict()}
                for field, tally in self._aspects.items()
                if tally.is_of_use
            ]
        return [{**each, "field": safe_text(each["field"], 200)} for each in columns + aspects]


_MOST_BINS = 60  # of adjacent shards
_MOST_SHOWN_CLASSES = 10
_MOST_LACKING = 24


@dataclass(frozen=True)
class ShardProfile:
    """What is counted in a shard.

    Attributes:
        shard: Its number.
        num_samples: Samples in it.
        fields: Number of samples that have each field.
        classes: Number of samples of each class.
    """

    shard: int
    num_samples: int
    fields: Mapping[str, int]
    classes: Mapping[str, int]


class OverShards(NamedTuple):
    """How classes and missing fields change over the shards, in bins of adjacent ones.

    Attributes:
        shards: The first shard of each bin.
        samples: Samples in each bin.
        classes: The commonest classes, each with its samples in each bin.
        missing: For each field that samples lack, their number in each bin.
    """

    shards: list[int]
    samples: list[int]
    classes: list[tuple[str, list[int]]]
    missing: dict[str, list[int]]


def over_shards(profiles: Sequence[ShardProfile]) -> OverShards:
    """Sum up the profiles of adjacent shards.

    >>> one, other = ({"a": 2}, {"a": 1, "b": 1})
    >>> first, last = ShardProfile(0, 2, {".x": 2}, one), ShardProfile(7, 2, {}, other)
    >>> found = over_shards([first, last])
    >>> found.shards, found.classes, found.missing
    ([0, 7], [('a', [2, 1]), ('b', [0, 1])], {'.x': [0, 2]})
    """
    ordered = sorted(profiles, key=lambda profile: profile.shard)
    step = max(1, -(-len(ordered) // _MOST_BINS))
    bins = [ordered[first : first + step] for first in range(0, len(ordered), step)]
    totals: Counter[str] = Counter()
    fields: Counter[str] = Counter()
    for profile in ordered:
        totals.update(profile.classes)
        fields.update(profile.fields)
    samples = [sum(profile.num_samples for profile in each) for each in bins]
    lacking = [field for field, count in fields.most_common() if count < sum(samples)]
    return OverShards(
        [each[0].shard for each in bins],
        samples,
        [
            (label, [sum(profile.classes.get(label, 0) for profile in each) for each in bins])
            for label, _ in totals.most_common(_MOST_SHOWN_CLASSES)
        ],
        {
            field: [
                sum(profile.num_samples - profile.fields.get(field, 0) for profile in each)
                for each in bins
            ]
            for field in lacking[:_MOST_LACKING]
        },
    )
