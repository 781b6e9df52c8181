"""The window of shards to fetch ahead: in order, bounded and never stuck."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from wids.ordering.lookahead import Visit
from wids.reading.fetchahead import Window


def window_of(
    visits: Sequence[Visit], *, room: int | None, nbytes: int = 10, most: int = 100
) -> Window:
    """Make a window over visits in blocks of one."""
    return Window(iter([[visit] for visit in visits]), lambda _: nbytes, room, most)


def taken(window: Window, step: int) -> list[int]:
    """Take all shards for which there is room."""
    return list(iter(lambda: window.take(step), None))


ONE_BY_ONE = [Visit(shard, 10 * shard, 10 * shard + 9) for shard in range(8)]


def test_a_shard_too_large_for_the_room_is_passed_over() -> None:
    """A shard larger than the room is skipped."""
    sizes = {0: 10, 1: 1000, 2: 10}
    window = Window(iter([ONE_BY_ONE[:3]]), sizes.__getitem__, 40, 100)
    assert (taken(window, 0), taken(window, 15), taken(window, 20)) == ([0], [], [2])


def test_a_shard_needed_again_keeps_its_room() -> None:
    """A shard that is needed again soon stays in the window."""
    visits = [Visit(0, 0, 9), Visit(1, 5, 14), Visit(0, 12, 30), Visit(2, 31, 40)]
    window = window_of(visits, room=40)
    assert taken(window, 0) == [0, 1, 2]
    assert list(window) == [0, 1, 2]
    taken(window, 20)
    assert list(window) == [0, 2]


@given(
    sizes=st.lists(st.integers(1, 30), min_size=1, max_size=12),
    room=st.integers(1, 100),
    strides=st.lists(st.integers(0, 15), max_size=30),
)
def test_the_room_is_never_passed(sizes: list[int], room: int, strides: list[int]) -> None:
    """The room is never exceeded, and all shards that fit are taken."""
    visits = [Visit(shard, 10 * shard, 10 * shard + 9) for shard in range(len(sizes))]
    window = Window(iter([visits]), sizes.__getitem__, room, most=100)
    step, came = 0, []
    for stride in [*strides, *[1] * 10 * len(sizes)]:
        came += taken(window, step)
        assert sum(sizes[shard] for shard in window) <= room
        step += stride
    assert came == sorted(set(came))
    if not strides:
        assert came == [shard for shard, size in enumerate(sizes) if size <= room]
