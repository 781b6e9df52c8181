"""Specs built from shards: sample counts, sizes and digests, in parallel."""

from __future__ import annotations

import re
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from wids.base.files import remove_parts
from wids.base.hashing import hash_file
from wids.base.processes import run_each
from wids.base.urls import base_name, display_url, is_local, local_path
from wids.caching.cache import ShardCache
from wids.caching.unpack import is_compressed_name
from wids.errors import ShardFormatError
from wids.specs.merging import merged_header
from wids.specs.newspec import name_in_spec, new_spec, shard_entry
from wids.specs.sources import load_spec
from wids.tar.interchange import save_foreign_indexes
from wids.tar.sidecar import SIDECAR_SUFFIX
from wids.tar.tarindex import TarIndex

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from concurrent.futures import Executor
    from pathlib import Path

    from wids.specs.spec import DatasetSpec

__all__ = [
    "Build",
    "ShardRecord",
    "build_spec",
    "default_name",
    "index_shard",
    "local_copy",
    "merge_specs",
    "stored_file",
]

_WRITER_PART = re.compile(r"-\d+-of-\d+\.json$")  # the spec of one of several parallel writers


@dataclass(frozen=True)
class ShardRecord:
    """Entry of one shard for a spec, and what was unusual about the shard.

    Attributes:
        url: The shard, as it was given.
        entry: What a spec says of it, with the digests asked for.
        skipped: How many entries of the tar belong to no sample, by reason.
        trailing_nbytes: Bytes behind the end of the archive, which no reader sees.
    """

    url: str
    entry: dict[str, Any]
    skipped: dict[str, int] = field(default_factory=dict)
    trailing_nbytes: int = 0


@dataclass(frozen=True)
class Build:
    """Spec built from shards, and the errors of those that could not be read.

    Attributes:
        spec: The spec of the shards that could be read, sorted by URL.
        records: What was found in each shard that was read now.
        failures: The other shards: URL to what was wrong.
    """

    spec: DatasetSpec
    records: list[ShardRecord]
    failures: dict[str, Exception]


def index_shard(
    url: str,
    *,
    digests: Collection[str] = ("md5",),
    sidecar: bool = False,
    indexes: Collection[str] = (),
    cache_dir: str | os.PathLike[str] | None = None,
) -> ShardRecord:
    """Index one shard: verify its headers, count its samples, compute its digests.

    A pure function of its arguments, picklable with its result, for executors of any kind.

    Args:
        url: Path or URL of the shard.
        digests: Which of "md5" and "sha256" to compute; without any, only headers are read.
        sidecar: Write the tar index beside the shard (local shards only).
        indexes: Write those of other tools too: any of "dali" and "energon" (local shards only).
        cache_dir: Where a remote shard is kept; by default it is removed when it was read.

    Raises:
        FetchError: The shard could not be fetched.
        ShardFormatError: It is no readable tar; the message names the byte.
    """
    with local_copy(url, cache_dir) as path:
        stored = stored_file(url, path)
        # Read from end to end first: the headers are in memory then, and a cold disk does not jump.
        found = {} if stored is None else hash_file(stored, digests)
        index = TarIndex.from_tar(path)
        if sidecar and is_local(url):
            index.save(path.with_name(path.name + SIDECAR_SUFFIX))
        if indexes:
            _save_indexes(url, path, index, indexes)
        entry: dict[str, Any] = {"url": url, "nsamples": index.num_samples}
        if stored is not None:
            entry = shard_entry(url, index.num_samples, stored.stat().st_size, found)
    return ShardRecord(url, entry, dict(index.skipped), index.trailing_nbytes)


def _save_indexes(url: str, path: Path, index: TarIndex, indexes: Collection[str]) -> None:
    if not is_local(url) or not path.samefile(local_path(url)):
        raise ShardFormatError(
            f"{display_url(url)}: expected a plain tar of this machine to write "
            f"{' and '.join(indexes)} indexes beside, found one that was fetched or unpacked; "
            "those tools could not use them"
        )
    save_foreign_indexes(path, index, indexes)


def stored_file(url: str, path: Path) -> Path | None:
    """Return the file that `filesize` and digests of a spec are of: the shard as stored.

    Args:
        url: Path or URL of the shard.
        path: The plain tar that the cache made of it.

    Returns:
        The file; None for a compressed shard from a server, of which only the plain tar is kept.
    """
    if is_local(url):
        return local_path(url)
    return None if is_compressed_name(base_name(url)) else path


@contextmanager
def local_copy(url: str, cache_dir: str | os.PathLike[str] | None = None) -> Iterator[Path]:
    """Provide a local file of a shard for the duration of a `with` block.

    Args:
        url: Path or URL of the shard; a local one is used where it lies.
        cache_dir: Where a remote one is kept; by default it is removed in the end.

    Raises:
        FetchError: It could not be fetched.
    """
    if is_local(url) or cache_dir is not None:
        yield ShardCache(cache_dir).get(url)
        return
    # Not in the cache folder: a thousand shards that are read once would push out what a run uses.
    with TemporaryDirectory(prefix="wids-") as folder:
        cache = ShardCache(folder)
        try:
            yield cache.get(url)
        finally:
            cache.close()  # waits for what is still written into the folder


