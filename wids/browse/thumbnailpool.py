"""Thumbnails for all pages: each is drawn once, in a decoder process, and cached in memory."""

from __future__ import annotations

import math
import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from wids.base.keptbytes import KeptBytes
from wids.base.threads import DaemonThreadPool
from wids.browse.decoders import Decoders, Lane, NoMemoryError, TookLongError
from wids.codecs.formats import field_kind, format_suffix
from wids.codecs.headers import read_header
from wids.display.mediaview import MAX_LENGTH, MAX_PIXELS
from wids.display.thumbnails import Thumbnail
from wids.errors import DecodeError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from wids.browse.fieldreader import FieldReader, LocatedSample

__all__ = ["LARGE", "SIZES", "Drawing", "Thumbnails"]

_READING_THREADS = 4  # these wait for bytes of remote shards while decoders work
_KEPT_NBYTES = 96 << 20
# A larger field has no thumbnail; the page of its sample offers the field itself.
_MAX_FIELD_NBYTES = 128 << 20
# A page asks again at least every eight seconds for a picture that it still shows.
_SHOWN_SECONDS = 12.0
# A larger field fills the memory of a regular process by its own bytes, so the large one draws it.
_MAX_REGULAR_NBYTES = 32 << 20
_MAX_READ_AHEAD_NBYTES = 2 << 20  # largest field that is read before a decoder is free

# Pixels, times the scans of a JPEG, from which on a picture is sent to the slow lane at once.
_MANY_PIXELS = 40_000_000
_PLAIN_HEADERS = (".jpg", ".jpeg", ".png", ".webp")  # a few bytes of fixed places state their size
_JPEGS = (".jpg", ".jpeg")
_HEAD_NBYTES = 64 << 10
# Bytes of memory that decoding takes: of each pixel, of the pixels that are picked of a large
# image, and of the process itself.
_PLAIN_NBYTES = 4
_PROGRESSIVE_NBYTES = 6
_WEBP_NBYTES = 12  # libwebp keeps two frames, which Pillow copies
_PICKED_NBYTES = 64 << 20
_PROCESS_NBYTES = 48 << 20

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


