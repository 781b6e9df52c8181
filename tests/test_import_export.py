"""`wids import` and `wids export` keep all data, and nothing is written outside the folder."""

import csv
import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.importing import fields_of, jpeg
from PIL import Image

import wids
from wids.base.omissions import Omissions
from wids.cli import main
from wids.importing.folders import open_image_folder
from wids.importing.options import ImportOptions
from wids.tools.exporters import export_table

FACTS = ("offset", "size")

MakeShard = Callable[..., Path]


@pytest.fixture
def pictures(tmp_path: Path, monkeypatch) -> Path:
    """Make an ImageFolder tree of three classes with other files in it."""
    monkeypatch.chdir(tmp_path)
    for number, name in enumerate(["dog/a.jpg", "cat/b.JPG", "cat/deep/c.x.jpg", "ant/d.jpg"]):
        path = tmp_path / "pictures" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(jpeg(number * 50))
    (tmp_path / "pictures" / "cat" / "notes.txt").write_text("no image")
    (tmp_path / "pictures" / "README").write_text("no class")
    return tmp_path / "pictures"


class TestImageFolder:
    """Folders of images by class."""

    def test_images_keep_their_bytes_and_get_their_class(self, pictures: Path):
        """Images keep their bytes, and classes are the sorted folders, with names in the spec."""
        assert main(["import", "pictures", "-o", "out/x-%03d.tar", "--maxcount", "3"]) == 0
        samples = fields_of("out/x.json")
        assert [sample["__key__"] for sample in samples] == [
            "ant/d",
            "cat/b",
            "cat/deep/c_x",
            "dog/a",
        ]
        assert [int(sample[".cls"]) for sample in samples] == [0, 1, 1, 2]
        files = ["ant/d.jpg", "cat/b.JPG", "cat/deep/c.x.jpg", "dog/a.jpg"]
        for sample, file in zip(samples, files, strict=True):
            assert sample[".jpg"] == (pictures / file).read_bytes()
            assert json.loads(sample[".json"])["path"] == file
        document = json.loads(Path("out/x.json").read_text())
        assert document["classes"] == ["ant", "cat", "dog"]
        assert main(["check", "out/x.json", "--decode"]) == 0

    def test_files_that_differ_in_suffix_only_stay_apart(self, pictures: Path):
        """`a.jpg` and `a.png` are two samples."""
        Image.new("RGB", (4, 4)).save(pictures / "dog" / "a.png")
        assert main(["import", "pictures", "-o", "out/x-%03d.tar"]) == 0
        keys = [sample["__key__"] for sample in fields_of("out/x.json")]
        assert keys[-2:] == ["dog/a_jpg", "dog/a_png"]

    def test_links_lead_to_what_they_name(self, pictures: Path, tmp_path: Path):
        """Linked files, folders and classes are imported, as by torchvision."""
        (tmp_path / "elsewhere").mkdir()
        (tmp_path / "elsewhere" / "f.jpg").write_bytes(jpeg(200))
        (pictures / "cat" / "more").symlink_to(tmp_path / "elsewhere")
        (pictures / "eel").symlink_to(tmp_path / "elsewhere")
        keys = {
            sample["__key__"]: sample[".cls"]
            for sample in open_image_folder([str(pictures)], ImportOptions()).samples
        }
        assert (keys["cat/more/f"], keys["eel/f"], len(keys)) == (1, 3, 6)


class TestExport:
    """Files and tables of a dataset."""

    def test_files_come_back_as_they_went_in(self, pictures: Path, capfdbinary):
        """Import, reshard and a tar of all samples keep the bytes of every image."""
        main(["import", "pictures", "-o", "a/x-%03d.tar"])
        main(["reshard", "a/x.json", "-o", "b/x-%03d.tar", "--maxcount", "1", "--shuffle", "1"])
        capfdbinary.readouterr()
        assert main(["map", "b/x.json", "-o", "-"]) == 0
        with tarfile.open(fileobj=io.BytesIO(capfdbinary.readouterr().out)) as archive:
            archive.extractall("files", filter="data")
        for name in ("dog/a.jpg", "ant/d.jpg"):
            assert Path("files", name).read_bytes() == (pictures / name).read_bytes()
        assert len([path for path in Path("files").rglob("*") if path.is_file()]) == 12

    @pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
    def test_table_says_where_each_field_lies(self, pictures: Path, suffix: str):
        """Offset and size in the table locate the field in the shard."""
        main(["import", "pictures", "-o", "a/x-%03d.tar", "--maxcount", "3"])
        assert main(["export", "a/x.json", f"t{suffix}"]) == 0
        rows = read_table(Path(f"t{suffix}"))
        assert [row["key"] for row in rows] == ["ant/d", "cat/b", "cat/deep/c_x", "dog/a"]
        last = rows[-1]
        start, size = int(last[".jpg offset"]), int(last[".jpg size"])
        assert Path(last["shard"]).read_bytes()[start : start + size] == jpeg(0)
        assert int(last["shard_index"]) == 1

    @pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
    def test_fields_that_only_later_samples_have_get_columns(
        self, suffix: str, make_shard: MakeShard, tmp_path: Path
    ):
        """Every field has a column."""
        rows = [{"__key__": f"{number}", ".txt": "t" * number} for number in range(5)]
        rows[3][".cls"] = "3"
        make_shard("in/a.tar", rows)
        make_shard("in/b.tar", [])
        make_shard("in/c.tar", [{"__key__": "c", ".bin": "x", ".txt": ""}])
        table = tmp_path / f"t{suffix}"
        with wids.ShardListDataset(str(tmp_path / "in")) as dataset:
            assert export_table(dataset, table, Omissions()) == 6
        found = read_table(table)
        assert [row["key"] for row in found] == ["0", "1", "2", "3", "4", "c"]
        assert [int(row[".txt size"]) for row in found] == [0, 1, 2, 3, 4, 0]
        assert [bool(row.get(".bin size")) for row in found] == [False] * 5 + [True]
        if suffix != ".jsonl":  # JSON lines have no columns
            fields = [f"{name} {fact}" for name in (".bin", ".cls", ".txt") for fact in FACTS]
            places = ["index", "key", "shard", "shard_index"]
            assert {*found[0]} == {*places, *fields}


