"""JSON API of the page: samples, fields, keys, filters, shards, statistics."""

import io
import json
import os
import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.browsing import Browsing, Command, Serve, browsing
from helpers.downloads import PATIENT
from helpers.pictures import draw, plain, save
from helpers.server import Faults, ShardServer
from helpers.serving import serve_shard
from helpers.shards import write_shard
from helpers.specimens import npy
from helpers.waiting import eventually
from PIL import Image

import wids
from wids import TarIndex
from wids.browse.orders import parse_indexes
from wids.tar.sidecar import SIDECAR_SUFFIX

# No test waits for long.
TWICE = replace(PATIENT, attempts=2, backoff_seconds=0.01)
IMPATIENT = replace(TWICE, stall_timeout_seconds=1.0)  # for a server that does keep silent


def jpeg(number: int, size: tuple[int, int] = (60, 40)) -> bytes:
    return plain("JPEG", size, (number * 9 % 256, 80, 120))


def samples_of(shard: int) -> list[dict[str, Any]]:
    rng = random.Random(shard)
    return [
        {
            "__key__": f"part{shard}/{place:03d}",
            ".jpg": jpeg(10 * shard + place),
            ".cls": str((shard + place) % 4),
            ".json": json.dumps({"number": 10 * shard + place, "name": f"n{place}"}),
            ".bin": rng.randbytes(3_000),
        }
        for place in range(10)
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make three shards of ten samples, with sidecars and a spec that names two classes."""
    folder = tmp_path_factory.mktemp("served")
    rows = []
    for shard in range(3):
        path = write_shard(folder / f"s-{shard}.tar", samples_of(shard))
        TarIndex.from_tar(path).save(Path(f"{path}{SIDECAR_SUFFIX}"))
        rows.append({"url": path.name, "nsamples": 10, "filesize": path.stat().st_size})
    spec = {"wids_version": 1, "name": "three", "shardlist": rows, "class_names": ["cat", "dog"]}
    (folder / "three.json").write_text(json.dumps(spec))
    return folder


@pytest.fixture(scope="module")
def served(folder: Path) -> Iterator[Browsing]:
    with browsing(str(folder / "three.json"), class_names={0: "cat", 1: "dog"}) as server:
        yield server


def test_the_page_and_all_it_loads_come_from_here(served: Browsing):
    """The page names only files of this server, and each of them exists."""
    page = served.get("")
    assert page.headers["Content-Type"] == "text/html; charset=utf-8"
    assert "http" not in page.text
    for name in ("main.js", "page.css", "icon.svg", "grid.js", "sample.js", "dataset.js"):
        response = served.get(f"static/{name}")
        assert response.status_code == 200
        assert response.content
    assert served.get("static/nothing.js").status_code == 404


def test_fields_that_are_late_are_described_in_a_later_answer(folder: Path):
    """An answer waits no longer than it may; asked again, it has what was described meanwhile."""
    spec = str(folder / "three.json")
    with browsing(spec, view_seconds=0.0) as hasty, browsing(spec) as patient:
        (image,) = (row for row in hasty.ask("sample", i=4)["fields"] if row["late"])
        assert (image["extension"], image["kind"], image["summary"]) == (".jpg", "image", {})
        assert image["error"] is None
        while image["late"]:
            time.sleep(0.02)
            image = hasty.ask("sample", i=4, **{"from": image["number"]})["fields"][0]
        expected = patient.ask("sample", i=4)["fields"][0]
        assert (expected["summary"]["width"], expected["late"]) == (60, False)
        assert {**image, "picture": None} == {**expected, "picture": None}


def test_a_tile_says_what_the_sample_is(served: Browsing):
    """A tile has index, key, class with its name, the field of the picture, and a caption."""
    page = served.ask("page", at=10, count=3)
    assert page["total"] == 30
    assert [tile["index"] for tile in page["tiles"]] == [10, 11, 12]
    assert [tile["key"] for tile in page["tiles"]] == ["part1/000", "part1/001", "part1/002"]
    first = page["tiles"][0]
    assert first["label"] == {"value": 1, "name": "dog"}
    assert first["picture"] == 0
    assert json.loads(first["caption"]) == {"number": 10, "name": "n0"}
    assert page["tiles"][1]["label"] == {"value": 2, "name": None}


def test_pages_end_where_the_dataset_ends(served: Browsing):
    """There are no tiles after the last position, and a page has a bounded size."""
    assert len(served.ask("page", at=25, count=60)["tiles"]) == 5
    assert served.ask("page", at=30)["tiles"] == []
    assert served.ask("page", at=10**18)["tiles"] == []
    assert len(served.ask("page", count=10**9)["tiles"]) == 30


def test_a_sample_has_every_field_by_its_kind(served: Browsing):
    """A sample has kind, summary and offset of each field; a negative index counts from the end."""
    sample = served.ask("sample", i=11)
    assert (sample["key"], sample["shard"], sample["local_index"]) == ("part1/001", 1, 1)
    fields = {field["extension"]: field for field in sample["fields"]}
    assert [fields[e]["kind"] for e in (".jpg", ".cls", ".json", ".bin")] == [
        "image",
        "class",
        "json",
        "bytes",
    ]
    assert fields[".jpg"]["summary"]["width"] == 60
    assert fields[".json"]["summary"]["tree"]["number"] == 11
    assert fields[".jpg"]["media_type"] == "image/jpeg"
    assert fields[".bin"]["media_type"] is None
    index = TarIndex.from_tar(Path(sample["url"]))
    places = {name: (offset, size) for name, offset, size in index.fields(1)}
    assert {e: (f["offset"], f["nbytes"]) for e, f in fields.items()} == places
    assert served.ask("sample", i=-1)["index"] == 29


def test_a_position_of_an_order_names_a_sample(served: Browsing):
    """The grid and the sample's page show the same sample at a position."""
    order = {"order": "shuffled", "seed": 4}
    tiles = served.ask("page", at=5, count=20, **order)["tiles"]
    for tile in tiles:
        sample = served.ask("sample", p=tile["position"], **order)
        assert (sample["index"], sample["position"]) == (tile["index"], tile["position"])
    assert served.get("api/sample", p=30, **order).status_code == 404


@pytest.mark.parametrize(
    ("path", "query", "status", "message"),
    [
        ("api/sample", {"i": 30}, 404, "index 30 is out of range for a dataset of 30 samples"),
        ("api/sample", {"i": "x"}, 400, "i: expected a whole number, got 'x'"),
        ("api/sample", {"i": "9" * 5000}, 400, "i: expected a whole number"),
        ("api/page", {"order": "x"}, 400, "order: expected one of"),
        ("selection.json", {}, 400, "where: expected a condition"),
        ("selection.json", {"i": "3"}, 400, "unknown parameter 'i'"),
        ("api/page", {"i": "1"}, 400, "unknown parameter 'i'"),
        ("api/facets", {"look": "1"}, 400, "unknown parameter 'look'"),
        ("api/sample", {"colour": "1"}, 400, "unknown parameter 'colour'"),
        ("api/dataset", {"x": "1"}, 400, "unknown parameter 'x'"),
        ("api/overview", {"every": "1"}, 400, "unknown parameter 'every'"),
        ("api/shards", {"at": "1"}, 400, "unknown parameter 'at'"),
        ("api/turns", {"field": "1"}, 400, "unknown parameter 'field'"),
        ("raw", {"n": "1"}, 400, "unknown parameter 'n'"),
        ("thumb", {"size": "1"}, 400, "unknown parameter 'size'"),
        ("api/page", {"q": "k" * 5000}, 400, "q: expected a part of a key"),
        ("raw", {"i": 0, "f": 9}, 404, "sample 0 has 4 fields, counted from 0"),
        ("raw", {"i": "x", "f": 0}, 400, "i: expected a whole number, got 'x'"),
        ("thumb", {"i": 0, "f": 0, "s": 7}, 400, "s: expected one of"),
        ("thumb", {"i": 30, "f": 0, "s": 96}, 404, "index 30 is out of range"),
    ],
)
def test_a_wrong_question_is_answered_with_what_is_wrong(
    served: Browsing, path: str, query: dict[str, Any], status: int, message: str
):
    """A wrong parameter gives status 400 and an error that names it."""
    response = served.get(path, **query)
    assert response.status_code == status
    assert message in response.json()["error"]


def test_a_field_is_sent_as_it_is(served: Browsing):
    """A field is sent unchanged; pixels are shown, other fields and downloads are saved."""
    sample = samples_of(2)[4]
    picture = served.get("raw", i=24, f=0)
    assert picture.content == sample[".jpg"]
    assert picture.headers["Content-Type"] == "image/jpeg"
    assert picture.headers["Content-Disposition"].startswith("inline;")
    data = served.get("raw", i=24, f=3)
    assert data.content == sample[".bin"]
    assert data.headers["Content-Type"] == "application/octet-stream"
    assert data.headers["Content-Disposition"].startswith('attachment; filename="004.bin"')
    assert "sandbox" in data.headers["Content-Security-Policy"]
    assert served.get("raw", i=24, f=0, save=1).headers["Content-Disposition"].startswith("attach")


@pytest.mark.parametrize(
    ("asked", "start", "stop"),
    [
        ("bytes=0-9", 0, 10),
        ("bytes=2990-", 2990, 3000),
        ("bytes=-5", 2995, 3000),
        ("bytes=100-99999", 100, 3000),
        ("bytes=-99999", 0, 3000),
    ],
)
def test_a_range_is_a_part(served: Browsing, asked: str, start: int, stop: int):
    """A range request gets the requested bytes with status 206."""
    whole = samples_of(0)[3][".bin"]
    response = served.get("raw", {"Range": asked}, i=3, f=3)
    assert response.status_code == 206
    assert response.content == whole[start:stop]
    assert response.headers["Content-Range"] == f"bytes {start}-{stop - 1}/3000"
    assert response.headers["Accept-Ranges"] == "bytes"


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        ("bytes=3000-", 416),
        ("bytes=9999-99999", 416),
        ("bytes=-0", 416),
        ("bytes=5-2", 200),
        ("bytes=0-1,5-6", 200),
        ("bytes=a-b", 200),
        ("lines=1-2", 200),
        ("bytes=-", 200),
    ],
)
def test_a_range_that_is_none_is_no_part(served: Browsing, asked: str, status: int):
    """A range after the end is refused, and an unsupported one gets the whole field."""
    response = served.get("raw", {"Range": asked}, i=3, f=3)
    assert response.status_code == status
    if status == 416:
        assert response.headers["Content-Range"] == "bytes */3000"
    else:
        assert len(response.content) == 3000


