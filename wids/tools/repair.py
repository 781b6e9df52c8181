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
from wids.tar.salvage import salvage_tar
from wids.writing.shardfile import NewShard, shard_options

if TYPE_CHECKING:
    import os
    from collections.abc import Collection, Sequence

__all__ = ["LeftOut", "Repair", "repair_shard"]

_NEAR = "is next to damage, and may lack members"
_NUM_DOUBTED = 2  # samples after damage: of one whose long name is lost, a field is a sample first
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
    """

    entry: dict[str, Any] | None
    left_out: list[LeftOut]


@dataclass
class _SampleRun:
    """Adjacent members with the same key.

    `num_gaps` is the number of gaps before it, `doubt` why it may not be a whole sample.
    """

    key: str
    num_gaps: int
    doubt: str = ""
    names: list[str] = field(default_factory=list)
    spans: list[tuple[int, int]] = field(default_factory=list)

    @property
    def extensions(self) -> frozenset[str]:
        return frozenset(name[len(self.key) :] for name in self.names)


def repair_shard(source: str, output: str | os.PathLike[str]) -> Repair:
    """Copy every intact sample of a damaged shard into a new one.

    The sample before damage and the two after it are left out, since they may lack members. So are
    samples after it with fields that no other sample has, or that others have with more: an archive
    that was a field may have them. Changed bytes in the data of a member are not detected, since a
    tar has no checksum of data.

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
        runs, left_out = _runs(names, spans, {gap.num_before for gap in gaps})
        whole = _whole_runs(runs, left_out)
        left_out += [LeftOut(gap.start, gap.end, _short(gap.reason)) for gap in gaps]
        left_out.sort(key=lambda each: (each.start, each.end))
        entry = _write(path, whole, output) if left_out and whole else None
        return Repair(entry, left_out)


def _runs(
    names: Sequence[bytes], spans: Sequence[tuple[int, int]], borders: Collection[int]
) -> tuple[list[_SampleRun], list[LeftOut]]:
    """Group adjacent members with the same key into runs; doubt those next to a gap.

    Args:
        names: Names of the members.
        spans: Their offsets and sizes.
        borders: Numbers of the members before which there are gaps.
    """
    runs: list[_SampleRun] = []
    left_out: list[LeftOut] = []
    # A sample never continues after a gap: what the gap held may have been its members.
    open_run: _SampleRun | None = None
    num_gaps, num_after = 0, _NUM_DOUBTED
    for number, (name, span) in enumerate(zip(names, spans, strict=True)):
        if number in borders:
            _doubt_last(runs)
            open_run, num_gaps, num_after = None, num_gaps + 1, 0
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
            open_run = _SampleRun(key, num_gaps, _NEAR if num_after < _NUM_DOUBTED else "")
            runs.append(open_run)
            num_after += 1
        open_run.names.append(name.decode("utf-8", "surrogateescape"))
        open_run.spans.append(span)
    if len(names) in borders:
        _doubt_last(runs)
    return runs, left_out


def _doubt_last(runs: Sequence[_SampleRun]) -> None:
    if runs:
        runs[-1].doubt = _NEAR


def _whole_runs(runs: Sequence[_SampleRun], left_out: list[LeftOut]) -> list[_SampleRun]:
    """Return the runs that are intact samples; list the others as left out."""
    # Members after damage may be those of an archive that was itself a field. So only the runs
    # before all damage, and those between the two gaps with most runs, say what samples look like.
    largest = Counter(run.num_gaps for run in runs).most_common(1)
    sure = {0, *(num_gaps for num_gaps, _ in largest)}
    known = {run.extensions for run in runs if not run.doubt and run.num_gaps in sure}
    times = Counter(run.key for run in runs)
    whole: list[_SampleRun] = []
    for run in runs:
        reason = run.doubt
        if times[run.key] > 1:
            reason = "its key occurs twice"
        elif len(run.extensions) < len(run.names):
            reason = "has a field twice"
        elif run.extensions not in known:
            reason = reason or "follows damage, and has fields that no other sample has"
        elif run.num_gaps not in sure and any(run.extensions < each for each in known):
            reason = reason or "follows damage, and may lack fields that other samples have"
        if reason:
            start, end = _bytes_of(run.spans[0])[0], _bytes_of(run.spans[-1])[1]
            left_out.append(LeftOut(start, max(start, end), reason, run.key))
        else:
            whole.append(run)
    return whole


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
