"""Order of the grid: functions from positions to samples, without lists.

    stored    as the samples lie in the shards
    shuffled  one permutation of all samples, drawn from a seed
    shards    an epoch of `DistributedShardSampler`, as one rank sees it
    chunks    an epoch of `DistributedChunkedSampler`, as one rank sees it

No order is stored, so a page of a billion samples costs as much as a page of ten. The orders are
those of the samplers, so the grid shows what training reads.
"""

from __future__ import annotations

import functools
import re
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from wids.browse.scans import joint_progress
from wids.browse.search import ChosenSamples, FilterVisitor, KeyVisitor
from wids.browse.sorting import sort_column, sort_values
from wids.codecs.headers import with_colon
from wids.ordering.order import Chunks, OrderSpec, Share
from wids.ordering.permute import Integers, derive_key, permute
from wids.views.filterlanguage import parse_filter

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from wids.browse.facets import ColumnValues
    from wids.browse.fieldreader import FieldReader
    from wids.browse.neighbours import Neighbours
    from wids.browse.scans import Scan, Scans, Visitor

__all__ = ["ORDERS", "Grid", "Order", "OrderQuery", "Shown", "parse_indexes"]

ORDERS = ("stored", "shuffled", "shards", "chunks")

# Bounds the memory of a request, because every stream needs a table.
_MOST_STREAMS = 4096
_MOST = 2**62


@dataclass(frozen=True)
class Order:
    """Function from positions to indexes.

    Attributes:
        size: Number of positions.
        at: Function from positions in `[0, size)`, int64, to the indexes at these positions.
    """

    size: int
    at: Callable[[Integers], Integers]

    def slice(self, start: int, count: int) -> list[int]:
        """Return the indexes at positions `[start, start + count)`, cut to the number of samples.

        >>> Order(5, lambda positions: positions * 10).slice(3, 10)
        [30, 40]
        """
        first = min(max(start, 0), self.size)
        last = min(first + max(count, 0), self.size)
        # Python integers, because the JSON encoder does not accept those of NumPy.
        indexes: list[int] = self.at(np.arange(first, last, dtype=np.int64)).tolist()
        return indexes

    def none(self) -> Order:
        """Return an order without positions, for what is not known yet."""
        return Order(0, self.at)


