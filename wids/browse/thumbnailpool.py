"""Thumbnails for all pages: each is drawn once, in a decoder process, and cached in memory."""

from __future__ import annotations

import math
import threading
import time
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from wids.base.keptbytes import KeptBytes
from wids.base.threads import DaemonThreadPool
from wids.browse.decoders import (
    PROCESS_NBYTES,
    Decoders,
    Lane,
    NoMemoryError,
    TookLongError,
    Try,
)
from wids.codecs.formats import format_suffix
from wids.codecs.headers import read_header
from wids.display.mediaview import MAX_LENGTH, MAX_PIXELS
from wids.display.thumbnails import MAX_AVERAGED_PIXELS, Thumbnail
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
_MAX_READ_AHEAD_NBYTES = 2 << 20  # largest field that is read before a decoder is free

# Pixels, times the scans of a JPEG, from which on a picture is sent to the slow lane at once.
_MANY_PIXELS = 40_000_000
_PLAIN_HEADERS = (".jpg", ".jpeg", ".png", ".webp")  # a few bytes of fixed places state their size
_JPEGS = (".jpg", ".jpeg")
_HEAD_NBYTES = 64 << 10
# Bytes of memory that decoding takes: of each pixel, of each pixel that is shown, and of the pixels
# that are picked of a large image. Measured; a process that was given too little says so.
_PLAIN_NBYTES = 4
_PROGRESSIVE_NBYTES = 6
_WEBP_NBYTES = 22  # libwebp keeps two frames, which Pillow copies
_SHOWN_NBYTES = 14
_PICKED_NBYTES = 128 << 20  # twice, since transparent ones are multiplied in a copy
_MOST_SHRUNK = 8  # times by which libjpeg decodes an image smaller

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
        with suppress(InvalidStateError):  # told already, perhaps by another thread just now
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
        self._waiting: dict[Lane, list[tuple[_Key, LocatedSample, Drawing, Try]]] = {}
        limits = decoders.limits
        threads = limits.processes + limits.slow_processes + _READING_THREADS
        self._pool = DaemonThreadPool(threads, "wids-thumbnail")
        # Threads of their own, since they wait for few processes while others are drawn.
        self._slow_pool = DaemonThreadPool(limits.slow_processes, "wids-thumbnail")
        self._large_pool = DaemonThreadPool(limits.slow_processes, "wids-thumbnail")

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
                self._pool.submit(self._make, key, located, drawing, Try())
                return drawing
        _settle(drawing, kept)
        return drawing

    def close(self) -> None:
        """Start no further drawings, and do not wait for those in progress."""
        for pool in (self._pool, self._slow_pool, self._large_pool):
            pool.close()

    def _make(self, key: _Key, located: LocatedSample, drawing: Drawing, tried: Try) -> None:
        try:
            found: Thumbnail | Exception = self._drawn(key, located, drawing, tried)
        except (TookLongError, NoMemoryError) as error:
            more = self._decoders.limits.tried_next(tried, error)
            if more is not None:
                self._pass_on(key, located, drawing, more)
                return
            found = error
        except Exception as error:  # noqa: BLE001 (raised where the picture is awaited)
            found = error
        self._finish(key, drawing, found)

    def _pass_on(self, key: _Key, located: LocatedSample, drawing: Drawing, more: Try) -> None:
        pool = self._slow_pool if more.lane == "slow" else self._large_pool
        with self._lock:
            self._waiting.setdefault(more.lane, []).append((key, located, drawing, more))
        drawing.be_slow()
        pool.submit(self._make_next, more.lane)

    def _make_next(self, lane: Lane) -> None:
        """Draw the first picture that somebody still waits for, else the first one."""
        now = time.monotonic()
        with self._lock:
            waiting = self._waiting[lane]
            wanted = (n for n, (_, _, each, _) in enumerate(waiting) if each.wanted_until > now)
            key, located, drawing, more = waiting.pop(next(wanted, 0))
        self._make(key, located, drawing, more)

    def _finish(self, key: _Key, drawing: Drawing, found: Thumbnail | Exception) -> None:
        # Errors of decoding are cached, too, since drawing the field again would fail again.
        if isinstance(found, Thumbnail):
            self._kept.put(key, found, len(found.data))
        elif isinstance(found, DecodeError) and not isinstance(found, TookLongError):
            self._kept.put(key, found, len(str(found)))
        with self._lock:
            self._under_way.pop(key, None)
        _settle(drawing, found)

    def _drawn(self, key: _Key, located: LocatedSample, drawing: Drawing, tried: Try) -> Thumbnail:
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
            if tried.lane == "regular":
                self._check_announced(field.extension, read, key.size)
        if tried.lane == "regular":
            self._decoders.limits.check_field(field.nbytes)
        return self._decoders.thumbnail(
            field.extension,
            field.nbytes,
            get,
            size=key.size,
            strip=key.strip,
            lane=tried.lane,
            limit=tried.nbytes,
            on_slow=drawing.be_slow,
        )

    def _check_announced(self, extension: str, pieces: Sequence[bytes], size: int) -> None:
        """Check that an image may be sent to the regular lane, by the size that its header states.

        A wrong size does no harm: an image that states a large one waits for the large lane, and
        one that states too small a one is moved there. Without this check, each image that needs
        the large lane would first fill the memory of a regular process.

        Raises:
            NoMemoryError: It needs more memory than a regular process has.
            TookLongError: It has so many pixels that it takes long.
        """
        width, height = _sides(extension, pieces)
        if width * height > MAX_PIXELS or max(width, height) > MAX_LENGTH:
            return  # it is refused at once
        # In the data of a scan, no such marker occurs.
        scans = sum(piece.count(b"\xff\xda") for piece in pieces)
        needed = PROCESS_NBYTES + sum(map(len, pieces))
        needed += _pixel_nbytes(format_suffix(extension), width, height, scans, size)
        if needed > self._decoders.limits.nbytes:
            raise NoMemoryError(f"{extension}: many pixels, left to the large lane", needed)
        if width * height * max(1, scans) >= _MANY_PIXELS:
            raise TookLongError(f"{extension}: many pixels, left to the slow lane")


