"""The map of a field of vectors: its projection, what is left out, and what an outline holds."""

import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.browsing import Browsing, Command, Serve, browsing
from helpers.server import ShardServer
from helpers.serving import serve_shard
from helpers.shards import write_shard, write_shards
from helpers.specimens import npy
from helpers.waiting import result_of
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.path import Path as Polygon

import wids
from wids.browse.fieldreader import FieldReader, JoinedFields, LocatedSample
from wids.browse.looks import find_looks
from wids.browse.maps import inside_polygon, principal_plane
from wids.browse.vectors import VectorReader
from wids.reading.shardlist import ShardList


@pytest.mark.parametrize("width", [3, 40, 300])
def test_the_plane_is_that_of_a_singular_value_decomposition(width: int) -> None:
    """The two components are those of numpy's SVD, but for their signs."""
    chance = np.random.default_rng(width)
    scales = np.concatenate([[9.0, 4.0], np.linspace(1.5, 0.1, width - 2)])
    vectors = (chance.normal(size=(200, width)) * scales).astype("f4")
    places, share, shortened = principal_plane(vectors.copy())
    middle = vectors.astype("f8") - vectors.mean(axis=0, dtype="f8")
    left, sizes, _ = np.linalg.svd(middle, full_matrices=False)
    wanted = left[:, :2] * sizes[:2]
    assert np.allclose(np.abs(places), np.abs(wanted), atol=0.02 * np.abs(wanted).max())
    assert share == pytest.approx((sizes[:2] ** 2).sum() / (sizes**2).sum(), rel=0.01)
    assert shortened == 0
    again, _, _ = principal_plane(vectors.copy())
    assert (again == places).all()


@given(st.integers(1, 9), st.integers(2, 9), st.floats(1e-30, 1e38), st.integers(0, 9))
def test_any_finite_vectors_make_a_finite_plane(
    count: int, width: int, size: float, seed: int
) -> None:
    """Few, equal, tiny and huge vectors have places that are numbers."""
    vectors = np.random.default_rng(seed).integers(-1, 2, (count, width)).astype("f4")
    vectors[0] *= np.float32(size)
    places, share, _ = principal_plane(vectors)
    assert places.shape == (count, 2)
    assert np.isfinite(places).all()
    assert 0 <= share <= 1


@given(st.integers(3, 20), st.integers(0, 2**32))
def test_an_outline_holds_what_matplotlib_says(corners: int, seed: int) -> None:
    """Points are inside a star-shaped polygon where another library says so."""
    chance = np.random.default_rng(seed)
    angles = np.sort(chance.uniform(0, 2 * np.pi, corners))
    outline = (
        np.stack([np.cos(angles), np.sin(angles)], 1) * chance.uniform(0.3, 1, corners)[:, None]
    )
    points = chance.uniform(-1, 1, (400, 2))
    wanted = Polygon(np.concatenate([outline, outline[:1]])).contains_points(points)
    assert (inside_polygon(points, outline) == wanted).all()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browsing]:
    """Serve two shards of vectors in two groups, among others that are none."""
    chance = np.random.default_rng(0)
    odd = {
        3: npy(np.full(8, np.nan, "f4")),
        5: npy(np.full(8, np.inf, "f4")),
        7: npy(np.ones(9, "f4")),
        11: npy(np.array([{"a": 1}], object)),
        13: b"no array",
        17: npy(np.ones((4, 2), "f4")),
        19: npy(np.full(8, 3e38, "f4")),
        23: npy(np.arange(8, dtype="i2")),
    }
    samples = []
    for number in range(100):
        vector = chance.normal(size=8) + (20 if number % 2 else -20)
        samples.append(
            {
                "__key__": f"{number:03d}",
                ".cls": str(number % 2),
                ".json": json.dumps({"score": number}),
                ".emb.npy": odd.get(number, npy(vector.astype("f4"))),
            }
        )
    for number in (30, 80):
        samples[number].pop(".emb.npy")
    with browsing(write_shards(tmp_path_factory.mktemp("maps"), samples, 50)) as server:
        yield server


