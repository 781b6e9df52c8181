"""Repair: copies the intact samples of a damaged shard into a new one."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, Any

from wids.base.decompression import DecompressionError, decompressed
from wids.base.mapping import map_file
from wids.base.urls import is_local, local_path
from wids.caching.unpack import compression_of
from wids.specs.build import local_copy
from wids.tar.grouping import split_name
from wids.tar.salvage import Gap, salvage_tar
from wids.writing.shardfile import NewShard, shard_options

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Sequence

__all__ = ["LeftOut", "Repair", "repair_shard"]

_READ_NBYTES = 1 << 20
_MAX_NBYTES = 1 << 50  # of a compressed shard: whoever repairs one chose it


@dataclass(frozen=True)
class LeftOut:
    """Bytes of a damaged shard that are not in the new one.

    Attributes:
        start: First byte.
        end: Byte behind the last one.
        reason: Why they are left out.
        key: The sample that they belong to; None for bytes of no sample.
    """

    start: int
    end: int
    reason: str
    key: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the bytes left out as a dict for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        what = "" if self.key is None else f"sample {self.key!r}: "
        return f"bytes [{self.start}, {self.end}): {what}{self.reason}"


@dataclass(frozen=True)
class Repair:
    """Result of `repair_shard`.

    Attributes:
        entry: The spec entry of the new shard; None where nothing was damaged, or no sample whole.
        left_out: What the new shard has not, by byte.
    """

    entry: dict[str, Any] | None
    left_out: list[LeftOut]


@dataclass
class _Run:
    """Adjacent members with the same key."""

    key: str
    names: list[str]
    spans: list[tuple[int, int]]
    damaged: str = ""

    @property
    def extensions(self) -> frozenset[str]:
        return frozenset(name[len(self.key) :] for name in self.names)


def repair_shard(source: str, output: str | os.PathLike[str]) -> Repair:
    """Copy every intact sample of a damaged shard into a new one.

    A sample beside damage counts as whole if it has the fields that most others have and its last
    member is proven to end where it should. Changed bytes inside of a member's data cannot be seen:
    a tar has no checksum of data.

    Args:
        source: Path or URL of the shard; `.tar.gz` and `.tar.zst` are unpacked as far as they go.
        output: Path of the new shard. It is not written where nothing is damaged.

    Raises:
        ValueError: The new shard would replace the damaged one.
        FetchError: The shard could not be fetched.
        OSError: A file cannot be opened or written.
    """
    output = Path(output)
    # A damaged compressed shard cannot be read in any other way.
    copy = nullcontext(local_path(source)) if is_local(source) else local_copy(source)
    with copy as path, _unpacked(path) as (tar, torn):
        if output.exists() and output.samefile(path):
            raise ValueError(f"{output}: is the damaged shard itself; write the new one elsewhere")
        members, gaps = salvage_tar(tar)
        names = members.names.split(b"\0")[:-1]
        spans = [(int(offset), int(size)) for offset, size in members.spans]
        runs, left_out = _runs(names, spans, gaps)
        whole = _whole_runs(runs, left_out)
        left_out += [LeftOut(gap.start, gap.end, _short(gap.reason)) for gap in gaps]
        if torn:
            left_out.append(LeftOut(members.shard_nbytes, members.shard_nbytes, torn))
        left_out.sort(key=lambda each: (each.start, each.end))
        if not left_out or not whole:
            return Repair(None, left_out)
        return Repair(_write(tar, whole, output), left_out)


@contextmanager
def _unpacked(path: Path) -> Iterator[tuple[Path, str]]:
    """Context manager that decompresses a shard up to the first error, and gives that error."""
    with path.open("rb") as stream:
        compression = compression_of(stream.read(16))
        if compression not in {"gzip", "zstd"}:
            yield path, ""
            return
        stream.seek(0)
        torn = ""
        with NamedTemporaryFile(prefix="wids-", suffix=".tar") as plain:
            blocks = iter(lambda: stream.read(_READ_NBYTES), b"")
            try:
                for piece in decompressed(blocks, compression, _MAX_NBYTES):
                    plain.write(piece)
            except DecompressionError as error:
                torn = str(error)
            plain.flush()
            yield Path(plain.name), torn


def _runs(
    names: Sequence[bytes], spans: Sequence[tuple[int, int]], gaps: Sequence[Gap]
) -> tuple[list[_Run], list[LeftOut]]:
    """Group adjacent members of one key into runs; mark the runs that border on a gap."""
    runs: list[_Run] = []
    left_out: list[LeftOut] = []
    gap_at = {gap.num_before: gap for gap in gaps}
    open_run: _Run | None = None
    after_gap = False
    for number, (name, span) in enumerate(zip(names, spans, strict=True)):
        if gap := gap_at.get(number):
            _mark_before(open_run, gap)
            open_run, after_gap = None, True
        parts = split_name(name)
        if isinstance(parts, str):
            text = name.decode(errors="backslashreplace")
            left_out.append(LeftOut(*_bytes_of(span), f"member {text!r} is in no sample ({parts})"))
            continue
        key = parts[0].decode("utf-8", "surrogateescape")
        if open_run is None or open_run.key != key:
            open_run = _Run(key, [], [], "begins behind a gap" if after_gap else "")
            runs.append(open_run)
            after_gap = False
        open_run.names.append(name.decode("utf-8", "surrogateescape"))
        open_run.spans.append(span)
    if gap := gap_at.get(len(names)):
        _mark_before(open_run, gap)
    return runs, left_out


def _mark_before(run: _Run | None, gap: Gap) -> None:
    if run is not None:
        run.damaged = "ends before a gap"
        if not gap.sure_before:
            run.damaged = "its last member may be damaged"
            run.names.append("")  # fields that no other sample has


def _whole_runs(runs: Sequence[_Run], left_out: list[LeftOut]) -> list[_Run]:
    """Return the runs that are intact samples; list the others as left out."""
    usual = Counter(run.extensions for run in runs if not run.damaged).most_common(1)
    times = Counter(run.key for run in runs)
    whole: list[_Run] = []
    seen: set[str] = set()
    for number, run in enumerate(runs):
        # Beside damage, and where a key comes twice, only the usual fields prove a sample whole.
        near = (each.damaged for each in (run, *runs[max(number - 1, 0) : number + 2]))
        twice = "its key comes twice" if times[run.key] > 1 else ""
        doubtful = next(filter(None, near), twice)
        reason = ""
        if doubtful and (not usual or run.extensions != usual[0][0]):
            reason = f"is not whole ({doubtful})"
        elif run.key in seen:
            reason = "is there a second time"
        elif len(run.extensions) < len(run.names):
            reason = "has a field twice"
        if reason:
            start, _ = _bytes_of(run.spans[0])
            _, end = _bytes_of(run.spans[-1])
            left_out.append(LeftOut(start, max(start, end), reason, run.key))
        else:
            seen.add(run.key)
            whole.append(run)
    return whole


def _bytes_of(span: tuple[int, int]) -> tuple[int, int]:
    offset, size = span
    return offset, offset + size


def _short(reason: str) -> str:
    """Return the message of a format error without path and advice."""
    return reason.partition(": ")[2].partition("; fetch")[0] if "; fetch" in reason else reason


def _write(tar: Path, runs: Sequence[_Run], output: Path) -> dict[str, Any]:
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
