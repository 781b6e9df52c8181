"""Opening of tables: files, also at URLs and beside shards, data frames, and columns in memory.

Arrow's readers trust a file: they allocate what it states, and read at any offset in it. So what a
file unpacks to is added up first, as the metadata of a Parquet file and the sizes before each
compressed buffer of an Arrow file state it; and every array is validated before a value of it is
touched.

Sources:
    Arrow columnar format, IPC; FlatBuffers, internals.
"""

from __future__ import annotations

import csv
import hashlib
import math
import os
import re
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import date, datetime
from functools import partial
from itertools import chain, product
from pathlib import Path, PurePosixPath
from tokenize import TokenError
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from wids.base.decompression import allowed_nbytes
from wids.base.optional import load
from wids.base.strictcsv import strict_rows
from wids.base.threads import DaemonThreadPool
from wids.base.urls import (
    base_name,
    display_url,
    file_name,
    is_local,
    local_path,
    scheme_of,
    without_query,
)
from wids.base.warn import warn
from wids.errors import FetchError, SpecError
from wids.fetching.transport import AbsentError
from wids.specs.locations import folder_of, join
from wids.views.tables import FileStamp, Origin, Table, stamp_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from wids.caching.cache import ShardCache

__all__ = ["is_table", "open_table", "open_tables", "tables_beside"]

_BATCH_NBYTES = 64 << 20  # of what is unpacked at a time
_FETCHED_AT_ONCE = 8
_TEXTS = (".csv", ".tsv")
# "007" is a code, and no number.
_INTEGER = r"^-?(0|[1-9][0-9]*)$"
_NUMBER = r"^-?(0|[1-9][0-9]*)?(\.[0-9]+)?([eE][+-]?[0-9]+)?$"


def is_table(source: Any) -> bool:
    """Return whether a value is a table and not a sequence of samples."""
    if isinstance(source, str | os.PathLike | Mapping | np.ndarray | Table):
        return True
    if isinstance(source, list | tuple) and source:
        return all(isinstance(each, str | os.PathLike) for each in source)
    home = type(source).__module__.partition(".")[0]
    return home in {"pandas", "pyarrow", "polars"} or hasattr(source, "__arrow_c_stream__")


def open_table(
    source: Any, *, cache: ShardCache | None = None, stamp: FileStamp | None = None
) -> Table:
    """Open a table, of which no column is read yet.

    Args:
        source: Path or URL of a `.parquet`, `.arrow`, `.feather`, `.csv`, `.tsv` or `.npy` file, or
            a list of these; a data frame of pandas or polars, or a table of pyarrow; a dict of
            columns; an array; or what was opened before.
        cache: Where a file at a URL is fetched to.
        stamp: What the file must have.

    Raises:
        FetchError: It cannot be fetched.
        ValueError: The file is of another kind, or is damaged.
        SpecError: The file is not the one with the stamp.
        OSError: It cannot be read.
        ModuleNotFoundError: pyarrow is needed and not installed.
    """
    if isinstance(source, Table):
        return source
    if isinstance(source, str | os.PathLike):
        return _in_file(source, cache, stamp)
    if isinstance(source, list | tuple):
        return open_tables(source, cache=cache, stamp=stamp, warned=stamp is None)
    in_order = isinstance(source, np.ndarray) and source.dtype.names is None
    if isinstance(source, np.ndarray):
        source = _columns_of_array(source, "npy")
    whole = _arrow_of(source)

    def read(names: Sequence[str]) -> Any:
        wanted = whole.select(names)
        for batch in wanted.to_batches():
            _check_offsets(batch, "the table")
        return _together(map(_plain, wanted.to_batches()), wanted)

    return Table(whole.column_names, read, in_order=in_order)


