"""The benchmarks run in a small form, and their tables in the docs are current."""

import importlib
import io
import json
import os
import re
import shutil
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


@pytest.mark.slow
def test_decode_loader_delivers_pictures_of_every_library(images: Path, tmp_path: Path):
    """Each row has all samples with 224 x 224 x 3 bytes, and the docs stay unchanged."""
    document = (REPOSITORY / "docs" / "decoding.md").read_bytes()
    peers = ["jpeg", "jpeg-workers", "files"]
    results = results_of("decode_loader.py", images, tmp_path / "out", peers)
    (rows,) = results["tables"].values()
    assert [row["peer"] for row in rows] == peers
    for row in rows:
        assert {one["nbytes"] for one in row["passes"]} == {70 * 224 * 224 * 3}
    assert (REPOSITORY / "docs" / "decoding.md").read_bytes() == document


def test_the_tables_in_the_docs_are_current():
    """docs/benchmarks.md and the recorded tables show the results of benchmarks/results."""
    done = run("table.py", "--check")
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_results_are_recorded_only_on_request(tmp_path: Path):
    """A run without --record changes neither results nor docs."""
    folder = tmp_path / "benchmarks"
    shutil.copytree(BENCHMARKS, folder, ignore=shutil.ignore_patterns("__pycache__"))
    before = contents_of(folder)
    small = (folder / "reshard.py", "--count", "40", "--rounds", "1")
    done = run(*small)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / ".bench" / "results" / "reshard.json").exists()
    assert contents_of(folder) == before
    done = run(*small, "--record")
    assert done.returncode == 0, done.stderr
    after = contents_of(folder)
    assert "reshard.json" in {path.name for path in after if after[path] != before.get(path)}


def contents_of(folder: Path) -> dict[Path, bytes]:
    paths = folder.rglob("*")
    return {p: p.read_bytes() for p in paths if p.is_file() and p.suffix != ".pyc"}


def test_the_docs_name_every_script():
    """Each benchmark has a recorded table, and a docstring with question and command."""
    page = (REPOSITORY / "docs" / "benchmarks.md").read_text()
    recorded = (BENCHMARKS / "results" / "README.md").read_text()
    for name in ("random_read", "epoch_loader", "loader", "write_shards", "create_spec"):
        docstring = (BENCHMARKS / f"{name}.py").read_text().split('"""')[1]
        assert docstring.split("\n", 1)[0].endswith("?")
        assert f"python benchmarks/{name}.py" in docstring
        assert f"`{name}`" in page
        assert re.search(rf"<!-- table: {name}\b", recorded)


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
def test_batches_are_compared_in_a_small_form(tmp_path: Path):
    """Rows of wids go on exactly, keep to the bound, the shapes and the weights, and end alike."""
    rows = ("wids-cost", "wids-shape", "wids-plain", "wids-mixture")
    small = ("--samples", "4000", "--rounds", "1", "--out", tmp_path, "--rows", *rows)
    done = run("sampler_peers.py", *small)
    assert done.returncode == 0, done.stderr
    by_row = json.loads((tmp_path / "sampler_peers.json").read_text())["tables"]
    assert tuple(by_row) == rows
    for row in by_row.values():
        assert row["resumed"] == "exact"
        assert row["batches"][0] == row["batches"][1]
        assert row["microseconds"] > 0
    assert by_row["wids-cost"]["most_cost"] <= 16_384
    assert by_row["wids-cost"]["real"] > 0.9
    assert by_row["wids-shape"]["one_shape"] == 1
    assert by_row["wids-plain"]["not_seen"] == 0
    assert by_row["wids-mixture"]["parts"] == [2400, 1200, 400]
    assert max(by_row["wids-mixture"]["draws"]) <= 1


@pytest.mark.slow
def test_selections_and_keys_are_measured():
    """A small run has a row for each way to hold a selection, and for each step of a look-up."""
    done = run("view_memory.py", "--samples", "5000", "--rows", "wids", "numpy")
    assert done.returncode == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines()[2:]]
    assert [row[0] for row in rows] == ["wids", "numpy"]
    assert all(len(row) == 5 and float(row[1]) > 0 for row in rows)
    done = run("key_lookup.py", "--keys", "1000", "--rounds", "1")
    assert done.returncode == 0, done.stderr
    assert "dict find" in done.stdout