def _sides(extension: str, pieces: Sequence[bytes]) -> tuple[int, int]:
    """Return the width and height that the header of an image states; 0 where it is not read."""
    if not pieces or format_suffix(extension) not in _PLAIN_HEADERS:
        return 0, 0
    try:
        facts = read_header(extension, pieces[0][:_HEAD_NBYTES], whole=False) or {}
    except (DecodeError, ImportError):
        return 0, 0
    return int(facts.get("width", 0)), int(facts.get("height", 0))


def _pixel_nbytes(suffix: str, width: int, height: int, scans: int, size: int) -> int:
    """Return the memory that the pixels of an image take while its thumbnail is drawn."""
    pixels = width * height
    times = max(width, height, 1) / size
    shown = int(pixels / max(times, 1.0) ** 2) * _SHOWN_NBYTES
    if suffix == ".webp":
        return pixels * _WEBP_NBYTES + shown
    if suffix in _JPEGS:
        shrunk = min(1 << max(int(times), 1).bit_length() - 1, _MOST_SHRUNK)
        held = pixels * _PROGRESSIVE_NBYTES if scans > 1 else 0
        return held + pixels * _PLAIN_NBYTES // shrunk**2 + shown
    picked = _PICKED_NBYTES if pixels > MAX_AVERAGED_PIXELS else 0
    return pixels * _PLAIN_NBYTES + max(picked, shown)


def _settle(drawing: Drawing, found: Thumbnail | Exception) -> None:
    if isinstance(found, Thumbnail):
        drawing.picture.set_result(found)
    else:
        drawing.picture.set_exception(found)
    drawing.be_slow()
