"""Turns dealt to parts in proportion: exact quotas, even shares at every moment."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wids.ordering.deal import Deal

QUOTAS = st.lists(st.sampled_from([0, 0, 1, 1, 2, 3, 10, 97, 400]), min_size=1, max_size=40)
FIRST = np.zeros(1, np.int64)


@given(QUOTAS)
@settings(deadline=None, max_examples=150)
def test_each_part_gets_its_quota_in_order(quotas):
    """Every part gets its quota of turns, numbered from 0."""
    deal = Deal(np.array([quotas], np.int64))
    parts, numbers = deal.find(np.arange(sum(quotas)), FIRST)
    for part, quota in enumerate(quotas):
        assert numbers[parts == part].tolist() == list(range(quota))


@given(QUOTAS)
@settings(deadline=None, max_examples=150)
def test_every_part_has_its_share_at_every_moment(quotas):
    """After any turns a part differs from its share by at most one turn per level."""
    total = sum(quotas)
    parts, _ = Deal(np.array([quotas], np.int64)).find(np.arange(total), FIRST)
    counts = np.cumsum(parts[:, None] == np.arange(len(quotas)), axis=0)
    shares = np.arange(1, total + 1)[:, None] * np.array(quotas) / max(1, total)
    assert float(np.abs(counts - shares).max(initial=0)) <= math.ceil(math.log2(len(quotas))) + 1


@given(st.lists(st.lists(st.integers(0, 30), min_size=5, max_size=5), min_size=1, max_size=4))
@settings(deadline=None)
def test_deals_side_by_side_are_those_alone(quotas):
    """Several deals computed at once equal single ones."""
    together = Deal(np.array(quotas, np.int64))
    for number, row in enumerate(quotas):
        turns = np.arange(sum(row))
        alone = Deal(np.array([row], np.int64)).find(turns, FIRST)
        found = together.find(turns, np.full(turns.size, number))
        assert [answer.tolist() for answer in found] == [answer.tolist() for answer in alone]


@pytest.mark.parametrize(
    "quotas", [[2**49, 1], [2**49 - 1, 2**49 + 1], [10**12, 3, 10**6], [2**46 - 1] * 7 + [5]]
)
@pytest.mark.parametrize("where", [0, 0.37, 1])
def test_huge_quotas_are_exact(quotas, where):
    """The turns of huge quotas are numbered without gaps up to the quota."""
    total, count = sum(quotas), 20_000
    start = int(where * (total - count))
    deal = Deal(np.array([quotas], np.int64))
    parts, numbers = deal.find(np.arange(start, start + count), FIRST)
    for part, quota in enumerate(quotas):
        mine = numbers[parts == part]
        assert (np.diff(mine) == 1).all()
        assert mine.size == 0 or where > 0 or mine[0] == 0
        assert mine.size == 0 or where < 1 or mine[-1] == quota - 1
