"""Check of a dataset against its spec: headers, keys, sizes, digests, and on request each field."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import wids
from wids.base.hashing import DIGESTS, hash_file
from wids.base.processes import num_readers, run_each
from wids.base.shardref import ShardRef
from wids.base.urls import base_name, display_url, hide_credentials
from wids.caching.cache import ShardCache, local_copy
from wids.codecs.decode import decode_field
from wids.errors import FetchError, ShardFormatError, WidsError
from wids.pack.packformat import digest_of
from wids.reading.tarindexes import TarIndexes
from wids.specs.build import stored_file
from wids.specs.indexrules import rules_of
from wids.specs.sources import load_spec
from wids.tar.foreign import wrong_indexes
from wids.tar.grouping import DOTTED_KEYS
from wids.tar.shard import Shard
from wids.tar.sidecar import SIDECAR_SUFFIX
from wids.tar.tarindex import TarIndex
from wids.views.opening import is_saved_view
from wids.views.storage import ChosenShard, chosen_shards, used_rows

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from wids.views.tables import TableRows

__all__ = [
    "Checked",
    "Fault",
    "check_dataset",
    "check_shard",
]

_PACK_AGAIN = "pack the dataset again (wids export)"
_MAX_PER_KIND = 20  # faults listed of one kind and shard; the others are only counted


@dataclass(frozen=True)
class Fault:
    """Fault of a shard: its kind, its location, and what to do.

    Attributes:
        shard: URL of the shard.
        place: Where in it: a byte, a sample, a field of the spec.
        what: The expected and the found value.
        cure: What to do now.
        severity: "error", or "note" for something unusual that is not a fault.
    """

    shard: str
    place: str
    what: str
    cure: str
    severity: str = "error"

    def as_dict(self) -> dict[str, str]:
        """Return the fault as a dict for JSON."""
        shown = {name: hide_credentials(text) for name, text in asdict(self).items()}
        return shown | {"shard": display_url(self.shard)}


@dataclass(frozen=True)
class Checked:
    """Result of `check_dataset`.

    Attributes:
        num_shards: Number of shards that were checked.
        num_tables: Number of joined tables that were checked.
        faults: All faults and notes: those of the shards, in their order, then those of tables.
    """

    num_shards: int
    num_tables: int
    faults: list[Fault]


def check_dataset(
    source: str,
    *,
    headers: bool = True,
    digests: bool = True,
    decode: bool = False,
    cache_dir: str | os.PathLike[str] | None = None,
    workers: int | None = None,
    rules: Mapping[str, Any] | None = None,
) -> Checked:
    """Check the shards of a dataset, or those from which a saved view reads, and its tables.

    Of a view, the whole shards are checked, but only chosen samples are decoded.

    Args:
        source: A spec, folder, pattern, shard or saved view.
        headers: Read the headers; otherwise only sizes and digests are compared.
        digests: Compare the digests of the spec, which reads every byte.
        decode: Decode every field, and every value of joined tables.
        cache_dir: Folder that keeps remote shards; by default they are removed after the check.
        workers: Number of processes; by default one per core.
        rules: `key_rule`, `grouping` and `concatenated`, in place of those of the spec.

    Raises:
        ValueError: Only digests are to be compared, and some shards have none.
        WidsError: The spec or the view cannot be read.
    """
    rules = rules or {}
    of_tables: list[Fault] = []
    num_tables = 0
    if is_saved_view(source):
        with wids.open(source, cache_dir=cache_dir, **rules) as view:
            shards = chosen_shards(view)
            for table, rows in used_rows(view) if decode else ():
                num_tables += 1
                of_tables += _limited(_undecoded_values(table, rows))
    else:
        # Without opening it, so that shards that nobody can count are checked, too.
        spec = load_spec(source, options=rules or None)
        shards = [ChosenShard(shard, rules_of(spec.header)) for shard in spec.shards]
    bare = sum(not shard.ref.digests for shard in shards)
    if not headers and bare:
        # Agreeing with nothing would look like agreement.
        raise ValueError(
            f"{source}: {bare} of {len(shards)} shards have no digest to compare with; note them "
            "with wids create, or check the headers with wids check"
        )
    check = partial(
        _check_chosen, headers=headers, digests=digests, decode=decode, cache_dir=cache_dir
    )
    packed, faults = _packed_digests(shards, cache_dir) if headers else ([None] * len(shards), [])
    # Each shard is one job, so that an error in one does not hide the faults of the others.
    jobs = list(zip(shards, packed, strict=True))
    workers = num_readers((shard.ref.url for shard in shards), workers)
    outcomes = run_each(check, jobs, workers=workers, desc="checking shards")
    for shard, outcome in zip(shards, outcomes, strict=True):
        if isinstance(outcome, Exception):
            what = f"the check itself failed: {outcome!r}"
            faults.append(Fault(shard.ref.url, "shard", what, "run it again with --workers 1"))
        else:
            faults += outcome
    return Checked(len(shards), num_tables, faults + of_tables)


def _packed_digests(
    shards: Sequence[ChosenShard], cache_dir: str | os.PathLike[str] | None
) -> tuple[list[bytes | None], list[Fault]]:
    """Return the digests of the indexes that packs have of shards, and the faults of the packs."""
    digests: list[bytes | None] = []
    faults: dict[str, Fault] = {}
    with closing(ShardCache(cache_dir)) as cache:
        indexes = TarIndexes(cache, rules_of({}))  # a digest is that of any rules
        for shard in shards:
            digest = None
            try:
                digest = indexes.packed_digest(shard.ref)
            except WidsError as error:
                name = base_name((shard.ref.pack or "").rpartition("#")[0])
                faults.setdefault(name, Fault(shard.ref.url, name, str(error), _PACK_AGAIN, "note"))
            digests.append(digest)
    return digests, list(faults.values())


def _check_chosen(job: tuple[ChosenShard, bytes | None], **options: Any) -> list[Fault]:
    shard, packed = job
    rules, local_indexes = shard.rules, shard.local_indexes
    return check_shard(
        shard.ref, rules=rules, local_indexes=local_indexes, packed=packed, **options
    )


def check_shard(
    shard: ShardRef | Mapping[str, Any],
    *,
    headers: bool = True,
    digests: bool = True,
    decode: bool = False,
    cache_dir: str | os.PathLike[str] | None = None,
    rules: Mapping[str, Any] | None = None,
    local_indexes: Iterable[int] | None = None,
    packed: bytes | None = None,
) -> list[Fault]:
    """Check one shard against its entry in a spec.

    A pure function of its arguments, picklable with its result, for executors of any kind.

    Args:
        shard: Its entry in a spec.
        headers: Read the headers; otherwise only sizes and digests are compared.
        digests: Compare the digests of the entry, which reads every byte.
        decode: Decode every field.
        cache_dir: Folder that keeps a remote shard; by default it is removed after the check.
        rules: `key_rule`, `grouping` and `concatenated`, as for a dataset.
        local_indexes: Which of its samples are decoded; all by default.
        packed: Digest of its tar index in a pack; None for none.

    Returns:
        The faults and notes; empty for an intact shard.
    """
    ref = ShardRef.of(shard)
    url = ref.url
    try:
        with local_copy(url, cache_dir) as path:
            stored = stored_file(url, path)
            faults = [] if stored is None else list(_file_faults(ref, stored, digests=digests))
            if headers:
                chosen = local_indexes if decode else ()
                faults += _faults(ref, path, rules or {}, chosen, packed)
            return faults
    except FetchError as error:
        return [Fault(url, "url", str(error), "correct the URL in the spec, or restore the shard")]


def _faults(
    ref: ShardRef,
    path: Path,
    rules: Mapping[str, Any],
    decoded: Iterable[int] | None,
    packed: bytes | None,
) -> Iterator[Fault]:
    """Yield the faults in a shard; decode the samples at `decoded`, or all for None."""
    url = ref.url
    try:
        # The index is read from the tar, since a wrong sidecar is one of the faults to find.
        index = TarIndex.from_tar(path, **rules, quiet=True)
    except (ShardFormatError, OSError) as error:
        # Most messages end with a cure of their own, such as for archives that were joined.
        what, _, cure = str(error).partition("; ")
        yield Fault(url, "headers", what, cure or "fetch or write the shard again")
        return
    if ref.nsamples not in (None, index.num_samples):
        what = f"the spec says {ref.nsamples} samples, the shard holds {index.num_samples}"
        yield Fault(url, "nsamples", what, "create the spec again (wids create)")
    for reason, count in sorted(index.skipped.items()):
        what = f"{count} entries belong to no sample: {reason}"
        yield Fault(url, "members", what, "nothing, if this is intended", "note")
    if index.source.doubt:
        what = f"{index.source.doubt}, which are not read"
        cure = "nothing, if they are padding; else fetch or write the shard again"
        yield Fault(url, "end", what, cure, "note")
    if index.merged:
        yield Fault(url, "keys", index.merged, DOTTED_KEYS, "note")
    # This is only a note: it is intended in some datasets, and a lost caption in others.
    sets = Counter(
        tuple(extension for extension, _, _ in index.fields(i)) for i in range(index.num_samples)
    )
    if len(sets) > 1:
        usual, count = sets.most_common(1)[0]
        odd = index.num_samples - count
        what = f"{odd} of {index.num_samples} samples have other fields than {' '.join(usual)}"
        yield Fault(url, "fields", what, "wids ls shows the fields of each sample", "note")
    sidecar = path.with_name(path.name + SIDECAR_SUFFIX)
    try:
        # The sidecar is compared with the shard: an intact one may belong to another shard.
        TarIndex.load(sidecar, tar=path)
    except FileNotFoundError:
        pass
    except (ShardFormatError, OSError) as error:
        yield Fault(
            url, sidecar.name, str(error), "write it again (wids create --sidecars)", "note"
        )
    # One shard has one index, byte for byte.
    if packed is not None and packed != digest_of(index.image()):
        yield Fault(url, "pack", "its index in the pack is not that of the shard", _PACK_AGAIN)
    for name, what in wrong_indexes(path, index):
        cure = (
            "write it again with its own tool, or by wids.write_dali_index or write_energon_index"
        )
        yield Fault(url, name, what, cure)
    total = index.num_samples
    chosen = range(total) if decoded is None else [i for i in decoded if i < total]
    if len(chosen):
        yield from _limited(_undecoded_fields(url, Shard(path, index), chosen))


def _file_faults(ref: ShardRef, path: Path, *, digests: bool) -> Iterator[Fault]:
    """Yield the differences in size and digests between a shard and its entry."""
    nbytes = path.stat().st_size
    if ref.filesize not in (None, nbytes):
        what = f"the spec says {ref.filesize} bytes, the shard has {nbytes}"
        yield Fault(ref.url, "filesize", what, _cure_of_the_spec("was changed or truncated"))
    if digests:
        wanted = {
            kind.algorithm: field for field, kind in DIGESTS.items() if ref.digests.get(field)
        }
        for algorithm, found in hash_file(path, wanted).items():
            field = wanted[algorithm]
            if found != ref.digests[field].lower():
                what = f"the spec says {ref.digests[field]}, the shard has {found}"
                yield Fault(ref.url, field, what, _cure_of_the_spec("was changed"))


def _cure_of_the_spec(what: str) -> str:
    return f"restore the shard if it {what}; else create the spec again (wids create)"


def _limited(found: Iterable[tuple[str, Fault]]) -> Iterator[Fault]:
    """Yield the first faults of each kind, and after all how many there are of a common kind."""
    counts: Counter[str] = Counter()
    for kind, fault in found:
        counts[kind] += 1
        if counts[kind] <= _MAX_PER_KIND:
            yield fault
    for kind, count in counts.items():
        if count > _MAX_PER_KIND:
            what = f"{count} values cannot be decoded; the first {_MAX_PER_KIND} are listed"
            yield Fault(fault.shard, kind, what, "see the first ones")


def _undecoded_values(rows: TableRows, used: NDArray[np.int64]) -> Iterator[tuple[str, Fault]]:
    """Yield each text and bytes that cannot be decoded under the name of its field.

    Args:
        rows: The table.
        used: The rows that belong to samples of a join, ascending.
    """
    table = rows.table
    for name, column_name in rows.fields.items():
        column = table.columns[column_name]
        for row in used.tolist() if column.kind != "numbers" else ():
            value = column.at(row)
            data = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
            problem = decoding_problem(name, data) if isinstance(data, bytes) else None
            if problem is not None:
                where = f"row {row}, column {column_name!r} (field {name})"
                fault = Fault(table.name, where, problem, "replace the value")
                yield f"column {column_name!r}", fault


def _undecoded_fields(url: str, shard: Shard, chosen: Iterable[int]) -> Iterator[tuple[str, Fault]]:
    """Yield each field of the chosen samples that cannot be decoded."""
    for local_index in map(int, chosen):
        sample = shard[local_index]
        for extension in sample:
            problem = None
            if extension.startswith("."):
                problem = decoding_problem(extension, sample[extension])
            if problem is not None:
                where = f"sample {local_index} ({sample['__key__']}), field {extension}"
                cure = "replace the field, or leave the sample out"
                yield f"field {extension}", Fault(url, where, problem, cure)


def decoding_problem(extension: str, data: Any) -> str | None:
    """Return the reason why a field cannot be decoded; None if it can.

    >>> decoding_problem(".cls", b"7") is None
    True
    """
    try:
        value = decode_field(extension, data)
        if hasattr(value, "getbands"):
            value.load()  # PIL reads the pixels only now
    except Exception as error:  # noqa: BLE001 (any error of a decoder is a fault)
        return str(error) or repr(error)
    return None
