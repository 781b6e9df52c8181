"""Mount a dataset or a saved view as a read-only folder, for programs that read plain files.

python with_fuse.py train.json folder     (until `fusermount3 -u folder`)
"""

import errno
import itertools
import stat
import sys

import fsspec
import mfusepy

import wids


class SampleFolder(mfusepy.Operations):
    """The fields of samples as FUSE asks for them: a folder a shard, a file a field."""

    use_ns = True

    def __init__(self, samples):
        self.files = fsspec.filesystem("wids", fo=samples)
        self.handles = itertools.count(1)
        self.opened = {}

    def getattr(self, path, fh=None):
        try:
            info = self.files.info(path[1:])
        except FileNotFoundError:
            raise mfusepy.FuseOSError(errno.ENOENT) from None
        kind = stat.S_IFREG | 0o444 if info["type"] == "file" else stat.S_IFDIR | 0o555
        return {"st_mode": kind, "st_nlink": 1, "st_size": info["size"]}

    def readdir(self, path, fh):
        names = self.files.ls(path[1:], detail=False)
        return [".", "..", *(name.rpartition("/")[2] for name in names)]

    def open(self, path, flags):
        handle = next(self.handles)
        self.opened[handle] = self.files.open(path[1:])
        return handle

    def read(self, path, size, offset, fh):
        self.opened[fh].seek(offset)
        return self.opened[fh].read(size)

    def release(self, path, fh):
        self.opened.pop(fh).close()
        return 0


def mount(samples, folder):
    """Serve the samples in a folder, which exists, until it is unmounted."""
    mfusepy.FUSE(SampleFolder(samples), str(folder), foreground=True, nothreads=True, ro=True)


if __name__ == "__main__":
    mount(wids.open(sys.argv[1], remote="range"), sys.argv[2])
