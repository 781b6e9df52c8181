"""The table of decoders: what each extension becomes, and what answers a field that fails."""

import io
import json
import pickle
import re
import sys
import warnings

import numpy as np
import pytest
from helpers.pictures import draw, save
from hypothesis import given
from hypothesis import strategies as st

from wids.codecs.arrays import encode_npy, encode_npz, encode_safetensors
from wids.codecs.decode import SampleDecoder
from wids.codecs.formats import pack_field
from wids.codecs.images import ImageDecoder
from wids.codecs.tenbin import encode_tenbin
from wids.errors import DecodeError

PICTURE = draw(40, 30)
PNG = save(PICTURE, "PNG")


def fail(error, extension, sample):
    """Answer with what was asked, for tests of the handler."""
    return (str(error), extension, sample["__key__"])


def shout(data):
    return str(data, "ascii").upper()


def decode_one(extension, data, **options):
    return SampleDecoder(**options)({extension: data})[extension]


@pytest.mark.parametrize("wrap", [bytes, memoryview, io.BytesIO])
def test_fields_may_be_bytes_views_or_streams(wrap):
    """Bytes, memoryviews and streams of the same field decode to the same value."""
    sample = {".cls": wrap(b"12"), ".npy": wrap(encode_npy([1.5])), ".png": wrap(PNG)}
    decoded = SampleDecoder("numpy")({"__key__": "a", **sample})
    assert decoded[".cls"] == 12
    assert decoded[".npy"].tolist() == [1.5]
    np.testing.assert_array_equal(decoded[".png"], PICTURE)


def test_values_that_are_decoded_already_stay():
    """A second pass over a sample changes nothing."""
    decode = SampleDecoder()
    once = decode({"__key__": "a", ".cls": b"1", ".json": b"[1]", ".bin": b"x"})
    stream = once[".bin"]
    assert decode(once) == once
    assert decode(once)[".bin"] is stream


@pytest.mark.parametrize(
    ("extension", "data", "value"),
    [
        (".TXT", b"a", "a"),
        (".Json", b"[2]", [2]),
        (".target.cls", b"2", 2),
        (".a.b.c.txt", b"deep", "deep"),
        (".txt.GZ", pack_field(".gz", b"a"), "a"),
        (".json.zst", pack_field(".zst", b"[3]"), [3]),
    ],
)
def test_extensions_match_by_their_last_parts_in_any_case(extension, data, value):
    """An extension is matched by its last components, in upper or lower case."""
    assert decode_one(extension, data) == value


@pytest.mark.parametrize("extension", [".gz", ".zst", ".txt.gz.gz", ".", "..", ".jpg2", ".txtx"])
def test_what_no_entry_names_stays_a_stream(extension):
    """Unknown extensions, and wrappers alone or doubled, become binary streams."""
    data = pack_field(".gz", b"text")
    value = decode_one(extension, data)
    assert isinstance(value, io.BytesIO)
    if extension != ".txt.gz.gz":
        assert value.getvalue() == data


@pytest.mark.parametrize(
    ("extension", "data"),
    [
        (".pkl", b""),
        (".pickle", pickle.dumps(1)),
        (".PKL", b"x"),
        (".obj.pkl.gz", pack_field(".gz", b"x")),
    ],
)
def test_pickles_are_refused(extension, data):
    """A pickle raises an error that names `allow_pickle`."""
    with pytest.raises(DecodeError, match="allow_pickle=True"):
        decode_one(extension, data)


def test_pickles_are_read_where_they_are_allowed():
    """With `allow_pickle`, pickles, torch files and object arrays are decoded."""
    torch = pytest.importorskip("torch")
    stream = io.BytesIO()
    torch.save({"set": {1, 2}, "range": range(3)}, stream)
    objects = io.BytesIO()
    np.save(objects, np.array([{"a": 1}, None], dtype=object), allow_pickle=True)
    decode = SampleDecoder(allow_pickle=True)
    decoded = decode(
        {".pkl": pickle.dumps({1}), ".pt": stream.getvalue(), ".npy": objects.getvalue()}
    )
    assert decoded[".pkl"] == {1}
    assert decoded[".pt"]["range"] == range(3)
    assert decoded[".npy"].tolist() == [{"a": 1}, None]
    with pytest.raises(DecodeError, match="allow_pickle=True"):
        decode_one(".npy", objects.getvalue())


@pytest.mark.parametrize(
    ("extension", "data", "get"),
    [
        (".npy", encode_npy(np.arange(4.0)), lambda value: value),
        (".ten", encode_tenbin([np.arange(4.0)]), lambda value: value[0]),
        (".tb", encode_tenbin([np.arange(4.0)]), lambda value: value[0]),
        (".npz", encode_npz({"x": np.arange(4.0)}), lambda value: value["x"]),
        (".safetensors", encode_safetensors({"x": np.arange(4.0)}), lambda value: value["x"]),
    ],
)
def test_arrays_can_be_written_to_unless_they_are_views(extension, data, get):
    """Arrays own writable memory; with copy=False they are read-only views of the bytes."""
    array = get(decode_one(extension, memoryview(data)))
    array[0] = 7
    assert array.tolist() == [7, 1, 2, 3]
    view = get(decode_one(extension, memoryview(data), copy=False))
    assert view.tolist() == [0, 1, 2, 3]
    if extension not in (".npz", ".safetensors"):  # which libraries unpack into memory of their own
        assert not view.flags.writeable
        assert np.shares_memory(view, np.frombuffer(data, np.uint8))


