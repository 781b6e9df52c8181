"""Text, classes, JSON, msgpack, CBOR and torch files against their own libraries."""

import json
from importlib import import_module

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wids.codecs.documents import (
    decode_cbor,
    decode_class,
    decode_json,
    decode_msgpack,
    decode_text,
)

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(VALUES)
def test_json_reads_as_the_standard_library_reads_it(value):
    """Values and their types equal those of json.loads, whichever parser is used."""
    document = json.dumps(value)
    assert repr(decode_json(document.encode())) == repr(json.loads(document))


@pytest.mark.parametrize(
    "document",
    [
        b"[NaN, Infinity, -Infinity]",
        b"[18446744073709551615, 18446744073709551616, -9223372036854775809]",
        b"123456789012345678901234567890",
        b"[1e400, -1e400, 1e-400, -0, -0.0, 0.1, 1E5, 9007199254740993]",
        b"0.1234567890123456789012345678901234567890",
        b'{"a": 1, "a": 2}',
        b'"\\ud800 \\u0000 \\ud83d\\ude00"',
        b'\xef\xbb\xbf{"with": "a byte order mark"}',
        '{"in": "UTF-16"}'.encode("utf-16"),
        b" \n[1 ,\t2]\r\n",
    ],
)
def test_json_at_the_edges_reads_as_the_standard_library_reads_it(document):
    """JSON that orjson refuses or reads otherwise gives the value of json.loads."""
    assert repr(decode_json(document)) == repr(json.loads(document))


@pytest.mark.parametrize(
    "document", [b"", b"{", b"[1,]", b"{'a': 1}", b"[1] 2", b'"\xff"', b"01", b'"\n"']
)
def test_what_is_no_json_is_an_error_for_both(document):
    """Text that json.loads refuses is an error with and without orjson."""
    with pytest.raises(ValueError):
        json.loads(document)
    with pytest.raises(ValueError):
        decode_json(document)


def test_json_without_orjson_is_the_same(monkeypatch):
    """Values are equal with and without orjson."""
    monkeypatch.setattr("wids.codecs.documents.load_if_present", lambda name: None)
    assert decode_json(memoryview(b'{"a": [1, 2.5]}')) == {"a": [1, 2.5]}


def test_json_nested_without_end_is_an_error_and_no_crash():
    """A hundred thousand brackets raise an exception and do not crash."""
    with pytest.raises((ValueError, RecursionError)):
        decode_json(b"[" * 100_000)


def test_classes_are_integers():
    """Digits with white space around them are a class number, and nothing else is."""
    for data, number in ((b"7", 7), (b" -3\n", -3), (b"007", 7), (b"0", 0)):
        assert decode_class(memoryview(data)) == number
    for data in (b"", b"cat", b"1.5", b"0x10", b"1 2", b"9" * 5000, b"\xff"):
        with pytest.raises(ValueError):
            decode_class(data)


def test_text_is_utf8():
    """Text keeps line ends and byte order mark; other encodings than UTF-8 are an error."""
    assert decode_text(memoryview("größer\r\n".encode())) == "größer\r\n"
    with pytest.raises(UnicodeDecodeError):
        decode_text("größer".encode("latin-1"))


@given(VALUES.filter(lambda value: "int too big" not in str(value)))
def test_msgpack_and_cbor_read_as_their_libraries_read_them(value):
    """Documents of the libraries decode to the values that the libraries read."""
    cbor2, msgpack = import_module("cbor2"), import_module("msgpack")
    data = cbor2.dumps(value)
    assert repr(decode_cbor(memoryview(data))) == repr(cbor2.loads(data))
    try:
        packed = msgpack.packb(value)
    except OverflowError:  # msgpack ends at 64 bits
        return
    assert repr(decode_msgpack(memoryview(packed))) == repr(msgpack.unpackb(packed))


@pytest.mark.parametrize(
    ("decode", "data"),
    [
        (decode_msgpack, b""),
        (decode_msgpack, b"\xdd\xff\xff\xff\xff"),  # an array of 4 billion items
        (decode_msgpack, b"\xc6\xff\xff\xff\xff"),
        (decode_msgpack, b"\x91" * 100_000),
        (decode_msgpack, b"\x01\x02"),
        (decode_cbor, b""),
        (decode_cbor, b"\x9b\x00\xff\xff\xff\xff\xff\xff\xff"),
        (decode_cbor, b"\x5b\x00\xff\xff\xff\xff\xff\xff\xff"),
        (decode_cbor, b"\x81" * 100_000),
    ],
)
def test_hostile_lengths_and_depths_are_errors(decode, data):
    """False lengths allocate nothing, and deep nesting does not crash."""
    with pytest.raises(Exception, match=r".*") as caught:
        decode(data)
    assert not isinstance(caught.value, (MemoryError, SystemError))
