"""A dataset reads one version of each shard, however often it opens it."""

import io
import multiprocessing
import pickle
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from helpers.server import Faults, ShardServer
from helpers.spawned import read_between
from hypothesis import given
from hypothesis import strategies as st

from wids import ShardCache, ShardListDataset, TarIndex
from wids.errors import FetchError, WidsError, WidsWarning
from wids.reading.versions import SeenVersions, ShardVersion
from wids.specs.sources import load_spec
from wids.tar.sidecar import SIDECAR_SUFFIX
from wids.tools.packing import write_pack

NSAMPLES = 6
FACT = st.sampled_from(["a", "b", None])


def shard(letter: str, *, names: str = "k") -> bytes:
    """Write a shard whose fields hold one letter; two of them differ in nothing else."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for number in range(NSAMPLES):
            member = tarfile.TarInfo(f"{names}{number}.txt")
            member.size = 2_000
            archive.addfile(member, io.BytesIO(letter.encode() * 2_000))
    return stream.getvalue()


@pytest.fixture
def put(shard_server: ShardServer, tmp_path: Path) -> Callable[..., None]:
    """Returns what serves a shard under a name, with its sidecar if that is wanted."""

    def serve(name: str, tar: bytes, *, sidecar: bool = True) -> None:
        shard_server.put(f"{name}.tar", tar)
        if sidecar:
            path = tmp_path / f"{name}.tar"
            path.write_bytes(tar)
            TarIndex.from_tar(path).save(tmp_path / "made.widx")
            image = (tmp_path / "made.widx").read_bytes()
            shard_server.put(f"{name}.tar{SIDECAR_SUFFIX}", image)

    return serve


def opened(server: ShardServer, remote: str, folder: Path, **options: Any) -> ShardListDataset:
    """Open two shards, of which one at a time stays open and in the cache."""
    rows = [(f"{server.url}/{name}.tar", NSAMPLES) for name in "ab"]
    options = {"lru_size": 1, "cache_size": 1000, "transformations": "bytes"} | options
    return ShardListDataset(rows, remote=remote, cache_dir=folder, **options)


def in_a_worker(dataset: ShardListDataset) -> ShardListDataset:
    """Return the copy that a worker process gets."""
    return pickle.loads(pickle.dumps(dataset))


@pytest.mark.parametrize("reopened", ["for room", "in a worker"])
@pytest.mark.parametrize("names", ["k", "n"], ids=["same names", "other names"])
@pytest.mark.parametrize("kind", [{}, {"dated": True}], ids=str)
def test_a_shard_that_was_closed_and_replaced_is_refused(
    put: Callable[..., None],
    shard_server: ShardServer,
    tmp_path: Path,
    reopened: str,
    names: str,
    kind: dict[str, bool],
) -> None:
    """Read by range, it must be the version that was read before; a new dataset reads the new."""
    shard_server.faults = Faults(**kind)
    for name in "ab":
        put(name, shard("x"))
    with opened(shard_server, "range", tmp_path / "cache") as dataset:
        assert dataset[0][".txt"][:1] == b"x"
        put("a", shard("y", names=names))
        for sidecar in (tmp_path / "cache").glob(f"*{SIDECAR_SUFFIX}"):
            sidecar.unlink()
        again = in_a_worker(dataset) if reopened == "in a worker" else dataset
        assert again[NSAMPLES][".txt"][:1] == b"x"  # closes the other one
        for read in (again.__getitem__, lambda index: again.__getitems__([index, 1])):
            with pytest.raises(FetchError, match=r"/a\.tar: the shard was replaced on its server"):
                read(0)
        dataset.close()
        assert dataset[0][".txt"][:1] == b"y"
    with opened(shard_server, "range", tmp_path / "cache") as dataset:
        assert dataset[1][".txt"][:1] == b"y"


@contextmanager
def worker(dataset: ShardListDataset, method: str) -> Iterator[Callable[[int], Any]]:
    """Start a process with a dataset; yields what has it read an index."""
    context: Any = multiprocessing.get_context(method)
    here, there = context.Pipe()
    process = context.Process(target=read_between, args=(dataset, there))
    process.start()

    def ask(index: int) -> Any:
        here.send(index)
        assert here.poll(60)
        return here.recv()

    try:
        yield ask
    finally:
        here.send(None)
        process.join(60)


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_workers_read_one_version_between_them(
    put: Callable[..., None], shard_server: ShardServer, tmp_path: Path, method: str
) -> None:
    """What one worker has read is the version for the other and for this process, until `close`."""
    for name in "ab":
        put(name, shard("x"))
    with opened(shard_server, "range", tmp_path / "cache") as dataset:
        with worker(dataset, method) as first, worker(dataset, method) as second:
            assert (first(0), second(NSAMPLES)) == (b"x", b"x")
            put("a", shard("y"))
            assert "the shard was replaced on its server since" in second(0)
            with pytest.raises(FetchError, match=r"the shard was replaced on its server since"):
                dataset[0]
        dataset.close()
        with worker(dataset, method) as first, worker(dataset, method) as second:
            assert (first(0), second(1), dataset[2][".txt"][:1]) == (b"y", b"y", b"y")


def in_order(letters: str) -> bytes:
    """Write a shard of a sample for each letter, its key and its text."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for letter in letters:
            member = tarfile.TarInfo(f"{letter}.txt")
            member.size = 2_000
            archive.addfile(member, io.BytesIO(letter.encode() * 2_000))
    return stream.getvalue()


