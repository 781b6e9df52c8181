"""Upper bounds of the memory that the values of a document take, computed before it is parsed.

A byte of JSON, msgpack or CBOR can become an empty container of a hundred bytes. The sizes are
those of 64-bit CPython, rounded up. A malformed document gets a bound too; its parser raises the
error.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from wids.errors import DecodeError

__all__ = ["JSON_COST", "cbor_nbytes", "json_nbytes", "msgpack_nbytes"]

# A value with its slot or entry, without its content; one that may be a dict, a date, an `ExtType`.
_PLAIN, _OTHER = 136, 300
_WIDEST = 4  # bytes that a character may take
# Tags of CBOR whose values can take hours to build: their name, and the size in bytes of documents
# that are safe.
_SLOW_TAGS = {
    29: ("a value that stands for another one", 0),  # nested, a few hundred bytes are 2**30 values
    30: ("a rational number", 1 << 16),
    35: ("a regular expression", 0),
    36: ("a MIME message", 0),
}
# A number whose bytes have a length of four or eight bytes, or come in parts. As the digits of a
# decimal fraction (tag 4) it takes time by the square of its length.
_LONG_NUMBERS, _LONG_HEADS = {2, 3}, {b"\x5a", b"\x5b", b"\x5f"}
_LONG_NUMBER = re.compile(rb"(?:[\xc2\xc3]|[\xd8-\xdb]\0*[\x02\x03])[\x5a\x5b\x5f]")
_RARE_TAGS, _MOST_RARE = {2, 3, 4, 5, 37}, 10_000
_SLOW_TAG = re.compile(rb"(?:\xd8|\xd9\0|\xda\0{3}|\xdb\0{7})[\x1d\x1e\x23\x24]")
_RARE_TAG = re.compile(rb"[\xc2-\xc5]|\xd8\x25|[\xd8-\xdb]\0*[\x02-\x05\x25]")
_ENDLESS = 1 << 62  # values of a container that has an end mark instead of a count

# JSON: a slot and a number, an entry and its key, empty containers. Marks within strings are
# counted too, which only raises the bound.
_JSON_COSTS = {b",": 72, b":": 130, b"[": 80, b"{": 100}
# Largest cost per byte of a document: `{"":0},` and `[],` in JSON, `{1: 1}` of three bytes in
# msgpack, a tag in CBOR.
JSON_COST = 80
_MOST_MSGPACK_COST, _MOST_CBOR_COST = 130, 210


class _Head(NamedTuple):
    """Meaning of the first byte of a value.

    Attributes:
        kind: "plain" (a number or bytes), "text", "ext", "list", "dict", "tag", "endless" or "end".
        width: Number of bytes of the count that follows; 0 if `amount` is the count.
        amount: Size of the content in bytes, number of values of the container, or number of the
            tag.
        more: Number of bytes between the count and the content.
    """

    kind: str
    width: int = 0
    amount: int = 0
    more: int = 0


def json_nbytes(document: bytes | str, max_nbytes: int) -> int:
    """Return a bound of the memory that a JSON document takes as Python values.

    Args:
        document: The text.
        max_nbytes: A bound below this may be a rough one, which is computed from the size alone.

    >>> json_nbytes(b'{"a": [1, 2]}', max_nbytes=0)
    395
    """
    if len(document) * JSON_COST <= max_nbytes:
        return len(document) * JSON_COST
    data = document.encode("utf-8", "surrogatepass") if isinstance(document, str) else document
    counted = sum(cost * data.count(mark) for mark, cost in _JSON_COSTS.items())
    plain = data.isascii() and b"\\u" not in data
    return counted + len(data) * (1 if plain else _WIDEST)


def msgpack_nbytes(data: bytes, max_nbytes: int) -> int:
    """Return a bound of the memory that a msgpack document takes as Python values.

    Args:
        data: The document.
        max_nbytes: A bound below this may be a rough one; above, counting stops.

    >>> msgpack_nbytes(bytes([0x92, 0x80, 0xA1, 0x61]), max_nbytes=200)
    300
    """
    rough = _MOST_MSGPACK_COST * len(data)
    return rough if rough <= max_nbytes else _walked(data, max_nbytes, _MSGPACK)


def cbor_nbytes(data: bytes, max_nbytes: int) -> int:
    """Return a bound of the memory that a CBOR document takes as Python values.

    Args:
        data: The document.
        max_nbytes: A bound below this may be a rough one; above, counting stops.

    Raises:
        DecodeError: Some of its values could take hours to build.

    >>> cbor_nbytes(bytes([0x82, 0xA0, 0x61, 0x61]), max_nbytes=200)
    300
    """
    rough = _MOST_CBOR_COST * len(data)
    slow = (
        _SLOW_TAG.search(data)
        or _LONG_NUMBER.search(data)
        or (len(data) > _MOST_RARE and sum(1 for _ in _RARE_TAG.finditer(data)) > _MOST_RARE)
    )
    if rough <= max_nbytes and not slow:
        return rough
    return _walked(data, max_nbytes, _CBOR)


def _walked(data: bytes, max_nbytes: int, heads: list[_Head]) -> int:
    """Return the sum of the sizes of all values of a document; each begins with a head."""
    total = position = num_rare = 0
    left = 1  # number of values to come
    outer: list[int] = []  # the same for the containers around endless containers
    while left and position < len(data) and total <= max_nbytes:
        head = heads[data[position]]
        start, count = position + 1 + head.width, head.amount
        if head.width:
            count = int.from_bytes(data[position + 1 : start], "big")
        position = start + head.more
        left -= 1
        total += _PLAIN if head.kind in ("plain", "text") else _OTHER
        if head.kind in ("plain", "text", "ext"):
            nbytes = min(count, len(data) - position)
            if total + nbytes > max_nbytes:  # before a copy is made of what will be refused
                return total + nbytes
            wide = head.kind == "text" and not data[position : position + nbytes].isascii()
            # Where a character is wider than those before it, the text is copied.
            total += (_WIDEST + 1) * nbytes if wide else nbytes
            position += count
        elif head.kind == "endless":
            outer.append(left)
            left = _ENDLESS
        elif head.kind == "end" and outer:
            left = outer.pop()
        else:
            if head.kind == "tag":
                num_rare += count in _RARE_TAGS
                _check_tag(count, num_rare, data, position)
                count = 1
            count = min(count, len(data))  # each value has at least one byte
            left += 2 * count if head.kind == "dict" else count
    return total


def _check_tag(tag: int, num_rare: int, data: bytes, position: int) -> None:
    """Raise DecodeError for values of CBOR that may take hours to build or to use as keys.

    Args:
        tag: Number of the tag.
        num_rare: Number of rare tags so far.
        data: The document.
        position: Where the value of the tag begins.
    """
    if tag in _LONG_NUMBERS and data[position : position + 1] in _LONG_HEADS:
        raise DecodeError(
            "cbor: expected numbers of fewer than 65536 bytes, found one that is declared longer, "
            "which can take hours to build; decode such fields by a function of your own "
            "(decoders=)"
        )
    if tag in _SLOW_TAGS and len(data) > _SLOW_TAGS[tag][1]:
        raise DecodeError(
            f"cbor: tag {tag}, {_SLOW_TAGS[tag][0]}, can take hours to use; decode such fields "
            "by a function of your own (decoders=)"
        )
    if num_rare > _MOST_RARE:
        raise DecodeError(
            f"cbor: expected at most {_MOST_RARE} long numbers or UUIDs, found more: as keys they "
            "can share one hash; decode such fields by a function of your own (decoders=)"
        )


def _msgpack_heads() -> list[_Head]:
    """Return the heads of the msgpack specification, by first byte."""
    heads = [_Head("plain")] * 256  # numbers of one byte, None, False, True
    for code in range(16):
        heads[0x80 | code] = _Head("dict", amount=code)
        heads[0x90 | code] = _Head("list", amount=code)
    for code in range(32):
        heads[0xA0 | code] = _Head("text", amount=code)
    for step, width in enumerate((1, 2, 4)):
        heads[0xC4 + step] = _Head("plain", width)
        heads[0xC7 + step] = _Head("ext", width, more=1)  # a byte for the type
        heads[0xD9 + step] = _Head("text", width)
    for step, nbytes in enumerate((4, 8, 1, 2, 4, 8, 1, 2, 4, 8)):
        heads[0xCA + step] = _Head("plain", amount=nbytes)
    for step, nbytes in enumerate((1, 2, 4, 8, 16)):
        heads[0xD4 + step] = _Head("ext", amount=nbytes, more=1)
    for step, width in enumerate((2, 4)):
        heads[0xDC + step] = _Head("list", width)
        heads[0xDE + step] = _Head("dict", width)
    return heads


def _cbor_heads() -> list[_Head]:
    """Return the heads of RFC 8949, by first byte."""
    heads = [_Head("end")] * 256
    kinds = ("plain", "plain", "plain", "text", "list", "dict", "tag", "plain")
    for major, kind in enumerate(kinds):
        counted = major not in (0, 1, 7)  # not numbers; the count of a tag is its number
        for code in range(24):
            heads[major << 5 | code] = _Head(kind, amount=code if counted else 0)
        for step, width in enumerate((1, 2, 4, 8)):
            head = _Head(kind, width) if counted else _Head(kind, amount=width)
            heads[major << 5 | 24 + step] = head
    for major in (2, 3, 4, 5):
        heads[major << 5 | 31] = _Head("endless")
    return heads


_MSGPACK, _CBOR = _msgpack_heads(), _cbor_heads()
