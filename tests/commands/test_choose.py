"""`wids select`, and the commands that take what it saves, as a user types them."""

import json
from pathlib import Path

import numpy as np
import pytest
from helpers.shards import MakeShard, write_shards

import wids
from wids.cli import main

KEYS = [f"k{number:02d}" for number in range(40)]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make four shards of ten samples and their spec, in the working directory."""
    folder = tmp_path / "set"
    samples = [
        {
            "__key__": key,
            ".cls": str(n % 4),
            ".json": f'{{"uid": "u{n}", "w": {100 - n}}}',
            ".txt": f"text {n}",
        }
        for n, key in enumerate(KEYS)
    ]
    write_shards(folder, samples, 10)
    monkeypatch.chdir(folder)
    assert main(["create", "0.tar", "1.tar", "2.tar", "3.tar", "-o", "all.json"]) == 0
    return folder


def keys(name: str) -> list[str]:
    return list(wids.open(name).keys)


@pytest.mark.parametrize(
    ("options", "chosen"),
    [
        (["--where", "cls in (1, 3) and json.w > 90"], [1, 3, 5, 7, 9]),
        (["--keys", "keys.txt"], [21, 3]),
        (["--exclude", "keys.txt"], [n for n in range(40) if n not in {3, 21}]),
        (["--keys", "uids.txt", "--column", ".json:uid"], [7, 0]),
        (["--keys", "numbers.npy", "--column", ".json:w"], [3, 20]),
        (["--exclude", "none.txt"], list(range(40))),
        (["--keys", "some.txt", "--ignore-missing"], [5]),
        (["--where", "json.w >= 95", "--order-by", "json.w"], [5, 4, 3, 2, 1, 0]),
        (["--where", "cls = 2", "--take", "10"], [n for n in range(40) if n % 4 == 2]),
    ],
)
def test_samples_are_selected(folder: Path, options: list[str], chosen: list[int]) -> None:
    """The saved view has the samples of each option."""
    (folder / "keys.txt").write_text("k21\nk03\n")
    (folder / "uids.txt").write_text("u7\nu0\n")
    (folder / "some.txt").write_text("k05\nnobody\n")
    (folder / "none.txt").write_text("")
    np.save(folder / "numbers.npy", np.array([97, 80]))
    assert main(["select", "all.json", *options, "-o", "some.json"]) == 0
    assert keys("some.json") == [KEYS[n] for n in chosen]


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("merge all.json some.json -o out.json", "some.json: is a saved view"),
        ("create some.json -o out.json", "some.json: is a saved view"),
        ("create all.json -o out.json", "all.json: is no shard; create takes tars"),
    ],
)
def test_commands_that_take_specs_or_tars_alone_say_so(
    command: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """What stands in place of a spec or a tar is named as what it is, and stays as it is."""
    assert main(["select", "all.json", "--take", "5", "-o", "some.json"]) == 0
    before = [Path(name).read_bytes() for name in ("all.json", "some.json")]
    assert main(command.split()) != 0
    assert said in capsys.readouterr().err
    assert [Path(name).read_bytes() for name in ("all.json", "some.json")] == before
    assert not Path("out.json").exists()


def test_lists_of_keys_at_a_url_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """The message says to fetch the list, here and in Python."""
    with pytest.raises(TypeError, match=r"got the URL 'http://h/a\.txt'; fetch it first"):
        wids.ShardListDataset("all.json").exclude("http://h/a.txt")
    assert main(["select", "all.json", "--exclude", "http://h/a.txt", "-o", "some.json"]) != 0
    assert (
        "http://h/a.txt: expected a file of keys on this machine; fetch it first"
        in capsys.readouterr().err
    )


def test_a_split_writes_a_view_a_part(capsys: pytest.CaptureFixture[str]) -> None:
    """A split writes a file for each part; parts are disjoint and together complete."""
    split = ["--split", "fit=.75,val=.25", "--stratify", ".cls", "-o", "part-{split}.json"]
    assert main(["select", "all.json", *split]) == 0
    fit, val = keys("part-fit.json"), keys("part-val.json")
    assert (len(fit), len(val)) == (30, 10)
    assert sorted(fit + val) == KEYS
    assert "part-val.json: 10 of 40 samples" in capsys.readouterr().err
    # A view of a view.
    assert main(["select", "part-val.json", "--take", "3", "--seed", "5", "-o", "few.json"]) == 0
    assert set(keys("few.json")) < set(val)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["-o", "x.txt"], "ends in .json"),
        (["--where", "cls = 9", "-o", "x.json"], "no sample is chosen"),
        (["--where", "clss = 9", "-o", "x.json"], '"clss" not found'),
        (["--split", "a=1,b=1", "-o", "x.json"], "needs {split}"),
        (["--split", "a=1", "-o", "{split}.json"], "one part alone"),
        (["--split", "a=1,b", "-o", "{split}.json"], "different names"),
        (["--keys", "none.txt", "-o", "x.json"], "none.txt"),
        (["--take", "41", "-o", "x.json"], "at most 40"),
        (["--where", "cls = 1", "--seed", "0", "-o", "x.json"], "no effect without --take or"),
        (["--take", "3", "--by", "sample", "-o", "x.json"], "--by has no effect without --split"),
        (["--stratify", ".cls", "-o", "x.json"], "--stratify has no effect without --split"),
        (["--column", ".cls", "-o", "x.json"], "no effect without --keys or --exclude"),
        (["--ignore-missing", "-o", "x.json"], "--ignore-missing has no effect"),
        (["--take", "3", "-o", "{split}.json"], "without --split"),
        (["--exclude", "keys.txt", "-o", "x.json"], "(--ignore-missing) passes over them"),
        (["--exclude", "all.json", "-o", "x.json"], "expected a text file with one key a line"),
        (["--exclude", "ids.npy", "-o", "x.json"], "ids.npy: expected keys, which are texts"),
        (["--keys", "ids.npy", "-o", "x.json"], "ids.npy: expected keys, which are texts"),
    ],
)
def test_wrong_choices_write_nothing(
    folder: Path, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    """A wrong option is refused with a message, and no file is written."""
    (folder / "keys.txt").write_text("nobody\n")
    np.save(folder / "ids.npy", np.array([0, 1]))
    before = sorted(folder.iterdir())
    assert main(["select", "all.json", *options]) == 1
    assert message in capsys.readouterr().err
    assert sorted(folder.iterdir()) == before


def test_a_view_becomes_shards(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`reshard` writes the samples of a view in its order, and can select further."""
    assert main(["select", "all.json", "--order-by", "json.w", "-o", "sorted.json"]) == 0
    assert main(["reshard", "sorted.json", "-o", "new/s-%03d.tar", "--maxcount", "15"]) == 0
    assert keys("new/s.json") == KEYS[::-1]
    again = ["--where", "cls in (0, 1) and index < 10", "-o", "less/s-%03d.tar"]
    assert main(["reshard", "sorted.json", *again]) == 0
    assert keys("less/s.json") == [key for key in KEYS[:-11:-1] if int(key[1:]) % 4 < 2]
    assert main(["reshard", "sorted.json", "all.json", "--rekey", "-o", "both/s-%d.tar"]) == 0
    numbers = [sample[".json"] for sample in wids.open("both/s.json")]
    assert numbers == [sample[".json"] for sample in wids.open(["sorted.json", "all.json"])]


