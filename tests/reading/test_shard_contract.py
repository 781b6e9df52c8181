"""What every way to reach a shard must do alike: mapped, fetched, by range, with ranges or without.

A new implementation of `ReadableShard` is added to `WAYS`.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from helpers.packbytes import with_pack
from helpers.server import Faults, ShardServer
from helpers.serving import serve_shard

from wids.base.shardref import ShardRef
from wids.caching.cache import ShardCache
from wids.reading.rangeshard import RangeShard
from wids.reading.shardlist import ShardList
from wids.reading.shardopener import ShardOpener
from wids.reading.tarindexes import TarIndexes
from wids.tar.fileshard import FileShard
from wids.tar.shard import ReadableShard, Shard
from wids.tar.sidecar import IndexRules

RULES = IndexRules(key_rule="first_dot", grouping="adjacent", concatenated=False)
SAMPLES = [
    {
        "__key__": f"folder/{number:03d}",
        ".txt": f"text {number}".encode() * (number % 3),
        ".bin": bytes([number]) * (5000 + 700 * number),
        **({".cls": str(number).encode()} if number % 2 else {}),
    }
    for number in range(12)
]
KEYS = [sample["__key__"] for sample in SAMPLES]


def open_mapped(path: Path, _: ShardServer) -> ReadableShard:
    return Shard(path)


def open_by_position(path: Path, _: ShardServer) -> ReadableShard:
    opener = ShardOpener(TarIndexes(ShardCache(), RULES), access="pread")
    shard = opener.open(ShardRef(str(path)))
    assert isinstance(shard, FileShard)
    return shard


def open_remote(path: Path, server: ShardServer, *, by_range: bool) -> ReadableShard:
    url = serve_shard(server, path)
    return ShardOpener(TarIndexes(ShardCache(), RULES), by_range).open(ShardRef(url))


def open_fetched(path: Path, server: ShardServer) -> ReadableShard:
    return open_remote(path, server, by_range=False)


def open_by_range(path: Path, server: ShardServer) -> ReadableShard:
    shard = open_remote(path, server, by_range=True)
    assert isinstance(shard, RangeShard)
    return shard


def open_without_ranges(path: Path, server: ShardServer) -> ReadableShard:
    server.faults = Faults(ignore_range=True)
    return open_by_range(path, server)


def open_packed(path: Path, _server: ShardServer) -> ReadableShard:
    spec = with_pack([str(path)], path.with_name("one.wpack"))
    shard, _, _ = ShardList(spec).locate_sample(0)
    return shard


WAYS = [
    open_mapped,
    open_by_position,
    open_packed,
    open_fetched,
    open_by_range,
    open_without_ranges,
]
# That a server has no byte ranges is warned of, which is tested elsewhere.
pytestmark = pytest.mark.filterwarnings("ignore:.*are fetched whole:wids.WidsWarning")


@pytest.fixture(params=WAYS, ids=lambda way: way.__name__)
def shard(
    request: pytest.FixtureRequest, make_shard: Callable[..., Path], shard_server: ShardServer
) -> ReadableShard:
    """Write a shard by Python's tarfile, and open it in one of the ways."""
    path = make_shard("a.tar", SAMPLES)
    opened: ReadableShard = request.param(path, shard_server)
    return opened


def as_bytes(sample: dict[str, object]) -> dict[str, object]:
    """Return a sample with its views as bytes, to compare."""
    return {
        name: value if name == "__key__" else bytes(memoryview(value))  # type: ignore[arg-type]
        for name, value in sample.items()
    }


def test_it_knows_its_samples(shard: ReadableShard) -> None:
    """Length, keys and places are those that were written."""
    shard.confirm()
    assert (len(shard), list(shard.keys)) == (len(SAMPLES), KEYS)
    assert [shard.find(key) for key in KEYS] == list(range(len(SAMPLES)))
    assert shard.nbytes > sum(len(sample[".bin"]) for sample in SAMPLES)
    with pytest.raises(KeyError):
        shard.find("none")


