"""A hostile dataset: no code runs, no request fails, and memory stays bounded."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import requests
from helpers.browsing import Command
from helpers.hostile import GIGABYTE, SCRIPT, hostile_samples, write_hostile
from helpers.shards import write_shard
from helpers.specimens import npy

import wids
from wids.browse.fieldreader import FieldReader, LocatedSample
from wids.browse.samplepages import tiles

READ = FieldReader.read


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Command]:
    folder = write_hostile(tmp_path_factory.mktemp("hostile"))
    with Command(folder, tmp_path_factory.mktemp("cache")) as server:
        yield server
    assert not list(folder.glob("broken_into"))


def test_every_sample_has_its_page(served: Command):
    """Every page and picture is answered, with an error for a damaged field."""
    tiles = served.get("api/page", count=60).json()["tiles"]
    assert len(tiles) == len(hostile_samples()) + 1
    errors = 0
    for tile in tiles:
        sample = served.get("api/sample", i=tile["index"])
        assert sample.status_code == 200, sample.text
        for field in sample.json()["fields"]:
            errors += field["error"] is not None
            picture = served.get("thumb", i=tile["index"], f=field["number"], s=320)
            assert picture.status_code == 200
            assert picture.headers["Content-Type"].startswith("image/")
    assert errors > 10


def test_nothing_of_it_is_sent_as_something_that_runs(served: Command):
    """Text, HTML and SVG are sent to be saved; only pixels and sound are shown."""
    shown = ("image/jpeg", "image/png", "audio/wav", "video/mp4")
    for tile in served.get("api/page", count=60).json()["tiles"]:
        for field in served.get("api/sample", i=tile["index"]).json()["fields"]:
            head = requests.head(
                served.url + "raw", params={"i": tile["index"], "f": field["number"]}, timeout=100
            )
            kind = head.headers["Content-Type"]
            saved = head.headers["Content-Disposition"].startswith("attachment")
            assert kind in shown or (kind == "application/octet-stream" and saved)
            assert "sandbox" in head.headers["Content-Security-Policy"]
            assert head.headers["X-Content-Type-Options"] == "nosniff"
            assert "Set-Cookie" not in head.headers


def test_pictures_hold_pixels_only(served: Command):
    """A thumbnail contains no EXIF data."""
    index = [sample["__key__"] for sample in hostile_samples()].index("exif")
    assert SCRIPT.encode() in served.get("raw", i=index, f=0).content
    picture = served.get("thumb", i=index, f=0, s=1280)
    assert picture.headers["Content-Type"] in ("image/jpeg", "image/png")
    assert b"script" not in picture.content


def test_memory_stays_bounded(served: Command):
    """A decompression bomb and a download of a gigabyte leave the process small."""
    huge = len(hostile_samples())
    fields = served.get("api/sample", i=huge).json()["fields"]
    assert [field["nbytes"] for field in fields] == [GIGABYTE] * 6
    for field in fields:
        served.get("thumb", i=huge, f=field["number"], s=1280)
    served.get("api/page", where="json.a = 1 and contains(txt, 'x')")
    served.get("api/page", where="length(txt) > 3 or cls in (1, 2)")
    served.ask_until_finished("facets")
    served.get("api/page", look="table")
    with served.get("raw", i=huge, f=0, stream=True) as download:
        received = sum(len(piece) for piece in download.iter_content(1 << 20))
    assert received == GIGABYTE
    part = served.get("raw", i=huge, f=4, headers={"Range": f"bytes={GIGABYTE - 5}-"})
    assert part.content == bytes(5)
    assert served.own_nbytes < 300 << 20


def test_a_large_array_is_not_read_for_its_tile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server reads small arrays to say what they are; large ones are left to decoders."""
    read: list[int] = []

    def read_and_note(self: FieldReader, located: LocatedSample, number: int) -> memoryview:
        read.append(located.fields[number].nbytes)
        return READ(self, located, number)

    monkeypatch.setattr(FieldReader, "read", read_and_note)
    samples = [{"__key__": f"{n}", ".npy": npy(np.zeros(n, "u1"))} for n in (9, 17 << 20)]
    with wids.ShardListDataset([write_shard(tmp_path / "a.tar", samples)]) as dataset:
        found = [tile for tile, _ in tiles(FieldReader(dataset), enumerate(range(2)), {})]
    assert [tile["picture"] for tile in found] == [None, 0]
    assert found[0]["caption"] == ".npy: uint8 [9]"
    assert max(read) < 1000
