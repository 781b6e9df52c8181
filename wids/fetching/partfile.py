"""`PartFile`: partial file of a download, hashed as it grows, which can be resumed."""

import errno
import json
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Self

from wids.base.files import flush_to_server
from wids.base.hashing import RunningDigests
from wids.base.shardref import ShardRef, Version
from wids.base.urls import display_url
from wids.errors import CacheError

__all__ = [
    "PIECE_NBYTES",
    "STATE_SUFFIX",
    "PartFile",
    "can_resume",
    "no_space",
    "state_path",
    "stated_version",
]

STATE_SUFFIX = ".json"  # of the file beside a partial file
PIECE_NBYTES = 256 << 10  # most bytes per write; room is made before each
_BLOCK_NBYTES = 1 << 20
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class PartFile:
    """Partial file of a download; a context manager that closes the file and keeps it.

    `<path>.json` beside it has the version that the server stated. A download
    resumes if both files exist; otherwise it starts at 0.

    Attributes:
        path: The file.
        nbytes: Its size so far.
        version: What the server stated of the whole file.
        expected: The shard that it becomes.
        name: Its name in messages: the URL without user and query.
        digests: Algorithm to digest of the whole; {} before `finish`.

    Args:
        path: The file.
        expected: The shard that it becomes, with its promised size and digests.
        make_room: Called before the file grows beyond the last returned number of bytes; returns
            the number of bytes that the file may now grow to.
        grown: Called after each growth.
    """

    def __init__(
        self,
        path: Path,
        expected: ShardRef,
        *,
        make_room: Callable[["PartFile"], int] = lambda _: sys.maxsize,
        grown: Callable[["PartFile"], None] = lambda _: None,
    ) -> None:
        self.path = path
        self._make_room, self._grown = make_room, grown
        self._room = 0
        self.expected = expected
        self.name = display_url(expected.url)
        self.digests: dict[str, str] = {}
        self.version = stated_version(path) or Version()
        # Appended to: existing content is kept.
        self._stream = path.open("ab")
        self.nbytes = self._stream.tell()
        self._digests = self._new_digests()
        if self.nbytes and not self.resumable:
            self.restart()
        elif self.nbytes:
            with path.open("rb") as stream:
                while block := stream.read(_BLOCK_NBYTES):
                    self._digests.update(block)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._digests.close()
        with suppress(OSError):  # the failed write has reported a full disk already
            self._stream.close()

    @property
    def resumable(self) -> bool:
        """Whether a download can go on with it; see `can_resume`."""
        return can_resume(self.version)

    def begin(self, version: Version) -> None:
        """Save what the server states of the file, so that the download can resume.

        Raises:
            IntegrityError: The size differs from the promised one.
        """
        if version.nbytes is not None:
            self.expected.check_size(self.name, version.nbytes)
        # Not written again at each try.
        if version == self.version and state_path(self.path).exists():
            return
        self.version = version
        # Written before the first byte, so that a killed process never leaves a part without its
        # state.
        with self._explaining_full_disk():
            state_path(self.path).write_text(json.dumps(asdict(version)), encoding="utf-8")

    def append(self, chunk: bytes | bytearray) -> None:
        """Write and hash the next bytes.

        Raises:
            IntegrityError: The file grows past the promised size.
            CacheError: The disk is full.
        """
        limit = self.expected.filesize
        if limit is not None and self.nbytes + len(chunk) > limit:
            self.expected.check_size(self.name, self.nbytes + len(chunk))
        for start in range(0, len(chunk), PIECE_NBYTES):
            piece = chunk[start : start + PIECE_NBYTES]
            if self.nbytes + len(piece) > self._room:
                self.flush()  # room is made by the sizes in the file system
                self._room = self._make_room(self)
            with self._explaining_full_disk():
                self._stream.write(piece)
            self._digests.update(piece)
            self.nbytes += len(piece)
        self._grown(self)

    def flush(self) -> None:
        """Hand all bytes to the operating system.

        Raises:
            CacheError: The disk is full.
        """
        with self._explaining_full_disk():
            self._stream.flush()

    def tail(self, nbytes: int) -> bytes:
        """Return the last `nbytes` bytes, or all if there are fewer."""
        self._stream.flush()
        with self.path.open("rb") as stream:
            stream.seek(max(0, self.nbytes - nbytes))
            return stream.read()

    def head(self, nbytes: int) -> bytes:
        """Return the first bytes."""
        self._stream.flush()
        with self.path.open("rb") as stream:
            return stream.read(nbytes)

    def restart(self) -> None:
        """Delete the content and start over."""
        self._stream.truncate(0)
        self.nbytes = 0
        self._room = 0
        self._digests.close()
        self._digests = self._new_digests()

    def finish(self) -> None:
        """Compare the complete file with the promised size and digest, and flush it.

        It sets `digests`: the promised digest, or a CRC-32 to find later damage.

        Raises:
            IntegrityError: Size or digest differ.
            CacheError: The disk is full.
        """
        self.digests = self._digests.finish()
        self.expected.check(self.name, self.nbytes, self.digests)
        with self._explaining_full_disk():
            flush_to_server(self._stream)

    def publish(self, target: Path) -> None:
        """Rename the complete file to its final name."""
        self.path.replace(target)

    def discard(self) -> None:
        """Remove the file and its state."""
        for path in (self.path, state_path(self.path)):
            with suppress(OSError):  # the sweep removes it after this process has ended
                path.unlink()

    def _new_digests(self) -> RunningDigests:
        return RunningDigests(self.expected.digest_to_check or ["crc32"])

    @contextmanager
    def _explaining_full_disk(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno not in _NO_SPACE:
                raise
            wanted = self.version.nbytes or self.expected.filesize
            raise no_space(self.path, wanted, str(error.strerror)) from error


def state_path(path: Path) -> Path:
    """Return the path of the file beside a partial file that says what the server stated."""
    return path.with_name(path.name + STATE_SUFFIX)


def can_resume(version: Version | None) -> bool:
    """Return whether a resumed download would notice that the file has changed on the server.

    Args:
        version: What the server stated of the file; None if unknown.
    """
    return version is not None and version.validator is not None


def stated_version(path: Path) -> Version | None:
    """Return what the server stated of the file that a partial file becomes; None if unknown."""
    with suppress(OSError, ValueError, TypeError):
        return Version(**json.loads(state_path(path).read_text(encoding="utf-8")))
    return None


def no_space(path: Path, wanted_nbytes: int | None, cause: str) -> CacheError:
    """Return the error for a full disk."""
    free = shutil.disk_usage(path.parent).free
    wanted = "of unknown size" if wanted_nbytes is None else f"of {wanted_nbytes} bytes"
    return CacheError(
        f"{path.parent}: no space for a shard {wanted} ({cause}); "
        f"{free} bytes are free. Nothing was left behind. Free some, "
        f"bound the cache with cache_size, or set cache_dir or WIDS_CACHE to a larger disk"
    )
