"""Order of the grid: functions from positions to samples, without lists.

    stored    as the samples lie in the shards
    shuffled  one permutation of all samples, drawn from a seed
    shards    an epoch of `DistributedShardSampler`, as one rank sees it
    chunks    an epoch of `DistributedChunkedSampler`, as one rank sees it

No order is stored, so a page of a billion samples costs as much as a page of ten. The orders are
those of the samplers, so the grid shows what training reads.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from wids.browse.columns import PARAMETERS, number_of
from wids.browse.maps import inside
from wids.browse.neighbours import singled_out
from wids.ordering.order import Chunks, OrderSpec, Share
from wids.ordering.permute import Integers, derive_key, permute

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from wids.browse.catalogueclient import CatalogueClient
    from wids.browse.fieldreader import FieldReader
    from wids.browse.neighbours import Singled
    from wids.browse.scans import Scans

__all__ = ["ORDERS", "Grid", "Order", "OrderQuery", "Shown", "parse_indexes"]

ORDERS = ("stored", "shuffled", "shards", "chunks")

# Bounds the memory of a request, because every stream needs a table.
_MOST_STREAMS = 4096
_MOST = 2**62
_MOST_ORDERS = 8
_MOST_KEY = 4096
_MOST_ROWS = 20_000_000  # of an order that is written out, 8 bytes each
_RUN = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?")
_POSITION = re.compile(r"\bposition\b", re.IGNORECASE)


class Order(NamedTuple):
    """Function from positions to indexes.

    Attributes:
        size: Number of positions.
        at: Function from the first position and the one after the last, which lie in `[0, size]`,
            to the indexes at the positions between.
        is_whole: Whether it is known to have all samples, each once.
    """

    size: int
    at: Callable[[int, int], Integers]
    is_whole: bool = False

    def slice(self, start: int, count: int) -> list[int]:
        """Return the indexes at positions `[start, start + count)`, cut to the number of samples.

        >>> Order(5, lambda first, stop: 10 * np.arange(first, stop)).slice(3, 10)
        [30, 40]
        """
        first = min(max(start, 0), self.size)
        last = min(first + max(count, 0), self.size)
        # Python integers, because the JSON encoder does not accept those of NumPy.
        indexes: list[int] = self.at(first, last).tolist()
        return indexes


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

    @property
    def is_sampled(self) -> bool:
        """Whether it is that of a sampler, which may leave samples out or repeat some."""
        return self.kind in ("shards", "chunks")

    @classmethod
    def parse(cls, query: Mapping[str, str]) -> OrderQuery:
        """Read the parameters of a request; missing ones have the defaults of the samplers.

        Raises:
            ValueError: A value is no number or out of range.
        """
        kind = query.get("order") or "stored"
        numbers = {
            name: number_of(query, name)
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
        if not self.is_sampled or not total:
            return self.between(0, total)._replace(is_whole=True)
        chunked = self.kind == "chunks"
        cut = {"chunksize": self.chunksize} if chunked else {"lengths": np.asarray(lengths)}
        spec = OrderSpec(
            seed=self.seed,
            epoch=self.epoch,
            partition="contiguous" if chunked else "global",
            streams=self.lanes,
            interleave=self.interleave,
        )
        epoch = Chunks.cut(0, total, **cut).epoch(spec)
        share = Share(total, self.rank, self.replicas, self.lanes)
        return Order(share.count, lambda first, stop: epoch.at(share.positions(first, stop)))

    def within(self, chosen: Integers) -> Order:
        """Order the samples that a filter or a view chose, as stored or shuffled.

        >>> OrderQuery().within(np.array([3, 5, 8])).slice(1, 9)
        [5, 8]
        """
        places = self.between(0, chosen.size)
        return Order(chosen.size, lambda first, stop: chosen[places.at(first, stop)])

    def between(self, low: int, high: int) -> Order:
        """Order the samples with indexes in a range, as stored or shuffled.

        >>> OrderQuery().between(10, 20).slice(8, 9)
        [18, 19]
        """
        count = high - low
        if self.kind != "shuffled":
            return Order(count, lambda first, stop: np.arange(low + first, low + stop))
        key = derive_key(self.seed)
        return Order(count, lambda first, stop: low + permute(np.arange(first, stop), count, key))


class Shown(NamedTuple):
    """An order, and how it came about.

    Attributes:
        order: The order.
        filtering: What its conditions found, None without any; or the progress of what is read.
        singled: Near-duplicates or outliers that it is made of; None without.
    """

    order: Order
    filtering: dict[str, Any] | None = None
    singled: Singled | None = None


def _run(text: str) -> tuple[int, int]:
    """Return the first and last number of a text such as 3 or 3-5; the first is greater if none."""
    found = _RUN.fullmatch(text)
    return (int(found[1]), int(found[2] or found[1])) if found else (1, 0)


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
        first, last = _run(run)
        if not first <= last < total:
            raise ValueError(
                f"{name}: expected indexes below {total}, such as 3,17,20-29, got {run[:40]!r}"
            )
        mask[first : last + 1] = True
    return np.flatnonzero(mask)


def _question_of(query: Mapping[str, str]) -> dict[str, Any]:
    """Return what a request asks of the catalogue: conditions, values of columns, and an order.

    >>> _question_of({"where": "txt is null", "cls": "cat,dog", "at": "60"})
    {'where': 'txt is null', 'picks': [('cls', 'cat,dog')]}
    """
    names = ("where", "q", "missing", "broken", "sort")
    found: dict[str, Any] = {name: text for name in names if (text := query.get(name, "").strip())}
    if len(found.get("q", "")) > _MOST_KEY:
        raise ValueError(f"q: expected a part of a key, got {len(found['q'])} characters")
    picks = [(name, text) for name, text in query.items() if name not in PARAMETERS and text]
    return {**found, **({"picks": picks} if picks else {})}


def _both(chosen: Integers | None, part: Integers) -> Integers:
    """Return the chosen samples that are also in a part of all; the part where none are chosen."""
    return part if chosen is None else chosen[np.isin(chosen, part)]


class Grid:
    """Cache of the orders that requests ask for.

    Args:
        reader: The dataset.
        catalogue: What finds the samples that fulfil conditions.
        scans: What reads vectors for maps, near-duplicates and outliers.
        chosen: Indexes of the samples that are shown, in their order; None for all.
    """

    def __init__(
        self,
        reader: FieldReader,
        catalogue: CatalogueClient,
        scans: Scans,
        chosen: Integers | None = None,
    ) -> None:
        self._reader = reader
        self._catalogue = catalogue
        self._scans = scans
        self._chosen = chosen
        # An epoch of a million shards has a large table, so only a few orders are cached.
        self._over_all: Callable[[OrderQuery], Order] = lru_cache(_MOST_ORDERS)(
            lambda wanted: wanted.over(reader.dataset.shards.nsamples)
        )

    def shown(self, query: Mapping[str, str], *, patient: bool = False) -> Shown:
        """Return the order for the parameters of a request.

        Args:
            query: The request.
            patient: Whether to wait long for a comparison of vectors.

        Raises:
            ValueError: A parameter is malformed or out of range, or a condition is wrong.
            NotReadyError: The vectors or the catalogue are still read.
            CatalogueError: The catalogue cannot be built.
        """
        wanted = OrderQuery.parse(query)
        shards = self.shards_of(query)
        singled = singled_out(self._scans, query, patient=patient)
        chosen = None if singled is None else singled.indexes
        if self._chosen is not None:
            chosen = _both(chosen, self._chosen)
        if query.get("marks"):
            chosen = _both(chosen, parse_indexes("marks", query["marks"], len(self._reader)))
        if query.get("inside"):
            chosen = _both(chosen, inside(self._scans, query["inside"]))
        order = self._ordered(wanted, chosen, shards)
        asked = _question_of(query)
        if not asked:
            return Shown(order, None, singled)
        sort, picked = asked.get("sort", ""), [name for name, _ in asked.get("picks", ())]
        rows = self.asked_of(order, asked.get("where", ""), sort, *picked)
        told, found = self._catalogue.ask("found", rows, **asked)
        # Rows are found in their order; of all samples, the order is still to be made.
        order = (wanted if rows is None and not sort else OrderQuery()).within(found)
        filtering = {**self._catalogue.progress(), **told, "found": order.size, "finished": True}
        return Shown(order, filtering, singled)

    def asked_of(self, order: Order, *texts: str) -> Integers | None:
        """Return the samples that a question is about; None for all, if their order is no matter.

        Args:
            order: Their order.
            texts: What is asked in SQL, which may name their `position`.
        """
        if order.is_whole and not any(map(_POSITION.search, texts)):
            return None
        return self.rows(order)

    def rows(self, order: Order) -> Integers:
        """Return all indexes of an order.

        Raises:
            ValueError: There are too many.
        """
        if order.size > _MOST_ROWS:
            raise ValueError(
                f"order: this needs all {order.size:,} samples of it, and at most {_MOST_ROWS:,} "
                "can be taken; choose fewer by a condition or shard="
            )
        return order.at(0, order.size)

    def _ordered(self, wanted: OrderQuery, chosen: Integers | None, shards: range) -> Order:
        """Return the order of the chosen samples in some shards."""
        if chosen is None and len(shards) == self._reader.num_shards:
            return self._over_all(wanted)
        if wanted.is_sampled and self._chosen is not None:
            raise ValueError(
                f"order: a sampler's order is of all samples, so {wanted.kind!r} goes with no "
                "saved view; choose stored or shuffled"
            )
        low, high = (self._reader.first_index(each) for each in (shards.start, shards.stop))
        if wanted.is_sampled:
            rows = self.rows(self._over_all(wanted))
            chosen = rows if chosen is None else _both(rows, chosen)
            wanted = OrderQuery()
        elif chosen is None:
            return wanted.between(low, high)
        return wanted.within(chosen[(chosen >= low) & (chosen < high)])

    def shards_of(self, query: Mapping[str, str]) -> range:
        """Return the shards that a request is restricted to: those of `shard`, or all.

        Raises:
            ValueError: There are no such shards.
        """
        count = self._reader.num_shards
        text = query.get("shard", "")
        if not text:
            return range(count)
        first, last = _run(text)
        if not first <= last or first >= count:
            raise ValueError(f"shard: expected 3 or 3-5, below {count}, got {text[:40]!r}")
        return range(first, min(last + 1, count))
