"""Shard-specs: every variant reads, every malformed one is refused with its place."""

import gc
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import wids
from wids.errors import SpecError
from wids.specs.spec import DatasetSpec

SHARD = {"url": "a.tar", "nsamples": 3}


def parse(document: Any, source: str = "/data/set.json", **options: Any) -> DatasetSpec:
    return DatasetSpec.parse(json.dumps(document), source, **options)


def urls_of(spec: DatasetSpec) -> list[str]:
    return list(spec.shards.urls)


# What reads.


def test_a_plain_spec_resolves_against_its_own_folder() -> None:
    """Relative URLs are resolved against the JSON's folder; other values are kept."""
    rows = [SHARD | {"filesize": 7}, {"url": "s3://bucket/a.tar"}, {"url": "/x/b.tar"}]
    spec = parse({"wids_version": 1, "name": "digits", "shardlist": rows})
    assert spec.name == "digits"
    assert spec.shards[0] == {
        "url": "/data/a.tar",
        "nsamples": 3,
        "filesize": 7,
        "name": "digits",
    }
    assert urls_of(spec) == ["/data/a.tar", "s3://bucket/a.tar", "/x/b.tar"]


@pytest.mark.parametrize(
    ("document_base", "argument", "expected"),
    [
        ({}, None, "/data/a.tar"),
        ({"base": "/b"}, None, "/b/a.tar"),
        ({"base_path": "/b"}, None, "/b/a.tar"),
        ({"base": "sub"}, None, "/data/sub/a.tar"),
        ({"base": "https://host/x"}, None, "https://host/x/a.tar"),
        ({"base": "/b"}, "/argument", "/argument/a.tar"),
        ({"base": ""}, None, "/data/a.tar"),
        ({"base": None, "base_path": "/b"}, None, "/b/a.tar"),
    ],
)
def test_the_nearest_base_wins(
    document_base: dict[str, str], argument: str | None, expected: str
) -> None:
    """The argument is preferred to the JSON's base, and that to the JSON's folder."""
    spec = parse(document_base | {"shardlist": [SHARD]}, base=argument)
    assert urls_of(spec) == [expected]


def test_a_sidecar_resolves_like_its_shard() -> None:
    """`index` is resolved against the same base as `url`."""
    spec = parse([SHARD | {"index": "idx/a.widx"}], "https://host/set/x.json")
    assert spec.shards[0]["index"] == "https://host/set/idx/a.widx"
    with pytest.raises(SpecError, match="shard 0: index: expected a path or URL, found 7"):
        parse([SHARD | {"index": 7}])


@pytest.mark.parametrize(
    "text",
    [
        '{"shardlist": [], "shardlist": [{"url": "a.tar"}]}',
        '{"shardlist": [{"url": "a.tar", "nsamples": 1, "nsamples": 2}]}',
        '{"shardlist": [{"url": "a.tar"}], "info": {"a": 1, "b": 2, "a": 1}}',
    ],
)
def test_a_key_that_stands_twice_is_refused(text: str, tmp_path: Path) -> None:
    """JSON keeps the last value of a key that stands twice, so that the first would be lost."""
    with pytest.raises(SpecError, match="x.json: expected each key once .* found '.*' twice"):
        DatasetSpec.parse(text, "x.json")
    (tmp_path / "view.json").write_text('{"wids_version": 3, "slots": [], "slots": []}')
    with pytest.raises(SpecError, match=r"view\.json: expected each key once .* 'slots' twice"):
        wids.open(str(tmp_path / "view.json"))


def test_a_missing_count_is_unknown() -> None:
    """A shard without `nsamples` has -1 in the column and no such key in its row."""
    spec = parse([{"url": "a.tar"}])
    assert spec.shards.nsamples.tolist() == [-1]
    assert "nsamples" not in spec.shards[0]


# Nested datasets.


def test_inline_datasets_follow_the_own_shards() -> None:
    """Shards of components follow the top-level shards, with the component's name and weight."""
    spec = parse(
        {
            "shardlist": [SHARD],
            "datasets": [
                {"name": "more", "weight": 0.5, "base": "sub", "shardlist": [{"url": "b.tar"}]},
                {"shardlist": [{"url": "c.tar"}]},
            ],
        }
    )
    assert urls_of(spec) == ["/data/a.tar", "/data/sub/b.tar", "/data/c.tar"]
    assert spec.shards[1]["dataset"] == "more"
    assert spec.shards[1]["weight"] == 0.5
    assert "dataset" not in spec.shards[2]


