"""The benchmarks run in a small form, and their tables in the docs are current."""

import importlib
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.shards import REPOSITORY
from PIL import Image

pytest.importorskip("torch", reason="the benchmarks feed a DataLoader")

BENCHMARKS = REPOSITORY / "benchmarks"


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Iterator[object]:
    """Import a module of the benchmarks, and remove all of them afterwards."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    before = set(sys.modules)
    yield importlib.import_module
    for name in set(sys.modules) - before:
        if name.split(".")[0] in {
            "common",
            "data",
            "decode_loader",
            "durations",
            "table",
            "worker",
            "peers",
        }:
            del sys.modules[name]


def image_samples(count: int) -> Iterator[dict[str, bytes]]:
    for number in range(count):
        jpeg = io.BytesIO()
        Image.new("RGB", (40, 30), (number, 0, 0)).save(jpeg, "JPEG")
        yield {".cls": b"%d" % (number % 9), ".jpg": jpeg.getvalue(), ".json": b'{"a": 1}'}


@pytest.fixture
def images(module, tmp_path: Path) -> Path:
    """Make a folder of 70 images in the layout of `data.prepare`, without photographs."""
    data = module("data")
    folder = tmp_path / "images-tiny"
    data.write_shards(folder, image_samples(70), data.uneven_lengths(70, 3))
    return folder


def run(script: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    environment = dict(os.environ)
    environment["PYTHONPATH"] = os.pathsep.join(entry for entry in sys.path if entry)
    return subprocess.run(
        [sys.executable, BENCHMARKS / script, *map(str, arguments)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def results_of(script: str, folder: Path, out: Path, peers: list[str]) -> dict:
    done = run(script, "--data", folder, "--rounds", "2", "--out", out, "--peers", *peers)
    assert done.returncode == 0, done.stderr
    return json.loads((out / script).with_suffix(".json").read_text())


@pytest.mark.slow
def test_random_read_measures_every_peer(images: Path, tmp_path: Path):
    """Each row has its passes, with every sample's bytes, and a median between the extremes."""
    peers = ["floor", "ours", "ours-views", "ours-streams", "ours-gather"]
    results = results_of("random_read.py", images, tmp_path / "out", peers)
    (rows,) = results["tables"].values()
    assert [row["peer"] for row in rows] == peers
    whole = sum(len(data) for sample in image_samples(70) for data in sample.values())
    for row in rows:
        assert [one["nbytes"] for one in row["passes"]] == [whole, whole]
        assert 0 < row["min"] <= row["median"] <= row["max"]
    assert results["machine"]["cores"] == os.cpu_count()
    assert results["settings"]["rounds"] == 2


@pytest.mark.slow
def test_loader_carries_every_byte(images: Path, tmp_path: Path):
    """Threads and processes deliver the same samples and bytes in each epoch."""
    peers = ["floor", "ours", "loader", "loader-0"]
    (rows,) = results_of("loader.py", images, tmp_path / "out", peers)["tables"].values()
    whole = sum(len(data) for sample in image_samples(70) for data in sample.values())
    assert [row["peer"] for row in rows] == peers
    for row in rows:
        assert [(one["samples"], one["nbytes"]) for one in row["passes"]] == [(70, whole)] * 2


def test_the_tables_in_the_docs_are_current():
    """docs/benchmarks.md and the recorded tables show the results of benchmarks/results."""
    done = run("table.py", "--check")
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_orders_are_trained_with_batchnorm():
    """Three orders are trained on the same data, and each reports how accurate it became."""
    done = run("order_batchnorm.py", "--samples", "1600", "--seeds", "1", "--epochs", "1")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    for start in ("400 shards", "50 shards"):
        orders = [line.split("  ")[1].strip() for line in lines if line.startswith(start)]
        assert orders == ["full shuffle", "prototype, 16 shards mixed", "wids, interleave 16"]
    accuracies = [float(accuracy) for accuracy in re.findall(r"([\d.]+) \+-", done.stdout)]
    assert len(accuracies) == 6
    assert all(10 < accuracy < 100 for accuracy in accuracies)  # of 20 classes by chance 5


@pytest.mark.slow
def test_selections_and_keys_are_measured():
    """A small run has a row for each way to hold a selection, and for each step of a look-up."""
    done = run("view_memory.py", "--samples", "5000", "--rows", "wids", "numpy")
    assert done.returncode == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines()[2:]]
    assert [row[0] for row in rows] == ["wids", "numpy"]
    assert all(len(row) == 5 and float(row[1]) > 0 for row in rows)
    done = run("views_join_read.py", "--samples", "50", "--rounds", "1")
    assert done.returncode == 0, done.stderr
    small = ("--samples", "200", "--rounds", "1", "--before", BENCHMARKS.parent)
    done = run("view_read.py", *small)
    assert done.returncode == 0, done.stderr
    assert all(len(line.split()[-6:]) == 6 for line in done.stdout.splitlines()[1:])
    done = run("key_lookup.py", "--keys", "1000", "--rounds", "1")
    assert done.returncode == 0, done.stderr
    assert "dict find" in done.stdout
