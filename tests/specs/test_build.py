"""`build_spec` and `run_each`: many shards to a spec, in parallel, whatever one of them holds."""

import gzip
import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.serving import serve_shard
from helpers.shards import write_shard

import wids
from wids.errors import FetchError, ShardFormatError, SpecError
from wids.specs.build import build_spec, default_name, index_shard
from wids.specs.spec import DatasetSpec
from wids.tools.check import check_shard

MakeShard = Callable[..., Path]


def shard_samples(count: int) -> list[dict[str, str]]:
    """Make samples of two fields."""
    return [{"__key__": f"{n:04}", ".txt": f"text {n}", ".cls": str(n)} for n in range(count)]


@pytest.fixture
def shards(make_shard: MakeShard) -> list[str]:
    """Make three shards of 3, 1 and 2 samples."""
    return [
        str(make_shard(f"x-{n}.tar", shard_samples(count))) for n, count in enumerate((3, 1, 2))
    ]


def test_written_spec_is_read_back(shards: list[str], tmp_path: Path):
    """The JSON opens as a spec again, with its header."""
    header = {"name": "x", "info": "a description", "base": None}
    text = build_spec(shards, folder=tmp_path, header=header, workers=1).spec.to_json()
    document = json.loads(text)
    assert (document["wids_version"], document["__kind__"]) == (1, "wids-shard-index-v1")
    assert (document["name"], document["info"], "base" in document) == ("x", "a description", False)
    spec = DatasetSpec.parse(text, str(tmp_path / "x.json"))
    assert list(spec.shards.urls) == shards


def test_numbers_in_names_count_by_value(shards: list[str], tmp_path: Path):
    """A spec numbers the samples as the folder does that it was made of: 9 before 10."""
    for old, new in zip(shards, (9, 10, 100), strict=True):
        Path(old).rename(tmp_path / f"a-{new}.tar")
    given = [str(tmp_path / f"a-{number}.tar") for number in (10, 100, 9)]
    built = build_spec(given, folder=tmp_path, workers=1)
    assert list(built.spec.shards.urls) == ["a-9.tar", "a-10.tar", "a-100.tar"]
    assert [shard["nsamples"] for shard in built.spec.shards] == [3, 1, 2]


def test_names_count_from_the_folder_of_the_spec(shards: list[str], tmp_path: Path, monkeypatch):
    """Shards are named relative to the spec's folder, whatever the working directory."""
    monkeypatch.chdir(tmp_path.parent)
    given = [str(Path(tmp_path.name) / Path(shard).name) for shard in shards]
    below = build_spec(given, folder=tmp_path, workers=1)
    assert list(below.spec.shards.urls) == ["x-0.tar", "x-1.tar", "x-2.tar"]
    beside = build_spec(given[:1], folder=tmp_path.parent / "specs", workers=1)
    assert list(beside.spec.shards.urls) == [f"../{tmp_path.name}/x-0.tar"]
    absolute = build_spec(shards[:1], folder=tmp_path / "specs", workers=1)
    assert list(absolute.spec.shards.urls) == [shards[0]]
    assert list(build_spec(given[:1], workers=1).spec.shards.urls) == given[:1]


def test_failed_shard_is_reported_and_the_rest_goes_on(shards: list[str], tmp_path: Path):
    """Truncated and missing shards are reported, and the others are in the spec."""
    Path(shards[1]).write_bytes(Path(shards[1]).read_bytes()[:700])
    missing = str(tmp_path / "missing.tar")
    built = build_spec([*shards, missing], folder=tmp_path, workers=2)
    with pytest.raises(SpecError, match=r"2 of 4 shards could not be read.*skip_broken=True"):
        built.spec  # noqa: B018 (the property raises)
    assert list(built.readable.shards.urls) == ["x-0.tar", "x-2.tar"]
    left = build_spec([*shards, missing], folder=tmp_path, workers=1, skip_broken=True)
    assert [each["url"] for each in left.spec.header["left_out"]] == ["x-1.tar", "missing.tar"]
    assert set(built.failures) == {shards[1], missing}
    assert isinstance(built.failures[shards[1]], ShardFormatError)
    assert isinstance(built.failures[missing], FetchError)


def test_shard_listed_twice_is_refused(shards: list[str], tmp_path: Path):
    """One file under two paths is refused."""
    twice = str(tmp_path / "." / "sub" / ".." / "x-0.tar")
    with pytest.raises(ValueError, match=r"x-0\.tar: is listed twice"):
        build_spec([*shards, twice], folder=tmp_path)


def test_remote_shards_are_indexed_and_not_kept(shard_server, tmp_path: Path, monkeypatch):
    """A remote shard is digested like a local one, and its copy is removed."""
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    monkeypatch.setattr("tempfile.tempdir", None)
    (tmp_path / "temporary").mkdir()
    shard = write_shard(tmp_path / "served.tar", shard_samples(2))
    record = index_shard(serve_shard(shard_server, shard, sidecar=False))
    assert record.entry["md5sum"] == hashlib.md5(shard.read_bytes()).hexdigest()
    assert record.entry["nsamples"] == 2
    assert list((tmp_path / "temporary").iterdir()) == []


def test_compressed_shards_are_described_as_they_are_stored(shards: list[str], tmp_path: Path):
    """Size and digest are those of the .tar.gz, which readers check."""
    packed = tmp_path / "packed.tar.gz"
    packed.write_bytes(gzip.compress(Path(shards[0]).read_bytes()))
    built = build_spec([str(packed)], folder=tmp_path, workers=1)
    (entry,) = built.spec.shards
    assert entry["filesize"] == packed.stat().st_size
    assert entry["md5sum"] == hashlib.md5(packed.read_bytes()).hexdigest()
    (tmp_path / "packed.json").write_text(built.spec.to_json())
    assert len(list(wids.ShardListDataset(tmp_path / "packed.json"))) == 3
    assert check_shard({**entry, "url": str(packed)}) == []


def test_compressed_shard_from_a_server_is_counted_only(shard_server, shards: list[str]):
    """A remote compressed shard gets a count, but no size and digest."""
    url = shard_server.put("a.tar.gz", gzip.compress(Path(shards[0]).read_bytes()))
    assert index_shard(url).entry == {"url": url, "nsamples": 3}


NAMES = [
    ("train-000000.tar", "train"),
    ("/data/web/train-{000..146}.tar", "data-web-train"),
    ("https://host/imagenet-train-0.tar", "https-host-imagenet-train"),
    ("https://me:secret@host/train-0.tar?sig=secret", "https-host-train"),
    ("x/x-0.tar", "x"),
    ("x/y-0.tar.gz", "x-y"),
    ("*.tar", ""),
]


@pytest.mark.parametrize(("shard", "name"), NAMES)
def test_default_name_is_made_of_the_words_of_the_first_shard(shard: str, name: str):
    """Numbers and repeated words are left out, as the old `widsindex` did."""
    assert default_name(shard) == name
