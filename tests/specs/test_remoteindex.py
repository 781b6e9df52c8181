"""Indexes of remote shards: made from their headers, from sidecars, kept in another place."""

import json
import random
import tarfile
import threading
import warnings
from pathlib import Path
from typing import Any

import pytest
from helpers.downloads import QUICK
from helpers.server import Faults, ShardServer
from helpers.shards import tar_bytes
from helpers.stores import Hub

import wids
from wids.cli import main
from wids.errors import FetchError, ShardChangedError, ShardFormatError, SpecError, WidsWarning
from wids.fetching.fetch import Fetcher
from wids.specs.build import build_spec, index_path, index_shard
from wids.tar.tarindex import TarIndex

LARGE = {".jpg": 100_000, ".cls": 1}


def tar_of(count: int, sizes: dict[str, int], tar_format: int = tarfile.USTAR_FORMAT) -> bytes:
    """Write a tar of samples with Python's tarfile."""
    blob = random.Random(0).randbytes(max(sizes.values()))
    members = [
        (f"{number:06d}{extension}", blob[:nbytes])
        for number in range(count)
        for extension, nbytes in sizes.items()
    ]
    return tar_bytes(members, tar_format, mtime=1.5)


def local_index(folder: Path, data: bytes, **rules: Any) -> TarIndex:
    """Return the index of a local copy."""
    path = folder / "local.tar"
    path.write_bytes(data)
    return TarIndex.from_tar(path, **rules)


# The shard, and the share of its bytes that may move, beside a few megabytes at its start.
SHARDS = {
    "large": (tar_of(150, LARGE), 0.08),
    "large with PAX headers": (tar_of(150, LARGE, tarfile.PAX_FORMAT), 0.08),
    "large with long names": (
        tar_of(150, {f".{'x' * 120}.jpg": 100_000, ".cls": 1}, tarfile.GNU_FORMAT),
        0.08,
    ),
    "small": (tar_of(12_000, {".txt": 700, ".cls": 1}), 1),
    "small, then large": (
        tar_of(3000, {".a": 300})[:-10240] + tar_of(100, {".b": 100_000}),
        0.3,
    ),
    "tiny": (tar_of(1, {".cls": 1}), 1),
    "empty": (tar_of(0, LARGE), 1),
}


@pytest.mark.parametrize("name", SHARDS)
def test_the_index_is_that_of_a_local_copy(
    name: str, shard_server: ShardServer, tmp_path: Path
) -> None:
    """Sidecars are equal byte for byte; of large members only headers move, else all."""
    data, share = SHARDS[name]
    rules = {"grouping": "shard"} if "then" in name else {}
    url = shard_server.put("a.tar", data)
    record = index_shard(url, rules=rules, index_dir=tmp_path / "index")
    local_index(tmp_path, data, **rules).save(tmp_path / "local.widx")
    assert Path(record.entry["index"]).read_bytes() == (tmp_path / "local.widx").read_bytes()
    assert record.entry["filesize"] == len(data)
    moved = shard_server.nbytes
    assert record.nbytes_read <= moved <= record.nbytes_read + 30_000
    assert ("md5sum" in record.entry) == (share == 1)
    if share < 1:
        assert moved - (4 << 20) < share * len(data)
    else:
        assert moved <= len(data) + 30_000
        whole = index_shard(url, digests=["md5"])
        assert whole.entry["md5sum"] == record.entry["md5sum"]


@pytest.mark.parametrize("inner", ["random bytes", "tars"])
def test_headers_ahead_of_the_scan_change_nothing(
    inner: str, shard_server: ShardServer, tmp_path: Path
) -> None:
    """Threads find headers in all parts of a shard; headers in its data do not mislead the scan."""
    blob = (
        random.Random(0).randbytes(100_000)
        if inner == "random bytes"
        else tar_of(1, {".a": 95_000})
    )
    data = tar_bytes((f"{number}.bin", blob) for number in range(500))
    url = shard_server.put("a.tar", data)
    record = index_shard(url, index_dir=tmp_path / "index")
    assert TarIndex.load(record.entry["index"]).digest == local_index(tmp_path, data).digest
    assert len(shard_server.requests) < 700
    assert shard_server.connections > 3
    assert shard_server.nbytes - (4 << 20) < 0.08 * len(data)


