"""Small pictures of fields: images, arrays, sound and video, encoded again from pixels.

Every picture is encoded here from pixels, so that nothing else in a file (EXIF, profiles, scripts,
trailing bytes) reaches the viewer.
"""

import io
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from wids.base.optional import load, load_if_present
from wids.codecs.formats import field_kind, format_suffix
from wids.codecs.images import ImageDecoder
from wids.codecs.media import AV_FORMATS
from wids.display.arrayview import named_arrays, picture_in
from wids.display.fieldview import unpacked
from wids.display.mediaview import checked_image, draw_wave, frames_of, orientation
from wids.display.pixels import (
    MAX_DARK,
    MAX_UNNAMED_LABELS,
    VOID,
    ArrayDrawing,
    Label,
    draw_array,
    draw_labels,
    draw_values,
    label_values,
    names_labels,
)
from wids.errors import DecodeError

__all__ = [
    "CUT_IS_SAID",
    "Thumbnail",
    "film_strip",
    "makes_picture",
    "thumbnail",
]

JPEG_QUALITY = 85
MAX_FLAT_COLOURS = 128  # distinct colours of a picture that counts as a drawing, not a photograph
MAX_TINY_PIXELS = 64 * 64  # of an image that is always encoded without loss
LOSSY_FORMATS = {"JPEG", "MPO"}  # these change values slightly, so they cannot hold labels
JPEG_START, JPEG_END = b"\xff\xd8", b"\xff\xd9"
MAX_TRAILER_NBYTES = 4096  # behind the end of a JPEG
MAX_AVERAGED_PIXELS = 1 << 24  # of an image whose pixels are all read
MAX_WHOLE_JPEG_PIXELS = 1 << 25  # of a JPEG that may be decoded at its full size
# Pillow's operation for each EXIF orientation.
TURNS = dict(
    enumerate(
        (
            None,
            "FLIP_LEFT_RIGHT",
            "ROTATE_180",
            "FLIP_TOP_BOTTOM",
            "TRANSPOSE",
            "ROTATE_270",
            "TRANSVERSE",
            "ROTATE_90",
        ),
        start=1,
    )
)
STRIP_FRAMES, STRIP_COLUMNS = 8, 4
MAX_BAND_PIXELS = 1 << 22  # that are read at a time where some are picked
MAX_SIDE = 4096  # pixels
MAX_ARRAY_SIDE = 1024  # of larger arrays, every n-th row and column is taken


CUT_IS_SAID = "This file is cut: it is drawn as far as it goes."


@dataclass(frozen=True)
class Thumbnail:
    """A small picture, encoded.

    Attributes:
        media_type: "image/png" for drawings and pictures with transparency, else "image/jpeg".
        data: The encoded bytes.
        width: Pixels.
        height: Pixels.
        labels: Legend of a label map; see `wids.display.pixels.ArrayDrawing`.
        value_range: Values that are drawn black and white if the values were stretched.
        is_cut: Whether the file ends early, so that only a part of it is drawn.
    """

    media_type: str
    data: bytes
    width: int
    height: int
    labels: tuple[Label, ...] = ()
    value_range: tuple[float, float] | None = None
    is_cut: bool = False


@dataclass(frozen=True)
class _Fit:
    """Framing of a whole image, by its longer side; a `wids.codecs.framing.Framing`."""

    side: int

    def frame(self, width: int, height: int) -> tuple[tuple[int, int, int, int], tuple[int, int]]:
        """Return the whole image as the box."""
        scale = min(1.0, self.side / max(width, height))
        size = max(1, round(width * scale)), max(1, round(height * scale))
        return (0, 0, width, height), size


def makes_picture(extension: str) -> bool:
    """Return whether fields of an extension can make a picture with the installed libraries.

    >>> makes_picture(".jpg"), makes_picture(".txt")
    (True, False)
    """
    kind = field_kind(extension)
    library = LIBRARIES.get(kind)
    # Sounds that only ffmpeg can read have no waveform; its videos have a first frame.
    silent = kind == "audio" and format_suffix(extension) in AV_FORMATS
    return kind in PICTURES and not silent and (library is None or bool(load_if_present(library)))


