"""A whole sidecar verified: what it says of its members and samples must hold together.

One sample is verified when it is read (see `membertable`); this is for what goes through all.
"""

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from wids.tar.sidecar import Sidecar

__all__ = ["find_damage", "rows_ascend", "table_of"]

# What names may take beyond what the sidecar takes: with keys of up to 1 KiB they never come near.
_MAX_NAMES_NBYTES = 64 << 20
_MAX_NAMES_RATIO = 64


def table_of(sidecar: Sidecar) -> NDArray[np.int64]:
    """Return the rows as numbers; shape `(num_samples + 1, 4)`."""
    return np.frombuffer(sidecar.rows, "<u4").reshape(-1, 4).astype(np.int64)


def rows_ascend(sidecar: Sidecar) -> bool:
    """Say whether fields and keys of the samples follow one another; reads the rows only.

    Else a few megabytes of rows could each have the same megabytes of key.
    """
    starts = table_of(sidecar)[:, :2]
    return not (starts[0].any() or (starts[1:] < starts[:-1]).any())


def find_damage(sidecar: Sidecar) -> str | None:
    """Verify the digest, spans, order, rows, names and keys; return what is wrong, None if nothing.

    Reads all of the sidecar, and nothing of the shard.
    """
    # First, as it tells every accident from forgery: what fails below was made to.
    if not sidecar.intact():
        return "the digest does not fit"
    offsets, sizes = np.frombuffer(sidecar.spans, "<i8").reshape(-1, 2).T
    # Subtracted, not added: an offset and a size near 2**63 would come round to a small sum.
    room = sidecar.source.nbytes - offsets
    if ((offsets < 0) | (sizes < 0) | (room < 0) | (sizes > room)).any():
        return "a member lies outside its shard"
    order = np.frombuffer(sidecar.order, "<u4")
    if len(order) and not np.array_equal(np.sort(order), np.arange(sidecar.num_members)):
        return "its order is no permutation"
    if not rows_ascend(sidecar):
        return "its rows do not ascend"
    return _damage_of_names(sidecar, table_of(sidecar))


def _damage_of_names(sidecar: Sidecar, rows: NDArray[np.int64]) -> str | None:
    """Verify that each member has one name, and each sample a key of its own."""
    widths = np.array([names.count(b"/") + 1 for names in sidecar.extension_sets], np.int64)
    set_ids = rows[:-1, 2]
    if (set_ids >= len(widths)).any() or (widths[set_ids] != np.diff(rows[:, 0])).any():
        return "a sample has another number of fields than of extensions"
    num_names = rows[-1, 0] + bytes(sidecar.other_names).count(b"\0")
    if num_names != sidecar.num_members:
        return f"expected names for {sidecar.num_members} members, found {num_names}"
    # A key stands once in the sidecar, and once in the name of each of its fields.
    extension_nbytes = np.array(list(map(len, sidecar.extension_sets)), np.int64)
    nbytes = (np.diff(rows[:, 1]) * widths[set_ids] + extension_nbytes[set_ids]).sum()
    bound = max(_MAX_NAMES_NBYTES, _MAX_NAMES_RATIO * len(sidecar.image or b""))
    if nbytes > bound:
        return f"its names would take {nbytes} bytes, more than {bound}"
    keys = bytes(sidecar.keys)
    if len({keys[start:end] for start, end in pairwise(rows[:, 1].tolist())}) < len(set_ids):
        return "two samples have one key"
    return None
