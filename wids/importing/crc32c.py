"""CRC-32C (Castagnoli), which TFRecord files carry: by a library where one is installed, else here.

A byte-wise table in Python makes some 5 MB/s. So the data is laid out as many lanes of 64 bytes,
one behind the other, and NumPy takes the same byte of all lanes at once; then neighbours are
joined, pair by pair. That uses that a CRC is linear: the CRC of `a + b` is the CRC of `a`, carried
on over as many zeros as `b` has bytes, xor the CRC of `b`.

Source:
    RFC 3720, section 12.1 and appendix B.4 (the polynomial and test vectors).
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from wids.base.optional import load_if_present

__all__ = ["crc32c"]

_POLYNOMIAL = 0x82F63B78  # bit-reversed
_LANE_NBYTES = 64
_SMALL = 2 * _LANE_NBYTES  # below, setting up the lanes costs more than they save


def crc32c(data: bytes) -> int:
    """Compute the CRC-32C of data.

    >>> hex(crc32c(b"123456789"))
    '0xe3069283'
    """
    for name in ("google_crc32c", "crc32c"):
        if (library := load_if_present(name)) is not None:
            compute = library.value if name == "google_crc32c" else library.crc32c
            return int(compute(bytes(data)))
    return crc32c_here(data)


def crc32c_here(data: bytes) -> int:
    """Do as `crc32c`, with nothing but NumPy.

    >>> hex(crc32c_here(bytes(32))), crc32c_here(bytes(3200)) == crc32c(bytes(3200))
    ('0x8a9136aa', True)
    """
    if len(data) < _SMALL:
        crc = 0xFFFFFFFF
        table = _table().tolist()
        for byte in data:
            crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
        return crc ^ 0xFFFFFFFF
    # To begin with ones is to begin with zeros and the first four bytes inverted; and zeros in
    # front change nothing then, so that the lanes may be as many as fit.
    num_lanes = 1 << (-(-len(data) // _LANE_NBYTES) - 1).bit_length()
    padded = np.zeros(num_lanes * _LANE_NBYTES, np.uint8)
    start = len(padded) - len(data)
    padded[start:] = np.frombuffer(data, np.uint8)
    padded[start : start + 4] ^= 0xFF
    table = _table()
    crcs = np.zeros(num_lanes, np.uint32)
    for column in padded.reshape(num_lanes, _LANE_NBYTES).T:
        crcs = table[(crcs ^ column) & 0xFF] ^ (crcs >> np.uint32(8))
    nbytes = _LANE_NBYTES
    while len(crcs) > 1:
        crcs = _carried(crcs[::2], nbytes) ^ crcs[1::2]
        nbytes *= 2
    return int(crcs[0]) ^ 0xFFFFFFFF


@cache
def _table() -> Any:
    """Return the CRC of each byte; uint32, shape `(256,)`."""
    crcs = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        crcs = (crcs >> np.uint32(1)) ^ np.where(crcs & 1, np.uint32(_POLYNOMIAL), np.uint32(0))
    return crcs


def _carried(crcs: Any, nbytes: int) -> Any:
    """Carry CRCs on over so many zeros."""
    columns = _columns(nbytes)
    carried = np.zeros_like(crcs)
    for bit in range(32):
        carried ^= np.where((crcs >> np.uint32(bit)) & 1, columns[bit], np.uint32(0))
    return carried


@cache
def _columns(nbytes: int) -> Any:
    """Return what becomes of each single bit over so many zeros, a power of two; shape `(32,)`."""
    bits = np.uint32(1) << np.arange(32, dtype=np.uint32)
    if nbytes == 1:
        return _table()[bits & 0xFF] ^ (bits >> np.uint32(8))
    half = _columns(nbytes // 2)
    carried = np.zeros_like(bits)
    for bit in range(32):
        carried ^= np.where((half >> np.uint32(bit)) & 1, half[bit], np.uint32(0))
    return carried
