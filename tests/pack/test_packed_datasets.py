"""Datasets through packs, local and remote: the samples are those of the shards, or an error."""

import gzip
import json
import os
import pickle
import signal
import subprocess
import threading
import warnings
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.interpreters import Program, run_python
from helpers.packbytes import with_pack
from helpers.server import Faults, Request, ShardServer
from helpers.stores import use_azure, use_s3
from helpers.waiting import eventually

import wids
from wids.base.files import OutputFile
from wids.base.text import format_nbytes
from wids.cli import main
from wids.errors import SpecError, WidsError
from wids.fetching.fetch import Fetcher
from wids.specs.sources import load_spec
from wids.tools.packing import write_pack

LENGTHS = [4, 0, 3, 5]


def sample(number: int) -> dict[str, str]:
    return {"__key__": f"k{number}", ".txt": f"text {number}" * (number + 1), ".cls": f"{number}"}


@pytest.fixture
def folder(make_shard: Callable[..., Path]) -> Path:
    """Write shards, their spec with class names, and their pack, which the spec names."""
    start, rows = 0, []
    for number, length in enumerate(LENGTHS):
        path = make_shard(f"data/{number}.tar", [sample(start + i) for i in range(length)])
        size = path.stat().st_size
        rows.append({"url": path.name, "nsamples": length, "filesize": size, "weight": 0.5})
        start += length
    document = {"name": "birds", "classes": ["a", "b"], "shardlist": rows, "pack": "train.wpack"}
    (path.parent / "train.json").write_text(json.dumps(document))
    write_pack(load_spec(str(path.parent / "train.json")), path.parent / "train.wpack")
    return path.parent


def contents(dataset: Any) -> list[Any]:
    return [(s["__key__"], s[".txt"], s["__index__"], s["__shardindex__"]) for s in dataset]


EXPECTED = [
    (sample(number)["__key__"], sample(number)[".txt"], number, local)
    for number, local in enumerate([*range(4), *range(3), *range(5)])
]


def test_a_local_pack_replaces_sidecars(folder: Path, tmp_path: Path) -> None:
    """Samples, keys and entries are those of the spec, and no sidecar is written."""
    dataset = wids.ShardListDataset(folder / "train.json")
    assert contents(dataset) == EXPECTED
    assert dataset.__getitems__([11, 0, 5]) == [dataset[index] for index in (11, 0, 5)]
    assert list(dataset.keys) == [each[0] for each in EXPECTED]
    assert [dataset.index_of(f"k{number}") for number in range(12)] == list(range(12))
    assert dataset.get("k7")[".txt"] == EXPECTED[7][1]
    assert "k12" not in dataset.keys
    assert (dataset.dataset_name, dataset.class_names) == ("birds", {0: "a", 1: "b"})
    assert [shard["weight"] for shard in dataset.shards] == [0.5] * 4
    assert dataset.shards[3]["url"] == str(folder / "3.tar")
    assert [ref["pack"] for ref in dataset.shards] == [
        f"{folder / 'train.wpack'}#{row}" for row in range(4)
    ]
    assert not list(tmp_path.rglob("*.widx"))


def test_a_shard_that_changed_is_refused(folder: Path, make_shard: Callable[..., Path]) -> None:
    """A shard of the same size with other members is an error until it is packed again."""
    other = [{"__key__": f"o{number}", ".txt": f"TEXT {number}"} for number in range(4)]
    before = (folder / "0.tar").stat()
    make_shard("data/0.tar", [{**sample(i), **other[i]} for i in range(4)])
    assert (folder / "0.tar").stat().st_size == before.st_size
    os.utime(folder / "0.tar", ns=(before.st_atime_ns, before.st_mtime_ns))
    dataset = wids.ShardListDataset(folder / "train.json")
    assert dataset[4]["__key__"] == "k4"
    with pytest.raises(wids.ShardChangedError, match=r"0\.tar: is not the shard that was packed"):
        dataset[1]
    write_pack(load_spec(str(folder / "train.json")), folder / "train.wpack")
    assert wids.ShardListDataset(folder / "train.json")[1][".txt"] == "TEXT 1"


