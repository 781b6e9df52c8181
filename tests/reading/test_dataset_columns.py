"""`dataset.column`: one field of all samples, stored in the cache and always right."""

import json
import logging
import os
import pickle
import random
import warnings

import numpy as np
import pytest
from helpers.pictures import draw, save
from helpers.workers import class_or_minus_one, shouted
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader, Dataset

from wids import DecodeError, ImageDecoder, Resize, SampleDecoder, ShardListDataset
from wids.codecs.arrays import encode_npy
from wids.errors import ShardChangedError, WidsWarning
from wids.reading.ragged import Ragged, RaggedText

LENGTHS = [7, 0, 12]
PICTURES = [draw(12, 10, seed) for seed in range(19)]


def make_sample(number):
    document = {"label": number, "box": [number / 2, 1], "text": "a" * number}
    sample = {
        "__key__": f"k{number:03d}",
        ".png": save(PICTURES[number], "PNG"),
        ".cls": str(number % 5),
        ".json": json.dumps(document if number == 9 else {**document, "most": [4]}),
        ".npy": encode_npy(np.full((2, 3), number, np.int16)),
        ".tokens.npy": encode_npy(np.arange(number)),
        ".txt": f"text {number}",
        ".bin": random.Random(number).randbytes(20_000),
    }
    if number % 3:
        sample[".seldom"] = "x"
    return sample


@pytest.fixture
def shards(make_shard):
    """Three shards, one of them empty."""
    starts = np.cumsum([0, *LENGTHS]).tolist()
    return [
        make_shard(f"{i}.tar", [make_sample(starts[i] + place) for place in range(length)])
        for i, length in enumerate(LENGTHS)
    ]


def kept(tmp_path):
    """Return the files of columns in the cache folder."""
    return sorted((tmp_path / "wids-cache").glob("*.column"))


COLUMNS = {
    (".cls",): np.ndarray,
    (".json",): list,
    (".json", "label"): np.ndarray,
    (".json", "box", 0): np.ndarray,
    (".json", "box"): list,
    (".json", "text"): RaggedText,
    (".npy",): np.ndarray,
    (".tokens.npy",): Ragged,
    (".txt",): RaggedText,
    (".bin",): np.ndarray,
    (".png",): np.ndarray,
}


@pytest.mark.parametrize("path", COLUMNS, ids=str)
def test_a_column_is_the_field_of_every_sample(shards, path):
    """A column has the fields of `dataset[i]`, computed, stored or unpickled."""
    dataset = ShardListDataset(shards, transformations=SampleDecoder("numpy", decoders={}))
    expected = [sample[path[0]] for sample in dataset]
    for step in path[1:]:
        expected = [value[step] for value in expected]
    for opened in (dataset, ShardListDataset(shards), pickle.loads(pickle.dumps(dataset))):
        column = opened.column(*path)
        assert isinstance(column, COLUMNS[path])
        assert len(column) == len(expected) == 19
        for value, wanted in zip(column, expected, strict=True):
            raw = np.frombuffer(wanted.getvalue(), "u1") if path == (".bin",) else wanted
            np.testing.assert_array_equal(value, raw)


@pytest.mark.parametrize("transformations", ["bytes", "memoryview", [], "PIL", "torch", str])
def test_columns_are_decoded_whatever_samples_are(shards, transformations):
    """A dataset of raw fields has decoded columns, with images as arrays."""
    dataset = ShardListDataset(shards, transformations=transformations)
    assert dataset.column(".cls").tolist() == [number % 5 for number in range(19)]
    np.testing.assert_array_equal(dataset.column(".png"), PICTURES)


@pytest.mark.usefixtures("no_fd_leaks")
def test_arrays_can_be_written_to(shards):
    """The arrays are writable, also those from a stored column."""
    for _ in range(2):
        column = ShardListDataset(shards[:1]).column(".cls")
        column += 1
    assert ShardListDataset(shards[:1]).column(".cls").tolist() == [0, 1, 2, 3, 4, 0, 1]


def test_images_come_at_the_size_of_the_dataset(shards, tmp_path):
    """Images have the size of the dataset's decoder, and columns of other sizes are separate."""
    for side in (8, 4):
        decode = ImageDecoder("torch", size=Resize((side, side)))
        column = ShardListDataset(shards, transformations=decode).column(".png")
        assert column.shape == (19, side, side, 3)
    assert ShardListDataset(shards).column(".png").shape == (19, 10, 12, 3)
    assert len(kept(tmp_path)) == 6


def test_a_kept_column_reads_no_shard(shards, shard_server):
    """A second process sends no request."""
    rows = []
    for path, length in zip(shards, LENGTHS, strict=True):
        url = shard_server.put(path.name, path.read_bytes())
        rows.append({"url": url, "nsamples": length, "filesize": path.stat().st_size})
    for remote in ("whole", "range"):
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore", WidsWarning
            )  # no sidecars: the shards are fetched whole
            first = ShardListDataset(rows, remote=remote).column(".cls")
        assert shard_server.requests
        shard_server.requests.clear()
        again = ShardListDataset(rows, remote=remote)
        assert again.column(".cls").tolist() == first.tolist()
        assert shard_server.requests == []
        again.cache.clear()


