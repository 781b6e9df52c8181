"""Views of fields: what each kind shows, and that no bytes can do harm."""

import gzip
import json
import mmap
import os
import tempfile

import cbor2
import msgpack
import numpy as np
import pytest
from helpers.pictures import save
from helpers.specimens import npy, npz_bomb, png_bomb, specimens, tone, turned_jpeg
from hypothesis import example, given
from hypothesis import strategies as st
from PIL import Image

from wids.codecs.formats import FORMAT_OF, field_kind, media_type
from wids.display.fieldview import FieldView, hex_rows, view_field
from wids.display.thumbnails import thumbnail

pytest.importorskip("soundfile")
pytest.importorskip("av")

MOST_JSON = 1 << 21  # bytes; what any view stays below
EXTENSIONS = sorted(
    {*FORMAT_OF, *specimens(), ".seg.png", ".NPY", ".pkl", ".gz", ".", ".é", ".a.b.c"}
)


def depth(value) -> int:
    """Count the levels of a JSON value."""
    children = value.values() if isinstance(value, dict) else value
    if not isinstance(value, dict | list):
        return 0
    return 1 + max(map(depth, children), default=0)


def check_json(view: FieldView) -> None:
    """Check the promises that hold for the summary of every view."""
    text = json.dumps(view.summary, allow_nan=False, ensure_ascii=False)
    assert len(text.encode()) < MOST_JSON  # lone surrogates would not be encoded at all
    assert depth(view.summary) < 64
    assert json.loads(text) == view.summary
    assert view.error is None or 0 < len(view.error.encode()) < 10_000


@pytest.mark.parametrize("extension", specimens())
def test_valid_fields_are_viewed_without_an_error(extension: str) -> None:
    """A field that the format's own library wrote has a view, from bytes or a memoryview."""
    data = specimens()[extension]
    view = view_field(extension, data)
    check_json(view)
    assert (view.error, view.nbytes) == (None, len(data))
    assert view_field(extension, memoryview(data)) == view


@given(st.sampled_from(EXTENSIONS), st.binary(max_size=500))
def test_no_bytes_make_a_view_fail(extension: str, data: bytes) -> None:
    """Any bytes give a view with a bounded JSON summary."""
    check_json(view_field(extension, data))