def test_a_shard_that_is_newer_than_its_pack_is_compared_by_its_headers(folder: Path) -> None:
    """Copied after the pack, the same shard is read, with a warning; its keys are the pack's."""
    later = (folder / "train.wpack").stat().st_mtime_ns + 10**9
    os.utime(folder / "0.tar", ns=(later, later))
    dataset = wids.ShardListDataset(folder / "train.json")
    with pytest.warns(UserWarning, match=r"0\.tar: this shard.*newer than its pack"):
        assert contents(dataset) == EXPECTED
    assert dataset.index_of("k2") == 2


def test_the_pack_of_other_shards_is_not_used(folder: Path) -> None:
    """A spec whose pack is missing, damaged or of other shards is read by sidecars or headers."""
    path = folder / "train.wpack"
    good = path.read_bytes()
    write_pack(load_spec([str(folder / f"{number}.tar") for number in (3, 2, 0)]), path)
    wrong = path.read_bytes()
    for content in (wrong, good[:-1], b"", None):
        path.unlink()
        if content is not None:
            path.write_bytes(content)
        with pytest.warns(UserWarning, match=r"the pack .*train\.wpack cannot be used"):
            assert contents(wids.ShardListDataset(folder / "train.json")) == EXPECTED
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert wids.ShardListDataset(folder / "train.json").index_of("k5") == 5


def test_another_process_compares_the_pack_again(folder: Path) -> None:
    """A pack that is replaced before a copy of the dataset opens it gives the copy no keys."""
    dataset = wids.ShardListDataset(folder / "train.json")
    assert dataset.index_of("k5") == 5
    state = pickle.dumps(dataset)
    others = load_spec([str(folder / f"{number}.tar") for number in (3, 2, 0)])
    write_pack(others, folder / "train.wpack")
    copy = pickle.loads(state)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the pack, which is of other shards
        assert copy.index_of("k5") == 5


@pytest.mark.parametrize("rule", [{"key_rule": "last_dot"}, {"grouping": "shard"}])
def test_other_rules_use_no_pack(make_shard: Callable[..., Path], rule: dict[str, Any]) -> None:
    """A pack made by other rules gives neither indexes nor keys; its own rules are kept in it."""
    path = make_shard("data/0.tar", [{"__key__": "a.x", ".txt": "1"}, {"__key__": "b", ".txt": ""}])
    usual = with_pack([str(path)], path.with_name("usual.wpack"))
    dataset = wids.ShardListDataset(usual, **rule)
    expected = wids.ShardListDataset([str(path)], **rule)
    assert list(dataset.keys) == list(expected.keys)
    key = expected.keys[0]
    assert (dataset.index_of(key), list(dataset)) == (0, list(expected) and list(dataset))
    ruled = load_spec([str(path)], options=rule)
    ruled = with_pack(ruled, path.with_name("ruled.wpack"))
    assert list(wids.ShardListDataset(ruled).keys) == list(expected.keys)
    assert wids.ShardListDataset(ruled).packed_keys() is not None


@pytest.mark.filterwarnings("ignore:.*listed a second time")
def test_packs_of_several_datasets(folder: Path, tmp_path: Path) -> None:
    """Datasets of datasets, lists, and merged specs keep the place of each shard's index."""
    both = {"datasets": [{"source_url": "train.json"}, {"source_url": "train.json", "name": "b"}]}
    (folder / "both.json").write_text(json.dumps(both))
    for source in (folder / "both.json", 2 * [str(folder / "train.json")]):
        dataset = wids.ShardListDataset(source)
        assert [each[:2] for each in contents(dataset)] == [each[:2] for each in 2 * EXPECTED]
        assert dataset.shards[6]["pack"].endswith("train.wpack#2")
    assert dataset.index_of("k11") == 11
    spec = wids.DatasetSpec.parse(wids.DatasetSpec.parse(both_json(folder), "").to_json())
    assert contents(wids.ShardListDataset(spec)) == EXPECTED
    assert not list(tmp_path.rglob("*.widx"))


def both_json(folder: Path) -> str:
    """Return the spec with absolute locations."""
    document = json.loads((folder / "train.json").read_text())
    document["pack"] = str(folder / "train.wpack")
    return json.dumps({**document, "base": str(folder)})


