"""Hugging Face datasets: pictures undecoded, names of classes kept, all else where it belongs."""

import datetime as dt
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.importing import imported, jpeg, new_header, refused

from wids.cli import main

datasets = pytest.importorskip("datasets")
pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")


@pytest.fixture
def dataset(tmp_path: Path, monkeypatch) -> Any:
    """Make a dataset of four rows, with a column of each kind."""
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "hf")
    datasets.disable_progress_bars()
    (tmp_path / "beside.jpg").write_bytes(jpeg(99))
    images = [{"bytes": jpeg(i), "path": None} for i in range(3)]
    images.append({"bytes": None, "path": str(tmp_path / "beside.jpg")})
    features = datasets.Features(
        {
            "image": datasets.Image(),
            "label": datasets.ClassLabel(names=["cat", "dog"]),
            "caption": datasets.Value("string"),
            "box": datasets.Sequence(datasets.Value("int32")),
            "emb": datasets.Array2D((2, 2), "float32"),
            "raw": datasets.Value("binary"),
            "when": datasets.Value("timestamp[s]"),
        }
    )
    columns = {
        "image": images,
        "label": [0, 1, None, 0],
        "caption": ["a", "b", "größe", None],
        "box": [[1, 2]] * 4,
        "emb": [[[1, 2], [3, 4]]] * 4,
        "raw": [b"\0\1"] * 4,
        "when": [dt.datetime(2020, 1, 1)] * 4,  # noqa: DTZ001 (Arrow's are without zone)
    }
    return datasets.Dataset.from_dict(columns, features=features)


def check(samples: list[dict[str, Any]]) -> None:
    assert [sample[".jpg"] for sample in samples] == [jpeg(0), jpeg(1), jpeg(2), jpeg(99)]
    assert [sample.get(".cls") for sample in samples] == [b"0", b"1", None, b"0"]
    assert json.loads(samples[2][".json"]) == {
        "caption": "größe",
        "box": [1, 2],
        "when": "2020-01-01T00:00:00",
    }
    assert samples[0][".bin"] == b"\0\1"


def test_a_saved_dataset_becomes_shards(dataset) -> None:
    """Pictures keep their bytes, and classes keep their names."""
    dataset.save_to_disk("saved")
    samples = imported("saved")
    check(samples)
    array = np.load(io.BytesIO(samples[0][".npy"]))
    assert (array.dtype, array.tolist()) == (np.float32, [[1, 2], [3, 4]])
    assert new_header()["classes"] == ["cat", "dog"]


def test_one_part_of_several_is_chosen(dataset, capsys) -> None:
    """Without --split the message lists the parts."""
    parts = datasets.DatasetDict(train=dataset, test=dataset.select([1]))
    parts.save_to_disk("saved")
    assert "--split with one of train, test" in refused(capsys, "saved")
    assert [sample[".jpg"] for sample in imported("saved", "--split", "test")] == [jpeg(1)]


def test_its_parquet_files_read_alike_without_the_library(dataset) -> None:
    """Pyarrow alone finds pictures and class names in Parquet files."""
    dataset.select(range(3)).remove_columns("emb").to_parquet("x.parquet")
    check([*imported("x.parquet"), {".jpg": jpeg(99), ".cls": b"0"}])
    assert new_header()["classes"] == ["cat", "dog"]


@pytest.mark.parametrize("form", ["saved", "x.parquet"])
def test_integers_called_label_are_classes(form: str) -> None:
    """An integer column named label becomes `.cls`; other integers stay in `.json`."""
    dataset = datasets.Dataset.from_dict({"label": [3, 1], "size": [7, 8]})
    (dataset.save_to_disk if form == "saved" else dataset.to_parquet)(form)
    samples = imported(form)
    assert [sample[".cls"] for sample in samples] == [b"3", b"1"]
    assert [json.loads(sample[".json"]) for sample in samples] == [{"size": 7}, {"size": 8}]
    assert "classes" not in new_header()


def test_bytes_inside_of_lists_of_a_parquet_file_are_refused(tmp_path: Path, capsys) -> None:
    """Bytes inside lists are refused before writing; the message names file and column."""
    table = pyarrow.table({"id": ["a"], "pages": [[b"1", b"2"]]})
    parquet.write_table(table, "x.parquet")
    assert "x.parquet: column 'pages' has bytes inside of list" in refused(capsys, "x.parquet")
    assert [path.name for path in tmp_path.iterdir()] == ["x.parquet"]


def test_streamed_datasets_are_read_too(dataset) -> None:
    """A streamed dataset, which has no length, gives the same samples."""
    from wids.importing.huggingface import open_huggingface

    streamed = open_huggingface(dataset.to_iterable_dataset())
    assert streamed.total is None
    assert list(streamed.samples) == list(open_huggingface(dataset).samples)


def test_bytes_inside_of_lists_are_refused(dataset) -> None:
    """The message names the column and what to do."""
    from wids.importing.huggingface import open_huggingface

    features = datasets.Features({"pages": datasets.Sequence(datasets.Image())})
    nested = datasets.Dataset.from_dict({"pages": [[]]}, features=features)
    with pytest.raises(ValueError, match=r"'pages' has bytes inside of .*flatten"):
        open_huggingface(nested)


def test_what_shards_will_not_have_is_counted(dataset, capsys) -> None:
    """Missing values, other bytes and stray files are counted; `--strict` leaves nothing behind."""
    images = [{"bytes": jpeg(0), "path": None}, None, {"bytes": b"no image", "path": "a.jpg"}]
    rows = dataset.select(range(3)).remove_columns("image")
    rows = rows.add_column("image", images, feature=datasets.Image())
    rows.save_to_disk("saved")
    command = ["import", "saved", "-o", "new/x-%d.tar"]
    for stray in (False, True):
        if stray:
            Path("saved/notes.txt").write_text("x")
        assert main([*command, "--strict"]) == 1
        assert "which --strict forbids" in capsys.readouterr().err
        assert not Path("new").exists()
    assert main(command) == 0
    lines = [line for line in capsys.readouterr().err.splitlines() if ", such as " in line]
    assert [line.partition(", such as ")[0].removeprefix("wids: ") for line in lines] == [
        "left out: files of another kind: 1",
        "left out: samples without a value in the column 'image': 1",
        "left out: samples without a value in the column 'label': 1",
    ]


def test_a_saved_dataset_without_rows_is_named(capsys) -> None:
    """What `datasets` cannot load again is an error that names the folder."""
    datasets.Dataset.from_dict({"a": []}).save_to_disk("none")
    assert "none: the library datasets cannot load it" in refused(capsys, "none")