def test_a_source_url_is_read_and_resolves_against_itself() -> None:
    """A referenced spec is relative to its parent, and its shards to the referenced spec."""
    asked: list[str] = []

    def read(url: str) -> bytes:
        asked.append(url)
        return json.dumps({"name": "sub", "shardlist": [{"url": "b.tar", "nsamples": 1}]}).encode()

    spec = parse({"datasets": [{"source_url": "more/sub.json", "weight": 2}]}, read=read)
    assert asked == ["/data/more/sub.json"]
    assert spec.shards[0] == {
        "url": "/data/more/b.tar",
        "nsamples": 1,
        "name": "sub",
        "weight": 2,
        "source_url": "/data/more/sub.json",
        "dataset": "sub",
    }


def test_a_base_beside_a_source_url_wins() -> None:
    """A `base` beside a `source_url` is the base of the referenced shards."""
    text = json.dumps([{"url": "b.tar"}]).encode()
    document = {"datasets": [{"source_url": "https://host/sub.json", "base": "/mirror"}]}
    spec = parse(document, read=lambda _: text, allow_local=True)
    assert urls_of(spec) == ["/mirror/b.tar"]


def test_specs_that_refer_to_themselves_end() -> None:
    """A cycle of references raises an error."""
    document = {"datasets": [{"source_url": "set.json"}]}
    with pytest.raises(SpecError, match="expected at most 8 levels of datasets"):
        parse(document, read=lambda _: json.dumps(document).encode())


def test_specs_that_fan_out_end() -> None:
    """Documents that name each other many times raise an error, and are read once each."""
    documents = {f"/data/{level}.json": [f"{level + 1}.json"] * 6 for level in range(8)}
    asked: list[str] = []

    def read(url: str) -> bytes:
        asked.append(url)
        datasets = [{"source_url": each} for each in documents.get(url, [])]
        return json.dumps({"shardlist": [SHARD], "datasets": datasets}).encode()

    with pytest.raises(SpecError, match="expected at most 10000 datasets in all"):
        DatasetSpec.parse(read("/data/0.json"), "/data/0.json", read=read)
    assert len(asked) == len(set(asked)) <= 9


def test_a_list_may_hold_what_programs_put_there() -> None:
    """NumPy scalars and paths become plain values; other objects are refused by name."""
    spec = DatasetSpec.from_list([SHARD | {"weight": np.float32(1), "note": Path("x")}])
    assert spec.shards[0] == SHARD | {"weight": 1.0, "note": "x"}
    with pytest.raises(SpecError, match="shard 0: 'a.tar': .*no set in JSON"):
        DatasetSpec.from_list([SHARD | {"tags": {1}}])


# Local files named by a server.

SERVER = "https://host/sets/x.json"


@pytest.mark.parametrize(
    ("document", "place"),
    [
        ([{"url": "file:///etc/passwd"}], "shard 0: url: "),
        ([{"url": "FILE:///etc/passwd"}], "shard 0: url: "),
        ({"base": "file:///etc", "shardlist": [{"url": "passwd"}]}, ""),
        ({"datasets": [{"source_url": "file:///x.json"}]}, r"datasets\[0\]: source_url: "),
    ],
)
def test_a_spec_from_a_server_names_nothing_local(document: Any, place: str) -> None:
    """A downloaded spec may name local shards, bases and specs only with `allow_local=True`."""
    read = lambda _: json.dumps([{"url": "file:///a.tar"}]).encode()  # noqa: E731
    with pytest.raises(SpecError, match=f"{place}.*allow_local=True"):
        parse(document, SERVER, read=read)
    assert len(parse(document, SERVER, read=read, allow_local=True).shards) == 1


def test_a_path_from_the_root_stays_on_the_server() -> None:
    """`/a.tar` in a downloaded spec is a file of the server, as in a browser."""
    assert urls_of(parse([{"url": "/a.tar"}], SERVER)) == ["https://host/a.tar"]


