"""Columns of what headers state: read from a few bytes of each field, kept, and filtered by."""

from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.pictures import draw, save
from helpers.server import ShardServer
from helpers.serving import serve_shard
from helpers.specimens import tone

import wids

WIDTHS = [20 + 7 * number for number in range(9)]
NOISE = bytes(300_000)  # after the end of a picture, which readers pass over


@pytest.fixture
def shard(make_shard: Callable[..., Path]) -> Path:
    """Write pictures of growing widths, some with sound."""
    samples = []
    for number, width in enumerate(WIDTHS):
        sample = {"__key__": f"k{number}", ".cls": str(number)}
        if number != 4:
            sample[".jpg"] = save(draw(width, 16), "JPEG") + NOISE
        if number % 2:
            sample[".wav"] = tone("WAV", seconds=number / 10)
        samples.append(sample)
    return make_shard("t.tar", samples)


def test_columns_come_from_headers(shard: Path, tmp_path: Path) -> None:
    """Values are numbers; samples without the field have none; a later dataset finds them kept."""
    for _ in range(2):
        dataset = wids.ShardListDataset([(str(shard), 9)], cache_dir=tmp_path / "cache")
        found = dataset.column(".jpg", "width", fill=-1).tolist()
        assert found == [*WIDTHS[:4], -1, *WIDTHS[5:]]
        assert dataset.column(".jpg", "height", fill=0).tolist().count(16) == 8
        sounds = dataset[1::2]
        assert sounds.column(".wav", "duration").tolist() == [0.1, 0.3, 0.5, 0.7]
        assert sounds.column(".wav", "rate").tolist() == [8000] * 4
        assert len(list((tmp_path / "cache").rglob("*.column"))) >= 2
    with pytest.raises(wids.DecodeError, match=r"sample 4, key 'k4'.*\['width'\] in field '.jpg'"):
        dataset.column(".jpg", "width")
    few = dataset.filter("jpg.width >= 40 and jpg.width < 60")
    assert [sample["__key__"] for sample in few] == ["k3", "k5"]
    assert [sample["__key__"] for sample in dataset.filter("wav.duration > 0.4")] == ["k5", "k7"]
    assert dataset[5:].order_by("jpg.width desc")[0][".cls"] == 8


def test_remote_shards_are_asked_for_headers_only(
    shard: Path, tmp_path: Path, shard_server: ShardServer
) -> None:
    """By range, a column takes a small part of the shard, and is right."""
    url = serve_shard(shard_server, shard)
    dataset = wids.ShardListDataset([(url, 9)], remote="range", cache_dir=tmp_path / "cache")
    assert dataset[5:].column(".jpg", "width").tolist() == WIDTHS[5:]
    assert shard_server.nbytes < shard.stat().st_size / 4


def test_damaged_pictures_are_answered_by_on_error(
    make_shard: Callable[..., Path], tmp_path: Path
) -> None:
    """The error names the sample; collected errors leave a gap; a decoder of one's own decides."""
    good = save(draw(30, 20), "PNG")
    samples = [{"__key__": key, ".png": data} for key, data in (("a", good), ("b", good[:20]))]
    rows = [(str(make_shard("t.tar", samples)), 2)]
    dataset = wids.ShardListDataset(rows, cache_dir=tmp_path / "cache")
    with pytest.raises(wids.DecodeError, match=r"'\.png' of sample 1, key 'b'"):
        dataset.column(".png", "width")
    collecting = dataset.with_options(on_error="collect")
    assert collecting.column(".png", "width", fill=0).tolist() == [30, 0]
    own = dataset.with_options(decoders={".png": lambda data: {"width": len(data)}})
    assert own.column(".png", "width").tolist() == [len(good), 20]
