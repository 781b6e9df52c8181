"""Tables as other programs write them: no row, number, class or picture is lost."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from helpers.importing import imported, jpeg, new_header, refused

from wids.cli import main

datasets = pytest.importorskip("datasets")
pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")


@pytest.fixture(autouse=True)
def _quiet(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "hf")
    datasets.disable_progress_bars()


class TestParquetOfHuggingFace:
    """What `Dataset.to_parquet` writes."""

    def test_paths_that_leave_the_folder_are_refused(self, capsys) -> None:
        """A row that names a file outside of the table's folder needs the user's permission."""
        Path("secret.jpg").write_bytes(jpeg())
        kind = pyarrow.struct([("bytes", pyarrow.binary()), ("path", pyarrow.string())])
        Path("in").mkdir()
        for name in ("../secret.jpg", str(Path("secret.jpg").absolute())):
            rows = pyarrow.array([{"bytes": None, "path": name}], kind)
            parquet.write_table(pyarrow.table({"image": rows}), "in/x.parquet")
            Path("in/x.csv").write_text(f"path,cls\n{name},1\n")
            for table in ("in/x.parquet", "in/x.csv"):
                said = refused(capsys, table)
                assert f"{table}: row 0: expected a file in in, found {name}" in said
        (sample,) = imported("in/x.parquet", "--allow-outside")
        assert sample[".jpg"] == jpeg()

    def test_pictures_that_are_paths_are_read(self) -> None:
        """A path in a row gives the bytes of its file, and its name."""
        for number in range(3):
            Path(f"{number}.jpg").write_bytes(jpeg(number))
        images = datasets.Dataset.from_dict({"image": [f"{i}.jpg" for i in range(3)]})
        images.cast_column("image", datasets.Image()).to_parquet("x.parquet")
        rows = parquet.read_table("x.parquet").column("image").to_pylist()
        assert any(row["bytes"] is None for row in rows)  # the case that is tested
        samples = imported("x.parquet")
        assert [sample[".jpg"] for sample in samples] == [jpeg(i) for i in range(3)]
        assert json.loads(samples[2][".json"])["image.path"] == "2.jpg"

    def test_a_picture_that_is_not_there_is_an_error(self, capsys) -> None:
        """A missing picture raises an error with row and file."""
        rows = [{"image": {"bytes": None, "path": "gone.jpg"}}]
        parquet.write_table(pyarrow.Table.from_pylist(rows), "x.parquet")
        said = refused(capsys, "x.parquet")
        assert "x.parquet: row 0: names the file gone.jpg, which does not exist" in said

    def test_rows_without_a_picture_are_counted(self, capsys) -> None:
        """A null in a column of pictures is reported, and refused with --strict."""
        images = [{"bytes": jpeg(), "path": None}, None, None]
        dataset = datasets.Dataset.from_dict(
            {"image": images, "caption": ["a", None, "c"]},
            features=datasets.Features(
                {"image": datasets.Image(), "caption": datasets.Value("string")}
            ),
        )
        dataset.to_parquet("x.parquet")
        dataset.save_to_disk("saved")
        for source in ("x.parquet", "saved"):
            samples = imported(source)
            assert [".jpg" in sample for sample in samples] == [True, False, False]
            assert json.loads(samples[1][".json"]) == {"caption": None}
            said = capsys.readouterr().err
            assert "samples without a value in the column 'image': 2, such as 000000001" in said
            assert main(["import", source, "--strict", "-o", "strict/x-%d.tar"]) == 1

    @pytest.mark.parametrize("folder", ["hub", "hub/data"])
    def test_tables_in_a_folder_are_named_one_by_one(self, folder: str, capsys) -> None:
        """A folder with tables, as the hub has them, is refused by a message with the names."""
        features = datasets.Features({"label": datasets.ClassLabel(names=["cat", "dog"])})
        part = datasets.Dataset.from_dict({"label": [0, 1, 1]}, features=features)
        Path("hub/data").mkdir(parents=True)
        Path("hub/README.md").write_text("---\nlicense: mit\n---\n")
        for number in range(2):
            part.to_parquet(f"hub/data/train-0000{number}-of-00002.parquet")
        assert "as in wids import hub/data/*.parquet" in refused(capsys, folder)
        parts = sorted(map(str, Path("hub/data").glob("*.parquet")))
        assert [sample[".cls"] for sample in imported(*parts, "--strict")] == [b"0", b"1", b"1"] * 2
        assert new_header()["classes"] == ["cat", "dog"]


class TestSeveral:
    """Several tables at once."""

    @pytest.mark.parametrize("suffix", [".csv", ".parquet", ".jsonl"])
    def test_tables_follow_each_other(self, suffix: str) -> None:
        """Rows of several tables are numbered on in the given order."""
        for name, texts in (("b", ["one", "two"]), ("a", ["three"])):
            rows = [{"text": text} for text in texts]
            if suffix == ".parquet":
                parquet.write_table(pyarrow.Table.from_pylist(rows), f"{name}{suffix}")
            elif suffix == ".csv":
                Path(f"{name}.csv").write_text("\n".join(["text", *texts]))
            else:
                Path(f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
        samples = imported(f"b{suffix}", f"a{suffix}", "--field", "text=txt")
        assert [sample[".txt"] for sample in samples] == [b"one", b"two", b"three"]
        assert [sample["__key__"] for sample in samples] == [f"{i:09}" for i in range(3)]

    def test_columns_in_another_order_are_the_same(self) -> None:
        """Columns are told by their names, and all samples have them in the first table's order."""
        Path("a.csv").write_text("word,count\none,1\n")
        Path("b.csv").write_text("count,word\n2,two\n")
        samples = imported("a.csv", "b.csv")
        assert [json.loads(sample[".json"]) for sample in samples] == [
            {"word": "one", "count": 1},
            {"word": "two", "count": 2},
        ]
        assert [list(json.loads(sample[".json"])) for sample in samples] == [["word", "count"]] * 2

    def test_pictures_described_by_metadata(self) -> None:
        """metadata.csv, as in `datasets`' ImageFolder, describes the files that it names."""
        Path("p").mkdir()
        Path("p/1.jpg").write_bytes(jpeg(1))
        Path("p/metadata.csv").write_text("file_name,caption\n1.jpg,a cat\n")
        (sample,) = imported("p/metadata.csv", "--field", "caption=txt", "--strict")
        assert (sample[".jpg"], sample[".txt"]) == (jpeg(1), b"a cat")

    def test_a_table_beside_pictures_is_asked_about(self, capsys) -> None:
        """A table beside folders of pictures is refused until an option says its meaning."""
        Path("p/cat").mkdir(parents=True)
        Path("p/cat/1.jpg").write_bytes(jpeg(1))
        Path("p/labels.csv").write_text("path,label\ncat/1.jpg,0\n")
        assert "p/labels.csv: is a table in a folder; name the tables themselves" in refused(
            capsys, "p"
        )


