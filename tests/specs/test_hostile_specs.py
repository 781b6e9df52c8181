"""Specs of strangers: no credentials in messages, no device read, no memory without bound."""

import json
import logging
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import wids
from wids.errors import SpecError, WidsError
from wids.specs.sources import expand_braces, load_spec
from wids.specs.spec import DatasetSpec, SpecBounds
from wids.specs.textcolumns import BytesColumn

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


def test_no_line_about_a_dataset_shows_credentials(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Log line and description of a dataset show no credentials of its base."""
    path = tmp_path / "train.json"
    path.write_text(json.dumps({"base": "https://user:SECRET@host/sets", "shardlist": [SHARD]}))
    with caplog.at_level(logging.DEBUG), wids.ShardListDataset(str(path)) as dataset:
        shown = [dataset.data_info, repr(dataset), repr(dataset.shards[0]), caplog.text]
    assert "https://host/sets" in dataset.data_info
    assert not [text for text in shown if "SECRET" in text]


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


def test_the_specs_that_one_names_have_a_bound_in_all() -> None:
    """A spec that names many large documents is refused before all of them are read."""
    rows = [{"url": f"{number}.tar", "nsamples": 1} for number in range(100)]
    part = json.dumps(rows).encode()
    named = [{"source_url": f"{number}.json"} for number in range(9)]
    read: list[str] = []

    def parse(datasets: list[Any]) -> DatasetSpec:
        return DatasetSpec.parse(
            json.dumps({"datasets": datasets}),
            read=lambda url: read.append(url) or part,
            bounds=SpecBounds(documents_nbytes=10_000),
        )

    assert len(parse(named[:2]).shards) == 200
    read.clear()
    with pytest.raises(SpecError, match="at most 10000 bytes in all"):
        parse(named)
    assert len(read) < len(named)


@pytest.mark.parametrize("pattern", ["{0..1000000000}.tar", "{1..999}{1..999}{1..999}.tar"])
def test_a_brace_pattern_has_a_bound(pattern: str) -> None:
    """A brace pattern of more names than a dataset may have is refused at once."""
    with pytest.raises(SpecError, match="1"):
        expand_braces(pattern)


@pytest.mark.parametrize("weight", [-1, "2", [], True, float("inf"), float("nan")])
@pytest.mark.parametrize("where", ["top", "component"])
def test_weights_of_datasets_are_numbers_from_0_on(weight, where, tmp_path):
    """Weights of a spec and of its parts are checked like those of shards."""
    document = {"wids_version": 1, "weight": weight, "shardlist": [{"url": "a.tar", "nsamples": 1}]}
    if where == "component":
        document = {"wids_version": 1, "datasets": [document]}
    spec = tmp_path / "a.json"
    spec.write_text(json.dumps(document))
    with pytest.raises(wids.SpecError, match="weight: expected a number from 0 on"):
        wids.ShardListDataset(spec)


@pytest.mark.parametrize("url", ["http://[::1", "az://[c/k.tar", "s3://b`/k.tar"])
def test_odd_locations_fail_by_errors_of_the_library(url, tmp_path, monkeypatch):
    """Odd locations raise our errors, not urllib's ValueError or a panic of obstore."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "y")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "x")
    with pytest.raises(wids.WidsError):
        wids.ShardListDataset([{"url": url, "nsamples": 1}], cache_dir=tmp_path)[0]


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


@pytest.mark.parametrize("url", ["http://host/{}", "../{}", "{}"])
@pytest.mark.parametrize("base", ["https://host/sets/x", "/data", "sub", ""])
def test_a_base_is_kept_once_and_gives_the_same_urls(base: str, url: str) -> None:
    """Shards checked by column and one by one get the same URLs."""
    rows = [{"url": url.format(f"{number}.tar"), "nsamples": 1} for number in range(20)]
    together = DatasetSpec.from_list(rows, base=base).shards
    singly = [DatasetSpec.from_list([row | {"weight": 1}], base=base).shards[0] for row in rows]
    assert list(together.urls) == [shard.url for shard in singly]
    assert together.urls.nbytes < 200


def test_what_shards_inherit_has_a_bound_in_all() -> None:
    """The product of shards and the length of inherited fields is bounded."""
    bounds = SpecBounds(inherited_characters=100_000)
    rows = [{"url": f"{number}.tar", "nsamples": 1} for number in range(1000)]
    for field in ("base", "name"):
        document = json.dumps({"datasets": [{field: "x" * 500, "shardlist": rows}]})
        assert len(DatasetSpec.parse(document).shards) == 1000
        with pytest.raises(SpecError, match="expected at most 100000 characters"):
            DatasetSpec.parse(document, bounds=bounds)


def test_inherited_fields_alike_take_no_memory_for_each_shard() -> None:
    """A name that all shards inherit is stored once, and each shard has it."""
    rows = [{"url": f"{number}.tar", "nsamples": 1} for number in range(1000)]
    document = {"datasets": [{"name": "x" * 900, "weight": 2, "shardlist": rows}]}
    shards = DatasetSpec.parse(json.dumps(document)).shards
    assert shards.extras.nbytes < 3000
    assert (shards[999].dataset, shards[0]["weight"]) == ("x" * 900, 2)


def test_a_document_counts_at_each_reference() -> None:
    """A document counts to the bound at each reference to it."""
    part = json.dumps([SHARD]).encode()
    bounds = SpecBounds(documents_nbytes=100 * len(part))

    def parse(times: int) -> DatasetSpec:
        document = json.dumps({"datasets": [{"source_url": "part.json"}] * times})
        return DatasetSpec.parse(document, read=lambda _: part, bounds=bounds)

    assert len(parse(100).shards) == 100
    with pytest.raises(SpecError, match=r"datasets\[100\]: expected documents of at most"):
        parse(101)


def test_a_spec_has_a_largest_number_of_shards() -> None:
    """The shards of all parts of a spec count together."""
    bounds = SpecBounds(shards=3)
    assert len(DatasetSpec.parse('{"shardlist": ["a", "b", "c"]}', bounds=bounds).shards) == 3
    parts = {"datasets": [{"shardlist": ["a", "b"]}, {"shardlist": ["c", "d"]}]}
    with pytest.raises(SpecError, match=r"datasets\[1\]: expected 3 shards at most, found 4"):
        DatasetSpec.parse(json.dumps(parts), bounds=bounds)


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


@pytest.mark.parametrize("pattern", ["{1..100000}" + "a" * 8000, "{" * 50, "a" * 8193])
def test_a_brace_pattern_has_a_length_and_a_depth(pattern: str) -> None:
    """Patterns of gigabytes of names, or of endless nesting, are refused at once."""
    with pytest.raises(SpecError) as caught:
        expand_braces(pattern)
    assert len(str(caught.value)) < 500


def test_a_name_that_no_file_can_have_is_an_error() -> None:
    """A location with a zero character raises an error of ours."""
    with pytest.raises(WidsError, match="null"):
        wids.ShardListDataset("a\0.json")


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


def test_a_row_of_millions_of_letters_is_packed_at_once() -> None:
    """A row of millions of letters is packed without a loop over its letters."""
    letters = b"a" * 2_000_000
    rows = [letters + b"b" + letters, letters + b"c" + letters, b"a" + b"b" + letters]
    column = BytesColumn(rows)
    assert list(column) == rows
    assert column.parts.suffix == letters
