"""Checks that a wrong argument is refused by its name."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

__all__ = ["Wrong", "refuses", "refuses_each"]

# By argument: values of a wrong type, and wrong values.
Wrong = dict[str, tuple[list[Any], list[Any]]]


def refuses(call: Callable[[], object], expected: type[Exception], *words: str) -> None:
    """Fail unless a call raises exactly this type with one message that has all the words."""
    with pytest.raises(expected) as caught:
        call()
    assert type(caught.value) is expected
    assert len(caught.value.args) == 1
    message = str(caught.value)
    assert [word for word in words if word not in message] == [], message


def refuses_each(call: Callable[..., object], wrong: Wrong) -> None:
    """Fail unless a call refuses each wrong value of each argument by the argument's name."""
    for name, kinds in wrong.items():
        for values, expected in zip(kinds, (TypeError, ValueError), strict=True):
            for value in values:
                refuses(partial(call, **{name: value}), expected, name)