class TestCells:
    """What cells become."""

    def test_numbers_of_a_csv_stay_numbers(self) -> None:
        """A column of numbers is numeric in JSON; codes, dates and named columns are text."""
        with Path("t.csv").open("w", newline="") as stream:
            table = csv.writer(stream)
            table.writerow(["id", "n", "x", "zip", "mixed", "empty", "txt", "when"])
            table.writerow([1, 5, 0.5, "007", 1, "", "1.10", "2020-01-01"])
            table.writerow([2, -6, 1e-7, "123", "one", "", "2.0", "2020-01-02"])
            table.writerow([3, "", 3, "456", 2, "", "3", "2020-01-03"])
        samples = imported("t.csv", "--field", "txt=txt")
        assert [sample["__key__"] for sample in samples] == ["1", "2", "3"]
        assert [sample[".txt"] for sample in samples] == [b"1.10", b"2.0", b"3"]
        rest = [json.loads(sample[".json"]) for sample in samples]
        assert [row["n"] for row in rest] == [5, -6, None]
        assert [row["x"] for row in rest] == [0.5, 1e-7, 3]
        assert rest[0]["zip"] == "007"
        assert [row["mixed"] for row in rest] == ["1", "one", "2"]
        assert {row["empty"] for row in rest} == {""}
        assert rest[0]["when"] == "2020-01-01"

    @pytest.mark.parametrize("text", ["1e999", "nan", "inf", "0x10", "1_000", "+5", " 5", "٣"])
    def test_what_only_looks_like_a_number_is_text(self, text: str) -> None:
        """A number that JSON would not reproduce is kept as text."""
        Path("t.csv").write_text(f"n\n{text}\n", encoding="utf-8")
        assert [json.loads(sample[".json"])["n"] for sample in imported("t.csv")] == [text]

    @pytest.mark.parametrize(
        ("named", "expected", "numbers"),
        [("auto", ["cat", "dog"], [b"1", b"0", b"1"]), ("dog,cat,eel", None, [b"0", b"1", b"0"])],
    )
    @pytest.mark.parametrize("suffix", [".csv", ".parquet", ".jsonl"])
    def test_names_of_classes_are_numbered_and_kept(
        self, suffix: str, named: str, expected: list[str] | None, numbers: list[bytes]
    ) -> None:
        """Classes are numbered in sorted or given order, and the spec has their names."""
        rows = [{"label": name, "text": "t"} for name in ("dog", "cat", "dog")]
        if suffix == ".parquet":
            parquet.write_table(pyarrow.Table.from_pylist(rows), "t.parquet")
        elif suffix == ".csv":
            Path("t.csv").write_text("label,text\ndog,t\ncat,t\ndog,t\n")
        else:
            Path("t.jsonl").write_text("\n".join(map(json.dumps, rows)))
        samples = imported(f"t{suffix}", "--classes", named)
        assert [sample[".cls"] for sample in samples] == numbers
        assert new_header()["classes"] == (expected or named.split(","))

    def test_long_cells_are_read(self) -> None:
        """A cell longer than 128 KiB, the limit of `csv`, is read."""
        limit = csv.field_size_limit()
        text = "x" * 300_000
        Path("t.csv").write_text(f"text\n{text}\n")
        (sample,) = imported("t.csv", "--field", "text=txt")
        assert sample[".txt"].decode() == text
        assert csv.field_size_limit() == limit