def test_a_compressed_shard_has_no_index_in_the_pack(folder: Path) -> None:
    """Its samples are counted, and it is read as without a pack."""
    subprocess.run(["gzip", "-k", str(folder / "2.tar")], check=True)
    spec = load_spec([str(folder / "0.tar"), str(folder / "2.tar.gz")])
    packed = write_pack(spec, folder / "mixed.wpack")
    assert (packed.num_samples, packed.num_without) == (7, 1)
    dataset = wids.ShardListDataset(with_pack(spec, folder / "mixed.wpack"))
    assert [each["__key__"] for each in dataset] == [f"k{number}" for number in range(7)]
    assert dataset.index_of("k6") == 6


def test_a_spec_that_lies_is_not_packed(folder: Path) -> None:
    """Another number of samples, or another size, ends the packing, and nothing is written."""
    for fields in ({"nsamples": 5}, {"nsamples": 4, "filesize": 10}):
        spec = load_spec([{"url": str(folder / "0.tar"), **fields}])
        with pytest.raises(WidsError, match=r"0\.tar: .*the spec says"):
            write_pack(spec, folder / "no.wpack")
    assert sorted(path.name for path in folder.glob("no*")) == []


# On a server.


def serve(folder: Path, server: ShardServer, *names: str) -> str:
    """Serve files of a folder; return the URL of the last."""
    return [server.put(f"set/{name}", (folder / name).read_bytes()) for name in names][-1]


TARS = [f"{number}.tar" for number in range(4)]


def test_a_remote_pack_is_read_by_range(
    folder: Path, shard_server: ShardServer, tmp_path: Path
) -> None:
    """Header, table and one index are requested, then kept: no sidecar, and no shard whole."""
    serve(folder, shard_server, *TARS, "train.json", "train.wpack")
    url = f"{shard_server.url}/set/train.json"
    dataset = wids.ShardListDataset(url, remote="range")
    assert dataset[9][".txt"] == EXPECTED[9][1]
    asked = [(each.path, "Range" in each.headers) for each in shard_server.requests]
    assert asked.count(("/set/train.wpack", True)) == 3
    assert not [path for path, _ in asked if path.endswith(".widx")]
    assert asked[-1] == ("/set/3.tar", True)
    assert contents(dataset) == EXPECTED
    del shard_server.requests[:]
    again = wids.ShardListDataset(url, remote="range")
    assert again[9][".txt"] == EXPECTED[9][1]
    of_pack = [each for each in shard_server.requests if each.path == "/set/train.wpack"]
    assert len(of_pack) == 1  # its header, which says that what was kept still belongs to it


