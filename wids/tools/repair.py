"""Repair: copies the intact samples of a damaged shard into a new one."""

from __future__ import annotations

import errno
from collections import Counter
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wids.base.files import map_file
from wids.base.urls import display_url, is_local, local_path
from wids.caching.cache import local_copy
from wids.caching.download import compression_of
from wids.tar.grouping import split_name
from wids.tar.salvage import Gap, salvage_tar
from wids.writing.shardfile import NewShard, shard_options

if TYPE_CHECKING:
    import os
    from collections.abc import Collection, Sequence

__all__ = ["LeftOut", "Repair", "repair_shard"]

_FEW = 5  # with at most this many samples, the fields of each count as usual
_CUT_NBYTES = 99  # of a name whose long form is lost, as a plain header holds it


@dataclass(frozen=True)
class LeftOut:
    """Bytes of a damaged shard that are not in the new one.

    Attributes:
        start: Offset of the first byte.
        end: Offset after the last byte.
        reason: Why they are left out.
        key: Key of their sample; None for bytes outside of samples.
    """

    start: int
    end: int
    reason: str
    key: str | None = None

    def __str__(self) -> str:
        what = "" if self.key is None else f"sample {self.key!r}: "
        return f"bytes [{self.start}, {self.end}): {what}{self.reason}"


@dataclass(frozen=True)
class Repair:
    """Result of `repair_shard`.

    Attributes:
        entry: The spec entry of the new shard; None if nothing is damaged or no sample is intact.
        left_out: The bytes that are not in the new shard, by offset.
        lacking: Fields that other copied samples have, for the key of each copied sample that lacks
            some. It may never have had them.
    """

    entry: dict[str, Any] | None
    left_out: list[LeftOut]
    lacking: dict[str, list[str]] = field(default_factory=dict)


@dataclass
class _SampleRun:
    """Adjacent members with the same key.

    `first` is the number of the first member in the shard, `gaps_before` that of gaps before it.
    """

    key: str
    first: int
    gaps_before: int
    damaged: str = ""
    names: list[str] = field(default_factory=list)
    spans: list[tuple[int, int]] = field(default_factory=list)

    @property
    def extensions(self) -> frozenset[str]:
        return frozenset(name[len(self.key) :] for name in self.names)


def repair_shard(source: str, output: str | os.PathLike[str]) -> Repair:
    """Copy every intact sample of a damaged shard into a new one.

    A sample next to damage counts as intact if another sample has the same fields, no sample has
    these and more, and the end of its last member is certain; the report names it. Changed bytes in
    the data of a member are not detected, since a tar has no checksum of data.

    Args:
        source: Path or URL of the shard.
        output: Path of the new shard, which is not written if nothing is damaged.

    Raises:
        ValueError: The new shard would replace the damaged one, or that is compressed.
        FileExistsError: The new shard would replace another file, perhaps an intact shard.
        FetchError: The shard cannot be fetched.
        OSError: A file cannot be opened or written.
    """
    output = Path(output)
    with nullcontext(local_path(source)) if is_local(source) else local_copy(source) as path:
        with path.open("rb") as stream:
            compression = compression_of(stream.read(16))
        if compression is not None:
            raise ValueError(
                f"{display_url(source)}: is compressed; unpack it as far as it goes (gzip -dc, "
                "zstd -dc), and repair the tar"
            )
        if output.exists() and output.samefile(path):
            raise ValueError(f"{output}: is the damaged shard itself; write the new one elsewhere")
        if output.exists():
            way_out = "exists already; remove it, or write the new shard elsewhere"
            raise FileExistsError(errno.EEXIST, way_out, str(output))
        members, gaps = salvage_tar(path)
        names = members.names.split(b"\0")[:-1]
        spans = [(int(offset), int(size)) for offset, size in members.spans]
        runs, left_out = _runs(names, spans, gaps)
        whole = _whole_runs(runs, left_out)
        likely = [run for run in whole if run.damaged]
        for gap in gaps:
            near = [r.key for r in likely if gap.num_before in (r.first, r.first + len(r.names))]
            left_out.append(LeftOut(gap.start, gap.end, f"{_short(gap.reason)}{_taken(near)}"))
        left_out.sort(key=lambda each: (each.start, each.end))
        if not left_out or not whole:
            return Repair(None, left_out)
        every = frozenset[str]().union(*(run.extensions for run in whole))
        lacking = {r.key: sorted(every - r.extensions) for r in whole if r.extensions < every}
        return Repair(_write(path, whole, output), left_out, lacking)


