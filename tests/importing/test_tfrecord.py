"""TFRecord: what another library wrote reads as it was given, and damage is named by its byte."""

import gzip
import json
import random
import re
import struct
import sys
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import pytest
from helpers.importing import imported, write
from helpers.shards import REPOSITORY
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from wids.base.optional import load
from wids.cli import main
from wids.importing.options import ImportOptions
from wids.importing.tfrecord import open_tfrecords, parse_example, read_records

WRITTEN = REPOSITORY / "tests" / "data" / "importing"


def masked(data: bytes) -> bytes:
    crc = google_crc32c.value(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def framed(record: bytes) -> bytes:
    length = struct.pack("<Q", len(record))
    return length + masked(length) + record + masked(record)


def message(number: int, data: bytes) -> bytes:
    """Write one field of a protocol buffer that holds bytes."""
    size, head = len(data), b""
    while size >= 0x80:
        head += bytes([size & 0x7F | 0x80])
        size >>= 7
    return bytes([number << 3 | 2]) + head + bytes([size]) + data


def example(features: dict[str, bytes]) -> bytes:
    """Write an Example of features that are packed lists already."""
    entries = [
        message(1, message(1, name.encode()) + message(2, data)) for name, data in features.items()
    ]
    return message(1, b"".join(entries))


@pytest.mark.parametrize("name", ["written.tfrecord", "written.tfrecord.gz"])
def test_what_another_library_wrote_reads_as_it_was_given(name: str) -> None:
    """Pictures and bytes are fields, the label is the class, and the rest is JSON."""
    samples = imported(str(WRITTEN / name), "--field", "text=txt")
    assert len(samples) == 3
    for number, sample in enumerate(samples):
        assert sample[".jpg"][:3] == b"\xff\xd8\xff"
        assert sample[".bin"] == b"\x00\xff" * 40
        assert sample[".cls"] == b"%d" % number
        assert sample[".txt"].decode() == f"größe {number}"
        rest = json.loads(sample[".json"])
        assert rest["ints"] == [-5, 2**40, 0]
        assert np.float32(rest["floats"]).tolist() == np.float32([0.1, 2.5, -3e30]).tolist()


def test_several_files_and_folders_follow_each_other() -> None:
    """Files come in the given order, those of a folder sorted, numbered on."""
    data = (WRITTEN / "written.tfrecord").read_bytes()
    write({f"in/x.tfrecord-0000{number}-of-00002": data for number in range(2)})
    Path("in/z.tfrecord").write_bytes(gzip.compress(data))
    samples = imported("in", "in/z.tfrecord")
    assert [sample["__key__"] for sample in samples] == [f"{i:09d}" for i in range(12)]


PICTURE = b"\xff\xd8\xff\xda and so on\xff\xd9"


def texts(*values: bytes) -> bytes:
    return message(1, b"".join(message(1, value) for value in values))


def small_ints(*values: int) -> bytes:
    return message(3, message(1, bytes(values)))


def samples_of(records: list[dict[str, bytes]], **options: Any) -> list[dict[str, Any]]:
    path = Path("x.tfrecord")
    path.write_bytes(b"".join(framed(example(record)) for record in records))
    return list(open_tfrecords([path], ImportOptions(**options)).samples)


@pytest.mark.parametrize(
    "caption",
    ["BMW in the rain", "GIF87a is old", "ID3 tags", "II*", "1234ftyp", "OggSound", "%", "größe"],
)
def test_text_that_begins_as_a_picture_does_is_text(caption: str) -> None:
    """Text that begins with a magic number stays text."""
    record = {"image": texts(PICTURE), "caption": texts(caption.encode())}
    (sample,) = samples_of([record])
    assert sample == {"__key__": "000000000", ".jpg": PICTURE, ".json": {"caption": caption}}


def test_classes_of_several_objects_are_no_class_of_the_sample() -> None:
    """If some records have several labels, all labels stay in `.json`."""
    records = [
        {"image/encoded": texts(PICTURE), "image/object/class/label": small_ints(*labels)}
        for labels in ([4], [1, 2, 3], [])
    ]
    found = [sample.get(".json") for sample in samples_of(records)]
    assert [None if rest is None else rest["image/object/class/label"] for rest in found] == [
        4,
        [1, 2, 3],
        None,
    ]
    labelled = samples_of(records, fields={"image/object/class/label": "all.json"})
    assert [sample.get(".all.json") for sample in labelled] == [4, [1, 2, 3], None]


def test_second_label_after_many_single_ones_is_named_with_its_cure() -> None:
    """After `.cls` was chosen, a record of two labels raises an error with a remedy."""
    records = [{"label": small_ints(1)}] * 200 + [{"label": small_ints(1, 2)}]
    with pytest.raises(ValueError, match="'label' is taken for a class.*--field label="):
        samples_of(records)


def test_late_text_of_another_encoding_keeps_the_name_of_its_column() -> None:
    """Bytes in a column of texts become a field with the name of the column."""
    records = [{"image": texts(PICTURE), "caption": texts(b"x")}] * 100
    late = {"image": texts(PICTURE), "caption": texts(b"caf\xe9")}
    assert samples_of([*records, late])[100] == {
        "__key__": "000000100",
        ".jpg": PICTURE,
        ".caption.bin": b"caf\xe9",
    }


def test_feature_that_the_first_record_lacks_can_be_named() -> None:
    """An option may name a feature that the first record does not have."""
    records = [{"label": small_ints(1)}, {"label": small_ints(2), "image": texts(PICTURE)}]
    assert samples_of(records)[1] == {"__key__": "000000001", ".cls": 2, ".jpg": PICTURE}
    named = samples_of(records, fields={"image": "left.jpg"})
    assert named[1][".left.jpg"] == PICTURE


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.binary(max_size=600), max_size=5))
def test_records_come_back_as_they_were_framed(records: list[bytes]) -> None:
    """Records of any bytes, also empty ones, are read."""
    path = Path("x.tfrecord")
    path.write_bytes(b"".join(map(framed, records)))
    assert list(read_records(path)) == records
    path.write_bytes(gzip.compress(path.read_bytes()))
    assert list(read_records(path)) == records


