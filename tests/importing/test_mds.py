"""MosaicML MDS: what its own library wrote reads as it was given, and damage is named."""

import gzip
import io
import json
import random
import shutil
import struct
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.importing import imported, refused
from helpers.shards import REPOSITORY
from PIL import Image

from wids.importing.mds import open_mds

WRITTEN = REPOSITORY / "tests" / "data" / "importing" / "mds"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Copy the plain shards, without the digests, so that damage gets past them."""
    copy = Path(shutil.copytree(WRITTEN / "plain", tmp_path / "mds"))
    edit(copy, lambda shard: shard["raw_data"].update(hashes={}))
    return copy


def edit(folder: Path, change: Any) -> None:
    """Change what the index says of the first shard."""
    index = json.loads((folder / "index.json").read_text())
    change(index["shards"][0])
    (folder / "index.json").write_text(json.dumps(index))


def samples_of(folder: Path) -> list[dict[str, Any]]:
    return [
        {
            name: bytes(value) if isinstance(value, memoryview) else value
            for name, value in s.items()
        }
        for s in open_mds([folder]).samples
    ]


def test_every_encoding_reads_as_it_was_written() -> None:
    """All encodings of MDS give the values that were written."""
    for number, sample in enumerate(samples_of(WRITTEN / "plain")):
        assert sample["__key__"] == f"{number:09d}"
        assert sample[".cls"] == number % 4
        assert sample[".json"] == {
            "caption": f"größe {number}",
            "dec": str(Decimal("1.50")),
            "f": number / 3,
            "meta": {"a": [number, None]},
            "si": 10**20 + number,
            "u": number,
        }
        arrays = {name: np.load(io.BytesIO(sample[f".{name}.npy"])) for name in ("emb", "free")}
        assert arrays["emb"].tolist() == [0, number, 2 * number]
        assert arrays["free"].dtype == np.int16
        assert arrays["free"].tolist() == [
            [number, number + 1, number + 2],
            [3 + number, 4 + number, 5 + number],
        ]
        assert np.load(io.BytesIO(sample[".half.npy"])).shape == (number + 1, 2)
        for name in (".mask.png", ".raw.png"):
            image = Image.open(io.BytesIO(sample[name]))
            assert (image.size, image.getpixel((0, 0))) == ((4, 5), (number, 2, 3))
        assert Image.open(io.BytesIO(sample[".image.jpg"])).size == (9 + number, 7)
        assert sample[".bin"] == bytes([0, 1, number])
        lists = [name for name in sample if name.startswith(".many.")]
        assert len(lists) == number % 3 + 1
        assert sample[".arr.001.jpg"][:2] == b"\xff\xd8"


@pytest.mark.parametrize("packed", ["gz", "bz2", "zstd"])
def test_packed_shards_hold_the_same(packed: str) -> None:
    """Shards compressed by gzip, bzip2 and Zstandard give the samples of the plain ones."""
    assert samples_of(WRITTEN / packed) == samples_of(WRITTEN / "plain")


def test_pickles_stay_bytes() -> None:
    """Pickles are imported as bytes, and are not loaded."""
    (first, *_) = samples_of(WRITTEN / "plain")
    assert first[".pkl"].startswith(b"\x80")


def test_the_command_makes_shards_of_it() -> None:
    """Columns become the fields that the user names, and keys come from the named column."""
    options = ["--key", "caption", "--field", "image=jpg", "--field", "si=id.txt"]
    samples = imported(str(WRITTEN / "zstd"), *options)
    assert [sample["__key__"] for sample in samples] == ["größe 0", "größe 1", "größe 2"]
    assert samples[1][".id.txt"] == b"100000000000000000001"
    assert samples[2][".jpg"][:2] == b"\xff\xd8"


INDEX_FAULTS = [
    (lambda shard: shard.update(format="csv"), "'csv'"),
    (lambda shard: shard.update(version=1), "expected 'mds' 2"),
    (lambda shard: shard["raw_data"].update(basename="../x.mds"), "outside the folder"),
    (lambda shard: shard["raw_data"].update(basename="/etc/passwd"), "outside the folder"),
    (lambda shard: shard["raw_data"].update(bytes=2**40), "bytes"),
    (lambda shard: shard.update(column_sizes=[-1] * 17), "size -1"),
    (lambda shard: shard.update(column_names=["a"]), "not an index of MDS"),
    (lambda shard: shard.pop("samples"), "samples"),
    (lambda shard: shard.update(column_encodings=["magic"] * 17), "'magic' is not known"),
]


@pytest.mark.parametrize(("change", "message"), INDEX_FAULTS)
def test_a_malformed_index_is_named(folder: Path, change: Any, message: str) -> None:
    """A malformed index raises an error with its value; no file outside the folder is opened."""
    edit(folder, change)
    with pytest.raises(ValueError, match=message):
        samples_of(folder)


def test_a_changed_shard_is_found_by_its_digest(tmp_path: Path) -> None:
    """One flipped byte of a shard is found by its digest."""
    copy = Path(shutil.copytree(WRITTEN / "plain", tmp_path / "mds"))
    shard = copy / "shard.00000.mds"
    data = bytearray(shard.read_bytes())
    data[-20] ^= 1
    shard.write_bytes(data)
    with pytest.raises(ValueError, match=r"shard.00000.mds: sha1 \w+, the index says"):
        samples_of(copy)
    shard.write_bytes(data[:-1])
    with pytest.raises(ValueError, match="the index says 11143 bytes, found 11142"):
        samples_of(copy)


@pytest.mark.parametrize(("promised", "allowed"), [(11_143, "11143 bytes"), (2**32 - 1, "8")])
def test_a_bomb_unpacks_to_no_more_than_promised(
    tmp_path: Path, promised: int, allowed: str
) -> None:
    """A compressed shard larger than its index says is refused before it is decompressed whole.

    A promise of gigabytes does not raise the bound on the ratio of compression.
    """
    copy = Path(shutil.copytree(WRITTEN / "gz", tmp_path / "mds"))
    (copy / "shard.00000.mds.gz").write_bytes(gzip.compress(bytes(10**8)))
    edit(copy, lambda shard: shard["raw_data"].update(bytes=promised))
    with pytest.raises(ValueError, match=rf"shard\.00000\.mds: .* more than {allowed}"):
        samples_of(copy)


def test_damage_is_a_value_error_or_harmless(folder: Path) -> None:
    """Damaged shards raise ValueError only, and take bounded memory."""
    shard = folder / "shard.00000.mds"
    whole = shard.read_bytes()
    chance = random.Random(1)
    outcomes = set()
    for _ in range(300):
        damaged = bytearray(whole)
        for _ in range(chance.choice([1, 4])):
            # The head with its places, and the sizes at the start of samples, matter most.
            place = chance.choice([chance.randrange(20), chance.randrange(len(whole))])
            damaged[place] = chance.choice([0, 255, chance.randrange(256)])
        shard.write_bytes(damaged)
        try:
            samples_of(folder)
            outcomes.add("read")
        except ValueError as error:
            outcomes.add("refused" if str(shard) in str(error) else str(error))
    assert outcomes == {"read", "refused"}


def write_mds(folder: Path, encoding: str, data: bytes) -> None:
    """Write a shard of one sample with one column, from the description of the format."""
    sample = struct.pack("<I", len(data)) + data
    shard = struct.pack("<3I", 1, 12, 12 + len(sample)) + sample
    entry: dict[str, Any] = {
        "column_encodings": [encoding],
        "column_names": ["x"],
        "column_sizes": [None],
        "compression": None,
        "format": "mds",
        "hashes": [],
        "raw_data": {"basename": "shard.mds", "bytes": len(shard), "hashes": {}},
        "samples": 1,
        "size_limit": 1 << 26,
        "version": 2,
        "zip_data": None,
    }
    folder.mkdir(exist_ok=True)
    (folder / "shard.mds").write_bytes(shard)
    (folder / "index.json").write_text(json.dumps({"shards": [entry], "version": 2}))


def test_other_files_in_the_folder_are_no_longer_strict(capsys) -> None:
    """With --strict, a file that the index does not name is refused before anything is written."""
    shutil.copytree(WRITTEN / "plain", "mds")
    Path("mds/labels.csv").write_text("a,b")
    assert "labels.csv: would be left out (files of another kind)" in refused(
        capsys, "mds", "--strict"
    )


@pytest.mark.parametrize("mode", ["L", "I;16", "RGB", "RGBA", "1"])
def test_raw_images_of_every_mode_keep_their_pixels(tmp_path: Path, mode: str) -> None:
    """Images keep pixels and mode, as PNG."""
    image = Image.frombytes(
        mode, (3, 2), bytes(range(24))[: 6 * len(Image.new(mode, (1, 1)).tobytes())]
    )
    name = mode.encode()
    write_mds(tmp_path, "pil", struct.pack("<3I", 3, 2, len(name)) + name + image.tobytes())
    (sample,) = samples_of(tmp_path)
    (data,) = (value for key, value in sample.items() if key in {".png", ".tif"})
    found = Image.open(io.BytesIO(data))
    assert (found.mode, found.tobytes()) == (mode, image.tobytes())


def test_raw_images_that_no_file_holds_become_arrays(tmp_path: Path) -> None:
    """The pixels of a mode that PNG lacks are kept."""
    pixels = struct.pack("<3I", 1, 1, 3) + b"HSV" + bytes([1, 2, 3])
    write_mds(tmp_path, "pil", pixels)
    (sample,) = samples_of(tmp_path)
    assert np.load(io.BytesIO(sample[".npy"])).tolist() == [[[1, 2, 3]]]
