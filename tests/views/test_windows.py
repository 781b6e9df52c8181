"""Windows of neighbours: samples whose fields are lists of those of their episode."""

import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers.server import ShardServer

import wids
from wids.cli import main

LENGTHS = [7, 1, 5, 11]
EPISODES = [episode for episode, length in enumerate(LENGTHS) for _ in range(length)]
COUNT = len(EPISODES)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write frames of four episodes, which begin and end within shards."""
    folder = tmp_path_factory.mktemp("frames")
    with wids.ShardWriter(f"{folder}/s-%d.tar", maxcount=6) as writer:
        for number, episode in enumerate(EPISODES):
            frame = np.full((4, 4, 3), number, np.uint8)
            fields = {
                ".png": frame,
                ".json": {"episode": episode},
                ".action.npy": np.arange(2) + number,
            }
            writer.write({"__key__": f"f{number:02d}", ".cls": number, **fields})
    shards = sorted(map(str, folder.glob("*.tar")))
    assert main(["create", *shards, "-o", f"{folder}/s.json", "--sidecars"]) == 0
    return folder


def wanted(offsets: list[int], *, drop: bool = False) -> list[list[int]]:
    """Return the numbers of the frames in the window of each sample."""
    found = []
    for number, episode in enumerate(EPISODES):
        first, last = EPISODES.index(episode), COUNT - 1 - EPISODES[::-1].index(episode)
        window = [number + offset for offset in offsets]
        if not drop or (window[0] >= first and window[-1] <= last):
            found.append([min(max(at, first), last) for at in window])
    return found


@pytest.mark.parametrize("ends", ["clamp", "drop"])
@pytest.mark.parametrize("stride", [1, 2])
def test_windows_are_those_of_an_episode(
    folder: Path, shard_server: ShardServer, stride: int, ends: Any
) -> None:
    """In samples and batches of pickled, saved and remote views, clamped or dropped at the ends."""
    dataset = wids.open(folder / "s.json", transformations="numpy")
    clips = dataset.windows(2, 1, within=".json:episode", stride=stride, ends=ends)
    expected = wanted([-2 * stride, -stride, 0, stride], drop=ends == "drop")
    clips.save(folder / "clips.json")
    for path in filter(Path.is_file, folder.iterdir()):
        shard_server.put(f"set/{path.name}", path.read_bytes())
    far = wids.open(f"{shard_server.url}/set/s.json", transformations="numpy", remote="range",
                    cache_dir=folder / f"far{stride}{ends}")  # fmt: skip
    for view in (
        clips,
        pickle.loads(pickle.dumps(clips)),
        wids.open(folder / "clips.json", transformations="numpy"),
        wids.concat([clips[:3], clips[3:]]),
        far.windows(2, 1, within=EPISODES, stride=stride, ends=ends),
    ):
        assert [sample[".cls"] for sample in view] == expected
        assert view[1]["__key__"] == f"f{expected[1][2]:02d}"
        order = np.random.default_rng(0).permutation(len(view))
        assert view.gather(order, ".cls").tolist() == [expected[at] for at in order]
        assert view.gather(order[:3], ".action.npy").shape == (3, 4, 2)
        found = {}
        for batch in wids.Loader(view, batch_size=3, shuffle=True, seed=2):
            assert batch[".png"].shape == (len(batch["__index__"]), 4, 4, 4, 3)
            assert torch.equal(batch[".png"][..., 0, 0, 0], batch[".cls"])
            found |= dict(zip(batch["__index__"].tolist(), batch[".cls"].tolist(), strict=True))
        assert [found[index] for index in range(len(view))] == expected


def test_what_chooses_takes_the_sample_itself(folder: Path) -> None:
    """Columns, filters, splits and stored fields are not those of neighbours."""
    dataset = wids.open(folder / "s.json")
    clips = dataset.windows(before=1, after=1, within=".json:episode")
    assert clips.column(".cls").tolist() == list(range(COUNT))
    assert [s[".cls"] for s in clips.filter("cls in (0, 8)")] == [[0, 0, 1], [8, 8, 9]]
    assert [s[".cls"] for s in clips.filter(lambda n: n == 6, ".cls")] == [[5, 6, 6]]
    parts = clips.split(by=".json:episode", train=0.5, val=0.5)
    episodes = [set(np.array(EPISODES)[part.column(".cls")]) for part in parts.values()]
    assert not episodes[0] & episodes[1]
    stored = np.load(io.BytesIO(clips.read_raw(4)[".action.npy"]))
    assert stored.tolist() == [4, 5]
    with pytest.raises(ValueError, match="windows"):
        wids.reshard(clips, range(3), f"{folder}/new-%d.tar")


def test_unlike_windows_of_fields_are_joined(folder: Path) -> None:
    """Frames before and actions after, as a policy needs them; also after renames and maps."""
    dataset = wids.open(folder / "s.json", transformations="numpy")
    seen = dataset.with_options(fields=[".png"]).rename({".frame": ".jpg;.png"})
    seen = seen.windows(before=1, within=".json:episode", ends="drop")
    done = dataset.with_options(fields=[".action.npy", ".json"])
    done = done.windows(after=3, within=".json:episode", ends="drop")
    both = done.join(seen, missing="drop").with_options(fields=[".frame", ".action.npy"])
    starts = [each[0] for each in wanted([0, 1, 2, 3], drop=True)]
    starts = [number for number in starts if number in {w[1] for w in wanted([-1, 0], drop=True)}]
    batch = next(iter(wids.Loader(both, batch_size=len(starts))))
    assert batch[".frame"][:, :, 0, 0, 0].tolist() == [[at - 1, at] for at in starts]
    assert batch[".action.npy"][:, :, 0].tolist() == [[*range(at, at + 4)] for at in starts]
    assert batch.keys() >= {".frame", ".action.npy"}
    assert ".json" not in batch
    twice = dataset.windows(after=1).windows(after=1, stride=3)
    assert twice[2][".cls"] == [[2, 3], [5, 6]]
    assert twice.gather([2, 3], ".cls").tolist() == [[[2, 3], [5, 6]], [[3, 4], [6, 7]]]


def test_neighbours_may_lack_a_field(folder: Path) -> None:
    """A list has None for them; a batch of such lists stays a list."""
    dataset = wids.open(folder / "s.json")
    joined = dataset.join({"key": ["f01", "f09"], "say": ["one", "nine"]}, missing="fill")
    clips = joined.windows(after=1, within=".json:episode")
    assert [clips[at][".say"] for at in (0, 1, 2)] == [[None, "one"], ["one", None], None]
    assert next(iter(wids.Loader(clips, batch_size=2)))[".say"] == [[None, "one"], ["one", None]]


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"before": -1}, "before"),
        ({"after": 501}, "after"),
        ({"stride": 0}, "stride"),
        ({"ends": "pad"}, "ends"),
        ({"within": ".json:film"}, "within.*film"),
        ({"within": "episode"}, "within"),
        ({"within": [1, 2]}, "within: expected a group for each of 24 samples, got 2"),
    ],
)
def test_windows_that_cannot_be_are_refused(folder: Path, how: Any, message: str) -> None:
    """Sizes, columns and episodes are checked before anything is read."""
    with pytest.raises(ValueError, match=message):
        wids.open(folder / "s.json").windows(**how)


def test_samples_without_an_episode_are_named(folder: Path) -> None:
    """The error names both ways out, as that of a split by groups."""
    joined = wids.open(folder / "s.json").join({"key": ["f01"], "take": [1]}, missing="fill")
    with pytest.raises(ValueError, match=r"windows: within: 23 of 24 samples .*'take is not null'"):
        joined.windows(after=1, within=".take")
    results = joined.map(len)
    with pytest.raises(TypeError, match=r"call windows\(\) before map"):
        results.windows(after=1)[0]