def build_spec(
    shards: Sequence[str],
    *,
    folder: str | os.PathLike[str] | None = None,
    header: Mapping[str, Any] | None = None,
    known: Mapping[str, Mapping[str, Any]] | None = None,
    note: Callable[[dict[str, Any]], object] | None = None,
    executor: Executor | None = None,
    workers: int | None = None,
    **options: Any,
) -> Build:
    """Index many shards in parallel and make a spec of them.

    A shard that cannot be read is reported; the rest goes on.

    Args:
        shards: Paths and URLs.
        folder: Where the spec will lie: local shards below it are named relative to it. None
            leaves every name as it is, for a spec with a `base`.
        header: Top-level keys of the spec, such as `name`, `info` and `base`.
        known: Entries of shards that need not be read again, by the name that they have in the
            spec.
        note: Called with the entry of each shard as soon as it is read, to keep it from a crash.
        executor: Who runs `index_shard`; a process pool of its own by default.
        workers: Processes of that pool; by default one per core.
        options: `digests`, `sidecar`, `indexes` and `cache_dir`, as `index_shard` takes them.

    Raises:
        ValueError: A shard is listed twice.
    """
    names = _names_in_spec(shards, folder)
    entries = {name: known[name] for name in names if known and name in known}
    missing = {name: shard for name, shard in names.items() if name not in entries}
    name_of = {shard: name for name, shard in missing.items()}
    # Sidecars that a killed run had begun; those of a run that lives are left to it.
    if options.get("sidecar"):
        for beside in {local_path(shard).parent for shard in shards if is_local(shard)}:
            remove_parts(beside)

    def done(shard: str, outcome: ShardRecord | Exception) -> None:
        if note is not None and isinstance(outcome, ShardRecord):
            note({**outcome.entry, "url": name_of[shard]})

    outcomes = run_each(
        partial(index_shard, **options),
        list(missing.values()),
        executor=executor,
        workers=workers,
        desc="indexing shards",
        done=done,
    )
    records, failures = [], {}
    for (name, shard), outcome in zip(missing.items(), outcomes, strict=True):
        if isinstance(outcome, ShardRecord):
            entries[name] = outcome.entry
            records.append(outcome)
        else:
            failures[shard] = outcome
    # By name: the order in which workers are done must not show in the spec.
    rows = [{**entries[name], "url": name} for name in sorted(entries)]
    return Build(new_spec(rows, header or {}), records, failures)


def merge_specs(
    sources: Sequence[str], folder: str | os.PathLike[str], name: str | None = None
) -> DatasetSpec:
    """Make one spec of the shards of several.

    Args:
        sources: Paths or URLs of the specs, such as those of writers that worked in parallel.
        folder: Where the new spec will lie.
        name: Name of the dataset; by default that of the first spec that has one.

    Returns:
        Their shards in the order of the specs, each with all that its spec said of it and the name
        of its dataset; the top-level keys on which the specs agree, class names among them. Shards
        of writers that worked in parallel are sorted by URL, as their numbers interleave.

    Raises:
        SpecError: One of them is malformed, or their numbers of classes disagree.
        ValueError: Two of them list the same shard.
    """
    specs = [load_spec(source) for source in sources]
    header = merged_header(
        {display_url(source): spec.header for source, spec in zip(sources, specs, strict=True)}
    )
    parts = all(map(_WRITER_PART.search, sources))
    several = len({spec.name for spec in specs}) > 1 and not parts
    # A spec's own name came with each of its shards; in the new spec it would be one shard's.
    shards = [
        ({"dataset": spec.name} if several and spec.name else {})
        | {key: value for key, value in shard.items() if (key, value) != ("name", spec.name)}
        for spec in specs
        for shard in spec.shards
    ]
    urls = _names_in_spec([shard["url"] for shard in shards], folder)
    rows = [{**shard, "url": url} for url, shard in zip(urls, shards, strict=True)]
    if parts:
        rows.sort(key=lambda row: str(row["url"]))
    name = name or next((spec.name for spec in specs if spec.name), None)
    return new_spec(rows, {**header, "name": name})


def _names_in_spec(shards: Sequence[str], folder: str | os.PathLike[str] | None) -> dict[str, str]:
    """Return a dict from the name that each shard has in a spec to the shard."""
    names: dict[str, str] = {}
    for shard in shards:
        name = name_in_spec(shard, folder)
        if name in names:
            raise ValueError(
                f"{display_url(shard)}: is listed twice (as {display_url(names[name])!r} before); "
                "its samples would be in the dataset twice"
            )
        names[name] = shard
    return names


def default_name(shard: str) -> str:
    """Return the name of a dataset by its first shard: its words, without numbers.

    >>> default_name("data/imagenet-train-{000000..001281}.tar")
    'data-imagenet-train'
    """
    # Only the words: digits are the shard's, and braces or stars nobody's name.
    stem = re.sub(r"\.(tar|tgz)(\.\w+)?$", "", shard)
    words = [word for word in re.split(r"\W+", stem, flags=re.ASCII) if not word.isdigit()]
    return "-".join(dict.fromkeys(word for word in words if word))
