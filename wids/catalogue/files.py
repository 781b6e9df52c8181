"""The Parquet files of a catalogue: which there are, building what is missing, publishing."""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from multiprocessing import current_process
from shutil import copyfile
from typing import TYPE_CHECKING, Any

from wids.base.files import remove_parts
from wids.base.optional import load
from wids.base.processes import num_readers, run_each
from wids.base.shardref import Version
from wids.base.system import num_cores
from wids.base.urls import display_url, is_local, local_path
from wids.base.warn import warn
from wids.catalogue.build import (
    BUILDER,
    FORMAT,
    copy_to_parquet,
    metadata_of,
    write_headers,
    write_samples,
)
from wids.catalogue.engine import FORKS_WAIT, keep_table
from wids.catalogue.structures import (
    cast,
    checked_structures,
    documents_merged,
    literal,
    merge,
    quoted,
)
from wids.errors import ShardFormatError, WidsError
from wids.log import logger

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence
    from pathlib import Path

    from wids.reading.datasetshards import DatasetShards
    from wids.reading.shardlist import ShardList

__all__ = ["CatalogueFile", "define_rows", "files_of", "merged_structure", "publish"]

SAMPLES = f"catalogue{FORMAT}.parquet"
_MANY = 256  # shards, whose files are read faster as some larger ones
_OF_GROUP = 64  # shards in such a file
_FEW = 4  # shards that are read in this process: a new one takes longer to start


