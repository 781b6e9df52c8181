"""Specs of strangers: no credentials in messages, no device read, no memory without bound."""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import wids
from wids.errors import SpecError, WidsError
from wids.specs.shardtable import TextColumn
from wids.specs.sources import expand_braces, load_spec
from wids.specs.spec import DatasetSpec, SpecBounds

BASE = "https://user:SECRET@host/sets/train.json?sig=SECRET"
SHARD = {"url": "https://user:SECRET@host/a.tar?sig=SECRET", "nsamples": 3}

MALFORMED: dict[str, Any] = {
    "no JSON": "{",
    "no object": 7,
    "no shards": {"shardlist": []},
    "list is none": {"shardlist": 7},
    "another version": {"wids_version": 9, "shardlist": [SHARD]},
    "no URL": {"shardlist": [{"href": SHARD["url"]}]},
    "URL of another type": {"shardlist": [{"url": [SHARD["url"]]}]},
    "control character": {"shardlist": [{"url": f"{SHARD['url']}\n"}]},
    "bad count": {"shardlist": [SHARD | {"nsamples": -1}]},
    "bad digest": {"shardlist": [SHARD | {"md5sum": "x"}]},
    "bad weight": {"shardlist": [SHARD | {"weight": -1}]},
    "bad index": {"shardlist": [SHARD | {"index": 7}]},
    "local file": {"shardlist": [{"url": "file:///etc/passwd"}]},
    "nested local file": {"datasets": [{"source_url": "file:///etc/passwd"}]},
    "nested, unreadable": {"datasets": [{"source_url": SHARD["url"]}]},
}


@pytest.mark.parametrize("kind", MALFORMED)
def test_no_error_of_a_spec_shows_credentials(kind: str) -> None:
    """An error names the spec without users and queries of it and of its shards."""
    text = MALFORMED[kind] if kind == "no JSON" else json.dumps(MALFORMED[kind])
    with pytest.raises(SpecError, match=r"https://host/sets/train\.json\?\.\.\.") as caught:
        DatasetSpec.parse(text, BASE)
    assert "SECRET" not in str(caught.value)


@pytest.mark.parametrize(
    ("entry", "found"),
    [
        ({"datasets": [{"source_url": "/proc/self/status"}]}, "expected JSON"),
        ({"shardlist": [{"url": "/proc/self/status"}]}, "found 0 bytes"),
    ],
)
def test_a_file_that_says_it_is_empty_is_not_read(entry: dict[str, Any], found: str) -> None:
    """No byte is read beyond the size of a file: some files of /proc would never answer."""
    with pytest.raises(WidsError, match=found):
        wids.ShardListDataset(entry)


@pytest.mark.parametrize("kind", ["device", "pipe", "folder"])
def test_a_spec_names_no_device_as_another_spec(tmp_path: Path, kind: str) -> None:
    """A spec that refers to a device, a pipe or a folder is refused unread."""
    named = tmp_path / "named.json"
    if kind == "device":
        named.symlink_to("/dev/zero")
    elif kind == "pipe":
        os.mkfifo(named)
    else:
        named.mkdir()
    path = tmp_path / "all.json"
    path.write_text(json.dumps({"datasets": [{"source_url": "named.json"}]}))
    with pytest.raises(SpecError, match=r"named\.json: expected a JSON file, found a folder, pipe"):
        load_spec(str(path))


def test_a_pipe_without_a_writer_is_not_waited_for(tmp_path: Path) -> None:
    """It is an empty document; one that a program writes into is read."""
    os.mkfifo(tmp_path / "a.json")
    with pytest.raises(SpecError, match="found an empty file"):
        load_spec(str(tmp_path / "a.json"))
    reader, writer = os.pipe()
    os.write(writer, json.dumps({"shardlist": [SHARD]}).encode())
    os.close(writer)
    assert len(load_spec(f"/dev/fd/{reader}").shards) == 1
    os.close(reader)


def test_a_device_is_read_up_to_a_bound() -> None:
    """A spec at a path of the user may be a pipe, and is read up to a bound."""
    with pytest.raises(WidsError, match="larger than"):
        load_spec("/dev/zero")