@given(
    st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=5),
    st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=5),
)
def test_numbers_come_packed_or_one_by_one(ints: list[int], floats: list[float]) -> None:
    """Packed and unpacked lists of numbers are equal."""

    def varint(value: int) -> bytes:
        value %= 2**64
        out = b""
        while value >= 0x80:
            out += bytes([value & 0x7F | 0x80])
            value >>= 7
        return out + bytes([value])

    packed = {
        "i": message(3, message(1, b"".join(map(varint, ints)))),
        "f": message(2, message(1, struct.pack(f"<{len(floats)}f", *floats))),
    }
    single = {
        "i": message(3, b"".join(b"\x08" + varint(value) for value in ints)),
        "f": message(2, b"".join(b"\x0d" + struct.pack("<f", value) for value in floats)),
    }
    for features in (packed, single):
        parsed = parse_example(example(features))
        assert parsed["i"].tolist() == ints
        assert parsed["f"].tolist() == floats


DAMAGE = [
    (lambda data: data[:5], "at byte 0 of its records: the file ends within the length"),
    (lambda data: data[:-9], "ends within a record"),
    (lambda data: data[:3] + b"\xff" + data[4:], "expected the length of a record"),
    (lambda data: data[:40] + b"\xff" + data[41:], "at byte 0 .* is damaged"),
    (lambda data: data + b"more", "at byte 2[0-9]+ of its records: the file ends"),
    (lambda data: gzip.compress(data)[:-30], "at byte .*: Compressed file ended"),
    (lambda data: framed(b"\x12\x00"), "SequenceExample"),
    (lambda data: framed(b""), "holds no features"),
    (lambda data: framed(b"hello, world"), "record 0: "),
    (lambda data: b"<html>Not found</html>", "expected the length of a record"),
]


