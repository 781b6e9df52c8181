"""Building of specs from shards: sample counts, sizes and digests, computed in parallel."""

from __future__ import annotations

import hashlib
import os
import re
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, Any

from wids.base.files import refuse_url, remove_parts
from wids.base.hashing import hash_file
from wids.base.processes import run_each
from wids.base.shardref import ShardRef
from wids.base.threads import DaemonThreadPool
from wids.base.urls import (
    base_name,
    display_url,
    file_name,
    is_compressed_name,
    is_local,
    local_path,
    scheme_of,
)
from wids.base.warn import warn
from wids.caching.cache import local_copy
from wids.errors import IntegrityError, SpecError
from wids.fetching.fetch import Fetcher
from wids.fetching.transport import BeyondEndError, RangesNotServedError
from wids.log import logger
from wids.specs.classnames import find_class_names
from wids.specs.indexrules import rules_of
from wids.specs.locations import folder_of, natural_order
from wids.specs.merging import class_names, listed_classes, merged_header
from wids.specs.newspec import name_in_spec, new_spec, shard_entry
from wids.specs.remoteindex import index_remote
from wids.specs.shardtable import DOUBTFUL_KEYS
from wids.specs.sources import load_spec, warn_of_doubtful_keys
from wids.tar.sidecar import SIDECAR_SUFFIX
from wids.tar.tarindex import TarIndex

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from concurrent.futures import Executor

    from wids.specs.spec import DatasetSpec

    _SaveIndex = Callable[[TarIndex, dict[str, Any]], dict[str, Any]]

__all__ = [
    "USUAL_DIGESTS",
    "Build",
    "ShardRecord",
    "build_spec",
    "default_name",
    "index_path",
    "index_shard",
    "merge_specs",
    "stored_file",
]

USUAL_DIGESTS = ("md5",)  # what old readers know
_MOST_REMOTE = 8  # remote shards that are indexed at once, unless the caller says otherwise
_WRITER_PART = re.compile(r"-\d+-of-\d+\.json$")  # the spec of one of several parallel writers


@dataclass(frozen=True)
class ShardRecord:
    """Spec entry of one shard, and the irregularities found in the shard.

    Attributes:
        url: Path or URL of the shard, as given.
        entry: The shard's entry in a spec, with the requested digests.
        skipped: Number of tar entries that belong to no sample, by reason.
        doubt: What follows the end of the archive and may have been samples; "" for padding.
        nbytes_read: Number of bytes that were read to index it.
    """

    url: str
    entry: dict[str, Any]
    skipped: dict[str, int] = field(default_factory=dict)
    doubt: str = ""
    nbytes_read: int = 0


@dataclass(frozen=True)
class Build:
    """Spec built from shards, and the errors of the shards that could not be read.

    Attributes:
        readable: The spec of the readable shards, sorted by URL.
        records: The record of each shard that this call read.
        failures: The error of each unreadable shard, by URL.
        skip_broken: Whether `spec` may lack the unreadable shards.
    """

    readable: DatasetSpec
    records: list[ShardRecord]
    failures: dict[str, Exception]
    skip_broken: bool = False

    @property
    def spec(self) -> DatasetSpec:
        """The spec of all shards; with `skip_broken`, of the readable ones.

        Raises:
            SpecError: A shard could not be read, and `skip_broken` is not set.
        """
        if self.failures and not self.skip_broken:
            url, error = next(iter(self.failures.items()))
            total = len(self.failures) + len(self.readable.shards)
            raise SpecError(
                f"{len(self.failures)} of {total} shards could not be read, such as "
                f"{display_url(url)}: {error}; mend them and give the entries of the others as "
                "known=, or leave them out by skip_broken=True"
            )
        return self.readable


