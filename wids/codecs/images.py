"""Decoding of images to PIL, numpy or torch, with optional crop and resize, and their encoding.

Pillow can decode every format and is the reference. If simplejpeg, a binding of libjpeg-turbo, is
installed, it decodes JPEGs to the same pixels in less time. Pillow decodes the files that
simplejpeg refuses, so only Pillow decides about damaged and unusual files.

As in PIL, EXIF orientation is not applied unless `exif_transpose` is set. CMYK and YCCK JPEGs are
decoded by Pillow, which undoes Adobe's inversion and ignores colour profiles. Alpha is dropped, not
blended, in a conversion to RGB. Values of 16 bits are converted to bytes by their high byte.
"""

import io
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from wids.base.optional import load, load_if_present
from wids.codecs.framing import Box, Framing
from wids.errors import DecodeError

__all__ = [
    "IMAGE_TARGETS",
    "ImageDecoder",
    "check_scans",
    "encode_image",
    "fast_library",
    "image_size",
    "jpeg_size",
    "name_failures",
    "open_image",
    "resample",
    "resample_image",
]

IMAGE_TARGETS = ("PIL", "numpy", "torch")
IMAGE_MODES = ("L", "RGB", "RGBA")

# Only formats of pixels: Pillow would also open PostScript, and run Ghostscript on it. Pillow
# imports the readers of the first five itself; the others are imported when a file needs them.
COMMON_FORMATS = ("JPEG", "PNG", "PPM", "GIF", "BMP")
MORE_FORMATS = ("WEBP", "TIFF", "AVIF", "JPEG2000", "TGA", "ICO", "QOI", "PCX", "DDS")

WIDE_MODES = {"I": "32-bit integer", "F": "floating-point"}
JPEG_MAGIC = b"\xff\xd8"
EXIF_ORIENTATION = 0x0112
# A progressive JPEG may have any number of scans, each of which goes through all its pixels: more
# pixels than this in all its scans would take minutes. Photographs have about ten scans.
MAX_SCANNED_PIXELS = 1 << 32
_MARKER = re.compile(rb"\xff+([\x01-\xcf\xd8-\xfe])")  # not those within the data of a scan
_SCAN, _END = 0xDA, 0xD9
_LEAST_SCAN_NBYTES = 10
# Fixed, so that the same picture gives the same file: a change would change digests of shards.
ENCODER_SETTINGS: dict[str, dict[str, Any]] = {
    "JPEG": {"quality": 95},
    "WEBP": {"lossless": True},
}
# simplejpeg's name of the colour space of a file, and the mode in which Pillow opens it.
JPEG_MODES = {"YCbCr": "RGB", "Gray": "L"}
JPEG_COLORSPACES = {"L": "GRAY", "RGB": "RGB", "RGBA": "RGBA"}


def open_image(data: bytes | memoryview) -> Any:
    """Open an image with Pillow, without decoding its pixels yet.

    Args:
        data: The whole file; it is copied, so the image does not depend on the shard.

    Returns:
        A `PIL.Image.Image` whose pixels are decoded at their first use.

    Raises:
        OSError: The data has none of the supported image formats.
        DecodeError: It is a JPEG that would take minutes to decode.
        PIL.Image.DecompressionBombError: The image has over twice `PIL.Image.MAX_IMAGE_PIXELS`
            pixels.
    """
    image = _open_stream(io.BytesIO(data), data)
    check_scans(data, *image.size)
    return image


def image_size(data: bytes | memoryview) -> tuple[int, int]:
    """Return width and height of an image, from the parts of it in which they are stated.

    Args:
        data: The whole file, which is not copied: a field said to be an image may have gigabytes.

    Raises:
        OSError: The data has none of the supported image formats.
        PIL.Image.DecompressionBombError: As for `open_image`.
    """
    width, height = _open_stream(io.BufferedReader(_MemoryStream(data)), data).size
    return width, height


class _MemoryStream(io.RawIOBase):
    """Binary file over memory, which is read without a copy of all of it."""

    def __init__(self, data: bytes | memoryview) -> None:
        self._data, self._position = memoryview(data), 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: len(self._data)}[whence]
        if start + offset < 0:
            raise ValueError(f"cannot seek to {start + offset}, before the start")
        self._position = start + offset
        return self._position

    def readinto(self, buffer: Any) -> int:
        piece = self._data[self._position : self._position + len(buffer)]
        buffer[: len(piece)] = piece
        self._position += len(piece)
        return len(piece)