@dataclass(frozen=True)
class OrderQuery:
    """Checked parameters of an order.

    Attributes:
        kind: One of `ORDERS`.
        seed: Random seed; any integer.
        epoch: Number of the epoch; any integer.
        rank: Rank whose samples are shown, in `[0, replicas)`.
        replicas: Number of ranks.
        interleave: Number of shards or chunks that are mixed at a time.
        lanes: Number of parts that are read in parallel: the number of nodes for "shards", of ranks
            for "chunks".
        chunksize: Number of samples in a chunk, for "chunks".

    Raises:
        ValueError: A value is out of its range; the message names it.

    >>> OrderQuery.parse({"order": "shards", "rank": "1", "replicas": "4"})
    OrderQuery(kind='shards', seed=0, epoch=0, rank=1, replicas=4, interleave=16, lanes=1, \
chunksize=1000000)
    """

    kind: str = "stored"
    seed: int = 0
    epoch: int = 0
    rank: int = 0
    replicas: int = 1
    interleave: int = 16
    lanes: int = 1
    chunksize: int = 1_000_000

    def __post_init__(self) -> None:
        if self.kind not in ORDERS:
            raise ValueError(f"order: expected one of {', '.join(ORDERS)}, got {self.kind!r}")
        bounds = {
            "seed": (-_MOST, _MOST),
            "epoch": (-_MOST, _MOST),
            "replicas": (1, _MOST),
            "rank": (0, self.replicas - 1),
            "interleave": (1, _MOST_STREAMS),
            "lanes": (1, _MOST_STREAMS),
            "chunksize": (1, _MOST),
        }
        for name, (low, high) in bounds.items():
            value = getattr(self, name)
            if not low <= value <= high:
                upwards = "on" if value < low else f"to {high}"
                raise ValueError(f"{name}: expected a number from {low} {upwards}, got {value}")

    @classmethod
    def parse(cls, query: Mapping[str, str]) -> OrderQuery:
        """Read the parameters of a request; missing ones have the defaults of the samplers.

        Raises:
            ValueError: A value is no number or out of range.
        """
        kind = query.get("order") or "stored"
        numbers = {
            name: _integer(name, query[name])
            for name in ("seed", "epoch", "rank", "replicas", "interleave", "lanes", "chunksize")
            if query.get(name)
        }
        if kind == "chunks":
            # As this sampler does by default, each rank has its own range of chunks.
            numbers.setdefault("lanes", numbers.get("replicas", 1))
            numbers.setdefault("interleave", 1)
        return cls(kind, **numbers)

    def over(self, lengths: Sequence[int] | Integers) -> Order:
        """Order all samples of a dataset.

        Args:
            lengths: Samples in each shard.
        """
        total = int(np.sum(lengths, dtype=np.int64))
        if self.kind in ("stored", "shuffled") or not total:
            return self.within(np.arange(0), total)
        chunked = self.kind == "chunks"
        chunks = (
            Chunks.cut(0, total, self.chunksize)
            if chunked
            else Chunks.cut(0, total, lengths=np.asarray(lengths, np.int64))
        )
        spec = OrderSpec(
            seed=self.seed,
            epoch=self.epoch,
            partition="contiguous" if chunked else "global",
            streams=self.lanes,
            interleave=self.interleave,
        )
        epoch = chunks.epoch(spec)
        share = Share(total, self.rank, self.replicas, self.lanes)
        return Order(share.count, lambda steps: epoch.at(_positions(share, steps)))

    def within(self, chosen: Integers, total: int | None = None) -> Order:
        """Order the samples that a filter or a view chose, as stored or shuffled.

        Args:
            chosen: Their indexes.
            total: Number of samples of the dataset if all are shown; `chosen` is not used then.

        Raises:
            ValueError: The order is that of a sampler, which cannot be filtered.

        >>> OrderQuery().within(np.array([3, 5, 8])).slice(1, 9)
        [5, 8]
        """
        if total is None and self.kind not in ("stored", "shuffled"):
            raise ValueError(
                f"order: a sampler's order is of all samples, so {self.kind!r} goes with no "
                "filter or saved view; choose stored or shuffled"
            )
        size = chosen.size if total is None else total
        key = derive_key(self.seed)

        def at(positions: Integers) -> Integers:
            if self.kind == "shuffled" and positions.size:
                positions = permute(positions, size, key)
            picked: Integers = chosen[positions] if total is None else positions
            return picked

        return Order(size, at)

    def between(self, first: int, stop: int) -> Order:
        """Order the samples with indexes in a range, as stored or shuffled.

        Raises:
            ValueError: As for `within`.

        >>> OrderQuery().between(10, 20).slice(8, 9)
        [18, 19]
        """
        self.within(np.arange(0))  # raises for the order of a sampler
        inner = self.within(np.arange(0), stop - first)
        return Order(inner.size, lambda positions: inner.at(positions) + first)


def _positions(share: Share, steps: Integers) -> Integers:
    """Convert successive steps of one rank to positions of the epoch."""
    if not steps.size:
        return steps
    return share.positions(int(steps[0]), int(steps[-1]) + 1)