def _in_file(
    source: str | os.PathLike[str], cache: ShardCache | None, stamp: FileStamp | None = None
) -> Table:
    """Open a table by its path or URL."""
    location, is_relative = os.fspath(source), False
    if not isinstance(source, str) or is_local(source):
        path = Path(source) if isinstance(source, os.PathLike) else local_path(location)
        is_relative = not path.expanduser().is_absolute()
        location = str(path.expanduser().absolute())
    path, title = _fetched(location, cache), display_url(location)
    opener = _FILES.get(path.suffix.lower())
    if opener is None:
        raise ValueError(
            f"{title}: expected a table, a file named {', '.join(_FILES)}; a dataset or a saved "
            "view is opened first, by wids.open, and then joined"
        )
    if stamp is not None:
        stamp.check(path, title)
    found = stamp or stamp_of(path)
    if not is_local(location):  # fetched again, it has another date
        found = replace(found, mtime_ns=None)
    return opener(_File(path, title, Origin((location,), found, is_relative), cache))


def _fetched(location: str, cache: ShardCache | None) -> Path:
    """Return the path of a file, after fetching it if it is remote."""
    if is_local(location):
        return local_path(location)
    if cache is None:
        raise FetchError(
            f"{display_url(location)}: is remote, and the samples are of no dataset with a cache "
            "folder; fetch the table, and name the file or its folder"
        )
    return cache.get_table(location)