def index_shard(
    url: str,
    *,
    digests: Collection[str] | None = None,
    sidecar: bool = False,
    cache_dir: str | os.PathLike[str] | None = None,
    rules: Mapping[str, Any] | None = None,
    index_dir: str | os.PathLike[str] | None = None,
    kept_dir: str | os.PathLike[str] | None = None,
    fetcher: Fetcher | None = None,
    width: int = 8,
) -> ShardRecord:
    """Index one shard: verify its headers, count its samples, compute its digests.

    A pure function of its arguments, picklable with its result, for executors of any kind.

    Args:
        url: Path or URL of the shard. Of a remote one, only as much is read as its headers need.
        digests: Digests to compute, of "md5" and "sha256"; if empty, only headers are read. By
            default "md5", but of a remote shard only if all its bytes are read anyway.
        sidecar: Write the tar index beside the shard (local shards only).
        cache_dir: Folder that keeps a remote shard, which is then fetched whole.
        rules: `key_rule`, `grouping` and `concatenated`, as for a dataset.
        index_dir: Folder for the sidecar of a remote shard, of this machine or of a bucket; the
            location of the sidecar is then in the entry.
        kept_dir: Folder for the sidecar of a remote shard that gets none in `index_dir`, also of a
            compressed one. `wids create --pack` makes the pack of these, and removes them.
        fetcher: Reads remote shards; by default a new one.
        width: Number of requests for headers of a remote shard at once.

    Raises:
        FetchError: The shard could not be fetched.
        ShardFormatError: The shard is not a readable tar; the message names the byte.
        ValueError: The options do not fit a local or a remote shard.

    >>> import tempfile, wids
    >>> folder = tempfile.mkdtemp()
    >>> with wids.TarWriter(f"{folder}/a.tar") as tar:
    ...     nbytes = tar.write({"__key__": "0001", ".txt": "one", ".cls": 1})
    >>> wids.index_shard(f"{folder}/a.tar").entry["nsamples"]
    1
    """
    _check_sidecar(url, sidecar=sidecar, index_dir=index_dir)
    if is_local(url):
        return _index_whole(url, digests, sidecar=sidecar, cache_dir=cache_dir, rules=rules)
    own = fetcher or Fetcher()
    save = partial(_save_index, url, own, index_dir=index_dir, kept_dir=kept_dir)
    try:
        record = None
        if not (digests or cache_dir is not None or is_compressed_name(file_name(url))):
            record = _index_remote(url, own, digests, rules, save, width=width)
        return record or _index_whole(
            url, digests, cache_dir=cache_dir, rules=rules, save_index=save
        )
    finally:
        if fetcher is None:
            own.close()


def _check_sidecar(url: str, *, sidecar: bool, index_dir: str | os.PathLike[str] | None) -> None:
    """Raise if a requested sidecar of a shard cannot be written."""
    if is_local(url) and index_dir is not None and not sidecar:
        raise ValueError(
            f"{display_url(url)}: a folder for sidecars (index_dir, --index) is for remote shards; "
            "sidecar=True (--sidecars) writes them beside local ones"
        )
    if not is_local(url) and sidecar and index_dir is None:
        raise ValueError(
            f"{display_url(url)}: no sidecar can be written beside a remote shard; name a folder "
            "for it by index_dir (`wids create --index`)"
        )


def _check_sidecars(
    shards: Sequence[str],
    *,
    sidecar: bool = False,
    index_dir: str | os.PathLike[str] | None = None,
    **_: Any,
) -> None:
    """Raise if a requested sidecar of any shard cannot be written."""
    if index_dir is not None and scheme_of(folder := os.fspath(index_dir)) not in {"", "file"}:
        with closing(Fetcher()) as fetcher:
            fetcher.sink(folder)
    for shard in shards:
        _check_sidecar(shard, sidecar=sidecar, index_dir=index_dir)


def _index_remote(
    url: str,
    fetcher: Fetcher,
    digests: Collection[str] | None,
    rules: Mapping[str, Any] | None,
    save_index: _SaveIndex,
    *,
    width: int,
) -> ShardRecord | None:
    """Index a remote shard without fetching it; None if it has to be fetched."""
    wanted = USUAL_DIGESTS if digests is None else digests
    try:
        found = index_remote(url, fetcher, rules_of(dict(rules or {})), wanted, width)
    except (RangesNotServedError, BeyondEndError) as error:
        logger.info("%s: fetched whole: %s", display_url(url), error)
        return None
    entry = shard_entry(url, found.index.num_samples, found.nbytes, found.digests)
    return _record(url, found.index, save_index(found.index, entry), found.nbytes_read)


