"""What a sidecar remembers of its shard's content: a digest of a few of its headers.

Reading all headers tells whether an index still fits, and takes as long as making it anew. A few of
them tell nearly as much in microseconds: a shard that was packed again from other samples, in
another order or with another number of them differs in most of its headers.
"""

import hashlib
import os
from collections.abc import Iterable

from wids.tar.tarheader import BLOCK_SIZE

__all__ = ["FINGERPRINT_NBYTES", "fingerprint", "probed_rows"]

# No two versions of a shard agree in 128 bits by chance. It need not withstand forgers: whoever can
# put a sidecar there can put a shard there.
FINGERPRINT_NBYTES = 16
# A read each, and a seek each where the shard is cold. A shard that was packed anew differs in all
# of them; what was changed in one place is left to the dates of the two files.
_NUM_PROBES = 8


def probed_rows(num_members: int) -> list[int]:
    """Choose the members whose headers are digested: the first, the last, and some between.

    >>> probed_rows(0), probed_rows(2), probed_rows(71)
    ([], [0, 1], [0, 10, 20, 30, 40, 50, 60, 70])
    """
    last = num_members - 1
    places = range(_NUM_PROBES) if num_members else ()
    return sorted({last * place // (_NUM_PROBES - 1) for place in places})


def fingerprint(file_descriptor: int, nbytes: int, end: int, offsets: Iterable[int]) -> bytes:
    """Digest blocks of a shard: its first one, the headers before some members, and its end.

    Args:
        file_descriptor: The shard.
        nbytes: Its size.
        end: Where the zero blocks stand that end the archive. They are looked at because writers
            pad archives: a member that was appended need not make the file any longer.
        offsets: Where the data of the probed members begins.

    Returns:
        16 bytes.

    Raises:
        ValueError: One of the blocks would lie outside the shard.
        OSError: It cannot be read.
    """
    digest = hashlib.blake2b(digest_size=FINGERPRINT_NBYTES)
    # Block 0 too: extended headers may stand before the first member's own. Sorted, so that a disk
    # goes one way.
    for position in sorted({0, end, *(offset - BLOCK_SIZE for offset in offsets)}):
        if not 0 <= position <= nbytes - BLOCK_SIZE:
            raise ValueError(f"byte {position} begins no header of a shard of {nbytes} bytes")
        # By position: whoever else reads through this descriptor keeps its place.
        digest.update(os.pread(file_descriptor, BLOCK_SIZE, position))
    return digest.digest()