def test_head_tells_the_size_without_the_bytes(served: Browsing):
    """A HEAD of a field has its length and no body."""
    response = served.session.head(served.url + "raw", params={"i": 3, "f": 3}, timeout=100)
    assert response.headers["Content-Length"] == "3000"
    assert response.content == b""


def test_a_thumbnail_is_small_and_drawn_anew(served: Browsing):
    """A thumbnail has the requested size and only pixels of the file."""
    response = served.get("thumb", i=5, f=0, s=96)
    image = Image.open(io.BytesIO(response.content))
    assert image.size == (60, 40)
    assert response.headers["Content-Type"].startswith("image/")
    again = served.get("thumb", i=5, f=0, s=96)
    assert again.content == response.content


def test_a_jpeg_that_was_cut_is_drawn_as_far_as_it_goes(serve: Serve):
    """Its upper part is that of the whole one, the rest is grey, and its facts say so."""
    whole = save(draw(300, 200), "JPEG")
    samples = [
        {"__key__": "a", ".jpg": whole},
        {"__key__": "b", ".jpg": whole[: len(whole) * 2 // 3]},
        {"__key__": "c", ".jpg": whole[:100]},
    ]
    server = serve(samples)

    def drawn(number: int) -> Any:
        (field,) = server.ask("sample", i=number)["fields"]
        return field if field["error"] or field["picture"] else None  # it is drawn later

    assert all(eventually(lambda n=n: drawn(n)) for n in range(3))
    assert [drawn(n)["error"] is None for n in range(3)] == [True, True, False]
    assert [drawn(n)["picture"]["is_cut"] for n in range(2)] == [False, True]
    first, second = (
        np.asarray(Image.open(io.BytesIO(server.get("thumb", i=n, f=0, s=320).content)))
        for n in range(2)
    )
    assert (first[:40] == second[:40]).all()
    assert (first[-8:] != second[-8:]).any()


def test_browsers_keep_pictures_of_the_run_that_they_name(tmp_path: Path):
    """Pictures of a shard that was replaced are new, although browsers cache the old ones."""
    seen = []
    for colour in ("red", "blue"):
        path = write_shard(tmp_path / "a.tar", [{"__key__": "a", ".png": plain(colour=colour)}])
        with browsing([str(path)]) as server:
            version = server.ask("page")["tiles"][0]["version"]
            picture = server.get("thumb", i=0, f=0, s=96, v=version)
            assert "immutable" in picture.headers["Cache-Control"]
            assert "immutable" not in server.get("thumb", i=0, f=0, s=96).headers["Cache-Control"]
            seen.append((version, Image.open(io.BytesIO(picture.content)).getpixel((0, 0))))
    assert seen[0][0] != seen[1][0]
    assert [colour for _, colour in seen] == [(255, 0, 0), (0, 0, 255)]


def test_what_makes_no_picture_is_a_picture_that_says_so(served: Browsing):
    """A field that cannot be drawn gets a placeholder picture."""
    response = served.get("thumb", i=5, f=3, s=96)
    assert response.status_code == 200
    assert response.headers["Content-Type"] == "image/svg+xml"
    assert "immutable" not in response.headers["Cache-Control"]


def test_keys_are_found_by_a_part(served: Browsing):
    """Keys are found by a part in any case, in storage order, over all shards."""
    found = served.search("ART1/00")
    assert [hit["index"] for hit in found["hits"]] == list(range(10, 20))
    assert found["shards_done"] == 3
    both = served.search("part1/00", where="json.number < 13")
    assert [hit["index"] for hit in both["hits"]] == [10, 11, 12]
    saved = served.selection(q="part1/00", where="json.number < 13")
    assert (saved["nsamples"], saved["made"][1]) == (3, "search('part1/00')")


@pytest.mark.parametrize(
    ("where", "fulfils"),
    [
        ("contains(key, 'part2') and cls <> 0", lambda n: n >= 20 and (2 + n % 10) % 4 != 0),
        ("cls = 9", lambda n: False),
    ],
)
def test_a_filter_finds_what_fulfils_it(served: Browsing, where: str, fulfils: Any):
    """Filters work over classes, JSON fields and keys, and positions count the matches."""
    expected = [number for number in range(30) if fulfils(number)]
    page = served.ask_until_finished("page", where=where)
    assert [tile["index"] for tile in page["tiles"]] == expected
    assert page["filtering"]["found"] == page["total"] == len(expected)
    drawn = served.ask_until_finished("page", where=where, order="shuffled")
    assert sorted(tile["index"] for tile in drawn["tiles"]) == expected
    for position, index in enumerate(expected):
        assert served.ask("sample", where=where, p=position)["index"] == index


def test_shards_are_listed_with_what_is_known_of_them(served: Browsing, folder: Path):
    """Each shard is listed with size, first sample and state."""
    found = served.ask("shards")
    assert [row["state"] for row in found["shards"]] == ["local"] * 3
    assert [row["first_index"] for row in found["shards"]] == [0, 10, 20]
    assert found["shards"][2]["nbytes"] == (folder / "s-2.tar").stat().st_size
    assert [row["shard"] for row in served.ask("shards", **{"from": 1, "count": 1})["shards"]] == [
        1
    ]


def test_statistics_are_those_of_the_samples(served: Browsing):
    """Counts, bytes and classes are those of the written samples."""
    found = served.ask_until_finished("overview")
    written = [sample for shard in range(3) for sample in samples_of(shard)]
    fields = {row["name"]: row for row in found["fields"]}
    for extension in (".jpg", ".cls", ".json", ".bin"):
        name = extension.removeprefix(".")
        sizes = [len(sample[extension]) for sample in written]
        row = fields[name]
        assert (row["count"], row["nbytes"]) == (30, sum(sizes))
        assert (row["smallest"], row["largest"]) == (min(sizes), max(sizes))
    assert found["classes"]["name"] == "cls"
    counts = {label: sum(s[".cls"] == label for s in written) for label in "0123"}
    names = {"0": "cat", "1": "dog"}
    shown = zip(found["classes"]["values"], found["classes"]["all"]["counts"], strict=True)
    assert {label: count for (_, label), count in shown} == {
        names.get(label, label): count for label, count in counts.items()
    }


def test_damaged_and_missing_shards_leave_the_others_alone(tmp_path: Path):
    """Damaged and missing shards show their errors, and the others are shown."""
    good = write_shard(tmp_path / "good.tar", samples_of(0))
    broken = tmp_path / "broken.tar"
    broken.write_bytes(b"<html>" * 2000)
    rows = [(str(broken), 2), (str(tmp_path / "gone.tar"), 3), (str(good), 10)]
    with browsing(rows) as server:
        tiles = server.ask("page")["tiles"]
        assert [tile["key"] is None for tile in tiles] == [True] * 5 + [False] * 10
        assert "broken.tar" in tiles[0]["error"]
        assert server.ask("sample", i=0)["error"]
        # The shard may be mended while the page is open.
        assert server.get("thumb", i=0, f=0, s=96).headers["Cache-Control"] == "no-store"
        assert "No such file" in server.get("api/sample", i=3).json()["error"]
        assert server.states() == ["damaged", "missing", "local"]
        found = server.search("part0")
        assert (len(found["hits"]), found["skipped"]) == (10, 2)
        assert server.ask_until_finished("overview")["skipped"] == 2
        page = server.ask_until_finished("page", where="cls = 1")
        assert page["filtering"]["skipped"] == 2
        assert page["total"] == sum(sample[".cls"] == "1" for sample in samples_of(0))


def test_an_empty_dataset_is_shown(serve: Serve):
    """An empty dataset is shown without an error."""
    server = serve([])
    assert server.ask("dataset")["num_samples"] == 0
    for order in ("stored", "shuffled", "shards", "chunks"):
        assert server.ask("page", order=order)["tiles"] == []
    assert server.search("a")["hits"] == []
    assert server.ask_until_finished("overview")["fields"] == []
    assert server.get("api/sample", i=0).status_code == 404


def serve_remotely(folder: Path, shard_server: Any, *, sidecars: bool = True) -> list[Any]:
    paths = [folder / f"s-{shard}.tar" for shard in range(3)]
    return [(serve_shard(shard_server, path, sidecar=sidecars), 10) for path in paths]


@pytest.fixture
def remote(folder: Path, shard_server: ShardServer) -> Iterator[Browsing]:
    """Serve the shards from another server, which is given up after two attempts."""
    rows = serve_remotely(folder, shard_server)
    with browsing(rows, patience=TWICE, retry_seconds=3600) as server:
        yield server


def test_a_remote_page_costs_little_more_than_its_samples(remote: Browsing, shard_server: Any):
    """The first page of a remote dataset fetches only the fields that it shows."""
    tiles = remote.ask("page", count=5)["tiles"]
    pictures = [remote.get("thumb", i=tile["index"], f=0, s=96) for tile in tiles]
    assert all(picture.headers["Content-Type"] != "image/svg+xml" for picture in pictures)
    shown = sum(len(s[".jpg"]) + len(s[".json"]) + 1 for s in samples_of(0)[:5])
    tars = [r for r in shard_server.requests if r.path.endswith(".tar")]
    assert sum(request.nbytes for request in tars) < shown + 5 * 6_000
    assert {request.path for request in tars} == {"/s-0.tar"}
    assert remote.states() == ["remote"] * 3


def test_a_part_of_a_remote_field_costs_that_part(remote: Browsing, shard_server: Any):
    """The first range of a remote video fetches the headers of its sample, later ones no more."""
    remote.ask("page", count=1)
    remote.get("raw", {"Range": "bytes=0-9"}, i=4, f=3)
    before = shard_server.nbytes
    part = remote.get("raw", {"Range": "bytes=1000-1099"}, i=4, f=3)
    assert part.content == samples_of(0)[4][".bin"][1000:1100]
    assert shard_server.nbytes - before < 2_000


def test_what_was_left_out_and_why_is_counted(folder: Path, shard_server: Any):
    """Shards without a sidecar and unreadable shards are counted apart; a cached shard is read."""
    rows = serve_remotely(folder, shard_server, sidecars=False)
    rows.append((str(folder / "gone.tar"), 4))
    with browsing(rows) as server:
        for found in (
            server.search("part"),
            server.ask_until_finished("overview"),
            server.ask_until_finished("page", where="key <> 'x'")["filtering"],
        ):
            assert (found["skipped"], found["without_sidecar"]) == (4, 3)
        assert not any(request.nbytes > 2_000 for request in shard_server.requests)
        # Who looks at a sample has its shard fetched, and from then on it is searched.
        assert server.ask("page", count=1)["fetched_whole"] == 1
        assert server.ask("sample", i=3)["fetched_whole"] == 1
        found = server.search("art")
        assert (len(found["hits"]), found["without_sidecar"]) == (10, 2)
        assert server.ask("shards")["shards"][0]["state"] == "cached"


@pytest.mark.parametrize("stall_at", [None, 0], ids=["refused", "stalled"])
@pytest.mark.parametrize("sidecars", [True, False])
def test_a_server_that_keeps_silent_is_waited_for_once(
    folder: Path,
    shard_server: ShardServer,
    stall_at: int | None,
    sidecars: bool,
):
    """Shards of a silent server are unreachable, others are shown, and all are once it answers."""
    rows = [(str(folder / "s-0.tar"), 10)]
    rows += serve_remotely(folder, shard_server, sidecars=sidecars)[1:]
    patience = TWICE if stall_at is None else IMPATIENT
    with browsing(rows, patience=patience, retry_seconds=3600) as server:
        shard_server.requests.clear()
        shard_server.faults = Faults(stall_at=stall_at, refuse=stall_at is None)
        # A server that stalls says at once that there is no sidecar, and falls silent after that.
        num_requests = 2 if stall_at is None or sidecars else 3
        tiles = server.ask("page")["tiles"]
        assert ["error" in tile for tile in tiles] == [False] * 10 + [True] * 20
        assert all("gave up after 2 attempts" in tile["error"] for tile in tiles[10:])
        assert shard_server.wait_for_requests(num_requests) == num_requests
        assert server.states() == ["local", "unreachable", "unreachable"]
        found = server.search("part")
        assert (len(found["hits"]), found["skipped"], found["without_sidecar"]) == (10, 2, 0)
        assert server.ask_until_finished("overview")["skipped"] == 2
        assert server.get("thumb", i=15, f=0, s=96).headers["Content-Type"] == "image/svg+xml"
        assert server.ask("sample", i=15)["error"]
        assert len(shard_server.requests) == num_requests
        server.handlers.reader.failures.retry_seconds = 0
        shard_server.heal()
        assert not any("error" in tile for tile in server.ask("page")["tiles"])
        assert server.states() == ["local", *(["remote"] if sidecars else ["cached"]) * 2]


def test_a_server_that_answers_again_is_held_against_no_shard(remote: Browsing, shard_server: Any):
    """After one shard could be opened, the other shards of its server are tried."""
    shard_server.faults = Faults(refuse=True)
    assert remote.ask("sample", i=5)["error"]
    shard_server.heal()
    failures = remote.handlers.reader.failures
    failures.retry_seconds = 0
    assert remote.ask("sample", i=15)["key"] == "part1/005"
    failures.retry_seconds = 3600
    assert remote.ask("sample", i=5)["key"] == "part0/005"
    assert remote.states() == ["remote"] * 3


@pytest.mark.parametrize("faults", [Faults(status=500, times=2), Faults(cut_at=10, times=2)])
def test_a_shard_that_a_server_fails_to_send_is_held_against_no_other(
    remote: Browsing, shard_server: Any, faults: Faults
):
    """After an error for one shard, other shards of the server are requested and shown."""
    shard_server.faults = faults
    tiles = remote.ask("page")["tiles"]
    assert ["error" in tile for tile in tiles] == [True] * 10 + [False] * 20
    assert remote.states() == ["unreachable", "remote", "remote"]


def test_a_server_that_fails_for_many_shards_is_not_asked_for_all(folder: Path, shard_server: Any):
    """After three failed shards of a server, the rest is not requested."""
    rows = serve_remotely(folder, shard_server) * 4
    with browsing(rows, patience=TWICE, retry_seconds=3600) as server:
        shard_server.faults = Faults(status=500)
        asked = len(shard_server.requests)
        assert all("HTTP status 500" in each["error"] for each in server.ask("page")["tiles"])
        assert len(shard_server.requests) - asked == 3 * 2
        assert set(server.states()) == {"unreachable"}


@pytest.mark.parametrize(("status", "state"), [(404, "missing"), (403, "denied")])
def test_a_shard_that_a_server_refuses_is_not_called_damaged(
    remote: Browsing, shard_server: Any, status: int, state: str
):
    """A missing shard is "missing" and a forbidden one "denied"; others are shown."""
    shard_server.faults = Faults(status=status)
    assert str(status) in remote.get("api/sample", i=5).json()["error"]
    shard_server.heal()
    assert remote.ask("sample", i=15)["key"] == "part1/005"
    assert remote.states() == [state, "remote", "remote"]


def test_many_ask_at_once(served: Browsing):
    """Concurrent requests each get their own response."""

    def ask(number: int) -> bool:
        index = number % 30
        sample = samples_of(index // 10)[index % 10]
        assert served.ask("sample", i=index)["key"] == sample["__key__"]
        assert served.get("raw", i=index, f=3).content == sample[".bin"]
        return served.get("thumb", i=index, f=0, s=96).status_code == 200

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(ask, range(60)))


def test_a_tile_without_a_picture_says_what_there_is(serve: Serve):
    """A tile without a picture shows type and shape, an error, or text that is not compressed."""
    samples = [
        {"__key__": "a", ".npy": npy(np.arange(9, dtype=np.int16))},
        {"__key__": "b", ".npy": b"no array"},
        {"__key__": "c", ".npy": npy(np.zeros((20, 30), np.float32))},
        {"__key__": "d", ".txt.gz": b"\x1f\x8bpacked", ".wav": b"RIFF"},
        {"__key__": "e", ".txt": "two\n words"},
        {"__key__": "f", ".npy": npy(np.zeros(50_000, np.float32))},
    ]
    server = serve(samples)
    tiles = server.ask("page")["tiles"]
    assert [tile["picture"] for tile in tiles] == [None, None, 0, 1, None, None]
    assert [tile["kind"] for tile in tiles] == ["array"] * 3 + ["audio", "text", "array"]
    assert [tile.get("caption") for tile in tiles] == [
        ".npy: int16 [9]",
        ".npy: cannot be decoded",
        None,
        None,
        "two words",
        ".npy: float32 [50000]",
    ]


def test_a_fault_of_the_server_is_an_answer(
    served: Browsing, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    """An unexpected error is sent to the page and logged, and the server goes on."""

    def fail(_index: int) -> None:
        raise RuntimeError("unforeseen")

    monkeypatch.setattr(served.handlers.reader, "locate", fail)
    response = served.get("api/sample", i=0)
    assert (response.status_code, "unforeseen" in response.json()["error"]) == (500, True)
    assert "unforeseen" in caplog.text
    assert served.get("api/dataset").status_code == 200


def test_a_shard_that_is_cut_short_ends_no_server(tmp_path: Path):
    """A truncated shard shows errors, and its samples once it is complete again."""
    paths = [write_shard(tmp_path / f"s-{shard}.tar", samples_of(shard)) for shard in range(2)]
    whole = paths[0].read_bytes()
    with Command(tmp_path, tmp_path) as server:
        assert len(server.get("api/page").json()["tiles"]) == 20
        os.truncate(paths[0], 20_000)
        assert server.get("api/sample", i=9).json()["error"]
        assert "error" in server.get("api/page").json()["tiles"][9]
        assert server.get("thumb", i=8, f=0, s=96).status_code == 200
        assert server.get("raw", i=9, f=3).status_code == 500
        assert server.get("api/sample", i=15).json()["key"] == "part1/005"
        paths[0].write_bytes(whole)
    with browsing(tmp_path) as mended:
        assert mended.ask("sample", i=9)["key"] == "part0/009"


def test_a_replaced_shard_is_an_error_until_the_page_is_started_anew(tmp_path: Path):
    """Nothing of two versions of a shard is mixed, and the error says what to do."""

    def written(path: Path, shift: int) -> Path:
        rows = [{"__key__": f"{n:02d}", ".cls": f"{(n + shift) % 3}"} for n in range(60)]
        return write_shard(path, rows)

    path = written(tmp_path / "a.tar", 0)
    for shift in range(2):
        with browsing([(str(path), 60)]) as server:
            chosen = server.ask_until_finished("page", where="cls = 1", count=99)
            found = [tile["index"] for tile in chosen["tiles"]]
            assert found == [n for n in range(60) if (n + shift) % 3 == 1]
            written(tmp_path / "new", 1).replace(path)
            for question in ("api/sample?i=1", "raw?i=1&f=0"):
                said = server.get(question).json()["error"]
                assert "was replaced since it was read first; end `wids browse` and start" in said
            assert "replaced" in server.ask("page")["tiles"][0]["error"]


def test_a_sample_of_very_many_fields_comes_in_pieces(serve: Serve):
    """Very many fields come in several responses, each field once under its number."""
    fields = {f".f{number:03d}": f"{number}" for number in range(450)}
    server = serve([{"__key__": "a", **fields}, {"__key__": "b", ".f449": ""}])
    pieces = [server.ask("sample", i=0, **{"from": start}) for start in (0, 200, 400, 600)]
    statistics = server.ask_until_finished("overview")
    whole = server.get("raw", i=0, f=449).content
    assert [len(piece["fields"]) for piece in pieces] == [200, 200, 50, 0]
    assert [piece["fields_left_out"] for piece in pieces] == [250, 50, 0, 0]
    shown = [row for piece in pieces for row in piece["fields"]]
    assert [row["number"] for row in shown] == list(range(450))
    assert [row["extension"] for row in shown] == list(fields)
    assert whole == b"449"
    assert statistics["num_fields"] == 450
    assert statistics["fields"][0]["name"] == "f449"
    assert len(statistics["fields"]) < 100


def test_no_credentials_are_shown(tmp_path: Path, shard_server: ShardServer, caplog):
    """Responses and logs contain no users, passwords or signatures of URLs."""
    shard = write_shard(tmp_path / "a.tar", [{"__key__": "a", ".txt": "x"}])
    shard_server.put("a.tar", shard.read_bytes())
    address = shard_server.url.removeprefix("http://")
    rows = [
        {"url": f"http://me:SECRET@{address}/{name}.tar?sig=SECRET", "nsamples": 1}
        for name in ("a", "missing")
    ]
    spec = tmp_path / "spec.json"
    base = f"http://me:SECRET@{address}/?sig=SECRET"
    spec.write_text(json.dumps({"wids_version": 1, "base": base, "shardlist": rows}))
    said = []
    with browsing(str(spec), title=base) as server:
        for question in (
            "api/dataset", "api/page", "api/sample?i=0", "api/sample?i=1", "api/shards",
            "api/page?q=a", "api/overview", "api/facets", "api/groups",
            "thumb?i=1&f=0&s=96", "raw?i=1&f=0", "api/turns?i=1&f=0", "",
        ):  # fmt: skip
            response = server.get(question)
            said.append(response.text + str(response.headers))
    assert "SECRET" not in "".join(said)
    assert "SECRET" not in caplog.text


def test_names_of_classes_lie_beside_a_remote_spec(tmp_path: Path, shard_server: ShardServer):
    """A file of class names is found in the folder of a remote spec."""
    shard = write_shard(tmp_path / "a.tar", [{"__key__": "a", ".cls": "1"}])
    shard_server.put("a.tar", shard.read_bytes())
    shard_server.put("classes.txt", b"cat\ndog\n")
    spec = {"wids_version": 1, "shardlist": [{"url": "a.tar", "nsamples": 1}]}
    url = shard_server.put("spec.json", json.dumps(spec).encode())
    with Command(url, tmp_path) as server:
        label = server.get("api/page").json()["tiles"][0]["label"]
        assert label == {"value": 1, "name": "dog"}


def test_a_tile_shows_the_likeliest_picture(serve: Serve):
    """A tile shows the photograph rather than the depth map or mask."""
    data = plain()
    sample = {"__key__": "a", ".depth.png": data, ".png": data, ".seg.jpg": data, ".jpg": data}
    server = serve([sample])
    (tile,) = server.ask("page")["tiles"]
    assert tile["fields"][tile["picture"]] == ".jpg"


@pytest.mark.slow
def test_of_a_million_samples_runs_are_listed(tmp_path: Path) -> None:
    """A document of a large dataset lists the runs between those left out, and not all others."""
    samples = [{"__key__": f"{number:04d}", ".cls": "1"} for number in range(1000)]
    path = write_shard(tmp_path / "a.tar", samples)
    TarIndex.from_tar(path).save(Path(f"{path}{SIDECAR_SUFFIX}"))
    rows = []
    for number in range(1001):
        for suffix in ("", SIDECAR_SUFFIX):
            os.link(f"{path}{suffix}", tmp_path / f"{number}.tar{suffix}")
        rows.append((str(tmp_path / f"{number}.tar"), 1000))
    with browsing(rows) as server:
        document = server.selection(without="3,7-8")
        runs = {"starts": [0, 4, 9], "lengths": [3, 3, 1_000_991]}
        assert document["slots"][0]["rows"] == runs
        assert document["nsamples"] == 1_000_997


def test_all_but_those_left_out_are_saved(tmp_path: Path) -> None:
    """A document leaves out the samples themselves, and no others that have the same keys."""
    names = ("a", "b", "b", "c", "d", "e")
    samples = [{"__key__": f"{name}", ".cls": "1"} for name in names]
    rows = [(str(write_shard(tmp_path / "1.tar", samples[:2])), 2)]
    rows.append((str(write_shard(tmp_path / "2.tar", samples[2:])), 4))
    with browsing(rows) as server:
        for without in ("0,3", "1", "0-4"):
            saved = tmp_path / "saved.json"
            saved.write_text(json.dumps(server.selection(without=without)))
            left = [n for n in range(6) if n not in parse_indexes("without", without, 6)]
            view = wids.open(saved, transformations="memoryview")
            assert [sample["__key__"] for sample in view] == [names[n] for n in left]