def _runs(
    names: Sequence[bytes], spans: Sequence[tuple[int, int]], gaps: Sequence[Gap]
) -> tuple[list[_SampleRun], list[LeftOut]]:
    """Group adjacent members with the same key into runs; mark the runs next to a gap."""
    runs: list[_SampleRun] = []
    left_out: list[LeftOut] = []
    gaps_at: dict[int, list[Gap]] = {}
    for gap in gaps:
        gaps_at.setdefault(gap.num_before, []).append(gap)
    open_run: _SampleRun | None = None
    after_gap, gaps_before = False, 0
    for number, (name, span) in enumerate(zip(names, spans, strict=True)):
        # A sample never continues after a gap: what the gap held may have been its members.
        if number in gaps_at:
            _mark_before(open_run, gaps_at[number])
            open_run, after_gap, gaps_before = None, True, gaps_before + 1
        parts = split_name(name)
        if isinstance(parts, str):
            text = name.decode(errors="backslashreplace")
            why = f"member {text!r} is in no sample ({parts})"
            if len(name) >= _CUT_NBYTES and runs:
                why += f"; its name may be cut, and it may be a field of {runs[-1].key!r}"
            left_out.append(LeftOut(*_bytes_of(span), why))
            continue
        key = parts[0].decode("utf-8", "surrogateescape")
        if open_run is None or open_run.key != key:
            open_run = _SampleRun(
                key, number, gaps_before, "begins after a gap" if after_gap else ""
            )
            runs.append(open_run)
            after_gap = False
        open_run.names.append(name.decode("utf-8", "surrogateescape"))
        open_run.spans.append(span)
    _mark_before(open_run, gaps_at.get(len(names), []))
    return runs, left_out


def _mark_before(run: _SampleRun | None, gaps: Sequence[Gap]) -> None:
    """Mark the run before one or more gaps, unless the first gap shows that it is intact."""
    if run is None or not gaps:
        return
    if not all(gap.sure_before for gap in gaps):
        run.damaged = "its last member may be damaged"
        run.names.append("")  # fields that no other sample has
    elif gaps[0].cut_name is None:
        run.damaged = "ends before a gap"
    elif gaps[0].cut_name.decode("utf-8", "surrogateescape").startswith(f"{run.key}."):
        run.damaged = "its next member is cut off"
        run.names.append("")


def _whole_runs(runs: Sequence[_SampleRun], left_out: list[LeftOut]) -> list[_SampleRun]:
    """Return the runs that are intact samples; list the others as left out."""
    # Members after damage may be those of an archive that was itself a field. So only the runs
    # before all damage, and those between the two gaps with most runs, say what samples look like.
    largest = Counter(run.gaps_before for run in runs).most_common(1)
    sure = {0, *(gaps_before for gaps_before, _ in largest)}
    seen_as = Counter(r.extensions for r in runs if not r.damaged and r.gaps_before in sure)
    most = max(seen_as.values(), default=0)
    known = {fields for fields, count in seen_as.items() if count > 1 or most < _FEW}
    times = Counter(run.key for run in runs)
    undamaged = {run.key for run in runs if not run.damaged}
    whole: list[_SampleRun] = []
    lost: list[tuple[int, str]] = []
    seen: set[str] = set()
    for number, run in enumerate(runs):
        # A sample next to damage, or with a key that occurs twice, is intact only if another sample
        # has the same fields and no sample has more.
        near = (each.damaged for each in (run, *runs[max(number - 1, 0) : number + 2]))
        twice = "its key occurs twice" if times[run.key] > 1 else ""
        after = "" if run.gaps_before in sure else "it follows a gap"
        doubtful = next(filter(None, near), twice or after)
        reason = ""
        if doubtful and run.extensions not in known:
            reason = f"is not complete ({doubtful})"
        elif doubtful and any(run.extensions < each for each in seen_as):
            reason = f"may lack fields that other samples have ({doubtful})"
        elif run.key in seen or (run.damaged and run.key in undamaged):
            reason = "is there a second time"
        elif len(run.extensions) < len(run.names):
            reason = "has a field twice"
        if reason:
            lost.append((number, reason))
        else:
            seen.add(run.key)
            whole.append(run)
    left_out += [_left_out_run(runs, number, reason, seen) for number, reason in lost]
    return whole


def _left_out_run(
    runs: Sequence[_SampleRun], number: int, reason: str, kept: Collection[str]
) -> LeftOut:
    """Return a run as bytes left out; names the kept samples that it may have been a part of."""
    run = runs[number]
    start, _ = _bytes_of(run.spans[0])
    _, end = _bytes_of(run.spans[-1])
    near = (runs[n] for n in (number - 1, number + 1) if 0 <= n < len(runs))
    # Those that are damaged themselves are named with the gap.
    taken = [each.key for each in near if run.damaged and each.key in kept and not each.damaged]
    return LeftOut(start, max(start, end), f"{reason}{_taken(taken)}", run.key)


def _taken(keys: Sequence[str]) -> str:
    return f"; taken as intact by its fields: {', '.join(map(repr, keys))}" if keys else ""


def _bytes_of(span: tuple[int, int]) -> tuple[int, int]:
    offset, size = span
    return offset, offset + size


def _short(reason: str) -> str:
    """Return the message of a format error without path and advice."""
    return reason.partition(": ")[2].partition("; fetch")[0] if "; fetch" in reason else reason


def _write(tar: Path, runs: Sequence[_SampleRun], output: Path) -> dict[str, Any]:
    shard = NewShard(output, shard_options())
    try:
        with tar.open("rb") as stream:
            data = map_file(stream.fileno())
        for run in runs:
            members = [
                (name, data[offset : offset + size])
                for name, (offset, size) in zip(run.names, run.spans, strict=True)
            ]
            shard.archive.write(run.key, members, stable=True)
        return shard.publish(output.parent)
    finally:
        shard.discard()