def _index_whole(
    url: str,
    digests: Collection[str] | None,
    *,
    sidecar: bool = False,
    cache_dir: str | os.PathLike[str] | None = None,
    rules: Mapping[str, Any] | None = None,
    save_index: _SaveIndex | None = None,
) -> ShardRecord:
    """Index a shard that is local, or is fetched to be."""
    with local_copy(url, cache_dir) as path:
        stored = stored_file(url, path)
        # Hash first: the sequential read brings the headers into memory, so a cold disk need not
        # seek for each of them.
        wanted = USUAL_DIGESTS if digests is None else digests
        found = {} if stored is None else hash_file(stored, wanted)
        index = TarIndex.from_tar(path, **(rules or {}), quiet=True)
        if sidecar:
            index.save(path.with_name(path.name + SIDECAR_SUFFIX))
        entry: dict[str, Any] = {"url": url, "nsamples": index.num_samples}
        nbytes = path.stat().st_size
        if stored is not None:
            entry = shard_entry(url, index.num_samples, stored.stat().st_size, found)
    if save_index is not None:
        entry = save_index(index, entry)
    return _record(url, index, entry, nbytes)


def _record(url: str, index: TarIndex, entry: dict[str, Any], nbytes_read: int) -> ShardRecord:
    if merged := index.merged:
        entry = {**entry, DOUBTFUL_KEYS: merged}
    return ShardRecord(url, entry, dict(index.skipped), index.source.doubt, nbytes_read)


def _save_index(
    url: str,
    fetcher: Fetcher,
    index: TarIndex,
    entry: dict[str, Any],
    *,
    index_dir: str | os.PathLike[str] | None,
    kept_dir: str | os.PathLike[str] | None,
) -> dict[str, Any]:
    """Save the sidecar of a remote shard, if it has a folder; return an entry that names it."""
    # The index of a compressed shard is that of its plain form, which is on no server.
    if index_dir is None or is_compressed_name(file_name(url)):
        if kept_dir is not None:
            Path(kept_dir).mkdir(parents=True, exist_ok=True)
            index.save(index_path(url, kept_dir))
        return entry
    path, folder = index_path(url, index_dir), os.fspath(index_dir)
    if is_local(folder):
        refuse_url(path)  # before folders of such a name are made
        path.parent.mkdir(parents=True, exist_ok=True)
        index.save(path)
        return {**entry, "index": str(path)}
    location = f"{folder.rstrip('/')}/{path.name}"
    with NamedTemporaryFile(prefix="wids-", suffix=SIDECAR_SUFFIX) as file:
        file.write(index.image())
        file.flush()
        fetcher.put(location, Path(file.name))
    return {**entry, "index": location}


def index_path(url: str, index_dir: str | os.PathLike[str]) -> Path:
    """Return the path of the sidecar of a remote shard in a folder of sidecars.

    >>> index_path("https://host/train/a.tar", "indexes").as_posix()
    'indexes/4dd6b0c27009-a.tar.widx'
    """
    # The digest keeps shards of one name in different folders apart.
    digest = hashlib.sha256(url.encode("utf-8", "surrogateescape")).hexdigest()[:12]
    return Path(index_dir, f"{digest}-{base_name(url)}{SIDECAR_SUFFIX}")


def stored_file(url: str, path: Path) -> Path | None:
    """Return the stored file of a shard, to which the spec's `filesize` and digests refer.

    Args:
        url: Path or URL of the shard.
        path: The plain tar that the cache made of it.

    Returns:
        The file; None for a compressed remote shard, since the cache keeps only its plain tar.
    """
    if is_local(url):
        return local_path(url)
    return None if is_compressed_name(file_name(url)) else path


