"""What a spec says of its shards and probably does not mean is warned of at opening."""

import gzip
import warnings
from pathlib import Path
from typing import Any

import pytest
from helpers.downloads import tar_of

import wids


def said_at_opening(rows: Any, **options: Any) -> list[str]:
    """Return the warnings of this line at the opening of a dataset, which still opens."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        wids.ShardListDataset(rows, **options)
    return [str(each.message) for each in caught]


EMPTY = bytes(10_240)
LARGE = tar_of(40)
COMPRESSED = gzip.compress(tar_of(2))


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("empty.tar", EMPTY, None),
        ("small.tar.gz", COMPRESSED, "the spec says 0 samples in "),
        ("large.tar", LARGE, "the spec says 0 samples in "),
        ("damaged.tar", b"x" * 2048, "the spec says 0 samples in 2048 bytes"),
        ("missing.tar", None, None),
    ],
)
def test_a_local_shard_of_0_samples_is_judged_by_its_size(
    tmp_path: Path, name: str, content: bytes | None, said: str | None
) -> None:
    """A spec that says 0 samples of a local shard that holds some is warned of."""
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    messages = said_at_opening([{"url": str(path), "nsamples": 0}])
    assert len(messages) == (said is not None)
    assert all(f"{name}: {said}" in message for message in messages)


@pytest.mark.parametrize(
    ("filesize", "said"),
    [(10_240, None), (1024, None), (3072, "in 3072 bytes"), (None, "and no size")],
)
def test_a_remote_shard_of_0_samples_is_judged_by_its_size(
    filesize: int | None, said: str | None
) -> None:
    """A remote shard of 0 samples is warned of unless it has the size of an empty archive."""
    row = {"url": "http://127.0.0.1:9/a.tar", "nsamples": 0, "filesize": filesize}
    messages = said_at_opening([row])
    assert len(messages) == (said is not None)
    assert all(f"the spec says 0 samples {said} (1 such shards)" in each for each in messages)


def test_a_shard_listed_twice_is_said(tmp_path: Path) -> None:
    """A dataset opens a shard as often as it is listed, and says so once."""
    rows = []
    for name in ("a.tar", "b.tar"):
        (tmp_path / name).write_bytes(tar_of(3))
        rows.append({"url": str(tmp_path / name), "nsamples": 3})
    assert said_at_opening(rows) == []
    (message,) = said_at_opening({"shardlist": [*rows, rows[0]]})
    assert f"{rows[0]['url']}: is listed a second time, as shard 2; these 3 samples" in message
    (message,) = said_at_opening([*rows, *rows])
    assert "as shard 2 and 1 further entries; these 6 samples" in message
    (message,) = said_at_opening([str(tmp_path), str(tmp_path / "b.tar")])
    assert f"{tmp_path / 'b.tar'}: is listed a second time" in message
