"""Checks of arguments: each returns a plain value, or raises an error that names the argument."""

import difflib
import operator
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = [
    "check_callable",
    "check_choice",
    "check_extension",
    "check_flag",
    "check_integer",
    "check_mapping",
    "check_number",
    "check_numbers",
    "check_path",
    "check_sized",
    "check_text",
    "checked_position",
    "checked_positions",
    "each_position",
    "plain_index",
    "refuse_unknown",
    "to_list",
]


def check_integer(
    name: str, value: Any, least: int | None = None, most: int | None = None, *, unless: str = ""
) -> int:
    """Return an integer of any library as a plain one.

    Args:
        name: The argument, for the message.
        value: Its value.
        least: The least that is allowed; None for no bound.
        most: The greatest that is allowed; None for no bound.
        unless: What else the argument may be, for the message.

    Raises:
        TypeError: It is no integer.
        ValueError: It is out of its range.

    >>> check_integer("lanes", 4, least=1)
    4
    """
    other = f", or {unless};" if unless else ","
    # In Python a bool is an int, but here it is an argument at the wrong place.
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        bound = "" if least is None else f" of at least {least}"
        raise TypeError(
            f"{name} must be an integer{bound}{other} got {value!r:.80}; convert it with int()"
        )
    try:
        number = operator.index(value)
    except TypeError:  # such as an array of several
        raise TypeError(f"{name} must be an integer, got {value!r:.80}; give one number") from None
    if least is not None and number < least:
        raise ValueError(f"{name} must be at least {least}{other} got {number}")
    if most is not None and number > most:
        raise ValueError(f"{name} must be at most {most}{other} got {number}")
    return number


def check_number(name: str, value: Any, least: float | None = None) -> float:
    """Return a number of any library as a plain one, after checking that it is >= `least`.

    Raises:
        TypeError: It is no number.
        ValueError: It is not finite, or too small.

    >>> check_number("rate", 0.5, least=0)
    0.5
    """
    plain = value.item() if type(value).__module__ == "numpy" and hasattr(value, "item") else value
    if isinstance(plain, bool) or not isinstance(plain, Real):
        raise TypeError(f"{name} must be a number, got {value!r:.80}; convert it with float()")
    number = float(plain)
    if not -float("inf") < number < float("inf") or (least is not None and number < least):
        bound = "" if least is None else f" of at least {least}"
        raise ValueError(f"{name} must be a finite number{bound}, got {value!r:.80}")
    return number


def check_numbers(
    name: str, values: Any, count: int, advice: str, most: float = float("inf")
) -> npt.NDArray[np.float64]:
    """Return a number for each sample as float64, after checking that they are finite and >= 0.

    Args:
        name: The argument, for the message.
        values: Its value.
        count: Number of samples.
        advice: What to do with a sample whose number is out of range, for the message.
        most: The greatest that is allowed.

    Raises:
        ValueError: There is not a number for each sample, or one is out of range.

    >>> check_numbers("cost", [1, 2], 2, "leave it out")
    array([1., 2.])
    """
    array = np.asarray(values)
    if array.shape != (count,) or array.dtype.kind not in "biuf":
        raise ValueError(
            f"{name} must be a number for each of {count} samples of the dataset, got an array of "
            f"{array.dtype} with the shape {array.shape}; pass a column of the dataset that the "
            "sampler draws from"
        )
    (wrong,) = np.nonzero(~((array >= 0) & (array <= most) & np.isfinite(array)))
    if wrong.size:
        bound = "" if most == float("inf") else f" and at most {most}"
        raise ValueError(
            f"{name} must be finite, at least 0{bound}; sample {wrong[0]} has {array[wrong[0]]}: "
            f"{advice}"
        )
    return array.astype(np.float64)


def check_flag(name: str, value: Any) -> bool:
    """Return a flag as a plain bool: True, False, 1 and 0, of any library.

    Raises:
        TypeError: It is something else, such as the text "no", which Python takes for true.

    >>> check_flag("shuffle", 0)
    False
    """
    plain = value.item() if type(value).__module__ == "numpy" and hasattr(value, "item") else value
    if isinstance(plain, int) and plain in (0, 1):
        return bool(plain)
    raise TypeError(f"{name} must be True or False, got {value!r:.80}; give one of them")


def check_mapping(name: str, value: Any, what: str) -> Mapping[Any, Any]:
    """Return a mapping unchanged; `what` describes the expected one in the message.

    Raises:
        TypeError: It is none.

    >>> check_mapping("state_dict", {"n": 1}, "what state_dict() returned")
    {'n': 1}
    """
    if not isinstance(value, Mapping):
        raise TypeError(f"{name} must be {what}, a dict; got {value!r:.80}")
    return value


def check_sized(name: str, value: Any, what: str) -> int:
    """Return the length of an argument; `what` describes the expected value in the message.

    Raises:
        TypeError: It has none, or is a text, whose length counts characters.

    >>> check_sized("dataset", range(3), "a dataset")
    3
    """
    if isinstance(value, (str, bytes)):
        raise TypeError(f"{name} must be {what}, got the text {value!r:.80}")
    try:
        return len(value)
    except TypeError:
        raise TypeError(f"{name} must be {what}, which has a length; got {value!r:.80}") from None


