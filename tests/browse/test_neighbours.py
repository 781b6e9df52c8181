"""Near-duplicates and outliers by vectors: planted ones are found, and others as computed whole."""

from collections.abc import Iterator
from itertools import pairwise
from threading import Event

import numpy as np
import pytest
from helpers.browsing import Browsing, Serve, browsing
from helpers.shards import write_shards
from helpers.specimens import npy
from helpers.waiting import result_of
from hypothesis import given
from hypothesis import strategies as st

from wids.browse import scans
from wids.browse.neighbours import compare, groups_of, nearest_few
from wids.browse.vectors import VectorReader

TOTAL = 240
COPIES = {17: 203, 18: 60, 61: 60}  # which are the vectors of others, but for a little noise
FAR = [99, 150, 151]  # the last two beside each other


def planted() -> np.ndarray:
    """Make vectors around one direction, of which some are near copies and some far from all."""
    chance = np.random.default_rng(3)
    vectors = chance.normal(size=(TOTAL, 24)) + 4 * chance.normal(size=24)
    for copy, original in COPIES.items():
        vectors[copy] = 1.7 * vectors[original] + 0.001 * chance.normal(size=24)
    vectors[FAR] = -9 * np.eye(24)[[0, 1, 1]] + 0.3 * chance.normal(size=(3, 24))
    return vectors.astype("f4")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browsing]:
    vectors = planted()
    samples = [
        {"__key__": f"{n:03d}", ".cls": str(n % 2), ".emb.npy": npy(vector)}
        for n, vector in enumerate(vectors)
    ]
    with browsing(write_shards(tmp_path_factory.mktemp("neighbours"), samples, 80)) as server:
        yield server


def units() -> np.ndarray:
    vectors = planted().astype("f8")
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def asked(server: Browsing, **query: str) -> dict:
    """Ask for a page until all vectors are compared."""
    return server.ask_until_finished("page", count=240, **query)


def indexes(page: dict) -> list[int]:
    return [tile["index"] for tile in page["tiles"]]


def test_planted_copies_are_found_in_groups(served: Browsing) -> None:
    """Groups come one after the other, the nearest first, each with its copies marked as such."""
    page = asked(served, near=".emb.npy,0.999")
    assert sorted(indexes(page)) == [17, 18, 60, 61, 203]
    groups = [tile["singled"][0] for tile in page["tiles"]]
    assert groups == sorted(groups)
    assert sorted(groups.count(each) for each in set(groups)) == [2, 3]
    about = page["comparing"]["about"]
    assert (about["num_groups"], about["num_found"], about["compared"]) == (2, 5, TOTAL)
    assert sorted(page["comparing"]["copies"]) == [60, 61, 203]
    others = {tile["index"]: tile["singled"][2] for tile in page["tiles"]}
    assert others[17] == 203
    assert others[203] == 17


def test_a_lower_threshold_finds_all_that_are_as_near(served: Browsing) -> None:
    """Who has a neighbour within the threshold is who the whole matrix says, at every threshold."""
    cosines = units() @ units().T
    np.fill_diagonal(cosines, -1)
    for least in (0.5, 0.9, 0.95, 0.97):
        page = asked(served, near=f".emb.npy,{least}")
        assert sorted(indexes(page)) == np.flatnonzero(cosines.max(1) >= least).tolist()


def test_outliers_are_farthest_from_their_neighbours(served: Browsing) -> None:
    """The planted ones come first, though two are beside each other; in the order of distances."""
    page = asked(served, far=".emb.npy,10")
    assert set(indexes(page)[:3]) == set(FAR)
    distances = np.linalg.norm(units()[:, None] - units(), axis=2)
    fifth = np.sort(distances, axis=1)[:, 5]
    assert indexes(page) == np.argsort(-fifth).tolist()[:10]
    said = [tile["singled"][1] for tile in page["tiles"]]
    assert said == pytest.approx(np.sort(fifth)[::-1][:10].tolist(), abs=1e-3)


def test_they_go_together_with_filters_marks_facets_and_selections(served: Browsing) -> None:
    """A filter narrows near-duplicates, facets count them, a selection holds them."""
    near = ".emb.npy,0.999"
    asked(served, near=near)
    page = served.ask_until_finished("page", near=near, where="cls = 1", count=240)
    assert sorted(indexes(page)) == [17, 61, 203]
    assert page["comparing"]["copies"] == [203]
    about = page["comparing"]["about"]
    assert (about["num_found"], about["num_groups"]) == (5, 2)
    assert (about["num_shown"], about["groups_shown"]) == (3, 2)
    counted = served.ask_until_finished("facets", near=near)
    assert counted["shown"] == 5
    document = served.selection(near=near)
    assert document["nsamples"] == 5
    assert document["made"] == [f"near({near!r})"]
    first = indexes(asked(served, near=near))[0]
    assert served.ask("sample", p=0, near=near)["index"] == first
    found = served.ask_until_finished("map", near=near)
    assert sum(found["chosen"]) == 5


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ({"near": ".emb.npy"}, "near: expected a field and a number, such as .emb.npy,0.98"),
        ({"near": ".emb.npy,nan"}, "near: expected a field and a number"),
        ({"far": ".emb.npy,-1"}, "far: expected a field and a number, such as .emb.npy,100"),
        ({"near": ".emb.npy,0.9", "far": ".emb.npy,9"}, "near, far: expected one of the two"),
    ],
)
def test_wrong_requests_are_refused(served: Browsing, query: dict[str, str], message: str) -> None:
    """What cannot be compared is named."""
    answer = served.get("api/page", **query)
    assert answer.status_code == 400
    assert message in answer.json()["error"]