LONG: dict[str, tuple[Any, str]] = {
    "name": ({"name": "n" * 1001, "shardlist": [SHARD]}, "name: expected 1000 characters"),
    "name is none": ({"name": ["n" * 10**6], "shardlist": [SHARD]}, "name: expected a string"),
    "name of a part": (
        {"datasets": [{"name": "n" * 10**6, "shardlist": [SHARD]}]},
        "name: expected 1000 characters",
    ),
    "name of a named part": (
        {"datasets": [{"name": ["n" * 10**6], "source_url": "part.json"}]},
        r"datasets\[0\]: name: expected a string",
    ),
    "base": ({"base": "b" * 8193, "shardlist": [SHARD]}, "base: expected 8192 characters"),
    "URL": ({"shardlist": [SHARD, {"url": "u" * 8193}]}, "shard 1: url: expected 8192"),
    "URL, alike": ({"shardlist": [{"url": "u" * 9000}] * 3}, "shard 0: url: expected 8192"),
    "sidecar": ({"shardlist": [SHARD | {"index": "i" * 10**6}]}, "index: expected 8192"),
    "named part": ({"datasets": [{"source_url": "s" * 8193}]}, "source_url: expected 8192"),
    "version": ({"wids_version": "9" * 10**6, "shardlist": [SHARD]}, "wids_version: expected 1"),
    "URL is none": ({"shardlist": [{"url": [SHARD["url"]] * 10_000}]}, "a list of .* characters"),
    "classes": (
        {
            "datasets": [
                {"classes": ["a" * 10**6], "shardlist": [SHARD]},
                {"classes": ["b" * 10**6], "shardlist": [SHARD]},
            ]
        },
        "class 0 is 'bbb",
    ),
    "keys": ({"shardlist": [{"k" * 10**6: 1}]}, "url: expected a path or URL, found the keys"),
}


@pytest.mark.parametrize("kind", LONG)
def test_names_and_locations_have_a_longest_and_errors_are_short(kind: str) -> None:
    """Names and locations have a largest length, and messages shorten long values."""
    document, reason = LONG[kind]
    with pytest.raises(SpecError, match=reason) as caught:
        DatasetSpec.parse(json.dumps(document), BASE, read=lambda _: json.dumps([SHARD]).encode())
    assert len(str(caught.value)) < 1000
    assert "SECRET" not in str(caught.value)


def test_names_and_locations_of_the_longest_are_kept(tmp_path: Path) -> None:
    """Names and locations of exactly the largest length are accepted."""
    document = {"name": "n" * 1000, "base": "b" * 8192, "shardlist": [{"url": "u" * 8192}] * 2}
    spec = DatasetSpec.parse(json.dumps(document), str(tmp_path / "a.json"))
    assert spec.name == spec.shards[0]["name"] == "n" * 1000
    assert spec.shards.urls[1] == str(tmp_path / ("b" * 8192) / ("u" * 8192))


def test_what_shards_inherit_has_a_bound_in_all() -> None:
    """The product of shards and the length of inherited fields is bounded."""
    bounds = SpecBounds(inherited_characters=100_000)
    rows = [{"url": f"{number}.tar", "nsamples": 1} for number in range(1000)]
    for field in ("base", "name"):
        document = json.dumps({"datasets": [{field: "x" * 500, "shardlist": rows}]})
        assert len(DatasetSpec.parse(document).shards) == 1000
        with pytest.raises(SpecError, match="expected at most 100000 characters"):
            DatasetSpec.parse(document, bounds=bounds)


# A spec with two levels of datasets, three components, four shards and two references.
NESTED = {
    "datasets": [
        {"datasets": [{"source_url": "part.json"}, {"base": "b" * 10, "shardlist": ["a", "b"]}]},
    ]
}
PART = json.dumps(["c", "d"]).encode()
EXACT = SpecBounds(nesting=2, components=3, documents_nbytes=len(PART), shards=4)


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        (EXACT, None),
        (replace(EXACT, nesting=1), "expected at most 1 levels of datasets"),
        (replace(EXACT, components=2), "expected at most 2 datasets in all"),
        (replace(EXACT, documents_nbytes=len(PART) - 1), "expected documents of at most 9 bytes"),
        (replace(EXACT, shards=3), "expected 3 shards at most, found 4"),
        (replace(EXACT, inherited_characters=19), "expected at most 19 characters"),
        (replace(EXACT, values_nbytes=100), "could take more than 100 bytes of memory"),
    ],
)
def test_a_spec_may_reach_its_bounds_and_not_exceed_them(
    bounds: SpecBounds, message: str | None
) -> None:
    """A spec at each bound is parsed, and one beyond a bound is refused with that bound."""

    def parse() -> DatasetSpec:
        return DatasetSpec.parse(json.dumps(NESTED), "x.json", read=lambda _: PART, bounds=bounds)

    if message is None:
        assert list(parse().shards.urls) == ["c", "d", "bbbbbbbbbb/a", "bbbbbbbbbb/b"]
        return
    with pytest.raises(SpecError, match=message):
        parse()


