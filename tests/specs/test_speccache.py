"""Large specs kept as columns: the same spec as the JSON gives, or the JSON is read."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from wids.fetching.storesettings import StoreSettings
from wids.specs import sources, speccache
from wids.specs.sources import load_spec
from wids.specs.spec import DatasetSpec


@pytest.fixture(autouse=True)
def cache_of_the_test(monkeypatch, tmp_path: Path) -> None:
    """Cache specs of any size and age in a folder of the test."""
    monkeypatch.setenv("WIDS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(speccache, "LEAST_NBYTES", 0)
    monkeypatch.setattr(speccache, "SETTLED_NS", -1)


@pytest.fixture
def parsed(monkeypatch) -> list[str]:
    """Note which documents are read to be parsed."""
    names: list[str] = []
    read = sources.read_document

    def noted(location: str, store: StoreSettings | None = None) -> bytes:
        names.append(Path(location).name)
        return read(location, store)

    monkeypatch.setattr(sources, "read_document", noted)
    return names


def rows(count: int, **more: Any) -> list[dict[str, Any]]:
    return [
        {
            "url": f"x-{i:03}.tar",
            "nsamples": i,
            "filesize": i * 512,
            "md5sum": f"{i:032x}",
            **more,
        }
        for i in range(count)
    ]


def write(path: Path, document: Any) -> Path:
    path.write_text(json.dumps(document))
    return path


def kept_file(folder: Path) -> Path:
    (path,) = (folder / "cache" / "specs").iterdir()
    return path


def contents(spec: DatasetSpec) -> tuple[Any, ...]:
    return spec.name, spec.base, spec.header, list(spec.shards)


shards = st.fixed_dictionaries(
    {"url": st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]), min_size=1)},
    optional={
        "nsamples": st.integers(0, 2**58),
        "filesize": st.integers(1, 2**61),
        "sha256": st.from_regex(r"[0-9a-f]{64}", fullmatch=True),
        "weight": st.floats(0, 9),
        "note": st.lists(st.text(max_size=3), max_size=2),
    },
)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(shards, min_size=1, max_size=5), st.none() | st.text(max_size=4))
def test_columns_say_what_the_json_says(tmp_path: Path, parsed, listed: list[Any], name) -> None:
    """Name, base, header and shards from the cache equal the JSON's, which is not read again."""
    path = write(tmp_path / "x.json", {"name": name, "classes": ["a"], "shardlist": listed})
    plain = DatasetSpec.parse(path.read_bytes(), str(path))
    parsed.clear()
    assert contents(load_spec(path)) == contents(plain)
    assert contents(load_spec(path)) == contents(plain)
    assert parsed == ["x.json"]


def test_a_changed_json_is_read_anew(tmp_path: Path, parsed) -> None:
    """A changed JSON is read again, even with the same size and modification time."""
    path = write(tmp_path / "x.json", rows(9))
    load_spec(path)
    status = path.stat()
    path.write_text(path.read_text().replace("x-003", "y-003"))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert path.stat().st_size == status.st_size
    assert load_spec(path).shards[3]["url"].endswith("y-003.tar")
    assert parsed == ["x.json", "x.json"]


def test_a_json_that_was_written_just_now_is_not_kept(tmp_path: Path, monkeypatch) -> None:
    """A JSON is not cached within a tick of the clock, when a change could keep its times."""
    monkeypatch.setattr(speccache, "SETTLED_NS", 10**10)
    load_spec(write(tmp_path / "x.json", rows(3)))
    assert list(tmp_path.rglob("*.columns")) == []


def test_another_base_is_another_spec(tmp_path: Path) -> None:
    """Another base gives other URLs, not the cached ones."""
    path = write(tmp_path / "x.json", rows(2))
    assert load_spec(path).shards.urls[0] == str(tmp_path / "x-000.tar")
    assert load_spec(path, base="/b").shards.urls[0] == "/b/x-000.tar"
    assert load_spec(path, options={"base": "/c"}).shards.urls[0] == "/c/x-000.tar"
    assert load_spec(path).shards.urls[0] == str(tmp_path / "x-000.tar")


def test_a_spec_that_refers_to_others_is_not_kept(tmp_path: Path) -> None:
    """A spec that refers to other documents is not cached."""
    write(tmp_path / "sub.json", rows(2))
    path = write(tmp_path / "x.json", {"datasets": [{"source_url": "sub.json"}]})
    assert len(load_spec(path).shards) == 2
    write(tmp_path / "sub.json", rows(3))
    assert len(load_spec(path).shards) == 3


def test_small_and_missing_files_have_no_columns(tmp_path: Path, monkeypatch) -> None:
    """A JSON below the bound is parsed each time, and nothing is written."""
    monkeypatch.setattr(speccache, "LEAST_NBYTES", 10**6)
    load_spec(write(tmp_path / "x.json", rows(3)))
    assert not (tmp_path / "cache").exists()


def test_a_folder_that_others_could_write_to_is_not_used(tmp_path: Path, parsed) -> None:
    """A cache folder that other users can write to is not used."""
    folder = tmp_path / "cache" / "specs"
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    path = write(tmp_path / "x.json", rows(3))
    assert len(load_spec(path).shards) == len(load_spec(path).shards) == 3
    assert list(folder.iterdir()) == []
    assert parsed == ["x.json", "x.json"]


def test_only_so_many_are_kept(tmp_path: Path, monkeypatch) -> None:
    """Beyond the largest number of cached specs, the oldest are removed."""
    monkeypatch.setattr(speccache, "MOST_FILES", 2)
    for number in range(4):
        path = write(tmp_path / f"x{number}.json", rows(number + 1))
        load_spec(path)
    assert len(list((tmp_path / "cache" / "specs").iterdir())) == 2


@pytest.mark.parametrize("place", [0, 30, -1])
def test_damaged_columns_lead_back_to_the_json(tmp_path: Path, place: int) -> None:
    """If a byte of the cached columns has changed, the JSON is read, and they are kept anew."""
    path = write(tmp_path / "x.json", rows(20))
    plain, kept = contents(load_spec(path)), kept_file(tmp_path)
    good = kept.read_bytes()
    damaged = bytearray(good)
    damaged[place] ^= 1
    kept.write_bytes(damaged)
    assert contents(load_spec(path)) == plain
    assert kept.read_bytes() == good