def _integer(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{name}: expected a whole number, got {text[:40]!r}") from None


_MOST_ORDERS = 8
_MOST_KEY = 4096
_RUN = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?")
_MOST_FIELDS = 40  # names of fields in the error for an unknown field


class Shown(NamedTuple):
    """An order, and the progress of what it depends on, each None without that.

    Attributes:
        order: The order.
        filtering: Progress of its filter.
        sorting: Progress of what it is sorted by.
        comparing: Progress of the comparison of vectors, while that is not finished.
    """

    order: Order
    filtering: dict[str, Any] | None
    sorting: dict[str, Any] | None = None
    comparing: dict[str, Any] | None = None


def parse_indexes(name: str, text: str, total: int) -> Integers:
    """Read a list of indexes and ranges of a request.

    Args:
        name: Name of the parameter.
        text: Its text.
        total: Number of samples of the dataset.

    Raises:
        ValueError: It is malformed, or names a sample that does not exist.

    >>> parse_indexes("marks", "7,3-5", 10).tolist()
    [3, 4, 5, 7]
    """
    mask = np.zeros(total, np.bool_)
    for run in text.split(","):
        found = _RUN.fullmatch(run)
        first, last = (int(found[1]), int(found[2] or found[1])) if found else (1, 0)
        if not first <= last < total:
            raise ValueError(
                f"{name}: expected indexes below {total}, such as 3,17,20-29, got {run[:40]!r}"
            )
        mask[first : last + 1] = True
    return np.flatnonzero(mask)


class Grid:
    """Cache of the orders that requests ask for.

    Args:
        reader: The dataset.
        scans: Background scans, which run the filters.
        class_names: Names of classes, by number.
        columns: Returns the columns by which samples are sorted, and their values.
        inside: Returns the indexes of the samples inside an outline of a map.
        neighbours: Near-duplicates and outliers.
        chosen: Indexes of the samples that are shown, in their order; None for all.
    """

    def __init__(
        self,
        reader: FieldReader,
        scans: Scans,
        class_names: Mapping[int, str],
        columns: Callable[[], ColumnValues],
        *,
        inside: Callable[[str], Integers],
        neighbours: Neighbours,
        chosen: Integers | None = None,
    ) -> None:
        self._columns = columns
        self._neighbours = neighbours
        self._inside = inside
        self._class_names = class_names
        self._chosen = chosen
        self._reader = reader
        self._scans = scans
        self._orders: OrderedDict[OrderQuery, Order] = OrderedDict()

    def shown(self, query: Mapping[str, str], *, patient: bool = False) -> Shown:
        """Return the order for the parameters of a request.

        Args:
            query: The request.
            patient: Whether to wait long for a comparison of vectors.

        Raises:
            ValueError: A parameter is malformed or out of range, or the filter has read all shards
                and names a field that no sample has.
        """
        wanted = OrderQuery.parse(query)
        shards = self.shards_of(query)
        compared = self._neighbours.asked(query, patient=patient)
        if compared is not None and compared[0] is None:
            return Shown(wanted.within(np.empty(0, np.int64)), None, comparing=compared[1])
        chosen = self._chosen_of(shards, query)
        scans = [self._scan(*each, shards) for each in self._searches(query)]
        if not scans and chosen is not None:
            return self._sorted(query, Shown(wanted.within(chosen), None), chosen)
        if not scans and len(shards) < self._reader.num_shards:
            shown = Shown(wanted.between(*self._bounds(shards)), None)
            return self._sorted(query, shown, np.arange(*self._bounds(shards)))
        if not scans:
            return self._sorted(query, Shown(self._over_all(wanted), None), None)
        # What is found at once is shown at once, without a first answer that is empty.
        for scan in scans:
            scan.join()
        progress = joint_progress(scans)
        visitors: list[Any] = [scan.visitor for scan in scans]
        for visitor in visitors if progress["finished"] and not progress["skipped"] else ():
            if isinstance(visitor, FilterVisitor) and visitor.unknown:
                raise ValueError(
                    f"filter: no sample has a field {visitor.unknown[0]!r:.80}; the first shard "
                    f"has {', '.join(visitor.known[:_MOST_FIELDS])}"
                    f"{with_colon(visitor.unknown[0], visitor.known):.160}"
                )
            if isinstance(visitor, KeyVisitor) and visitor.is_filter and not visitor.found.count:
                raise ValueError(
                    f"q: expected a part of a key, got the filter {visitor.text[:80]!r}, which no "
                    "key contains; type it into the field of the filter (where=)"
                )
        found = functools.reduce(np.intersect1d, [each.found.all() for each in visitors])
        if chosen is not None:
            found = chosen[np.isin(chosen, found)]
        # While a scan runs, its result grows only at the end, so positions keep their samples.
        # A shuffled order would change with each sample found, and so may that of a view.
        unsteady = wanted.kind == "shuffled" or chosen is not None
        if unsteady and not progress["finished"]:
            found = np.empty(0, np.int64)
        filtering = {
            **progress,
            "found": len(found),
            "full": any(each.found.full for each in visitors),
            **_remarks(visitors),
        }
        return self._sorted(query, Shown(wanted.within(found), filtering), found)

    def _sorted(self, query: Mapping[str, str], shown: Shown, chosen: Integers | None) -> Shown:
        """Sort what is shown by the column of `sort`, once its values are read.

        Args:
            query: The request.
            shown: What is shown, in the order of the request.
            chosen: Indexes of these samples; None for all.

        Raises:
            ValueError: There is no such column, or the request has another order, too.
        """
        text = query.get("sort", "")
        if not text:
            return shown
        if OrderQuery.parse(query).kind != "stored":
            raise ValueError("sort: expected no other order beside it; leave out order=")
        values = self._columns()
        column, reverse = sort_column(text, values.columns)
        found, progress = sort_values(self._scans, values, self._reader, column)
        if found is None or not (shown.filtering is None or shown.filtering["finished"]):
            return shown._replace(order=shown.order.none(), sorting=progress)
        rows = found.sorted(chosen, reverse=reverse)
        return shown._replace(order=OrderQuery().within(rows), sorting=progress)

    def shards_of(self, query: Mapping[str, str]) -> range:
        """Return the shards that a request is restricted to: those of `shard`, or all.

        Raises:
            ValueError: There are no such shards.
        """
        count = self._reader.num_shards
        text = query.get("shard", "")
        if not text:
            return range(count)
        found = _RUN.fullmatch(text)
        first, last = (int(found[1]), int(found[2] or found[1])) if found else (1, 0)
        if not 0 <= first <= last < count:
            raise ValueError(f"shard: expected 3 or 3-5, below {count}, got {text[:40]!r}")
        return range(first, last + 1)

    def selectors(self, query: Mapping[str, str]) -> list[Any]:
        """Return what chooses the samples of a request, shard by shard."""
        found = self._chosen_of(range(self._reader.num_shards), query)
        chosen = [] if found is None else [ChosenSamples(self._reader, found)]
        return [*chosen, *(make() for _, make in self._searches(query))]

    def _bounds(self, shards: range) -> tuple[int, int]:
        first = self._reader.first_index(shards.start)
        return first, self._reader.first_index(shards.stop)

    def _chosen_of(self, shards: range, query: Mapping[str, str]) -> Integers | None:
        """Return the indexes to which a request is restricted other than by its searches.

        That is by a view, near-duplicates or outliers, marks, outlines and shards.
        """
        chosen = self._chosen
        singled = self._neighbours.indexes(query)
        if singled is not None:
            chosen = singled if chosen is None else singled[np.isin(singled, chosen)]
        parts = []
        if query.get("marks"):
            parts.append(parse_indexes("marks", query["marks"], len(self._reader)))
        if query.get("inside"):
            parts.append(self._inside(query["inside"]))
        for part in parts:
            chosen = part if chosen is None else chosen[np.isin(chosen, part)]
        if chosen is None or len(shards) == self._reader.num_shards:
            return chosen
        low, high = self._bounds(shards)
        return chosen[(chosen >= low) & (chosen < high)]

    def _searches(self, query: Mapping[str, str]) -> list[tuple[Any, Callable[[], Any]]]:
        """Return the filter and the search by key of a request: what identifies and makes each."""
        found: list[tuple[Any, Callable[[], Any]]] = []
        if where := query.get("where", "").strip():
            condition = parse_filter(where)
            make = functools.partial(
                FilterVisitor, self._reader, condition, self._class_names, self._columns
            )
            found.append((("filter", where), make))
        if text := query.get("q", ""):
            if len(text) > _MOST_KEY:
                raise ValueError(f"q: expected a part of a key, got {len(text)} characters")
            whole = query.get("whole") == "1"
            keys = functools.partial(KeyVisitor, self._reader, text, whole=whole)
            found.append((("keys", text, whole), keys))
        return found

    def _scan(self, key: Any, make: Callable[[], Visitor], shards: range) -> Scan[Any]:
        return self._scans.get((key, shards), make, shards)

    def _over_all(self, wanted: OrderQuery) -> Order:
        order = self._orders.get(wanted)
        if order is None:
            order = wanted.over(self._reader.dataset.shards.nsamples)
            self._orders[wanted] = order
            # An epoch of a million shards has a large table, so only a few orders are cached.
            while len(self._orders) > _MOST_ORDERS:
                self._orders.popitem(last=False)
        return order


def _remarks(visitors: Sequence[Any]) -> dict[str, Any]:
    """Return what a filter says beside its results."""
    of_filter = next((each for each in visitors if isinstance(each, FilterVisitor)), None)
    if of_filter is None:
        return {"unknown_fields": [], "fields": [], "hint": ""}
    return {
        "unknown_fields": of_filter.unknown,
        "fields": of_filter.known[:_MOST_FIELDS],
        "hint": of_filter.hint,
    }
