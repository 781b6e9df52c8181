"""Opening of tables: Parquet, Arrow, CSV and NumPy files, data frames, and columns in memory."""

from __future__ import annotations

import csv
import hashlib
import mmap
import os
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tokenize import TokenError
from typing import TYPE_CHECKING, Any

import numpy as np

from wids.base.decompression import allowed_nbytes
from wids.base.files import atomic_file
from wids.base.numbertext import SURE_DIGITS, is_exact_float
from wids.base.optional import load
from wids.base.strictcsv import check_quotes
from wids.base.urls import display_url, file_name
from wids.errors import SpecError
from wids.reading.ragged import RaggedText, pack
from wids.views.table import FileStamp, Origin, Table, stamp_of
from wids.views.tablebounds import arrow_nbytes, decoded_nbytes, pages_nbytes
from wids.views.tablecolumns import Column, Numbers, Objects, Piece, Texts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from wids.caching.cache import ShardCache

__all__ = ["TableSource", "is_table", "remote_table", "table_source"]

# A larger Parquet or CSV file is unpacked once, into a file that all processes map.
_MOST_HELD_NBYTES = 64 << 20
_BLOCK_NBYTES = 1 << 20
_DELTA = "DELTA_BYTE_ARRAY"  # an encoding of Parquet, by what a text shares with the one before
_INTEGER = r"^-?(0|[1-9][0-9]*)$"
_NUMBER = r"^-?(0|[1-9][0-9]*)?(\.[0-9]+)?([eE][+-]?[0-9]+)?$"
_LEADING_ZERO = r"^-?0[0-9]"


class TableSource:
    """Table whose columns are not read yet.

    Args:
        names: Names of its columns.
        read: Function that reads some of them.
        title: What messages call it.
        in_order: Whether its rows are in the order of the samples, as those of an array.
        lacking: A warning for those who want all columns, of those that only some tables have.

    Attributes:
        names, read, title, in_order, lacking: As given.
    """

    def __init__(
        self,
        names: Sequence[str],
        read: Callable[[Sequence[str]], Table],
        title: str = "the table",
        *,
        in_order: bool = False,
        lacking: str = "",
    ) -> None:
        self.names = list(names)
        self.lacking = lacking
        self.read = read
        self.title, self.in_order = title, in_order


def is_table(source: Any) -> bool:
    """Return whether a value is a table and not a sequence of samples."""
    return isinstance(source, str | os.PathLike | Mapping | np.ndarray) or _is_frame(source)


def _is_frame(source: Any) -> bool:
    home = type(source).__module__.partition(".")[0]
    return home in {"pandas", "pyarrow", "polars"} or hasattr(source, "__arrow_c_stream__")


def table_source(
    source: Any,
    *,
    copies: Path | None = None,
    stamp: FileStamp | None = None,
    url: str | None = None,
    most_held_nbytes: int = _MOST_HELD_NBYTES,
) -> TableSource:
    """Open a table.

    Args:
        source: Path of a `.parquet`, `.arrow`, `.feather`, `.csv`, `.tsv` or `.npy` file; a data
            frame of pandas or polars, or a table of pyarrow; a dict of columns; or an array.
        copies: Folder for unpacked copies of large files; None to keep them in memory.
        stamp: What the file must have.
        url: Where the file was fetched from, whose name then stands for its own.
        most_held_nbytes: What takes less memory is no large file.

    Raises:
        ValueError: The file is of another kind, or is damaged.
        SpecError: The file is not the one with the stamp.
        OSError: It cannot be read.
        ModuleNotFoundError: pyarrow is needed and not installed.
    """
    if isinstance(source, str | os.PathLike):
        given = Path(source).expanduser()
        path = given.absolute()
        opener = _FILES.get(path.suffix.lower())
        if opener is None:
            raise ValueError(
                f"{path}: expected a table, a file named {', '.join(_FILES)}; a dataset or a saved "
                "view is opened first, by wids.open, and then joined"
            )
        if stamp is None:
            stamp = stamp_of(path)
        else:
            stamp.check(path)
        title, stem = (str(path), path.stem) if url is None else (display_url(url), _stem_of(url))
        relative = not given.is_absolute()
        return opener(path, _Unpacked(copies, stamp, most_held_nbytes, title, stem, relative))
    in_order = isinstance(source, np.ndarray) and source.dtype.names is None
    if isinstance(source, np.ndarray):
        source = _columns_of_array(source, "npy")
    if isinstance(source, Mapping):
        columns = {str(name): Column([_piece_of_values(each)]) for name, each in source.items()}
        Table(columns)  # which checks that their lengths agree
        return TableSource(
            list(columns), lambda names: Table({n: columns[n] for n in names}), in_order=in_order
        )
    arrow = _arrow_of_frame(source)

    def of_frame(names: Sequence[str]) -> Table:
        return Table(_columns_of_arrow(_validated(arrow.select(names), "the table"), names))

    return TableSource(arrow.column_names, of_frame)


