"""Folders of pictures: every file in them becomes a field, or is named as left out."""

import io
import json
from pathlib import Path

import numpy as np
import pytest
from helpers.importing import imported, jpeg, new_header, refused, write
from helpers.pictures import plain

from wids.cli import main


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
    first, second = imported("p")
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


@pytest.mark.parametrize(
    "names",
    [
        *(["train", "val"], ["train"], ["Train", "test", "valid"]),
        *(["train", "extra"], ["TRAIN", "holdout"], ["training_set", "unlabeled"]),
    ],
)
def test_parts_are_not_taken_for_classes(names: list[str], capsys) -> None:
    """Folders named `train` and `val` are refused until an option says parts or classes."""
    write({f"p/{name}/{each}/1.jpg": jpeg() for name in names for each in ("cat", "dog")})
    said = refused(capsys, "p")
    assert f"--split {names[0]}" in said
    assert "may be parts of a dataset or classes" in said
    assert "--classes auto" in said
    assert [sample["__key__"] for sample in imported("p", "--split", names[0])] == [
        "cat/1",
        "dog/1",
    ]
    assert new_header()["classes"] == ["cat", "dog"]
    assert len(imported("p", "--classes", "auto")) == 2 * len(names)
    assert new_header()["classes"] == sorted(names)
    assert f"expected --split with one of its folders ({', '.join(sorted(names))})" in refused(
        capsys, "p", "--split", "none"
    )


def test_classes_can_be_numbered_by_the_user(capsys) -> None:
    """Given class numbers are kept for parts that lack a class; unknown classes are refused."""
    write({"p/dog/1.jpg": jpeg(), "p/eel/1.jpg": jpeg()})
    Path("names.txt").write_text("cat\ndog\neel\n")
    assert [sample[".cls"] for sample in imported("p", "--classes", "names.txt")] == [b"1", b"2"]
    assert new_header()["classes"] == ["cat", "dog", "eel"]
    assert "classes without a folder: 1, such as cat" in capsys.readouterr().err
    assert "p/eel: is none of the classes cat, dog" in refused(capsys, "p", "--classes", "cat,dog")


def test_flat_folders_are_samples(capsys) -> None:
    """Files of one folder are grouped into samples by key, as in a tar."""
    write(
        {
            "p/0001.jpg": jpeg(1),
            "p/0001.txt": b"one",
            "p/0001.mask.png": plain(),
            "p/0002.jpg": jpeg(2),
            "p/img.003.jpg": jpeg(3),
            "p/lone.txt": b"no picture",
        }
    )
    samples = imported("p")
    assert [sample.pop("__key__") for sample in samples] == ["0001", "0002", "img_003"]
    assert samples == [
        {".jpg": jpeg(1), ".txt": b"one", ".mask.png": plain()},
        {".jpg": jpeg(2)},
        {".jpg": jpeg(3)},
    ]
    assert "classes" not in json.loads(Path("out/x.json").read_text())
    assert "files that belong to no sample: 1, such as p/lone.txt" in capsys.readouterr().err


def test_pictures_beside_folders_are_asked_about(capsys) -> None:
    """Pictures beside folders are refused until an option says what they are."""
    write({"p/1.jpg": jpeg(), "p/cat/2.jpg": jpeg()})
    said = refused(capsys, "p")
    assert "p: holds 1.jpg beside the folder cat" in said
    assert "--from imagefolder" in said
    assert [sample["__key__"] for sample in imported("--from", "samples", "p")] == ["1", "cat/2"]
    assert [sample["__key__"] for sample in imported("--from", "imagefolder", "p")] == ["cat/2"]
    assert "files that lie in no class: 1, such as p/1.jpg" in capsys.readouterr().err


def test_splits_with_different_classes_are_refused(capsys) -> None:
    """One number for two classes is refused until an option numbers the classes."""
    write({"p/train/cat/1.jpg": jpeg(), "p/val/dog/2.jpg": jpeg(), "p/test/3.jpg": jpeg()})
    said = refused(capsys, "p", "--split", "val")
    assert "p/val and p/train have different classes (cat is only in train)" in said
    assert "--classes NAME,NAME" in said
    assert [each[".cls"] for each in imported("p", "--split", "val", "--classes", "cat,dog")] == [
        b"1"
    ]
    assert [each[".cls"] for each in imported("p", "--split", "val", "--classes", "auto")] == [b"0"]


def test_sound_by_class_is_imported() -> None:
    """Folders of classes may hold sound instead of pictures."""
    write({"p/bark/1.wav": b"RIFF....WAVE", "p/bark/1.txt": b"wuff"})
    (sample,) = imported("p")
    assert (sample[".wav"], sample[".txt"], sample[".cls"]) == (b"RIFF....WAVE", b"wuff", b"0")


@pytest.mark.parametrize(
    "names", [["train2017", "val2017"], ["test_set", "train_set"], ["annotations", "train", "val"]]
)
def test_parts_with_other_names_are_not_taken_for_classes(names: list[str], capsys) -> None:
    """Parts with a year or a word in their names, or beside other folders, are not classes."""
    write({f"p/{name}/1.jpg": jpeg() for name in names})
    said = refused(capsys, "p")
    assert "may be parts of a dataset or classes" in said
    assert "annotations" not in said
    imported("p", "--classes", "auto")
    assert new_header()["classes"] == names


def test_a_class_may_be_called_train() -> None:
    """A folder `train` without another part is a class."""
    write({"p/train/1.jpg": jpeg(), "p/boat/1.jpg": jpeg()})
    imported("p")
    assert new_header()["classes"] == ["boat", "train"]


def test_a_folder_around_the_classes_is_not_the_class(capsys) -> None:
    """`images/cat/1.jpg` is not a sample of a class `images`, unless an option says so."""
    write({"p/images/cat/1.jpg": jpeg(), "p/images/dog/1.jpg": jpeg()})
    assert "--split images to import that part" in refused(capsys, "p")
    imported("p/images")
    assert new_header()["classes"] == ["cat", "dog"]
    imported("p", "--classes", "auto")
    assert new_header()["classes"] == ["images"]


def test_only_documentation_is_left_out_without_a_word(capsys) -> None:
    """Files such as LICENSE and README_en.md are ignored; license_plates.csv is listed."""
    names = ["LICENSE", "README_en.md", "license_plates.csv", "citations.json"]
    write({"p/cat/1.jpg": jpeg(), **{f"p/{name}": b"x" for name in names}})
    assert main(["import", "p", "--from", "imagefolder", "-o", "out/x-%d.tar"]) == 0
    assert "files that lie in no class: 2, such as p/citations.json" in capsys.readouterr().err