class _File(NamedTuple):
    """A file of a table on this machine.

    Attributes:
        path: Where it is.
        title: What messages call it.
        origin: Where it was given.
        cache: Where a file at a URL is fetched to.
    """

    path: Path
    title: str
    origin: Origin
    cache: ShardCache | None

    def table(
        self, names: list[str], columns: Callable[[Sequence[str]], Any], *, in_order: bool = False
    ) -> Table:
        """Return the table in the file.

        Args:
            names: Names of its columns.
            columns: Function that reads some of them, as a table of pyarrow.
            in_order: Whether its rows are in the order of the samples.
        """
        if not names or len(set(names)) < len(names):
            raise ValueError(f"{self.title}: expected columns with distinct names, got {names}")
        (location,), stamp, _ = self.origin

        def read(wanted: Sequence[str]) -> Any:
            _fetched(location, self.cache)  # it may have been evicted
            return columns(wanted)

        reopen = partial(_in_file, location, self.cache, stamp)
        return Table(names, read, self.origin, in_order=in_order, reopen=reopen)

    def plain(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Yield the checked batches of the file, as `_plain` makes them.

        Raises:
            SpecError: They are damaged, or take more memory than is allowed.
        """
        total = 0
        try:
            for batch in batches:
                _check_offsets(batch, self.title)
                # A row counts a byte, as it may take none.
                total += batch.num_rows + sum(map(_decoded_nbytes, batch.columns))
                self.check_size(total)
                yield _plain(batch)
        except (load("pyarrow", "parquet").ArrowException, OSError) as error:
            raise self.damaged(error) from error

    def check_size(self, nbytes: int) -> None:
        """Raise SpecError if the file unpacks to more than is allowed."""
        most = allowed_nbytes(self.origin.stamp.nbytes)
        if nbytes > most:
            raise SpecError(
                f"{self.title}: unpacks to {nbytes} bytes or more, where {most} are allowed, 64 "
                "MiB and 200 times the size of the file; write the table without compression and "
                "dictionaries"
            )

    def damaged(self, error: object) -> SpecError:
        """Return the error for a file that cannot be read."""
        kind = self.path.suffix
        return SpecError(f"{self.title}: is no table in a {kind} file, or is damaged: {error}")


def _check_offsets(batch: Any, title: str) -> None:
    """Raise SpecError if an offset lies outside of its buffer, or a text is not UTF-8.

    Arrow itself trusts them: a cast, a slice or `nbytes` of a damaged array reads memory outside
    of its buffers. Thus this comes before all else.
    """
    for name, array in zip(batch.schema.names, batch.columns, strict=True):
        try:
            array.validate(full=True)
        except load("pyarrow", "parquet").ArrowException as error:
            raise SpecError(f"{title}: column {name!r} is damaged: {error}") from error


def _plain(batch: Any) -> Any:
    """Return a batch with values in place of dictionaries, and texts in place of views."""
    arrays = list(map(_plain_array, batch.columns))
    return load("pyarrow", "parquet").record_batch(arrays, names=batch.schema.names)


def _decoded_nbytes(array: Any) -> int:
    """Return the bytes that an array takes without dictionaries, also in lists and structs."""
    types, compute = load("pyarrow", "parquet").types, load("pyarrow.compute", "parquet")
    if types.is_nested(array.type):
        parts = array.flatten()
        return sum(map(_decoded_nbytes, parts if isinstance(parts, list) else [parts]))
    if not types.is_dictionary(array.type):
        return int(array.nbytes)
    values = _plain_array(array.dictionary)
    kind = str(values.type)
    if kind.removeprefix("large_") in {"string", "binary"}:
        lengths = compute.binary_length(values).cast("int64").take(array.indices)
        return int(compute.sum(lengths).as_py() or 0)
    return len(array) * max(1, int(values.nbytes) // max(1, len(values)))


def _plain_array(array: Any) -> Any:
    if load("pyarrow", "parquet").types.is_dictionary(array.type):
        values = _plain_array(array.dictionary)
        return type(array).from_arrays(array.indices, values).dictionary_decode()
    kind = str(array.type)
    if kind in {"string_view", "binary_view"}:
        return array.cast(f"large_{kind.removesuffix('_view')}")
    return array


def _together(batches: Iterable[Any], table: Any) -> Any:
    """Return batches as one table; of none, the columns of another one without rows."""
    held = list(batches)
    return load("pyarrow", "parquet").Table.from_batches(held) if held else table.slice(0, 0)


# Parquet.


def _open_parquet(file: _File) -> Table:
    arrow, parquet = load("pyarrow", "parquet"), load("pyarrow.parquet", "parquet")

    def columns(wanted: Sequence[str]) -> Any:
        try:
            nbytes, num_rows, coded = _facts_of_parquet(file.path, wanted)
            file.check_size(nbytes)
            with parquet.ParquetFile(file.path, read_dictionary=coded) as opened:
                # One group of rows after another, as texts in lists and structs have a dictionary
                # in each, and a batch one.
                batches = chain.from_iterable(
                    opened.iter_batches(num_rows, row_groups=[group], columns=list(wanted))
                    for group in range(opened.num_row_groups)
                )
                nothing = opened.schema_arrow.empty_table().select(wanted)
                return _together(file.plain(batches), nothing)
        except SpecError:
            raise
        except (arrow.ArrowException, OSError, ValueError) as error:
            raise file.damaged(error) from error

    try:
        return file.table(parquet.read_schema(file.path).names, columns)
    except (arrow.ArrowException, OSError) as error:
        raise file.damaged(error) from error


def _facts_of_parquet(path: Path, names: Sequence[str]) -> tuple[int, int, list[str]]:
    """Return what columns of a Parquet file unpack to, how many rows to read at a time, and texts.

    The texts are read as dictionaries, since one value may stand for many rows: the bytes that they
    take are counted before the rows are made. Where that cannot be, fewer rows are read at a time.
    """
    metadata = load("pyarrow.parquet", "parquet").read_metadata(path)
    nbytes, widest = 0, 1
    coded: dict[str, bool] = {}
    for group, number in product(range(metadata.num_row_groups), range(metadata.num_columns)):
        chunk, column = metadata.row_group(group).column(number), metadata.schema.column(number)
        name = chunk.path_in_schema
        if not any(f"{name}.".startswith(f"{each}.") for each in names):
            continue
        nbytes += max(chunk.total_uncompressed_size, chunk.num_values)
        kind, is_delta = chunk.physical_type, any("DELTA" in each for each in chunk.encodings)
        if kind == "FIXED_LEN_BYTE_ARRAY":
            widest = max(widest, column.length)
        elif kind == "BYTE_ARRAY" and is_delta:  # a text may begin as that before it
            widest = max(widest, chunk.total_uncompressed_size)
        coded[name] = coded.get(name, True) and kind == "BYTE_ARRAY" and not is_delta
    return nbytes, min(max(1, _BATCH_NBYTES // widest), 1 << 20), [n for n in coded if coded[n]]


# Arrow.


def _open_arrow(file: _File) -> Table:
    arrow = load("pyarrow", "parquet")
    try:
        messages = arrow.ipc.MessageReader.open_stream(_arrow_bytes(file.path))
        file.check_size(sum(map(_message_nbytes, messages)))
        schema = _arrow_stream(file.path).schema
    except SpecError:
        raise
    except (arrow.ArrowException, OSError, struct.error, IndexError) as error:
        raise file.damaged(error) from error

    def columns(names: Sequence[str]) -> Any:
        batches = _arrow_stream(file.path, [schema.get_field_index(each) for each in names])
        return _together(file.plain(batches), schema.empty_table().select(names))

    return file.table(schema.names, columns)


def _arrow_bytes(path: Path) -> Any:
    """Return the mapped bytes of an Arrow file or stream, at the start of the stream."""
    mapped = load("pyarrow", "parquet").memory_map(str(path))
    mapped.seek(8 if mapped.read(6) == b"ARROW1" else 0)
    return mapped


def _arrow_stream(path: Path, fields: Sequence[int] | None = None) -> Any:
    """Return a reader of an Arrow file or stream over its mapped bytes."""
    ipc = load("pyarrow", "parquet").ipc
    options = ipc.IpcReadOptions(included_fields=fields)
    return ipc.open_stream(_arrow_bytes(path), options=options)


def _message_nbytes(message: Any) -> int:
    """Return what the buffers of a message unpack to; a row counts a byte, as it may take none."""
    data, body = memoryview(message.metadata), message.body
    batch = _flat_field(data, _flat_root(data, 0), 2)
    if message.type not in {"dictionary", "record batch"} or not batch:
        return 0
    batch = _flat_root(data, batch)
    if message.type == "dictionary":
        batch = _flat_root(data, _flat_field(data, batch, 1))
    rows, buffers = _flat_field(data, batch, 0), _flat_field(data, batch, 2)
    total = max(0, struct.unpack_from("<q", data, rows)[0]) if rows else 0
    start = _flat_root(data, buffers) if buffers else 0
    for number in range(struct.unpack_from("<I", data, start)[0] if buffers else 0):
        offset, length = struct.unpack_from("<qq", data, start + 4 + 16 * number)
        if _flat_field(data, batch, 3) and length >= 8:  # compressed
            stated = struct.unpack_from("<q", body, offset)[0]
            length = length if stated == -1 else stated  # -1: left as it is
        total += max(0, length)
    return int(total)


def _flat_root(data: memoryview, at: int) -> int:
    """Return where an offset in FlatBuffers leads."""
    return at + int(struct.unpack_from("<I", data, at)[0])


def _flat_field(data: memoryview, table: int, number: int) -> int:
    """Return where a field of a table of FlatBuffers begins; 0 if it is left out."""
    shape = table - struct.unpack_from("<i", data, table)[0]
    slot = 4 + 2 * number
    if slot >= struct.unpack_from("<H", data, shape)[0]:
        return 0
    offset = int(struct.unpack_from("<H", data, shape + slot)[0])
    return table + offset if offset else 0


# CSV.


def _open_csv(file: _File) -> Table:
    with file.path.open(encoding="utf-8-sig", newline="", errors="replace") as stream:
        names = next(csv.reader(stream, delimiter=_delimiter(file)), [])

    return file.table(names, lambda wanted: _with_numbers(_texts_of_csv(file, wanted)))


def _delimiter(file: _File) -> str:
    return "\t" if file.path.suffix.lower() == ".tsv" else ","


def _texts_of_csv(file: _File, names: Sequence[str]) -> Any:
    """Return columns of a CSV file as they are written."""
    arrow, parser = load("pyarrow", "parquet"), load("pyarrow.csv", "parquet")
    delimiter = _delimiter(file)
    try:
        found = parser.read_csv(
            file.path,
            parse_options=parser.ParseOptions(delimiter=delimiter, newlines_in_values=True),
            convert_options=parser.ConvertOptions(
                column_types=dict.fromkeys(names, arrow.large_string()),
                include_columns=list(names),
                strings_can_be_null=False,
            ),
        )
    except (arrow.ArrowInvalid, arrow.ArrowKeyError) as error:  # the latter: no UTF-8
        raise file.damaged(error) from error
    data = file.path.read_bytes()
    num_quotes, num_lines = data.count(b'"'), data.count(b"\n")
    # Cells with several lines (the first line has the names) may be due to an open quote.
    if num_quotes % 2 or (num_quotes and num_lines > found.num_rows + 1):
        for _ in strict_rows(file.path, delimiter, file.title, errors="replace"):
            pass
    return found


def _with_numbers(texts: Any) -> Any:
    """Return columns of texts; one of numbers alone, without codes such as "007", as numbers."""
    return load("pyarrow", "parquet").table(
        {name: _numbers_if_any(texts[name]) for name in texts.column_names}
    )


def _numbers_if_any(texts: Any) -> Any:
    """Return a text column as numbers if all texts are numbers or empty (null)."""
    arrow, compute = load("pyarrow", "parquet"), load("pyarrow.compute", "parquet")
    filled = compute.if_else(compute.equal(texts, ""), None, texts)
    if filled.null_count == len(filled):
        return texts
    for pattern, kind in ((_INTEGER, arrow.int64()), (_NUMBER, arrow.float64())):
        if compute.all(compute.match_substring_regex(filled, pattern)).as_py():
            try:
                return filled.cast(kind)
            except arrow.ArrowInvalid:  # an integer of more than 64 bits
                return texts
    return texts


# Arrays, lists and frames.


def _open_npy(file: _File) -> Table:
    try:
        array = np.lib.format.open_memmap(file.path, "r")
    except (ValueError, OSError, TokenError) as error:
        raise file.damaged(error) from error
    if array.ndim and array.size == 0 < len(array):  # any number of rows would hold nothing
        raise SpecError(f"{file.title}: expected values in each row, found {array.shape}")
    (location,) = file.origin.locations
    stem = Path(location if is_local(location) else file_name(location)).stem
    # Arrays are fields of their own format, single numbers are values.
    arrays = _columns_of_array(array, stem if array.ndim == 1 else f"{stem}.npy")
    return file.table(
        list(arrays),
        lambda names: _arrow_of({name: arrays[name] for name in names}),
        in_order=array.dtype.names is None,
    )


def _columns_of_array(array: np.ndarray, name: str) -> dict[str, np.ndarray]:
    if not array.ndim:
        raise ValueError("expected an array with a row for each sample, got a single value")
    if array.dtype.names is not None:
        return {each: array[each] for each in array.dtype.names}
    return {name: array}


def _arrow_of(source: Any) -> Any:
    """Return a data frame, or a dict of columns, as a table of pyarrow."""
    arrow = load("pyarrow", "parquet")
    kind = f"{type(source).__module__.partition('.')[0]} {type(source).__name__}"
    kind = kind.removeprefix("builtins ")
    try:
        if isinstance(source, Mapping):
            return arrow.table({str(name): _array_of(source[name]) for name in source})
        if kind == "pandas DataFrame":  # of whose index the names count
            named = any(name is not None for name in source.index.names)
            return arrow.Table.from_pandas(source, preserve_index=named)
        if not hasattr(source, "__arrow_c_stream__"):
            raise TypeError("it hands out no Arrow stream")
        return arrow.table(source)
    except (arrow.ArrowException, ArithmeticError, TypeError, ValueError) as error:
        raise ValueError(
            f"join: a {kind} cannot be joined: {error}; expected columns of one length, whose "
            "values are of one type each: of values of any kind, join their JSON, by a name such "
            "as 'meta.json'; .to_frame() makes a frame of a series, .collect() of a lazy frame"
        ) from error


def _array_of(values: Any) -> Any:
    """Return a column of a dict as an array of pyarrow; rows of numbers as tensors."""
    arrow = load("pyarrow", "parquet")
    if isinstance(values, arrow.Array | arrow.ChunkedArray):
        return values
    if hasattr(values, "__arrow_c_stream__"):
        return arrow.chunked_array(values)
    if not hasattr(values, "__array__"):
        values = list(values)
        if not any(isinstance(each, np.datetime64 | np.timedelta64) for each in values):
            return _array_of_list(values)
    values = np.asarray(values)
    if values.dtype.kind in "biufmM" and values.ndim:
        values = np.ascontiguousarray(values, values.dtype.newbyteorder("="))
        flat, (_, *shape) = arrow.array(values.reshape(-1)), values.shape
        if not shape:
            return flat
        rows = arrow.FixedSizeListArray.from_arrays(flat, math.prod(shape))
        return arrow.fixed_shape_tensor(flat.type, shape).wrap_array(rows)
    return _array_of_list(values.tolist())


def _array_of_list(values: list[Any]) -> Any:
    """Return values of any kind as an array of pyarrow.

    Raises:
        TypeError: pyarrow would cut a time down to its date or its zone off, or encode a text.
    """
    found = load("pyarrow", "parquet").array(values)
    if re.search("date|timestamp|binary", str(found.type)):
        kind_at: dict[tuple[Any, ...], str] = {}
        for place, kind in _kinds(values, ()):
            if kind_at.setdefault(place, kind) != kind:
                raise TypeError(f"it has {kind_at[place]} and {kind} in one column")
    return found


def _kinds(values: Iterable[Any], place: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], str]]:
    """Yield what dates, times, texts and bytes are, with their place in dicts and lists."""
    for each in values:
        if isinstance(each, Mapping):
            for name, value in each.items():
                yield from _kinds((value,), (*place, name))
        elif isinstance(each, list | tuple | set | frozenset):
            yield from _kinds(each, (*place, None))
        elif isinstance(each, datetime) and each == each:  # noqa: PLR0124 (NaT of pandas is not)
            yield place, "times" if each.tzinfo is None else "times with a zone"
        elif isinstance(each, date) and not isinstance(each, datetime):
            yield place, "dates"
        elif isinstance(each, str | bytes):
            yield place, "texts" if isinstance(each, str) else "bytes"


_FILES: dict[str, Callable[[_File], Table]] = {
    ".parquet": _open_parquet,
    ".pq": _open_parquet,
    ".arrow": _open_arrow,
    ".feather": _open_arrow,
    ".ipc": _open_arrow,
    ".csv": _open_csv,
    ".tsv": _open_csv,
    ".npy": _open_npy,
}


# Several files as one table, such as those beside shards.


def open_tables(
    locations: Sequence[str | os.PathLike[str]],
    *,
    cache: ShardCache | None = None,
    stamp: FileStamp | None = None,
    missing: str = "error",
    is_relative: bool = False,
    warned: bool = False,
) -> Table:
    """Open the tables in several files as one.

    Args:
        locations: Their paths or URLs.
        cache: As for `open_table`.
        stamp: What all files together must have.
        missing: "error", or something else to pass over files that are not there.
        is_relative: Whether the paths depend on one that was given relative.
        warned: Whether to warn of columns that only some tables have.

    Returns:
        All rows, with the columns that all tables have.

    Raises:
        ValueError: A table is missing or damaged, or a column has values of unlike types.
        FetchError: A table cannot be fetched.
        SpecError: The files are not those with the stamp.
    """

    def opened(location: str | os.PathLike[str]) -> Table | None:
        try:
            return _in_file(location, cache)
        except (AbsentError, FileNotFoundError):
            return None
        finally:
            if cache is not None:
                cache.release()

    with DaemonThreadPool(_FETCHED_AT_ONCE, "wids-tables") as pool:
        found = list(pool.map(opened, locations))
    tables = [table for table in found if table is not None]
    lost = [location for location, table in zip(locations, found, strict=True) if table is None]
    if lost and (missing == "error" or not tables):
        raise ValueError(
            f"join: {len(lost)} of {len(locations)} tables are not there, the first is "
            f'{display_url(os.fspath(lost[0]))}; missing="drop" leaves out samples without a row'
        )
    origins = [table.origin for table in tables if table.origin is not None]
    nbytes, digest = 0, hashlib.sha256()
    for each in origins:
        nbytes += each.stamp.nbytes
        line = f"{base_name(each.locations[0])} {each.stamp.digest}\n"
        digest.update(line.encode("utf-8", "surrogateescape"))
    # One file is saved and opened as a table of its own.
    one = origins[0].stamp.digest if len(origins) == 1 else None
    together = FileStamp(nbytes, one or digest.hexdigest())
    is_relative = is_relative or any(each.is_relative for each in origins)
    origin = Origin(tuple(each.locations[0] for each in origins), together, is_relative)
    if stamp is not None and stamp.digest != together.digest:
        raise SpecError(
            f"{origin.title}: the tables have changed since they were joined; join them again, or "
            "restore the files"
        )
    names = [name for name in tables[0].names if all(name in table.names for table in tables)]
    some = dict.fromkeys(name for table in tables for name in table.names if name not in names)
    if some and warned:
        first = next(iter(some))
        others = [table.name for table in tables if first not in table.names]
        warn(
            f"join: no sample gets {', '.join(map(repr, some)):.200}, which not all tables have; "
            f"{len(others)} of {len(tables)} lack {first!r}, the first is {others[0]}; add the "
            "column there, or name the wanted ones by fields="
        )

    # A CSV file does not say the types of its columns: keys such as "7" in one and "007" or "a7" in
    # another are texts.
    are_texts = all(file_name(each.locations[0]).lower().endswith(_TEXTS) for each in origins)

    def part(table: Table, wanted: Sequence[str]) -> Any:
        if table.origin is None or not are_texts:
            return table.only(wanted).arrow()
        path = _fetched(table.origin.locations[0], cache)
        return _texts_of_csv(_File(path, table.name, table.origin, cache), wanted)

    def read(wanted: Sequence[str]) -> Any:
        arrow = load("pyarrow", "parquet")
        parts = [part(table, wanted) for table in tables]
        try:
            found = arrow.concat_tables(parts, promote_options="permissive")
            return _with_numbers(found) if are_texts else found
        except arrow.ArrowException as error:
            raise ValueError(
                f"{origin.title}: the tables have columns of unlike types: {error}; write them "
                "with one type for each column, or leave them out by fields="
            ) from error

    return Table(names, read, origin)


def tables_beside(pattern: str, datasets: Sequence[Any]) -> tuple[list[str], bool]:
    """Return the locations of the tables beside shards, and whether a path of these is relative.

    Args:
        pattern: Path or URL of a table, relative to the folder of its shard, with `{shard}` for
            the name of the shard without `.tar`.
        datasets: The datasets, each shard of which counts once.

    Raises:
        ValueError: The pattern has no `{shard}`, or there is no shard.
    """
    if "{shard}" not in pattern:
        raise ValueError(
            f"join_tables: expected a pattern such as '{{shard}}.parquet', got "
            f"{display_url(pattern)!r}; one table for all shards is joined by join()"
        )
    shards = dict.fromkeys(url for dataset in datasets for url in dataset.shards.urls)
    if not shards:
        raise ValueError("join_tables: expected samples of shards, beside which tables lie")
    is_relative = any(is_local(url) and not local_path(url).is_absolute() for url in shards)
    return [table_beside(pattern, shard) for shard in shards], is_relative


def table_beside(pattern: str, shard: str) -> str:
    """Return the location of the table of a shard.

    >>> table_beside("{shard}.parquet", "https://host/a/00000.tar?key=1")
    'https://host/a/00000.parquet?key=1'
    >>> table_beside("../meta/{shard}.csv", "s3://bucket/a/00000.tar.gz")
    's3://bucket/meta/00000.csv'
    >>> table_beside("{shard}", "https://host/file:x.tar")
    'https://host/file:x'
    """
    path = without_query(shard)
    file = local_path(shard).name if is_local(shard) else PurePosixPath(path).name
    name = re.sub(r"\.tar(\.gz|\.zst)?$", "", file)
    # What the pattern itself says counts: a shard may be called "file:x.tar" or "~x.tar".
    if scheme_of(pattern):
        return pattern.replace("{shard}", name)
    pattern = os.path.expanduser(pattern)  # noqa: PTH111 (which raises for an unknown user)
    table = pattern.replace("{shard}", name)
    if is_local(shard):
        return str(local_path(shard).absolute().parent / table)
    if pattern.startswith("/"):
        return table
    return f"{join(folder_of(shard), f'./{table}')}{shard[len(path) :]}"