def _open_stream(stream: io.BufferedIOBase, data: bytes | memoryview) -> Any:
    """Open the image in a stream over its data, by the first format that knows it."""
    pil = load("PIL.Image", "pillow")
    try:
        return pil.open(stream, formats=COMMON_FORMATS)
    except pil.UnidentifiedImageError:
        pil.init()
        stream.seek(0)
        try:
            return pil.open(stream, formats=[name for name in MORE_FORMATS if name in pil.OPEN])
        except pil.UnidentifiedImageError:
            # Pillow's message has only the name of the stream. The first bytes show what the file
            # is, for example a page of HTML.
            raise pil.UnidentifiedImageError(
                f"expected an image of a known format, found {len(data)} bytes that begin with "
                f"{bytes(data[:16])!r}"
            ) from None


def check_scans(data: bytes | memoryview, width: int, height: int) -> None:
    """Raise DecodeError if an image is a JPEG whose scans go through too many pixels.

    Args:
        data: The whole file.
        width: Width of the image in pixels.
        height: Height of the image.

    Raises:
        DecodeError: They would take minutes to decode.
    """
    # Nearly every file is too short to have so many scans, so it need not be searched.
    if len(data) * width * height <= _LEAST_SCAN_NBYTES * MAX_SCANNED_PIXELS:
        return
    most = max(64, MAX_SCANNED_PIXELS // max(1, width * height))
    if len(data) // _LEAST_SCAN_NBYTES <= most or data[:2] != JPEG_MAGIC:
        return
    content = bytes(data)
    # Also counts marks in thumbnails and after the end, so it is only an upper bound.
    if content.count(b"\xff\xda") <= most:
        return
    position, num_scans = 2, 0
    while found := _MARKER.search(content, position):
        if found[1][0] == _END:
            return
        num_scans += found[1][0] == _SCAN
        if num_scans > most:
            raise DecodeError(
                f"a JPEG of {width} x {height} pixels with over {most} scans, which would take "
                "minutes to decode"
            )
        position = found.end() + int.from_bytes(content[found.end() : found.end() + 2], "big")


def name_failures(image: Any, failure: Callable[[Exception], DecodeError]) -> None:
    """Make an opened image raise a `DecodeError` if its pixels cannot be decoded.

    For `isinstance`, comparisons, copies and pickles, the image keeps its class of Pillow.

    Args:
        image: A `PIL.ImageFile.ImageFile`.
        failure: Returns the error to raise in place of Pillow's.
    """
    kind: Any = type(image)  # mypy takes a class for unhashable
    image.__class__ = _naming(kind)
    image.wids_failure = failure


@cache
def _naming(kind: Any) -> Any:
    """Return a subclass of one of Pillow's classes whose `load` raises `DecodeError`."""

    # A subclass: a function stored in the image would refer to the image, and such a cycle is only
    # freed by the garbage collector.
    def load_pixels(self: Any) -> Any:
        try:
            return kind.load(self)
        except DecodeError:
            raise
        except Exception as error:
            # Damaged bytes can make Pillow's readers raise any exception.
            raise self.wids_failure(error) from error

    def reduce_ex(self: Any, protocol: Any) -> tuple[Any, ...]:
        make, (_, *arguments), *state = kind.__reduce_ex__(self, protocol)
        return make, (kind, *arguments), *state

    members = {
        "__module__": kind.__module__,
        "__qualname__": kind.__qualname__,
        "__doc__": kind.__doc__,
        "__class__": property(lambda _: kind),  # used by `==`, `repr` and `isinstance`
        "__reduce_ex__": reduce_ex,
        "load": load_pixels,
    }
    return type(kind.__name__, (kind,), members)


@dataclass(frozen=True)
class ImageDecoder:
    """Decoder of images to one kind of value, at an optional size.

    Attributes:
        to: "PIL"; "numpy": uint8 mostly, (height, width) or (height, width, channels); "torch": a
            tensor of shape (channels, height, width).
        mode: "L", "RGB" or "RGBA"; None keeps the image's own mode (for torch: RGB). The "L" of a
            colour JPEG is its luma plane, which costs no colour conversion.
        size: `Resize`, `CenterCrop`, `RandomResizedCrop`, or another `Framing`; None for the
            whole image as it is. Images in other modes than these three then become RGB.
        antialias: Whether all pixels count when an image shrinks; see `resample`.
        scaled: Whether a JPEG that shrinks to a half or less may be decoded at 1/2, 1/4 or 1/8 of
            its size, never below the requested size: faster, at a slight loss (docs/decoding.md).
        fast: Whether JPEGs are decoded by simplejpeg's fast transform and plain upsampling of
            colours: a tenth faster, at some 43 dB from the exact pixels.
        exif_transpose: Whether to turn and flip the image by its EXIF orientation.
        backend: "auto" for the fastest library installed; "pillow" for the same pixels everywhere.

    >>> from wids.codecs.framing import Resize
    >>> decode = ImageDecoder("numpy", mode="L", size=Resize(2))
    >>> decode(b"P6 6 4 255 " + bytes(72))  # black, in the simplest of formats
    array([[0, 0, 0],
           [0, 0, 0]], dtype=uint8)
    """

    to: str = "PIL"
    mode: str | None = None
    size: Framing | None = None
    antialias: bool = True
    scaled: bool = True
    fast: bool = False
    exif_transpose: bool = False
    backend: str = "auto"

    def __post_init__(self) -> None:
        for name, allowed in (
            ("to", IMAGE_TARGETS),
            ("mode", (None, *IMAGE_MODES)),
            ("backend", ("auto", "pillow")),
        ):
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name}: expected one of {allowed}, got {getattr(self, name)!r}")
        if self.size is not None and not hasattr(self.size, "frame"):
            raise TypeError(
                "size: expected Resize(...), CenterCrop(...), RandomResizedCrop(...) or an object "
                f"with a method frame(width, height), got {self.size!r}"
            )

    def __call__(self, data: bytes | memoryview) -> Any:
        """Decode one image.

        Args:
            data: The whole file.

        Raises:
            DecodeError: The resized image would exceed Pillow's limit of pixels.
            OSError: Pillow cannot read the file.
        """
        if self.to == "PIL" and self.size is None and not self.exif_transpose:
            image = open_image(data)
            return _converted(image, self.mode or image.mode)
        pixels = self._decode_jpeg(data)
        if pixels is None:
            pixels = self._decode_pillow(data)
        if self.to == "numpy":
            return np.ascontiguousarray(pixels)
        if self.to == "PIL":
            return load("PIL.Image", "pillow").fromarray(np.ascontiguousarray(pixels))
        planes = pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)
        return load("torch", "torch").from_numpy(np.ascontiguousarray(planes))

    def _wanted_mode(self, own_mode: str) -> str:
        """Return the mode to decode to, for an image of the given mode."""
        if self.mode is not None:
            return self.mode
        if self.to == "torch" or (self.size is not None and own_mode not in IMAGE_MODES):
            return "RGB"
        return own_mode

    def _decode_jpeg(self, data: bytes | memoryview) -> np.ndarray | None:
        """Decode with simplejpeg, or return None if Pillow must decode the image."""
        simplejpeg = load_if_present("simplejpeg") if self.backend == "auto" else None
        if simplejpeg is None or data[:2] != JPEG_MAGIC or self._must_turn(data):
            return None
        # CMYK is left to Pillow, because simplejpeg converts it to RGB by another formula.
        try:
            height, width, colorspace, _ = simplejpeg.decode_jpeg_header(data)
            # Pillow warns of images above its limit, and refuses those above twice the limit.
            if colorspace not in JPEG_MODES or width * height > _pixel_limit():
                return None
            check_scans(data, width, height)
            plan = self._plan(width, height)
            mode = self._wanted_mode(JPEG_MODES[colorspace])
            pixels = simplejpeg.decode_jpeg(
                data,
                JPEG_COLORSPACES[mode],
                min_height=-(-height // plan.divisor),
                min_width=-(-width // plan.divisor),
                min_factor=plan.divisor,
                fastdct=self.fast,
                fastupsample=self.fast,
            )
        except DecodeError:
            raise
        except ValueError:  # damaged or unusual: Pillow decides
            return None
        return self._fit(pixels[..., 0] if mode == "L" else pixels, plan)

    def _decode_pillow(self, data: bytes | memoryview) -> np.ndarray:
        """Decode with Pillow."""
        image = open_image(data)
        # This decodes the pixels, so only upright images are decoded at a reduced size below.
        if self._must_turn(data):
            image = load("PIL.ImageOps", "pillow").exif_transpose(image)
        width, height = image.size
        plan = self._plan(width, height)
        mode = self._wanted_mode(image.mode)
        if data[:2] == JPEG_MAGIC:
            # A draft is decoded at 1/divisor of the size, and a grey one from the luma alone.
            image.draft(mode, tuple(max(1, side // plan.divisor) for side in image.size))
        image = _converted(image, mode)
        if plan.shares is not None and fast_library(self.backend, antialias=self.antialias) is None:
            # Cropped and resized by Pillow, without a conversion to numpy and back.
            part = image.crop(plan.box(*image.size))
            return np.array(resample_image(part, plan.size, antialias=self.antialias))
        return self._fit(np.array(image), plan)

    def _must_turn(self, data: bytes | memoryview) -> bool:
        """Return whether an EXIF orientation has to be applied."""
        return self.exif_transpose and open_image(data).getexif().get(EXIF_ORIENTATION, 1) != 1

    def _plan(self, width: int, height: int) -> "_Plan":
        """Return the box, final size and decoding scale for an image of the given size."""
        if self.size is None:
            return _Plan(1, None, (width, height))
        box, size = self.size.frame(width, height)
        if min(size) < 1 or size[0] * size[1] > _pixel_limit():
            raise DecodeError(
                f"an image of {width} x {height} pixels would become {size[0]} x {size[1]} by "
                f"{self.size}; expected at least 1 x 1 and at most PIL.Image.MAX_IMAGE_PIXELS"
            )
        shrink = min((box[2] - box[0]) / size[0], (box[3] - box[1]) / size[1])
        # libjpeg-turbo has fast transforms for 1/2, 1/4 and 1/8, and Pillow offers no others.
        divisor = next((k for k in (8, 4, 2) if self.scaled and shrink >= k), 1)
        return _Plan(
            divisor, (box[0] / width, box[1] / height, box[2] / width, box[3] / height), size
        )

    def _fit(self, pixels: np.ndarray, plan: "_Plan") -> np.ndarray:
        """Crop to the plan's box and resample to its size."""
        if plan.shares is None:
            return pixels
        left, top, right, bottom = plan.box(pixels.shape[1], pixels.shape[0])
        pixels = pixels[top:bottom, left:right]
        if pixels.shape[1::-1] == plan.size:
            return pixels
        return resample(pixels, plan.size, antialias=self.antialias, backend=self.backend)


class _Plan(NamedTuple):
    """Plan for decoding one image to its size."""

    divisor: int  # the image is decoded at 1/divisor of its size
    shares: tuple[float, float, float, float] | None  # the box, as shares of width and height
    size: tuple[int, int]  # width and height of the result

    def box(self, width: int, height: int) -> Box:
        """Return the box for a decoded size, which may be smaller than the size of the file."""
        left, top, right, bottom = self.shares or (0.0, 0.0, 1.0, 1.0)
        left, top = round(left * width), round(top * height)
        # Scaled decoding may shrink a thin box to less than a pixel.
        return left, top, max(round(right * width), left + 1), max(round(bottom * height), top + 1)


def jpeg_size(data: bytes | memoryview) -> tuple[int, int] | None:
    """Return width and height of a JPEG that all decoders read alike, or None.

    Args:
        data: The whole file.

    Returns:
        None if the file is not a JPEG, has other colours than grey or YCbCr, more pixels than
        Pillow decodes without a warning, or too many scans (`check_scans`).

    >>> jpeg_size(b"GIF89a") is None
    True
    """
    if data[:2] != JPEG_MAGIC:
        return None
    simplejpeg = load_if_present("simplejpeg")
    try:
        if simplejpeg is not None:
            height, width, colorspace, _ = simplejpeg.decode_jpeg_header(data)
            plain = colorspace in JPEG_MODES
        else:
            image = open_image(data)
            (width, height), plain = image.size, image.mode in {"RGB", "L"}
        check_scans(data, width, height)
    except (ValueError, OSError):
        return None
    return (width, height) if plain and width * height <= _pixel_limit() else None


def _converted(image: Any, mode: str) -> Any:
    """Convert an image to a mode; values of 16 bits become their high byte.

    Raises:
        DecodeError: Its values have no fixed range that could be scaled to bytes.
    """
    if image.mode == mode:
        return image
    # Pillow would clip values at 255 without a warning, which makes a 16-bit image white.
    if image.mode.startswith("I;16") or (image.mode, image.format) == ("I", "PPM"):
        high = np.asarray(image).astype(np.uint16) >> 8
        image = load("PIL.Image", "pillow").fromarray(high.astype(np.uint8))
    elif image.mode in WIDE_MODES:
        raise DecodeError(
            f"an image of {WIDE_MODES[image.mode]} values cannot be converted to {mode!r}, because "
            'its values have no fixed range; decode it to "numpy" or "PIL" without mode and size, '
            "and scale the values"
        )
    return image if image.mode == mode else image.convert(mode)


def _pixel_limit() -> float:
    """Return Pillow's limit of pixels, which users can set, or infinity if they removed it."""
    return load("PIL.Image", "pillow").MAX_IMAGE_PIXELS or math.inf


def encode_image(file_format: str, image: Any) -> bytes:
    """Write an image with fixed settings: JPEG at quality 95, WebP without loss.

    Args:
        file_format: Pillow's name of the format, such as "PNG".
        image: A PIL image, or an array of shape (height, width) or (height, width, channels).

    Raises:
        TypeError: `image` is neither.
        ValueError: The format cannot hold such images.
    """
    pil = load("PIL.Image", "pillow")
    if isinstance(image, pil.Image):
        picture = image
    elif isinstance(image, np.ndarray):
        # Decoding gives grey images two axes; others keep a third one of length 1.
        squeezed = image[:, :, 0] if image.ndim == 3 and image.shape[2] == 1 else image
        picture = pil.fromarray(np.ascontiguousarray(squeezed))
    else:
        raise TypeError("expected a PIL image or an array")
    stream = io.BytesIO()
    try:
        picture.save(stream, file_format, **ENCODER_SETTINGS.get(file_format, {}))
    except OSError as error:  # raised by Pillow for a mode that the format cannot hold
        raise ValueError(f"{file_format}: {error}; convert the image first") from error
    return stream.getvalue()


def resample(
    pixels: np.ndarray, size: tuple[int, int], *, antialias: bool, backend: str = "auto"
) -> np.ndarray:
    """Resize an image by the fastest installed library.

    With antialiasing, each result pixel is the triangle-weighted mean of all the pixels that it
    covers, as by Pillow's BILINEAR: by torch if it is installed (its kernel for bytes follows
    Pillow-SIMD's and differs by at most one level), else by Pillow. Without, each result pixel is
    interpolated between its four neighbours, and other pixels are ignored: by OpenCV if it is
    installed, else by Pillow.

    Args:
        pixels: uint8, shape (height, width) or (height, width, 3 or 4), four being RGBA.
        size: Width and height of the result.
        antialias: Whether all pixels count when an image shrinks.
        backend: "auto" for the fastest library installed, "pillow" for Pillow always.

    Returns:
        A new array, uint8, of shape (size[1], size[0]) or (size[1], size[0], 3 or 4).

    >>> resample(np.uint8([[0, 0, 100, 100]]), (2, 1), antialias=True)
    array([[14, 86]], dtype=uint8)
    """
    # Only Pillow weights colours by alpha, so that transparent pixels do not bleed.
    module = None if pixels.shape[2:] == (4,) else fast_library(backend, antialias=antialias)
    if module is None:
        image = load("PIL.Image", "pillow").fromarray(np.ascontiguousarray(pixels))
        return np.array(resample_image(image, size, antialias=antialias))
    if antialias:
        return _resample_torch(module, pixels, size)
    return np.asarray(module.resize(pixels, size, interpolation=module.INTER_LINEAR))


def fast_library(backend: str, *, antialias: bool) -> Any | None:
    """Return the library that resizes faster than Pillow, or None for Pillow.

    Args:
        backend: "auto" or "pillow", as for `resample`.
        antialias: Whether the library must antialias.

    >>> fast_library("pillow", antialias=True) is None
    True
    """
    return load_if_present("torch" if antialias else "cv2") if backend == "auto" else None


def _resample_torch(torch: Any, pixels: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Resize with torch, in the calling thread alone."""
    # torch would copy a crop with all its threads. Loaders decode in several threads, and so many
    # teams of threads together were slower than few threads, measured on 16 cores.
    pixels = np.ascontiguousarray(pixels)
    image = pixels if pixels.ndim == 3 else pixels[..., None]
    # In this order of axes, torch sees its "channels last" layout, in and out. The axes are turned
    # by numpy: each call of torch releases Python's lock, and many threads wait long to get it.
    resized = torch.nn.functional.interpolate(
        torch.from_numpy(image[None].transpose(0, 3, 1, 2)),
        (size[1], size[0]),
        mode="bilinear",
        antialias=True,
    )
    array: np.ndarray = resized.numpy()[0].transpose(1, 2, 0)
    return array if pixels.ndim == 3 else array[..., 0]


def resample_image(image: Any, size: tuple[int, int], *, antialias: bool) -> Any:
    """Resize a PIL image by Pillow.

    Args:
        image: A `PIL.Image.Image`.
        size: Width and height of the result.
        antialias: Whether all pixels count when an image shrinks.
    """
    pil = load("PIL.Image", "pillow")
    bilinear = pil.Resampling.BILINEAR
    if antialias:
        return image.resize(size, bilinear)
    # `transform` uses four neighbours, `resize` all the pixels that a result pixel covers.
    box = (0, 0, image.width, image.height)
    return image.transform(size, pil.Transform.EXTENT, box, bilinear)
