"""Parsing of one tar header: checksums, numbers, names, PAX records."""

import pytest
from helpers.tarbytes import header, pax
from hypothesis import given
from hypothesis import strategies as st

from wids.tar.tarheader import (
    check_numbers,
    parse_number,
    parse_pax,
    parse_pax_size,
)


@pytest.mark.parametrize(
    "field", [b"8", b"-1", b"+1", b"0o1", b"1_0", b"1 2", b"\xff" * 12, b"\x81\0"]
)
def test_what_is_no_number(field):
    """Signs, Python's own spellings and negative binary numbers are refused."""
    with pytest.raises(ValueError, match="expected"):
        parse_number(field)


@pytest.mark.parametrize("place", [100, 108, 116, 136, 329, 337])
def test_fields_that_are_no_numbers_are_named(place):
    """Every numeric field must be a number; a negative time or owner is allowed."""
    block = bytearray(header(b"a", 0))
    block[place : place + 3] = b"dos"
    with pytest.raises(ValueError, match="header field '"):
        check_numbers(bytes(block))
    block[place : place + 8] = b"\xff" * 8
    check_numbers(bytes(block))


keys = st.text(st.characters(exclude_characters="=\n\0", exclude_categories=["Cs"]), min_size=1)


@given(st.dictionaries(keys, st.text(st.characters(exclude_categories=["Cs"]))))
def test_pax_records_round_trip(records):
    """Records are read back, including values with newlines and equals signs."""
    records = {
        key.encode(): value.encode()
        for key, value in records.items()
        if key not in ("path", "size", "linkpath")
    }
    body = pax(records)[512:].rstrip(b"\0")
    stated = parse_number(pax(records)[124:136])
    assert parse_pax(body.ljust(stated, b"\0")) == records


@given(st.binary(max_size=60))
def test_any_pax_body_is_read_or_refused(body):
    """Any bytes give records or a ValueError."""
    try:
        records = parse_pax(body)
    except ValueError:
        return
    assert sum(map(len, records)) <= len(body)


@pytest.mark.parametrize(
    "body",
    [
        b"5 a=",
        b"6 a=b",
        b"6 =bb\n",
        b"5 path=\n",
        b"07path=a\n",
        b"11 path=a\0\n",
        b"8 path=\n",
        b"0 a=b\n",
    ],
)
def test_malformed_pax_records(body):
    """Lengths that do not fit, missing keys, and empty or cut values are refused."""
    with pytest.raises(ValueError, match="PAX"):
        parse_pax(body)


@pytest.mark.parametrize("value", [b"", b"-1", b"+1", b"1.0", b"1e3", b"0x1", b"9" * 21, b" 1"])
def test_odd_pax_sizes(value):
    """A PAX size consists of at most 20 decimal digits."""
    with pytest.raises(ValueError, match="decimal digits"):
        parse_pax_size(value)
