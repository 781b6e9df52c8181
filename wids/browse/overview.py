"""Dataset page: facts of the spec, shards and their states, faults."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from wids.base.urls import display_url, file_name, hide_credentials, is_local, local_path
from wids.reading.describe import nbytes_of
from wids.specs.shardtable import UNKNOWN

if TYPE_CHECKING:
    from pathlib import Path

    from wids.base.shardref import ShardRef
    from wids.browse.fieldreader import FieldReader

__all__ = [
    "CheckReport",
    "dataset_facts",
    "find_report",
    "read_report",
    "shard_row",
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


def shard_row(
    reader: FieldReader, number: int, faults: dict[str, list[dict[str, str]]]
) -> dict[str, Any]:
    """Return a row of the table of shards: spec entry, state on disk, known faults.

    Args:
        reader: The dataset.
        number: The shard.
        faults: Faults that `wids check` found, by URL.

    Returns:
        `shard`, `url`, `first_index`, `num_samples`, `nbytes` (None if unknown),
        `state` ("local", "cached", "remote", "missing", "denied", "unreachable" or "damaged") and
        `messages`.
    """
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
    if not is_local(ref.url):
        return "cached", ref.filesize
    try:
        status = local_path(ref.url).stat()
    except OSError:
        return "missing", ref.filesize
    # A size that differs from the spec is damage, and is noticed without opening the shard.
    size = ref.filesize
    return ("local" if size in (None, status.st_size) else "damaged"), status.st_size