CHOOSE: dict[str, Callable[[ShardListDataset], Any]] = {
    "exclude": lambda dataset: dataset.exclude(["c"]),
    "select_keys": lambda dataset: dataset.select_keys(["c", "a"]),
    "sort_by": lambda dataset: dataset.sort_by("key"),
    "split": lambda dataset: dataset.split(a=0.5, b=0.5)["a"],
}


@pytest.mark.parametrize("choose", CHOOSE.values(), ids=CHOOSE)
@pytest.mark.parametrize("index", ["pack", "sidecar"])
@pytest.mark.parametrize("remote", ["range", "auto"])
def test_samples_are_chosen_by_the_keys_of_the_shards_that_are_read(
    put: Callable[..., None],
    shard_server: ShardServer,
    tmp_path: Path,
    index: str,
    remote: Any,
    choose: Callable[[ShardListDataset], Any],
) -> None:
    """Keys of a pack or a kept sidecar that the shard no longer has are an error at its samples."""
    cache = {"cache_dir": tmp_path / "cache", "transformations": "bytes", "remote": remote}
    put("a", in_order("abcdef"))
    source: Any = [(f"{shard_server.url}/a.tar", NSAMPLES)]
    with ShardListDataset(source, **cache) as dataset:
        expected = [sample["__key__"] for sample in choose(dataset)]
        if index == "pack":
            write_pack(load_spec(source), tmp_path / "a.wpack", cache_dir=tmp_path / "cache")
            source = tmp_path / "a.wpack"
    with ShardListDataset(source, **cache) as dataset:  # an unchanged shard is no error
        assert [sample["__key__"] for sample in choose(dataset)] == expected
    put("a", in_order("dafcbe"))
    with ShardListDataset(source, **cache) as dataset:
        chosen = choose(dataset)
        with pytest.raises(FetchError, match=r"/a\.tar: the shard was replaced on its server"):
            list(chosen)
    if index == "pack":
        with ShardListDataset(source, **(cache | {"remote": "whole"})) as dataset:
            chosen = choose(dataset)
            with pytest.raises(FetchError, match=r"/a\.tar: the shard was replaced on its server"):
                list(chosen)


@pytest.mark.parametrize("reopened", ["closed", "in a worker"])
def test_what_was_chosen_stands_until_the_dataset_is_opened_again(
    tmp_path: Path, reopened: str
) -> None:
    """A local shard that was replaced after a choice is refused; before one, it is warned of."""
    path = tmp_path / "a.tar"
    for letters in ("abcdef", "dafcbe"):
        path.write_bytes(in_order("abcdef"))
        dataset = ShardListDataset([str(path)])
        assert dataset[0]["__key__"] == "a"
        (tmp_path / "new.tar").write_bytes(in_order(letters))
        (tmp_path / "new.tar").replace(path)  # of another date, if not of other bytes
        with pytest.warns(WidsWarning, match=r"a\.tar: was replaced since this dataset opened it"):
            view = dataset.exclude(["c"])
        assert [sample["__key__"] for sample in view] == [each for each in letters if each != "c"]
        (tmp_path / "new.tar").write_bytes(in_order("fedcba"))
        (tmp_path / "new.tar").replace(path)
        again = in_a_worker(dataset) if reopened == "in a worker" else dataset
        again.close()
        for read in ("[0]", ".sort_by('key')", ".filter('key < 3')", ".column('.txt')"):
            with pytest.raises(FetchError, match=r"a\.tar: the shard was replaced since its keys"):
                eval(f"again{read}", {"again": again})
        assert ShardListDataset([str(path)])[0]["__key__"] == "f"


