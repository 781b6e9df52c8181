"""Large specs kept as columns: the same spec as the JSON gives, or the JSON is read."""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from wids.base.arrayfile import read_arrays, write_arrays
from wids.fetching.storesettings import StoreSettings
from wids.specs import sources
from wids.specs.sources import load_spec
from wids.specs.spec import DatasetSpec
from wids.specs.speccache import CachedSpecs

ANY = CachedSpecs(least_nbytes=0, settled_ns=-1)  # specs of any size and age


@pytest.fixture(autouse=True)
def cache_of_the_test(monkeypatch, tmp_path: Path) -> None:
    """Cache specs in a folder of the test."""
    monkeypatch.setenv("WIDS_CACHE", str(tmp_path / "cache"))


def load(path: Path, cached: CachedSpecs = ANY, **options: Any) -> DatasetSpec:
    return load_spec(path, cached=cached, **options)


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
    assert contents(load(path)) == contents(plain)
    assert contents(load(path)) == contents(plain)
    assert parsed == ["x.json"]


def test_a_changed_json_is_read_anew(tmp_path: Path, parsed) -> None:
    """A changed JSON is read again, even with the same size and modification time."""
    path = write(tmp_path / "x.json", rows(9))
    load(path)
    status = path.stat()
    path.write_text(path.read_text().replace("x-003", "y-003"))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert path.stat().st_size == status.st_size
    assert load(path).shards[3]["url"].endswith("y-003.tar")
    assert parsed == ["x.json", "x.json"]


def test_a_json_that_was_written_just_now_is_not_kept(tmp_path: Path) -> None:
    """A JSON is not cached within a tick of the clock, when a change could keep its times."""
    load(write(tmp_path / "x.json", rows(3)), replace(ANY, settled_ns=10**10))
    assert list(tmp_path.rglob("*.columns")) == []


def test_another_base_is_another_spec(tmp_path: Path) -> None:
    """Another base gives other URLs, not the cached ones."""
    path = write(tmp_path / "x.json", rows(2))
    assert load(path).shards.urls[0] == str(tmp_path / "x-000.tar")
    assert load(path, base="/b").shards.urls[0] == "/b/x-000.tar"
    assert load(path, options={"base": "/c"}).shards.urls[0] == "/c/x-000.tar"
    assert load(path).shards.urls[0] == str(tmp_path / "x-000.tar")


def test_a_spec_that_refers_to_others_is_not_kept(tmp_path: Path) -> None:
    """A spec that refers to other documents is not cached."""
    write(tmp_path / "sub.json", rows(2))
    path = write(tmp_path / "x.json", {"datasets": [{"source_url": "sub.json"}]})
    assert len(load(path).shards) == 2
    write(tmp_path / "sub.json", rows(3))
    assert len(load(path).shards) == 3


def test_small_and_missing_files_have_no_columns(tmp_path: Path) -> None:
    """A JSON below the bound is parsed each time, and nothing is written."""
    load(write(tmp_path / "x.json", rows(3)), replace(ANY, least_nbytes=10**6))
    assert not (tmp_path / "cache").exists()


def test_a_folder_that_others_could_write_to_is_not_used(tmp_path: Path, parsed) -> None:
    """A cache folder that other users can write to is not used."""
    folder = tmp_path / "cache" / "specs"
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    path = write(tmp_path / "x.json", rows(3))
    assert len(load(path).shards) == len(load(path).shards) == 3
    assert list(folder.iterdir()) == []
    assert parsed == ["x.json", "x.json"]


def test_only_so_many_are_kept(tmp_path: Path) -> None:
    """Beyond the largest number of cached specs, the oldest are removed."""
    for number in range(4):
        path = write(tmp_path / f"x{number}.json", rows(number + 1))
        load(path, replace(ANY, most_files=2))
    assert len(list((tmp_path / "cache" / "specs").iterdir())) == 2


FORGERIES = [
    ("about", {"num_rows": 10**9}),
    ("about", {"num_rows": -1}),
    ("about", {"num_rows": "20"}),
    ("about", {"parts": {}}),
    ("about", {"parts": {"url": 7}}),
    ("about", {"parts": {"url": ["zz", ""], "extras": ["", ""]}}),
    ("url ends", np.zeros(20)),
    ("url ends", np.zeros((20, 1), np.int64)),
    ("nsamples", np.full(20, -2)),
    ("nsamples", np.full(20, 2**62)),
    ("nsamples", np.full(20, 2**61)),
    ("nsamples", np.zeros(19, np.int64)),
    ("filesize", np.full(20, -9)),
    ("nsamples", np.zeros(20, np.int32)),
    ("url blob", np.zeros(61, np.uint8)),
    ("url blob", np.zeros((3, 20), np.uint8)),
    ("md5sum blob", np.zeros(1, np.uint8)),
]


@pytest.mark.parametrize(("what", "value"), FORGERIES)
def test_forged_columns_lead_back_to_the_json(tmp_path: Path, what: str, value: Any) -> None:
    """If cached columns have wrong values under a right checksum, the JSON is read."""
    path = write(tmp_path / "x.json", rows(20))
    plain = contents(load(path))
    about, columns = read_arrays(kept_file(tmp_path))
    if what == "about":
        about |= value
    else:
        columns[what] = value
    write_arrays(kept_file(tmp_path), about, columns)
    assert contents(load(path)) == plain


@pytest.mark.parametrize("ends", [[9, 3, 21], [-1, 3, 21], [1, 2, 22], [1, 21]])
def test_forged_ends_of_rows_are_refused(tmp_path: Path, ends: list[int]) -> None:
    """If an end of a row lies outside the blob, the JSON is read."""
    listed = [{"url": "a" * n + ".tar"} for n in (1, 4, 16)]
    path = write(tmp_path / "x.json", listed)
    plain = contents(load(path))
    about, columns = read_arrays(kept_file(tmp_path))
    columns["url ends"] = np.array(ends)
    write_arrays(kept_file(tmp_path), about, columns)
    assert contents(load(path)) == plain
