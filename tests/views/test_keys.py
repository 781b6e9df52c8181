"""Keys: looked up, chosen and left out, in datasets and views alike."""

import hashlib
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.serving import serve_shard
from helpers.shards import MakeShard, write_shard, write_shards
from hypothesis import given
from hypothesis import strategies as st

import wids
from wids.base.keyhash import hash_keys
from wids.views.keytable import KeyTable, find_all

UIDS = [f"{number * 0x9E3779B97F4A7C15 % (1 << 128):032x}" for number in range(1, 31)]
KEYS = [f"key{number:02d}" for number in range(30)]


@pytest.fixture
def dataset(tmp_path: Path) -> wids.ShardListDataset:
    """Write thirty samples in three shards."""
    samples = [
        {"__key__": key, ".json": f'{{"uid": "{uid}"}}'}
        for key, uid in zip(KEYS, UIDS, strict=True)
    ]
    return wids.ShardListDataset(write_shards(tmp_path, samples, 10))


def keys(view: Any) -> list[str]:
    return [sample["__key__"] for sample in view]


@given(st.lists(st.text(max_size=3), max_size=60), st.lists(st.text(max_size=3), max_size=20))
def test_a_table_finds_what_a_dict_would(there: list[str], wanted: list[str]) -> None:
    """All places of a key are found, one by one and together, and no others."""
    there = [key.encode("utf-8", "ignore").decode() for key in there]
    wanted = [key.encode("utf-8", "ignore").decode() for key in wanted] + there[:5]
    hashes = hash_keys(there)
    table = KeyTable(hashes)
    expected = [[n for n, key in enumerate(there) if key == each] for each in wanted]
    assert [table.indexes_of(int(hash_keys([each])[0])) for each in wanted] == expected
    rows, places = find_all(wanted, table, lambda at: [there[place] for place in at.tolist()])
    pairs = list(zip(rows.tolist(), places.tolist(), strict=True))
    assert pairs == [(row, place) for row, found in enumerate(expected) for place in found]


def test_equal_hashes_are_told_apart() -> None:
    """What the table finds is compared with the key itself."""
    table = KeyTable(np.zeros(3, np.uint64))
    there = ["a", "b", ""]
    rows, places = find_all(["", "x"], table, lambda at: [there[place] for place in at.tolist()])
    assert (rows.tolist(), places.tolist()) == ([0], [2])


def test_keys_are_looked_up(dataset: wids.ShardListDataset) -> None:
    """`index_of`, `get` and `keys` answer for a dataset, a view, a concatenation and a join."""
    for samples in (dataset, dataset[::-1], dataset[20:] + dataset[:20], dataset.map(dict)):
        order = keys(samples)
        assert list(samples.keys) == order
        assert len(samples.keys) == 30
        assert samples.keys[3:5] == order[3:5]
        assert samples.keys[-1] == order[-1]
        assert [samples.index_of(key) for key in KEYS] == [order.index(key) for key in KEYS]
        assert samples.get("key07")["__key__"] == "key07"
        assert "key07" in samples.keys
        assert "key7" not in samples.keys
        assert 7 not in samples.keys
        with pytest.raises(KeyError, match="'key7', the first has 'key"):
            samples.index_of("key7")
    assert dataset[3:5].keys[0] == "key03"
    assert "key09" not in dataset[3:5].keys
    assert (dataset[3:] + dataset).index_of("key03") == 0
    assert len(pickle.dumps(dataset)) < 20_000


def test_keys_choose_samples(dataset: wids.ShardListDataset, tmp_path: Path) -> None:
    """They come as lists, arrays, or files of lines or of numpy, in the order that is asked for."""
    wanted = ["key21", "key03", "key21"]
    (tmp_path / "keys.txt").write_text("\n".join(wanted) + "\n\n")
    np.save(tmp_path / "keys.npy", np.array(wanted))
    for given_keys in (wanted, np.array(wanted), tmp_path / "keys.txt", str(tmp_path / "keys.npy")):
        assert keys(dataset.select_keys(given_keys)) == wanted
    assert keys(dataset[::-1].select_keys(wanted[:2])) == wanted[:2]
    assert keys(dataset.select_keys(["key01", "none"], missing="drop")) == ["key01"]
    with pytest.raises(ValueError, match="1 of 2 keys belong to no sample, the first is 'none'"):
        dataset.select_keys(["key01", "none"])
    with pytest.raises(ValueError, match=r"the first is './key01'; the first sample has 'key00'"):
        dataset.exclude(["./key01"])
    with pytest.raises(ValueError, match="samples 0 and 30 both have the key 'key00'"):
        (dataset + dataset).select_keys(["key00"])
    with pytest.raises(ValueError, match="missing"):
        dataset.select_keys(["key00"], missing="ignore")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="texts, got 3"):
        dataset.select_keys([3])
    with pytest.raises(TypeError, match="no such file"):
        dataset.select_keys("key00")