def thumbnail(extension: str, data: bytes | memoryview, *, size: int) -> Thumbnail:
    """Draw a small picture of a field.

    Images are rotated by their EXIF orientation. Masks of few values are drawn as label maps in
    distinct colours; arrays and images with 16 bits or floats are stretched to visible grey levels.
    JPEGs are decoded at a fraction of their size if that is enough; one that was cut is drawn as
    far as it goes.

    Args:
        extension: With its leading dot, such as ".seg.png".
        data: The whole field.
        size: Most pixels of the longer side, in [1, 4096]; small images are not enlarged.

    Raises:
        DecodeError: The field makes no picture, is damaged, or is too large to be decoded.
        ValueError: The size is out of range.

    >>> thumbnail(".ppm", b"P6 200 100 255 " + bytes(60_000), size=50).height
    25
    """
    if not 1 <= size <= MAX_SIDE:
        raise ValueError(f"size: expected 1 to {MAX_SIDE} pixels, got {size}")
    kind = field_kind(extension)
    if kind not in PICTURES:
        raise DecodeError(f"no picture of {extension!r}: a field of kind {kind!r} makes none")
    try:
        return PICTURES[kind](extension, unpacked(extension, data), size)
    except Exception as error:  # a decoder may raise anything for a damaged field
        raise DecodeError(
            f"no picture of {extension!r}: {type(error).__name__}: {error}"
        ) from error