@dataclass(eq=False)
class Drawing:
    """A thumbnail that is being drawn.

    Attributes:
        picture: The picture; raises DecodeError if the field makes none.
        soon: Done when the picture is, or when it is known to take long.
        wanted_until: Time of the monotonic clock until which somebody counts as waiting for it.
    """

    picture: Future[Thumbnail]
    soon: Future[None] = field(default_factory=Future)
    wanted_until: float = 0.0

    def be_slow(self) -> None:
        """Answer now the requests that do not wait for slow thumbnails."""
        if not self.soon.done():
            self.soon.set_result(None)


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
        self._under_way: dict[_Key, Drawing] = {}
        self._waiting: dict[Lane, list[tuple[_Key, LocatedSample, Drawing]]] = {}
        limits = decoders.limits
        threads = limits.processes + limits.slow_processes + _READING_THREADS
        self._pool = DaemonThreadPool(threads, "wids-thumbnail")
        # Threads of their own, since they wait for few processes while others are drawn.
        self._slow_pool = DaemonThreadPool(limits.slow_processes, "wids-thumbnail")
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
        self,
        located: LocatedSample,
        number: int,
        size: int,
        *,
        strip: bool = False,
        asks_again: bool = True,
    ) -> Drawing:
        """Return the thumbnail of a field, which is drawn unless it is cached.

        Of slow pictures, those that somebody waits for are drawn first, in their order.

        Args:
            located: The sample.
            number: Number of the field.
            size: One of `SIZES`: most pixels of the longer side.
            strip: Whether to draw frames of a video in place of the first alone.
            asks_again: Whether who waits for it asks again and again, and so shows that it waits.
        """
        key = _Key(located.index, number, size, located.version, strip)
        wanted_until = time.monotonic() + _SHOWN_SECONDS if asks_again else math.inf
        with self._lock:
            # Two tabs may show the same page; both wait for the same picture.
            if key in self._under_way:
                drawing = self._under_way[key]
                drawing.wanted_until = max(drawing.wanted_until, wanted_until)
                return drawing
            drawing = Drawing(Future(), wanted_until=wanted_until)
            # Marked as running, which cannot be cancelled: closing one tab must not cancel the
            # picture for another.
            drawing.picture.set_running_or_notify_cancel()
            drawing.soon.set_running_or_notify_cancel()
            kept = self._kept.get(key)
            if kept is None:
                self._under_way[key] = drawing
                self._pool.submit(self._make, key, located, drawing, "regular")
                return drawing
        _settle(drawing, kept)
        return drawing

    def close(self) -> None:
        """Start no further drawings, and do not wait for those in progress."""
        for pool in (self._pool, self._slow_pool, self._large_pool):
            pool.close()

    def _make(self, key: _Key, located: LocatedSample, drawing: Drawing, lane: Lane) -> None:
        try:
            found: Thumbnail | Exception = self._drawn(key, located, drawing, lane)
        except TookLongError as error:
            if lane == "regular":
                self._pass_on(key, located, drawing, "slow")
                return
            found = error
        except NoMemoryError as error:
            if lane != "large":
                self._pass_on(key, located, drawing, "large")
                return
            found = error
        except Exception as error:  # noqa: BLE001 (raised where the picture is awaited)
            found = error
        self._finish(key, drawing, found)

    def _pass_on(self, key: _Key, located: LocatedSample, drawing: Drawing, lane: Lane) -> None:
        pool = self._slow_pool if lane == "slow" else self._large_pool
        with self._lock:
            self._waiting.setdefault(lane, []).append((key, located, drawing))
        drawing.be_slow()
        pool.submit(self._make_next, lane)

    def _make_next(self, lane: Lane) -> None:
        """Draw the first picture that somebody still waits for, else the first one."""
        now = time.monotonic()
        with self._lock:
            waiting = self._waiting[lane]
            wanted = (n for n, (*_, each) in enumerate(waiting) if each.wanted_until > now)
            key, located, drawing = waiting.pop(next(wanted, 0))
        self._make(key, located, drawing, lane)

    def _finish(self, key: _Key, drawing: Drawing, found: Thumbnail | Exception) -> None:
        # Errors of decoding are cached, too, since drawing the field again would fail again.
        if isinstance(found, Thumbnail):
            self._kept.put(key, found, len(found.data))
        elif isinstance(found, DecodeError) and not isinstance(found, TookLongError):
            self._kept.put(key, found, len(str(found)))
        with self._lock:
            self._under_way.pop(key, None)
        _settle(drawing, found)

    def _lane_of(self, extension: str, pieces: Sequence[bytes]) -> Lane:
        """Return the lane for decoding an image, chosen by the size that its header states.

        A wrong size does no harm: an image that states a large one waits for the large lane, and
        one that states too small a one is moved there. Without this choice, each image that needs
        the large lane would first fill the memory of a process of each other lane.
        """
        if field_kind(extension) != "image" or format_suffix(extension) not in _PLAIN_HEADERS:
            return "regular"
        if not pieces:
            return "regular"
        try:
            facts = read_header(extension, pieces[0][:_HEAD_NBYTES], whole=False) or {}
        except (DecodeError, ImportError):
            return "regular"
        sides = facts.get("width", 0), facts.get("height", 0)
        pixels = sides[0] * sides[1]
        if pixels > MAX_PIXELS or max(sides) > MAX_LENGTH:
            return "regular"  # where it is refused at once
        # In the data of a scan, no such marker occurs.
        scans = sum(piece.count(b"\xff\xda") for piece in pieces)
        if format_suffix(extension) == ".webp":
            needed = pixels * _WEBP_NBYTES
        elif format_suffix(extension) not in _JPEGS:
            needed = pixels * _PLAIN_NBYTES + _PICKED_NBYTES
        else:  # one of a single scan is decoded line by line, and at a fraction of its size
            needed = pixels * _PROGRESSIVE_NBYTES if scans > 1 else 0
        if needed > self._decoders.limits.nbytes - _PROCESS_NBYTES:
            return "large"
        return "slow" if pixels * max(1, scans) >= _MANY_PIXELS else "regular"

    def _drawn(self, key: _Key, located: LocatedSample, drawing: Drawing, lane: Lane) -> Thumbnail:
        field = located.field(key.number)
        if field.nbytes > _MAX_FIELD_NBYTES:
            raise DecodeError(
                f"{field.extension}: {field.nbytes} bytes are more than the {_MAX_FIELD_NBYTES} "
                "that are read for a thumbnail; download the field to see it"
            )

        if field.nbytes > _MAX_REGULAR_NBYTES and lane != "large":
            raise NoMemoryError(f"{field.extension}: many bytes, left to the large lane")

        def pieces() -> Iterable[bytes]:
            return self._reader.pieces(located, key.number)

        get = pieces
        if field.nbytes <= _MAX_READ_AHEAD_NBYTES:
            read = list(pieces())
            wanted = self._lane_of(field.extension, read) if lane == "regular" else lane
            if lane != wanted == "large":
                raise NoMemoryError(f"{field.extension}: many pixels, left to the large lane")
            if lane != wanted:
                raise TookLongError(f"{field.extension}: many pixels, left to the slow lane")
            get = lambda: read  # noqa: E731
        return self._decoders.thumbnail(
            field.extension,
            field.nbytes,
            get,
            size=key.size,
            strip=key.strip,
            lane=lane,
            on_slow=drawing.be_slow,
        )


def _settle(drawing: Drawing, found: Thumbnail | Exception) -> None:
    if isinstance(found, Thumbnail):
        drawing.picture.set_result(found)
    else:
        drawing.picture.set_exception(found)
    drawing.be_slow()
