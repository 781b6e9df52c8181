"""`TarWriter`: writer of samples to one tar file or stream, like webdataset's `TarWriter`."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from wids.base.arguments import check_flag, check_integer
from wids.base.files import OutputFile, named_write_errors
from wids.base.urls import display_url
from wids.writing.memberwriter import ByteSink, SampleArchive
from wids.writing.sampleencoder import Encoder, SampleEncoder

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["TarWriter"]

_PACKED = (".gz", ".tgz", ".bz2", ".xz", ".zst")


class TarWriter:
    """Writer of samples to one tar archive: a file, standard output, or any binary stream.

    Use it in a `with` block, or call `close`: only then does a file appear under its name. If the
    block raises, the file is removed, and a stream is left without the end of an archive.

    >>> import io, tarfile
    >>> stream = io.BytesIO()
    >>> with TarWriter(stream) as writer:
    ...     nbytes = writer.write({"__key__": "0001", "txt": "one", "cls": 1})
    >>> tarfile.open(fileobj=io.BytesIO(stream.getvalue())).getnames(), nbytes
    (['0001.cls', '0001.txt'], 2048)
    """

    def __init__(
        self,
        target: str | os.PathLike[str] | ByteSink,
        *,
        mtime: int = 0,
        encoders: Mapping[str, Encoder] | None = None,
        fsync: bool = False,
    ) -> None:
        """Begin an archive.

        Args:
            target: Path of the file; `"-"` for standard output; or a binary stream, which stays
                open when this object is closed.
            mtime: Modification time of all members, in seconds since 1970.
            encoders: Encoders by extension that extend or replace the built-in ones, as for
                `SampleEncoder`.
            fsync: Sync the file to disk before it gets its final name.

        Raises:
            ValueError: The path is a URL, or its suffix is that of a compressed file.
            TypeError: The stream does not take bytes.
            BlockingIOError: Another process is writing the same file.
        """
        self._encode = SampleEncoder(encoders)
        self._fsync = check_flag("fsync", fsync)
        check_integer("mtime", mtime, 0)
        self._file: OutputFile | None = None
        self._pipe: io.BufferedWriter | None = None
        if isinstance(target, str | os.PathLike) and target != "-":
            text = os.fspath(target)
            if "://" in text or text.startswith("pipe:"):
                raise ValueError(
                    f"{display_url(text)!r}: a tar is written to a local file; for anything else "
                    "pass an open stream"
                )
            # The tar is always written uncompressed, since a compressed one has no random access. A
            # name with the suffix of a compression would be wrong.
            if text.lower().endswith(_PACKED):
                raise ValueError(
                    f"{text!r}: a tar is written plain, so that every sample can be found; name it "
                    "'.tar' and compress the fields instead ('txt.gz'), or pass a stream such as "
                    "gzip.open gives"
                )
            self._file = OutputFile(Path(text))
            self._sink: Any = self._file.stream
        else:
            stream = sys.stdout.buffer if target == "-" else target
            if isinstance(stream, io.TextIOBase) or not hasattr(stream, "write"):
                # Checked here, since a text stream would fail only at the first flush.
                raise TypeError(
                    f"expected a path or a stream that takes bytes, got {stream!r:.120}; open "
                    "files with mode 'wb'"
                )
            self._sink = stream
        if isinstance(self._sink, io.RawIOBase):
            # A raw file may write only part of a block; a buffered one writes the rest, too.
            self._sink = self._pipe = io.BufferedWriter(self._sink)
        self._where = "this archive" if self._file is None else str(self._file.path)
        self._archive = SampleArchive(self._sink, self._where, mtime)

    @property
    def nsamples(self) -> int:
        """Number of samples written."""
        return len(self._archive.places)

    @property
    def nbytes(self) -> int:
        """Length in bytes that the archive would have if it were closed now."""
        return self._archive.nbytes

    def write(self, sample: Mapping[str, Any]) -> int:
        """Write one sample.

        Args:
            sample: `__key__` and one value per extension: `{"__key__": "0001", "jpg": data}`.
                Bytes are written unchanged, other values are encoded by their extension.

        Returns:
            Number of bytes that it takes in the archive, including headers and padding.

        Raises:
            ValueError: The sample cannot be written, its key was written before, or the writer is
                closed. Nothing was written.
        """
        before = self._archive.nbytes
        key, members = self._encode(sample)
        with named_write_errors(self._where):
            self._archive.write(key, members)
        return self._archive.nbytes - before

    def close(self) -> None:
        """End the archive and give a file its final name; a second call does nothing."""
        if self._archive.closed:
            return
        try:
            with named_write_errors(self._where):
                self._archive.close()
                # A full disk or a closed pipe raises here, not when the process ends.
                if hasattr(self._sink, "flush"):
                    self._sink.flush()
            if self._file is not None:
                self._file.publish(fsync=self._fsync)
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Stop writing: an unpublished file is removed, a stream keeps what was written."""
        self._archive.closed = True
        if self._pipe is not None:
            self._pipe.detach()  # otherwise, closing the pipe would close the user's stream
            self._pipe = None
        if self._file is not None:
            self._file.discard()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self.abandon()
