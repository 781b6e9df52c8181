"""The shards of the dataset: how large they are, where they lie, and what is wrong with them."""

from typing import Any

from wids.base.urls import display_url, local_path
from wids.browse.source import Source
from wids.reading.display import nbytes_of
from wids.specs.shardtable import UNKNOWN

__all__ = ["dataset_facts", "shard_rows"]


def dataset_facts(source: Source) -> dict[str, Any]:
    """Sum up the dataset from its spec alone; opens no shard."""
    dataset = source.dataset
    shards = dataset.shards
    known = shards.filesize != UNKNOWN
    nbytes = nbytes_of(shards)
    return {
        "name": dataset.header["name"],
        "num_samples": len(source),
        "num_shards": len(shards),
        "nbytes": int(shards.filesize[known].sum()) if nbytes is None else nbytes,
        "shards_without_size": int((~known).sum()) if nbytes is None else 0,
        "base": display_url(dataset.base) if dataset.base else "",
    }


def shard_rows(
    source: Source, start: int, count: int, faults: dict[str, list[dict[str, str]]]
) -> list[dict[str, Any]]:
    """Describe some shards: what the spec says, what is on disk, what is known to be wrong.

    Args:
        source: The dataset.
        start: The first shard.
        count: How many.
        faults: What `wids check` found, by URL.

    Returns:
        A dict each: `shard`, `url`, `first_index`, `num_samples`, `nbytes` (None where unknown),
        `state` ("local", "cached", "remote", "missing", "denied", "unreachable" or "damaged") and
        `messages`.
    """
    stop = min(start + count, source.num_shards)
    return [_row(source, number, faults) for number in range(max(start, 0), stop)]


def _row(source: Source, number: int, faults: dict[str, list[dict[str, str]]]) -> dict[str, Any]:
    entry = source.dataset.shards[number]
    state, nbytes = _state(source, entry)
    found = faults.get(entry["url"], [])
    messages = [f"{fault['place']}: {fault['what']}" for fault in found]
    failure = source.failures.of_shard(number, entry["url"])
    if failure is not None:
        messages.insert(0, failure.message)
    if failure is not None and failure.kind != "damaged":
        # Of a shard in the cache its server may keep silent.
        told = "unreachable" if failure.unreachable else failure.kind
        state = told if state == "remote" else state
    # A note of `wids check`, such as bytes behind the end, is no damage.
    elif failure is not None or any(fault.get("severity") == "error" for fault in found):
        state = "missing" if state == "missing" else "damaged"
    return {
        "shard": number,
        "url": display_url(entry["url"]),
        "first_index": source.first_index(number),
        "num_samples": source.num_samples(number),
        "nbytes": nbytes,
        "state": state,
        "messages": messages[:5],
    }


def _state(source: Source, entry: dict[str, Any]) -> tuple[str, int | None]:
    """Say where a shard is, and its bytes: on disk if it is there, else as the spec says."""
    # Of a remote shard only what the spec promises is known; asking the server would cost a request
    # for each row.
    if source.is_far(entry):
        return "remote", entry.get("filesize")
    if not source.dataset.cache.is_local(entry["url"]):
        return "cached", entry.get("filesize")
    try:
        status = local_path(entry["url"]).stat()
    except OSError:
        return "missing", entry.get("filesize")
    # Another size than promised is damage that can be seen without opening the shard.
    size = entry.get("filesize")
    return ("local" if size in (None, status.st_size) else "damaged"), status.st_size