def test_a_field_without_vectors_singles_nothing_out(served: Browsing) -> None:
    """A field that no sample has gives an empty page that says how many samples have none."""
    page = asked(served, near=".nosuch.npy,0.9")
    assert page["total"] == 0
    assert page["comparing"]["about"]["left_out"] == {"no vector": TOTAL}
    assert asked(served, far=".nosuch.npy,9")["total"] == 0


def test_places_of_a_plane_have_no_direction(serve: Serve) -> None:
    """Vectors of two numbers are refused, and the error says what shows them."""
    server = serve([{"__key__": f"{n}", ".npy": npy(np.ones(2))} for n in range(3)])
    with pytest.raises(AssertionError, match="expected vectors of more than two numbers"):
        asked(server, near=".npy,0.9")


def test_zeros_have_no_direction_and_are_left_out(serve: Serve) -> None:
    """Vectors of zeros alone are neither near-duplicates nor outliers, and are counted."""
    vectors = np.random.default_rng(0).normal(size=(40, 6)) + 3
    vectors[[4, 9]] = 0
    vectors[20] = vectors[21]
    samples = [{"__key__": f"{n}", ".npy": npy(each)} for n, each in enumerate(vectors)]
    server = serve(samples)
    near, far = asked(server, near=".npy,1"), asked(server, far=".npy,40")
    assert indexes(near) == [20, 21]
    assert sorted(indexes(far)) == [n for n in range(40) if n not in (4, 9)]
    for page in (near, far):
        assert page["comparing"]["about"]["left_out"] == {"with zeros alone": 2}


def test_what_is_still_compared_is_not_saved(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """While vectors are compared, a selection of near-duplicates is an error, and not empty."""
    may_go = Event()
    monkeypatch.setattr(VectorReader, "read_shard", lambda _self, _number: may_go.wait())
    monkeypatch.setattr(scans, "_PATIENT_SECONDS", 0.0)
    samples = [{"__key__": f"{n}", ".npy": npy(np.ones(3))} for n in range(2)]
    server = serve(samples)
    answer = server.get("selection.json", near=".npy,1")
    may_go.set()
    assert (answer.status_code, "vectors is read yet" in answer.text) == (400, True)


@given(st.integers(2, 40), st.integers(1, 9), st.integers(0, 2**32))
def test_blocks_make_no_difference(count: int, blocks: int, seed: int) -> None:
    """Whatever is compared at a time, the nearest few are those of the whole matrix."""
    rows = np.random.default_rng(seed).normal(size=(count, 4))
    few = min(3, count - 1)
    whole = rows @ rows.T
    np.fill_diagonal(whole, -np.inf)
    ends = np.linspace(0, count, blocks + 1).astype(int).tolist()
    for start, stop in pairwise(ends):
        numbers, likeness = nearest_few(rows, start, stop, few)
        wanted = -np.sort(-whole[start:stop], axis=1)[:, :few]
        assert np.allclose(likeness, wanted)
        assert np.allclose(np.take_along_axis(whole[start:stop], numbers, 1), wanted)


@given(st.integers(2, 60), st.floats(0, 1), st.integers(0, 2**32))
def test_groups_are_connected_components(count: int, least: float, seed: int) -> None:
    """Vectors are joined if a path of those that are alike leads from one to the other."""
    chance = np.random.default_rng(seed)
    numbers, likeness = chance.integers(0, count, (count, 2)), chance.uniform(size=(count, 2))
    reached = np.eye(count, dtype=bool)
    for one, rank in np.argwhere(likeness >= least):
        reached[one, numbers[one, rank]] = reached[numbers[one, rank], one] = True
    for _ in range(count):
        reached = reached @ reached
    assert groups_of(numbers, likeness, least).tolist() == reached.argmax(axis=1).tolist()


def test_huge_vectors_are_compared() -> None:
    """Vectors beyond the squares of floats have neighbours; one of zeros has none."""
    vectors = np.array([[1, 2, 3], [1e30, 2e30, 3e30], [1e-30, 0, 0], [0, 0, 0]], "f4")
    compared = result_of(compare(np.arange(4), vectors))
    assert compared.indexes.tolist() == [0, 1, 2]
    assert compared.numbers[0, 0] == 1
    assert compared.likeness[0, 0] == 1
    assert np.isfinite(compared.likeness).all()