def film_strip(extension: str, data: bytes | memoryview, *, size: int) -> Thumbnail:
    """Draw eight frames of a video at even distances, in rows of four.

    Args:
        extension: With its leading dot, such as ".avi".
        data: The whole field.
        size: Most pixels of the width.

    Raises:
        DecodeError: It is no video, is damaged, or PyAV is not installed.
    """
    try:
        pil = load("PIL.Image", "pillow")
        side = max(size // STRIP_COLUMNS, 1)
        frames = []
        for frame in frames_of(format_suffix(extension), unpacked(extension, data), STRIP_FRAMES):
            frame.thumbnail((side, side))
            frames.append(frame)
        width, height = frames[0].size
        rows = -(-len(frames) // STRIP_COLUMNS)
        sheet = pil.new("RGB", (min(len(frames), STRIP_COLUMNS) * width, rows * height))
        for number, frame in enumerate(frames):
            row, column = divmod(number, STRIP_COLUMNS)
            sheet.paste(frame, (column * width, row * height))
    except Exception as error:  # a decoder may raise anything for a damaged field
        raise DecodeError(f"no frames of {extension!r}: {type(error).__name__}: {error}") from error
    return _encoded(sheet, lossless=False)


def _of_array(extension: str, data: bytes | memoryview, size: int) -> Thumbnail:
    array = picture_in(named_arrays(format_suffix(extension), data))
    drawing = draw_array(array, MAX_ARRAY_SIDE, named_labels=names_labels(extension))
    return _of_drawing(drawing, size)


def _of_sound(_extension: str, data: bytes | memoryview, size: int) -> Thumbnail:
    return _of_drawing(ArrayDrawing(draw_wave(data, size)), size)


def _of_film(extension: str, data: bytes | memoryview, size: int) -> Thumbnail:
    image = next(frames_of(format_suffix(extension), data, 1))
    _, wanted = _Fit(size).frame(*image.size)
    return _encoded(image.resize(wanted), lossless=False)


def _of_image(extension: str, data: bytes | memoryview, size: int) -> Thumbnail:
    try:
        return _of_whole_image(extension, data, size)
    except (DecodeError, OSError):
        if data[:2] != JPEG_START or JPEG_END in bytes(data[-MAX_TRAILER_NBYTES:]):
            raise
        # With an end, libjpeg leaves grey what is not there.
        drawn = _of_whole_image(extension, bytes(data) + JPEG_END, size)
        return replace(drawn, is_cut=True)


def _of_whole_image(extension: str, data: bytes | memoryview, size: int) -> Thumbnail:
    image = checked_image(data)
    turn = TURNS[orientation(image)]
    drawing = _drawing_of(image, size, named_labels=names_labels(extension))
    if drawing is not None:
        return _of_drawing(drawing, size, turn)
    mode = _shown_mode(image)
    most = MAX_WHOLE_JPEG_PIXELS if image.format in LOSSY_FORMATS else MAX_AVERAGED_PIXELS
    if image.width * image.height > most:
        return _of_large(image, size, mode)
    # Pillow and not torch, whose import would delay the first thumbnail by seconds.
    decode = ImageDecoder(
        "PIL",
        mode=mode,
        size=_Fit(size),
        exif_transpose=turn is not None,
        backend="pillow",
    )
    small = decode(data)
    # As JPEG, a photograph takes a tenth of the bytes of a PNG. But JPEG distorts the flat colours
    # of drawings, and the pixels of small digits and icons, which take few bytes in either format.
    tiny = image.width * image.height <= MAX_TINY_PIXELS
    few = small.getcolors(MAX_FLAT_COLOURS) is not None
    return _encoded(small, lossless=mode == "RGBA" or tiny or few)


def _of_large(image: Any, size: int, mode: str) -> Thumbnail:
    """Draw a large image from some of its pixels, since a copy of it would take too much memory.

    A JPEG is decoded at half of its size or less: a progressive one takes six bytes a pixel before
    the first is decoded.
    """
    pil = load("PIL.Image", "pillow")
    turn = TURNS[orientation(image)]
    if image.format in LOSSY_FORMATS:
        _, wanted = _Fit(min(size, max(image.size) // 2)).frame(*image.size)
        image.draft(mode, wanted)
    else:
        _, wanted = _Fit(MAX_SIDE).frame(*image.size)
        image = image.resize(wanted, pil.Resampling.NEAREST)
    image = image if image.mode == mode else image.convert(mode)
    turned = image if turn is None else image.transpose(pil.Transpose[turn])
    _, wanted = _Fit(size).frame(*turned.size)
    small = turned if turned.size == wanted else turned.resize(wanted)
    return _encoded(small, lossless=mode == "RGBA")


def _drawing_of(image: Any, size: int, *, named_labels: bool) -> ArrayDrawing | None:
    """Draw an image whose values are data (label map, 16 bits, floats); None for other images.

    The drawing is as the image is stored, not turned by its EXIF orientation.
    """
    if image.mode.startswith(("I", "F")):  # Pillow would clip these values at 255
        values = _picked(image, min(2 * size, MAX_SIDE))
        return draw_values(values, named_labels=named_labels)
    lossy = image.format in LOSSY_FORMATS or "transparency" in image.info
    if image.mode not in {"L", "P"} or lossy:
        return None
    # Pixels are picked and not averaged, since an average of two labels could be a third label.
    values = _picked(image, size)
    found = label_values(values, named_labels=named_labels or image.mode == "P")
    if found is None or (not named_labels and found.size > MAX_UNNAMED_LABELS):
        return None
    return draw_labels(values, found, _palette_of(image, found))


def _picked(image: Any, side: int) -> np.ndarray:
    """Return every n-th row and column of an image, as `every_nth` does of an array.

    Pillow copies the pixels twice to make an array of them, so a large image is read in bands.
    """
    step = max(1, math.ceil(max(image.size) / side))
    rows = step * max(1, MAX_BAND_PIXELS // (image.width * step))
    bands = (
        np.asarray(image.crop((0, top, image.width, min(top + rows, image.height))))
        for top in range(0, image.height, rows)
    )
    return np.concatenate([band[::step, ::step].copy() for band in bands])


def _palette_of(image: Any, found: np.ndarray) -> np.ndarray | None:
    """Return the palette's colours for values; None if the colours are almost black."""
    if image.mode != "P":
        return None
    palette = np.array(image.getpalette("RGB"), np.uint8).reshape(-1, 3)
    if found.max() >= len(palette):
        return None
    colours = palette[found]
    grey = bool((colours == colours[:, :1]).all())
    return None if grey and colours[colours < VOID].max(initial=0) <= MAX_DARK else colours


def _shown_mode(image: Any) -> str:
    """Return the mode in which an image is drawn: grey, colours, or colours with transparency."""
    if image.mode in {"RGBA", "LA", "PA", "La", "RGBa"} or "transparency" in image.info:
        return "RGBA"
    return "L" if image.mode in {"1", "L"} else "RGB"


def _of_drawing(drawing: ArrayDrawing, size: int, turn: str | None = None) -> Thumbnail:
    pil = load("PIL.Image", "pillow")
    image = pil.fromarray(np.ascontiguousarray(drawing.pixels))
    image = image if turn is None else image.transpose(pil.Transpose[turn])
    _, wanted = _Fit(size).frame(*image.size)
    if wanted != image.size:
        image = image.resize(wanted, pil.Resampling.NEAREST if drawing.labels else None)
    encoded = _encoded(image, lossless=True)
    return replace(encoded, labels=drawing.labels, value_range=drawing.value_range)


def _encoded(image: Any, *, lossless: bool) -> Thumbnail:
    stream = io.BytesIO()
    if lossless:
        image.save(stream, "PNG", compress_level=1)
        media_type = "image/png"
    else:
        image.save(stream, "JPEG", quality=JPEG_QUALITY, subsampling=0)
        media_type = "image/jpeg"
    return Thumbnail(media_type, stream.getvalue(), image.width, image.height)


LIBRARIES = {"audio": "soundfile", "video": "av"}
PICTURES: dict[str, Callable[[str, bytes | memoryview, int], Thumbnail]] = {
    "array": _of_array,
    "audio": _of_sound,
    "image": _of_image,
    "video": _of_film,
}
