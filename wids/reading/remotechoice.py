"""The choice of remote="auto": whole shards are fetched, or samples are read by byte range."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from wids.base.text import format_nbytes
from wids.ordering.replicas import ranks_here, streams_here
from wids.ordering.samplers import ChunkedSampler

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["RemoteChoice", "choose_remote", "room_in_cache"]

_MOSTLY = 0.5  # part of a shard from which on fetching it whole is better


@dataclass(frozen=True)
class RemoteChoice:
    """How remote samples are read, and why.

    Attributes:
        whole: Whether whole shards are fetched; else samples are read by range.
        reason: What decided.
    """

    whole: bool
    reason: str

    def __str__(self) -> str:
        return f"{'whole shards' if self.whole else 'by range'}, since {self.reason}"


def choose_remote(
    sampler: Any, num_samples: int, nbytes: int | None, room_nbytes: int | None
) -> RemoteChoice:
    """Choose how the samples of a sampler are read.

    Whole shards are better where this machine uses most of each shard and can keep all that it
    uses, so that later epochs download nothing. Otherwise ranges download less, or the same without
    a disk.

    Args:
        sampler: What draws the samples.
        num_samples: Samples of the dataset.
        nbytes: Bytes of all its remote shards; None if they are not known.
        room_nbytes: Bytes that the cache may take; None if its folder cannot be written to.

    >>> from wids.ordering.samplers import ChunkedSampler
    >>> sampler = ChunkedSampler(range(100))
    >>> str(choose_remote(sampler, 100, 5000, 9000)), choose_remote(sampler, 100, 5000, 900).whole
    ('whole shards, since this machine uses 100% of its shards, 5.0 kB, which fit', False)
    """
    if not isinstance(sampler, ChunkedSampler):
        return RemoteChoice(whole=False, reason="the sampler does not say what it will draw")
    replicas, streams = sampler.num_replicas, sampler.streams
    here = streams_here(streams, replicas)
    drawn = min(1.0, len(sampler) * replicas / max(1, num_samples))
    used = drawn * min(1.0, ranks_here(replicas) * streams / (replicas * here))
    if used < _MOSTLY:
        return RemoteChoice(whole=False, reason=f"this machine uses {used:.0%} of its shards")
    if room_nbytes is None:  # shards that are in the cache are used from there by range, too
        return RemoteChoice(whole=False, reason="the cache folder cannot be written to")
    if nbytes is None:
        return RemoteChoice(whole=False, reason="the sizes of the shards are not known")
    mine = format_nbytes(nbytes * here // streams)
    if nbytes * here // streams > room_nbytes:
        room = format_nbytes(room_nbytes)
        return RemoteChoice(whole=False, reason=f"its shards, {mine}, do not fit into {room}")
    return RemoteChoice(
        whole=True, reason=f"this machine uses {used:.0%} of its shards, {mine}, which fit"
    )


def room_in_cache(folder: Path, bound: int | None) -> int | None:
    """Return the bytes that a cache folder may take; None if it cannot be written to.

    Args:
        folder: The folder, which need not exist yet.
        bound: Bound of its size; without one, half of the free bytes are counted, 0 if unknown.
    """
    try:
        there = next((each for each in (folder, *folder.parents) if each.exists()), None)
        if there is None or not os.access(there, os.W_OK):
            return None
        return shutil.disk_usage(there).free // 2 if bound is None else bound
    except OSError:
        return 0
