"""What a dataset can be opened from."""

import bz2
import io
import json
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

import wids
from wids.errors import SpecError, WidsWarning
from wids.specs.sources import load_spec

MakeShard = Callable[..., Path]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Make a folder with three shards, one of them compressed, and other files."""
    folder = tmp_path / "set"
    folder.mkdir()
    for name in ("b-01.tar", "b-00.tar", "c.tar.gz", "notes.txt", "b.tar.widx"):
        (folder / name).write_bytes(b"")
    return folder


def names(source: object, **options: object) -> list[str]:
    return [Path(url).name for url in load_spec(source, **options).shards.urls]


def test_a_folder_means_the_shards_in_it(folder: Path) -> None:
    """A folder gives its shards in sorted order, without other files, hidden ones and folders."""
    (folder / "A.TAR").touch()
    (folder / "b-02.tar").mkdir()
    for name in ("._b-00.tar", ".b-02.tar"):  # of macOS, and of a copy under way
        (folder / name).write_bytes(b"\0\5\x16\7")
    assert names(folder) == ["A.TAR", "b-00.tar", "b-01.tar", "c.tar.gz"]
    assert names(f"{folder}/") == names(folder)
    assert names(folder / "A.TAR") == ["A.TAR"]


NAMED: dict[str, list[str]] = {
    "{folder}/b-*.tar": ["b-00.tar", "b-01.tar"],
    "{folder}/../**/*.tar": ["b-00.tar", "b-01.tar"],
    "{folder}/b-{{00..01}}.tar": ["b-00.tar", "b-01.tar"],
    "{folder}/b-{{00..00}}.tar": ["b-00.tar"],
    "{folder}/b-{{00..00}}*.tar": ["b-00.tar"],
    "{folder}/b-{{01..01..-1}}.tar": ["b-01.tar"],
    "{folder}/{{b,c}}*.tar*": ["b-00.tar", "b-01.tar", "b.tar.widx", "c.tar.gz"],
    # Braces that expand to nothing else stand for themselves.
    "{folder}/{{b}}.tar": ["{b}.tar"],
    "https://host/{{b}}.tar": ["{b}.tar"],
    "https://host/a.tar?signature=x": ["a.tar?signature=x"],
    "{folder}/b-00.tar": ["b-00.tar"],
}


@pytest.mark.parametrize("pattern", NAMED)
def test_a_location_means_the_files_that_it_names(folder: Path, pattern: str) -> None:
    """`*` matches files and no folders, `**` also deeper ones; braces need no file access."""
    (folder / "b-02.tar").mkdir()
    if "{{b}}" in pattern:
        (folder / "{b}.tar").touch()
    location = pattern.format(folder=folder)
    assert names(location) == names([location]) == NAMED[pattern]


def test_a_brace_pattern_may_have_thousands_of_names() -> None:
    """Beyond the default limit of the library."""
    urls = load_spec("https://host/train-{0000..1999}.tar").shards.urls
    assert (len(urls), urls[-1]) == (2000, "https://host/train-1999.tar")


def test_a_list_may_mix_what_names_shards(folder: Path) -> None:
    """A list may mix dicts, pairs, paths, patterns and folders."""
    mixed = [{"url": "x.tar", "nsamples": 1}, ("y.tar", 2), folder / "b-00.tar", "z-{1..2}.tar"]
    assert names(mixed) == ["x.tar", "y.tar", "b-00.tar", "z-1.tar", "z-2.tar"]


def test_a_base_counts_for_lists(folder: Path) -> None:
    """Relative locations in a list are resolved against `base`, also a Path."""
    assert list(load_spec(["b-00.tar"], base=folder).shards.urls) == [str(folder / "b-00.tar")]


def test_open_files_hold_specs(tmp_path: Path) -> None:
    """A StringIO and an open text file are read as JSON."""
    text = json.dumps({"shardlist": [{"url": "a.tar", "nsamples": 1}]})
    assert list(load_spec(io.StringIO(text)).shards.urls) == ["a.tar"]
    path = tmp_path / "set.json"
    path.write_text(text)
    with path.open() as stream:
        assert list(load_spec(stream).shards.urls) == [str(tmp_path / "a.tar")]


def test_home_folders_expand(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tilde works in every kind of location."""
    monkeypatch.setenv("HOME", str(folder.parent))
    assert names("~/set") == names(folder)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("missing.json", "missing.json: cannot be read as a shard-spec"),
        ("nowhere/*.tar", "no file matches"),
        ([], "found an empty list"),
        ("", "got an empty text; '.' is this folder"),  # a variable that was not set
        (17, "expected a path, a URL, an open file, a list, a dict or a DatasetSpec, found 17"),
        (b"a.tar", "expected a path"),
        ({"url": "a.tar"}, "the dict: holds no shards; expected a 'shardlist'"),
    ],
)
def test_what_names_no_dataset_is_refused(source: object, message: str) -> None:
    """The error has the value found and the accepted kinds of sources."""
    with pytest.raises(SpecError, match=message):
        load_spec(source)


