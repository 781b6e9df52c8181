"""Thumbnails have the right shape and colours, contain only pixels, and stay within bounds."""

import io
from contextlib import suppress

import numpy as np
import pytest
import safetensors.numpy
from helpers.pictures import draw, film, psnr, save
from helpers.specimens import npy, npz, png_bomb, specimens, turned_jpeg
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageOps

from wids.display.mediaview import EXIF_ORIENTATION, summarise_image
from wids.display.pixels import draw_array, is_picture, levels
from wids.display.thumbnails import Thumbnail, thumbnail
from wids.errors import DecodeError

PICTURES = [".jpg", ".jpeg", ".png", ".gif", ".webp", ".tif", ".bmp", ".ppm", ".mask.PNG",
            ".depth.png", ".npy", ".npz", ".ten", ".wav", ".flac", ".mp4"]  # fmt: skip


def opened(small: Thumbnail) -> Image.Image:
    """Decode a thumbnail and check its stated facts."""
    image = Image.open(io.BytesIO(small.data))
    assert image.get_format_mimetype() == small.media_type
    assert image.size == (small.width, small.height)
    image.load()
    return image


@pytest.mark.parametrize("extension", PICTURES)
def test_every_kind_of_picture_has_a_thumbnail(extension: str) -> None:
    """Images, arrays, sound and video have a thumbnail of at most the requested size."""
    for size in (1, 16, 4096):
        image = opened(thumbnail(extension, specimens()[extension], size=size))
        assert max(image.size) <= size


@pytest.mark.parametrize("extension", [".txt", ".cls", ".svg", ".pkl", ".gz", ".safetensors"])
def test_other_fields_have_none(extension: str) -> None:
    """A field without a picture raises a DecodeError that names its kind."""
    with pytest.raises(DecodeError, match=r"no picture of"):
        thumbnail(extension, specimens()[extension], size=16)


@pytest.mark.parametrize("size", [0, -1, 4097])
def test_impossible_sizes_are_refused(size: int) -> None:
    """A size out of range is an error that names it."""
    with pytest.raises(ValueError, match=str(size)):
        thumbnail(".jpg", specimens()[".jpg"], size=size)


