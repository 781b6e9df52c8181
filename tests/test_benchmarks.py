"""The benchmarks run in a small form, and their tables in the docs are current."""

import importlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
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
def test_browse_measures_every_question(images: Path, tmp_path: Path):
    """A small run has a figure for each request and round."""
    pytest.importorskip("starlette", reason="the browser is an extra")
    small = ("--shards", "12", "--samples", "80", "--rounds", "2")
    done = run("browse.py", "--data", images, "--out", tmp_path / "out", *small)
    assert done.returncode == 0, done.stderr
    figures = json.loads((tmp_path / "out" / "browse.json").read_text())["figures"]
    assert {len(values) for values in figures.values()} == {2}
    assert all(value > 0 for values in figures.values() for value in values)
    assert "60 thumbnails, again" in done.stdout


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
def test_peers_of_today_read_the_same_samples(images: Path, tmp_path: Path):
    """A library that converts the shards reads all of their bytes, at random and in epochs."""
    pytest.importorskip("datasets", reason="one of the libraries")
    whole = sum(len(data) for sample in image_samples(70) for data in sample.values())
    (rows,) = results_of(
        "peers_random.py", images, tmp_path / "out", ["ours", "datasets", "datasets-256"]
    )["tables"].values()
    assert [{one["nbytes"] for one in row["passes"]} for row in rows] == [{whole}] * 3
    raw, decoded = results_of("peers_epoch.py", images, tmp_path / "out", ["ours", "datasets"])[
        "tables"
    ].values()
    assert [{one["nbytes"] for one in row["passes"]} for row in raw] == [{whole}] * 2
    assert [{one["samples"] for one in row["passes"]} for row in decoded] == [{70}] * 2


@pytest.mark.slow
def test_what_a_peer_costs_is_measured(module, images: Path, tmp_path: Path):
    """Conversion, its size, the first batch and the memory have a figure, and a column each."""
    results = results_of("peers_cost.py", images, tmp_path / "out", ["ours", "webdataset"])
    ours, streamed = results["tables"]["images"]
    assert ours["conversion"]["nbytes"] > 0
    assert all(seconds > 0 and nbytes > 1 << 20 for seconds, nbytes in ours["starts"])
    assert streamed["cells"]["converted"] == "-"
    heads, _, *lines = module("table").section("peers_cost", tmp_path / "out").splitlines()
    assert heads == "| images | converted | beside the tars | first batch | memory |"
    assert lines[0].startswith("| wids, DataLoader | ")