def remote_table(
    url: str, cache: ShardCache, *, copies: Path | None = None, stamp: FileStamp | None = None
) -> TableSource:
    """Open a table at a URL, which is fetched into the cache folder.

    Args:
        url: Where it is.
        cache: The cache.
        copies: As for `table_source`, like the following.
        stamp: What the file must have.

    Raises:
        FetchError: It cannot be fetched.
        ValueError: It is of another kind, or is damaged.
        SpecError: It is not the one with the stamp.
    """
    path = cache.get_table(url)
    found = stamp_of(path)
    if stamp is not None and stamp.digest != found.digest:
        raise SpecError(
            f"{display_url(url)}: the table has changed since it was joined ({stamp.nbytes} bytes "
            f"then, {found.nbytes} now); join it again, or restore the file"
        )
    source = table_source(path, copies=copies, url=url)

    def read(names: Sequence[str]) -> Table:
        cache.get_table(url)  # which may have been evicted
        reopen = (_fetched, url, cache, copies, found, list(names))
        return Table(source.read(names).columns, Origin(url, found), reopen)

    return TableSource(source.names, read, display_url(url), in_order=source.in_order)


def _stem_of(url: str) -> str:
    """Return the name of the file at a URL without its suffix, as it would be on this machine.

    >>> _stem_of("https://host/a/my%20scores.npy?key=1")
    'my scores'
    """
    return Path(file_name(url)).stem


def _fetched(
    url: str, cache: ShardCache, copies: Path | None, stamp: FileStamp, names: Sequence[str]
) -> Table:
    """Open the remote table of another process."""
    return remote_table(url, cache, copies=copies, stamp=stamp).read(names)


@dataclass(frozen=True)
class _Unpacked:
    """Unpacked copies of large files, which all processes map.

    Attributes:
        folder: Where they lie; None for no copies.
        stamp: That of the file.
        most_held_nbytes: What takes less memory is not copied.
        title: What messages call the file.
        stem: Name of the file where it was given, without suffix; it names the column of an array.
        is_relative: Whether the path of the file was given relative to the current folder.
    """

    folder: Path | None
    stamp: FileStamp
    most_held_nbytes: int
    title: str
    stem: str
    is_relative: bool = False

    def columns(
        self, nbytes: int, names: Sequence[str], batches: Callable[[], Iterable[Any]]
    ) -> dict[str, Column] | None:
        """Return columns of the copy, which is made if missing; None for a small file.

        Args:
            nbytes: The memory that the columns would take.
            names: Their names.
            batches: Function that reads them, batch by batch.
        """
        if self.folder is None or nbytes <= self.most_held_nbytes:
            return None
        arrow = load("pyarrow", "parquet")
        digest = hashlib.sha256(repr((self.stamp.digest, sorted(names))).encode()).hexdigest()
        path = self.folder / f"{digest[:32]}.arrow"
        try:
            os.utime(path)  # files are evicted by their dates
            return _columns_of_arrow(_mapped_arrow(path, self.title), names)
        except FileNotFoundError:
            pass
        with atomic_file(path) as stream:
            writer = None
            for batch in _plain_batches(batches()):
                writer = writer or arrow.ipc.new_file(stream, batch.schema)
                writer.write_batch(batch)
            if writer is not None:
                writer.close()
        arrow.default_memory_pool().release_unused()  # what the batches took
        return _columns_of_arrow(_mapped_arrow(path, self.title), names)


