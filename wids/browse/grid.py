"""What the grid shows at which position: an order, over all samples or over those of a filter."""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from wids.browse.conditions import parse_filter
from wids.browse.filters import FilterVisitor
from wids.browse.orders import Order, OrderQuery
from wids.browse.scans import Scan, Scans
from wids.browse.source import Source

__all__ = ["Grid", "Shown"]

_MOST_ORDERS = 8


class Shown(NamedTuple):
    """An order, and how far the filter is that chooses what it orders; None without a filter."""

    order: Order
    filtering: dict[str, Any] | None


class Grid:
    """Finds the order that a request asks for, and keeps those asked for last.

    Args:
        source: The dataset.
        scans: Where filters run.
    """

    def __init__(self, source: Source, scans: Scans) -> None:
        self._source = source
        self._scans = scans
        self._orders: OrderedDict[OrderQuery, Order] = OrderedDict()

    def shown(self, query: Mapping[str, str]) -> Shown:
        """Return what the parameters of a request ask for.

        Raises:
            ValueError: One of them is malformed or out of its range.
        """
        wanted = OrderQuery.parse(query)
        text = query.get("where", "").strip()
        if not text:
            return Shown(self._over_all(wanted), None)
        scan, visitor = self._filter(text)
        progress = scan.progress()
        found = visitor.indexes()
        # While the filter runs its result only grows at the end, so that positions stay what they
        # are; a shuffled one would be another with each sample found.
        if wanted.kind == "shuffled" and not scan.finished:
            found = np.empty(0, np.int64)
        return Shown(
            wanted.within(found), {**progress, "found": visitor.count, "full": visitor.full}
        )

    def _over_all(self, wanted: OrderQuery) -> Order:
        order = self._orders.get(wanted)
        if order is None:
            order = wanted.over(self._source.dataset.shards.nsamples)
            self._orders[wanted] = order
            # An epoch of a million shards is a table of them; a few of those are enough.
            while len(self._orders) > _MOST_ORDERS:
                self._orders.popitem(last=False)
        return order

    def _filter(self, text: str) -> tuple[Scan, FilterVisitor]:
        conditions = parse_filter(text)
        scan = self._scans.get(
            conditions,
            lambda: FilterVisitor(self._source, conditions),
            range(self._source.num_shards),
        )
        visitor = scan.visitor
        if not isinstance(visitor, FilterVisitor):
            raise TypeError(f"expected the scan of a filter, found {visitor!r}")
        return scan, visitor
