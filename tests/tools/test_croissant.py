"""`wids card` describes a dataset in Croissant, as mlcroissant reads it."""

import json
import re
from fnmatch import fnmatch
from pathlib import Path

import pytest
from PIL import Image

import wids
from wids.cli import main

ABOUT = {
    "--description": "Digits",
    "--license": "https://spdx.org/licenses/MIT",
    "--url": "https://host/digits",
    "--creator": "Somebody",
    "--cite": "Somebody, Digits",
    "--version": "1.0.0",
    "--date": "2026-01-31",
}
OPTIONS = [word for option in ABOUT.items() for word in option]


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    """Write two shards with classes; one field occurs in the last samples only."""
    path = tmp_path / "set" / "digits.json"
    with wids.ShardWriter(
        path.parent / "d-%03d.tar", maxcount=6, spec=path, sidecars=True
    ) as writer:
        writer.header |= {"classes": ["zero", "one", "two"], "info": {"license": "MIT"}}
        for number in range(12):
            late = {".late[0].txt": "late"} if number > 8 else {}
            picture = Image.new("RGB", (8, 8), (number * 9, 0, 0))
            writer.write(
                {"__key__": f"a/{number:04d}", ".jpg": picture, ".cls": number % 3, ".txt": "x"}
                | {".json": {"number": number}}
                | late
            )
    return path


def card_of(spec: Path, *options: str) -> dict[str, object]:
    """Write the card beside the spec, and return it."""
    path = spec.with_name("croissant.json")
    assert main(["card", str(spec), "-o", str(path), *options]) == 0
    return json.loads(path.read_text())


def test_shards_are_named_with_size_and_digests(spec: Path):
    """Locations are relative to the card, and the digests are those of the spec."""
    shards = [e for e in card_of(spec)["distribution"] if e["@type"] == "cr:FileObject"]
    listed = json.loads(spec.read_text())["shardlist"]
    assert [shard["contentUrl"] for shard in shards] == ["d-000.tar", "d-001.tar"]
    assert [shard["md5"] for shard in shards] == [entry["md5sum"] for entry in listed]
    assert [shard["sha256"] for shard in shards] == [entry["sha256"] for entry in listed]
    assert [shard["contentSize"] for shard in shards] == [f"{e['filesize']} B" for e in listed]


def test_each_field_is_a_set_of_files_and_of_records(spec: Path):
    """Patterns and regular expressions take the names of members apart into keys, as wids does."""
    card = card_of(spec)
    sets = {e["@id"]: e for e in card["distribution"] if e["@type"] == "cr:FileSet"}
    records = {each["@id"]: each for each in card["recordSet"]}
    dataset = wids.ShardListDataset(str(spec), transformations="bytes")
    extensions = {name for sample in dataset for name in sample if name.startswith(".")}
    assert {f"members{each}" for each in extensions} == sets.keys()
    assert {each[1:] for each in extensions} | {"classes"} == records.keys()
    for sample in dataset:
        for extension in extensions & sample.keys():
            name, key = sample["__key__"] + extension, records[extension[1:]]["field"][0]
            hit = [
                members
                for members in sets.values()
                if fnmatch(name, members["includes"])
                and not any(fnmatch(name, each) for each in members.get("excludes", ()))
            ]
            assert hit == [sets[f"members{extension}"]]
            assert re.match(key["source"]["transform"]["regex"], name)[1] == sample["__key__"]
    kinds = {each: records[each]["field"][1]["dataType"] for each in ("jpg", "cls", "json")}
    assert kinds == {"jpg": "sc:ImageObject", "cls": "sc:Integer", "json": "sc:Text"}


def test_classes_have_their_names(spec: Path):
    """The card holds the numbers and names of the classes itself."""
    [classes] = [each for each in card_of(spec)["recordSet"] if each["@id"] == "classes"]
    assert [each["classes/name"] for each in classes["data"]] == ["zero", "one", "two"]


def test_what_is_said_of_the_dataset(spec: Path, capsys):
    """Options take precedence over the spec; what neither says is listed."""
    assert card_of(spec)["license"] == "MIT"
    missing = capsys.readouterr().err.splitlines()[-1]
    assert "description, url, citeAs, creator, version, datePublished" in missing
    card = card_of(spec, *OPTIONS)
    said = {name: card[name] for name in ("name", "license", "version", "datePublished")}
    assert list(said.values()) == ["digits", ABOUT["--license"], "1.0.0", "2026-01-31"]
    assert card["creator"]["name"] == "Somebody"
    assert "says nothing" not in capsys.readouterr().err


def test_what_a_card_cannot_describe_is_refused(spec: Path, tmp_path: Path, capsys):
    """A shard without a digest, a view, and the name of another file are errors."""
    document = json.loads(spec.read_text())
    for shard in document["shardlist"]:
        del shard["md5sum"], shard["sha256"]
    bare = spec.with_name("bare.json")
    bare.write_text(json.dumps(document))
    assert main(["card", str(bare)]) == 1
    assert "d-000.tar: a card needs a digest" in capsys.readouterr().err
    wids.ShardListDataset(str(spec))[:5].save(spec.with_name("few.json"))
    assert main(["card", str(spec.with_name("few.json"))]) == 1
    assert "a view of some samples" in capsys.readouterr().err
    before = spec.read_bytes()
    assert main(["card", str(spec), "-o", str(spec)]) == 1
    assert "is no card" in capsys.readouterr().err
    assert spec.read_bytes() == before


def test_no_secret_of_a_location_is_written(spec: Path, shard_server, tmp_path: Path, capsys):
    """A signed location is named without its signature."""
    document = json.loads(spec.read_text())
    for shard in document["shardlist"]:
        url = shard_server.put(shard["url"], spec.with_name(shard["url"]).read_bytes())
        sidecar = spec.with_name(f"{shard['url']}.widx")
        shard_server.put(sidecar.name, sidecar.read_bytes())
        shard["url"] = f"{url}?signature=secret"
    remote = tmp_path / "remote.json"
    remote.write_text(json.dumps(document))
    assert main(["card", str(remote), "--cache-dir", str(tmp_path / "cache")]) == 0
    shown = capsys.readouterr()
    assert "secret" not in shown.out + shown.err
    files = json.loads(shown.out)["distribution"]
    assert [file["contentUrl"] + "?signature=secret" for file in files[:2]] == [
        shard["url"] for shard in document["shardlist"]
    ]


@pytest.mark.filterwarnings("ignore")  # those of its own libraries
def test_mlcroissant_reads_the_samples(spec: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The library of the format finds no fault, and reads keys and values by the card."""
    croissant = pytest.importorskip("mlcroissant", reason="needs mlcroissant")
    monkeypatch.setenv("HOME", str(tmp_path))  # it unpacks the shards there
    card_of(spec, *OPTIONS)
    found = croissant.Dataset(str(spec.with_name("croissant.json")))
    assert found.metadata.issues.report() == ""
    classes = {r["cls/key"].decode(): r["cls/value"] for r in found.records("cls")}
    assert classes == {f"a/{number:04d}": number % 3 for number in range(12)}
    assert {r["jpg/value"].size for r in found.records("jpg")} == {(8, 8)}