def test_datacomps_uids_choose_samples(dataset: wids.ShardListDataset, tmp_path: Path) -> None:
    """Its files hold pairs of 64-bit numbers, which are the uid in the JSON of a sample."""
    wanted = [UIDS[4], UIDS[17], UIDS[29]]
    pairs = [(int(uid[:16], 16), int(uid[16:], 16)) for uid in wanted]
    for kind in (np.dtype("u8,u8"), np.dtype(np.uint64)):  # also as rows of two numbers
        np.save(tmp_path / "uids.npy", np.array(pairs, kind))
        view = dataset.select_keys(tmp_path / "uids.npy", column=".json:uid")
        assert keys(view) == ["key04", "key17", "key29"]
    rest = dataset.exclude(tmp_path / "uids.npy", column=".json:uid")
    assert keys(rest) == [key for key in KEYS if key not in keys(view)]


def test_samples_are_left_out(dataset: wids.ShardListDataset, tmp_path: Path) -> None:
    """By key or by index, from a list or a file; the others keep their order."""
    rest = [key for key in KEYS if key not in {"key03", "key29"}]
    (tmp_path / "opted-out.txt").write_text("key29\nkey03\n")
    np.save(tmp_path / "rows.npy", np.array([3, 29]))
    for unwanted in (
        ["key29", "key03"],
        {"key29", "key03"},
        [3, -1],
        np.array([29, 3, 3]),
        tmp_path / "opted-out.txt",
        np.load(tmp_path / "rows.npy"),
        np.isin(np.arange(30), [3, 29]),
    ):
        assert keys(dataset.exclude(unwanted)) == rest
    with pytest.raises(ValueError, match=r"rows\.npy: .*read indexes by numpy\.load"):
        dataset.exclude(tmp_path / "rows.npy")
    assert keys(dataset.exclude([])) == KEYS
    assert keys(dataset.exclude(["key03", "none", "key29"], missing="drop")) == rest
    both = dataset + dataset
    assert len(both.exclude(["key00"])) == 58
    # Of a view of the same samples, not those of its keys.
    assert len(both.exclude(both[:1])) == 59
    assert len(both[:40].exclude(both[10:50:2])) == 25
    assert len(both[:40].exclude(both[:0])) == 40
    with pytest.raises(ValueError, match="'none'"):
        dataset.exclude(["none"])
    with pytest.raises(IndexError):
        dataset.exclude([30])


def test_remote_keys_need_the_sidecars_alone(dataset: Any, shard_server: Any) -> None:
    """By range, keys are looked up without a byte of a sample."""
    rows = [(serve_shard(shard_server, Path(shard["url"])), 10) for shard in dataset.shards]
    remote = wids.ShardListDataset(rows, remote="range")
    assert remote.index_of("key25") == 25
    assert keys(remote.select_keys(["key25"])) == ["key25"]


def test_keys_are_read_of_datasets_with_samples_alone(
    dataset: wids.ShardListDataset, tmp_path: Path
) -> None:
    """A part of a concatenation of which no sample is chosen may be far away, or have no keys."""
    gone = wids.ShardListDataset([(str(tmp_path / "gone.tar"), 5)])
    for other in (gone, [{"x": 1}]):
        view = wids.concat([other, dataset])[1:]
        chosen = view[len(other) - 1 :][:3]
        assert chosen.index_of("key02") == 2
        assert np.array_equal(chosen.key_hashes(), hash_keys(KEYS[:3]))
        assert len(chosen[:0].key_hashes()) == 0


def test_keys_are_kept(dataset: Any, shard_server: Any, tmp_path: Path) -> None:
    """A second process fetches no shard to look a key up, but for the one that has it."""
    rows = []
    for number, shard in enumerate(dataset.shards):
        data = Path(shard["url"]).read_bytes()
        url = shard_server.put(f"s{number}.tar", data)
        rows.append({"url": url, "nsamples": 10, "md5sum": hashlib.md5(data).hexdigest()})
    options = {"cache_dir": tmp_path / "cache"}
    assert wids.ShardListDataset(rows, **options).index_of("key25") == 25
    for file in (tmp_path / "cache").glob("*.tar*"):
        if file.suffix != ".column":
            file.unlink()
    shard_server.requests.clear()
    assert wids.ShardListDataset(rows, **options).index_of("key25") == 25
    fetched = {request.path for request in shard_server.requests if request.path.endswith(".tar")}
    assert fetched == {"/s2.tar"}
    # A shard that was rewritten has its keys read again.
    path = Path(dataset.shards[0]["url"])
    assert dataset.index_of("key01") == 1
    write_shard(path, [{"__key__": f"new{n}", ".json": "{}"} for n in range(10)])
    again = wids.ShardListDataset(dataset.shards)
    assert again.index_of("new3") == 3
    assert "key01" not in again.keys