def _reopened(path: Path, copies: Path | None, stamp: FileStamp, names: Sequence[str]) -> Table:
    """Open a table by the path that another process pickled."""
    return table_source(path, copies=copies, stamp=stamp).read(names)


def _of_file(
    path: Path,
    unpacked: _Unpacked,
    columns: Callable[[Sequence[str]], Mapping[str, Column]],
    names: Sequence[str],
) -> Table:
    stamp = unpacked.stamp
    reopen = (_reopened, path, unpacked.folder, stamp, list(names))
    origin = Origin(str(path), stamp, is_relative=unpacked.is_relative)
    return Table(columns(names), origin, reopen)


# Files of Arrow's family.


def _open_parquet(path: Path, unpacked: _Unpacked) -> TableSource:
    parquet, arrow = load("pyarrow.parquet", "parquet"), load("pyarrow", "parquet")
    title = unpacked.title
    try:
        file = parquet.ParquetFile(path)
    except (arrow.ArrowException, OSError) as error:
        raise SpecError(f"{title}: is no Parquet file, or is damaged: {error}") from error

    def read(names: Sequence[str]) -> Mapping[str, Column]:
        metadata, most = file.metadata, allowed_nbytes(unpacked.stamp.nbytes)
        chunks = [
            (group, chunk)
            for group in range(metadata.num_row_groups)
            for chunk in map(metadata.row_group(group).column, range(metadata.num_columns))
            if chunk.path_in_schema.split(".")[0] in names
        ]
        with _mapped(path, f"{title}: is no Parquet file") as data:
            nbytes = sum(_pages_nbytes(data, chunk) for _, chunk in chunks)
            _check_size(max(nbytes, sum(each.num_values for _, each in chunks)), most, title)
            # One value of a dictionary may stand for thousands of rows.
            repeated = sum(_repeated_nbytes(path, title, data, *each) for each in chunks)
        deltas = {each.path_in_schema for _, each in chunks if _DELTA in each.encodings}
        coded = {each.path_in_schema for _, each in chunks if _has_texts(each)} - deltas
        # Slower by far: what each batch would take is counted before its values are copied.
        is_counted = nbytes + repeated > most
        reader = parquet.ParquetFile(path, read_dictionary=sorted(coded) if is_counted else None)
        # A value may repeat the one before it, as a row may repeat a dictionary's.
        widest = nbytes if deltas else nbytes // max(1, metadata.num_rows)
        num_rows = min(max(1, _MOST_HELD_NBYTES // max(1, widest)), 1 << 20)

        def batches() -> Iterator[Any]:
            found = reader.iter_batches(num_rows, columns=list(names))
            return _decoded(found, file.schema_arrow, most, title)

        copy = unpacked.columns(nbytes, names, batches)
        if copy is None:
            kinds = arrow.schema([file.schema_arrow.field(name) for name in names])
            copy = _columns_of_arrow(arrow.Table.from_batches(batches(), kinds), names)
        return copy

    names = file.schema_arrow.names
    return TableSource(names, partial(_of_file, path, unpacked, read), title)


def _has_texts(chunk: Any) -> bool:
    """Return whether a column chunk of a Parquet file has a dictionary of texts or bytes."""
    return bool(chunk.physical_type == "BYTE_ARRAY" and chunk.has_dictionary_page)


def _pages_nbytes(data: memoryview, chunk: Any, *, only_first: bool = False) -> int:
    """Return the uncompressed size of a column chunk of a Parquet file, or of its first page."""
    start = chunk.data_page_offset
    if chunk.has_dictionary_page and 0 < chunk.dictionary_page_offset < start:
        start = chunk.dictionary_page_offset
    return pages_nbytes(data, start, start + (only_first or chunk.total_compressed_size))


def _repeated_nbytes(path: Path, title: str, data: memoryview, group: int, chunk: Any) -> int:
    """Return a bound of what the values of the dictionary of a column chunk take in all rows."""
    parquet, compute = load("pyarrow.parquet", "parquet"), load("pyarrow.compute", "parquet")
    arrow = load("pyarrow", "parquet")
    if not _has_texts(chunk) or not chunk.num_values:
        return 0
    name = chunk.path_in_schema
    reader = parquet.ParquetFile(path, read_dictionary=[name])
    try:
        first = next(reader.iter_batches(1, row_groups=[group], columns=[name])).column(0)
        lengths = compute.binary_length(first.dictionary)
    except (AttributeError, StopIteration):  # inside of a list or a struct
        return 1 << 62
    except (arrow.ArrowException, OSError) as error:
        raise SpecError(f"{title}: cannot be read, or is damaged: {error}") from error
    # In the dictionary's page four bytes stand before each; else this is another dictionary.
    found = (compute.sum(lengths).as_py() or 0) + 4 * len(lengths)
    if found != _pages_nbytes(data, chunk, only_first=True):
        return 1 << 62
    return int(compute.max(lengths).as_py() or 0) * int(chunk.num_values)


@contextmanager
def _mapped(path: Path, unlike: str) -> Iterator[memoryview]:
    """Context manager of the bytes of a file; a ValueError for them is a SpecError that says so."""
    try:
        with path.open("rb") as stream:
            # Not closed here: the traceback of an error may still refer to slices of it.
            yield memoryview(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ))
    except SpecError:  # of a table that is too large
        raise
    except ValueError as error:
        raise SpecError(f"{unlike}, or is damaged: {error}") from None


def _check_size(nbytes: int, most: int, title: str) -> None:
    """Raise SpecError if a table unpacks to more than is allowed."""
    if nbytes > most:
        raise SpecError(
            f"{title}: unpacks to {nbytes} bytes or more, where {most} are allowed, 64 MiB and 200 "
            "times the size of the file; write the table without compression and dictionaries"
        )


def _decoded(batches: Iterable[Any], schema: Any, most: int, title: str) -> Iterator[Any]:
    """Yield batches with the types of a schema; those of a damaged file raise SpecError."""
    arrow, total = load("pyarrow", "parquet"), 0
    try:
        for batch in batches:
            total += sum(map(decoded_nbytes, batch.columns))
            _check_size(total, most, title)
            names = batch.schema.names
            kinds = [schema.field(name).type for name in names]
            pairs = zip(batch.columns, kinds, strict=True)
            yield arrow.record_batch([each.cast(kind) for each, kind in pairs], names=names)
    except (arrow.ArrowException, OSError) as error:
        raise SpecError(f"{title}: cannot be read, or is damaged: {error}") from error


def _open_arrow(path: Path, unpacked: _Unpacked) -> TableSource:
    title, most = unpacked.title, allowed_nbytes(unpacked.stamp.nbytes)
    with _mapped(path, f"{title}: is no Arrow file") as data:
        _check_size(arrow_nbytes(data), most, title)
    found = _mapped_arrow(path, title)

    def read(names: Sequence[str]) -> Mapping[str, Column]:
        chosen = _validated(found.select(list(names)), title)
        chunks = (chunk for column in chosen.columns for chunk in column.chunks)
        _check_size(sum(map(decoded_nbytes, chunks)), most, title)
        # What takes more memory than the file was compressed; else it is mapped as it is.
        nbytes = chosen.nbytes if chosen.nbytes > unpacked.stamp.nbytes else 0
        copy = unpacked.columns(nbytes, names, chosen.to_batches)
        return copy or _columns_of_arrow(chosen, names)

    return TableSource(found.column_names, partial(_of_file, path, unpacked, read), title)


def _mapped_arrow(path: Path, title: str) -> Any:
    """Return the table in an Arrow file or stream, over its mapped bytes."""
    arrow = load("pyarrow", "parquet")
    mapped = arrow.memory_map(str(path))
    try:
        return arrow.ipc.open_file(mapped).read_all()
    except (arrow.ArrowException, OSError):
        mapped.seek(0)
    try:
        return arrow.ipc.open_stream(mapped).read_all()
    except (arrow.ArrowException, OSError) as error:
        raise SpecError(f"{title}: is no Arrow file, or is damaged: {error}") from error


def _validated(table: Any, title: str) -> Any:
    """Return a table of Arrow after checking every offset and index in it.

    Arrow itself trusts them: a cast, a slice or `nbytes` of a damaged array reads memory outside
    of its buffers. Thus this comes before all else.

    Raises:
        SpecError: One lies outside of its buffer, or a text is not UTF-8.
    """
    arrow = load("pyarrow", "parquet")
    for name, column in zip(table.column_names, table.columns, strict=True):
        try:
            for chunk in column.chunks:
                chunk.validate(full=True)
        except arrow.ArrowException as error:
            raise SpecError(f"{title}: column {name!r} is damaged: {error}") from error
    return table


def _open_csv(path: Path, unpacked: _Unpacked) -> TableSource:
    delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
    with path.open(encoding="utf-8-sig", newline="", errors="replace") as stream:
        names = next(csv.reader(stream, delimiter=delimiter), [])
    if not names or len(set(names)) < len(names):
        raise ValueError(
            f"{unpacked.title}: expected a first line of distinct names of columns, got {names}"
        )

    def read(wanted: Sequence[str]) -> Mapping[str, Column]:
        found = _parsed_csv(path, unpacked.title, delimiter, wanted)
        copy = unpacked.columns(found.nbytes, wanted, found.to_batches)
        return copy or _columns_of_arrow(found, wanted)

    return TableSource(names, partial(_of_file, path, unpacked, read), unpacked.title)


def _parsed_csv(path: Path, title: str, delimiter: str, names: Sequence[str]) -> Any:
    """Read columns of a CSV file; a column of numbers has no codes such as "007" in it."""
    arrow, parser = load("pyarrow", "parquet"), load("pyarrow.csv", "parquet")
    try:
        found = parser.read_csv(
            path,
            parse_options=parser.ParseOptions(delimiter=delimiter, newlines_in_values=True),
            convert_options=parser.ConvertOptions(
                column_types=dict.fromkeys(names, arrow.large_string()),
                include_columns=list(names),
                strings_can_be_null=False,
            ),
        )
    except (arrow.ArrowInvalid, arrow.ArrowKeyError) as error:  # the latter: no UTF-8
        raise ValueError(f"{title}: is no table of CSV: {error}") from error
    if _may_be_misquoted(path, found.num_rows):
        check_quotes(path, delimiter, title)
    return arrow.table({name: _numbers_if_any(found[name]) for name in names})


def _may_be_misquoted(path: Path, num_rows: int) -> bool:
    """Return whether cells with several lines may be due to a quote that is not closed."""
    num_quotes = num_lines = 0
    with path.open("rb") as stream:
        while block := stream.read(_BLOCK_NBYTES):
            num_quotes += block.count(b'"')
            num_lines += block.count(b"\n")
    # The first line has the names.
    return num_quotes > 0 and (num_quotes % 2 > 0 or num_lines > num_rows + 1)


def _numbers_if_any(texts: Any) -> Any:
    """Return a text column as numbers if all texts are numbers or empty (null)."""
    arrow, compute = load("pyarrow", "parquet"), load("pyarrow.compute", "parquet")
    empty = compute.equal(texts, "")
    filled = compute.if_else(empty, None, texts)
    if filled.null_count == len(filled):
        return texts
    for pattern, kind in ((_INTEGER, arrow.int64()), (_NUMBER, arrow.float64())):
        matches = compute.match_substring_regex(filled, pattern)
        codes = compute.match_substring_regex(filled, _LEADING_ZERO)
        if compute.all(matches).as_py() and not compute.any(codes).as_py():
            try:
                numbers = filled.cast(kind)
            except arrow.ArrowInvalid:  # an integer of more than 64 bits
                break
            return numbers if kind == arrow.int64() or _are_exact(filled) else texts
    return texts


def _are_exact(numbers: Any) -> bool:
    """Return whether 64-bit floats hold all digits of numbers that are texts, or null."""
    compute = load("pyarrow.compute", "parquet")
    short = compute.less_equal(compute.binary_length(numbers), SURE_DIGITS)
    plain = compute.invert(compute.match_substring(numbers, "e", ignore_case=True))
    # Few columns have such numbers; comparing one takes as long as parsing a hundred.
    rest = numbers.filter(compute.invert(compute.and_(short, plain))).drop_null()
    return all(is_exact_float(text) for chunk in rest.chunks for text in chunk.to_pylist())


def _plain_batches(batches: Iterable[Any]) -> Iterator[Any]:
    """Yield batches without dictionary encoding, since a file has one dictionary for all."""
    arrow = load("pyarrow", "parquet")
    for batch in batches:
        arrays = [
            each.dictionary_decode() if arrow.types.is_dictionary(each.type) else each
            for each in batch.columns
        ]
        yield arrow.record_batch(arrays, names=batch.schema.names)


def _arrow_of_frame(frame: Any) -> Any:
    """Return a data frame as a pyarrow table."""
    arrow = load("pyarrow", "parquet")
    if isinstance(frame, arrow.Table):
        return frame
    kind = f"{type(frame).__module__.partition('.')[0]} {type(frame).__name__}"
    try:
        if kind == "pandas DataFrame":
            named = any(name is not None for name in frame.index.names)
            return arrow.Table.from_pandas(
                frame.reset_index() if named else frame, preserve_index=False
            )
        # A lazy frame is neither, and pyarrow would look for columns of pandas in it.
        streams = hasattr(frame, "__arrow_c_stream__")
        found = arrow.table(frame) if streams else arrow.Table.from_batches([frame])
    except (arrow.ArrowException, TypeError, ValueError) as error:
        raise ValueError(
            f"join: a {kind} cannot be joined: {error}; expected a data frame whose columns have "
            "values of one type each, such as .to_frame() makes of a series and .collect() of a "
            "lazy frame; a dict of lists takes values of all kinds"
        ) from error
    return found


def _columns_of_arrow(table: Any, names: Sequence[str]) -> dict[str, Column]:
    return {
        name: Column([_piece_of_arrow(chunk) for chunk in table[name].chunks if len(chunk)])
        for name in names
    }


def _piece_of_arrow(array: Any) -> Piece:
    """Return an Arrow array as a piece of a column, without a copy if its type allows that."""
    arrow = load("pyarrow", "parquet")
    types, kind = arrow.types, array.type
    nulls = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
    if types.is_dictionary(kind):
        return _piece_of_arrow(_without_views(array).dictionary_decode())
    if str(kind) in {"string_view", "binary_view"}:
        return _piece_of_arrow(array.cast(f"large_{str(kind).removesuffix('_view')}"))
    numbers = _numbers_of_arrow(array)
    if numbers is not None:
        return Numbers(numbers, nulls)
    binary = types.is_binary(kind) or types.is_large_binary(kind)
    if binary or types.is_string(kind) or types.is_large_string(kind):
        wide = types.is_large_binary(kind) or types.is_large_string(kind)
        offsets = _buffer(array, 1, np.int64 if wide else np.int32, len(array) + 1)
        data = array.buffers()[2]
        held = np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
        return Texts(offsets, held, nulls, binary=binary)
    return Objects(array, nulls)


def _without_views(array: Any) -> Any:
    """Convert the string views in a dictionary array, which pyarrow's `take` does not support."""
    kind = str(array.type.value_type)
    if kind not in {"string_view", "binary_view"}:
        return array
    values = array.dictionary.cast(f"large_{kind.removesuffix('_view')}")
    return type(array).from_arrays(array.indices, values)


def _numbers_of_arrow(array: Any) -> np.ndarray | None:
    """Return numbers, truth values or lists of numbers of one length as an array; else None."""
    types, kind = load("pyarrow", "parquet").types, array.type
    if types.is_boolean(kind):
        flags: np.ndarray = array.fill_null(False).to_numpy(zero_copy_only=False)
        return flags
    if types.is_integer(kind) or types.is_floating(kind):
        return _buffer(array, 1, kind.to_pandas_dtype(), len(array))
    if types.is_fixed_size_list(kind) and not array.null_count:
        items = array.flatten()
        if not items.null_count and types.is_floating(items.type) | types.is_integer(items.type):
            rows: np.ndarray = items.to_numpy().reshape(len(array), kind.list_size)
            return rows
    return None


def _buffer(array: Any, number: int, kind: Any, count: int) -> np.ndarray:
    """Return a buffer of an Arrow array from the start of its slice on."""
    found = np.frombuffer(array.buffers()[number], kind)
    return found[array.offset : array.offset + count]


# Arrays and lists.


def _open_npy(path: Path, unpacked: _Unpacked) -> TableSource:
    title = unpacked.title
    try:
        array = np.lib.format.open_memmap(path, "r")
    except (ValueError, OSError, TokenError) as error:
        raise SpecError(f"{title}: is no array of NumPy, or is damaged: {error}") from error
    if array.ndim and array.size == 0 < len(array):  # any number of rows would hold nothing
        raise SpecError(f"{title}: expected values in each row, found the shape {array.shape}")
    # Arrays are fields of their own format, single numbers are values.
    name = unpacked.stem if array.ndim == 1 else f"{unpacked.stem}.npy"
    columns = _columns_of_array(array, name)

    def read(names: Sequence[str]) -> Mapping[str, Column]:
        return {each: Column([_piece_of_values(columns[each])]) for each in names}

    reader = partial(_of_file, path, unpacked, read)
    return TableSource(list(columns), reader, title, in_order=array.dtype.names is None)


def _columns_of_array(array: np.ndarray, name: str) -> dict[str, np.ndarray]:
    if not array.ndim:
        raise ValueError("expected an array with a row for each sample, got a single value")
    if array.dtype.names is not None:
        return {each: array[each] for each in array.dtype.names}
    return {name: array}


def _piece_of_values(values: Any) -> Piece:
    """Return an array, a list or another library's column as a piece of a column."""
    if type(values).__module__.partition(".")[0] == "pyarrow":
        whole = values.combine_chunks() if hasattr(values, "combine_chunks") else values
        return _piece_of_arrow(whole)
    if hasattr(values, "__array__"):
        values = np.asarray(values)
        if values.dtype.kind in "biuf":
            native = values.dtype.newbyteorder("=")
            return Numbers(np.ascontiguousarray(values, native))
        if values.dtype.kind in "mM":  # nanoseconds would become integers
            values = values.astype(f"{values.dtype.kind}8[us]")
        values = values.tolist()
    items = list(values)
    packed = pack(items)
    if isinstance(packed, RaggedText):
        return Texts(packed.offsets, packed.values)
    if isinstance(packed, np.ndarray):
        return Numbers(packed)
    nulls = np.array([item is None for item in items], np.bool_)
    return Objects(items, nulls if nulls.any() else None)


_FILES: dict[str, Callable[[Path, _Unpacked], TableSource]] = {
    ".parquet": _open_parquet,
    ".pq": _open_parquet,
    ".arrow": _open_arrow,
    ".feather": _open_arrow,
    ".ipc": _open_arrow,
    ".csv": _open_csv,
    ".tsv": _open_csv,
    ".npy": _open_npy,
}