def test_a_version_becomes_shards(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A dataset that lost samples and got others is written as shards and tables."""
    some = wids.open(["0.tar", "1.tar"]).exclude(["k03", *KEYS[12:20]]) + wids.open("2.tar")
    some.save("new.json")
    chosen = [key for key in KEYS[:12] if key != "k03"] + KEYS[20:30]
    assert main(["reshard", "new.json", "-o", "solid/s-%d.tar"]) == 0
    assert keys("solid/s.json") == chosen
    assert main(["export", "new.json", "table.csv"]) == 0
    lines = (folder / "table.csv").read_text().splitlines()
    assert [line.split(",")[1].strip('"') for line in lines[1:]] == chosen
    some.join(wids.open("0.tar")[:1], missing="keep", replace=True).save("new.json")
    assert main(["reshard", "new.json", "-o", "patched/s-%d.tar"]) == 0
    assert keys("patched/s.json") == chosen


# Every command that takes a SPEC, and what it prints of the ten samples of class 3.
TAKERS = [
    ("info", "three.json --json", '"nsamples": 10'),
    ("ls", "three.json --json", '"first_index": 7,\n    "url": "'),
    ("ls", "three.json 1:3 --json", '"key": "k07"'),
    ("show", "three.json -1 --json", "k39"),
    ("cat", "three.json 0 .txt", "text 3"),
    ("check", "three.json --decode --json", '"num_shards": 4,\n  "num_errors": 0'),
    ("check", "three.json --digests --json", '"num_errors": 0'),
    ("order", "three.json --json --batch-size 2", '"steps": 5'),
    ("select", "three.json --take 2 -o few.json", ""),
    ("export", "three.json out.csv", ""),
    ("reshard", "three.json -o new/x-%d.tar --workers 1", ""),
    ("map", "three.json -o new/y-%d.tar --workers 1", ""),
]


def test_every_command_takes_a_saved_view(capfd: pytest.CaptureFixture[str]) -> None:
    """It works on the chosen samples and no others; `browse` has a test of its own."""
    assert main(["select", "all.json", "--where", "cls = 3", "-o", "three.json"]) == 0
    for command, options, expected in TAKERS:
        capfd.readouterr()
        assert main([command, *options.split()]) == 0, (command, options)
        assert expected in capfd.readouterr().out, (command, options)
    assert len(keys("few.json")) == 2
    assert len(Path("out.csv").read_text().splitlines()) == 11
    assert keys("new/x.json") == keys("new/y.json") == keys("three.json")


def test_info_of_a_view_names_its_dataset_and_the_bytes_of_its_shards(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    """The size is that of the shards that hold the samples; an average would mislead."""
    wids.ShardListDataset("all.json").select([0, 1, 25]).save("some.json")
    capsys.readouterr()
    assert main(["info", "some.json"]) == 0
    printed = capsys.readouterr().out.splitlines()
    lines = dict(line.strip().split(": ", 1) for line in printed if line)
    nbytes = sum((folder / name).stat().st_size for name in ("0.tar", "2.tar"))
    assert lines["base"] == "all.json"
    assert lines["total size"].startswith(f"{nbytes:,} bytes")
    assert lines["avg sample size"] == "unknown"


def test_statistics_of_a_view_count_each_sample_as_often_as_it_was_chosen(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    """Joined fields and repeated samples count."""
    dataset = wids.ShardListDataset("all.json")
    joined = dataset.join(dataset, rename={".cls": ".b", ".txt": ".c", ".json": ".d"})
    joined.select([3, 3, 5, 25]).save("some.json")
    capsys.readouterr()
    assert main(["info", "some.json", "--json", "--stats"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["sizes"]["sample"]["count"] == found["sizes"][".c"]["count"] == 4
    assert found["sizes"][".txt"]["nbytes"] == 6 + 6 + 6 + 7
    (folder / "2.tar").write_bytes(b"no tar")
    assert main(["check", "some.json", "--json"]) == 1
    assert "2.tar" in capsys.readouterr().out


def test_check_of_a_view_decodes_only_its_samples(
    make_shard: MakeShard, capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    """`check` of a view does not decode samples that the view leaves out."""
    samples = [{"__key__": key, ".json": "{" if key == "b" else "{}"} for key in "abc"]
    (folder / "bad.tar").write_bytes(make_shard("set/bad.tar", samples).read_bytes())
    assert main(["select", "bad.tar", "--keys", "good.txt", "-o", "good.json"]) == 1
    (folder / "good.txt").write_text("a\nc\n")
    assert main(["select", "bad.tar", "--keys", "good.txt", "-o", "good.json"]) == 0
    capsys.readouterr()
    assert main(["check", "bad.tar", "--decode"]) == 1
    assert "sample 1 (b), field .json" in capsys.readouterr().out
    assert main(["check", "good.json", "--decode"]) == 0


def test_lists_with_saved_views_are_one_sequence() -> None:
    """A list of locations and parsed documents is opened in its order."""
    assert main(["select", "all.json", "--where", "cls = 3", "-o", "three.json"]) == 0
    three = json.loads(Path("three.json").read_text())
    assert wids.open(three).keys[0] == "k03"
    both = wids.open(["three.json", "3.tar"])
    assert list(both.keys) == [key for key in KEYS if int(key[1:]) % 4 == 3] + KEYS[30:]
    with pytest.raises(wids.SpecError, match=r"by wids\.open"):
        wids.ShardListDataset("three.json")