@pytest.mark.parametrize(("damage", "message"), DAMAGE)
def test_damage_is_named_with_its_place(damage: Any, message: str) -> None:
    """Damage raises an error with file, byte or record, and fault."""
    path = Path("x.tfrecord")
    path.write_bytes(damage((WRITTEN / "written.tfrecord").read_bytes()))
    with pytest.raises(ValueError, match=f"x.tfrecord: .*{message}"):
        list(open_tfrecords([path]).samples)


def test_hostile_messages_are_value_errors() -> None:
    """Malformed records with valid checksums raise ValueError."""
    (record, *_) = read_records(WRITTEN / "written.tfrecord")
    chance = random.Random(2)
    refused = 0
    for _ in range(2000):
        damaged = bytearray(record)
        for _ in range(chance.choice([1, 5])):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        try:
            parse_example(bytes(damaged[: chance.choice([None, chance.randrange(len(damaged))])]))
        except ValueError:
            refused += 1
    assert refused


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the library for checksums, the error says what to install."""
    load.cache_clear()  # it remembers what was found before
    monkeypatch.setitem(sys.modules, "google_crc32c", None)
    with pytest.raises(ModuleNotFoundError, match=r"wids\[tfrecord\].*pip install google-crc32c"):
        list(read_records(WRITTEN / "written.tfrecord"))


def listed(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Return what the last import listed as left out: counts by reason."""
    lines = capsys.readouterr().err.splitlines()
    said = re.compile("wids: (left out|kept, look at them): ")
    left_out = [said.sub("", line) for line in lines if said.match(line)]
    return [line.partition(", such as ")[0] for line in left_out]


CAPTION = example({"caption": texts(b"x")})
FEATURE = message(1, b"caption") + message(2, texts(b"x"))
OMITTED = {
    "nothing": (example({"image": texts(PICTURE), "caption": texts(b"x")}), []),
    "missing": (CAPTION, ["samples without a value in the column 'image': 1"]),
    "empty": (
        example({"image": message(1, b""), "caption": texts(b"x")}),
        ["samples without a value in the column 'image': 1"],
    ),
}


@pytest.mark.parametrize("name", OMITTED)
def test_what_shards_will_not_have_is_counted(name: str, capsys) -> None:
    """What a record has and its sample has not is counted; `--strict` leaves nothing behind."""
    record, expected = OMITTED[name]
    Path("x.tfrecord").write_bytes(framed(example({"image": texts(PICTURE)})) + framed(record))
    command = ["import", "x.tfrecord", "-o", "new/out/x-%d.tar"]
    assert main([*command, "--strict"]) == (1 if expected else 0)
    assert Path("new").exists() is not bool(expected)
    assert ("which --strict forbids" in capsys.readouterr().err) is bool(expected)
    assert main(command) == 0
    assert listed(capsys) == expected


@pytest.mark.parametrize(
    ("record", "message_expected"),
    [
        (message(1, 2 * message(1, FEATURE)), "'caption' twice"),
        (message(1, message(1, FEATURE + message(2, texts(b"y")))), "'caption' twice"),
        (example({"caption": texts(b"x") + small_ints(5)}), "'caption' twice"),
        (CAPTION + message(2, b""), "SequenceExample"),
    ],
)
def test_values_given_twice_are_refused(record: bytes, message_expected: str) -> None:
    """A record of which only some values would be read is refused."""
    with pytest.raises(ValueError, match=message_expected):
        parse_example(record)


@pytest.mark.parametrize(
    "record",
    [
        example({"image": texts(PICTURE)}) + message(9, b"more"),
        message(1, message(1, message(1, b"image") + message(2, texts(PICTURE))) + message(2, b"")),
        example({"image": texts(PICTURE), "a": message(7, b"1")}),
    ],
)
def test_what_an_example_does_not_define_is_refused(record: bytes) -> None:
    """A record with other parts is an error, since they would be lost."""
    with pytest.raises(ValueError, match="does not define"):
        parse_example(record)