@pytest.mark.parametrize("given", [[5, 7], ["5", "7"], np.array([5, 7])])
def test_numbers_are_values_of_a_column(make_shard: MakeShard, given: Any) -> None:
    """In a column, numbers choose the samples that have them, and are no indexes."""
    rows = [{"__key__": KEYS[n], ".json": f'{{"i": {n}}}'} for n in range(10)]
    dataset = wids.ShardListDataset([(str(make_shard("n.tar", rows)), 10)])[::-1]
    assert keys(dataset.select_keys(given, column=".json:i")) == ["key05", "key07"]
    assert keys(dataset.exclude(given, column=".json:i")) == [
        key for key in KEYS[9::-1] if key not in ("key05", "key07")
    ]
    with pytest.raises(TypeError, match="texts"):
        dataset.select_keys([5, 7])


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("o.parquet", b"PAR1\x15\xff\x00", "expected a text file with one key a line, or a .npy"),
        ("o.npy", np.array(["key00", "key01"], object), r"o\.npy: .*keys.astype\(str\)"),
        ("o.npy", b"no array", r"o\.npy: expected an array"),
    ],
)
def test_files_of_other_kinds_are_named(
    dataset: wids.ShardListDataset, tmp_path: Path, name: str, content: Any, message: str
) -> None:
    """A table, and texts that numpy keeps as objects, are no lists of keys; the cure is named."""
    path = tmp_path / name
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        np.save(path, content, allow_pickle=True)
    for call in (dataset.exclude, dataset.select_keys):
        with pytest.raises(ValueError, match=message):
            call(path)


def test_double_keys_are_told_how_to_choose(dataset: wids.ShardListDataset) -> None:
    """The cures in the messages work."""
    both = dataset + dataset[:1]
    with pytest.raises(ValueError, match=r"exclude\(\[30\]\)"):
        both.select_keys(["key00"])
    assert keys(both.exclude([30]).select_keys(["key00"])) == ["key00"]
    with pytest.raises(ValueError, match=r"filter\(.*\) chooses all") as raised:
        both.select_keys([UIDS[0]], column=".json:uid")
    cure = str(raised.value).partition("filter(")[2].partition(") chooses")[0]
    assert keys(both.filter(cure.strip('"'))) == ["key00", "key00"]


def test_truth_values_are_no_indexes(dataset: wids.ShardListDataset) -> None:
    """A single one, or one among indexes, is a slip; a key points to `get`."""
    wrong: Any
    for wrong in (True, np.True_, [1, True], (False, 2)):
        for samples in (dataset, dataset[::2]):
            with pytest.raises(TypeError, match="truth value"):
                samples[wrong]
    with pytest.raises(TypeError, match=r"get\(key\)"):
        dataset[KEYS[0]]
    with pytest.raises(IndexError, match="index 30 is out of range"):
        dataset.keys[30]
    with pytest.raises(TypeError, match="True"):
        dataset.keys[True]
    assert dataset.keys[-2:0:-20] == KEYS[-2:0:-20]
    assert dataset[::2].made == ("[::2]",)


def test_keys_may_be_a_column_of_pyarrow(make_shard: MakeShard) -> None:
    """A column of a table chooses the samples that the list of its texts chooses."""
    arrow = pytest.importorskip("pyarrow")
    shard = make_shard("arrow.tar", [{"__key__": key, ".cls": "1"} for key in "abcd"])
    dataset = wids.ShardListDataset([(str(shard), 4)])
    for column in (arrow.array(["c", "a"]), arrow.table({"key": ["c", "a"]})["key"]):
        assert list(dataset.select_keys(column).keys) == ["c", "a"]
        assert list(dataset.exclude(column).keys) == ["b", "d"]
    series = pytest.importorskip("pandas").Series(["c", "a"])
    assert list(dataset.exclude(series).keys) == ["b", "d"]
    assert list(dataset.exclude(arrow.array([0, 2])).keys) == ["b", "d"]  # indexes, as in a list


def test_a_list_of_which_no_key_is_found_is_told_of(dataset: wids.ShardListDataset) -> None:
    """With missing="drop", a list whose lines end in blanks would choose nothing in silence."""
    wanted = r"none of 2 keys .*'key01 '; the first sample has 'key00'.*blanks"
    with pytest.warns(wids.WidsWarning, match=wanted):
        assert len(dataset.exclude(["key01 ", "key02\t"], missing="drop")) == len(dataset)
    with pytest.warns(wids.WidsWarning, match=wanted):
        assert not len(dataset.select_keys(["key01 ", "key02\t"], missing="drop"))
