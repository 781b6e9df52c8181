"""`SampleTable`: the samples of a sequence as the table `samples`, asked in SQL."""

from __future__ import annotations

import os
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from wids.base.optional import load
from wids.base.urls import display_url
from wids.catalogue.build import column_name, has_headers
from wids.catalogue.conditions import check_condition, check_order, check_query, explained
from wids.catalogue.engine import Instance
from wids.catalogue.files import files_of
from wids.catalogue.origins import JoinedTable
from wids.catalogue.result import SqlResult
from wids.catalogue.sides import CLASS, StoredPart, StoredSide, define_samples

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy.typing as npt

    from wids.catalogue.files import CatalogueFile
    from wids.catalogue.origins import Part, Side

__all__ = ["SampleTable"]


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
        """End the instance of DuckDB; the next query opens another."""
        if self._instance is not None:
            self._instance.close()

    def _indexes(
        self, sides: Sequence[Side], query: str, text: str, names: set[str]
    ) -> npt.NDArray[np.int64]:
        found = self._run(sides, query, text, names)["index"].to_numpy()
        return np.asarray(found, np.int64)

    def _run(self, sides: Sequence[Side], query: str, text: str, names: set[str]) -> Any:
        duckdb = load("duckdb", "sql")
        cursor = self.opened(sides, names).cursor()
        try:
            return cursor.sql(query).to_arrow_table()
        except duckdb.FatalException as error:
            self._instance = None  # DuckDB has given up the instance; the next query opens another
            raise explained(error, text) from None
        except (duckdb.Error, RuntimeError) as error:
            raise explained(error, text) from None
        finally:
            cursor.close()

    def opened(self, sides: Sequence[Side], names: set[str]) -> Instance:
        """Return the instance over the present files, with the headers that are named.

        Args:
            sides: As for `query`.
            names: Names in the query, in lower case.
        """
        if self._pid != os.getpid():  # a thread of the other process may have held the lock
            self._lock, self._pid = threading.Lock(), os.getpid()
        with self._lock:
            datasets = {
                id(part.home): part.home
                for side in sides
                for part in side.parts
                if not isinstance(part.home, JoinedTable)
            }
            stamp = [dataset.dataset_shards.stamp() for dataset in datasets.values()]
            wanted = self._headers | (_stored_names(sides, names) & self._known_headers)
            if self._instance is not None and stamp == self._stamp and wanted == self._headers:
                return self._instance
            files = {which: self._files(dataset)[0] for which, dataset in datasets.items()}
            known = {
                which: {
                    name
                    for file in each
                    for name in file.structure.get("sizes") or ()
                    if has_headers(f".{name}")
                }
                for which, each in files.items()
            }
            self._known_headers = set().union(*known.values())
            wanted = self._headers | (_stored_names(sides, names) & self._known_headers)
            headers: dict[int, dict[str, list[CatalogueFile]]] = {}
            for which, dataset in datasets.items():
                its = sorted(wanted & known[which])
                found = self._files(dataset, its)[1:] if its else []
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


def _stored_names(sides: Sequence[Side], names: set[str]) -> set[str]:
    """Return names that a query has, and those that their columns had before joins."""
    renames = [join.rename for side in sides for part in side.parts for join in part.joins]
    found, more = set(names), set(names)
    while more:
        more = {
            column_name(old)
            for rename in renames
            for old, new in rename.items()
            if column_name(new) in more
        } - found
        found |= more
    return found


def _stored(part: Part, files: Mapping[int, Any], headers: Mapping[int, Any]) -> StoredPart:
    """Return a part without its dataset, which a table that the dataset keeps must not refer to."""
    home, joins = part.home, part.joins
    if isinstance(home, JoinedTable):
        return StoredPart(home.num_rows, joins, part.fields, table=home.columns)
    its = files[id(home)]
    # Looking for names may ask a server.
    classes = part.classes() if joins or any(CLASS in file.structure for file in its) else {}
    return StoredPart(
        len(home),
        joins,
        part.fields,
        its,
        headers[id(home)],
        list(map(display_url, home.shards.urls)),
        np.asarray(home.shards.nsamples).tolist(),
        classes,
    )