@pytest.mark.parametrize(
    "faults",
    [
        Faults(times=3, status=503, retry_after="0"),
        Faults(times=3, cut_at=700),
        Faults(ignore_range=True),
        Faults(no_etag=True),
        Faults(hide_total=True),
    ],
    ids=["busy", "cut", "no ranges", "no version", "no size"],
)
def test_a_server_with_faults_gives_the_same_index(
    faults: Faults, shard_server: ShardServer, tmp_path: Path
) -> None:
    """What breaks off is continued; without ranges or versions the shard is fetched whole.

    No thread is left, of which thousands of shards would leave thousands.
    """
    data = SHARDS["large"][0]
    url = shard_server.put("a.tar", data)
    shard_server.faults = faults
    before = set(threading.enumerate())
    fetcher = Fetcher(QUICK)
    record = index_shard(url, index_dir=tmp_path / "index", fetcher=fetcher)
    fetcher.close()
    begun = [each for each in set(threading.enumerate()) - before if "wids" in each.name]
    for thread in begun:
        thread.join(60)  # told to end, but not waited for
    assert not [thread.name for thread in begun if thread.is_alive()]
    assert TarIndex.load(record.entry["index"]).digest == local_index(tmp_path, data).digest


def test_a_shard_that_changes_meanwhile_is_an_error(shard_server: ShardServer) -> None:
    """Headers of two versions are never mixed."""
    url = shard_server.put("a.tar", SHARDS["large"][0])
    shard_server.put("a.tar.widx", b"no sidecar")

    def change() -> None:
        if len(shard_server.requests) == 40:
            shard_server.put("a.tar", tar_of(150, {".png": 100_000, ".txt": 1}))

    shard_server.before_answer = change
    with (
        pytest.warns(WidsWarning, match=r"a\.tar\.widx: is not used, since it does not fit"),
        pytest.raises(FetchError, match=r"a\.tar: the file was replaced on its server"),
    ):
        index_shard(url)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            SHARDS["large"][0][:9_000_000],
            r"a\.tar\?\.\.\.: at byte \d+: expected .* to end at byte",
        ),
        (
            SHARDS["large"][0][:5_000_000] + bytes(10_000) + b"x" * 900_000,
            r"a\.tar\?\.\.\.: at byte \d+",
        ),
        (b"<html>" * 1000, r"a\.tar\?\.\.\.: at byte 0: expected a tar header"),
        (b"", r"a\.tar\?\.\.\.: expected a tar archive, got 0 bytes"),
        (b"x" * 100, r"a\.tar\?\.\.\.: expected a tar archive, got 100 bytes"),
    ],
    ids=["cut off", "damaged", "page", "no bytes", "few bytes"],
)
def test_a_damaged_shard_is_named_with_its_byte(
    data: bytes, message: str, shard_server: ShardServer
) -> None:
    """The error is that of a local scan, with the URL and without its query."""
    url = shard_server.put("a.tar", data)
    built = build_spec([f"{url}?token=secret"])
    (error,) = built.failures.values()
    assert isinstance(error, ShardFormatError | FetchError)
    with pytest.raises(type(error), match=message):
        raise error
    assert "secret" not in str(error)


def test_a_sidecar_on_the_server_is_used_if_it_fits(
    shard_server: ShardServer, tmp_path: Path
) -> None:
    """It saves the scan; one of another shard of the same size is told, and not used."""
    data, other = (tar_of(60, {ext: 100_000}) for ext in (".jpg", ".png"))
    local_index(tmp_path, data).save(tmp_path / "fits.widx")
    local_index(tmp_path, other).save(tmp_path / "other.widx")
    url = shard_server.put("a.tar", data)
    shard_server.put("a.tar.widx", (tmp_path / "fits.widx").read_bytes())
    record = index_shard(url)
    assert record.entry["nsamples"] == 60
    assert shard_server.nbytes < 20_000
    shard_server.put("a.tar.widx", (tmp_path / "other.widx").read_bytes())
    with pytest.warns(WidsWarning, match="its shard has other headers now"):
        record = index_shard(url, index_dir=tmp_path)
    assert record.nbytes_read > 20_000
    assert TarIndex.load(record.entry["index"]).extensions == {".jpg"}


