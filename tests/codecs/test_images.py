"""Images: every path against Pillow, whole and at a size, and what must be refused."""

import io
import pickle
import struct
import sys

import numpy as np
import pytest
from helpers.pictures import draw, photos, psnr, save
from helpers.specimens import png_bomb
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageOps, UnidentifiedImageError

from wids.base.optional import load_if_present
from wids.codecs.decode import SampleDecoder
from wids.codecs.framing import CenterCrop, Resize
from wids.codecs.images import ImageDecoder, open_image
from wids.errors import DecodeError

PICTURE = draw(301, 203)
JPEG = save(PICTURE, "JPEG", quality=90)
LARGE = save(draw(1203, 907), "JPEG", quality=90)


def with_orientation(data, orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    return save(Image.open(io.BytesIO(data)), "JPEG", exif=exif)


def files():
    """Encode one picture in every format, mode and flavour that is common in the wild."""
    colour, grey = Image.fromarray(PICTURE), Image.fromarray(PICTURE[..., 0])
    alpha = colour.copy()
    alpha.putalpha(grey)
    yield "jpeg", JPEG
    yield "jpeg grey", save(grey, "JPEG")
    yield "jpeg progressive", save(colour, "JPEG", progressive=True)
    yield "jpeg 444", save(colour, "JPEG", subsampling=0)
    yield "jpeg 422", save(colour, "JPEG", subsampling=1)
    yield "jpeg cmyk", save(colour.convert("CMYK"), "JPEG")
    yield "jpeg 411", save(colour, "JPEG", subsampling="4:1:1")
    yield "jpeg optimised", save(colour, "JPEG", optimize=True, quality=40)
    yield "jpeg restarts", save(colour, "JPEG", restart_marker_blocks=7)
    yield "jpeg odd", save(PICTURE[:199, :297], "JPEG")
    yield "jpeg one pixel", save(PICTURE[:1, :1], "JPEG")
    yield "png", save(colour, "PNG")
    yield "png grey", save(grey, "PNG")
    yield "png alpha", save(alpha, "PNG")
    yield "png palette", save(colour.convert("P"), "PNG")
    yield "png bits", save(grey.convert("1"), "PNG")
    yield "png 16 bit", save(np.arange(3000, dtype="u2").reshape(50, 60), "PNG")
    yield "png grey alpha", save(alpha.convert("LA"), "PNG")
    yield "ppm", save(colour, "PPM")
    yield "pgm", save(grey, "PPM")
    yield "pbm", save(grey.convert("1"), "PPM")
    yield "gif", save(colour.convert("P"), "GIF")
    yield "bmp", save(colour, "BMP")
    yield "tiff", save(colour, "TIFF")
    yield "webp", save(alpha, "WEBP", lossless=True)
    yield "avif", save(colour, "AVIF")
    yield "jpeg2000", save(colour, "JPEG2000")


FILES = dict(files())


def pillow(data, mode=None):
    image = Image.open(io.BytesIO(data))
    if image.mode == "I;16" and mode is not None:
        # Pillow would cut off what is above 255; OpenCV's way is the oracle of a test below.
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    if mode == "L":
        image.draft("L", image.size)  # colour JPEGs hold their luma; other formats ignore this
    return np.asarray(image if mode in (None, image.mode) else image.convert(mode))


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("mode", [None, "L", "RGB", "RGBA"])
def test_numpy_images_equal_pillows(name, mode):
    """Arrays have Pillow's type, shape and pixels in each mode, and are writable."""
    got = ImageDecoder("numpy", mode=mode)(FILES[name])
    expected = pillow(FILES[name], mode)
    assert got.dtype == expected.dtype
    np.testing.assert_array_equal(got, expected)
    assert got.flags.writeable
    assert got.flags.c_contiguous


@pytest.mark.parametrize("name", [name for name in FILES if name.startswith("jpeg ")])
@pytest.mark.parametrize("mode", [None, "L", "RGB", "RGBA"])
@pytest.mark.parametrize("size", [None, Resize(50), CenterCrop(64, resize=80)])
def test_the_fast_decoder_gives_pillows_pixels(name, mode, size):
    """Whole images equal Pillow's, and resized images differ by rounding only."""
    fast = ImageDecoder("numpy", mode, size)(FILES[name])
    slow = ImageDecoder("numpy", mode, size, backend="pillow")(FILES[name])
    assert np.abs(fast.astype(int) - slow).max() <= (0 if size is None else 1)


@pytest.mark.parametrize("path", photos(), ids=lambda path: path.name)
def test_real_photos_decode_as_pillow_decodes_them(path):
    """Real photos equal Pillow's when whole, and are within 35 dB when reduced."""
    data = path.read_bytes()
    np.testing.assert_array_equal(ImageDecoder("numpy")(data), pillow(data))
    resized = Image.fromarray(pillow(data, "RGB")).resize((112, 112), Image.Resampling.BILINEAR)
    got = ImageDecoder("numpy", "RGB", Resize((112, 112)))(data)
    assert psnr(got, resized) > 35


DEEP = (np.arange(64 * 48).reshape(48, 64) * 21).astype(np.uint16)


@pytest.mark.parametrize("name", ["png", "pgm", "tiff"])
def test_sixteen_bits_become_eight_by_their_high_byte(name):
    """16-bit values become their high byte, as in OpenCV; unconverted they keep 16 bits."""
    cv2 = pytest.importorskip("cv2")
    files = {
        "png": save(DEEP, "PNG"),
        "tiff": save(DEEP, "TIFF"),
        "pgm": b"P5 64 48 65535 " + DEEP.astype(">u2").tobytes(),
    }
    expected = cv2.imdecode(np.frombuffer(files[name], np.uint8), cv2.IMREAD_COLOR)
    for mode in ("RGB", "L"):
        got = ImageDecoder("numpy", mode)(files[name])
        np.testing.assert_array_equal(got, expected if mode == "RGB" else expected[..., 0])
        assert np.asarray(ImageDecoder("PIL", mode)(files[name])).mean() == got.mean()
    assert ImageDecoder("numpy", size=Resize((48, 64)))(files[name]).mean() == expected.mean()
    np.testing.assert_array_equal(ImageDecoder("numpy")(files[name]), DEEP)


@pytest.mark.parametrize("pixels", [np.float32([[0.1, 0.9]]), np.int32([[1, 1 << 20]])])
def test_values_without_a_range_are_never_cut_to_bytes(pixels):
    """Floats and 32-bit integers keep their values, and raise for any other mode."""
    data = save(pixels, "TIFF")
    np.testing.assert_array_equal(ImageDecoder("numpy")(data), pixels)
    for decode in (ImageDecoder("torch"), ImageDecoder(mode="L"), ImageDecoder(size=Resize(1))):
        with pytest.raises(DecodeError, match="its values have no fixed range"):
            decode(data)


def test_what_is_transparent_in_a_palette_becomes_alpha():
    """A transparent colour of a palette or an image becomes alpha, as in Pillow."""
    colour = Image.fromarray(PICTURE).quantize(16)
    for data in (
        save(colour, "PNG", transparency=3),
        save(colour, "GIF", transparency=3),
        save(Image.fromarray(PICTURE), "PNG", transparency=tuple(map(int, PICTURE[0, 0]))),
    ):
        got = ImageDecoder("numpy", "RGBA")(data)
        np.testing.assert_array_equal(got, pillow(data, "RGBA"))
        assert set(np.unique(got[..., 3])) == {0, 255}


@pytest.mark.parametrize("file_format", ["GIF", "WEBP", "PNG", "TIFF"])
def test_the_first_frame_stands_for_an_animation(file_format):
    """An animation decodes to its first frame."""
    frames = [Image.fromarray(draw(40, 30, seed)) for seed in range(3)]
    if file_format == "GIF":
        frames = [frame.quantize(64) for frame in frames]
    options = {"lossless": True} if file_format == "WEBP" else {}
    data = save(frames[0], file_format, save_all=True, append_images=frames[1:], **options)
    assert Image.open(io.BytesIO(data)).n_frames == 3
    first = np.asarray(frames[0].convert("RGB"))
    np.testing.assert_array_equal(ImageDecoder("numpy", "RGB")(data), first)


def test_pil_images_are_opened_lazily_in_their_own_mode():
    """PIL images are decoded at their first use, with Pillow's pixels."""
    broken = JPEG[:2000]
    image = ImageDecoder()(broken)
    assert image.size == (301, 203)
    with pytest.raises(OSError, match="truncated"):
        image.load()
    for data in FILES.values():
        np.testing.assert_array_equal(np.asarray(ImageDecoder()(data)), pillow(data))


def test_torch_images_have_their_channels_first():
    """Tensors are uint8, contiguous, channels first, and RGB by default."""
    torch = pytest.importorskip("torch")
    for name, data in FILES.items():
        tensor = ImageDecoder("torch")(data)
        expected = pillow(data, "RGB").transpose(2, 0, 1)
        assert tensor.dtype == torch.uint8, name
        assert tensor.is_contiguous()
        np.testing.assert_array_equal(tensor.numpy(), expected)
    assert tuple(ImageDecoder("torch", "L")(JPEG).shape) == (1, 203, 301)
    assert tuple(ImageDecoder("torch", "RGBA", Resize(10))(JPEG).shape) == (4, 10, 14)


@pytest.mark.parametrize("backend", ["auto", "pillow"])
def test_center_crops_are_those_of_pillow(backend):
    """A crop has the original pixels; with `resize`, the image is resized first."""
    crop = ImageDecoder("numpy", size=CenterCrop((100, 120)), backend=backend)(JPEG)
    np.testing.assert_array_equal(crop, pillow(JPEG)[51:151, 90:210])
    small = ImageDecoder("numpy", size=CenterCrop(64, resize=128), backend=backend)(JPEG)
    left, top, side = 99, 50, 102
    box = Image.fromarray(pillow(JPEG)).crop((left, top, left + side, top + side))
    expected = np.asarray(box.resize((64, 64), Image.Resampling.BILINEAR), int)
    assert np.abs(small - expected).max() <= 1


@pytest.mark.parametrize("backend", ["auto", "pillow"])
@pytest.mark.parametrize("shrink", [2.1, 3, 4.5, 9])
def test_scaled_decoding_stays_close_to_full_decoding(backend, shrink):
    """A JPEG decoded at 1/2, 1/4 or 1/8 is close to the whole image resized."""
    size = Resize((int(907 / shrink), int(1203 / shrink)))
    scaled = ImageDecoder("numpy", size=size, backend=backend)(LARGE)
    full = ImageDecoder("numpy", size=size, backend=backend, scaled=False)(LARGE)
    assert scaled.shape == full.shape
    assert 28 < psnr(scaled, full) < np.inf


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("to", ["PIL", "numpy"])
def test_exif_orientation_counts_only_where_asked_for(orientation, to):
    """Images are decoded as stored, or as Pillow's exif_transpose turns them on request."""
    data = with_orientation(JPEG, orientation)
    np.testing.assert_array_equal(np.asarray(ImageDecoder(to)(data)), pillow(data))
    upright = ImageOps.exif_transpose(Image.open(io.BytesIO(data)))
    got = ImageDecoder(to, exif_transpose=True)(data)
    np.testing.assert_array_equal(np.asarray(got), np.asarray(upright))
    resized = ImageDecoder("numpy", size=Resize(50), exif_transpose=True)(data)
    assert resized.shape == ((50, 74, 3) if orientation < 5 else (74, 50, 3))


@pytest.mark.parametrize("name", ["EPS", "PDF"])
def test_formats_that_run_programs_are_no_images(name):
    """PostScript, which Pillow would give to Ghostscript, is refused under any name."""
    with pytest.raises(UnidentifiedImageError):
        open_image(save(PICTURE, name))
    with pytest.raises(DecodeError, match="expected an image of a known format"):
        SampleDecoder("PIL")({".jpg": save(PICTURE, name)})


def jpeg_of_size(width, height):
    """Change the size in a JPEG's frame header."""
    place = JPEG.index(b"\xff\xc0") + 5
    return JPEG[:place] + struct.pack(">HH", height, width) + JPEG[place + 4 :]


@pytest.mark.parametrize("data", [png_bomb(), jpeg_of_size(60_000, 60_000)])
@pytest.mark.parametrize("decode", [ImageDecoder(), ImageDecoder("numpy", size=Resize(10))])
def test_decompression_bombs_are_refused(data, decode):
    """Pillow's limit of pixels holds on every path before memory is allocated."""
    with pytest.raises(Image.DecompressionBombError):
        decode(data)


def test_pillows_limit_is_the_users_to_set(monkeypatch):
    """Between the limit and twice the limit a warning is given, on the fast path too."""
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 50_000)
    with pytest.warns(Image.DecompressionBombWarning):
        ImageDecoder("numpy")(JPEG)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10_000)
    with pytest.raises(Image.DecompressionBombError):
        ImageDecoder("numpy")(JPEG)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", None)
    assert ImageDecoder("numpy")(JPEG).shape == (203, 301, 3)