def test_the_user_may_choose_a_local_base_for_a_spec_from_a_server() -> None:
    """With a local `base=`, shards of a downloaded spec lie below it, and nowhere else."""
    assert urls_of(parse([SHARD], SERVER, base="/mirror")) == ["/mirror/a.tar"]
    for escape in ("../a.tar", "/etc/passwd", "~/a.tar"):
        with pytest.raises(SpecError, match="allow_local"):
            parse([{"url": escape}], SERVER, base="/mirror")


# What is refused.


@pytest.mark.parametrize(
    ("shard", "place"),
    [
        ({"nsamples": 3}, "shard 1: url: expected a path or URL, found the keys"),
        ({"url": ""}, "shard 1: url: expected a path or URL, found ''"),
        ({"url": 7}, "shard 1: url: expected a path or URL, found 7"),
        ({"url": None}, "shard 1: url: expected a path or URL, found None"),
        ({"url": "a\nb"}, "shard 1: url: expected no control characters"),
        ({"url": "b", "nsamples": -1}, "shard 1: nsamples: expected a count from 0 on, found -1"),
        ({"url": "b", "nsamples": 2.5}, "shard 1: nsamples: .* found 2.5"),
        ({"url": "b", "nsamples": "3"}, "shard 1: nsamples: .* found '3'"),
        ({"url": "b", "nsamples": True}, "shard 1: nsamples: .* found True"),
        ({"url": "b", "nsamples": 2**63}, "shard 1: nsamples: .* found 9223372036854775808"),
        ({"url": "b", "filesize": "big"}, "shard 1: filesize: .* found 'big'"),
        ({"url": "b", "md5sum": "xyz"}, "shard 1: md5sum: expected 32 hex digits, found 'xyz'"),
        *(
            ({"url": "b", "md5sum": digest}, "shard 1: md5sum: expected 32 hex digits")
            for digest in (0, "0" * 30 + " 0", "\u0660" * 32, 32 * ["0"], {"a": 1})
        ),
        ({"url": "b\ud800"}, "shard 1: url: expected text that UTF-8 can encode"),
        ({"url": "b", "weight": "x"}, "shard 1: weight: expected a number from 0 on, found 'x'"),
        ({"url": "b", "weight": -1}, "shard 1: weight: .* found -1"),
        ({"url": "b", "weight": float("inf")}, "shard 1: weight: .* found inf"),
        ({"url": "b", "nsamples": 2**62 - 1}, "shard 1: nsamples: .* samples in all"),
        ({"url": "b", "sha256": 12}, "shard 1: sha256: expected 64 hex digits, found 12"),
        (17, "shard 1: expected an object with 'url' and 'nsamples', found 17"),
        (None, "shard 1: expected an object"),
    ],
)
def test_a_malformed_shard_is_named_with_its_field_and_value(shard: Any, place: str) -> None:
    """The message has source, shard, field and value."""
    with pytest.raises(SpecError, match="^/data/set.json: " + place):
        parse([SHARD, shard])


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"wids_version": 2, "shardlist": [SHARD]}, "wids_version: expected 1, found 2"),
        ({"wids_version": True, "shardlist": [SHARD]}, "wids_version: expected 1"),
        ({"shardlist": "a.tar"}, "shardlist: expected a list, found 'a.tar'"),
        ({"shardlist": []}, "holds no shards"),
        ({"files": ["a.tar"]}, "holds no shards"),
        ([], "holds no shards"),
        ("a.tar", "expected a JSON object or list"),
        ({"name": 3, "shardlist": [SHARD]}, "name: expected a string, found 3"),
        ({"base": 3, "shardlist": [SHARD]}, "base: expected a path or URL, found 3"),
        ({"datasets": [3]}, r"datasets\[0\]: expected a JSON object or list, found 3"),
        ({"datasets": [{"source_url": 3}]}, r"datasets\[0\]: source_url: expected a path or URL"),
        ({"datasets": [{"source_url": "x.json"}]}, r"datasets\[0\]: .* is another spec"),
        ({"datasets": [{"name": "empty"}]}, r"datasets\[0\]: holds no shards"),
        *(
            (document, ".*weight: expected a number from 0 on")
            for weight in (-1, "2", [], True, float("inf"), float("nan"))
            for part in [{"weight": weight, "shardlist": [SHARD]}]
            for document in (part, {"datasets": [part]})
        ),
    ],
)
def test_a_malformed_document_is_named_with_its_field(document: Any, message: str) -> None:
    """A malformed top-level key raises a SpecError that names it."""
    with pytest.raises(SpecError, match="^/data/set.json: " + message):
        parse(document)


