"""Thumbnails for all pages: each is drawn once, in a decoder process, and cached in memory."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING

from wids.base.threads import DaemonThreadPool
from wids.browse.decoders import Decoders, NoMemoryError, TookLongError
from wids.browse.fieldreader import FieldReader, KeptBytes, LocatedSample
from wids.display.thumbnails import Thumbnail
from wids.errors import DecodeError

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["LARGE", "SIZES", "Thumbnails"]

_READING_THREADS = 4  # these wait for bytes of remote shards while decoders work
_KEPT_NBYTES = 96 << 20
# A larger field has no thumbnail; the page of its sample offers the field itself.
_MAX_FIELD_NBYTES = 128 << 20
_MAX_READ_AHEAD_NBYTES = 2 << 20  # largest field that is read before a decoder is free

# Only these sizes can be requested, so that a client cannot make the server draw each picture in a
# thousand sizes.
SIZES = (96, 144, 192, 256, 320, 480, 640, 960, 1280, 2560, 4096)
LARGE = 1280  # size of an image on the page of its sample


@dataclass(frozen=True)
class _Key:
    """Key of a thumbnail: field of a sample, size, version of the shard, frames of a video."""

    index: int
    number: int
    size: int
    version: str
    strip: bool = False


class Thumbnails:
    """Cache of thumbnails; a thumbnail that several requests want at a time is drawn once.

    Args:
        reader: The dataset.
        decoders: Decoder processes, which draw.
    """

    def __init__(self, reader: FieldReader, decoders: Decoders) -> None:
        self._reader = reader
        self._decoders = decoders
        self._kept: KeptBytes[_Key, Thumbnail | DecodeError] = KeptBytes(_KEPT_NBYTES)
        self._lock = threading.Lock()
        self._under_way: dict[_Key, Future[Thumbnail]] = {}
        limits = decoders.limits
        threads = limits.processes + limits.slow_processes + _READING_THREADS
        self._pool = DaemonThreadPool(threads, "wids-thumbnail")
        # Large images have a thread of their own, since they wait for the one large process.
        self._large_pool = DaemonThreadPool(1, "wids-thumbnail")

    def kept(
        self, index: int, number: int, size: int, version: str, *, strip: bool = False
    ) -> Thumbnail | None:
        """Return a picture from the cache without drawing; None if it is not there.

        Args:
            index: Number of the sample.
            number: Number of the field.
            size: As for `get`.
            version: Version of the shard, as `LocatedSample` has it.
            strip: As for `get`.
        """
        found = self._kept.get(_Key(index, number, size, version, strip))
        return None if isinstance(found, DecodeError) else found

    def get(
        self, located: LocatedSample, number: int, size: int, *, strip: bool = False
    ) -> Future[Thumbnail]:
        """Return a future for the thumbnail of a field, which is drawn unless it is cached.

        Args:
            located: The sample.
            number: Number of the field.
            size: One of `SIZES`: most pixels of the longer side.
            strip: Whether to draw frames of a video in place of the first alone.

        Returns:
            A future of the picture; it raises DecodeError if the field makes none.
        """
        key = _Key(located.index, number, size, located.version, strip)
        future: Future[Thumbnail]
        with self._lock:
            # Two tabs may show the same page; both wait for the same picture.
            if key in self._under_way:
                return self._under_way[key]
            future = Future()
            # Marked as running, which cannot be cancelled: closing one tab must not cancel the
            # picture for another.
            future.set_running_or_notify_cancel()
            kept = self._kept.get(key)
            if kept is None:
                self._under_way[key] = future
                self._pool.submit(self._make, key, located, future)
                return future
        if isinstance(kept, DecodeError):
            future.set_exception(kept)
        else:
            future.set_result(kept)
        return future

    def close(self) -> None:
        """Start no further drawings, and do not wait for those in progress."""
        self._pool.close()
        self._large_pool.close()

    def _make(
        self, key: _Key, located: LocatedSample, future: Future[Thumbnail], large: bool = False
    ) -> None:
        try:
            drawn = self._drawn(key, located, large)
        except NoMemoryError as error:
            if not large:
                self._large_pool.submit(self._make, key, located, future, True)
                return
            self._finish(key, future, error)
        except Exception as error:  # noqa: BLE001 (raised where the picture is awaited)
            self._finish(key, future, error)
        else:
            self._finish(key, future, drawn)

    def _finish(self, key: _Key, future: Future[Thumbnail], found: Thumbnail | Exception) -> None:
        # Errors of decoding are cached, too, since drawing the field again would fail again.
        lasts = isinstance(found, DecodeError) and not isinstance(found, TookLongError)
        if isinstance(found, Thumbnail):
            self._kept.put(key, found, len(found.data))
        elif lasts:
            self._kept.put(key, found, len(str(found)))  # type: ignore[arg-type]
        with self._lock:
            self._under_way.pop(key, None)
        if isinstance(found, Thumbnail):
            future.set_result(found)
        else:
            future.set_exception(found)

    def _drawn(self, key: _Key, located: LocatedSample, large: bool) -> Thumbnail:
        field = located.field(key.number)
        if field.nbytes > _MAX_FIELD_NBYTES:
            raise DecodeError(
                f"{field.extension}: {field.nbytes} bytes are more than the {_MAX_FIELD_NBYTES} "
                "that are read for a thumbnail; download the field to see it"
            )

        def pieces() -> Iterable[bytes]:
            return self._reader.pieces(located, key.number)

        get = pieces
        if field.nbytes <= _MAX_READ_AHEAD_NBYTES:
            read = list(pieces())
            get = lambda: read  # noqa: E731
        return self._decoders.thumbnail(
            field.extension, field.nbytes, get, size=key.size, strip=key.strip, large=large
        )
