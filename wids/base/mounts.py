"""What kind of file system a file lies on, as far as Linux tells."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from wids.base.system import file_system_of

if TYPE_CHECKING:
    import os

__all__ = ["is_of_network", "on_network"]

# Those of FUSE are in a network, or slow to map in any case, but for the ones of local disks.
_OF_NETWORKS = frozenset(
    {"9p", "afs", "beegfs", "ceph", "cifs", "coda", "fuse", "gfs2", "glusterfs", "gpfs", "lustre"}
    | {"ncpfs", "nfs", "nfs4", "ocfs2", "orangefs", "panfs", "pvfs2", "smb3", "smbfs", "virtiofs"}
    | {"wekafs"}
)
_LOCAL_FUSE = frozenset({"fuse.exfat", "fuse.ext2", "fuse.ntfs", "fuse.ntfs-3g", "fuse.squashfuse"})


def on_network(path: str | os.PathLike[str]) -> bool:
    """Return whether a file lies on a network file system; False where that is not known.

    >>> on_network("/no/such/file")
    False
    """
    try:
        return is_of_network(file_system_of(Path(path).stat().st_dev))
    except OSError:
        return False


def is_of_network(kind: str) -> bool:
    """Return whether a kind of file system, as the kernel names it, is one of networks.

    >>> [is_of_network(kind) for kind in ("nfs4", "fuse.sshfs", "ext4", "overlay", "")]
    [True, True, False, False, False]
    """
    return kind.partition(".")[0] in _OF_NETWORKS and kind not in _LOCAL_FUSE