def test_fields_are_found_in_one_memory(shard: ReadableShard) -> None:
    """The spans of several fields lead to the bytes that were written, where there is a memory."""
    wanted = [7, 0, 7, 4]
    found = shard.read_spans(np.array(wanted), (".bin", ".cls"))
    if found is None:  # they are received one by one
        assert isinstance(shard, RangeShard)
        return
    memory, spans = found
    for local_index, fields in zip(wanted, spans.tolist(), strict=True):
        for name, (start, size) in zip((".bin", ".cls"), fields, strict=True):
            expected = SAMPLES[local_index].get(name)
            assert (bytes(memory[start : start + size]) if start >= 0 else None) == expected


@pytest.mark.parametrize("copy", [False, True])
def test_each_sample_is_what_was_written(shard: ReadableShard, copy: bool) -> None:
    """Samples come with all fields in order, copied or not."""
    for local_index, expected in enumerate(SAMPLES):
        sample = shard.read(local_index, copy=copy)
        assert list(sample) == list(expected)
        assert as_bytes(sample) == expected
        kinds = {type(value) for name, value in sample.items() if name != "__key__"}
        assert kinds == {bytes if copy else memoryview}


def test_only_the_fields_asked_for_come(shard: ReadableShard) -> None:
    """Fields that a sample lacks are left out."""
    assert as_bytes(shard.read(2, (".cls", ".txt"))) == {
        "__key__": KEYS[2],
        ".txt": SAMPLES[2][".txt"],
    }
    assert shard.read(2, ()) == {"__key__": KEYS[2]}


def test_several_samples_come_in_the_order_asked_for(shard: ReadableShard) -> None:
    """Any order, with repetitions, and none at all."""
    wanted = [5, 0, 5, 11, 1]
    assert [as_bytes(sample) for sample in shard.read_many(wanted)] == [SAMPLES[i] for i in wanted]
    assert shard.read_many([]) == []
    cut, data = shard.cutter(copy=True)
    assert [cut(i, data, (".cls",)) for i in wanted] == shard.read_many(
        wanted, (".cls",), copy=True
    )
    assert [sample.get(".cls") for sample in shard.read_many([3, 4], (".cls",), copy=True)] == [
        b"3",
        None,
    ]


@pytest.mark.parametrize("part", [(0, 10), (4990, 6400), (7, 7), (6400, 6400)])
def test_a_part_of_a_field_is_cut_out(shard: ReadableShard, part: tuple[int, int]) -> None:
    """Any part within the field comes, an empty one too."""
    start, stop = part
    assert bytes(shard.read_part(2, ".bin", start, stop)) == SAMPLES[2][".bin"][start:stop]


@pytest.mark.parametrize("part", [(-1, 3), (5, 4), (0, 6401)])
def test_a_part_outside_of_a_field_is_refused(shard: ReadableShard, part: tuple[int, int]) -> None:
    """The message names the field and its size."""
    with pytest.raises(IndexError, match=r"a part of the 6400 bytes of '\.bin'"):
        shard.read_part(2, ".bin", *part)
    with pytest.raises(KeyError):
        shard.read_part(2, ".none", 0, 0)


def test_there_is_no_sample_beyond_the_end(shard: ReadableShard) -> None:
    """The place behind the last one is an IndexError, alone and among others."""
    with pytest.raises(IndexError):
        shard.read(len(SAMPLES))
    with pytest.raises(IndexError):
        shard.read_many([0, len(SAMPLES)])


def test_what_is_mapped_lies_where_the_index_says(shard: ReadableShard) -> None:
    """Where there is memory, fields lie in it at their offsets; announcing them changes nothing."""
    shard.announce(range(len(SAMPLES)), (".bin",))
    memory = shard.memory
    for local_index, expected in enumerate(SAMPLES):
        for extension, offset, size in shard.index.fields(local_index):
            assert size == len(expected[extension])
            if memory is not None:
                assert memory[offset : offset + size] == expected[extension]


def test_it_is_the_shard_that_was_opened(shard: ReadableShard) -> None:
    """Nothing was written to it and nothing removed since."""
    shard.read(0)
    assert (shard.was_changed(), shard.is_evicted()) == (False, False)


def test_threads_share_it(shard: ReadableShard) -> None:
    """Many threads at once each get the sample that they asked for."""
    places = [place % len(SAMPLES) for place in range(60)]
    with ThreadPoolExecutor(6) as pool:
        keys = [sample["__key__"] for sample in pool.map(shard.read, places)]
    assert keys == [KEYS[place] for place in places]