def check_choice(name: str, value: Any, known: Sequence[str]) -> str:
    """Return a text that is one of the allowed ones; else raise ValueError.

    >>> check_choice("missing", "drop", ("error", "drop"))
    'drop'
    """
    for each in known:
        if isinstance(value, str) and value == each:
            return each
    *others, last = (f'"{each}"' for each in known)
    raise ValueError(f"{name}: expected {', '.join(others)} or {last}, got {value!r:.80}")


def check_callable(name: str, value: Any, what: str = "a function") -> Callable[..., Any]:
    """Return a callable unchanged; else raise TypeError.

    >>> check_callable("post", print) is print
    True
    """
    if not callable(value):
        raise TypeError(f"{name} must be {what}, got {value!r:.80}")
    function: Callable[..., Any] = value
    return function


def check_text(name: str, value: Any, what: str = "a text") -> str:
    """Return a str; else raise TypeError.

    >>> check_text("key", "0001")
    '0001'
    """
    if not isinstance(value, str):
        raise TypeError(f"{name} must be {what}, got {value!r:.80}")
    return value


def check_extension(name: str, value: Any) -> str:
    """Return the extension of a field, which begins with a dot.

    Raises:
        TypeError: It is no text.
        ValueError: It has no dot.

    >>> check_extension("extension", ".cls")
    '.cls'
    """
    if not check_text(name, value, "a text such as '.cls'").startswith("."):
        raise ValueError(f"{name}: an extension starts with a dot, got {value!r}")
    return str(value)


def check_path(name: str, value: Any) -> str:
    """Return a path or URL, given as `str` or `Path`, as a str; else raise TypeError.

    >>> check_path("spec", "train.json")
    'train.json'
    """
    try:
        return check_text(name, os.fspath(value), "a path")
    except TypeError:
        raise TypeError(f"{name} must be a path, a str or a Path; got {value!r:.80}") from None


def refuse_unknown(owner: str, unknown: Iterable[str], known: Collection[str]) -> None:
    """Raise TypeError for arguments by names that a function does not have.

    Args:
        owner: What was called.
        unknown: The names; none is right.
        known: The names of its arguments.

    >>> refuse_unknown("open", ["feilds"], ["fields", "keep"])
    Traceback (most recent call last):
    TypeError: open has no argument 'feilds'; did you mean 'fields'? It has fields, keep
    """
    for name in sorted(unknown):
        near = difflib.get_close_matches(name, known, 1)
        guess = f"; did you mean {near[0]!r}? It has" if near else "; it has"
        raise TypeError(f"{owner} has no argument {name!r}{guess} {', '.join(known)}")


def to_list(name: str, value: Any, what: str) -> list[Any]:
    """Return the elements of an iterable; `what` describes them in the message.

    Raises:
        TypeError: It is no iterable, or is a text.

    >>> to_list("fields", (".jpg",), "extensions")
    ['.jpg']
    """
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        raise TypeError(f"{name} must be {what}, in a list; got {value!r:.80}")
    return list(value)


def plain_index(index: Any) -> int:
    """Return an integer of any library as a plain one; a truth value is none.

    Raises:
        TypeError: It is none.

    >>> plain_index(np.int32(7))
    7
    """
    if isinstance(index, bool):  # a single one, where a mask was meant
        raise TypeError(f"expected the index of a sample, got {index!r}")
    return operator.index(index)


def checked_position(index: int, total: int) -> int:
    """Return an index into `total` samples counted from the start.

    Raises:
        IndexError: It lies outside `[-total, total)`.

    >>> checked_position(-1, 5)
    4
    """
    position = index + total if index < 0 else index
    if not 0 <= position < total:
        raise IndexError(f"index {index} is out of range for a dataset of {total} samples")
    return position


def checked_positions(
    indexes: Sequence[int] | npt.NDArray[np.int64], total: int
) -> npt.NDArray[np.int64]:
    """Return several indexes into `total` samples counted from the start.

    Raises:
        IndexError: One of them lies outside `[-total, total)`.
        TypeError: They are no integers.

    >>> checked_positions([-1, 0], 5)
    array([4, 0])
    """
    array = np.asarray(indexes)
    if array.ndim != 1 or array.dtype.kind != "i":
        # An empty list has no type, and a list may have integers of any type.
        return np.array(each_position(indexes, total), np.int64)
    outside = (array < -total) | (array >= total)
    if outside.any():
        checked_position(int(array[outside][0]), total)
    return np.where(array < 0, array + total, array).astype(np.int64, copy=False)


def each_position(indexes: Iterable[int], total: int) -> list[int]:
    """Return few indexes of any type counted from the start, as plain integers.

    Raises:
        IndexError: One of them lies outside `[-total, total)`.
        TypeError: They are no integers.
    """
    # A list of plain integers in range, as most batches are, takes half of the time this way.
    plain = isinstance(indexes, list) and set(map(type, indexes)) == {int}
    if plain and min(indexes) >= 0 and max(indexes) < total:
        return list(indexes)
    try:
        return [checked_position(plain_index(index), total) for index in indexes]
    except TypeError:
        raise TypeError(
            f"indexes must be integers, the indexes of samples, in a list; got {indexes!r:.80}"
        ) from None
