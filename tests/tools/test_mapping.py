"""`wids map` and `map_samples`: functions over all samples."""

import io
import json
import os
import resource
import shutil
import sys
import tarfile
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
import pytest
from helpers.shards import MakeShard, read_tar, write_shards

import wids
from wids.cli import main
from wids.tools.mapping import map_samples

KEYS = [f"k{number:02d}" for number in range(30)]
FUNCTIONS = """
def doubled(sample):
    return {"cls": sample[".cls"] * 2, ".len.txt": str(len(sample[".txt"]))}

def odd(sample):
    return {} if sample[".cls"] % 2 else None

def number(sample):
    return sample[".cls"] / 2

def both(sample):
    return {".half": sample[".cls"] / 2, "text": sample[".txt"]}

def keyed(sample):
    return {"key": 1}

def failing(sample):
    if sample["__key__"] in ("k07", "k19"):
        raise RuntimeError("no such thing")
    return {".made": b"x"}

def raw(sample):
    return {"txt": bytes(sample[".txt"]).upper()}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make three shards of ten samples, their spec, and a file of functions."""
    folder = tmp_path / "set"
    samples = [{"__key__": key, ".cls": str(n), ".txt": f"text {n}"} for n, key in enumerate(KEYS)]
    write_shards(folder, samples, 10)
    monkeypatch.chdir(folder)
    spec = {"classes": ["cat", "dog"], "shardlist": [{"url": f"{n}.tar"} for n in range(3)]}
    Path("all.json").write_text(json.dumps(spec))
    Path("functions.py").write_text(FUNCTIONS)
    return folder


def mapped(*options: str) -> int:
    return main(["map", "all.json", "--workers", "1", *options])


# Options, and the members that sample 5 then has (none: it is left out).
CASES: list[tuple[list[str], dict[str, bytes]]] = [
    ([], {".cls": b"5", ".txt": b"text 5"}),
    (["--fields", "cls"], {".cls": b"5"}),
    (["--rename", "txt=.caption.txt"], {".caption.txt": b"text 5", ".cls": b"5"}),
    (
        ["--function", "functions.py:doubled"],
        {".cls": b"10", ".len.txt": b"6", ".txt": b"text 5"},
    ),
    (["--function", "functions.py:doubled", "--only-new"], {".cls": b"10", ".len.txt": b"6"}),
    (["--function", "functions.py:odd"], {".cls": b"5", ".txt": b"text 5"}),
    (["--function", "functions:raw", "--raw"], {".cls": b"5", ".txt": b"TEXT 5"}),
    (["--where", "cls = 5"], {".cls": b"5", ".txt": b"text 5"}),
    (["--where", "cls is distinct from 5"], {}),
]


