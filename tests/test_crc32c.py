"""CRC-32C: the test vectors of its standard, and a library's answers."""

import google_crc32c
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wids.importing import crc32c as module
from wids.importing.crc32c import crc32c, crc32c_here

VECTORS = [
    (bytes(32), 0x8A9136AA),
    (b"\xff" * 32, 0x62A8AB43),
    (bytes(range(32)), 0x46DD794E),
    (bytes(range(31, -1, -1)), 0x113FDB5C),
    (b"", 0),
]


@pytest.mark.parametrize(("data", "expected"), VECTORS)
def test_the_vectors_of_the_standard_hold(data: bytes, expected: int) -> None:
    """RFC 3720 lists them."""
    assert crc32c_here(data) == crc32c(data) == expected


@settings(deadline=None)
@given(st.binary(max_size=300), st.integers(1, 40))
def test_any_data_has_the_crc_that_a_library_computes(data: bytes, times: int) -> None:
    """Short data goes byte by byte, long data through lanes; both agree with a library."""
    assert crc32c_here(data * times) == google_crc32c.value(data * times)


def test_without_a_library_the_own_code_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing library is no error."""
    monkeypatch.setattr(module, "load_if_present", lambda name: None)
    assert crc32c(b"123456789") == 0xE3069283