def test_parquet_with_two_columns_of_one_name_is_refused(capsys) -> None:
    """A Parquet file with two columns of one name is refused."""
    columns = [pyarrow.array([1]), pyarrow.array([2])]
    parquet.write_table(pyarrow.Table.from_arrays(columns, names=["a", "a"]), "t.parquet")
    assert "two columns have the name 'a'" in refused(capsys, "t.parquet")


def test_files_missing_from_a_numbered_set_are_counted(capsys) -> None:
    """`x-00000-of-00005` implies five files; who names one file wants that one."""
    paths = [f"train-{number:05d}-of-00005.parquet" for number in (0, 2)]
    for path in paths:
        parquet.write_table(pyarrow.table({"text": [path]}), path)
    assert len(imported(*paths)) == 2
    missing = "such as train-00001-of-00005.parquet"
    assert f"files missing from a numbered set: 3, {missing}" in capsys.readouterr().err
    assert main(["import", *paths, "--strict", "-o", "out/y-%d.tar"]) == 1
    assert len(imported(paths[1], "--strict")) == 1


@pytest.mark.parametrize("noted", [b"no JSON", b"[]", b'{"info": 3}'])
def test_class_names_that_cannot_be_read_are_an_error(noted: bytes, capsys) -> None:
    """Class names in an unknown form of metadata are an error."""
    table = pyarrow.table({"label": [1]}).replace_schema_metadata({b"huggingface": noted})
    parquet.write_table(table, "x.parquet")
    assert "x.parquet: the metadata of the library 'datasets'" in refused(capsys, "x.parquet")


def test_columns_in_the_names_of_folders_are_counted(capsys) -> None:
    """Columns that `write_to_dataset` stores in folder names are reported as missing."""
    table = pyarrow.table({"x": [1, 2, 3], "label": ["cat", "dog", "cat"]})
    parquet.write_to_dataset(table, "rows", partition_cols=["label"])
    parts = sorted(map(str, Path("rows").glob("*/*.parquet")))
    command = ["import", *parts, "-o", "x-%d.tar"]
    assert main(command) == 0
    said = capsys.readouterr().err
    assert "tables whose column 'label' is in the names of folders: 2, such as" in said
    assert main([*command, "--strict"]) == 1
    assert "label=cat" in capsys.readouterr().err


def test_keys_that_become_equal_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    """`a.b` and `a_b` are one key, in one shard or in two; that is listed, or refused."""
    Path("k.csv").write_text("key,text\na.b,1\nc,2\nd,3\na_b,4\n")
    command = ["import", "k.csv", "-o", "out/x-%d.tar", "--maxcount", "2"]
    assert main(command) == 0
    said = capsys.readouterr().err
    assert "samples with the key of an earlier one (--rekey numbers them): 1, such as" in said
    assert "samples 0 and 3" in said
    assert main([*command, "--strict"]) == 1
    assert "samples 0 and 3" in capsys.readouterr().err
    assert main([*command, "--rekey", "--strict"]) == 0
    assert "earlier one" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("cell", "value"),
    [
        ("0.1", 0.1),
        ("1.000000000000000056e-01", 0.1),  # as numpy.savetxt writes it
        ("0.10000000000000000555", 0.1),
        ("0.12345678901234567890", "0.12345678901234567890"),
        ("1.0000000000000000001", "1.0000000000000000001"),
        ("1e-400", "1e-400"),
    ],
)
def test_numbers_of_a_csv_that_no_float_holds_stay_texts(cell: str, value: Any) -> None:
    """A number with the digits of a float becomes one; others would lose digits."""
    Path("a.csv").write_text(f"number,text\n{cell},x\n")
    (sample,) = imported("a.csv")
    assert json.loads(sample[".json"])["number"] == value


def test_rows_without_a_field_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    """They do not stop an import."""
    parquet.write_table(pyarrow.table({"jpg": [jpeg(), None, jpeg()]}), "b.parquet")
    assert [sample["__key__"] for sample in imported("b.parquet")] == ["000000000", "000000002"]
    assert "samples without any field: 1, such as 000000001" in capsys.readouterr().err
    assert main(["import", "b.parquet", "-o", "new/x-%d.tar", "--strict"]) == 1
