"""Thumbnails for all pages: each is drawn once, in a decoder process, and cached in memory."""

from __future__ import annotations

import functools
import math
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from wids.base.keptbytes import KeptBytes
from wids.browse.decoders import Decoders, Job, TookLongError, thumbnail_job
from wids.errors import DecodeError

if TYPE_CHECKING:
    from concurrent.futures import Future

    from wids.browse.fieldreader import FieldReader, LocatedSample
    from wids.display.thumbnails import Thumbnail

__all__ = ["LARGE", "SIZES", "Thumbnails"]

_KEPT_NBYTES = 96 << 20
# A larger field has no thumbnail; the page of its sample offers the field itself.
_MAX_FIELD_NBYTES = 128 << 20
# A page asks again at least every eight seconds for a picture that it still shows.
_SHOWN_SECONDS = 12.0

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
        self._under_way: dict[_Key, Job[Thumbnail]] = {}

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
    ) -> Job[Thumbnail]:
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
        field = located.field(number)
        with self._lock:
            # Two tabs may show the same page; both wait for the same picture.
            job = self._under_way.get(key)
            if job is not None:
                job.wanted_until = max(job.wanted_until, wanted_until)
                return job
            job = thumbnail_job(
                field.extension,
                field.nbytes,
                lambda: self._reader.pieces(located, number),
                size=size,
                strip=strip,
            )
            job.wanted_until = wanted_until
            kept = self._kept.get(key)
            if kept is None and field.nbytes > _MAX_FIELD_NBYTES:
                kept = DecodeError(
                    f"{field.extension}: {field.nbytes} bytes are more than the "
                    f"{_MAX_FIELD_NBYTES} that are read for a thumbnail; download the field to "
                    "see it"
                )
            if kept is None:
                self._under_way[key] = job
        if kept is not None:
            job.finish(kept)
        else:
            job.result.add_done_callback(functools.partial(self._keep, key))
            self._decoders.begin(job)
        return job

    def _keep(self, key: _Key, drawn: Future[Thumbnail]) -> None:
        error = drawn.exception()
        if error is None:
            self._kept.put(key, drawn.result(), len(drawn.result().data))
        # Errors of decoding are cached, too, since drawing the field again would fail again.
        elif isinstance(error, DecodeError) and not isinstance(error, TookLongError):
            self._kept.put(key, error, len(str(error)))
        with self._lock:
            self._under_way.pop(key, None)