@given(st.sampled_from(sorted(specimens())), st.data())
def test_damaged_fields_are_viewed(extension: str, data: st.DataObject) -> None:
    """Valid files that were truncated or changed in a few bytes have a view."""
    content = bytearray(specimens()[extension])
    for _ in range(data.draw(st.integers(0, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    end = data.draw(st.integers(0, len(content)))
    check_json(view_field(extension, bytes(content[:end])))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)


@given(json_values)
@example([float("nan"), float("-inf"), 2**53 + 1, 2**53])
def test_documents_become_trees(value: object) -> None:
    """Documents come unchanged, but for numbers that JSON lacks, which are text."""
    view = view_field(".json", json.dumps(value).encode())
    check_json(view)
    assert view.error is None
    assert view.summary["tree"] == json.loads(json.dumps(value), parse_constant=str)


@pytest.mark.parametrize(
    "data",
    [
        b"[" * 100_000,
        b"[" * 60 + b"]" * 60,
        b"[" + b"1," * 10_000 + b"1]",
        b'{"a":' * 3000 + b"1" + b"}" * 3000,
    ],
)
def test_large_and_deep_documents_are_shown_as_text(data: bytes) -> None:
    """Documents too large or deep for a tree are shown as text of up to 20,000 characters."""
    view = view_field(".json", data)
    check_json(view)
    assert "tree" not in view.summary
    assert data.decode().startswith(view.summary["text"].removesuffix("…"))
    assert view.summary["truncated"] == (len(data) > 20_000)


def test_documents_that_hold_themselves_are_refused_as_trees() -> None:
    """CBOR documents that contain themselves or repeat a list often are refused as trees."""
    endless = bytes.fromhex("d81c81d81d00")  # 28([29(0)])
    check_json(view_field(".cbor", endless))
    shared = [["ha"] * 10]
    for _ in range(10):
        shared = [shared] * 10
    laughs = cbor2.dumps(shared, value_sharing=True)
    check_json(view_field(".cbor", laughs))
    check_json(view_field(".cbor", cbor2.dumps({("a", ("b",)): 1, frozenset({1}): 2})))
    assert "tree" not in view_field(".cbor", laughs).summary


def test_values_that_json_lacks_become_text() -> None:
    """Bytes, dates and keys of other types, as in msgpack and CBOR, become text."""
    packed = msgpack.packb({1: b"\x00\xff", "time": 1.5}, strict_types=False)
    assert view_field(".mp", packed).summary["tree"] == {"1": "b'\\x00\\xff'", "time": 1.5}
    tree = view_field(
        ".cbor", cbor2.dumps({1: b"\x00\xff", None: cbor2.CBORTag(4000, [1])})
    ).summary
    assert tree["tree"] == {"1": "b'\\x00\\xff'", "None": {"tag 4000": [1]}}


def test_half_a_character_hides_nothing_behind_it() -> None:
    """A lone surrogate in JSON is shown as an escape, with the text after it."""
    view = view_field(".json", rb'{"a": "\ud800 and more"}')
    assert view.summary["tree"] == {"a": "\\ud800 and more"}


class TestText:
    """Text, cut if it is long."""

    @given(st.text(min_size=1, max_size=50), st.integers(19_990, 20_010))
    def test_long_text_is_cut_between_characters(self, text: str, length: int) -> None:
        """Long text is cut between characters and marked as truncated."""
        long = (text * (length // len(text) + 1))[:length]
        summary = view_field(".txt", long.encode()).summary
        assert summary["truncated"] == (length > 20_000)
        assert long.startswith(summary["text"].removesuffix("…"))

    def test_bytes_that_are_no_text_are_named_and_shown(self) -> None:
        """Latin-1 in a `.txt` is an error that names the byte, with the readable text."""
        view = view_field(".txt", "grün".encode("latin-1"))
        assert "byte 0xfc in position 2" in view.error
        assert view.summary["text"] == "gr\ufffdn"
        assert view.summary["hex"][0].startswith("00000000  67 72 fc 6e")


class TestLargeDocuments:
    """Fields of documents and classes that are far larger than these are."""

    @pytest.mark.parametrize("label", [b"1" * 5000, b"1" + b" " * 30_000 + b"2", b"7" * 30_000])
    def test_a_class_of_many_bytes_is_refused(self, label: bytes) -> None:
        """A class is read whole or not at all, and the reason names its size."""
        view = view_field(".cls", label)
        assert (
            view.error == f"a class is a number of a few digits, this field has {len(label)} bytes"
        )


class TestClass:
    """Classes with and without names."""

    @pytest.mark.parametrize(
        ("names", "shown"),
        [(["a", "b", "c"], "c"), ({2: "two"}, "two"), ({"2": "deux"}, "deux"), (["a"], None),
         (None, None), ({}, None), ([], None)],
    )  # fmt: skip
    def test_names_come_from_lists_and_mappings(self, names: object, shown: str | None) -> None:
        """Names are a list from 0 on, or a mapping with numbers or their text as keys."""
        summary = view_field(".cls", b"2", class_names=names).summary
        assert summary == {"value": 2, "name": shown}

    @given(st.integers())
    def test_all_integers_are_shown(self, number: int) -> None:
        """Integers stay integers, also those that JavaScript would round."""
        assert view_field(".cls", str(number).encode()).summary["value"] == number


class TestImages:
    """Images by their headers."""

    @pytest.mark.parametrize("mode", ["1", "L", "P", "RGB", "RGBA", "I;16", "LA"])
    def test_size_mode_and_format_are_those_of_pillow(self, mode: str) -> None:
        """Size, mode and format of an image are those that Pillow reads."""
        summary = view_field(".png", save(Image.new(mode, (7, 5)), "PNG")).summary
        assert summary == {
            "width": 7, "height": 5, "mode": mode, "format": "PNG", "orientation": 1
        }  # fmt: skip

    @pytest.mark.parametrize("orientation", range(1, 9))
    def test_exif_orientation_is_told(self, orientation: int) -> None:
        """The summary has the stored size and the EXIF orientation."""
        summary = view_field(".jpg", turned_jpeg(orientation)).summary
        assert (summary["width"], summary["height"]) == (40, 30)
        assert summary["orientation"] == orientation

    def test_bombs_are_described_or_refused_undecoded(self) -> None:
        """A PNG that claims 3.6 gigapixels is an error, and is not unpacked."""
        view = view_field(".png", png_bomb())
        check_json(view)
        assert "decompression bomb" in view.error


class TestMedia:
    """Sound and video by their headers."""

    @pytest.mark.parametrize("file_format", ["WAV", "FLAC", "OGG", "AIFF", "MP3"])
    @pytest.mark.parametrize("channels", [1, 2])
    def test_sound_tells_length_rate_and_channels(self, file_format: str, channels: int) -> None:
        """Length, rate and channels are those that soundfile wrote; MP3 pads its end."""
        data = tone(file_format, 0.5, 8000, channels)
        summary = view_field(f".{file_format.lower()}", data).summary
        assert (summary["rate"], summary["channels"]) == (8000, channels)
        assert summary["duration"] == pytest.approx(0.5, abs=0.2 if file_format == "MP3" else 0)

    def test_films_tell_length_and_size(self) -> None:
        """Five frames at ten per second last half a second."""
        summary = view_field(".mp4", specimens()[".mp4"]).summary
        assert (summary["width"], summary["height"], summary["rate"]) == (64, 48, 10)
        assert summary["duration"] == pytest.approx(0.5)
        assert summary["format"] == "mpeg4"

    def test_playlists_are_not_followed(self) -> None:
        """A video that is a playlist opens none of its URLs and files."""
        view = view_field(".mp4", b"#EXTM3U\n#EXTINF:1,\nfile:///etc/passwd\n")
        assert view.error is not None

    @pytest.mark.parametrize("extension", [".avi", ".mkv", ".ogv", ".webm"])
    def test_films_of_another_extension_are_read(self, extension: str) -> None:
        """A video is read as what its bytes are, which is said beside its figures."""
        data = specimens()[".mp4"]
        found, right = view_field(extension, data), view_field(".mp4", data)
        assert found.error is None
        assert (
            found.summary.pop("unlike")
            == f"the bytes are an MP4 video, the extension is {extension}"
        )
        assert found.summary == right.summary
        assert "unlike" not in view_field(".mov", data).summary
        assert thumbnail(extension, data, size=64) == thumbnail(".mp4", data, size=64)


class TestBytes:
    """The hex dump of other fields."""

    @given(st.binary(max_size=100))
    def test_rows_are_those_of_hexdump(self, data: bytes) -> None:
        """Each row has offset, sixteen bytes and ASCII text, as in hexdump."""
        rows = hex_rows(data)
        assert len(rows) == -(-len(data) // 16)
        assert bytes.fromhex("".join(row[10:57] for row in rows)) == data
        assert [row[:8] for row in rows] == [f"{16 * n:08x}" for n in range(len(rows))]
        assert "".join(row[59:] for row in rows) == "".join(
            chr(byte) if 32 <= byte < 127 else "." for byte in data
        )

    def test_pickles_are_dumped_not_read(self, tmp_path) -> None:
        """A pickle that would create a file is only dumped."""
        trap = tmp_path / "trap"
        pickled = b"cos\nsystem\n(S'touch " + os.fsencode(trap) + b"'\ntR."
        for extension in (".pkl", ".pickle", ".pth", ".pt", ".npy", ".npz", ".safetensors"):
            check_json(view_field(extension, pickled))
        objects = view_field(".npy", npy(np.array([object()], object), allow_pickle=True))
        assert objects.error.startswith("PermissionError")
        assert not trap.exists()


class TestCompressed:
    """Fields compressed as `.gz` and `.zst`."""

    def test_what_is_inside_is_viewed(self) -> None:
        """Kind and summary are those of the decompressed field, the size that of the stored one."""
        packed = gzip.compress(b'{"a": 1}')
        view = view_field(".meta.JSON.gz", packed)
        assert (view.kind, view.nbytes) == ("json", len(packed))
        assert view.summary == {"tree": {"a": 1}}

    def test_bombs_are_refused(self) -> None:
        """A field that unpacks to more than 64 MiB is an error."""
        bomb = gzip.compress(bytes(80 << 20))
        for data in (bomb, bomb[:-4] + b"\1\0\0\0"):
            view = view_field(".txt.gz", data)
            check_json(view)
            assert "max_nbytes" in view.error
        assert view_field(".npz", npz_bomb()).error is not None


@pytest.mark.parametrize("extension", [".bin", ".txt", ".json", ".npy", ".cls", ".jpg", ".wav"])
def test_gigabyte_fields_are_viewed_from_little_memory(extension: str) -> None:
    """A sparse, mapped field of four gigabytes is viewed without being read."""
    head = npy(np.zeros(0, "u1"))[:10] + (
        b"{'descr': '|u1', 'fortran_order': False, 'shape': (4294967000,), }"
    )
    with tempfile.TemporaryFile() as file:
        file.truncate(1 << 32)
        file.write(head.ljust(127) + b"\n" if extension == ".npy" else b" ")
        file.flush()
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            view = view_field(extension, memoryview(mapped))
            check_json(view)
            assert view.nbytes == 1 << 32
            if extension == ".npy":
                assert view.error is None
                assert view.summary["arrays"][0]["sampled"] is True
                del view


@pytest.mark.parametrize("extension", [".svg", ".html", ".htm", ".xml", ".pdf", ".js", ".jpg.html"])
def test_what_can_hold_scripts_is_never_a_media_type(extension: str) -> None:
    """Fields that may contain scripts are sent as plain files and viewed as text."""
    assert media_type(extension) == "application/octet-stream"
    assert field_kind(extension) in {"text", "bytes"}


@given(st.text(max_size=12))
@example(".png\r\nSet-Cookie: x")
@example(".wav.gz")
def test_media_types_are_from_the_list(extension: str) -> None:
    """The media type is one of pixels, sound or video, or that of a plain file."""
    kind = media_type(extension)
    assert kind.split("/")[0] in {"image", "audio", "video"} or kind == "application/octet-stream"
    assert kind.replace("/", "").replace("-", "").isalnum()