@pytest.mark.slow
def test_memory_does_not_grow_with_samples(tmp_path: Path):
    """A small run measures the same samples in a short and a long dataset."""
    done = run("memory.py", "--samples", "1000", "3000", "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "memory.json").read_text())["rows"]
    assert [row["samples"] for row in rows] == [1000, 3000]
    assert all(row["private_mib"] > 0 for row in rows)


@pytest.mark.slow
def test_epoch_loader_delivers_whole_epochs(images: Path, tmp_path: Path):
    """Raw epochs have all bytes, and decoded ones 224 x 224 x 3 bytes for each sample."""
    results = results_of("epoch_loader.py", images, tmp_path / "out", ["floor", "ours"])
    assert list(results["tables"]) == ["images raw", "images decoded"]
    for row in results["tables"]["images decoded"]:
        assert {one["nbytes"] for one in row["passes"]} == {70 * 224 * 224 * 3}
    for row in results["tables"]["images raw"]:
        assert {one["samples"] for one in row["passes"]} == {70}


@pytest.mark.slow
def test_write_shards_tells_the_disk_from_the_work(tmp_path: Path):
    """Every writer writes all samples, and waiting for the disk is never faster."""
    peers = ["ours", "floor", "ours-plain"]
    arguments = ("--count", "40", "--rounds", "1", "--out", tmp_path, "--peers", *peers)
    done = run("write_shards.py", *arguments)
    assert done.returncode == 0, done.stderr
    tables = json.loads((tmp_path / "write_shards.json").read_text())["tables"]
    assert {row["peer"] for row in tables["disk"]} == set(peers)
    for left, synced in zip(tables["disk"], tables["disk, synced"], strict=True):
        assert left["passes"][0]["samples"] == 40
        assert synced["median"] <= left["median"]


@pytest.mark.slow
def test_create_spec_measures_commands(tmp_path: Path):
    """Each row is a command that indexed all shards."""
    peers = ["floor", "ours", "tar"]
    arguments = ("--samples", "2", "--rounds", "1", "--out", tmp_path, "--peers", *peers)
    done = run("create_spec.py", *arguments)
    assert done.returncode == 0, done.stderr
    results = json.loads((tmp_path / "create_spec.json").read_text())
    rows = {title: [row["peer"] for row in table] for title, table in results["tables"].items()}
    assert rows == {"digests": ["floor", "ours"], "headers": ["floor", "ours", "tar"]}
    nbytes = 30 * (1024 + 2 * (512 + 20_480 + 512 + 512))
    assert results["tables"]["digests"][0]["passes"][0]["samples"] == nbytes / 1e6


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


def test_data_lies_where_its_table_says(images: Path):
    """The floor's table has the offsets that tarfile finds."""
    table = np.load(images / "table.npz")
    spec = json.loads((images / "spec.json").read_text())
    found = []
    for shard in spec["shardlist"]:
        with tarfile.open(shard["url"]) as archive:
            found += [(member.offset_data, member.size) for member in archive]
    assert table["places"].reshape(-1, 2).tolist() == [list(place) for place in found]
    lengths = [shard["nsamples"] for shard in spec["shardlist"]]
    assert table["shards"].tolist() == np.repeat(range(3), lengths).tolist()


def test_peers_that_see_other_bytes_stop_the_run(module):
    """A pass in which two libraries read different numbers of bytes is an error."""
    common = module("common")
    same = {"samples": 5, "nbytes": 10}
    common._check_bytes(0, {"floor": [same], "ours": [same]})
    with pytest.raises(RuntimeError, match="ours saw 11 bytes, floor 10"):
        common._check_bytes(0, {"floor": [same], "ours": [{"samples": 5, "nbytes": 11}]})


def test_the_tables_in_the_docs_are_current():
    """docs/benchmarks.md shows the results of benchmarks/results."""
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
    """Each benchmark has a table in the docs and a docstring with purpose, command and limits."""
    page = (REPOSITORY / "docs" / "benchmarks.md").read_text()
    for name in ("random_read", "epoch_loader", "loader", "write_shards", "create_spec"):
        docstring = (BENCHMARKS / f"{name}.py").read_text().split('"""')[1]
        assert docstring.split("\n", 1)[0].endswith("?")
        assert f"python benchmarks/{name}.py" in docstring
        assert re.search(rf"<!-- table: {name}\b", page)


@pytest.mark.slow
def test_a_big_spec_is_measured_in_a_small_form(tmp_path: Path):
    """Both rows have figures for loading, lookup and pickling."""
    done = run("big_spec.py", "--shards", "30000", "--out", tmp_path, "--only", "first", "again")
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "big_spec.json").read_text())["tables"]
    assert set(rows) == {"first", "again"}
    assert all(row["pickled_mib"] > 0 for row in rows.values())
    assert "| wids, again |" in (tmp_path / "big_spec.md").read_text()


@pytest.mark.slow
def test_resharding_is_measured_in_a_small_form(tmp_path: Path):
    """Every row copied the same samples."""
    done = run("reshard.py", "--count", "200", "--rounds", "1", "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "reshard.json").read_text())["tables"]["disk"]
    assert [row["peer"] for row in rows] == ["floor", "ours", "ours-plain", "ours-resize"]
    assert all(row["median"] > 0 for row in rows)


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
