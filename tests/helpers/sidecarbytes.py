"""Sidecars with changed bytes and recomputed checks, as an attacker would write them."""

import hashlib
import struct
from zlib import crc32

from wids.tar.tarindex import TarIndex

HEADER_NBYTES = 128
FINGERPRINT = slice(88, 104)
CHECK = slice(120, 124)


def sealed(image):
    """Return a changed sidecar whose header check fits."""
    image = bytearray(image)
    members, samples, sets, skipped = struct.unpack_from("<4Q", image, 40)
    start = HEADER_NBYTES + 16 * members + 16 * (samples + 1)
    start += 4 * members if image[12] & 8 else 0
    image[CHECK] = bytes(4)
    tables = bytes(image[start : start + sets + skipped])
    image[CHECK] = struct.pack("<I", crc32(tables, crc32(bytes(image[:HEADER_NBYTES]))))
    return bytes(image)


def fingerprinted(image, shard):
    """Return a changed sidecar with the fingerprint that the shard's bytes give, where any do."""
    image = bytearray(image)
    (end,) = struct.unpack_from("<Q", image, 24)
    (members,) = struct.unpack_from("<Q", image, 40)
    positions = {0, end}
    for place in range(8 if 0 < members < len(image) else 0):
        row = HEADER_NBYTES + 16 * ((members - 1) * place // 7)
        positions.add(int.from_bytes(image[row : row + 8], "little", signed=True) - 512)
    if all(0 <= position <= len(shard) - 512 for position in positions):
        blocks = b"".join(shard[position : position + 512] for position in sorted(positions))
        image[FINGERPRINT] = hashlib.blake2b(blocks, digest_size=16).digest()
    return bytes(image)


def sidecar_of(path):
    """Return the sidecar of the shard at a path."""
    sidecar = path.with_name("made.widx")
    TarIndex.from_tar(path).save(sidecar)
    image = sidecar.read_bytes()
    sidecar.unlink()
    return image
