"""`WaitLog` records waits of many threads and counts overlapping time once."""

from concurrent.futures import ThreadPoolExecutor

from hypothesis import given
from hypothesis import strategies as st

from wids.reading.waits import WaitLog, covered_seconds

SPANS = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20)), max_size=12)


@given(SPANS, st.integers(0, 60))
def test_time_covered_is_counted_once(spans: list[tuple[int, int]], since: int) -> None:
    """Overlapping spans are counted once, from the given time on."""
    pairs = [(began, began + length) for began, length in spans]
    seconds = {second for began, ended in pairs for second in range(began, ended)}
    expected = sum(second >= since for second in seconds)
    assert covered_seconds(pairs, since) == expected


def test_notes_of_many_threads_are_all_there() -> None:
    """No wait of four concurrent threads is lost."""
    waits = WaitLog()

    def note_many(number: int) -> None:
        for second in range(200):
            began = 1000.0 * number + 2 * second
            waits.note(began, began + 1)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(note_many, range(4)))
    assert waits.seconds(since=0.0) == 800


def test_what_takes_no_time_is_no_wait() -> None:
    """Very short waits are not recorded."""
    waits = WaitLog()
    waits.note(5.0, 5.0005)
    assert waits.seconds(0.0) == 0.0


def test_forgotten_waits_count_no_more() -> None:
    """Only waits that ended before the time are forgotten."""
    waits = WaitLog()
    waits.note(1.0, 2.0)
    waits.note(3.0, 5.0)
    waits.forget(before=4.0)
    assert waits.seconds(0.0) == 2.0
