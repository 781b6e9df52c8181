"""`Line`: the number of connections that pay, on lines and servers whose limits are known."""

import pytest

from wids.fetching.line import Line


def simulate(line: Line, each: float, in_all: float, seconds: float, opening: float = 0.0) -> None:
    """Transfer for a while over as many connections as the line allows.

    Args:
        line: What decides.
        each: Most bytes a second of one connection.
        in_all: Most bytes a second of all connections.
        seconds: How long.
        opening: How long a connection waits for its first byte.
    """
    for tick in range(int(seconds / 0.05)):
        width = min(line.width, 64)
        for number in range(width):
            line.add(int(0.05 * min(each, in_all / width)), 0.05, width)
            if opening and (tick + 3 * number) % 20 == 0:  # a request a second
                line.opened(opening, width)
        line.judge(0.1, fast_nbytes_per_second=100e6)


@pytest.mark.parametrize(
    ("each", "in_all", "least", "most"),
    [
        pytest.param(1e6, 1e9, 32, 128, id="slow connections on a fast line"),
        pytest.param(10e6, 10e6, 1, 2, id="one connection has the whole line"),
        pytest.param(10e6, 40e6, 4, 8, id="four have the whole line"),
        pytest.param(200e6, 1e9, 1, 1, id="one is fast enough"),
    ],
)
@pytest.mark.parametrize("opening", [0.0, 0.2])
def test_as_many_connections_as_pay(
    each: float, in_all: float, least: int, most: int, opening: float
) -> None:
    """The width grows while the bytes do, and no further, also where responses begin late."""
    line = Line()
    assert line.width == 1
    simulate(line, each, in_all, 30.0, opening)
    assert least <= line.width <= most


def test_a_line_that_became_faster_is_noticed() -> None:
    """Where a second connection paid nothing once, it is tried again."""
    line = Line()
    simulate(line, 1e6, 1e6, 3.0)
    assert line.width <= 2
    simulate(line, 1e6, 1e9, 60.0)
    assert line.width >= 8


def test_connections_that_are_needed_anyhow_count() -> None:
    """Eight readers with a connection each begin from their number, not from one."""
    line = Line()
    line.add(1000, 0.1, in_use=8)
    assert line.width == 8


def test_fewer_connections_than_are_judged_say_nothing() -> None:
    """At the end of a file, when few connections are left, the width stays."""
    line = Line()
    simulate(line, 1e6, 1e9, 5.0)
    width = line.width
    for _ in range(100):
        line.add(50_000_000, 1.0, in_use=1)
        line.judge(0.1, fast_nbytes_per_second=100e6)
    assert line.width == width