def read_table(path: Path) -> list[dict]:
    """Read a table by its own library."""
    if path.suffix == ".csv":
        with path.open(newline="", encoding="utf-8") as stream:
            return list(csv.DictReader(stream))
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_text().splitlines()]
    return pytest.importorskip("pyarrow.parquet").read_table(path).to_pylist()


@pytest.mark.parametrize("source", ["folder", "classes", "a.csv", "a.jsonl", "a.tfrecord", "a.tar"])
def test_importing_nothing_is_an_error_that_leaves_older_shards_alone(
    source: str, tmp_path: Path, monkeypatch, capsys
):
    """An import without samples exits with 1 and keeps older shards."""
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    Path("classes/cat").mkdir(parents=True)
    Path("a.csv").write_text("path,label\n")
    Path("a.jsonl").write_text("")
    Path("a.tfrecord").write_text("")
    tarfile.open("a.tar", "w").close()
    for out in ("old", "new"):
        if out == "old":
            Path(out).mkdir()
            Path(out, "x-0.tar").write_text("older")
        assert main(["import", source, "-o", f"{out}/x-%d.tar"]) == 1
        assert source in capsys.readouterr().err
    assert {path.name: path.read_text() for path in Path("old").iterdir()} == {"x-0.tar": "older"}
    assert not Path("new").exists()


def test_keys_that_clash_in_a_table_name_the_row(tmp_path: Path, monkeypatch, capsys):
    """The error for a duplicate key names the row and how to number the samples."""
    monkeypatch.chdir(tmp_path)
    Path("a.jsonl").write_text('{"id": "a", "n": 1}\n{"id": "b", "n": 2}\n{"id": "a", "n": 3}\n')
    assert main(["import", "a.jsonl", "-o", "out/x-%d.tar"]) == 1
    said = capsys.readouterr().err
    assert "a.jsonl: sample 2: sample 'a'" in said
    assert "--rekey" in said
    assert main(["import", "a.jsonl", "-o", "out/x-%d.tar", "--rekey"]) == 0
    with wids.ShardListDataset("out/x.json") as dataset:
        found = [(sample["__key__"], sample[".json"]) for sample in dataset]
    assert found[2] == ("000000002", {"id": "a", "n": 3})


@pytest.mark.parametrize(
    "output", ["http://host/out", "s3://me:secret@bucket/out/", "gs://b/t.csv"]
)
def test_exporting_to_a_url_is_refused(output: str, make_shard: MakeShard, monkeypatch, capsys):
    """No folder called "s3:" appears on this machine in place of an upload."""
    folder = make_shard("e.tar", [{"__key__": "a", ".txt": "one"}]).parent
    monkeypatch.chdir(folder)
    assert main(["export", "e.tar", output]) == 1
    said = capsys.readouterr().err
    assert "looks like a URL; output is written to paths of this machine" in said
    assert "secret" not in said
    assert [path.name for path in folder.iterdir() if ":" in path.name] == []


def test_exporting_nothing_is_an_error(make_shard: MakeShard, monkeypatch, capsys):
    """Exporting an empty dataset to a table is an error."""
    monkeypatch.chdir(make_shard("e.tar", []).parent)
    assert main(["export", "e.tar", "table.csv"]) == 1
    assert "no samples" in capsys.readouterr().err
    assert not Path("table.csv").exists()


@pytest.mark.filterwarnings("default::wids.WidsWarning")
def test_an_answer_of_sql_becomes_a_table(
    tmp_path: Path, make_shard: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """An answer becomes a table; what the catalogue lacks is listed, also of a view."""
    texts = ["cat", "a dog", None]
    rows = [
        {"__key__": f"k{n}", ".json": json.dumps({"tags": [n], "text": text}), ".txt": "x" * n}
        for n, text in enumerate(texts)
    ]
    rows.append({"__key__": "k3", ".json": "{broken"})
    path = str(make_shard("a.tar", rows))
    wids.ShardListDataset([path])[[3, 0, 1, 2]].save(tmp_path / "view.json")
    query = "select index, json.text as text, json.tags as tags from samples order by index"
    for suffix in ("jsonl", "csv", "parquet"):
        out = str(tmp_path / f"t.{suffix}")
        assert main(["sql", str(tmp_path / "view.json"), query, "-o", out]) == 0
        said = capsys.readouterr().err  # of what is null, where the catalogue is built
        assert ("1 fields 'json' are null in it: 1 damaged" in said) == (suffix == "jsonl")
        lines = read_table(Path(out))
        given = [
            [json.loads(cell) if isinstance(cell, str) and cell[:1] == "[" else cell or None
             for cell in (line.get("text"), line.get("tags"))]
            for line in lines
        ]  # fmt: skip
        assert given == [[None, None], ["cat", [0]], ["a dog", [1]], [None, [2]]]
        assert [int(line["index"]) for line in lines] == [0, 1, 2, 3]
    assert main(["sql", path, query, "-o", "t.txt"]) == 1
    assert "t.txt: expected a table" in capsys.readouterr().err