def test_what_is_no_vector_is_left_out_and_counted(served: Browsing) -> None:
    """NaN, infinity, other widths, objects and missing fields are counted; all others shown."""
    assert served.ask("page", count=1)["looks"]["vectors"] == [".emb.npy"]
    found = served.ask_until_finished("map")
    assert found["num_wanted"] == 100
    assert found["left_out"] == {
        "no vector": 5,
        "NaN or infinite": 2,
        "of another width": 1,
    }
    left = {3, 5, 7, 11, 13, 17, 30, 80}
    assert found["indexes"] == [n for n in range(100) if n not in left]
    places = np.array(found["places"]).reshape(-1, 2)
    assert np.isfinite(places).all()
    # The groups are apart although one vector is 1e37 times as long as the others.
    plain = [
        (n, x) for n, (x, _) in zip(found["indexes"], places, strict=True) if n not in (19, 23)
    ]
    even, odd = (sorted(x for n, x in plain if n % 2 == rest) for rest in (0, 1))
    assert even[-1] < odd[0] or odd[-1] < even[0]
    found = served.ask_until_finished("map", colour="cls")
    codes = {found["colours"]["legend"][code][0] for code in found["colours"]["values"]}
    assert codes == {"0", "1"}
    numbers = served.ask_until_finished("map", colour="json.score")["colours"]
    assert numbers["ends"] == [0, 99]
    chosen = served.ask_until_finished("map", where="cls = 1")["chosen"]
    assert chosen == [n % 2 for n in found["indexes"]]


def test_an_outline_chooses_samples(served: Browsing) -> None:
    """What lies inside an outline is a page, is counted, goes with a filter, and can be saved."""
    found = served.ask_until_finished("map")
    places = np.array(found["places"]).reshape(-1, 2)
    inside = np.abs(places[:, 0]) < 100
    x1, x2 = places[inside][:, 0].min() - 1, 0.0
    low, high = places[:, 1].min() - 1, places[:, 1].max() + 1
    corners = (x1, low, x2, low, x2, high, x1, high)
    text = ",".join([".emb.npy", *(f"{each:.6g}" for each in corners)])
    wanted = [
        n
        for n, (x, y) in zip(found["indexes"], places, strict=True)
        if x1 < x < x2 and low < y < high
    ]
    assert 0 < len(wanted) < 90
    page = served.ask("page", inside=text, count=200)
    assert [tile["index"] for tile in page["tiles"]] == wanted
    page = served.ask_until_finished("page", inside=text, where="json.score < 40", count=200)
    assert [tile["index"] for tile in page["tiles"]] == [n for n in wanted if n < 40]
    assert served.ask_until_finished("facets", inside=text)["shown"] == len(wanted)
    document = served.selection(inside=text)
    assert document["nsamples"] == len(wanted)


@pytest.mark.parametrize(
    "text", ["", "x", ".emb.npy,1,2", ".emb.npy,1,2,3,4,5,nan", ".emb.npy" + ",1" * 2_000,
             ".emb.npy,1,2,3,4,5,1e9999", ".emb.npy,1,2,3,4,5,6,7"],
)  # fmt: skip
def test_a_malformed_outline_is_an_error(served: Browsing, text: str) -> None:
    """A malformed outline is refused with what was expected, except for none."""
    answer = served.get("api/page", inside=text)
    assert answer.status_code == (400 if text else 200)
    if text:
        assert "inside: expected" in answer.json()["error"]


