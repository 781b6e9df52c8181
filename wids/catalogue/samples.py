"""`SampleTable`: the samples of a sequence as the table `samples`, and `SqlResult`: an answer."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import weakref
from functools import partial
from itertools import filterfalse
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from wids.base.optional import load
from wids.base.text import table
from wids.base.urls import display_url
from wids.catalogue.build import column_name, has_headers
from wids.catalogue.conditions import check_condition, check_order, check_query, explained
from wids.catalogue.engine import Instance
from wids.catalogue.files import files_of
from wids.catalogue.origins import Join, JoinedTable, Renamed, datasets_of
from wids.catalogue.sides import CLASS, StoredPart, StoredSide, define_samples

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    import numpy.typing as npt

    from wids.catalogue.conditions import Names
    from wids.catalogue.files import CatalogueFile
    from wids.catalogue.origins import Part, Side

__all__ = ["SampleTable", "SqlResult"]

_ATTEMPTS = 3  # of a query whose files are evicted meanwhile
_MOST_ROWS = 20  # of a result that are shown
_MOST_CHARACTERS = 60


class SampleTable:
    """The table `samples` of a sequence, with a row for each sample; kept by the sequence.

    The first query builds the files that are missing; later ones use an instance of DuckDB that
    stays open. Many threads may ask at the same time. It refers to no dataset, so that a sequence
    that keeps it is freed at once; each method takes what the samples are made of. A pickled copy
    begins anew.

    Args:
        files: Returns the files of a dataset and some columns of headers, as `files_of`.
    """

    def __init__(self, files: Callable[..., list[list[CatalogueFile]]] = files_of) -> None:
        self._files = files
        self._headers: set[str] = set()  # columns of headers that a query has named
        self._known_headers: set[str] = set()  # those that one could name
        self._stamp: Any = None
        self._instance: Instance | None = None
        self._of_tables: Instance | None = None  # over joined tables alone
        self._folder: Path | None = None  # of copies, if the cache folder loses files
        self._untrimmed: list[Any] = []  # bounded caches in which files may have been made
        self._lock = threading.Lock()
        self._pid = os.getpid()

    def __reduce__(self) -> tuple[Any, ...]:
        return SampleTable, (self._files,)

    def query(self, sides: Sequence[Side], query: str) -> SqlResult:
        """Return the finished answer to one query, which may be any SELECT.

        Args:
            sides: What the samples are made of.
            query: SQL, such as `select cls, count(*) from samples group by cls`.

        Raises:
            ValueError: It is no query, or fails; the message is that of DuckDB.
            WidsError: The catalogue cannot be built.
        """
        return SqlResult(self._run(sides, query, query, check_query(query)))

    def matching(self, sides: Sequence[Side], condition: str) -> npt.NDArray[np.int64]:
        """Return the indexes of the samples that fulfil a condition, ascending.

        Args:
            sides: As for `query`.
            condition: SQL, such as `json.width >= 900 and cls in (1, 3)`.

        Raises:
            ValueError: It is no condition, or names what no sample has.
            WidsError: The catalogue cannot be built.
        """
        query, names = check_condition(condition)
        return self._indexes(sides, query, condition, names)

    def ordered(self, sides: Sequence[Side], order: str) -> npt.NDArray[np.int64]:
        """Return the indexes of all samples in an order; equal ones keep theirs, nulls come last.

        Args:
            sides: As for `query`.
            order: SQL as after ORDER BY, such as `json.score desc, key`.

        Raises:
            ValueError: It is no order, or names what no sample has.
            WidsError: The catalogue cannot be built.
        """
        query, names = check_order(order)
        return self._indexes(sides, query, order, names)

    def close(self) -> None:
        """End the instances of DuckDB; the next query opens another."""
        for instance in (self._instance, self._of_tables):
            if instance is not None:
                instance.close()

    def _own_lock(self) -> threading.Lock:
        if self._pid != os.getpid():  # a thread of the other process may have held the lock
            self._lock, self._pid = threading.Lock(), os.getpid()
        return self._lock

    def _indexes(
        self, sides: Sequence[Side], query: str, text: str, names: Names
    ) -> npt.NDArray[np.int64]:
        return np.asarray(self._run(sides, query, text, names)["index"].to_numpy(), np.int64)

    def _run(
        self,
        sides: Sequence[Side],
        query: str,
        text: str,
        names: Names,
        attempts: int = _ATTEMPTS,
    ) -> Any:
        duckdb = load("duckdb", "sql")
        try:
            instance = self._over_tables(sides, names.columns) or self.opened(sides, names)
            with instance.asked() as cursor:
                return cursor.sql(query).to_arrow_table()
        except (duckdb.Error, RuntimeError, FileNotFoundError) as error:
            if isinstance(error, FileNotFoundError) and (attempts == 1 or error.errno is None):
                raise  # those of the system have a number: a file evicted once it was built
            is_gone = isinstance(error, duckdb.IOException | FileNotFoundError)
            # In place of a file that is gone, DuckDB looks for a folder, which it may not.
            is_gone = is_gone or '/**/*.parquet"' in str(error)
            if is_gone or isinstance(error, duckdb.FatalException):
                self._instance = self._of_tables = None  # the next query opens another
            if attempts == 1 or not is_gone:
                raise explained(error, text) from None
            if self._folder is None:  # a file was evicted from the cache folder
                self._folder = Path(tempfile.mkdtemp(prefix="wids-sql-"))
                weakref.finalize(self, _remove, self._folder, os.getpid())
        finally:
            # Not before: a bound may be smaller than the files of one query.
            while self._untrimmed:
                cache = self._untrimmed.pop()
                cache.trim(cache.cache_size)
        return self._run(sides, query, text, names, attempts - 1)

    def _over_tables(self, sides: Sequence[Side], columns: frozenset[str]) -> Instance | None:
        """Return the instance over joined tables, if columns of these alone are asked for."""
        if not _are_in_tables(sides, columns):
            return None
        with self._own_lock():
            if self._of_tables is None:
                self._of_tables = Instance(partial(define_samples, _without_shards(sides)))
            return self._of_tables

    def opened(self, sides: Sequence[Side], names: Collection[str]) -> Instance:
        """Return the instance over the present files, with the headers that are named.

        Args:
            sides: As for `query`.
            names: Names in the query, in lower case.
        """
        with self._own_lock():
            homes = [part.home for side in sides for part in side.parts]
            tables = [home for home in homes if isinstance(home, JoinedTable)]
            datasets = {id(dataset): dataset for dataset in datasets_of(sides)}
            stamp = [dataset.dataset_shards.stamp() for dataset in datasets.values()]
            wanted = self._headers | (_stored_names(sides, names) & self._known_headers)
            if self._instance is not None and stamp == self._stamp and wanted == self._headers:
                return self._instance
            held: dict[str, Any] = {} if self._folder is None else {"copies": self._folder}
            caches = (dataset.cache for dataset in datasets.values())
            self._untrimmed = [cache for cache in caches if cache.cache_size is not None]
            files = {which: self._files(dataset, **held)[0] for which, dataset in datasets.items()}
            known = {
                which: {
                    name
                    for file in each
                    for name in file.structure.get("sizes") or ()
                    if has_headers(f".{name}")
                }
                for which, each in files.items()
            }
            for table in tables:
                named = filter(has_headers, table.fields)
                known[id(table)] = {*map(column_name, named)}
            self._known_headers = set().union(*known.values())
            wanted = self._headers | (_stored_names(sides, names) & self._known_headers)
            headers: dict[int, dict[str, list[CatalogueFile]]] = {
                id(table): {name: [] for name in wanted & known[id(table)]} for table in tables
            }
            for which, dataset in datasets.items():
                its = sorted(wanted & known[which])
                found = self._files(dataset, its, **held)[1:] if its else []
                headers[which] = dict(zip(its, found, strict=True))
            stored = [
                StoredSide([_stored(part, files, headers) for part in side.parts], side.rows())
                for side in sides
            ]
            self._instance = Instance(partial(define_samples, stored))
            # Shards that were fetched meanwhile have a version now.
            self._stamp = [dataset.dataset_shards.stamp() for dataset in datasets.values()]
            self._headers = wanted
            return self._instance


def _remove(folder: Path, pid: int) -> None:
    if os.getpid() == pid:  # a forked process only looks at the files
        shutil.rmtree(folder, ignore_errors=True)


def _are_in_tables(sides: Sequence[Side], columns: frozenset[str]) -> bool:
    """Return whether a query names columns of joined tables alone, so that no shard is read."""
    wanted = columns - {"index"}
    for part in sides[0].parts:
        given = set()
        for step in part.steps:
            if not isinstance(step, Join):
                return False
            rows = sides[step.side].rows() if step.replace and not step.absent else None
            if rows is not None and (rows < 0).any():
                continue  # samples without a row keep their own values, which may be in shards
            tables = [each.home for each in sides[step.side].parts]
            fields = [
                set(filterfalse(has_headers, t.fields)) if isinstance(t, JoinedTable) else set()
                for t in tables
            ]
            given |= {column_name(step.rename.get(f, f)) for f in set.intersection(*fields)}
        if not wanted <= given:
            return False
    return bool(wanted)


def _without_shards(sides: Sequence[Side]) -> list[StoredSide]:
    """Return sides of which tables alone have columns."""
    return [
        StoredSide(
            [
                _stored(part, {}, {})
                if isinstance(part.home, JoinedTable)
                else StoredPart(len(part.home), part.steps, part.fields, None)
                for part in side.parts
            ],
            side.rows(),
        )
        for side in sides
    ]


def _stored_names(sides: Sequence[Side], names: Collection[str]) -> set[str]:
    """Return names that a query has, and those that their columns had before joins."""
    steps = [step for side in sides for part in side.parts for step in part.steps]
    pairs = [pair for step in steps if isinstance(step, Join) for pair in step.rename.items()]
    for step in steps:
        if isinstance(step, Renamed):
            pairs += [(old, new) for new, fields in step.names.items() for old in fields]
    found, more = set(names), set(names)
    while more:
        more = {column_name(old) for old, new in pairs if column_name(new) in more} - found
        found |= more
    return found


def _stored(part: Part, files: Mapping[int, Any], headers: Mapping[int, Any]) -> StoredPart:
    """Return a part without its dataset, which a table that the dataset keeps must not refer to."""
    home, steps = part.home, part.steps
    if isinstance(home, JoinedTable):
        its_headers = headers.get(id(home), {})
        return StoredPart(
            home.num_rows, steps, part.fields, headers=its_headers, table=home.columns
        )
    its = files[id(home)]
    # Looking for names may ask a server.
    classes = part.classes() if steps or any(CLASS in file.structure for file in its) else {}
    return StoredPart(
        len(home),
        steps,
        part.fields,
        its,
        headers[id(home)],
        list(map(display_url, home.shards.urls)),
        np.asarray(home.shards.nsamples).tolist(),
        classes,
    )


class SqlResult:
    """The rows that a query gave.

    It is a copy of its own in memory: later changes of the dataset do not change it, and it can be
    pickled and used in other processes.

    Args:
        table: A table of pyarrow.
    """

    def __init__(self, table: Any) -> None:
        self._table = table

    @property
    def columns(self) -> list[str]:
        """Names of the columns."""
        return list(self._table.column_names)

    def arrow(self) -> Any:
        """Return a table of pyarrow."""
        return self._table

    def df(self) -> Any:
        """Return a data frame of pandas, which must be installed."""
        return self._table.to_pandas()

    def pl(self) -> Any:
        """Return a data frame of polars, which must be installed.

        Raises:
            ModuleNotFoundError: It is not.
        """
        import polars as pl

        return pl.from_arrow(self._table)

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        """Yield each row as a tuple."""
        for batch in self._table.to_batches():
            yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)

    def lines(self, most: int | None = None) -> list[str]:
        """Return the rows as lines of text, below the names of the columns.

        Args:
            most: Number of rows at most; None for all.
        """
        shown = self._table if most is None else self._table.slice(0, most)
        cells = [list(map(_cell, row)) for row in SqlResult(shown)]
        kinds = [str(field.type) for field in self._table.schema]
        right = [at for at, kind in enumerate(kinds) if kind.startswith(("int", "uint", "double"))]
        lines = table([self.columns, *cells], right)
        if len(shown) < len(self):
            lines.append(f"and {len(self) - len(shown)} more rows")
        return lines

    def __repr__(self) -> str:
        hint = "; .df(), .pl() and .arrow() have all" if len(self) > _MOST_ROWS else ""
        return "\n".join(self.lines(_MOST_ROWS)) + hint


def _cell(value: Any) -> str:
    text = "null" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)
    return text if len(text) <= _MOST_CHARACTERS else f"{text[: _MOST_CHARACTERS - 1]}…"