@dataclass(frozen=True)
class CatalogueFile:
    """A Parquet file with the samples of one shard, or of all in the order of the dataset.

    Attributes:
        path: Path of the file.
        num_rows: Number of samples.
        structure: Structure of each column.
        nulls: For each column, how many of its fields are null for which reason.
        versions: The version of each shard.
        has_shards: Whether it has several shards, and a column that tells which.
        number: Number of its shard in the dataset, or of the first one.
    """

    path: str
    num_rows: int
    structure: dict[str, Any]
    nulls: dict[str, dict[str, int]]
    versions: list[Version]
    has_shards: bool
    number: int = 0

    @classmethod
    def opened(cls, path: str | os.PathLike[str]) -> CatalogueFile:
        """Read what a file states.

        Raises:
            OSError: It is not there.
            ShardFormatError: It is no file of a catalogue, or damaged.
        """
        pa = load("pyarrow", "sql")
        parquet = load("pyarrow.parquet", "sql")
        try:
            found = parquet.read_metadata(path)
            stated = {k.decode(): v.decode() for k, v in (found.metadata or {}).items()}
            if stated["wids.catalogue"] != FORMAT:
                raise ValueError(f"its format is {stated['wids.catalogue']}, expected {FORMAT}")
            versions = [Version(**each) for each in json.loads(stated["wids.versions"])]
            structure = checked_structures(json.loads(stated["wids.structure"]))
            nulls = json.loads(stated["wids.nulls"])
        except (pa.ArrowInvalid, KeyError, ValueError, TypeError, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise  # the system's; those without a number are Arrow's, of what it cannot parse
            raise ShardFormatError(
                f"{path}: no file of a catalogue, or damaged: {error}"
            ) from error
        with suppress(OSError):  # the folder may be read-only
            os.utime(path)  # so that it is evicted after what is not used
        several = "wids.several" in stated
        return cls(str(path), found.num_rows, structure, nulls, versions, several)


def files_of(
    dataset: ShardList,
    headers: Sequence[str] = (),
    *,
    only: Collection[int] | None = None,
    failed: Callable[[int, Exception], object] | None = None,
    build: bool = True,
    copies: Path | None = None,
) -> list[list[CatalogueFile]]:
    """Return the files of a dataset: of its samples, then of each column of headers.

    Files that are missing, damaged, or of another version of a shard are built, in processes.

    Args:
        dataset: The dataset.
        headers: Columns of headers that are wanted, such as "jpg".
        only: Numbers of the shards that may be read; None for all. Files of others are left out.
        failed: Called with each shard that cannot be read, which is left out then; None to raise
            the error.
        build: Whether to build what is missing; else it is an error.
        copies: Folder for copies, which no bound of the cache folder evicts; None for none.

    Returns:
        For the samples, and for each of `headers`, the files in the order of the shards.

    Raises:
        ShardChangedError: A shard is of another version than the dataset has used.
        WidsError: A shard cannot be read, or the files cannot be kept.
        FileNotFoundError: A file is missing, and none is to be built.
    """
    published = _published(dataset)
    columns = [f"{name}.{SAMPLES}" for name in headers]
    numbers = [number for number, count in enumerate(dataset.shards.nsamples) if count]
    numbers = [number for number in numbers if only is None or number in only]
    whole = None if published is None else [published]
    if whole is None and only is None and copies is None and len(numbers) >= _MANY:
        whole = _grouped(dataset, numbers, build)
    if whole is not None:
        return [whole, *_shard_files(dataset, columns, numbers, failed, build, copies)]
    return _shard_files(dataset, [SAMPLES, *columns], numbers, failed, build, copies)


def _grouped(dataset: ShardList, numbers: Sequence[int], build: bool) -> list[CatalogueFile] | None:
    """Return files of many shards each, as thousands of files take seconds to open.

    Returns:
        None if a version is not known before its shard is opened, or nothing is to be built.
    """
    shards, folder = dataset.dataset_shards, dataset.cache.joins_folder()
    paths = {number: shards.catalogue_path(number, SAMPLES) for number in numbers}
    names = [path.name for path in paths.values() if path is not None]
    if folder is None or len(names) < len(paths):
        return None
    found: dict[Path, CatalogueFile] = {}
    groups: dict[Path, Sequence[int]] = {}
    for at in range(0, len(numbers), _OF_GROUP):
        group = numbers[at : at + _OF_GROUP]
        made_of = json.dumps([names[at : at + _OF_GROUP], [each - group[0] for each in group]])
        path = folder / f"{hashlib.sha256(made_of.encode()).hexdigest()[:32]}.{SAMPLES}"
        groups[path] = group
        with suppress(FileNotFoundError, ShardFormatError):
            found[path] = CatalogueFile.opened(path)
    missing = {path: group for path, group in groups.items() if path not in found}
    if missing and not build:
        return None
    if missing:
        wanted = [number for group in missing.values() for number in group]
        singles = {file.number: file for file in _shard_files(dataset, [SAMPLES], wanted)[0]}
        folder.mkdir(parents=True, exist_ok=True)
        for path, group in missing.items():
            files = [singles[number] for number in group]
            versions = [file.versions[0] for file in files]
            _write_several(files, [number - group[0] for number in group], versions, path)
            found[path] = CatalogueFile.opened(path)
    for path, group in groups.items():
        for number, version in zip(group, found[path].versions, strict=True):
            shards.versions.require(number, version)
    return [replace(found[path], number=group[0]) for path, group in groups.items()]


def _write_several(
    files: Sequence[CatalogueFile], numbers: Sequence[int], versions: list[Version], path: Path
) -> None:
    """Write the rows of files, one after the other, to one that tells the number of each shard."""
    whole = merged_structure(file.structure for file in files)
    counts = [file.num_rows for file in files]
    starts = [0, *accumulate(counts)][:-1]
    with FORKS_WAIT, load("duckdb", "sql").connect() as con:
        define_rows(con, "stored", files, starts, numbers, whole)
        columns = ", ".join(map(quoted, whole))
        rows = f"SELECT {columns}, _number AS shard_index FROM stored ORDER BY _at"
        copy_to_parquet(con, rows, path, metadata_of(versions, whole, {}) | {"wids.several": "1"})


def _shard_files(
    dataset: ShardList,
    suffixes: Sequence[str],
    numbers: Sequence[int],
    failed: Callable[[int, Exception], object] | None = None,
    build: bool = True,
    copies: Path | None = None,
) -> list[list[CatalogueFile]]:
    shards = dataset.dataset_shards
    jobs = [(number, suffix) for suffix in suffixes for number in numbers]
    found: dict[tuple[int, str], CatalogueFile] = {}
    for number, suffix in jobs:
        path = shards.catalogue_path(number, suffix)
        if path is not None:
            with suppress(FileNotFoundError):
                try:
                    found[number, suffix] = _opened(path, copies)
                except ShardFormatError as error:
                    logger.warning("%s; it is built again", error)
    missing = [job for job in jobs if job not in found]
    if missing and not build:
        number, suffix = missing[0]
        raise FileNotFoundError(f"the catalogue has no {suffix} of shard {number}")
    if missing:
        paths = [path for job in missing if (path := shards.catalogue_path(*job)) is not None]
        for folder in {path.parent for path in paths}:
            remove_parts(folder, {path.name for path in paths})  # those of killed processes
        for job, outcome in zip(missing, _build(dataset, missing, copies), strict=True):
            if not isinstance(outcome, Exception):
                found[job] = outcome
            elif failed is None:
                raise outcome
            else:
                failed(job[0], outcome)
        _warn_of_nulls(found[job] for job in missing if job in found)
    for (number, _), file in found.items():
        shards.versions.require(number, file.versions[0])
    return [
        [
            replace(found[number, suffix], number=number)
            for number in numbers
            if (number, suffix) in found
        ]
        for suffix in suffixes
    ]


def _build(
    dataset: ShardList, jobs: Sequence[tuple[int, str]], copies: Path | None
) -> list[CatalogueFile | Exception]:
    """Build files in processes; what is there is not lost if one of them fails or is killed."""
    for library in ("duckdb", "pyarrow.parquet"):
        load(library, "sql")  # here, so that forked processes need not
    alone = len(jobs) < _FEW or current_process().daemon  # workers of loaders start no processes
    try:
        return run_each(
            partial(_build_one, dataset.dataset_shards, copies),
            jobs,
            workers=1 if alone else num_readers(dataset.shards.urls, num_cores()),
            desc="building the catalogue",
        )
    finally:
        BUILDER.close()  # of this process, if it has built any


def _opened(path: Path, copies: Path | None) -> CatalogueFile:
    return CatalogueFile.opened(path if copies is None else copyfile(path, copies / path.name))


def _build_one(shards: DatasetShards, copies: Path | None, job: tuple[int, str]) -> CatalogueFile:
    number, suffix = job
    opened = shards.open_unkept(number)
    opened.shard.confirm()
    path = shards.catalogue_path(number, suffix)
    if path is None:
        raise WidsError(f"{display_url(opened.url)}: its version is not known, so nothing is kept")
    try:
        return _opened(path, copies)  # by another process, or read by range before
    except (OSError, ShardFormatError):
        pass
    path.parent.mkdir(parents=True, exist_ok=True)
    if suffix == SAMPLES:
        write_samples(opened, path)
    else:
        write_headers(opened, suffix.removesuffix(f".{SAMPLES}"), path)
    return _opened(path, copies)


def _warn_of_nulls(files: Iterable[CatalogueFile]) -> None:
    """Warn of fields that are null in the catalogue though their samples have them."""
    totals: dict[str, dict[str, int]] = {}
    for file in files:
        for name, counts in file.nulls.items():
            for reason, count in counts.items():
                total = totals.setdefault(name, {})
                total[reason] = total.get(reason, 0) + count
    words = {
        "broken": "damaged",
        "deep": "nested deeper than 64",
        "large": "larger than 1 MiB",
        "other": "no objects, as others are",
    }
    for name, counts in totals.items():
        if num_names := counts.pop("names", 0):
            warn(
                f"catalogue: {num_names} names in the objects of {name!r} are left out of it, as "
                "they are empty or differ from others by case alone: filter(callable, column) and "
                "column read them"
            )
        if not counts:
            continue
        reasons = ", ".join(f"{count} {words[reason]}" for reason, count in counts.items())
        column = name if name.isidentifier() else quoted(name)
        warn(
            f"catalogue: {sum(counts.values())} fields {name!r} are null in it: {reasons}; the "
            f"condition `sizes.{column} > 0 and {column} is null` finds them"
        )


def merged_structure(structures: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Return the structure of each column that holds the values of all rows.

    Args:
        structures: Structure of each column of some of the rows.
    """
    whole: dict[str, Any] = {}
    for structure in {json.dumps(each): each for each in structures}.values():
        for name, kind in structure.items():
            both = merge if name in {"offsets", "sizes"} else documents_merged
            whole[name] = both(whole.get(name), kind)
    return whole


def define_rows(
    con: Any,
    name: str,
    files: Sequence[CatalogueFile],
    starts: Sequence[int],
    numbers: Sequence[int],
    whole: dict[str, Any],
) -> None:
    """Define a view of the rows of some files, of one type each column.

    Args:
        con: Connection of DuckDB.
        name: Name of the view, whose column `_at` is the address of a row, and `_number` the number
            of its shard.
        files: The files.
        starts: Address of the first row of each.
        numbers: Number of the first shard of each.
        whole: Structure of each column, as `merged_structure` returns it.
    """
    pa = load("pyarrow", "sql")
    paths = [file.path for file in files]
    table = pa.table(
        {"path": pa.array(paths, pa.string()), "start": list(starts), "number": list(numbers)}
    )
    keep_table(con, f"{name} files", table)
    groups: dict[str, list[CatalogueFile]] = {}
    for file in files:
        groups.setdefault(json.dumps([file.structure, file.has_shards]), []).append(file)
    selects = []
    for group in groups.values():
        structure = group[0].structure
        columns = [
            f"{cast(f'r.{quoted(column)}', structure.get(column), kind)} AS {quoted(column)}"
            for column, kind in whole.items()
        ]
        number = "f.number + r.shard_index" if group[0].has_shards else "f.number"
        columns = ["f.start + r.file_row_number AS _at", f"{number} AS _number", *columns]
        listed = ", ".join(literal(file.path) for file in group)
        selects.append(
            f"SELECT {', '.join(columns)} FROM read_parquet([{listed}], file_row_number = true, "
            f"filename = true) r JOIN {quoted(f'{name} files')} f ON r.filename = f.path"
        )
    con.execute(f"CREATE VIEW {quoted(name)} AS {' UNION ALL '.join(selects)}")


def _published(dataset: ShardList) -> CatalogueFile | None:
    """Return the file that the spec names, fetched if need be; None without one that fits."""
    source = dataset.catalogue
    if source is None:
        return None
    try:
        path = local_path(source) if is_local(source) else dataset.cache.get_table(source)
        file = CatalogueFile.opened(path)
        if len(file.versions) != len(dataset.shards) or file.num_rows != len(dataset):
            raise ShardFormatError(f"{display_url(source)}: it is of other shards")
        known = dataset.dataset_shards.versions
        for number, version in enumerate(file.versions):
            there = dataset.cache.version_of(dataset.shards[number])
            if version.is_other(there) or not known.admits(number, version):
                url = display_url(dataset.shards[number].url)
                raise ShardFormatError(f"{display_url(source)}: {url} was replaced since")
    except (OSError, WidsError) as error:
        warn(f"{error}; now the catalogue is built from the shards, create --catalogue renews it")
        return None
    return file


def publish(dataset: ShardList, folder: Path, stem: str) -> Path:
    """Write the catalogue of a dataset to one file, which its spec can name.

    Args:
        dataset: The dataset.
        folder: Where.
        stem: Begin of the name of the file, which goes on with a digest of the versions of shards.

    Returns:
        The file.

    Raises:
        WidsError: A shard cannot be read.
        OSError: The file cannot be written.
    """
    numbers = [number for number, count in enumerate(dataset.shards.nsamples) if count]
    (files,) = _shard_files(dataset, [SAMPLES], numbers)
    if not files:
        raise ValueError(f"{folder / stem}: the catalogue of no samples cannot be written")
    versions = [Version() for _ in dataset.shards.urls]
    for number, file in zip(numbers, files, strict=True):
        # A copy of a shard has another date, and another server another validator.
        made_of = file.versions[0]
        versions[number] = Version(index=made_of.index, content=made_of.content)
    whole = merged_structure(file.structure for file in files)
    digest = hashlib.sha256(json.dumps(metadata_of(versions, whole, {})).encode()).hexdigest()[:16]
    path = folder / f"{stem}-{digest}.parquet"
    _write_several(files, numbers, versions, path)
    return path
