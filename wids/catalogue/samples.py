"""`SampleTable`: the samples of a sequence as the table `samples`, asked in SQL."""

from __future__ import annotations

import os
import threading
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from wids.base.optional import load
from wids.base.urls import display_url
from wids.catalogue.build import has_headers
from wids.catalogue.conditions import check_condition, check_order, check_query, explained
from wids.catalogue.engine import Instance, keep_table, lock_down
from wids.catalogue.files import define_rows, files_of, merged_structure
from wids.catalogue.places import datasets_of, places
from wids.catalogue.result import SqlResult
from wids.catalogue.structures import quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy.typing as npt

    from wids.catalogue.files import CatalogueFile
    from wids.reading.samplesequence import ShardedSequence

__all__ = ["SampleTable"]

_CLASS = "cls"  # the field whose numbers have names


class SampleTable:
    """The table `samples` of a sequence, with a row for each sample; kept by the sequence.

    The first query builds the files that are missing; later ones use an instance of DuckDB that
    stays open. Many threads may ask at the same time. It refers to no dataset, so that a sequence
    that keeps it is freed at once; each method takes the sequence. A pickled copy begins anew.

    Args:
        files: Returns the files of a dataset and some columns of headers, as `files_of`.
    """

    def __init__(self, files: Callable[..., list[list[CatalogueFile]]] = files_of) -> None:
        self._files = files
        self._headers: list[str] = []  # columns of headers that a query has named
        self._known_headers: set[str] = set()  # those that one could name
        self._stamp: Any = None
        self._instance: Instance | None = None
        self._lock = threading.Lock()
        self._pid = os.getpid()

    def __reduce__(self) -> tuple[Any, ...]:
        return SampleTable, (self._files,)

    def query(self, samples: Any, query: str) -> SqlResult:
        """Return the finished answer to one query, which may be any SELECT.

        Args:
            samples: A dataset, or a selection or concatenation of datasets.
            query: SQL, such as `select cls, count(*) from samples group by cls`.

        Raises:
            ValueError: It is no query, or fails; the message is that of DuckDB.
            WidsError: The catalogue cannot be built.
        """
        return SqlResult(self._run(samples, query, query, check_query(query)))

    def matching(self, samples: Any, condition: str) -> npt.NDArray[np.int64]:
        """Return the indexes of the samples that fulfil a condition, ascending.

        Args:
            samples: As for `query`.
            condition: SQL, such as `json.width >= 900 and cls in (1, 3)`.

        Raises:
            ValueError: It is no condition, or names what no sample has.
            WidsError: The catalogue cannot be built.
        """
        query, names = check_condition(condition)
        return self._indexes(samples, query, condition, names)

    def ordered(self, samples: Any, order: str) -> npt.NDArray[np.int64]:
        """Return the indexes of all samples in an order; equal ones keep theirs, nulls come last.

        Args:
            samples: As for `query`.
            order: SQL as after ORDER BY, such as `json.score desc, key`.

        Raises:
            ValueError: It is no order, or names what no sample has.
            WidsError: The catalogue cannot be built.
        """
        query, names = check_order(order)
        return self._indexes(samples, query, order, names)

    def close(self) -> None:
        """End the instance of DuckDB; the next query opens another."""
        if self._instance is not None:
            self._instance.close()

    def _indexes(
        self, samples: Any, query: str, text: str, names: set[str]
    ) -> npt.NDArray[np.int64]:
        found = self._run(samples, query, text, names)["index"].to_numpy()
        return np.asarray(found, np.int64)

    def _run(self, samples: Any, query: str, text: str, names: set[str]) -> Any:
        duckdb = load("duckdb", "sql")
        cursor = self.opened(samples, names).cursor()
        try:
            return cursor.sql(query).to_arrow_table()
        except duckdb.FatalException as error:
            self._instance = None  # DuckDB has given up the instance; the next query opens another
            raise explained(error, text) from None
        except (duckdb.Error, RuntimeError) as error:
            raise explained(error, text) from None
        finally:
            cursor.close()

    def opened(self, samples: Any, names: set[str]) -> Instance:
        """Return the instance over the present files, with the headers that are named."""
        if self._pid != os.getpid():  # a thread of the other process may have held the lock
            self._lock, self._pid = threading.Lock(), os.getpid()
        with self._lock:
            datasets = datasets_of(samples)
            stamp = [dataset.dataset_shards.stamp() for dataset in datasets]
            wanted = sorted({*self._headers, *(names & self._known_headers)})
            if self._instance is not None and stamp == self._stamp and wanted == self._headers:
                return self._instance
            files = [self._files(dataset, wanted) for dataset in datasets]
            known = {
                name
                for each in files
                for file in each[0]
                for name in file.structure.get("sizes") or ()
                if has_headers(f".{name}")
            }
            if not names & known <= set(wanted):
                wanted = sorted({*wanted, *(names & known)})
                files = [self._files(dataset, wanted) for dataset in datasets]
            sources = [
                _Source.of(dataset, each[0], dict(zip(wanted, each[1:], strict=True)))
                for dataset, each in zip(datasets, files, strict=True)
            ]
            self._instance = Instance(partial(_define, sources, places(samples)))
            # Shards that were fetched meanwhile have a version now.
            self._stamp = [dataset.dataset_shards.stamp() for dataset in datasets]
            self._headers, self._known_headers = wanted, known
            return self._instance


