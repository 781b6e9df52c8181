"""Folders of pictures: every file in them becomes a field, or is named as left out."""

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import wids
from wids.cli import main


def jpeg(shade: int = 0) -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (8, 8), (shade, 0, 0)).save(stream, "JPEG")
    return stream.getvalue()


def png() -> bytes:
    stream = io.BytesIO()
    Image.new("L", (8, 8)).save(stream, "PNG")
    return stream.getvalue()


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)


def write(files: Mapping[str, bytes]) -> None:
    for name, data in files.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_bytes(data)


def run(*arguments: str) -> list[dict[str, Any]]:
    """Import into `out/x.json` and return the samples, undecoded."""
    assert main(["import", *arguments, "-o", "out/x-%03d.tar"]) == 0
    with wids.ShardListDataset("out/x.json", transformations="bytes") as dataset:
        return [
            {name: value for name, value in sample.items() if name[:2] != "__" or name == "__key__"}
            for sample in dataset
        ]


def classes() -> list[str]:
    return json.loads(Path("out/x.json").read_text())["classes"]


def test_files_beside_a_picture_are_fields_of_its_sample(capsys) -> None:
    """Captions, arrays and JSON of the picture's name are fields; other files are listed."""
    array = io.BytesIO()
    np.save(array, np.arange(3))
    write(
        {
            "p/cat/1.jpg": jpeg(1),
            "p/cat/1.txt": b"a cat",
            "p/cat/1.emb.npy": array.getvalue(),
            "p/cat/1.json": b'{"mine": 1}',
            "p/dog/2.jpg": jpeg(2),
            "p/dog/notes.txt": b"of nobody",
            "p/.cache/x": b"hidden",
            "p/README.md": b"what this is",
            "p/list.txt": b"beside the classes",
        }
    )
    first, second = run("p")
    assert (first["__key__"], first[".jpg"], first[".txt"]) == ("cat/1", jpeg(1), b"a cat")
    assert first[".emb.npy"] == array.getvalue()
    assert (first[".cls"], first[".json"]) == (b"0", b'{"mine": 1}')
    assert json.loads(second[".json"]) == {"class": "dog", "path": "dog/2.jpg"}
    said = capsys.readouterr().err
    assert "files that belong to no sample: 1, such as p/dog/notes.txt" in said
    assert "p/.cache" in said
    assert "p/list.txt" in said
    assert "README" not in said
    assert main(["import", "p", "--strict", "-o", "strict/x-%d.tar"]) == 1
    assert "--strict" in capsys.readouterr().err
    assert not Path("strict/x.json").exists()


@pytest.mark.parametrize("names", [["train", "val"], ["train"], ["Train", "test", "valid"]])
def test_parts_are_not_taken_for_classes(names: list[str], capsys) -> None:
    """Folders named `train` and `val` are refused until an option says parts or classes."""
    write({f"p/{name}/{each}/1.jpg": jpeg() for name in names for each in ("cat", "dog")})
    assert main(["import", "p", "-o", "out/x-%d.tar"]) == 1
    said = capsys.readouterr().err
    assert f"--split {min(names)}" in said
    assert "--classes auto" in said
    assert [sample["__key__"] for sample in run("p", "--split", names[0])] == ["cat/1", "dog/1"]
    assert classes() == ["cat", "dog"]
    assert len(run("p", "--classes", "auto")) == 2 * len(names)
    assert classes() == sorted(names)
    assert main(["import", "p", "--split", "none", "-o", "out/x-%d.tar"]) == 1
    assert f"expected --split with one of its folders ({', '.join(sorted(names))})" in (
        capsys.readouterr().err
    )


def test_flat_folders_are_samples(capsys) -> None:
    """Files of one folder are grouped into samples by key, as in a tar."""
    write(
        {
            "p/0001.jpg": jpeg(1),
            "p/0001.txt": b"one",
            "p/0001.mask.png": png(),
            "p/0002.jpg": jpeg(2),
            "p/img.003.jpg": jpeg(3),
            "p/lone.txt": b"no picture",
        }
    )
    samples = run("p")
    assert [sample.pop("__key__") for sample in samples] == ["0001", "0002", "img_003"]
    assert samples == [
        {".jpg": jpeg(1), ".txt": b"one", ".mask.png": png()},
        {".jpg": jpeg(2)},
        {".jpg": jpeg(3)},
    ]
    assert "classes" not in json.loads(Path("out/x.json").read_text())
    assert "files that belong to no sample: 1, such as p/lone.txt" in capsys.readouterr().err


def test_what_was_exported_comes_back() -> None:
    """Files of `wids export` are imported as samples, with classes on request."""
    write({"p/cat/1.jpg": jpeg(1), "p/dog/2.jpg": jpeg(2), "p/cat/1.a.txt": b"a"})
    before = run("p")
    assert main(["export", "out/x.json", "files"]) == 0
    assert run("--from", "samples", "files") == [dict(sorted(each.items())) for each in before]


def test_splits_with_different_classes_are_refused(capsys) -> None:
    """One number for two classes is refused until an option numbers the classes."""
    write({"p/train/cat/1.jpg": jpeg(), "p/val/dog/2.jpg": jpeg(), "p/test/3.jpg": jpeg()})
    assert main(["import", "p", "--split", "val", "-o", "out/x-%d.tar"]) == 1
    said = capsys.readouterr().err
    assert "p/val and p/train have different classes (cat is only in train)" in said
    assert "--classes NAME,NAME" in said
    assert [each[".cls"] for each in run("p", "--split", "val", "--classes", "cat,dog")] == [b"1"]
    assert [each[".cls"] for each in run("p", "--split", "val", "--classes", "auto")] == [b"0"]


def test_a_folder_around_the_classes_is_not_the_class(capsys) -> None:
    """`images/cat/1.jpg` is not a sample of a class `images`, unless an option says so."""
    write({"p/images/cat/1.jpg": jpeg(), "p/images/dog/1.jpg": jpeg()})
    assert main(["import", "p", "-o", "out/x-%d.tar"]) == 1
    assert "--split images to import that part" in capsys.readouterr().err
    run("p/images")
    assert classes() == ["cat", "dog"]
    run("p", "--classes", "auto")
    assert classes() == ["images"]