def test_one_changed_shard_has_its_column_made_anew(shards, tmp_path, caplog):
    """A changed shard with the same size and date has its column computed again."""
    dataset = ShardListDataset(shards)
    before = dataset.column(".cls")
    files = set(kept(tmp_path))
    status = shards[2].stat()
    changed = shards[2].read_bytes().replace(b"4" + bytes(511), b"9" + bytes(511))
    shards[2].write_bytes(changed)
    os.utime(shards[2], ns=(status.st_atime_ns, status.st_mtime_ns))
    with caplog.at_level(logging.WARNING):
        after = ShardListDataset(shards).column(".cls")
    assert after.tolist() == [9 if place >= 7 and v == 4 else v for place, v in enumerate(before)]
    assert files < set(kept(tmp_path))
    assert len(kept(tmp_path)) == 3


def test_a_shard_fetched_anew_has_its_column_made_anew(shards, shard_server, tmp_path):
    """A shard without a digest that was fetched again has its column computed again."""
    rows = [(shard_server.put("a.tar", shards[0].read_bytes()), 7)]
    assert ShardListDataset(rows).column(".cls").tolist() == [0, 1, 2, 3, 4, 0, 1]
    changed = shards[0].read_bytes().replace(b"4" + bytes(511), b"9" + bytes(511))
    shard_server.put("a.tar", changed)
    (shard,) = (tmp_path / "wids-cache").glob("*.tar")
    shard.write_bytes(b"damaged")
    dataset = ShardListDataset(rows)
    assert dataset[4][".cls"] == 9
    assert dataset.column(".cls").tolist() == [0, 1, 2, 3, 9, 0, 1]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    st.sampled_from([(".cls",), (".json", "text"), (".tokens.npy",)]),
    st.lists(st.tuples(st.integers(0, 5000), st.integers(1, 255)), max_size=3),
    st.integers(0, 5000) | st.none(),
)
def test_a_damaged_column_is_never_believed(shards, tmp_path, path, changes, end):
    """A damaged file of a column is replaced by values from the shard."""
    dataset = ShardListDataset(shards)
    expected = [np.asarray(value).tolist() for value in dataset.column(*path)]
    for file in kept(tmp_path):
        content = bytearray(file.read_bytes())
        for place, change in changes if content else ():
            content[place % len(content)] ^= change
        file.write_bytes(content[:end])
    column = ShardListDataset(shards).column(*path)
    assert [np.asarray(value).tolist() for value in column] == expected


def test_a_column_of_another_field_is_never_believed(shards, tmp_path, caplog):
    """A file with the column of another field is not used, and a log line says so."""
    dataset = ShardListDataset(shards[:1])
    dataset.column(".json", "label")
    (label,) = kept(tmp_path)
    dataset.column(".cls")
    (cls,) = set(kept(tmp_path)) - {label}
    cls.write_bytes(label.read_bytes())
    assert ShardListDataset(shards[:1]).column(".cls").tolist() == [0, 1, 2, 3, 4, 0, 1]
    assert "a stale or damaged column: made from" in caplog.text


def test_a_missing_field_is_an_error_that_names_it(shards):
    """The error names sample, key, shard, existing fields and `fill`."""
    dataset = ShardListDataset(shards)
    for _ in range(2):
        with pytest.raises(DecodeError) as caught:
            dataset.column(".seldom")
        message = str(caught.value)
        for word in ("sample 0", "'k000'", str(shards[0]), "no field '.seldom'", ".cls", "fill="):
            assert word in message
    with pytest.raises(DecodeError, match=r"sample 9, key 'k009', .* no value at \['most', 0\]"):
        dataset.column(".json", "most", 0)


def test_fill_stands_for_what_is_missing(shards):
    """`fill` replaces missing fields, missing keys and null."""
    dataset = ShardListDataset(shards, decoders={".seldom": lambda data: data.nbytes})
    assert dataset.column(".seldom", fill=0).tolist() == [int(n % 3 > 0) for n in range(19)]
    with pytest.warns(WidsWarning, match="no sample has a value 'nothing' in field '.json'"):
        assert dataset.column(".json", "nothing", fill=0.5).tolist() == [0.5] * 19
    with pytest.warns(WidsWarning, match="no sample has a field '.none'"):
        text = ShardListDataset(shards).column(".none", fill="-")
    assert (type(text), list(text)) == (RaggedText, ["-"] * 19)
    for _ in range(2):
        boxes = dataset.column(".json", "box", 1, fill=-1)
        assert boxes.tolist() == [1] * 19


