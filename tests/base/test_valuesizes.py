"""Bounds of the memory of documents, against what the parsers allocate."""

import json
import struct
import tracemalloc
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import cbor2
import msgpack
import pytest

from wids.base.valuesizes import cbor_nbytes, json_nbytes, msgpack_nbytes
from wids.errors import DecodeError

COUNT = 5000
# Values that take much for their length, as msgpack, CBOR and JSON can hold them.
VALUES: dict[str, Callable[[int], Any]] = {
    "empty lists": lambda _: [],
    "empty dicts": lambda _: {},
    "lists of one": lambda _: [1],
    "nested lists": lambda _: [[[[]]]],
    "dicts of one": lambda _: {"a": 1},
    "dicts of six": lambda _: {str(each): each for each in range(6)},
    "dicts of forty": lambda _: {str(each): None for each in range(40)},
    "other keys": lambda number: {f"key {number}": number},
    "texts": lambda number: f"{number:04}",
    "wide texts": lambda number: f"{number} \U0001f600 and more",
    "empty texts": lambda _: "",
    "long texts": lambda number: f"{number}" * 20,
    "numbers": lambda number: number + 1000,
    "small numbers": lambda number: number % 7 - 3,
    "long numbers": lambda number: number + 2**60,
    "fractions": lambda number: number / 7,
    "truth": lambda number: number % 2 == 0,
    "nothing": lambda _: None,
}
BINARY: dict[str, Callable[[int], Any]] = {
    "bytes": lambda number: struct.pack("<H", number),
    "empty bytes": lambda _: b"",
    "numbers as keys": lambda number: {number + 1000: number},
}
FORMATS: dict[str, tuple[Callable[[Any], bytes], Callable[[bytes], Any], Any]] = {
    "json": (lambda value: json.dumps(value, separators=(",", ":")).encode(), json.loads, None),
    "msgpack": (
        msgpack.packb,
        lambda data: msgpack.unpackb(data, strict_map_key=False),
        msgpack_nbytes,
    ),
    "cbor": (cbor2.dumps, cbor2.loads, cbor_nbytes),
}


def allocated(parse: Callable[[bytes], Any], data: bytes) -> int:
    """Return the bytes that a parser's values take."""
    tracemalloc.start()
    value = parse(data)
    nbytes = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    del value
    return nbytes


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("name", VALUES | BINARY)
def test_no_value_takes_more_than_counted(kind: str, name: str) -> None:
    """The bound is not below what Python allocates."""
    if kind == "json" and name in BINARY:
        return
    pack, parse, _ = FORMATS[kind]
    make = (VALUES | BINARY)[name]
    data = pack([make(number) for number in range(COUNT)])
    taken = allocated(parse, data)
    if kind == "json":
        counted = json_nbytes(data, 0)
    else:
        # Below the rough bound, so that the values are counted, and above what they take.
        counted = FORMATS[kind][2](data, 40 * len(data) + 4 * taken)
    assert 0.95 * taken < counted + 2000  # what the module itself allocates once


def test_maps_of_unknown_length_are_counted() -> None:
    """CBOR's containers without a count end by a mark, after which the outer one goes on."""
    data = b"\x9f" + b"\xbf\x61a\x01\xff" * COUNT + b"\x9f\xff" * COUNT + b"\xff"
    assert allocated(cbor2.loads, data) < cbor_nbytes(data, 200 * len(data)) < 10**7


@pytest.mark.parametrize("count", [msgpack_nbytes, cbor_nbytes])
def test_lengths_that_lie_end_the_count(count: Callable[[bytes, int], int]) -> None:
    """A head that promises more than follows has a bound of the order of the data."""
    for code in range(256):
        data = bytes([code]) + b"\x7f\xff\xff\xff\xff\xff\xff\xff" * 2
        assert 0 <= count(data, 1000) <= 10_000


def test_json_counts_wide_letters_that_are_written_as_escapes() -> None:
    """One letter beyond ASCII makes each letter of its text four bytes."""
    data = json.dumps("\U0001f600" + "a" * 100_000).encode()
    assert json_nbytes(data, 0) > 400_000


def test_cbor_that_takes_hours_is_refused_and_small_fractions_are_not() -> None:
    """The greatest common divisor of long numbers takes hours, that of short ones nothing."""
    cbor_nbytes(cbor2.dumps(Fraction(3, 4)), 10_000)
    long = b"\xc2\x5a" + struct.pack(">I", 10**5) + b"\xff" * 10**5
    with pytest.raises(DecodeError, match="tag 30, a rational number"):
        cbor_nbytes(b"\xd8\x1e\x82" + long + long, 1 << 30)
    with pytest.raises(DecodeError, match="fewer than 65536 bytes"):
        cbor_nbytes(b"\xc4\x82\x01" + long, 1 << 30)  # digits of a decimal fraction
    cbor_nbytes(cbor2.dumps(Decimal(10**1000) / 3), 10_000)
    # The same bytes within a byte string are no tag.
    text = cbor2.dumps(b"\xd8\x1e\xd8\x23" * 50_000)
    assert cbor_nbytes(text, 1 << 30) < 10**6