@pytest.mark.parametrize("text", ["", "{", "<html>Login</html>", b"\xff\xfe", "[" * 100_000])
def test_what_is_no_json_is_named_as_such(text: str | bytes) -> None:
    """Broken, foreign or deeply nested text raises a SpecError that names the source."""
    gc.collect()  # or finalizers of earlier tests' objects run where no stack is left for them
    with pytest.raises(SpecError, match="^x.json: expected"):
        DatasetSpec.parse(text, "x.json")


@pytest.mark.parametrize("others", [{}, {"weight": 1}])
def test_a_filesize_of_zero_means_unknown(others: dict[str, Any]) -> None:
    """A `filesize` of 0, as old writers put it, counts as unknown."""
    spec = parse([{"url": "/a.tar", "nsamples": 5, "filesize": 0, **others}, SHARD])
    assert spec.shards[0] == {"url": "/a.tar", "nsamples": 5, **others}


# Round trips.

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=4,
)
shards = st.fixed_dictionaries(
    {"url": st.from_regex(r"/[a-z0-9]{1,8}\.tar", fullmatch=True)},
    optional={
        "nsamples": st.integers(0, 10**12),
        "filesize": st.integers(1, 10**15),
        "md5sum": st.from_regex(r"[0-9a-f]{32}", fullmatch=True),
        "sha256": st.from_regex(r"[0-9a-f]{64}", fullmatch=True),
        "index": st.from_regex(r"/[a-z0-9]{1,8}\.widx", fullmatch=True),
        "custom": json_values,
    },
)


@given(st.lists(shards, min_size=1, max_size=6), json_values)
def test_a_spec_survives_writing_reading_and_pickling(rows: list[Any], custom: Any) -> None:
    """JSON and pickle keep known and unknown keys."""
    spec = parse({"wids_version": 1, "custom": custom, "shardlist": rows})
    assert list(spec.shards) == rows
    again = DatasetSpec.parse(spec.to_json(), "/elsewhere/x.json")
    assert list(again.shards) == rows
    assert again.header["custom"] == custom
    copy = pickle.loads(pickle.dumps(spec))
    assert copy.shards == spec.shards
    assert copy.shards[0] == rows[0]


# All shards at once, or one by one.

odd_urls = st.one_of(
    st.sampled_from(["a.tar", "s3://b/a.tar", "http://h/a", "file:///a", "~/a", "/a", "a?b#c"]),
    st.text(alphabet="ab./:~?# \u00e9", min_size=1, max_size=7),
)
odd_shards = st.fixed_dictionaries(
    {"url": odd_urls},
    optional={
        "nsamples": st.none() | st.integers(0, 9),
        "md5sum": st.from_regex(r"[0-9A-Fa-f]{32}", fullmatch=True) | st.sampled_from(["", None]),
        "note": json_values,
    },
)


@given(
    st.lists(odd_shards, min_size=1, max_size=4),
    st.sampled_from(["", "/data", "../x", "https://host/set?key=1", "s3://bucket/../set"]),
)
def test_a_table_does_not_depend_on_how_it_was_checked(rows: list[Any], base: str) -> None:
    """Shards checked by column and one by one give the same table."""
    together = parse(rows, base=base)
    by_itself = parse([*rows, {"url": "w.tar", "weight": 1}], base=base)
    assert list(by_itself.shards)[:-1] == list(together.shards)


def test_a_million_shards_fit_what_a_worker_is_handed() -> None:
    """Numbered names, sizes and MD5 pickle to less than 30 bytes per shard."""
    rows = [
        {
            "url": f"train-{i:07d}.tar",
            "nsamples": 1000 + i % 9,
            "filesize": 10**8 + i,
            "md5sum": f"{i * 7919:032x}",
        }
        for i in range(20_000)
    ]
    table = parse(rows).shards
    assert len(pickle.dumps(table)) < 20_000 * 30
    assert pickle.loads(pickle.dumps(table))[19_999] == table[19_999]