@pytest.mark.parametrize(("options", "expected"), CASES, ids=[" ".join(each) for each, _ in CASES])
def test_fields_of_new_shards(
    options: list[str], expected: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """New fields are encoded, and stored ones are copied."""
    monkeypatch.setattr(sys, "path", list(sys.path))  # a module of the working folder is found
    assert mapped(*options, "-o", "new/x-%03d.tar") == 0
    found = read_tar(Path("new/x-000.tar"))
    assert {name[3:]: data for name, data in found.items() if name[:3] == "k05"} == expected


def test_order_and_number_of_samples() -> None:
    """New shards have the samples in the order of the view, without those that are dropped."""
    view = wids.ShardListDataset("all.json").filter("cls < 20").order_by("txt")
    view.save("sorted.json")
    assert main(["map", "sorted.json", "-o", "new/x-%d.tar", "--maxcount", "7"]) == 0
    dataset = wids.ShardListDataset("new/x.json")
    assert list(dataset.keys) == sorted(KEYS[:20], key=lambda key: f"text {int(key[1:])}")
    assert max(dataset.lengths) <= 7
    odd = ["--function", "functions.py:odd", "--where", "cls < 6"]
    assert mapped(*odd, "-o", "odd/x-%d.tar") == 0
    assert list(wids.ShardListDataset("odd/x.json").keys) == ["k01", "k03", "k05"]


def test_a_misspelt_rename_is_said() -> None:
    """A rename that changes nothing names the fields that are there."""
    dataset = wids.ShardListDataset("all.json")
    with pytest.warns(wids.WidsWarning, match="first sample has no '.typo'.*it has .cls, .txt"):
        map_samples(dataset, None, "n-%d.tar", rename={"typo": ".caption.txt"}, workers=1)


DOUBLED = ["--function", "functions.py:doubled"]


@pytest.mark.parametrize(
    ("options", "keeps"),
    [
        ([], True),
        (["--rename", "cls=.label.cls"], True),
        (DOUBLED, True),
        (["--rename", "cls=.was"], False),
        ([*DOUBLED, "--rename", "cls=.was"], False),
        ([*DOUBLED, "--only-new"], False),
        (["--fields", "txt", *DOUBLED[:1], "functions.py:made"], False),
    ],
)
@pytest.mark.parametrize("header", [{"classes": ["cat"]}, {"info": {"labels": ["cat"]}}])
def test_class_names_stay_with_their_field(
    options: list[str], keeps: bool, header: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """Class names are left out, and said so, where they would name another field or none."""
    spec = json.loads(Path("all.json").read_text())
    Path("all.json").write_text(json.dumps({"shardlist": spec["shardlist"][:1], **header}))
    if "txt" in options:  # the field of the classes is not read
        Path("functions.py").write_text("def made(sample):\n    return {'.made.cls': 1}\n")
    assert mapped(*options, "-o", "new/x-%d.tar") == 0
    written = json.loads(Path("new/x.json").read_text())
    assert (header.items() <= written.items()) == keeps
    assert ("cat" in Path("new/x.json").read_text()) == keeps
    assert ("left out: class names" in capsys.readouterr().err) != keeps


TWO_COLUMNS = {"label": ["cat", "dog"], "other": ["x", "y"]}


def two_class_columns(name: str = "two", names: Any = TWO_COLUMNS) -> wids.ShardListDataset:
    """Write four samples with two class fields, whose names the spec gives by column."""
    with wids.ShardWriter(f"{name}-%d.tar", spec=f"{name}.json") as writer:
        writer.header["classes"] = names
        for number in range(4):
            writer.write({"__key__": f"{number}", ".label.cls": number % 2, ".other.cls": 0})
    return wids.ShardListDataset(f"{name}.json")


@pytest.mark.parametrize(
    ("fields", "rename", "function", "keeps"),
    [
        (None, {}, None, True),
        (None, {}, lambda sample: {".label.cls": 1 - sample[".label.cls"]}, True),
        (None, {".label.cls": ".other.cls", ".other.cls": ".label.cls"}, None, False),
        (None, {".label.cls": ".new.cls"}, None, False),
        (None, {}, lambda sample: {".label.cls": None}, False),
        ([".other.cls"], {}, None, False),
    ],
)
def test_names_of_two_class_columns_stay_with_their_fields(
    fields: list[str] | None, rename: dict[str, str], function: Any, keeps: bool
) -> None:
    """Names by column are kept if all class fields keep theirs; else they are left out, listed."""
    samples = two_class_columns().with_options(fields=fields)
    done = wids.map_samples(samples, function, "new/x-%d.tar", rename=rename, workers=1)
    written = json.loads(Path("new/x.json").read_text())
    assert written.get("classes") == (TWO_COLUMNS if keeps else None)
    listed = "class columns whose names are left out, as not all class fields are copied as named"
    assert done.omissions.lines() == ([] if keeps else [f"{listed}: 2, such as label"])


def test_names_of_two_class_columns_are_kept_from_parts_that_agree() -> None:
    """New shards of a concatenation have them; of parts that differ they are left out, said so."""
    one = two_class_columns()
    both = wids.concat([one, one])
    for samples in (both, both.filter('"label.cls" = 0')):
        wids.reshard(samples, range(len(samples)), "new/x-%d.tar", rekey=True, workers=1)
        assert json.loads(Path("new/x.json").read_text())["classes"] == TWO_COLUMNS
    other = two_class_columns("other", {**TWO_COLUMNS, "label": ["dog", "cat"]})
    differing = wids.concat([one, other], classes="any")
    with pytest.warns(wids.WidsWarning, match="classes of their columns"):
        wids.reshard(differing, range(8), "other/x-%d.tar", rekey=True, workers=1)
    assert "classes" not in json.loads(Path("other/x.json").read_text())


def add_hidden(path: str) -> None:
    """Append a hidden member and one without an extension, by Python's own module."""
    with tarfile.open(path, "a") as tar:
        for name in (".hidden", "README", "LICENSE"):
            member = tarfile.TarInfo(name)
            member.size = 1
            tar.addfile(member, io.BytesIO(b"x"))


def test_members_in_no_sample_are_listed(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    """Each shard is counted once, in whatever parts, orders and views its samples are written."""
    add_hidden("0.tar")
    add_hidden("1.tar")
    with tarfile.open("0.tar") as tar:
        lost = [name for name in tar.getnames() if not name.startswith("k")]
    assert len(lost) == 3
    assert mapped("-o", "-", "--strict") == 1
    assert mapped("-o", "new/x-%d.tar", "--strict") == 1
    assert capsys.readouterr().err.count("which --strict forbids") == 2
    assert not (folder / "new").exists()
    for options in ([], ["--maxcount", "7"]):
        assert mapped("-o", "new/x-%d.tar", *options) == 0
        told = capsys.readouterr().err
        assert told.count("left out: members of tars that are in no sample") == 2, told
        assert "(no extension): 4, such as" in told, told
    assert mapped("-o", "third/x-%d.tar", "--where", "cls >= 20", "--strict") == 0
    assert mapped("-o", "only/x-%d.tar", *DOUBLED, "--only-new", "--strict") == 0
    assert "in no sample" not in capsys.readouterr().err


def test_keys_of_entries_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    """Keys of old entries, which no new entry can have, are left out as by `wids reshard`."""
    Path("all.json").write_text(json.dumps([{"url": "0.tar", "licence": "MIT"}]))
    assert mapped("-o", "new/x-%d.tar") == 0
    assert "left out: shards' keys 'licence' in the spec: 1, such as" in capsys.readouterr().err
    assert mapped("-o", "-", "--strict") == 0
    assert mapped("-o", "new/y-%d.tar", "--strict") == 1


def test_several_datasets_become_one() -> None:
    """The samples of several specs come one after the other."""
    assert main(["create", "0.tar", "-o", "zero.json"]) == 0
    assert main(["create", "2.tar", "-o", "two.json"]) == 0
    assert main(["map", "zero.json", "two.json", "--workers", "1", "-o", "both/x-%d.tar"]) == 0
    assert list(wids.ShardListDataset("both/x.json").keys) == KEYS[:10] + KEYS[20:]


def test_new_fields_are_joined_to_the_old_shards() -> None:
    """Shards of new fields alone hold the same keys in the same order."""
    only = ["--function", "functions.py:doubled", "--only-new", "--rename", "cls=.was"]
    assert mapped(*only, "-o", "new/x-%d.tar", "--maxcount", "10") == 0
    joined = wids.ShardListDataset("all.json").join(
        wids.ShardListDataset("new/x.json"), rename={".cls": ".twice"}
    )
    assert [(sample[".cls"], sample[".twice"]) for sample in joined[3:5]] == [(3, 6), (4, 8)]


def test_values_become_a_column(folder: Path) -> None:
    """A `.parquet` has keys, and one or several values."""
    assert mapped("--function", "functions.py:both", "-o", "both.parquet", "--maxcount", "8") == 0
    table = pyarrow.parquet.read_table("both.parquet").to_pylist()
    assert table[7] == {"key": "k07", "half": 3.5, "text": "text 7"}
    assert len(table) == 30
    dataset = wids.ShardListDataset("all.json")
    joined = dataset.join("both.parquet")
    assert (joined[7][".half"], joined[7][".text"]) == (3.5, "text 7")
    assert map_samples(dataset, _vector, "v.parquet", workers=1).num_samples == 30
    assert pyarrow.parquet.read_table("v.parquet")["value"][3].as_py() == [3.0, 1.0]
    with ThreadPoolExecutor(2) as executor:
        few = map_samples(dataset, _if_even, "few.parquet", executor=executor, maxcount=4)
    assert (few.num_samples, few.num_dropped) == (15, 15)
    assert pyarrow.parquet.read_table("few.parquet")["value"].to_pylist() == list(range(0, 30, 2))
    assert not [path.name for path in folder.iterdir() if "part" in path.name.split(".")[-1:]]


def _vector(sample: Any) -> Any:
    return np.array([sample[".cls"], 1], np.float32)


def _if_even(sample: Any) -> Any:
    return None if sample[".cls"] % 2 else sample[".cls"]


def test_standard_output_is_one_tar(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """`-o -` writes a tar that any program reads, and the count on standard error."""
    assert mapped("--fields", ".txt", "--where", "cls in (3, 4)", "-o", "-") == 0
    captured = capfdbinary.readouterr()
    Path("out.tar").write_bytes(captured.out)
    assert read_tar(Path("out.tar")) == {"k03.txt": b"text 3", "k04.txt": b"text 4"}
    assert b"of 2 samples 2 written, 0 dropped, 0 skipped" in captured.err


def test_samples_that_fail_are_named(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    """Without a spec or a half shard where one fails; skipped and counted where that is asked."""
    failing = ["--function", "functions.py:failing", "-o", "new/x-%d.tar", "--maxcount", "10"]
    assert mapped(*failing) == 1
    told = capsys.readouterr().err
    assert "new/x-0.tar failed: sample 7, key 'k07', of" in told
    assert "0.tar: RuntimeError: no such thing" in told
    assert sorted(path.name for path in (folder / "new").iterdir()) == ["x-2.tar", "x.json.journal"]
    whole = os.stat("new/x-2.tar").st_mtime_ns  # noqa: PTH116
    assert mapped(*failing, "--resume", "--on-error", "raise") == 1
    assert os.stat("new/x-2.tar").st_mtime_ns == whole  # noqa: PTH116 (it was kept)
    capsys.readouterr()
    assert mapped(*failing, "--on-error", "skip", "--json") == 1
    captured = capsys.readouterr()
    assert json.loads(captured.out) == {
        "samples": 30,
        "written": 28,
        "dropped": 0,
        "skipped": 2,
        "left_out": [],
        "failures": {},
    }
    assert "left out: sample 19, key 'k19'" in captured.err
    assert list(wids.ShardListDataset("new/x.json").keys) == [
        key for key in KEYS if key not in {"k07", "k19"}
    ]


def test_a_shard_that_cannot_be_read_costs_its_samples_or_its_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Skipped samples are counted beside those written; without skipping, no file is left."""
    monkeypatch.chdir(tmp_path)
    for number in range(3):
        with wids.TarWriter(f"{number}.tar") as writer:
            for sample in range(10):
                writer.write({"__key__": f"k{number}{sample}", ".txt": "x" * 500, ".cls": 1})
    assert main(["create", "0.tar", "1.tar", "2.tar", "-o", "set.json"]) == 0
    Path("1.tar").write_bytes(Path("1.tar").read_bytes()[:3000])
    call = ["map", "set.json", "--fields", ".txt", "-o"]
    assert main([*call, "whole/x-%d.tar"]) == 1
    assert not list(Path("whole").glob("*.tar"))
    capsys.readouterr()
    main([*call, "rest/x-%d.tar", "--on-error", "skip"])
    told = capsys.readouterr()
    assert "of 30 samples 20 written, 0 dropped, 10 skipped; the spec is rest/x.json" in told.err
    assert len(wids.ShardListDataset("rest/x.json")) == 20


def _old(sample: Any) -> Any:
    if sample["__key__"] == KEYS[-1]:
        raise ValueError("the last sample fails")
    return {".made": b"old"}


def _new(_sample: Any) -> Any:
    return {".made": b"new"}


@pytest.mark.parametrize("output", ["new/x-%d.tar", "new.parquet"])
def test_a_run_of_something_else_is_not_resumed(output: str) -> None:
    """Another function, other options or fields, or another version of a shard are named."""
    dataset = wids.ShardListDataset("all.json")

    def run(function: Any = _old, samples: Any = dataset, **options: Any) -> Any:
        return map_samples(
            samples, function, output, workers=1, maxcount=10, resume=True, **options
        )

    assert len(run().failures) == 1
    with pytest.raises(ValueError, match="resume: .*made with another function"):
        run(_new)
    with pytest.raises(ValueError, match="resume: .*another fields"):
        run(samples=dataset.with_options(fields=[".cls"]))
    if output.endswith(".tar"):
        for name, value in {"sidecars": True, "digests": (), "only_new": True}.items():
            with pytest.raises(ValueError, match=f"resume: .*another {name}"):
                run(**{name: value})
    first = Path(dataset.shards[0].url)
    date = first.stat().st_mtime_ns
    os.utime(first, ns=(date, date + 1))
    with pytest.raises(ValueError, match=rf"resume: .*another \S*{first.name}"):
        run(samples=wids.ShardListDataset("all.json"))
    os.utime(first, ns=(date, date))
    last = Path(dataset.shards[-1].url)  # of which nothing was finished
    os.utime(last, ns=(date, date + 1))
    assert len(run(samples=wids.ShardListDataset("all.json")).failures) == 1


def test_a_column_is_resumed_after_the_disk_was_full() -> None:
    """What could not be written whole is no part of a later run."""
    dataset = wids.ShardListDataset("all.json")

    def run() -> Any:
        return map_samples(dataset, _bytes, "x.parquet", workers=1, maxcount=10, resume=True)

    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))
    try:
        assert run().failures
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not run().failures
    assert pyarrow.parquet.read_table("x.parquet").num_rows == len(dataset)


def _bytes(sample: Any) -> Any:
    return np.random.default_rng(sample[".cls"]).bytes(2000)


def test_an_old_spec_is_gone_after_a_run_that_was_killed_at_its_end() -> None:
    """What was set aside is removed by the resumed run, which has nothing left to write."""
    dataset = wids.ShardListDataset("all.json")
    for _ in range(2):
        map_samples(dataset, _new, "new/x-%d.tar", workers=1)
    Path("new/x.json.old").write_text("{}")
    map_samples(dataset, _new, "new/x-%d.tar", workers=1, resume=True)
    assert not Path("new/x.json.old").exists()


def test_a_run_is_continued(folder: Path) -> None:
    """What is complete is kept, as long as it is of the same samples; the counts are exact."""
    dataset = wids.ShardListDataset("all.json")
    calls: list[str] = []

    def once(sample: Any) -> Any:
        calls.append(sample["__key__"])
        if len(calls) == 15:
            raise KeyboardInterrupt
        return {".made": b"1"} if sample[".cls"] != 2 else None

    for output in ("new/x-%d.tar", "values.parquet"):
        calls.clear()
        with pytest.raises(KeyboardInterrupt):
            map_samples(dataset, once, output, workers=1, maxcount=10)
        done = map_samples(dataset, once, output, workers=1, maxcount=10, resume=True)
        assert (done.num_samples, done.num_dropped) == (29, 1)
        assert calls[15:] == KEYS[10:]
    # Other samples than those of the run before are made again.
    calls.clear()
    with pytest.raises(KeyboardInterrupt):
        map_samples(dataset, once, "new/x-%d.tar", workers=1, maxcount=10)
    calls.append("")
    calls *= 2
    done = map_samples(dataset[5:], once, "new/x-%d.tar", workers=1, maxcount=10, resume=True)
    assert done.num_samples == 25
    assert list(wids.ShardListDataset("new/x.json").keys) == KEYS[5:]
    assert sorted(path.name for path in folder.iterdir() if path.name.startswith(".")) == []


def test_a_failed_run_leaves_no_spec_of_an_earlier_one(folder: Path) -> None:
    """A spec is set aside before its shards are replaced, and gone once a run is complete."""
    out = ["-o", "out/n-%d.tar", "--maxcount", "10"]
    assert mapped(*out) == 0
    first = Path("out/n.json").read_text()
    assert mapped("--function", "functions.py:failing", *out) == 1
    assert not Path("out/n.json").exists()
    assert Path("out/n.json.old").read_text() == first
    assert mapped(*out) == 0
    assert mapped(*out) == 0
    assert sorted(path.name for path in Path("out").iterdir()) == [
        "n-0.tar", "n-1.tar", "n-2.tar", "n.json",
    ]  # fmt: skip


@pytest.mark.parametrize("command", ["map", "reshard"])
def test_the_spec_that_is_read_is_not_replaced(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """New shards whose spec would be the one that is read are refused."""
    before = Path("all.json").read_bytes()
    assert main([command, "all.json", "-o", "all-%d.tar"]) == 1
    assert "would replace" in capsys.readouterr().err
    joined = wids.ShardListDataset("all.json")
    with pytest.raises(ValueError, match="would replace all.json"):
        map_samples(joined[:5] + joined[7:], None, "all-%d.tar", workers=1)
    assert Path("all.json").read_bytes() == before


def test_processes_map_parts(folder: Path) -> None:
    """Worker processes write the same bytes as one process."""
    doubled = ["--function", "functions.py:doubled", "--maxcount", "10"]
    assert main(["map", "all.json", *doubled, "-o", "two/x-%d.tar", "--workers", "2"]) == 0
    assert mapped(*doubled, "-o", "one/x-%d.tar") == 0
    for number in range(3):
        name = f"x-{number}.tar"
        assert (folder / "one" / name).read_bytes() == (folder / "two" / name).read_bytes()


def test_joins_are_mapped(folder: Path) -> None:
    """A saved join, which lies in no shard, becomes shards."""
    dataset = wids.ShardListDataset("all.json")
    dataset.join(dataset[::-1], rename={".txt": ".a", ".cls": ".b"}).save("joined.json")
    assert main(["map", "joined.json", "-o", "new/x-%d.tar", "--workers", "1"]) == 0
    assert sorted(wids.open("new/x.json")[4])[:4] == [".a.txt", ".b.cls", ".cls", ".txt"]


def test_shards_of_a_join_with_gaps_are_not_replaced(folder: Path) -> None:
    """Those of the right side are read, too, where not all samples have a counterpart."""
    shutil.copy("0.tar", "left.tar")
    left = wids.ShardListDataset(["left.tar"], fields=[".cls"])
    right = wids.ShardListDataset(["0.tar"], fields=[".txt"])[5:]
    with pytest.raises(ValueError, match=r"would replace .*0\.tar"):
        map_samples(left.join(right, missing="fill"), None, "%d.tar", workers=1)


def test_results_of_map_are_no_stored_fields(folder: Path) -> None:
    """Shards of them, which would get the old fields, are refused; a column is made."""
    dataset = wids.ShardListDataset("all.json")
    upper = dataset.map(_upper)
    for samples in (upper, upper[3:], dataset + upper, dataset.join(upper, rename={".txt": ".b"})):
        with pytest.raises(ValueError, match=r"new/x-%d\.tar: .* results of map\(\) or windows"):
            map_samples(samples, None, "new/x-%d.tar", workers=1)
    assert not (folder / "new").exists()
    map_samples(upper, _text, "x.parquet", workers=1)
    assert pyarrow.parquet.read_table("x.parquet")["value"][0].as_py() == dataset[0][".txt"].upper()
    map_samples(upper, _named_text, "new/x-%d.tar", only_new=True, workers=1)
    assert wids.ShardListDataset("new/x.json")[0][".new.txt"] == dataset[0][".txt"].upper()


def _upper(sample: Any) -> Any:
    return sample | {".txt": sample[".txt"].upper()}


def _text(sample: Any) -> Any:
    return sample[".txt"]


def _named_text(sample: Any) -> Any:
    return {".new.txt": sample[".txt"]}


WRONG = [
    (["--function", "functions.py"], "expected module:function"),
    (["--function", "functions.py:none"], "no attribute 'none'"),
    (["--function", "none.py:f"], "none.py: there is no such Python file"),
    (["--function", "no_such_module:f"], "No module named"),
    (["--function", "functions.py:number"], "the function returned a float"),
    (["--where", "cls = 90"], "there are no samples to map"),
    (["--rename", "a"], "expected --rename OLD=NEW"),
    (["--rename", "txt=.cls"], "the same name to two"),
    (["--where", "cls = 0", "--function", "functions.py:odd"], "no sample is left"),
    (["-o", "x.txt"], "expected a pattern of shards"),
    (["-o", "0-%d.tar", "-o", "%d.tar"], "would replace"),
    (["-o", "x.parquet"], "expected a function"),
    (["-o", "x.parquet", "--function", "functions.py:keyed"], "the column of the keys"),
    (["-o", "x.parquet", "--function", "functions.py:number", "--sidecars"], "for new shards"),
    (["-o", "x.parquet", "--function", "functions.py:number", "--strict"], "for new shards"),
    (["-o", "x.parquet", "--function", "functions.py:number", "--only-new"], "only_new: for new"),
]


@pytest.mark.parametrize(("options", "message"), WRONG, ids=[message for _, message in WRONG])
def test_wrong_use_says_what_is_right(
    options: list[str], message: str, capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    """The message names the cause; neither a spec nor a column is left."""
    assert mapped("-o", "new/x-%d.tar", *options) == 1
    assert message in capsys.readouterr().err
    assert not (folder / "new/x.json").exists()
    assert not (folder / "x.parquet").exists()


def test_keys_with_dots_are_mapped(make_shard: MakeShard) -> None:
    """Samples that are read by the last dot are written so, and the new spec says it."""
    path = make_shard("dots.tar", [{"__key__": f"v1.{n}", ".cls": str(n)} for n in range(3)])
    old = wids.ShardListDataset([str(path)], key_rule="last_dot")
    view = old[::-1].join({"key": old.keys[:], "size": [7, 8, 9]})
    map_samples(view, lambda sample: {".txt": "new"}, "dotted-%d.tar", workers=1)
    new = wids.ShardListDataset("dotted.json")
    assert list(new.keys) == ["v1.2", "v1.1", "v1.0"]
    assert [new[0][name] for name in (".cls", ".txt")] == [2, "new"]
    wids.reshard(view, range(3), "solid-%d.tar")
    assert wids.ShardListDataset("solid.json").get("v1.1")[".size"].read() == b"8"
    done = map_samples(old, lambda _: {".new.txt": ""}, "two-%d.tar", workers=1)
    (error,) = done.failures.values()
    assert "last_dot', by which the extension '.new.txt' would be '.txt'; name it" in str(error)


def test_numbers_that_fit_into_no_parquet_column_are_named(folder: Path) -> None:
    """The message names samples, column and cure, in one part and where parts are joined."""
    dataset = wids.ShardListDataset("all.json")[:2]

    def huge(sample: Any) -> Any:
        return {"huge": 2 ** (70 * sample[".cls"])}

    (error,) = map_samples(dataset, huge, "x.parquet", workers=1).failures.values()
    text = str(error)
    assert "x.parquet: the values of samples 'k00' to 'k01' fit into no column 'huge'" in text
    assert text.endswith("integers of more than 64 bits as texts")

    def mixed(sample: Any) -> Any:
        return 0.5 if sample[".cls"] else 2**60 + 1

    with pytest.raises(ValueError, match=r"x\.parquet: expected values that fit into one column"):
        map_samples(dataset, mixed, "x.parquet", workers=1, maxcount=1)
    assert not (folder / "x.parquet").exists()


@pytest.mark.parametrize(
    "times",
    [
        (date(2020, 1, 1), datetime(2020, 1, 1, 5, tzinfo=UTC)),
        (datetime.fromisoformat("2020-01-01T05:00"), datetime(2020, 1, 1, 5, tzinfo=UTC)),
    ],
)
def test_a_time_is_not_cut_for_a_parquet_column(folder: Path, times: tuple[date, date]) -> None:
    """Dates beside datetimes, and such without a zone beside others, are an error, not cut."""
    dataset = wids.ShardListDataset("all.json")[:2]
    done = map_samples(dataset, lambda each: {"at": times[each[".cls"]]}, "x.parquet", workers=1)
    (error,) = done.failures.values()
    assert "fit into no column 'at': there are date" in str(error)
    assert not (folder / "x.parquet").exists()


def test_an_output_without_a_sample_says_why(tmp_path: Path) -> None:
    """Where the function fails for all samples, the error has the first reason."""
    with wids.ShardWriter(f"{tmp_path}/a-%d.tar") as writer:
        writer.write({"__key__": "k0", ".cls": 3})
    dataset = wids.ShardListDataset(tmp_path)
    with pytest.raises(ValueError, match=r"1 failed, the first: sample 0, key 'k0'.*KeyError"):
        wids.map_samples(
            dataset,
            lambda sample: sample[".txt"],
            f"{tmp_path}/b-%d.tar",
            on_error="skip",
            workers=1,
        )