@given(st.sampled_from(sorted(specimens())), st.data())
def test_damaged_fields_have_a_picture_or_a_decode_error(extension: str, data) -> None:
    """Damaged fields give a picture or a DecodeError, and no other error."""
    content = bytearray(specimens()[extension])
    for _ in range(data.draw(st.integers(0, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    end = data.draw(st.integers(0, len(content)))
    with suppress(DecodeError):
        opened(thumbnail(extension, bytes(content[:end]), size=32))


class TestImages:
    """Thumbnails of images."""

    @pytest.mark.parametrize("file_format", ["JPEG", "PNG", "WEBP"])
    @pytest.mark.parametrize("mode", ["RGB", "L"])
    def test_pixels_are_those_of_pillow(self, file_format: str, mode: str) -> None:
        """Scaled decoding and encoding change the pixels only slightly."""
        whole = Image.fromarray(draw(400, 300)).convert(mode)
        data = save(whole, file_format)
        small = opened(thumbnail(f".{file_format.lower()}", data, size=100))
        expected = Image.open(io.BytesIO(data)).resize((100, 75), Image.Resampling.BOX)
        assert small.size == (100, 75)
        assert psnr(small.convert(mode), expected.convert(mode)) > 22

    def test_digits_and_icons_keep_every_pixel(self) -> None:
        """Small images are encoded without loss."""
        pixels = draw(32, 32)
        small = opened(thumbnail(".png", save(pixels, "PNG"), size=100))
        assert np.array_equal(np.asarray(small), pixels)

    @pytest.mark.parametrize(
        ("extension", "sides", "orientation"),
        [(".seg.tif", (30, 20), turn) for turn in range(1, 9)]
        + [(".tif", (5000, 3400), turn) for turn in (3, 6)]
        + [
            pytest.param(".tif", (5000, 3400), turn, marks=pytest.mark.slow)
            for turn in (1, 2, 4, 5, 7, 8)
        ],
    )
    def test_a_tiff_is_turned_once(
        self, extension: str, sides: tuple[int, int], orientation: int
    ) -> None:
        """Masks and large pictures in TIFF are turned like a PNG of the same pixels."""
        exif = Image.Exif()
        exif[EXIF_ORIENTATION] = orientation
        image = Image.new("L" if extension == ".seg.tif" else "RGB", sides)
        image.paste(Image.new(image.mode, (sides[0] // 4, sides[1] // 2), "white"))
        tiff, png = save(image, "TIFF", exif=exif), save(image, "PNG", exif=exif, compress_level=1)
        small = opened(thumbnail(extension, tiff, size=20)).convert("RGB")
        expected = opened(thumbnail(f"{extension[:-3]}png", png, size=20)).convert("RGB")
        assert small.size == expected.size
        # Of a large one, some pixels are picked before the turn, or after it.
        assert np.abs(np.asarray(small, int) - np.asarray(expected, int)).mean() < 8
        facts = summarise_image(".tif", tiff)
        assert (facts["width"] > facts["height"]) == (small.width > small.height)
        assert facts["orientation"] == 1

    @pytest.mark.parametrize("orientation", range(1, 9))
    def test_exif_orientation_is_applied(self, orientation: int) -> None:
        """The picture is rotated as by Pillow's exif_transpose."""
        from PIL import ImageOps

        data = turned_jpeg(orientation)
        expected = ImageOps.exif_transpose(Image.open(io.BytesIO(data)))
        small = opened(thumbnail(".jpg", data, size=40))
        assert small.size == expected.size
        assert psnr(small, expected) > 25

    @pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "I;16"])
    def test_all_modes_of_png_are_drawn(self, mode: str) -> None:
        """All modes of PNG are drawn: transparency is kept, 16 bits are reduced to eight."""
        image = opened(thumbnail(".png", save(Image.new(mode, (20, 10)), "PNG"), size=20))
        assert image.mode == ("RGBA" if mode in {"LA", "RGBA"} else image.mode)
        assert image.mode in {"L", "RGB", "RGBA"}

    def test_nothing_but_pixels_comes_through(self) -> None:
        """Texts, EXIF, profiles and trailing bytes are removed."""
        from PIL import PngImagePlugin

        script = "<script>alert(1)</script>"
        texts = PngImagePlugin.PngInfo()
        texts.add_text("Comment", script)
        exif = Image.Exif()
        exif[0x010E] = script
        for data, extension in (
            (save(draw(40, 30), "PNG", pnginfo=texts, exif=exif), ".png"),
            (save(draw(40, 30), "JPEG", comment=script, exif=exif), ".jpg"),
        ):
            assert script.encode() in data
            small = thumbnail(extension, data + script.encode(), size=40)
            assert b"script" not in small.data

    def test_bombs_are_refused(self) -> None:
        """Small files that claim too many pixels or a too long side are refused."""
        for width, height in ((60_000, 60_000), (8_200, 8_200), (63_000_000, 1), (1, 63_000_000)):
            with pytest.raises(DecodeError, match=r"pixels|bomb"):
                thumbnail(".png", png_bomb(width, height), size=10)

    def test_a_jpeg_of_very_many_scans_is_refused(self) -> None:
        """A JPEG with very many scans is refused undecoded; usual progressive files are drawn."""
        progressive = save(draw(64, 48), "JPEG", progressive=True)
        assert opened(thumbnail(".jpg", progressive, size=64)).size == (64, 48)
        last = progressive.rindex(b"\xff\xda")
        repeated = progressive[:-2] + progressive[last:-2] * 900 + progressive[-2:]
        with pytest.raises(DecodeError, match="scans"):
            thumbnail(".jpg", repeated, size=64)


def mask_of(*values: int, dtype: str = "u1") -> np.ndarray:
    """Make a mask of stripes, one for each value."""
    return np.repeat(np.array(values, dtype), 20)[:, None].repeat(50, 1)


class TestMasks:
    """Images and arrays of class numbers, drawn as label maps."""

    @pytest.mark.parametrize("extension", [".png", ".npy", ".tif"])
    def test_masks_of_few_values_have_distinct_colours_and_a_legend(self, extension: str) -> None:
        """Labels 0 to 20 get distinct colours and a legend."""
        mask = mask_of(*range(21), 255)
        data = (
            npy(mask) if extension == ".npy" else save(mask, {".tif": "TIFF"}.get(extension, "PNG"))
        )
        small = thumbnail(extension, data, size=640)
        pixels = np.asarray(opened(small).convert("RGB"))
        assert [label.value for label in small.labels] == [*range(21), 255]
        assert sum(label.share for label in small.labels) == pytest.approx(1)
        shown = [pixels[20 * row + 10, 25].astype(int) for row in range(22)]
        assert ["#{:02x}{:02x}{:02x}".format(*each) for each in shown] == [
            label.colour for label in small.labels
        ]
        for row, colour in enumerate(shown):
            assert all(np.abs(colour - other).sum() > 20 for other in shown[:row])

    def test_a_class_has_the_same_colour_in_each_mask(self) -> None:
        """The colour of a label does not depend on the other labels of the mask."""
        drawn = [
            thumbnail(".png", save(mask_of(*values), "PNG"), size=50).labels
            for values in ((0, 7), (3, 7, 9, 255))
        ]
        assert len({label.colour for labels in drawn for label in labels if label.value == 7}) == 1

    def test_palettes_keep_their_colours(self) -> None:
        """An indexed mask is drawn in the colours of its palette."""
        image = Image.fromarray(mask_of(0, 1, 15), "P")
        palette = [0] * 48
        palette[3:6], palette[45:48] = (128, 0, 0), (192, 128, 128)
        image.putpalette(palette)
        labels = thumbnail(".png", save(image, "PNG"), size=60).labels
        assert [label[:2] for label in labels] == [(0, "#000000"), (1, "#800000"), (15, "#c08080")]

    def test_the_name_of_a_field_decides_where_values_do_not(self) -> None:
        """Labels up to 150 are grey levels unless the field's name marks a mask."""
        data = save(mask_of(0, 12, 120), "PNG")
        assert not thumbnail(".png", data, size=60).labels
        assert len(thumbnail(".seg.png", data, size=60).labels) == 3

    @pytest.mark.parametrize("orientation", range(1, 9))
    @pytest.mark.parametrize("mode", ["L", "P", "I;16"])
    def test_masks_are_turned_by_their_exif(self, mode: str, orientation: int) -> None:
        """A mask keeps its labels where EXIF turns it, as Pillow does."""
        values = np.zeros((30, 40), "u2" if mode == "I;16" else "u1")
        values[:10, :30] = 3
        mask = Image.fromarray(values, "P") if mode == "P" else Image.fromarray(values)
        if mode == "P":
            mask.putpalette([part for level in range(256) for part in (level,) * 3])
        exif = Image.Exif()
        exif[EXIF_ORIENTATION] = orientation
        data = save(mask, "PNG", exif=exif)
        small = thumbnail(".seg.png", data, size=40)
        assert [label.value for label in small.labels] == [0, 3]
        expected = np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(data)))) == 3
        level = [int(small.labels[1].colour[at : at + 2], 16) for at in (1, 3, 5)]
        shown = np.asarray(opened(small).convert("RGB"))
        assert np.array_equal((shown == level).all(axis=-1), expected)

    def test_pictures_are_no_label_maps(self) -> None:
        """Photographs, line drawings, JPEGs and colour images are not drawn as label maps."""
        grey = Image.fromarray(draw(64, 64)).convert("L")
        for data in (
            save(grey, "PNG"),
            save(mask_of(0, 255), "PNG"),
            save(mask_of(0, 1, 2), "JPEG"),
            save(draw(64, 64) // 100, "PNG"),
        ):
            assert not thumbnail(".png", data, size=64).labels


class TestArrays:
    """Arrays that can be drawn."""

    @pytest.mark.parametrize(
        ("shape", "picture"),
        [
            ((28, 28), (28, 28)), ((3, 28, 40), (28, 40)), ((28, 40, 3), (28, 40)),
            ((1, 28, 40), (28, 40)), ((28, 40, 1), (28, 40)), ((1, 1, 4, 28, 40), (28, 40)),
            ((28, 40, 4), (28, 40)), ((768,), None), ((4, 4), None), ((2, 28, 28), None),
            ((8, 2000), None), ((), None), ((0, 9), None), ((5, 3, 28, 28), None),
        ],
    )  # fmt: skip
    @pytest.mark.parametrize("dtype", ["u1", "?", "f4", ">i2", "f2", "u8"])
    def test_shapes_decide(self, shape: tuple, picture: tuple | None, dtype: str) -> None:
        """Planes with 1, 3 or 4 channels are pictures; vectors and small matrices are not."""
        array = np.ones(shape, dtype)
        assert is_picture(shape, array.dtype) == (picture is not None)
        if picture is None:
            with pytest.raises(ValueError, match="is no picture"):
                draw_array(array, 100)
        else:
            assert draw_array(array, 100).pixels.shape[:2] == picture
            small = opened(thumbnail(".npy", npy(array), size=100))
            assert small.size == picture[::-1]

    def test_bytes_are_drawn_as_they_are(self) -> None:
        """Arrays of uint8 are drawn as pixels, with channels first or last."""
        pixels = draw(40, 30)
        for array in (pixels, pixels.transpose(2, 0, 1), np.asfortranarray(pixels)):
            small = opened(thumbnail(".npy", npy(array), size=40))
            assert np.array_equal(np.asarray(small), pixels)

    def test_floats_in_the_unit_range_keep_their_colours(self) -> None:
        """Colours in [0, 1] keep their levels, and a dark image is not stretched."""
        pixels = draw(40, 30) // 2
        small = opened(thumbnail(".npy", npy(pixels.astype("f4") / 255), size=40))
        assert np.abs(np.asarray(small).astype(int) - pixels).max() <= 1

    @given(
        st.lists(st.floats(width=64), min_size=1, max_size=30),
        st.sampled_from([(-1, 1), (1, -1)]),
    )
    def test_levels_keep_the_order_of_values(self, values: list[float], shape: tuple) -> None:
        """Levels ascend with the values, from black for the least finite one to white."""
        array = np.array(values).reshape(shape)
        drawn = levels(array).ravel()
        finite = np.isfinite(values)
        assert (drawn[~finite] == 0).all()
        order = np.argsort(np.array(values)[finite], kind="stable")
        assert (np.diff(drawn[finite][order].astype(int)) >= 0).all()

    def test_the_first_array_that_makes_a_picture_is_drawn(self) -> None:
        """The first array of a file that can be drawn is drawn."""
        pixels = draw(40, 30)
        for extension, data in (
            (".npz", npz(vector=np.arange(9), picture=pixels)),
            (".safetensors", safetensors.numpy.save({"a": np.arange(9), "b": pixels})),
        ):
            assert opened(thumbnail(extension, data, size=40)).size == (40, 30)


class TestSoundAndFilm:
    """Waveforms and first frames."""

    def test_the_first_frame_stands_for_a_film(self) -> None:
        """The thumbnail of a video is the first frame that PyAV decodes."""
        small = opened(thumbnail(".mp4", film([draw(64, 48, seed) for seed in range(3)]), size=64))
        assert psnr(np.asarray(small), draw(64, 48, 0)) > 15
