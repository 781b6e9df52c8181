"""Samples whose keys have dots, which the usual rule merges: told by their fields."""

import json
from pathlib import Path

import pytest
from helpers.server import ShardServer
from helpers.tarbytes import END, member

import wids
from wids.cli import main
from wids.tar.tarindex import TarIndex

LAST_DOT = 'key_rule="last_dot"'
PAIR = ("cls", "txt")

MERGED = {
    "frames as keys": [f"v1.2/img.{n:04}.jpg" for n in range(50)],
    "a pair": ["img.0000.jpg", "img.0001.jpg"],
    "letters": [f"scene.{letter}.jpg" for letter in "ab"],
    "versions": [f"v1.{n:04}.{ending}" for n in range(4) for ending in PAIR],
    "two prefixes": [f"v{n // 3}.{n:04}.seg.png" for n in range(6)],
    "dates": [f"a.2024.{n:02}_x.jpg" for n in range(3)],
    "one of many": [f"{n:04}.jpg" for n in range(50)] + ["a.b.jpg", "a.b.cls", "a.c.jpg"],
    "beside a field": ["a.json", *(f"a.{n}.jpg" for n in range(40))],
    "equal numbers": [f"{animal}.{n}.jpg" for animal in ("cat", "dog") for n in range(90)],
}
ORDINARY = {
    "frames of clips": [f"clip{n:02}.{frame}.jpg" for n in range(20) for frame in range(9)],
    "views": [f"{n}.{side}.jpg" for n in range(3) for side in ("left", "right")],
    "masks": [f"{n}.{end}" for n in range(3) for end in ("jpg", "seg.png", "depth.png", "json")],
    "uneven": ["0.jpg", "0.seg.png", "1.jpg", "1.depth.png", "2.jpg", "2.seg.png", "2.depth.png"],
    "views of one sample": [f"0.{side}.jpg" for side in ("left", "right")],
    "one sample": ["a.jpg", "a.seg.png", "a.depth.png", "a.meta.json"],
    "img2dataset": [f"{n:09}.{ending}" for n in range(9) for ending in ("jpg", "json", "txt")],
    "no fields": ["README"],
    "formats": ["a.tar.gz", "a.mp3", "a.7z"],
}


def write(path: Path, names: list[str]) -> str:
    path.write_bytes(b"".join(member(name.encode(), b"1") for name in names) + END)
    return str(path)


@pytest.mark.parametrize("case", MERGED)
def test_merged_samples_are_warned_of(tmp_path: Path, case: str) -> None:
    """Two fields that end alike, or many, which no other sample has, may be samples."""
    path = write(tmp_path / "x.tar", MERGED[case])
    with pytest.warns(wids.WidsWarning, match=rf"x\.tar: .*end alike.*{LAST_DOT}"):
        wids.ShardListDataset([path], transformations="bytes")
    for key_rule in ("last_dot", "first_dot"):
        wids.ShardListDataset([path], transformations="bytes", key_rule=key_rule)[0]


@pytest.mark.parametrize("case", ORDINARY)
def test_nothing_is_said_of_ordinary_shards(tmp_path: Path, case: str) -> None:
    """The fields that all samples have are fields, and so are those without a dot."""
    path = write(tmp_path / "x.tar", ORDINARY[case])
    assert TarIndex.from_tar(path).merged == ""
    assert main(["info", path]) == 0


def test_shards_of_webdataset_are_ordinary(tmp_path: Path) -> None:
    """Those that its writer makes, also with fields of two names and a last sample alone."""
    webdataset = pytest.importorskip("webdataset")
    with webdataset.ShardWriter(str(tmp_path / "%d.tar"), maxcount=5, verbose=0) as out:
        for n in range(11):
            out.write({"__key__": f"{n:06}", "jpg": b"", "left.png": b"", "cls": n, "a.json": {}})
    assert len(wids.ShardListDataset(str(tmp_path), transformations="bytes")) == 11


@pytest.mark.filterwarnings("always")
def test_each_way_in_warns(
    tmp_path: Path, shard_server: ShardServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """Opening, reading by a spec, `info`, `check` and `create`, local and remote, tell of it."""
    path = write(tmp_path / "x.tar", MERGED["frames as keys"])

    def told(*command: str) -> bool:
        assert main([*command]) == 0
        found = capsys.readouterr()
        return 'key_rule="last_dot"' in found.out + found.err

    spec, far = str(tmp_path / "x.json"), tmp_path / "far.json"
    assert told("create", path, "-o", spec, "--sidecars")
    assert told("info", spec)
    assert told("check", spec)
    dataset = wids.ShardListDataset(spec, transformations="bytes")
    with pytest.warns(wids.WidsWarning, match=LAST_DOT):
        assert len(dataset[0]) > 50
    url = shard_server.put("x.tar", Path(path).read_bytes())
    shard_server.put("x.tar.widx", Path(f"{path}.widx").read_bytes())
    document = {"wids_version": 1, "shardlist": [{"url": url, "nsamples": 1}]}
    far.write_text(json.dumps(document))
    assert told("info", str(far))
    with pytest.warns(wids.WidsWarning, match=LAST_DOT):
        wids.ShardListDataset(far, remote="range", transformations="bytes")[0]
    far.write_text(json.dumps(document | {"key_rule": "first_dot"}))
    assert not told("info", str(far))


@pytest.mark.filterwarnings("always")
def test_a_spec_repeats_what_was_found_when_it_was_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Opening reads no shard, so the spec tells of a later one, as do those made of it."""
    usual = write(tmp_path / "a.tar", ORDINARY["img2dataset"])
    merged = write(tmp_path / "b.tar", MERGED["letters"])
    spec, pack, both = (str(tmp_path / name) for name in ("x.json", "x.wpack", "both.json"))
    plain = str(tmp_path / "plain.json")

    def run(*command: str) -> str:
        assert main([*command]) == 0
        found = capsys.readouterr()
        return found.out + found.err

    run("create", write(tmp_path / "c.tar", ORDINARY["views"]), "-o", plain)
    assert LAST_DOT in run("create", usual, merged, "-o", spec, "--pack", pack)
    assert LAST_DOT in run("create", usual, merged, "-o", spec, "--pack", pack, "--resume")
    run("merge", plain, spec, "-o", both)
    for source in (spec, both, [plain, spec], json.loads(Path(spec).read_text())):
        with pytest.warns(wids.WidsWarning, match=rf"b\.tar: .*{LAST_DOT}.*in 1 of . shards"):
            wids.open(source)
    stated = ("create", usual, merged, "-o", spec, "--resume", "--key-rule")
    assert LAST_DOT not in run(*stated, "first_dot")
    assert LAST_DOT not in Path(spec).read_text()
