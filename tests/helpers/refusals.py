"""Checks that a wrong argument is refused by its name."""

from collections.abc import Callable

import pytest

__all__ = ["refuses"]


def refuses(call: Callable[[], object], expected: type[Exception], *words: str) -> None:
    """Fail unless a call raises exactly this type with one message that has all the words."""
    with pytest.raises(expected) as caught:
        call()
    assert type(caught.value) is expected
    assert len(caught.value.args) == 1
    message = str(caught.value)
    assert [word for word in words if word not in message] == [], message
