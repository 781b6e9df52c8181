"""Which file systems are those of networks."""

import shutil
import subprocess
from pathlib import Path

import pytest

from wids.base.mounts import is_of_network
from wids.base.system import file_system_of

FINDMNT = shutil.which("findmnt")


@pytest.mark.skipif(FINDMNT is None, reason="findmnt is not installed")
@pytest.mark.parametrize("path", ["/", "/proc", "/dev", "/sys", "/tmp"])
def test_the_kind_is_that_of_findmnt(path: str) -> None:
    """The kind of file system of a path is what util-linux says."""
    run = [str(FINDMNT), "-n", "-o", "FSTYPE", "-T", path]
    told = subprocess.run(run, capture_output=True, text=True, check=True).stdout.split()
    assert file_system_of(Path(path).stat().st_dev) in told


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "lustre", "cifs", "ceph", "fuse.gcsfuse", "9p"])
def test_file_systems_of_clusters_are_of_networks(kind: str) -> None:
    """What clusters and clouds mount is read by position."""
    assert is_of_network(kind)


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs", "zfs", "tmpfs", "overlay", "fuseblk"])
def test_file_systems_of_disks_are_not(kind: str) -> None:
    """What lies on a disk of the machine, or in its memory, is mapped."""
    assert not is_of_network(kind)