def test_lists_in_json_and_joined_columns_are_vectors(tmp_path: Path) -> None:
    """Lists of numbers in JSON, and in a column of a joined table, make the map of an array."""
    vectors = np.random.default_rng(0).normal(size=(40, 5)).astype("f4")
    samples = [
        {
            "__key__": f"{n:03d}",
            ".npy": npy(vector),
            ".json": json.dumps(
                {
                    "bbox": [1, 2, 3, 4],
                    "tokens": list(range(100)),
                    "long": [*vector.tolist(), *[0.5] * 60],
                    "of, comma": {"emb": vector.tolist()},
                    "clip": {"emb": "none" if n == 9 else vector.tolist()},
                    "emb\ud800": [1, 2],
                    "huge_vec": [10**400, 1],
                }
            ),
        }
        for n, vector in enumerate(vectors)
    ]
    shard = write_shard(tmp_path / "a.tar", samples)
    table = pa.table({"key": [each["__key__"] for each in samples], "emb": vectors.tolist()})
    pq.write_table(table, tmp_path / "v.parquet")
    wids.ShardListDataset([str(shard)]).join(tmp_path / "v.parquet").save(tmp_path / "v.json")

    def map_of(field: str) -> Any:
        return command.ask_until_finished("map", field=field)

    with Command(tmp_path / "v.json", tmp_path) as command:
        names = command.get("api/page").json()["looks"]["vectors"]
        assert names == [".emb", ".json:clip.emb", ".json:long", ".npy"]
        wanted, joined, listed = map(map_of, (".npy", ".emb", ".json:clip.emb"))
        assert joined["places"] == wanted["places"]
        assert listed["left_out"] == {"no vector": 1}
        assert listed["indexes"] == [n for n in wanted["indexes"] if n != 9]
        around = ",".join([".json:clip.emb", *map(str, (-99, -99, 99, -99, 99, 99, -99, 99))])
        tiles = command.get("api/page", inside=around, count=60).json()["tiles"]
        assert [tile["index"] for tile in tiles] == listed["indexes"]


class _Counting(FieldReader):
    """Reader that notes which samples are located singly."""

    def __init__(self, dataset: ShardList) -> None:
        super().__init__(dataset)
        self.located: list[int] = []

    def locate(self, index: int) -> LocatedSample:
        """Locate a sample, and note it."""
        self.located.append(index)
        return super().locate(index)


@pytest.mark.parametrize("kind", ["f4", "f2", "<f8", "u1", ">f4"])
def test_vectors_of_a_local_shard_are_read_together(tmp_path: Path, kind: str) -> None:
    """No sample is located singly, and vectors are as numpy reads them."""
    vectors = np.random.default_rng(0).integers(0, 200, (600, 12)).astype(kind)
    samples = [
        {"__key__": f"{n:03d}", ".cls": "1", ".npy": npy(vector)}
        for n, vector in enumerate(vectors)
    ]
    samples[40][".npy"] = npy(np.ones(9, kind))
    samples[300][".npy"] = b""
    for number in (20, 599):
        samples[number].pop(".npy")
    path = write_shard(tmp_path / "a.tar", samples)
    with wids.ShardListDataset([path]) as dataset:
        reader = _Counting(dataset)
        fields = VectorReader(reader, ".npy")
        indexes, found = result_of(fields.read())
    assert not reader.located
    wanted = np.setdiff1d(np.arange(600), [20, 40, 300, 599])
    assert indexes.tolist() == wanted.tolist()
    assert found.dtype == np.float32
    assert (found == vectors[wanted].astype("f4")).all()
    told = fields.told()
    counted = {"no vector": 3, "of another width": 1}
    assert (told["num_wanted"], told["left_out"]) == (600, counted)


def test_vectors_of_a_remote_shard_are_read_in_few_requests(
    tmp_path: Path, shard_server: ShardServer
) -> None:
    """The vectors of a shard on a server are those of its file, and are fetched by blocks."""
    chance = np.random.default_rng(0)
    samples = [
        {"__key__": f"{n:03d}", ".jpg": bytes(900), ".npy": npy(chance.normal(size=4))}
        for n in range(300)
    ]
    samples[7].pop(".npy")
    path = write_shard(tmp_path / "a.tar", samples)
    row = {"url": serve_shard(shard_server, path), "nsamples": 300}
    found = []
    for shard in (str(path), row):
        with wids.ShardListDataset(
            [shard], remote="range", cache_dir=tmp_path / "cache"
        ) as dataset:
            found.append(result_of(VectorReader(FieldReader(dataset), ".npy").read()))
            joined = JoinedFields(dataset.rename({".vec.npy": ".npy"}), None)
            reader = FieldReader(dataset, joined=joined)
            found.append(result_of(VectorReader(reader, ".vec.npy").read()))
    for indexes, vectors in found:
        assert indexes.tolist() == [n for n in range(300) if n != 7]
        assert (vectors == found[0][1]).all()
    asked = [request for request in shard_server.requests if request.path == "/a.tar"]
    assert 0 < len(asked) < 30