def test_a_shard_that_goes_whole_is_the_version_that_was_read(
    put: Callable[..., None], shard_server: ShardServer, tmp_path: Path
) -> None:
    """Between the last range and the download, another shard of the same layout was put there."""
    put("a", shard("x"))
    put("b", shard("x"))
    with opened(shard_server, "range", tmp_path / "cache", cache_size=None) as dataset:
        part = dataset.locate_sample(0)[0]
        while part.nbytes_read <= part.nbytes // 2:
            dataset[0]
        put("a", shard("y"))
        for _ in range(2):
            with pytest.raises(FetchError, match="the shard was replaced on its server since"):
                dataset[0]


def test_a_shard_that_goes_whole_unchanged_is_read(
    put: Callable[..., None], shard_server: ShardServer, tmp_path: Path
) -> None:
    """The same version is no reason for an error, however it is read and reopened."""
    put("a", shard("x"))
    put("b", shard("x"))
    options = {"cache_size": None}
    with opened(shard_server, "range", tmp_path / "cache", **options) as dataset:
        for _ in range(3):
            for index in range(2 * NSAMPLES):
                assert dataset[index][".txt"][:1] == b"x"
        again = in_a_worker(dataset)
        assert again[0] == dataset[0]


@pytest.mark.parametrize("kind", [{}, {"no_etag": True}], ids=str)
def test_an_evicted_shard_that_comes_back_as_another_one_is_warned_of(
    put: Callable[..., None], shard_server: ShardServer, tmp_path: Path, kind: dict[str, bool]
) -> None:
    """The samples of the new version are whole and right; the warning names the shard, once."""
    shard_server.faults = Faults(**kind)
    for name in "ab":
        put(name, shard("x"), sidecar=False)
    with opened(shard_server, "whole", tmp_path / "cache") as dataset:
        assert dataset[0][".txt"][:1] == b"x"
        assert dataset[NSAMPLES][".txt"][:1] == b"x"
        ShardCache(tmp_path / "cache").clear()
        assert dataset[0][".txt"][:1] == b"x"  # the same bytes came again
        put("a", shard("y"), sidecar=False)
        ShardCache(tmp_path / "cache").clear()
        assert dataset[NSAMPLES][".txt"][:1] == b"x"
        with pytest.warns(WidsWarning, match=r"/a\.tar: was replaced since this dataset opened it"):
            assert dataset[0][".txt"][:1] == b"y"


def test_replicas_that_name_a_file_differently_are_explained(
    put: Callable[..., None], shard_server: ShardServer, tmp_path: Path
) -> None:
    """By range that is an error which says what to do, and what it says helps."""
    for name in "ab":
        put(name, shard("x"))
    shard_server.faults = Faults(change_etag=True)
    message = "several servers behind the URL send different validators"
    dataset = opened(shard_server, "range", tmp_path / "cache")
    with dataset, pytest.raises(WidsError, match=message):
        [dataset[index] for index in (0, 1)]
    with opened(shard_server, "whole", tmp_path / "whole") as dataset:
        for index in (0, NSAMPLES, 1):
            assert dataset[index][".txt"][:1] == b"x"
        ShardCache(tmp_path / "whole").clear()
        for index in (NSAMPLES, 0):
            assert dataset[index][".txt"][:1] == b"x"


@given(st.lists(st.tuples(st.integers(0, 2), FACT, FACT, FACT)), st.booleans())
def test_versions_are_compared_by_what_is_known(
    notes: list[tuple[int, str, str | None, str | None]], pickled: bool
) -> None:
    """The bytes decide where they are known, else index and validator; as a dict says it."""
    seen, known = SeenVersions(3), dict.fromkeys(range(3), (None, None, None))
    for number, *facts in notes:
        index, validator, content = facts
        if pickled:
            seen = pickle.loads(pickle.dumps(seen))
        before = known[number]

        def same(place: int, before: Any = before, facts: Any = facts) -> bool:
            return None in (before[place], facts[place]) or before[place] == facts[place]

        by_content = before[2] is not None and content is not None
        fits = same(0) and (same(2) if by_content else same(1))
        version = ShardVersion((index or "c").encode(), validator, content)
        if index is None:
            continue
        assert seen.note(number, version) is fits
        if fits:
            known[number] = tuple(b if a is None else a for a, b in zip(facts, before, strict=True))