@pytest.fixture(params=["s3", "azure"])
def bucket(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """URL of a bucket or container of this test."""
    store, name = request.param, f"packs-{abs(hash(request.node.name))}"
    endpoint = request.getfixturevalue(f"{store}_endpoint")
    if store == "s3":
        use_s3(endpoint, monkeypatch, name)
        return f"s3://{name}"
    use_azure(endpoint, monkeypatch, name)
    return f"az://{name}"


def test_a_pack_in_a_bucket_serves_its_shards(folder: Path, bucket: str, tmp_path: Path) -> None:
    """Packs in object stores are read by range; keys are found, and no sidecar is needed."""
    root = f"{bucket}/set"
    with closing(Fetcher()) as fetcher:
        for each in [*TARS, "train.json", "train.wpack"]:
            fetcher.put(f"{root}/{each}", folder / each)
    with wids.ShardListDataset(f"{root}/train.json", remote="range") as dataset:
        assert contents(dataset) == EXPECTED
        assert dataset.index_of("k7") == 7
        sampler = wids.DistributedShardSampler(dataset, 1, 0)
        batches = wids.Loader(dataset, 5, sampler=sampler, tensors=False)
        assert sorted(key for batch in batches for key in batch["__key__"]) == sorted(
            key for key, *_ in EXPECTED
        )
    assert not list((tmp_path / "wids-cache").glob("*.tar"))


def test_keys_of_a_remote_pack_fetch_no_shard(folder: Path, shard_server: ShardServer) -> None:
    """A key is found, compared and read again by the pack alone, where shards are fetched whole."""
    serve(folder, shard_server, *TARS, "train.json", "train.wpack")
    dataset = wids.ShardListDataset(f"{shard_server.url}/set/train.json")
    assert [dataset.index_of(key) for key in ("k11", "k0")] == [11, 0]
    assert "nobody" not in dataset.keys
    assert dataset.keys[3:6] == ["k3", "k4", "k5"]
    assert not [each for each in shard_server.requests if each.path.endswith(".tar")]
    assert dataset.get("k5")[".txt"] == EXPECTED[5][1]
    paths = [each.path for each in shard_server.requests]
    assert [path for path in paths if path.endswith(".tar")] == ["/set/2.tar"]
    unpacked = wids.ShardListDataset([str(folder / each) for each in TARS])
    assert np.array_equal(dataset.key_hashes(), unpacked.key_hashes())


def test_a_pack_that_is_replaced_on_its_server(folder: Path, shard_server: ShardServer) -> None:
    """What is requested later must be of the pack that was opened."""
    serve(folder, shard_server, *TARS, "train.json", "train.wpack")
    dataset = wids.ShardListDataset(f"{shard_server.url}/set/train.json", remote="range")
    assert dataset[0][".txt"] == EXPECTED[0][1]
    changed = bytearray((folder / "train.wpack").read_bytes())
    changed[200:4000] = bytes(3800)
    shard_server.put("set/train.wpack", bytes(changed))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert contents(dataset) == EXPECTED
    assert any("cannot be used" in str(each.message) for each in caught)


def test_a_damaged_kept_table_is_fetched_again(
    folder: Path, shard_server: ShardServer, tmp_path: Path
) -> None:
    """A copy in the cache folder that somebody damaged is noticed, and replaced."""
    url = serve(folder, shard_server, *TARS, "train.wpack", "train.json")
    assert wids.ShardListDataset(url).index_of("k7") == 7
    (kept,) = (tmp_path / "wids-cache" / "packs").iterdir()
    good = kept.read_bytes()
    kept.write_bytes(bytes(len(good)))
    assert wids.ShardListDataset(url).index_of("k11") == 11
    assert kept.read_bytes() == good
    wids.ShardCache().clear()
    assert not kept.exists()


def test_a_spec_from_a_server_names_no_local_pack(folder: Path, shard_server: ShardServer) -> None:
    """A spec from a server may not name a local file as its pack."""
    spec = json.loads((folder / "train.json").read_text())
    spec["pack"] = f"file://{folder / 'train.wpack'}"
    shard_server.put("set/spec.json", json.dumps(spec).encode())
    with pytest.raises(SpecError, match=r"pack: .*is a file of this machine"):
        wids.ShardListDataset(f"{shard_server.url}/set/spec.json")


def test_a_pack_is_no_dataset_by_itself(folder: Path) -> None:
    """Whoever opens one is told to open the spec that names it."""
    for source in (str(folder / "train.wpack"), [folder / "train.wpack"]):
        with pytest.raises(SpecError, match=r"train\.wpack: is a pack.*open the spec"):
            wids.ShardListDataset(source)


# From the command line.


def run(*arguments: Any) -> subprocess.CompletedProcess[str]:
    return run_python("-m", "wids", *arguments)


def test_create_names_its_pack(folder: Path) -> None:
    """`create --pack` writes both, and the spec names the pack relative to itself."""
    done = run("create", folder, "-o", folder / "new.json", "--pack", folder / "new.wpack")
    assert done.returncode == 0, done.stderr
    assert json.loads((folder / "new.json").read_text())["pack"] == "new.wpack"
    moved = folder.rename(folder.with_name("moved"))
    assert contents(wids.ShardListDataset(moved / "new.json")) == EXPECTED


def test_export_says_how_a_spec_names_its_pack(folder: Path) -> None:
    """`wids export` writes the pack, and the key for a spec that does not name one yet."""
    spec = folder / "train.json"
    document = {**json.loads(spec.read_text()), "pack": None}
    spec.write_text(json.dumps(document))
    done = run("export", spec, folder / "again.wpack")
    assert (done.returncode, '"pack": "again.wpack"' in done.stderr) == (0, True), done.stderr
    spec.write_text(json.dumps({**document, "pack": "again.wpack"}))
    assert contents(wids.ShardListDataset(spec)) == EXPECTED
    assert '"pack"' not in run("export", spec, folder / "again.wpack").stderr


def bytes_sent(server: ShardServer) -> Counter[str]:
    """Return the number of bytes that were sent of each shard, and forget them."""
    sent: Counter[str] = Counter()
    for each in server.requests:
        if ".tar" in (name := each.path.rpartition("/")[2]) and not name.endswith(".widx"):
            sent[name] += each.nbytes
    del server.requests[:]
    return sent


@pytest.mark.parametrize(
    "others", [pytest.param(["--index", "indexes"], marks=pytest.mark.slow), ["3.tar"]]
)
def test_create_fetches_a_compressed_shard_once(
    folder: Path, shard_server: ShardServer, tmp_path: Path, others: list[str]
) -> None:
    """Spec and pack need the bytes of each shard once."""
    zstandard = pytest.importorskip("zstandard")
    plain = [(folder / name).read_bytes() for name in TARS]
    packed = [gzip.compress(plain[0]), zstandard.compress(plain[2])]
    shard_server.put("set/1.tar", plain[1])
    urls = [
        shard_server.put("set/0.tar.gz", packed[0]),
        f"{shard_server.url}/set/1.tar",
        f"{shard_server.put('set/2.tar.zst', packed[1])}?token=x",
    ]
    out = tmp_path / "out"
    options = [folder / each if each == "3.tar" else each for each in others]
    options = [out / each if each == "indexes" else each for each in options]
    assert run("create", *urls, *options, "-o", out / "a.json").returncode == 0
    once = bytes_sent(shard_server)
    assert once["0.tar.gz"] == len(packed[0])
    done = run("create", *urls, *options, "-o", out / "b.json", "--pack", out / "b.wpack")
    assert done.returncode == 0, done.stderr
    sent = bytes_sent(shard_server)
    assert sent == once
    rows = [json.loads((out / name).read_text())["shardlist"] for name in ("a.json", "b.json")]
    assert rows[0] == rows[1]
    assert {each.name for each in out.iterdir()} <= {"a.json", "b.json", "b.wpack", "indexes"}
    local = wids.ShardListDataset([str(folder / each) for each in TARS[: len(rows[0])]])
    remote = wids.ShardListDataset(out / "b.json", cache_dir=tmp_path / "cache")
    texts = {each["__key__"]: each[".txt"] for each in local}
    assert {each["__key__"]: each[".txt"] for each in remote} == texts
    assert all(remote[remote.index_of(key)]["__key__"] == key for key in texts)


def test_a_killed_run_of_compressed_shards_is_resumed(
    folder: Path, shard_server: ShardServer, tmp_path: Path
) -> None:
    """What was indexed before the pack could be written is not fetched again."""
    url = shard_server.put("set/0.tar.gz", gzip.compress((folder / "0.tar").read_bytes()))
    command = ["create", url, "-o", tmp_path / "new.json", "--pack", tmp_path / "new.wpack"]
    being_written = OutputFile(tmp_path / "new.wpack")
    try:
        done = run(*command)
    finally:
        being_written.discard()
    assert (done.returncode, "is writing this file" in done.stderr) == (1, True)
    assert not (tmp_path / "new.json").exists()  # no spec names a pack that is not there
    del shard_server.requests[:]
    done = run(*command, "--resume")
    assert done.returncode == 0, done.stderr
    assert not bytes_sent(shard_server)
    assert json.loads((tmp_path / "new.json").read_text())["shardlist"] == [
        {"url": url, "nsamples": 4}
    ]
    assert run("create", url, "-o", tmp_path / "new.json", "--resume").returncode == 0
    assert not bytes_sent(shard_server)


def tars_asked(server: ShardServer) -> set[str]:
    """Return the names of the shards that were asked for, and forget them."""
    asked = {each.path.rpartition("/")[2] for each in server.requests}
    del server.requests[:]
    return {name for name in asked if name.endswith(".tar")}


@pytest.mark.usefixtures("no_waits")
@pytest.mark.parametrize(
    ("tars", "faults"),
    [
        ("{0..3}.tar", {"cut_at": 700}),
        ("0.tar", {"status": 503}),
        pytest.param("0.tar", {"refuse": True}, marks=pytest.mark.slow),
        pytest.param("{0..3}.tar", {"change_etag": True}, marks=pytest.mark.slow),
    ],
    ids=["truncated", "busy", "refused", "other versions"],
)
def test_a_resumed_pack_is_that_of_a_fresh_run(
    folder: Path,
    shard_server: ShardServer,
    tmp_path: Path,
    tars: str,
    faults: dict[str, Any],
) -> None:
    """Byte by byte, however it was killed, which faults it met, and how often it is resumed."""
    serve(folder, shard_server, *TARS)
    url = f"{shard_server.url}/set/{tars}"

    def command(name: str, *options: str) -> list[str]:
        (tmp_path / name).mkdir(exist_ok=True)
        made = [str(tmp_path / name / each) for each in ("new.json", "new.wpack")]
        return ["create", url, "-o", made[0], "--pack", made[1], *options]

    def contents_of(name: str) -> dict[str, bytes]:
        return {each.name: each.read_bytes() for each in (tmp_path / name).iterdir()}

    assert run(*command("fresh")).returncode == 0
    free, last = threading.Event(), "0.tar" if tars == "0.tar" else "3.tar"
    waiting: list[Request] = []

    def hold(request: Request) -> None:
        if request.path.endswith(last) and not free.is_set():
            waiting.append(request)
            free.wait(60)

    shard_server.hold = hold
    with Path(os.devnull).open("r+") as nothing:
        process = Program("-m", "wids", *command("killed"), files=(nothing, nothing, nothing))
    assert eventually(lambda: bool(waiting))
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    free.set()
    shard_server.faults = Faults(times=5, **faults)
    main(command("killed", "--resume"))  # which may fail
    shard_server.heal()
    for _ in range(2):  # what is complete is resumed, too
        assert run(*command("killed", "--resume")).returncode == 0
        assert contents_of("killed") == contents_of("fresh")


def test_a_pack_is_extended_by_what_is_new(
    folder: Path, shard_server: ShardServer, tmp_path: Path
) -> None:
    """`--resume` takes the indexes of an earlier pack, and says the bytes of all it asks for."""
    serve(folder, shard_server, *TARS)
    files = ["-o", tmp_path / "new.json", "--pack", tmp_path / "new.wpack", "--resume"]
    assert run("create", f"{shard_server.url}/set/{{0..2}}.tar", *files).returncode == 0
    tars_asked(shard_server)
    every = f"{shard_server.url}/set/{{0..3}}.tar"
    done = run("create", every, *files)
    assert done.returncode == 0, done.stderr
    assert tars_asked(shard_server) == {"3.tar"}
    packed = (tmp_path / "new.wpack").read_bytes()
    assert contents(wids.ShardListDataset(tmp_path / "new.json", remote="range")) == EXPECTED
    # Without the earlier pack, its shards are asked for again, which the line of the pack counts.
    (tmp_path / "new.wpack").unlink()
    tars_asked(shard_server)
    done = run("create", every, *files)
    moved = sum(each.nbytes for each in shard_server.requests if each.path.endswith(".tar"))
    assert tars_asked(shard_server) == set(TARS)
    assert f"read {format_nbytes(moved)} from servers for tar indexes" in done.stderr
    assert (tmp_path / "new.wpack").read_bytes() == packed


def test_check_compares_packs_with_shards(folder: Path, make_shard: Callable[..., Path]) -> None:
    """`wids check` finds a shard whose index in the pack is another one, and a damaged pack."""
    assert run("check", folder / "train.json").returncode == 0
    make_shard("data/2.tar", [{**sample(4 + i), "__key__": f"x{i}"} for i in range(3)])
    done = run("check", folder / "train.json")
    assert done.returncode == 1
    assert "its index in the pack is not that of the shard" in done.stdout + done.stderr
    (folder / "train.wpack").write_bytes(b"widspck")
    done = run("check", folder / "train.json")
    assert "no usable pack" in done.stdout + done.stderr
