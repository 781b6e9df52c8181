"""Dataset page: facts of the spec, and shards with their states."""

from __future__ import annotations

import hashlib
import os
import stat
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from wids.base.urls import display_url, file_name, is_local, local_path
from wids.reading.describe import nbytes_of

if TYPE_CHECKING:
    from pathlib import Path

    from wids.base.shardref import ShardRef
    from wids.browse.fieldreader import FieldReader

__all__ = [
    "dataset_facts",
    "shard_row",
]

_MOST_IDENTIFIED = 200  # shards that tell a dataset from others
_MOST_BLOCKS = 400  # of them together
_BLOCK_NBYTES = 4096


def dataset_facts(reader: FieldReader) -> dict[str, Any]:
    """Return the facts of the dataset from its spec alone; opens no shard."""
    shards = reader.dataset.shards
    return {
        "identity": _identity(reader),
        "num_samples": len(reader),
        "num_shards": len(shards),
        "num_uncounted": reader.num_uncounted,
        "nbytes": nbytes_of(shards),
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
    total = min(len(shards), _MOST_IDENTIFIED)
    count = min(max(_MOST_BLOCKS // max(total, 1), 2), 16)
    for number in range(total):
        ref = shards[number * len(shards) // total]
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


def shard_row(reader: FieldReader, number: int) -> dict[str, Any]:
    """Return a row of the table of shards: spec entry, state on disk, its last failure.

    Args:
        reader: The dataset.
        number: The shard.

    Returns:
        `shard`, `url`, `first_index`, `num_samples`, `nbytes` (None if unknown),
        `state` ("local", "cached", "remote", "missing", "denied", "unreachable" or "damaged") and
        `message`, "" without a failure.
    """
    ref = reader.dataset.shards[number]
    state, nbytes = _state(reader, ref)
    failure = reader.failures.of_shard(number, ref.url)
    if failure is not None and failure.kind == "damaged":
        state = "missing" if state == "missing" else "damaged"
    # A failure of the server does not matter for a shard in the cache.
    elif failure is not None and state == "remote":
        state = "unreachable" if failure.unreachable else failure.kind
    return {
        "shard": number,
        "url": display_url(ref.url),
        "first_index": reader.first_index(number),
        "num_samples": reader.num_samples(number),
        "nbytes": nbytes,
        "state": state,
        "message": "" if failure is None else failure.message,
    }


def _state(reader: FieldReader, ref: ShardRef) -> tuple[str, int | None]:
    """Return the state of a shard, and the size of its file or, without a file, of the spec."""
    # For a remote shard only the spec is used, since each row would cost a request to the server.
    if reader.is_far(ref):
        return "remote", ref.filesize
    if not is_local(ref.url):
        return "cached", ref.filesize
    try:
        status = local_path(ref.url).stat()
    except OSError:
        return "missing", ref.filesize
    # A size that differs from the spec is damage, and is noticed without opening the shard.
    size = ref.filesize
    return ("local" if size in (None, status.st_size) else "damaged"), status.st_size
