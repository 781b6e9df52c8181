"""The whole samples at the beginning of a tar of which only a part is there."""

import os

from wids.errors import ShardFormatError
from wids.tar.grouping import KeyRule, split_name
from wids.tar.tarheader import BLOCK_SIZE
from wids.tar.tarscan import HeaderWalk, opened_tar

__all__ = ["keep_whole_samples"]

_END_OF_ARCHIVE = bytes(2 * BLOCK_SIZE)


def keep_whole_samples(path: str | os.PathLike[str], key_rule: KeyRule = "first_dot") -> int:
    """Make a readable tar of the first bytes of one: cut off its last sample, and end the archive.

    The last sample may lack members that follow in the rest of the tar.

    Args:
        path: The first bytes of a tar whose samples lie together; changed in place.
        key_rule: Dot of a name between key and extension.

    Returns:
        Number of samples that are left.

    Raises:
        ShardFormatError: It does not begin as a tar.
        OSError: The file cannot be read or written.
    """
    num_samples, end = 0, 0
    with opened_tar(path) as source:
        walk = HeaderWalk(source, concatenated=False)
        key: bytes | None = None
        begin, position = 0, walk.step(0)
        while position is not None:
            if not walk.pending:
                found = split_name(walk.last_name, key_rule) if walk.num_members else ""
                if isinstance(found, tuple) and found[0] != key:
                    num_samples, end = num_samples + (key is not None), begin
                    key = found[0]
                begin = position
            try:
                position = walk.step(position)
            except ShardFormatError:  # the part ends here
                break
        else:
            num_samples, end = num_samples + (key is not None), begin
    with open(path, "r+b") as file:  # noqa: PTH123 (any path)
        file.truncate(end)
        file.seek(end)
        file.write(_END_OF_ARCHIVE)
    return num_samples
