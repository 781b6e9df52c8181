"""Specs of strangers: no credentials in messages, no device read, no memory without bound."""

import json
import logging
import os
from pathlib import Path
from typing import Any

import pytest

import wids
from wids.errors import SpecError, WidsError
from wids.specs import spec as spec_module
from wids.specs.sources import expand_braces, load_spec
from wids.specs.spec import DatasetSpec

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
    """The message names the spec, and neither user nor query of it or of a shard."""
    text = MALFORMED[kind] if kind == "no JSON" else json.dumps(MALFORMED[kind])
    with pytest.raises(SpecError, match=r"https://host/sets/train\.json\?\.\.\.") as caught:
        DatasetSpec.parse(text, BASE)
    assert "SECRET" not in str(caught.value)


def test_no_line_about_a_dataset_shows_credentials(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither its log line nor its description, whose base may come from the spec."""
    path = tmp_path / "train.json"
    path.write_text(json.dumps({"base": "https://user:SECRET@host/sets", "shardlist": [SHARD]}))
    with caplog.at_level(logging.DEBUG), wids.ShardListDataset(str(path)) as dataset:
        shown = [dataset.data_info, repr(dataset), repr(dataset.shards[0]), caplog.text]
    assert "https://host/sets" in dataset.data_info
    assert not [text for text in shown if "SECRET" in text]


@pytest.mark.parametrize("kind", ["device", "pipe", "folder"])
def test_a_spec_names_no_device_as_another_spec(tmp_path: Path, kind: str) -> None:
    """What has no end, or waits for a writer, is not read."""
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


def test_a_device_is_read_up_to_a_bound() -> None:
    """A spec that the user names himself may be a pipe, but has a largest size too."""
    with pytest.raises(WidsError, match="larger than"):
        load_spec("/dev/zero")


def test_the_specs_that_one_names_have_a_bound_in_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small spec that names many large ones is refused before they fill the memory."""
    monkeypatch.setattr(spec_module, "MAX_DOCUMENTS_NBYTES", 10_000)
    rows = [{"url": f"{number}.tar", "nsamples": 1} for number in range(100)]
    for number in range(9):
        (tmp_path / f"{number}.json").write_text(json.dumps(rows))
    path = tmp_path / "all.json"
    named = [{"source_url": f"{number}.json"} for number in range(9)]
    path.write_text(json.dumps({"datasets": named[:2]}))
    assert len(load_spec(str(path)).shards) == 200
    path.write_text(json.dumps({"datasets": named}))
    with pytest.raises(SpecError, match="more than 10000 bytes in all"):
        load_spec(str(path))


@pytest.mark.parametrize("pattern", ["{0..1000000000}.tar", "{1..999}{1..999}{1..999}.tar"])
def test_a_brace_pattern_has_a_bound(pattern: str) -> None:
    """More names than any dataset has shards are an error at once."""
    with pytest.raises(SpecError, match="1"):
        expand_braces(pattern)


@pytest.mark.parametrize("weight", [-1, "2", [], True, float("inf"), float("nan")])
@pytest.mark.parametrize("where", ["top", "component"])
def test_weights_of_datasets_are_numbers_from_0_on(weight, where, tmp_path):
    """A weight of the whole spec or of a part is checked as one of a shard is."""
    document = {"wids_version": 1, "weight": weight, "shardlist": [{"url": "a.tar", "nsamples": 1}]}
    if where == "component":
        document = {"wids_version": 1, "datasets": [document]}
    spec = tmp_path / "a.json"
    spec.write_text(json.dumps(document))
    with pytest.raises(wids.SpecError, match="weight: expected a number from 0 on"):
        wids.ShardListDataset(spec)


@pytest.mark.parametrize("url", ["http://[::1", "az://[c/k.tar", "s3://b`/k.tar"])
def test_odd_locations_fail_by_errors_of_the_library(url, tmp_path, monkeypatch):
    """Neither urllib's ValueError nor a panic of the object-store library comes through."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "y")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "x")
    with pytest.raises(wids.WidsError):
        wids.ShardListDataset([{"url": url, "nsamples": 1}], cache_dir=tmp_path)[0]