@pytest.fixture
def damaged(make_shard):
    """Make a shard whose sample 1 has a malformed class."""
    classes = ["0", "cat", "2"]
    return [make_shard("a.tar", [{"__key__": f"k{i}", ".cls": c} for i, c in enumerate(classes)])]


def test_a_damaged_field_is_answered_as_the_dataset_says(damaged, tmp_path):
    """A damaged field is raised, replaced or missing, as `on_error` says."""
    with pytest.raises(DecodeError, match=r"field '\.cls' of sample 1, key 'k1', shard '.*a\.tar'"):
        ShardListDataset(damaged).column(".cls")
    for answer in (class_or_minus_one, {".cls": -1}):
        assert ShardListDataset(damaged, on_error=answer).column(".cls").tolist() == [0, -1, 2]
    assert kept(tmp_path) == []
    collecting = ShardListDataset(damaged, on_error="collect")
    for _ in range(2):
        assert collecting.column(".cls", fill=9).tolist() == [0, 9, 2]
    with pytest.raises(DecodeError):
        ShardListDataset(damaged).column(".cls", fill=9)


def test_decoders_of_the_user_count_and_nothing_is_kept(shards, tmp_path):
    """A user's decoder is used, and its column is not stored."""
    dataset = ShardListDataset(shards, decoders={".txt": shouted})
    assert dataset.column(".txt")[3] == "TEXT 3"
    assert kept(tmp_path) == []
    assert ShardListDataset(shards).column(".txt")[3] == "text 3"
    assert ShardListDataset(shards, decoders={".txt": shouted}).column(".txt")[3] == "TEXT 3"


def test_columns_count_for_the_bound_of_the_folder(shards, tmp_path):
    """Stored columns count for the bound of the cache folder."""
    dataset = ShardListDataset(shards, cache_size=200_000)
    for _ in range(2):
        for path in COLUMNS:
            assert len(dataset.column(*path)) == 19
        nbytes = sum(file.stat().st_size for file in (tmp_path / "wids-cache").glob("*.*"))
        assert nbytes <= 200_000


class Columns(Dataset):
    """Asks a dataset for a column in the worker."""

    def __init__(self, dataset):
        self.dataset = dataset

    def __len__(self):
        return 4

    def __getitem__(self, index):
        return self.dataset.column(".cls")[index]


def test_workers_ask_for_columns_at_once(shards):
    """Processes that compute the same column at once all get right values."""
    for _ in range(2):
        loader = DataLoader(Columns(ShardListDataset(shards)), batch_size=None, num_workers=2)
        assert [int(value) for value in loader] == [0, 1, 2, 3]


def test_a_damaged_value_that_was_only_collected_is_named_as_damaged(make_shard):
    """With `on_error="collect"`, a column that needs `fill` says why a value is missing."""
    path = make_shard("a.tar", [{"__key__": "a", ".cls": "1"}, {"__key__": "b", ".cls": "x"}])
    dataset = ShardListDataset([path], on_error="collect")
    for _ in range(2):  # made, and kept
        with pytest.raises(DecodeError, match=r"sample 1, key 'b'.*invalid literal.*fill="):
            dataset.column(".cls")
        assert dataset.column(".cls", fill=-1).tolist() == [1, -1]


def test_columns_are_of_the_version_of_the_samples(make_shard):
    """Where an open shard is replaced, its kept column is not used, and its samples stay."""

    def samples(order):
        return [{"__key__": f"k{number}", ".cls": str(number)} for number in order]

    path = make_shard("a.tar", samples(range(4)))
    dataset = ShardListDataset([str(path)])
    assert [sample[".cls"] for sample in dataset] == [0, 1, 2, 3]
    make_shard("b.tar", samples([3, 0, 2, 1])).replace(path)
    # Another program stores the column of the new file, which alone needs no open shard.
    assert list(ShardListDataset([str(path)]).column(".cls")) == [3, 0, 2, 1]
    for read in (lambda: dataset.column(".cls"), lambda: dataset.filter("cls = 0")):
        with pytest.raises(ShardChangedError, match=r"a\.tar: the shard was replaced"):
            read()
    assert [sample[".cls"] for sample in dataset] == [0, 1, 2, 3]


def test_null_is_missing(make_shard):
    """JSON's null counts as missing."""
    samples = [{"__key__": f"k{i}", ".json": text} for i, text in enumerate(["null", "[1]", "[]"])]
    dataset = ShardListDataset([make_shard("null.tar", samples)])
    assert dataset.column(".json", fill=0) == [0, [1], []]
    assert dataset.column(".json", 0, fill=0).tolist() == [0, 1, 0]


def test_pickles_are_refused_in_columns_too(make_shard, tmp_path):
    """Pickles are refused, also after a dataset that allows them."""
    path = make_shard("p.tar", [{"__key__": "a", ".pkl": pickle.dumps(3)}])
    assert ShardListDataset([path], allow_pickle=True).column(".pkl").tolist() == [3]
    with pytest.raises(DecodeError, match="allow_pickle=True"):
        ShardListDataset([path]).column(".pkl")
