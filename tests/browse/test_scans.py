"""Background scans: which of them goes on while pages ask for them."""

import threading
from collections.abc import Generator, Iterator
from pathlib import Path

import numpy as np
import pytest
from helpers.server import ShardServer
from helpers.serving import serve_shard
from helpers.shards import write_shard
from helpers.specimens import npy
from helpers.waiting import WAIT_SECONDS

import wids
from wids.browse.fieldreader import FieldReader
from wids.browse.scans import Background, NotReadyError, Scans
from wids.ordering.permute import Integers


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[FieldReader]:
    samples = [{"__key__": f"{n}", ".npy": npy(np.ones(3))} for n in range(2)]
    shard = write_shard(tmp_path / "a.tar", samples)
    with wids.ShardListDataset([shard]) as dataset:
        yield FieldReader(dataset)


def test_a_scan_that_ends_while_it_is_asked_for_is_not_made_again(
    reader: FieldReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page that asks at the moment in which a scan ends gets that scan."""
    goes_on = threading.Event()
    made: list[Integers] = []

    def work(indexes: Integers, _vectors: np.ndarray) -> Generator[None, None, int]:
        made.append(indexes)
        goes_on.wait()
        yield
        return len(indexes)

    def runs_until_asked(scan: Background[int]) -> bool:
        goes_on.set()
        scan.wait(WAIT_SECONDS)
        return False

    monkeypatch.setattr(Background, "running", property(runs_until_asked))
    scans = Scans(reader)
    with pytest.raises(NotReadyError) as waits:
        scans.finished(".npy", work, 1)
    assert waits.value.progress["finished"] is False
    assert scans.finished(".npy", work, 1)[0] == 2
    assert len(made) == 1


def test_work_that_fails_says_so_and_is_not_begun_again(reader: FieldReader) -> None:
    """An error of the work reaches who asks for the result, each time."""
    made: list[Integers] = []

    def work(indexes: Integers, _vectors: np.ndarray) -> Generator[None, None, int]:
        made.append(indexes)
        yield
        raise ArithmeticError("no result")

    scans = Scans(reader)
    for _ in range(2):
        with pytest.raises(ArithmeticError, match="no result"):
            scans.finished(".npy", work, patient=True)
    assert len(made) == 1


@pytest.mark.parametrize("wrong", ["missing", "rules", "size"])
def test_a_scan_of_all_shards_fetches_none(
    wrong: str, tmp_path: Path, shard_server: ShardServer
) -> None:
    """A shard is left out whose sidecar is missing, or is of other rules or of another file."""
    path = write_shard(tmp_path / "a.tar", [{"__key__": "a", ".cls": b"1"}])
    url = serve_shard(shard_server, path, sidecar=wrong != "missing")
    nbytes = path.stat().st_size + (512 if wrong == "size" else 0)
    rules = {"key_rule": "last_dot"} if wrong == "rules" else {}
    row = {"url": url, "nsamples": 1, "filesize": nbytes}
    with wids.ShardListDataset([row], remote="range", **rules) as dataset:
        assert FieldReader(dataset).tar_index(0) is None
    assert "/a.tar" not in [request.path for request in shard_server.requests]