def test_a_thin_image_cannot_blow_up_by_its_aspect():
    """An image of one row whose resized form would take gigabytes is refused."""
    line = save(np.zeros((1, 65_000, 3), np.uint8), "PNG")
    with pytest.raises(DecodeError, match="MAX_IMAGE_PIXELS"):
        ImageDecoder("numpy", size=Resize(256))(line)
    wide = save(np.zeros((1, 60_000, 3), np.uint8), "JPEG")
    with pytest.raises(DecodeError, match="MAX_IMAGE_PIXELS"):
        ImageDecoder("numpy", size=Resize(256))(wide)


def test_a_truncated_jpeg_is_an_error_and_never_grey_pixels():
    """A truncated JPEG raises on both paths; no pixels are made up."""
    for backend in ("auto", "pillow"):
        with pytest.raises(OSError, match="truncated"):
            ImageDecoder("numpy", backend=backend)(JPEG[: len(JPEG) // 2])


def test_it_works_with_pillow_alone(monkeypatch):
    """Without the fast libraries pixels are equal, resized ones up to one level."""
    wanted = [ImageDecoder("numpy"), ImageDecoder("numpy", "L", CenterCrop(50, resize=60))]
    fast = [decode(JPEG).astype(int) for decode in wanted]
    for module in ("simplejpeg", "torch", "cv2"):
        monkeypatch.setitem(sys.modules, module, None)
    load_if_present.cache_clear()
    try:
        slow = [decode(JPEG) for decode in wanted]
    finally:
        load_if_present.cache_clear()
    np.testing.assert_array_equal(fast[0], slow[0])
    assert np.abs(fast[1] - slow[1]).max() <= 1


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"to": "tf"}, "to: expected"), ({"mode": "XYZ"}, "mode:"), ({"backend": "x"}, "backend:")],
)
def test_wrong_settings_are_named(settings, message):
    """A wrong setting raises when the decoder is made."""
    with pytest.raises(ValueError, match=message):
        ImageDecoder(**settings)


def test_decoders_are_values():
    """Decoders compare, pickle and print by their settings."""
    decode = ImageDecoder("torch", "RGB", CenterCrop(224, resize=256), antialias=False)
    assert pickle.loads(pickle.dumps(decode)) == decode
    assert "CenterCrop(size=224, resize=256)" in repr(decode)
    assert repr(decode) in repr(SampleDecoder(decode))


@given(
    st.sampled_from(["jpeg", "jpeg progressive", "png palette", "gif", "tiff", "webp", "bmp"]),
    st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 255)), min_size=1, max_size=8),
    st.integers(0, 5000),
)
def test_damaged_images_are_an_error_or_a_picture(name, changes, cut):
    """Changed and cut files give a DecodeError or pixels on every path."""
    pytest.importorskip("torch")
    data = bytearray(FILES[name])
    for position, byte in changes:
        data[position % len(data)] = byte
    data = bytes(data if cut % 3 else data[: cut % len(data)])
    for images in ("numpy", ImageDecoder("torch", size=CenterCrop(20, resize=30))):
        decoded = SampleDecoder(images, on_error="collect")({".img.jpg": data})
        if decoded[".img.jpg"] is None:
            assert "cannot decode field '.img.jpg'" in decoded["__errors__"][".img.jpg"]