class _Source(NamedTuple):
    """What the table needs of a dataset.

    Attributes:
        samples: The files of its samples.
        headers: The files of each column of headers.
        shards: Location of each shard, for display.
        counts: Number of samples of each shard.
        classes: Name of each class.
    """

    samples: list[CatalogueFile]
    headers: dict[str, list[CatalogueFile]]
    shards: list[str]
    counts: npt.NDArray[np.int64]
    classes: Mapping[int, str]

    @classmethod
    def of(
        cls,
        dataset: ShardedSequence,
        samples: list[CatalogueFile],
        headers: dict[str, list[CatalogueFile]],
    ) -> _Source:
        """Return what is needed of a dataset."""
        # Looking for names may ask a server.
        classes = dataset.class_names if any(_CLASS in file.structure for file in samples) else {}
        shards = list(map(display_url, dataset.shards.urls))
        return cls(samples, headers, shards, np.asarray(dataset.shards.nsamples), classes)


def _define(sources: Sequence[_Source], rows: npt.NDArray[np.int64] | None, con: Any) -> None:
    """Define the view `samples` over the files of some datasets, and lock the connection down."""
    pa = load("pyarrow", "sql")
    whole = merged_structure(file for source in sources for file in source.samples)
    selects, start, number = [], 0, 0
    for at, source in enumerate(sources):
        numbers = np.arange(len(source.shards))
        shards = pa.table(
            {
                "_number": number + numbers,
                "shard": pa.array(source.shards, pa.string()),
                "shard_index": numbers,
            }
        )
        keep_table(con, f"shards {at}", shards)
        if source.samples:
            _define_files(con, f"stored {at}", source, source.samples, start, number, whole)
            columns = ["s._at", "s.key", "n.shard", "n.shard_index"]
            tables = f"{quoted(f'stored {at}')} s JOIN {quoted(f'shards {at}')} n USING (_number)"
            columns += [
                f"s.{quoted(name)}" for name in whole if name not in {"key", "offsets", "sizes"}
            ]
            if whole.get(_CLASS) == "BIGINT" and source.classes:
                names = pa.array(source.classes.values(), pa.string())
                classes = pa.table({"number": pa.array(source.classes, pa.int64()), "name": names})
                keep_table(con, f"classes {at}", classes)
                columns.append("c.name AS cls_name")
                tables += f" LEFT JOIN {quoted(f'classes {at}')} c ON s.cls = c.number"
            for order, (name, files) in enumerate(source.headers.items()):
                kinds = merged_structure(file for each in sources for file in each.headers[name])
                _define_files(con, f"{name} {at}", source, files, start, number, kinds)
                columns.append(f"h{order}.{quoted(name)}")
                tables += f" LEFT JOIN {quoted(f'{name} {at}')} h{order} ON s._at = h{order}._at"
            columns += [f"s.{name}" for name in ("offsets", "sizes") if name in whole]
            selects.append(f"SELECT {', '.join(columns)} FROM {tables}")
        start, number = start + int(source.counts.sum()), number + len(numbers)
    if not selects:
        selects = ["SELECT 0 AS _at, '' AS key, '' AS shard, 0 AS shard_index WHERE false"]
    con.execute(f"CREATE VIEW every AS {' UNION ALL BY NAME '.join(selects)}")
    if rows is None:
        con.execute("CREATE VIEW samples AS SELECT _at AS index, * EXCLUDE (_at) FROM every")
    else:
        keep_table(con, "chosen", pa.table({"index": np.arange(len(rows)), "_at": rows}))
        con.execute(
            "CREATE VIEW samples AS SELECT chosen.index, every.* EXCLUDE (_at) "
            "FROM chosen JOIN every USING (_at)"
        )
    files = [file for source in sources for each in source.headers.values() for file in each]
    files += [file for source in sources for file in source.samples]
    lock_down(con, [file.path for file in files])


def _define_files(
    con: Any,
    name: str,
    source: _Source,
    files: list[CatalogueFile],
    start: int,
    number: int,
    whole: dict[str, Any],
) -> None:
    """Define the rows of files of a dataset, whose first row and first shard have these numbers."""
    numbers = np.array([file.number for file in files], np.int64)
    starts = (np.cumsum(source.counts) - source.counts)[numbers]
    define_rows(con, name, files, (starts + start).tolist(), (numbers + number).tolist(), whole)
