"""Thumbnails for many pages at once: each is drawn once, by a few threads."""

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from wids.browse.source import KeptBytes, SamplePlace, Source
from wids.display.thumbnails import Thumbnail, thumbnail
from wids.errors import DecodeError

__all__ = ["LARGE", "SIZES", "Thumbnails"]

_MOST_THREADS = 8
_KEPT_NBYTES = 96 << 20
# Beyond this a picture is not read to be made small; the sample's own page offers it as it is.
_MOST_FIELD_NBYTES = 128 << 20

# Few sizes, so that no page makes the server draw each picture in a thousand of them.
SIZES = (96, 192, 320, 640, 1280, 4096)
LARGE = 1280  # of an image on the page of its sample

_Key = tuple[int, int, int]


class Thumbnails:
    """Draws small pictures of fields, keeps them, and never draws one twice at the same time.

    Args:
        source: The dataset.
        draw: What draws; a test passes another.
    """

    def __init__(self, source: Source, draw: Callable[..., Thumbnail] = thumbnail) -> None:
        self._source = source
        self._draw = draw
        self._kept: KeptBytes[_Key, Thumbnail | DecodeError] = KeptBytes(_KEPT_NBYTES)
        self._lock = threading.Lock()
        self._under_way: dict[_Key, Future[Thumbnail]] = {}
        # Pillow lets go of the interpreter while it decodes, so threads use more than one core. Not
        # all of a large machine, though, where training runs beside; and each may take 256 MiB.
        self._pool = ThreadPoolExecutor(min(os.cpu_count() or 1, _MOST_THREADS), "wids-thumbnail")

    def kept(self, index: int, number: int, size: int) -> Thumbnail | None:
        """Return a picture that was drawn before, in no time; None where there is none.

        Args:
            index: Number of the sample.
            number: Number of the field.
            size: As for `get`.
        """
        found = self._kept.get((index, number, size))
        return None if isinstance(found, DecodeError) else found

    def get(self, place: SamplePlace, number: int, size: int) -> "Future[Thumbnail]":
        """Draw a field, or return it as it was drawn before.

        Args:
            place: The sample.
            number: Number of the field.
            size: One of `SIZES`: most pixels of the longer side.

        Returns:
            The picture to come; it raises DecodeError where the field makes none.
        """
        key = (place.index, number, size)
        kept = self._kept.get(key)
        if kept is not None:
            return _finished(kept)
        with self._lock:
            future = self._under_way.get(key)
            # Two tabs on one page want the same pictures at the same time; both wait for one.
            if future is None:
                future = self._under_way[key] = self._pool.submit(self._make, place, number, size)
        return future

    def close(self) -> None:
        """Begin no more; what is being drawn is not waited for."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _make(self, place: SamplePlace, number: int, size: int) -> Thumbnail:
        key = (place.index, number, size)
        try:
            drawn = self._drawn(place, number, size)
            self._kept.put(key, drawn, len(drawn.data))
        except DecodeError as error:
            # A broken picture stays broken; trying again for each tile would only cost.
            self._kept.put(key, error, len(str(error)))
            raise
        finally:
            with self._lock:
                self._under_way.pop(key, None)
        return drawn

    def _drawn(self, place: SamplePlace, number: int, size: int) -> Thumbnail:
        field = place.field(number)
        if field.nbytes > _MOST_FIELD_NBYTES:
            raise DecodeError(
                f"{field.extension}: {field.nbytes} bytes are more than the {_MOST_FIELD_NBYTES} "
                "that are read for a thumbnail; download the field to see it"
            )
        return self._draw(field.extension, self._source.read(place, number), size=size)


def _finished(kept: Thumbnail | DecodeError) -> "Future[Thumbnail]":
    future: Future[Thumbnail] = Future()
    if isinstance(kept, DecodeError):
        future.set_exception(kept)
    else:
        future.set_result(kept)
    return future
