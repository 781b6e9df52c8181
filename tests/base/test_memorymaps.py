"""`page_ranges` joins parts of a map to page-aligned ranges."""

import itertools
import mmap

from hypothesis import given
from hypothesis import strategies as st

from wids.base.files import page_ranges

PAGE = mmap.PAGESIZE
SPANS = st.lists(st.tuples(st.integers(0, 64 * PAGE), st.integers(0, 8 * PAGE)), max_size=20)


@given(spans=SPANS, gap=st.integers(0, 8 * PAGE))
def test_every_part_lies_in_one_range(spans: list[tuple[int, int]], gap: int) -> None:
    """Ranges begin at pages, end with their last part, and ascend with wide gaps between."""
    ranges = list(page_ranges(spans, max_gap_nbytes=gap))
    for offset, size in spans:
        assert any(start <= offset and offset + size <= stop for start, stop in ranges)
    ends = {offset + size for offset, size in spans}
    assert all(start % PAGE == 0 and stop in ends for start, stop in ranges)
    assert all(stop + gap < start for (_, stop), (start, _) in itertools.pairwise(ranges))
    assert ranges == list(page_ranges(reversed(spans), max_gap_nbytes=gap))