def build_spec(
    shards: Sequence[str],
    *,
    folder: str | os.PathLike[str] | None = None,
    header: Mapping[str, Any] | None = None,
    known: Mapping[str, Mapping[str, Any]] | None = None,
    note: Callable[[dict[str, Any]], object] | None = None,
    executor: Executor | None = None,
    workers: int | None = None,
    listed: Mapping[str, Mapping[str, Any]] | None = None,
    skip_broken: bool = False,
    **options: Any,
) -> Build:
    """Index many shards in parallel and build their spec.

    A shard that cannot be read is reported in the result; the other shards are still indexed.

    Args:
        shards: Paths and URLs.
        folder: Folder of the future spec: local shards below it get relative names. None keeps
            every name unchanged, for a spec with a `base`.
        header: Top-level keys of the spec, such as `name`, `info` and `base`.
        known: Entries of shards that need not be read again, by their name in the spec.
        note: Called with the entry of each shard as soon as it is read, so that a journal can save
            it before a crash.
        executor: Executor that runs `index_shard`; by default a new process pool for local shards,
            and threads for remote ones.
        workers: Number of processes of that pool, by default one per core; and of remote shards at
            a time, by default 8.
        listed: What a store said of remote shards when it listed them, by URL: sizes, which are
            compared, and digests, which the spec keeps.
        skip_broken: Leave unreadable shards out of the spec, which records them as `left_out`, so
            that readers warn of it. Otherwise there is no spec if a shard cannot be read.
        options: `digests`, `sidecar`, `cache_dir`, `rules`, `index_dir` and `kept_dir`,
            as for `index_shard`; the spec keeps the rules.

    Raises:
        ValueError: A shard is listed twice, or a sidecar that is wanted has no place.

    >>> import tempfile, wids
    >>> folder = tempfile.mkdtemp()
    >>> with wids.TarWriter(f"{folder}/a.tar") as tar:
    ...     nbytes = tar.write({"__key__": "0001", ".txt": "one", ".cls": 1})
    >>> built = wids.build_spec([f"{folder}/a.tar"], workers=1)
    >>> built.spec.shards.nsamples.tolist(), built.failures
    ([1], {})
    """
    names = _names_in_spec(shards, folder)
    entries = {name: known[name] for name in names if known and name in known}
    missing = {name: shard for name, shard in names.items() if name not in entries}
    name_of = {shard: name for name, shard in missing.items()}
    _check_sidecars(shards, **options)
    # Removes the unfinished sidecars of a killed run, but not those of a run that is still alive.
    if options.get("sidecar"):
        for beside in {local_path(shard).parent for shard in shards if is_local(shard)}:
            remove_parts(beside)

    def entry_of(record: ShardRecord) -> dict[str, Any]:
        entry = {**record.entry, "url": name_of[record.url]}
        if "index" in entry and is_local(entry["index"]):
            entry["index"] = name_in_spec(os.path.abspath(entry["index"]), folder)  # noqa: PTH100
        return entry

    def done(shard: str, outcome: ShardRecord | Exception) -> None:
        if isinstance(outcome, ShardRecord):
            outcome = _as_listed(outcome, (listed or {}).get(shard))
        outcomes[shard] = outcome
        if note is not None and isinstance(outcome, ShardRecord):
            note(entry_of(outcome))

    outcomes: dict[str, ShardRecord | Exception] = {}
    _index_each(list(missing.values()), options, executor, workers, done)
    records, failures = [], {}
    for name, shard in missing.items():
        outcome = outcomes[shard]
        if isinstance(outcome, ShardRecord):
            entries[name] = entry_of(outcome)
            records.append(outcome)
        else:
            failures[shard] = outcome
    doubtful = [record for record in records if record.doubt]
    if doubtful:
        first = doubtful[0]
        warn(
            f"{display_url(first.url)}: {first.doubt}, where samples may have been; compare it "
            f"with its source, or fetch it again. {len(doubtful)} of the shards have such an end"
        )
    # Sorted by name: the spec must not depend on the order in which the workers finish, and must
    # number the samples as the folder without it does.
    rows = [{**entries[name], "url": name} for name in sorted(entries, key=natural_order)]
    keys = {**(header or {}), **(options.get("rules") or {})}
    if keys.get("key_rule") is not None:  # which an earlier run did not say
        for row in rows:
            row.pop(DOUBTFUL_KEYS, None)
    if failures and skip_broken:
        keys["left_out"] = [
            {"url": name, "reason": str(failures[shard]).removeprefix(f"{display_url(shard)}: ")}
            for name, shard in missing.items()
            if shard in failures
        ]
    spec = new_spec(rows, keys)
    warn_of_doubtful_keys(spec)
    return Build(spec, records, failures, skip_broken)