def test_values_do_not_keep_the_shard_mapped():
    """No value of a default decoder keeps the buffer of the shard."""
    sources = {
        ".png": PNG,
        ".npy": encode_npy(np.arange(3)),
        ".ten": encode_tenbin([np.arange(3)]),
        ".txt": b"text",
        ".bin": b"stream",
        ".json": b"[1]",
    }
    buffers = {extension: bytearray(data) for extension, data in sources.items()}
    views = {extension: memoryview(buffer) for extension, buffer in buffers.items()}
    decoded = SampleDecoder()(views)
    for extension, view in views.items():
        view.release()
        buffers[extension].clear()  # fails with BufferError where anything still looks at it
    np.testing.assert_array_equal(np.asarray(decoded[".png"]), PICTURE)


def test_the_users_entries_come_first_and_the_longest_suffix_wins():
    """A decoder for .seg.png does not change .png, and None leaves a field a stream."""
    decode = SampleDecoder(
        "numpy", decoders={".seg.png": len, ".TXT": shout, ".json": None, ".new": bytes}
    )
    sample = {".png": PNG, ".seg.png": PNG, ".left.SEG.png": PNG, ".txt": b"a", ".new": b"n"}
    decoded = decode({**sample, ".json": b"[1]", ".note.txt.gz": pack_field(".gz", b"b")})
    assert decoded[".png"].shape == (30, 40, 3)
    assert decoded[".seg.png"] == decoded[".left.SEG.png"] == len(PNG)
    assert (decoded[".txt"], decoded[".note.txt.gz"], decoded[".new"]) == ("A", "B", b"n")
    assert decoded[".json"].getvalue() == b"[1]"


def test_an_error_names_the_field_and_the_sample():
    """The message has index, key, extension, shard and cause, but not the URL's query."""
    sample = {
        "__key__": "cats/0001",
        "__index__": 17,
        "__shard__": "https://me:secret@host/data/a.tar?token=secret",
        ".meta.json": b"{broken",
    }
    with pytest.raises(DecodeError) as caught:
        SampleDecoder()(sample)
    message = str(caught.value)
    for part in ("17", "'cats/0001'", "'.meta.json'", "https://host/data/a.tar", "JSONDecodeError"):
        assert part in message
    assert "secret" not in message
    assert isinstance(caught.value.__cause__, json.JSONDecodeError)


def test_lack_of_memory_names_the_field_and_ctrl_c_passes():
    """MemoryError becomes a DecodeError that names the field; KeyboardInterrupt is not caught."""

    def decode(data):
        raise MemoryError

    with pytest.raises(DecodeError, match=r"'\.txt'.*MemoryError"):
        decode_one(".txt", b"", decoders={".txt": decode})
    assert decode_one(".txt", b"", decoders={".txt": decode}, on_error={".txt": "gone"}) == "gone"

    def interrupt(data):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        decode_one(".txt", b"", decoders={".txt": interrupt}, on_error="collect")


def test_collect_puts_the_messages_into_the_sample():
    """With "collect", bad fields are None and `__errors__` has their messages."""
    decoded = SampleDecoder(on_error="collect")(
        {"__key__": "a", ".cls": b"cat", ".txt": b"good", ".npy": b"bad"}
    )
    assert decoded[".txt"] == "good"
    assert decoded[".cls"] is None
    assert decoded[".npy"] is None
    assert list(decoded["__errors__"]) == [".cls", ".npy"]
    assert "'.cls' of key 'a'" in decoded["__errors__"][".cls"]
    assert "__errors__" not in SampleDecoder(on_error="collect")({".cls": b"1"})


@pytest.mark.parametrize("on_error", ["collect", fail])
def test_a_missing_library_and_a_refused_pickle_are_no_faults_of_the_data(on_error, monkeypatch):
    """`on_error` does not handle missing libraries and refused pickles: they always raise."""
    with pytest.raises(DecodeError, match="allow_pickle=True"):
        decode_one(".pkl", b"", on_error=on_error)
    monkeypatch.setitem(sys.modules, "cbor2", None)
    clear_loaded()
    with pytest.raises(DecodeError, match=re.escape("wids[cbor]")):
        decode_one(".cbor", b"\x01", on_error=on_error)
    clear_loaded()


def clear_loaded():
    from wids.base.optional import load, load_if_present

    load.cache_clear()
    load_if_present.cache_clear()


@pytest.mark.parametrize(
    ("extension", "module", "extra"),
    [
        (".mp", "msgpack", "msgpack"),
        (".cbor", "cbor2", "cbor"),
        (".txt.zst", "zstandard", "zstd"),
        (".wav", "soundfile", "audio"),
        (".mp4", "av", "video"),
    ],
)
def test_a_missing_library_is_named_with_its_extra(extension, module, extra, monkeypatch):
    """The message names the library, the field and the command that installs it."""
    monkeypatch.setitem(sys.modules, module, None)
    clear_loaded()
    named = rf"'{module}'.*wids\[{extra}\].*pip install {module}"
    with pytest.raises(DecodeError, match=named) as caught:
        decode_one(extension, b"data", media=True)
    assert repr(extension) in str(caught.value)
    clear_loaded()


def test_decoders_are_pickled():
    """A pickled decoder has the same settings, and decodes."""
    decoder = SampleDecoder(
        ImageDecoder("numpy", mode="L"), decoders={".up": shout}, on_error="collect", copy=False
    )
    decoder({".png": PNG})
    again = pickle.loads(pickle.dumps(decoder))
    assert repr(again) == repr(decoder)
    assert again({".up": b"a", ".cls": b"x"})[".up"] == "A"


@given(st.text(max_size=30), st.binary(max_size=30))
def test_any_name_and_content_gives_a_value_or_a_decode_error(name, data):
    """Any extension and content give a value or a DecodeError."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            SampleDecoder("numpy", media=True)({f".{name}": data})
    except DecodeError:
        pass