def test_vectors_in_a_joined_shard_that_cannot_be_read_are_left_out(tmp_path: Path) -> None:
    """A damaged shard of a join takes the points of its samples from a map, and no others."""
    left = [{"__key__": f"{n}", ".txt": "a"} for n in range(9)]
    right = [{"__key__": f"{n}", ".npy": npy(np.eye(9)[n])} for n in range(9)]
    shard = write_shard(tmp_path / "left.tar", left)
    halves = [write_shard(tmp_path / f"{n}.tar", right[n : n + 5]) for n in (0, 5)]
    with (
        wids.ShardListDataset([str(shard)]) as dataset,
        wids.ShardListDataset([str(each) for each in halves]) as vectors,
    ):
        samples = pickle.loads(pickle.dumps(dataset.join(vectors)))  # of which none is open
        halves[1].unlink()
        reader = FieldReader(dataset, joined=JoinedFields(samples, None))
        found = VectorReader(reader, ".npy")
        assert result_of(found.read())[0].tolist() == [0, 1, 2, 3, 4]
        assert found.told()["left_out"] == {"no vector": 4}


def test_a_joined_column_that_is_an_array_by_its_name_has_a_map(tmp_path: Path) -> None:
    """Lists in a column `emb.npy` of a joined table are arrays of samples, and so vectors."""
    shard = write_shard(tmp_path / "a.tar", [{"__key__": f"{n}", ".txt": "a"} for n in range(9)])
    table = pa.table({"key": [f"{n}" for n in range(9)], "emb.npy": np.eye(9).tolist()})
    pq.write_table(table, tmp_path / "t.parquet")
    with wids.ShardListDataset([str(shard)]) as dataset:
        samples = dataset.join(str(tmp_path / "t.parquet"))
        reader = FieldReader(dataset, joined=JoinedFields(samples, None))
        assert find_looks(reader).vectors == (".emb.npy",)
        indexes, vectors = result_of(VectorReader(reader, ".emb.npy").read())
        assert (indexes.tolist(), vectors.tolist()) == (list(range(9)), np.eye(9).tolist())


def test_vectors_of_a_field_with_a_new_name_are_read(tmp_path: Path) -> None:
    """A saved view with renamed fields is shown, and its map is that of the field as stored."""
    samples = [{"__key__": f"{n}", ".npy": npy(np.eye(9)[n])} for n in range(9)]
    shard = write_shard(tmp_path / "a.tar", samples)
    wids.ShardListDataset([str(shard)]).rename({".vec.npy": ".npy"}).save(tmp_path / "v.json")
    with Command(tmp_path / "v.json", tmp_path) as command:
        tiles = command.get("api/page").json()["tiles"]
        assert [tile["fields"] for tile in tiles] == [[".vec.npy"]] * 9
        (field,) = command.get("api/sample", i=3).json()["fields"]
        assert (field["error"], field["stored"], field["nbytes"]) == (None, None, 200)
        assert command.get("raw", i=3, f=0).content == samples[3][".npy"]
        found = command.ask_until_finished("map", field=".vec.npy")
        assert (found["indexes"], found["width"]) == (list(range(9)), 9)


def test_without_vectors_there_is_no_map(serve: Serve) -> None:
    """A dataset of pictures or packed arrays offers no map, and says so where one asks for it."""
    server = serve([{"__key__": "a", ".txt": "b", ".npy": npy(np.eye(3))}])
    assert server.ask("page")["looks"]["vectors"] == []
    answer = server.get("api/map")
    assert answer.status_code == 404
    assert "no field that is a vector" in answer.json()["error"]