def _index_each(
    shards: Sequence[str],
    options: Mapping[str, Any],
    executor: Executor | None,
    workers: int | None,
    done: Callable[[str, ShardRecord | Exception], object],
) -> None:
    """Index shards in parallel: local ones by processes, remote ones by threads."""
    run = partial(run_each, desc="indexing shards", done=done)
    if executor is not None:
        run(partial(index_shard, **options), shards, executor=executor)
        return
    local = [shard for shard in shards if is_local(shard)]
    run(partial(index_shard, **options), local, workers=workers)
    if remote := [shard for shard in shards if not is_local(shard)]:
        # They wait for servers, not for the processor, and share a bounded number of connections.
        at_once = min(workers or _MOST_REMOTE, len(remote))
        fetcher = Fetcher()
        width = max(1, fetcher.policy.connections // at_once)
        index = partial(index_shard, fetcher=fetcher, width=width, **options)
        with closing(fetcher), DaemonThreadPool(at_once, "wids-index") as pool:
            run(index, remote, executor=pool)


def _as_listed(record: ShardRecord, listed: Mapping[str, Any] | None) -> ShardRecord | Exception:
    """Return a record with the digests that a store listed, or an error if the sizes differ."""
    if listed is None or "filesize" not in record.entry:
        return record
    ref, nbytes = ShardRef.of(listed), record.entry["filesize"]
    if ref.filesize not in {None, nbytes}:
        return IntegrityError(
            f"{display_url(ref.url)}: {nbytes} bytes, its store listed {ref.filesize}; it was "
            "replaced meanwhile, so index it again"
        )
    return replace(record, entry={**ref.digests, **record.entry})


def merge_specs(
    sources: Sequence[str], folder: str | os.PathLike[str], name: str | None = None
) -> DatasetSpec:
    """Merge several specs into one.

    Args:
        sources: Paths or URLs of the specs, such as those of parallel writers.
        folder: Folder of the new spec.
        name: Name of the dataset; by default the first name found in the specs.

    Returns:
        A spec of all shards in the order of the specs. Each shard keeps all fields of its entry
        and gets the name of its dataset. Top-level keys on which the specs agree are kept, class
        names included. The shards of parallel writers are sorted by URL, since their numbers
        interleave.

    Raises:
        SpecError: A spec is malformed, or the specs number their classes differently.
        ValueError: Two specs list the same shard.
    """
    specs = [load_spec(source) for source in sources]
    headers = {}
    names_in = cache(partial(find_class_names, {}))  # specs of one server mostly share a folder
    for source, spec in zip(sources, specs, strict=True):
        header = dict(spec.header)
        # A file of names stays in its folder, which is not that of the new spec.
        if not class_names(header) and (names := names_in(folder_of(source) or os.curdir)):
            header["classes"] = listed_classes(names)
        headers[display_url(source)] = header
    header = merged_header(headers)
    parts = all(map(_WRITER_PART.search, sources))
    several = len({spec.name for spec in specs}) > 1 and not parts
    # Parsing gave each shard the name of its spec; in the new spec it would be the shard's own.
    shards = [
        ({"dataset": spec.name} if several and spec.name else {})
        | {key: value for key, value in shard.items() if (key, value) != ("name", spec.name)}
        for spec in specs
        for shard in spec.shards
    ]
    urls = _names_in_spec([shard["url"] for shard in shards], folder)
    rows = [{**shard, "url": url} for url, shard in zip(urls, shards, strict=True)]
    for row in rows:  # parsing gave them the folder of their spec
        row |= {key: name_in_spec(row[key], folder) for key in ("index", "pack") if key in row}
    if parts:
        rows.sort(key=lambda row: str(row["url"]))
    name = name or next((spec.name for spec in specs if spec.name), None)
    return new_spec(rows, {**header, "name": name})


def _names_in_spec(shards: Sequence[str], folder: str | os.PathLike[str] | None) -> dict[str, str]:
    """Return a dict from the name of each shard in a spec to the shard."""
    names: dict[str, str] = {}
    for shard in shards:
        name = name_in_spec(shard, folder)
        if name in names:
            raise ValueError(
                f"{display_url(shard)}: is listed twice (before as {display_url(names[name])!r}), "
                "so the dataset would have its samples twice; leave one out"
            )
        names[name] = shard
    return names


def default_name(shard: str) -> str:
    """Return a dataset name, made of the words in the first shard's path without the numbers.

    The user, password and query of a URL are secrets, and become no part of it.

    >>> default_name("data/imagenet-train-{000000..001281}.tar")
    'data-imagenet-train'
    >>> default_name("https://me:secret@host/train-0.tar?signature=abc")
    'https-host-train'
    """
    # Digits number the shard, and braces and stars belong to a pattern.
    stem = re.sub(r"\.(tar|tgz)(\.\w+)?$", "", display_url(shard).removesuffix("?..."))
    words = [word for word in re.split(r"\W+", stem, flags=re.ASCII) if not word.isdigit()]
    return "-".join(dict.fromkeys(word for word in words if word))
