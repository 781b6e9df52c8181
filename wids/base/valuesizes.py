"""Upper bounds of the memory that the values of a document take, computed before it is parsed.

A byte of JSON, msgpack or CBOR can become an empty container of a hundred bytes. The sizes are
those of 64-bit CPython, rounded up. A malformed document gets a bound too; its parser raises the
error.
"""

from __future__ import annotations

import re

from wids.errors import DecodeError

__all__ = ["JSON_COST", "cbor_nbytes", "json_nbytes", "msgpack_nbytes"]

# A value with its slot or entry, without its content; one that may be a dict, a date, an `ExtType`.
_PLAIN, _OTHER = 136, 300
# First bytes of msgpack: texts and what takes `_OTHER`; how many bytes tell the length of the
# content; how many other bytes follow (numbers, extensions with their type, counts of containers).
_TEXTS = frozenset({*range(0xA0, 0xC0), 0xD9, 0xDA, 0xDB})
_OTHERS = frozenset(
    {*range(0x80, 0xA0), *range(0xC7, 0xCA), *range(0xD4, 0xD9), *range(0xDC, 0xE0)}
)
_LENGTHS = dict(
    zip((0xC4, 0xC5, 0xC6, 0xC7, 0xC8, 0xC9, 0xD9, 0xDA, 0xDB), 3 * (1, 2, 4), strict=True)
)
_SIZES = {
    **dict(zip(range(0xCA, 0xD4), (4, 8, 1, 2, 4, 8, 1, 2, 4, 8), strict=True)),
    **dict(zip(range(0xD4, 0xD9), (2, 3, 5, 9, 17), strict=True)),
    **dict.fromkeys(range(0xC7, 0xCA), 1),
    **dict(zip(range(0xDC, 0xE0), (2, 4, 2, 4), strict=True)),
}
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

# JSON: a slot and a number, an entry and its key, empty containers. Marks within strings are
# counted too, which only raises the bound.
_JSON_COSTS = {b",": 72, b":": 130, b"[": 80, b"{": 100}
# Largest cost per byte of a document: `{"":0},` and `[],` in JSON, `{1: 1}` of three bytes in
# msgpack, a tag in CBOR.
JSON_COST = 80
_MOST_MSGPACK_COST, _MOST_CBOR_COST = 130, 210


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
    if rough <= max_nbytes:
        return rough
    total = position = 0
    while position < len(data) and total <= max_nbytes:
        head = data[position]
        start = position + 1 + _LENGTHS.get(head, 0)
        nbytes = int.from_bytes(data[position + 1 : start], "big")
        if 0xA0 <= head < 0xC0:  # a text whose length is in its first byte
            nbytes = head & 31
        total += _OTHER if head in _OTHERS else _PLAIN
        if nbytes:
            is_text = head in _TEXTS
            total += _content_nbytes(data, start, nbytes, max_nbytes - total, is_text=is_text)
        position = start + nbytes + _SIZES.get(head, 0)
    return total


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
    total = position = num_rare = 0
    while position < len(data) and total <= max_nbytes:
        major, count = divmod(data[position], 32)
        width = {24: 1, 25: 2, 26: 4, 27: 8}.get(count, 0)
        # Of 28 and more, 31 stands for parts until an end mark, and the others for nothing.
        has_count, start = count < 28, position + 1 + width
        if width:
            count = int.from_bytes(data[position + 1 : start], "big")
        position = start
        total += _OTHER if major in (4, 5, 6) else _PLAIN
        if major in (2, 3) and has_count:  # bytes and texts
            total += _content_nbytes(data, start, count, max_nbytes - total, is_text=major == 3)
            position += count
        elif major == 6 and has_count:
            num_rare += count in _RARE_TAGS
            _check_tag(count, num_rare, data, position)
    return total


def _content_nbytes(data: bytes, start: int, nbytes: int, most: int, *, is_text: bool) -> int:
    """Return a bound of the memory of the content of bytes or a text, beside their object."""
    nbytes = min(nbytes, len(data) - start)
    if nbytes > most or not is_text:  # no copy is made of what will be refused
        return nbytes
    # Where a character is wider than those before it, the text is copied.
    return nbytes if data[start : start + nbytes].isascii() else (_WIDEST + 1) * nbytes


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