def test_a_compression_that_is_not_read_is_named(tmp_path: Path) -> None:
    """A tar by bzip2 is no spec, and the message says which ones are read."""
    (tmp_path / "a.tar.bz2").write_bytes(bz2.compress(b"a tar"))
    with pytest.raises(SpecError, match="found bzip2 data; .* only those by gzip and zstd"):
        load_spec(tmp_path / "a.tar.bz2")


def test_a_folder_without_shards_is_refused(tmp_path: Path) -> None:
    """The error names the folder and the suffixes looked for."""
    with pytest.raises(SpecError, match=rf"{tmp_path}: holds no shards: .*\.tar"):
        load_spec(tmp_path)


def test_parsed_specs_and_lists_of_specs_open_like_a_path(folder: Path) -> None:
    """A dict, a `DatasetSpec` and a list of specs stand for the shards of their documents."""
    first = {"name": "a", "classes": ["cat"], "shardlist": [{"url": "b-00.tar", "nsamples": 2}]}
    second = first | {"name": "b", "shardlist": [{"url": "b-01.tar", "nsamples": 3}]}
    third = first | {"name": None, "shardlist": [{"url": "c.tar.gz", "nsamples": 1}]}
    (folder / "a.json").write_text(json.dumps(first))
    (folder / "b.json").write_text(json.dumps(second))
    assert names(first) == ["b-00.tar"]
    assert load_spec(first, base=folder).shards.urls[0] == str(folder / "b-00.tar")
    parsed = load_spec(folder / "b.json")
    again = load_spec(parsed, options={"license": "MIT"})
    assert (again.name, again.shards.urls[0]) == ("b", parsed.shards.urls[0])
    assert again.header == parsed.header | {"license": "MIT"}
    both = load_spec([folder / "a.json", parsed, third, second])
    assert [Path(url).name for url in both.shards.urls] == [
        "b-00.tar",
        "b-01.tar",
        "c.tar.gz",
        "b-01.tar",
    ]
    assert both.header["classes"] == ["cat"]
    assert [shard.dataset for shard in both.shards] == ["a", "b", None, "b"]
    assert load_spec([folder / "a.json"]).name == "a"
    other = first | {"classes": ["dog"]}
    with pytest.raises(SpecError, match="class 0 is 'dog'"):
        load_spec([folder / "a.json", other])
    with pytest.raises(SpecError, match="the dict: holds no shards"):
        load_spec({"wids_version": 1})
    with pytest.raises(SpecError, match=r"the dict: grouping: expected 'adjacent' or .*, found 3"):
        load_spec(first | {"grouping": 3})


def test_a_spec_in_a_folder_is_used_as_in_a_bucket(tmp_path: Path, make_shard: MakeShard) -> None:
    """Its rules and numbers hold; shards that it lacks are said, and a pattern opens all."""
    for name in ("a", "b"):
        make_shard(f"set/{name}.tar", [{"__key__": "v1", ".0.txt": name, ".1.txt": name}])
    folder = tmp_path / "set"
    entry = {"url": "a.tar", "nsamples": 2}
    folder.joinpath("shardindex.json").write_text(
        json.dumps({"name": "birds", "key_rule": "last_dot", "shardlist": [entry]})
    )
    with pytest.warns(
        WidsWarning, match=r"1 shards of the folder are not .*b\.tar.*wids create .*"
    ):
        spec = load_spec(folder)
    assert (spec.name, spec.header["key_rule"]) == ("birds", "last_dot")
    assert [shard["nsamples"] for shard in spec.shards] == [2]
    with pytest.warns(WidsWarning, match="are not in the spec"):
        assert names([str(folder)]) == ["a.tar"]
    assert names(f"{folder}/*.tar") == ["a.tar", "b.tar"]
    folder.joinpath("wids.json").write_text(json.dumps([entry, {"url": "b.tar", "nsamples": 2}]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for source in (folder, f"{folder}/"):
            assert len(wids.ShardListDataset(source, key_rule="last_dot")) == 4