@pytest.mark.parametrize("value", ["[],", "{},", '{"a":1},'])
def test_the_values_of_a_spec_are_bounded_before_they_are_parsed(value: str) -> None:
    """A JSON of many empty lists is refused before its objects take memory."""
    text = "[" + value * 25_000 + "0]"
    with pytest.raises(SpecError, match=r"a\.json: its values could take more than"):
        DatasetSpec.parse(text, "a.json", bounds=SpecBounds(values_nbytes=3 << 20))


@pytest.mark.parametrize("names", ["{}.json", "part.json"], ids=["many", "one, many times"])
def test_the_specs_that_one_names_have_a_bound_in_all(names: str) -> None:
    """Each reference to a document counts, and not all are read before they are too many."""
    part = json.dumps([SHARD]).encode()
    read: list[str] = []

    def parse(times: int) -> DatasetSpec:
        named = [{"source_url": names.format(number)} for number in range(times)]
        return DatasetSpec.parse(
            json.dumps({"datasets": named}),
            read=lambda url: read.append(url) or part,
            bounds=SpecBounds(documents_nbytes=100 * len(part)),
        )

    assert len(parse(100).shards) == 100
    read.clear()
    with pytest.raises(
        SpecError, match=r"datasets\[100\]: expected documents of at most .* in all"
    ):
        parse(200)
    assert len(read) < 200


@pytest.mark.parametrize(
    "pattern",
    [
        "{0..1000000000}.tar",
        "{1..999}{1..999}{1..999}.tar",
        "{1..100000}" + "a" * 8000,
        "{" * 50,
        "a" * 8193,
    ],
)
def test_a_brace_pattern_has_bounds(pattern: str) -> None:
    """Patterns of too many or too long names, or of endless nesting, are refused at once."""
    with pytest.raises(SpecError) as caught:
        expand_braces(pattern)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("length", [300, 5000])
def test_a_named_spec_of_a_name_too_long_for_a_file_is_an_error(tmp_path: Path, length: int):
    """A file name that is too long for the system raises SpecError."""
    path = tmp_path / "all.json"
    path.write_text(json.dumps({"datasets": [{"source_url": "n" * length}]}))
    with pytest.raises(SpecError, match="name too long"):
        load_spec(str(path))


@pytest.mark.parametrize(
    "location",
    [
        "x" * 5000,
        "{a,b" * 80,
        "/a" * 3000,
        "*/" * 3000,
        "a\ud800.json",
        "a\0.json",
        "x" * 5000 + ".tar",
        "{x,y}" * 9,
    ],
)
@pytest.mark.parametrize("listed", [False, True])
def test_a_location_that_no_file_can_have_is_an_error(location: str, listed: bool) -> None:
    """Names that are too long, too deep, or no text raise no error of the system or of glob."""
    with pytest.raises(WidsError):
        wids.ShardListDataset([location] if listed else location)


def test_lack_of_memory_is_an_error_of_the_spec() -> None:
    """MemoryError becomes a SpecError that names the spec."""

    class Exhausting:
        name = "https://user:SECRET@host/large.json"

        def read(self) -> bytes:
            raise MemoryError

    with pytest.raises(SpecError, match=r"https://host/large\.json: not enough memory"):
        load_spec(Exhausting())


def test_rows_of_millions_of_letters_are_packed() -> None:
    """Rows of millions of letters share their ends."""
    letters = "a" * 2_000_000
    rows = [letters + "b" + letters, letters + "c" + letters, "a" + "b" + letters]
    column = TextColumn.of(rows)
    assert list(column) == rows
    assert column.suffix == letters.encode()


def test_inherited_fields_alike_take_no_memory_for_each_shard() -> None:
    """A name and a base that all shards inherit are stored once, and each shard has them."""
    rows = [{"url": f"{number}.tar", "nsamples": 1} for number in range(1000)]
    part = {"name": "x" * 900, "base": "https://host/" + "b" * 900, "weight": 2, "shardlist": rows}
    shards = DatasetSpec.parse(json.dumps({"datasets": [part]})).shards
    assert shards.extras.nbytes + shards.urls.nbytes < 10_000
    assert (shards[999].dataset, shards[0]["weight"]) == ("x" * 900, 2)
    assert shards.urls[999] == f"{part['base']}/999.tar"
