"""Compatibility with webdataset 1.0.2, GNU tar and bsdtar."""

import io
import os
import shutil
import subprocess
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import wids

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what it deprecates of its own is not our concern
    import webdataset

KEYS = [
    "000001",
    "train/cat/0002",
    "v1.2/0003",
    "a" * 90,
    "x" * 130,
    "deep/" * 30 + "leaf",
    "été/日本",
]


def picture(seed: int) -> Image.Image:
    """Make a small picture of noise."""
    pixels = np.random.default_rng(seed).integers(0, 256, (6, 5, 3), np.uint8)
    return Image.fromarray(pixels)


def samples() -> list[dict[str, Any]]:
    """Make samples of many kinds of fields, under keys of many kinds."""
    return [
        {
            "__key__": key,
            "png": picture(seed),
            "cls": seed,
            "txt": f"text {seed}, süß",
            "json": {"seed": seed, "list": [1, None, "x"]},
            "npy": np.arange(seed + 1, dtype=np.float32),
            "seg.bin": bytes([seed]) * 700,
        }
        for seed, key in enumerate(KEYS)
    ]


def assert_equal(found: dict[str, Any], expected: dict[str, Any]) -> None:
    """Compare decoded fields, whose names may have a leading dot."""
    values = {name.removeprefix("."): value for name, value in found.items()}
    assert values["__key__"] == expected["__key__"]
    assert np.array_equal(np.asarray(values["png"]), np.asarray(expected["png"]))
    assert np.array_equal(values["npy"], expected["npy"])
    assert values["npy"].dtype == expected["npy"].dtype
    for name in ("cls", "txt", "json"):
        assert values[name] == expected[name]
    raw = values["seg.bin"]
    assert (raw.getvalue() if isinstance(raw, io.BytesIO) else raw) == expected["seg.bin"]


@pytest.fixture
def ours(tmp_path: Path) -> Path:
    """Write the samples with this library, two per shard."""
    with wids.ShardWriter(
        tmp_path / "x-%06d.tar", maxcount=2, spec=tmp_path / "x.json", sidecars=True
    ) as writer:
        for sample in samples():
            writer.write(sample)
    return tmp_path


@pytest.mark.filterwarnings("ignore")
def test_webdataset_reads_what_we_write(ours: Path):
    """Webdataset reads the same keys, extensions and decoded values."""
    urls = sorted(str(path) for path in ours.glob("*.tar"))
    assert len(urls) == 4
    found = list(webdataset.WebDataset(urls, shardshuffle=False).decode("pil"))
    for one, expected in zip(found, samples(), strict=True):
        assert_equal(one, expected)


@pytest.mark.filterwarnings("ignore")
def test_we_read_what_webdataset_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Shards written by webdataset give the same samples."""
    with webdataset.ShardWriter(f"{tmp_path}/x-%06d.tar", maxcount=2) as writer:
        for sample in samples():
            writer.write(sample)
    with wids.ShardListDataset(str(tmp_path)) as dataset:
        for one, expected in zip(list(dataset), samples(), strict=True):
            assert_equal(one, expected)


@pytest.mark.filterwarnings("ignore")
def test_a_program_for_its_writers_runs_on_ours(tmp_path: Path):
    """Calls of webdataset's writers give archives with the same fields."""
    contents = []
    for library in (webdataset, wids):
        folder = tmp_path / library.__name__
        folder.mkdir()
        posted: list[str] = []
        pattern = str(folder / "x-%06d.tar")
        with library.ShardWriter(pattern, 4, 3e9, posted.append, 3) as writer:
            for sample in samples():
                writer.write(sample)
        stream = io.BytesIO()
        with library.TarWriter(stream) as tar:
            tar.write({"__key__": "a", "txt": "one", "bin": b"raw"})
        (folder / "alone.tar").write_bytes(stream.getvalue())
        with wids.ShardListDataset(f"{folder}/*.tar", transformations="bytes") as dataset:
            # The bytes of PNG and JSON are an encoder's choice; what they say is tested above.
            kept = (".bin", ".cls", ".npy", ".txt")
            fields = [{name: one[name] for name in kept if name in one} for one in dataset]
        contents.append(([Path(name).name for name in posted], fields))
    assert contents[0] == contents[1]


@pytest.mark.parametrize("command", ["tar", "bsdtar"])
def test_other_tars_list_and_extract_our_shards(ours: Path, tmp_path: Path, command: str):
    """Other tar programs list all names and extract the bytes without a warning."""
    if shutil.which(command) is None:
        pytest.skip(f"{command} is not installed")
    environment = {**os.environ, "LC_ALL": "C.UTF-8"}
    for shard in sorted(ours.glob("*.tar")):
        listed = subprocess.run(
            [command, "-tf", shard], capture_output=True, text=True, check=True, env=environment
        )
        assert listed.stderr == ""
        assert listed.stdout.splitlines() == wids.TarIndex.from_tar(shard).names
        out = tmp_path / shard.stem
        out.mkdir()
        done = subprocess.run(
            [command, "-xf", shard, "-C", out], capture_output=True, check=True, env=environment
        )
        assert done.stderr == b""
    for number, sample in enumerate(samples()):
        folder = tmp_path / f"x-{number // 2:06d}"
        assert (folder / f"{sample['__key__']}.seg.bin").read_bytes() == sample["seg.bin"]
