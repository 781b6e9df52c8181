"""One shard on its way: written beside its name, digested meanwhile, described as a spec does."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wids.base.files import remove_parts
from wids.base.outputfile import OutputFile
from wids.specs.entries import name_in_spec, shard_entry
from wids.tar.sidecar import SIDECAR_SUFFIX
from wids.tar.tarindex import TarIndex
from wids.writing.digesting import DigestingFile
from wids.writing.memberwriter import SampleArchive

if TYPE_CHECKING:
    from collections.abc import Collection

__all__ = ["OpenShard", "checked_digests", "warn_of_older"]


class OpenShard:
    """A shard that is being written; it appears when it is published, or never.

    Attributes:
        path: Its final name.
        archive: What takes its samples.

    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     shard = OpenShard(Path(folder, "x.tar"), digests=())
    ...     shard.archive.write("a", [("a.txt", b"one")])
    ...     print(shard.publish(Path(folder)))
    {'url': 'x.tar', 'nsamples': 1, 'filesize': 2048}
    """

    def __init__(self, path: Path, mtime: int = 0, digests: tuple[str, ...] = ()) -> None:
        """Begin a shard; folders on the way are made.

        Args:
            path: Its final name.
            mtime: Modification time of all members, in seconds since 1970.
            digests: Which of "md5" and "sha256" to note.

        Raises:
            BlockingIOError: Another process is writing this very file.
        """
        self.path = path
        self._out = OutputFile(path)
        self._file = DigestingFile(self._out.stream, digests)
        self.archive = SampleArchive(self._file, str(path), mtime)

    def publish(
        self, folder: Path, *, sidecar: bool = False, fsync: bool = False
    ) -> dict[str, Any]:
        """Finish the archive and give it its name.

        Args:
            folder: Where the spec lies, from which URLs count.
            sidecar: Write its tar index beside it.
            fsync: Wait for the disk before it gets its name.

        Returns:
            Its entry in a spec.
        """
        beside = self.path.with_name(self.path.name + SIDECAR_SUFFIX)
        try:
            self.archive.close()
            digests = self._file.close()
            self._out.stream.flush()
            if sidecar:
                # Nobody else writes this shard: its part is locked.
                remove_parts(beside.parent, [beside.name], of_living=True)
                # Named before its shard: a shard that is there has all that belongs to it.
                TarIndex.from_tar(self._out.part_path).save(beside)
            self._out.publish(fsync=fsync)
            if sidecar:
                beside.touch()  # a renamed file is a changed one: the sidecar must be the newer
        finally:
            self.discard()
        name = name_in_spec(str(self.path), folder)
        return shard_entry(name, len(self.archive.places), self._file.nbytes, digests)

    def discard(self) -> None:
        """Let go of the threads and, unless it was published, of the file."""
        self._file.close()
        self._out.discard()


def checked_digests(digests: Collection[str]) -> tuple[str, ...]:
    """Take digests that a spec has a place for; a text would be taken letter by letter.

    Raises:
        ValueError: One of them is another.

    >>> checked_digests("md5"), checked_digests(["sha256", "md5", "md5"])
    (('md5',), ('sha256', 'md5'))
    """
    named = (digests,) if isinstance(digests, str) else tuple(dict.fromkeys(digests))
    unknown = [name for name in named if name not in ("md5", "sha256")]
    if unknown:
        raise ValueError(f"digests: expected some of 'md5' and 'sha256', got {unknown[0]!r}")
    return named


def warn_of_older(pattern: str, number: int, step: int = 1) -> None:
    """Warn of shards that stand behind the last one that was written.

    Nothing that another run wrote is ever removed: only the user knows whether it is wanted.

    Args:
        pattern: Path of the shards, with a place for their number.
        number: That of the first shard that was not written.
        step: From one number to the next.
    """
    first = last = number
    while Path(pattern % last).exists():
        last += step
    if last > first:
        count = (last - first) // step
        warnings.warn(
            f"{pattern % first}: {count} shard{'s' * (count > 1)} of another run stand behind the "
            "last one that was written; they are not in its spec, but a folder or pattern takes "
            "them in: remove them if they are not wanted",
            stacklevel=3,
        )
