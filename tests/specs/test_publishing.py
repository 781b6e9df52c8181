"""`wids create --publish`: spec and sidecars are put to another place, the spec last."""

import io
import json
import tarfile
from pathlib import Path

import pytest
from helpers.downloads import tar_of
from helpers.server import ShardServer
from helpers.stores import Hub, use_azure, use_s3

import wids
from wids.cli import main
from wids.fetching.fetch import Fetcher
from wids.tar.tarindex import TarIndex


@pytest.fixture(params=["bucket", "container of Azure", "folder"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Give a folder to publish to, of a bucket and of this machine."""
    if request.param == "folder":
        return str(tmp_path / "public" / "sets")
    bucket = f"of-{tmp_path.name.replace('_', '-')[:40].lower().strip('-')}"
    if request.param == "container of Azure":
        use_azure(request.getfixturevalue("azure_endpoint"), monkeypatch, bucket)
        return f"az://{bucket}/sets/"
    use_s3(request.getfixturevalue("s3_endpoint"), monkeypatch, bucket)
    return f"s3://{bucket}/sets/"


@pytest.fixture
def theirs(shard_server: ShardServer) -> list[str]:
    """Give the URLs of somebody else's shards."""
    return [shard_server.put(f"{number}.tar", tar_of(20, seed=number)) for number in range(3)]


def create(*arguments: object) -> int:
    """Run `wids create`."""
    return main(["create", *map(str, arguments)])


def read(url: str) -> bytes:
    """Return what lies at a path or URL."""
    return Path(url).read_bytes() if url.startswith("/") else Fetcher().read(url)


def test_a_published_spec_reads_somebody_elses_shards(
    theirs: list[str], place: str, tmp_path: Path, shard_server: ShardServer
) -> None:
    """From the place where it was put, one sample is read by range, with its sidecar from there."""
    assert create(*theirs, "-o", tmp_path / "train.json", "--publish", place) == 0
    target = f"{place.rstrip('/')}/train.json"
    assert read(target) == (tmp_path / "train.json").read_bytes()
    shard_server.requests.clear()
    with wids.ShardListDataset(
        target, remote="range", transformations="bytes", cache_dir=tmp_path / "cache"
    ) as dataset:
        assert len(dataset) == 60
        with tarfile.open(fileobj=io.BytesIO(tar_of(20, seed=2))) as archive:
            member = archive.extractfile("0005.bin")
            assert member is not None
            assert dataset[45][".bin"] == member.read()
    assert not [each for each in shard_server.requests if each.path.endswith(".widx")]
    assert shard_server.nbytes < 20_000


def test_what_is_there_is_replaced_only_if_told(
    theirs: list[str], place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A second spec of the name is refused before a shard is read; `--overwrite` replaces it."""
    output = tmp_path / "train.json"
    assert create(theirs[0], "-o", output, "--publish", place) == 0
    before = read(f"{place.rstrip('/')}/train.json")
    assert create(*theirs, "-o", tmp_path / "b" / "train.json", "--publish", place) != 0
    assert "there is a spec already" in capsys.readouterr().err
    assert not (tmp_path / "b" / "train.json").exists()
    assert read(f"{place.rstrip('/')}/train.json") == before
    assert create(*theirs, "-o", output, "--publish", place, "--overwrite") == 0
    assert len(json.loads(read(f"{place.rstrip('/')}/train.json"))["shardlist"]) == 3


def test_a_finished_publication_is_resumed(
    theirs: list[str], place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same command with `--resume` finds its own spec there; another one stays protected."""
    output, pack = tmp_path / "train.json", tmp_path / "train.wpack"
    options = ["-o", output, "--pack", pack, "--publish", place, "--resume"]
    command = [*theirs[:2], *options]
    assert create(*command) == 0
    there = read(f"{place.rstrip('/')}/train.json")
    assert create(*command) == 0, capsys.readouterr().err
    packed = pack.read_bytes()
    assert create(*theirs, *options) != 0
    assert "there is a spec already" in capsys.readouterr().err
    assert read(f"{place.rstrip('/')}/train.wpack") == packed != pack.read_bytes()
    output.write_text("another")
    assert create(*command) != 0
    assert "there is a spec already" in capsys.readouterr().err
    assert read(f"{place.rstrip('/')}/train.json") == there


def test_a_pack_is_published_with_its_spec(theirs: list[str], place: str, tmp_path: Path) -> None:
    """With `--pack`, the pack is put in place of sidecars, and is used from there."""
    output, pack = tmp_path / "train.json", tmp_path / "train.wpack"
    assert create(*theirs, "-o", output, "--pack", pack, "--publish", place) == 0
    assert read(f"{place.rstrip('/')}/train.wpack") == pack.read_bytes()
    assert not (tmp_path / "train-index").exists()


def test_sidecars_go_straight_to_a_bucket(
    theirs: list[str],
    s3_endpoint: str,
    tmp_path: Path,
    shard_server: ShardServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`--index` may be of a bucket; `--resume` indexes nothing again."""
    use_s3(s3_endpoint, monkeypatch, "indexes")
    output = tmp_path / "train.json"
    assert create(*theirs, "-o", output, "--index", "s3://indexes/a/") == 0
    entries = json.loads(output.read_bytes())["shardlist"]
    for entry, number in zip(entries, range(3), strict=True):
        (tmp_path / "a.tar").write_bytes(tar_of(20, seed=number))
        assert entry["index"].startswith("s3://indexes/a/")
        assert read(entry["index"]) == TarIndex.from_tar(tmp_path / "a.tar").image()
    shard_server.requests.clear()
    assert create(*theirs, "-o", output, "--index", "s3://indexes/a/", "--resume") == 0
    assert not shard_server.requests
    assert json.loads(output.read_bytes())["shardlist"] == entries


def test_a_published_folder_is_uploaded_to_the_hub(
    theirs: list[str], hub: Hub, tmp_path: Path
) -> None:
    """What `--publish FOLDER` wrote is read from a repository of the hub, as it was uploaded."""
    public = tmp_path / "public"
    assert create(*theirs, "-o", tmp_path / "train.json", "--publish", public) == 0
    files = {
        str(path.relative_to(public)): path.read_bytes()
        for path in public.rglob("*")
        if path.is_file()
    }
    hub.commit(files)
    with wids.ShardListDataset(
        "hf://datasets/me/birds/train.json", remote="range", cache_dir=tmp_path / "cache"
    ) as dataset:
        assert dataset[45]["__key__"] == "0005"


def test_an_index_outside_is_refused_before_a_shard_is_read(
    theirs: list[str],
    tmp_path: Path,
    shard_server: ShardServer,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Also by a path that leads out of the folder; one that leads back into it is published."""
    (tmp_path / "sets").mkdir()
    monkeypatch.chdir(tmp_path / "sets")
    shard_server.requests.clear()
    options = ["-o", "train.json", "--publish", tmp_path / "public"]
    assert create(*theirs, *options, "--index", "../outside") != 0
    assert "lies outside of the folder" in capsys.readouterr().err
    assert not shard_server.requests
    assert not (tmp_path / "sets" / "train.json").exists()
    assert create(*theirs, *options, "--index", "../sets/inside") == 0
    with wids.ShardListDataset(
        str(tmp_path / "public" / "train.json"), remote="range", cache_dir=tmp_path / "cache"
    ) as dataset:
        assert dataset[45]["__key__"] == "0005"


REFUSED: dict[str, tuple[list[str], str]] = {
    "local shards": (["{local}", "--publish", "{place}"], "is a local shard"),
    "no file": (["{url}", "-o", "-", "--publish", "{place}"], "needs a spec that is a file"),
    "a web server": (["{url}", "--publish", "http://127.0.0.1:9/sets"], "folders and into buckets"),
    "the hub": (["{url}", "--publish", "hf://datasets/me/birds"], "hf upload OWNER/NAME FOLDER"),
    "sidecars on a web server": (
        ["{url}", "--index", "http://127.0.0.1:9/sets"],
        "folders and into buckets",
    ),
    "an index elsewhere": (
        ["{url}", "--index", "{elsewhere}", "--publish", "{place}"],
        "lies outside of the folder",
    ),
}


@pytest.mark.parametrize("why", REFUSED)
def test_what_cannot_be_published_is_said(
    why: str, theirs: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Local shards, printed specs, web servers and indexes of other folders are errors."""
    (tmp_path / "a.tar").write_bytes(tar_of(3))
    names = {
        "local": tmp_path / "a.tar",
        "url": theirs[0],
        "place": tmp_path / "public",
        "elsewhere": tmp_path / "elsewhere",
    }
    arguments, said = REFUSED[why]
    given = [each.format(**names) for each in arguments]
    (tmp_path / "sets").mkdir()
    output = [] if "-o" in given else ["-o", tmp_path / "sets" / "train.json"]
    assert create(*given, *output) != 0
    assert said in capsys.readouterr().err
    assert not (tmp_path / "public" / "train.json").exists()
