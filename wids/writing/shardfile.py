"""Writing of one shard: under a temporary name, hashed while written, then published."""

from __future__ import annotations

from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypedDict

from wids.base.arguments import check_flag, check_integer, to_list
from wids.base.files import OutputFile, named_write_errors, remove_parts
from wids.base.hashing import DIGESTS, RunningDigests
from wids.base.warn import warn
from wids.specs.newspec import name_in_spec, shard_entry
from wids.tar.sidecar import SIDECAR_SUFFIX
from wids.tar.tarindex import TarIndex
from wids.writing.memberwriter import SampleArchive

if TYPE_CHECKING:
    from collections.abc import Collection

__all__ = ["DigestingFile", "NewShard", "ShardOptions", "shard_options", "warn_of_older"]

_ALGORITHMS = tuple(kind.algorithm for kind in DIGESTS.values())


class ShardOptions(TypedDict, total=False):
    """Options for writing a shard; the arguments of `shard_options`."""

    mtime: int
    sidecars: bool
    digests: Collection[str]
    fsync: bool


def shard_options(
    *,
    mtime: int = 0,
    sidecars: bool = False,
    # MD5 because old readers know no other digest; SHA-256 because MD5 is no longer secure.
    digests: Collection[str] = ("md5", "sha256"),
    fsync: bool = False,
) -> ShardOptions:
    """Return checked options with defaults filled in.

    Args:
        mtime: Modification time of all members, in seconds since 1970.
        sidecars: Write the tar index as a sidecar in the folder of the shard.
        digests: Digest algorithms for the shard's entry in the spec.
        fsync: Sync the shard to disk before it gets its final name.

    Raises:
        TypeError: An option is of another type.
        ValueError: A spec has no field for one of the digests, or `mtime` is negative.

    >>> shard_options(digests="md5")["digests"]
    ('md5',)
    """
    # Otherwise a string would be iterated letter by letter.
    given = [digests] if isinstance(digests, str) else to_list("digests", digests, "names")
    named = tuple(dict.fromkeys(given))
    unknown = [name for name in named if name not in _ALGORITHMS]
    if unknown:
        known = " and ".join(map(repr, _ALGORITHMS))
        raise ValueError(f"digests: expected some of {known}, got {unknown[0]!r}")
    return {
        "mtime": check_integer("mtime", mtime, 0),
        "sidecars": check_flag("sidecars", sidecars),
        "digests": named,
        "fsync": check_flag("fsync", fsync),
    }


class NewShard:
    """Shard that is being written and gets its final name only when it is published.

    Attributes:
        path: Its final path.
        archive: The archive to which its samples are written.

    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     shard = NewShard(Path(folder, "x.tar"), shard_options(digests=()))
    ...     shard.archive.write("a", [("a.txt", b"one")])
    ...     print(shard.publish(Path(folder)))
    {'url': 'x.tar', 'nsamples': 1, 'filesize': 2048}
    """

    def __init__(self, path: Path, options: ShardOptions) -> None:
        """Begin a shard; missing folders are created.

        Args:
            path: Its final path.
            options: Options as returned by `shard_options`.

        Raises:
            BlockingIOError: Another process is writing the same file.
        """
        self.path = path
        self._options = options
        self._out = OutputFile(path)
        self._file = DigestingFile(self._out.stream, options["digests"])
        self.archive = SampleArchive(self._file, str(path), options["mtime"])

    def publish(self, folder: Path) -> dict[str, Any]:
        """Finish the archive and give it its final name.

        Args:
            folder: Folder of the spec, to which URLs are relative.

        Returns:
            The entry of the shard in the spec.
        """
        sidecar = self.path.with_name(self.path.name + SIDECAR_SUFFIX)
        try:
            with named_write_errors(self.path):
                self.archive.close()
                digests = self._file.close()
                self._out.stream.flush()
            if self._options["sidecars"]:
                # Incomplete sidecars can be removed: the lock on the shard's temporary file
                # guarantees that no other process writes one.
                remove_parts(sidecar.parent, [sidecar.name], of_living=True)
                # The sidecar is published first, so that a published shard always has one.
                TarIndex.from_tar(self._out.part_path).save(sidecar)
            self._out.publish(fsync=self._options["fsync"])
            if self._options["sidecars"]:
                sidecar.touch()  # it must be newer than the shard, whose times the rename changed
        finally:
            self.discard()
        name = name_in_spec(str(self.path), folder)
        return shard_entry(name, len(self.archive.places), self._file.nbytes, digests)

    def discard(self) -> None:
        """Stop the digest threads, and remove the file unless it was published."""
        self._file.close()
        self._out.discard()


class DigestingFile:
    """Binary output stream that computes digests of the written bytes.

    Attributes:
        nbytes: Bytes written so far.

    >>> import io
    >>> file = DigestingFile(io.BytesIO(), ["md5"])
    >>> file.write(b"abc")
    >>> file.close()
    {'md5': '900150983cd24fb0d6963f7d28e17f72'}
    """

    def __init__(self, stream: IO[bytes], digests: Collection[str] = ()) -> None:
        """Wrap a stream.

        Args:
            stream: Destination of the bytes; stays open when this object is closed.
            digests: Algorithm names of `hashlib`, such as `("md5", "sha256")`.
        """
        self._stream = stream
        self._digests = RunningDigests(digests)
        self.nbytes = 0

    def write(self, block: bytes | memoryview) -> None:
        """Write a block; it must not change afterwards."""
        self._digests.update(block)
        self._stream.write(block)
        self.nbytes += len(block)

    def close(self) -> dict[str, str]:
        """Finish the digests and stop the threads; a second call is harmless.

        Returns:
            Digest name to hexadecimal digest.
        """
        return self._digests.finish()


def warn_of_older(pattern: str, number: int, step: int = 1) -> None:
    """Warn of existing shards with higher numbers than the last one written.

    They are not removed, because only the user knows whether another run's shards are still needed.

    Args:
        pattern: Path of the shards, with a %-format for their number.
        number: Number of the first shard that was not written.
        step: Difference between successive numbers.
    """
    first = last = number
    while Path(pattern % last).exists():
        last += step
    if last > first:
        count = (last - first) // step
        warn(
            f"{pattern % first}: {count} shard{'s' * (count > 1)} of an earlier run with higher "
            "numbers than the last shard written; the new spec leaves them out, but a folder or a "
            "pattern would read them: remove them if they are not wanted"
        )