def test_an_index_of_somebody_elses_shards(
    shard_server: ShardServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Shards of a read-only server are read by range through an index beside the spec."""
    for number in (2, 10):
        shard_server.put(f"set/a-{number}.tar", tar_of(40, {".jpg": 100_000, ".cls": number}))
    urls = f"{shard_server.url}/set/a-{{2,10}}.tar"
    spec = tmp_path / "specs" / "birds.json"
    assert main(["create", urls, "-o", str(spec), "--index", str(spec.parent / "index")]) == 0
    assert "of 8." in capsys.readouterr().err
    entries = json.loads(spec.read_text())["shardlist"]
    assert [entry["index"].split("-", 1)[1] for entry in entries] == [
        "a-2.tar.widx",
        "a-10.tar.widx",
    ]
    assert all(entry["index"].startswith("index/") for entry in entries)
    before = shard_server.nbytes
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with wids.ShardListDataset(
            str(spec), transformations="bytes", remote="range", fields=[".cls"]
        ) as dataset:
            assert [len(dataset[index][".cls"]) for index in (0, 41)] == [2, 10]
    assert shard_server.nbytes - before < 10_000
    # A shard that is replaced by another of the same size is noticed at its first sample.
    shard_server.put("set/a-2.tar", tar_of(40, {".png": 100_000, ".cls": 2}))
    with (
        wids.ShardListDataset(str(spec), transformations="bytes", remote="range") as dataset,
        pytest.raises(ShardChangedError, match=r"a-2\.tar"),
    ):
        dataset[0]


def test_an_index_made_in_part_is_resumed(
    shard_server: ShardServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What was indexed is not asked for again, unless its sidecar is gone."""
    for number in range(4):
        shard_server.put(f"a-{number}.tar", tar_of(number + 1, {".cls": 1}))
    missing = shard_server.files.pop("/a-2.tar")
    urls = [f"{shard_server.url}/a-{number}.tar" for number in range(4)]
    command = ["create", *urls, "-o", str(tmp_path / "a.json"), "--index", str(tmp_path / "index")]
    assert main([*command, "--resume"]) == 1
    shard_server.files["/a-2.tar"] = missing
    index_path(urls[0], tmp_path / "index").unlink()
    shard_server.requests.clear()
    assert main([*command, "--resume"]) == 0
    asked = {request.path for request in shard_server.requests}
    assert asked == {f"/a-{number}.tar{suffix}" for number in (0, 2) for suffix in ("", ".widx")}
    assert [
        each["nsamples"] for each in json.loads((tmp_path / "a.json").read_text())["shardlist"]
    ] == [1, 2, 3, 4]


def test_sidecars_are_never_left_out_in_silence(
    shard_server: ShardServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """--sidecars for remote shards and --index for local ones are errors that name the other."""
    url = shard_server.put("a.tar", tar_of(1, {".cls": 1}))
    local = tmp_path / "b.tar"
    local.write_bytes(tar_of(1, {".cls": 1}))
    for shard, option, advice in (
        (url, ["--sidecars"], "wids create --index"),
        (str(local), ["--index", str(tmp_path / "i")], "--sidecars"),
    ):
        assert main(["create", shard, "-o", str(tmp_path / "a.json"), *option]) == 1
        assert advice in capsys.readouterr().err


def test_a_spec_of_a_server_names_no_local_index(shard_server: ShardServer) -> None:
    """A stranger's spec may not make a reader open files of its machine."""
    spec = {"shardlist": [{"url": "a.tar", "nsamples": 1, "index": "file:///etc/passwd"}]}
    url = shard_server.put("a.json", json.dumps(spec).encode())
    with pytest.raises(SpecError, match="index: 'file:///etc/passwd' is a file of this machine"):
        wids.ShardListDataset(url)


@pytest.mark.usefixtures("no_waits")
def test_a_spec_of_a_repository_has_the_digests_of_the_hub(hub: Hub, tmp_path: Path) -> None:
    """The digest costs no byte of the shard, and is checked when the shard is fetched."""
    data = tar_of(80, LARGE)
    commit = hub.commit({"data/a.tar": data})
    spec = tmp_path / "birds.json"
    assert main(["create", "hf://datasets/me/birds", "-o", str(spec)]) == 0
    (entry,) = json.loads(spec.read_text())["shardlist"]
    assert entry["url"] == f"hf://datasets/me/birds@{commit}/data/a.tar"
    assert entry["sha256"] == hub.tree(commit, "")[-1]["lfs"]["oid"]
    with wids.ShardListDataset(str(spec), transformations="bytes") as dataset:
        assert len(dataset[79][".jpg"]) == 100_000
    # Of what is already indexed, only a shard of another size is read again.
    hub.commits[commit] = {"data/a.tar": tar_of(81, LARGE)}
    other = tmp_path / "other.json"
    other.write_text(spec.read_text())
    assert main(["create", "hf://datasets/me/birds", "-o", str(other), "--resume"]) == 0
    assert json.loads(other.read_text())["shardlist"][0]["nsamples"] == 81
    hub.commits[commit] = {"data/a.tar": data[:-1] + b"x"}
    with (
        wids.ShardListDataset(
            str(spec), transformations="bytes", cache_dir=tmp_path / "other"
        ) as dataset,
        pytest.raises(wids.IntegrityError, match="sha256"),
    ):
        dataset[0]
