"""Joins of tables: their columns are fields of the samples, as pyarrow and pandas read them."""

import datetime as dt
import decimal
import io
import json
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest
from helpers.pictures import plain
from helpers.server import ShardServer
from helpers.shards import MakeShard
from torch.utils.data import DataLoader

import wids
from wids.cli import main

Dataset = wids.ShardListDataset
COUNT = 12
KEYS = [f"k{number:02d}" for number in range(COUNT)]
ORDER = [5 * number % COUNT for number in range(COUNT)]  # of the rows of tables


def picture(number: int) -> bytes:
    return plain("PNG", (number + 1, 2))


def frame() -> pd.DataFrame:
    """Return a row for each sample, shuffled, with a column of each kind."""
    return pd.DataFrame(
        {
            "key": [KEYS[n] for n in ORDER],
            "uid": [f"u{n}" for n in ORDER],
            "caption": [None if n == 3 else f"caption {n}, grün" for n in ORDER],
            "width": [100 + n for n in ORDER],
            "score": [n / 4 for n in ORDER],
            "good": [n % 2 == 0 for n in ORDER],
            "box": [[n, n + 1] for n in ORDER],
            "png": [picture(n) for n in ORDER],
            "meta.json": [json.dumps({"deep": {"n": n}}) for n in ORDER],
        }
    )


@pytest.fixture
def dataset(make_shard: MakeShard, tmp_path: Path) -> Dataset:
    """Write twelve samples in shards of five."""
    rows = []
    for start in range(0, COUNT, 5):
        numbers = range(start, min(start + 5, COUNT))
        samples = [
            {"__key__": KEYS[n], ".cls": str(n), ".json": f'{{"uid": "u{n}"}}'} for n in numbers
        ]
        rows.append((str(make_shard(f"{start}.tar", samples)), len(samples)))
    return wids.ShardListDataset(rows, cache_dir=tmp_path / "cache")


def as_parquet(path: Path) -> Path:
    pyarrow.parquet.write_table(pa.table(frame()), path / "t.parquet", row_group_size=4)
    return path / "t.parquet"


def as_feather(path: Path, **options: Any) -> Path:
    pyarrow.feather.write_feather(pa.table(frame()), path / "t.arrow", chunksize=5, **options)
    return path / "t.arrow"


def as_stream(path: Path) -> str:
    table = pa.table(frame())
    with pa.OSFile(str(path / "s.arrow"), "wb") as file, pa.ipc.new_stream(file, table.schema) as s:
        s.write_table(table, max_chunksize=7)
    return str(path / "s.arrow")


def as_dict(_path: Path) -> dict[str, Any]:
    columns = {name: list(column) for name, column in frame().items()}
    return columns | {
        "caption": [text if isinstance(text, str) else None for text in frame().caption]
    }


class Frame:
    """A frame of another library, which hands out nothing but a stream of Arrow."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


def as_polars(_path: Path) -> Frame:
    """Return a frame with categories and texts as polars stores them."""
    table = pa.table(frame())
    uids = table["uid"].combine_chunks().cast(pa.string_view()).dictionary_encode()
    return Frame(
        table.set_column(1, "uid", uids).set_column(0, "key", table["key"].cast("string_view"))
    )


FORMS: dict[str, Callable[[Path], Any]] = {
    "pandas": lambda _path: frame(),
    "pandas with an index": lambda _path: frame().set_index("key"),
    "pyarrow": lambda _path: pa.table(frame()),
    "polars": as_polars,
    "dict": as_dict,
    "parquet": as_parquet,
    "feather": as_feather,
    "arrow": lambda path: as_feather(path, compression="uncompressed"),
    "arrow stream": as_stream,
}


@pytest.mark.parametrize("form", FORMS)
def test_columns_are_fields_of_the_samples(dataset: Dataset, tmp_path: Path, form: str) -> None:
    """Values are those of the table, pictures and JSON are decoded, a null is None."""
    joined = dataset.join(FORMS[form](tmp_path))
    for number, sample in enumerate(joined):
        assert sample["__key__"] == KEYS[number]
        assert (sample[".cls"], sample[".uid"]) == (number, f"u{number}")
        assert sample[".caption"] == (None if number == 3 else f"caption {number}, grün")
        assert (sample[".width"], sample[".score"]) == (100 + number, number / 4)
        assert sample[".good"] is (number % 2 == 0)
        assert list(sample[".box"]) == [number, number + 1]
        assert sample[".png"].size == (number + 1, 2)
        assert sample[".meta.json"] == {"deep": {"n": number}}
    assert joined.__getitems__([4, -1])[1][".uid"] == "u11"
    assert list(pickle.loads(pickle.dumps(joined))[2:5].column(".width")) == [102, 103, 104]
    assert joined.column(".width").tolist() == list(range(100, 112))
    assert joined.column(".good").dtype == np.bool_
    assert joined.column(".meta.json", "deep", "n").tolist() == list(range(COUNT))
    assert list(joined.column(".caption", fill="none"))[2:4] == ["caption 2, grün", "none"]
    assert joined.gather([3], ".png")[0].shape == (2, 4, 3)
    assert joined.column(".png", "width").tolist() == list(range(1, 13))
    assert joined.gather_bytes([7], ".png")[0].tobytes() == picture(7)
    batch = joined.gather_fields([5, 0])
    assert batch is not None
    assert batch[".width"].tolist() == [105, 100]
    assert batch[".uid"] == ["u5", "u0"]


def test_csv_keeps_codes_and_finds_numbers(dataset: Dataset, tmp_path: Path) -> None:
    """A column of numbers is one, an empty cell in it null; "007", words and inches stay text."""
    lines = ["key\tcode\tcount\tshare\tword\tinch\tbig"]
    for n in ORDER:
        share = "" if n == 4 else n / 8
        lines.append(f'{KEYS[n]}\t{n:03d}\t{n}\t{share}\t"a\n\t""{n}"\t5" {n}\t{n}{10**19}')
    (tmp_path / "t.tsv").write_text("\ufeff" + "\n".join(lines))
    sample = dataset.join(tmp_path / "t.tsv")[5]
    found = [sample[name] for name in (".code", ".count", ".share", ".word", ".inch", ".big")]
    assert found == ["005", 5, 0.625, 'a\n\t"5', '5" 5', f"5{10**19}"]
    assert dataset.join(tmp_path / "t.tsv")[4][".share"] is None
    columns = [name for name in frame() if name not in {"png", "box"}]
    frame()[columns].to_csv(tmp_path / "t.csv", index=False)
    joined = dataset.join(tmp_path / "t.csv", fields=["caption", ".width"])
    assert (joined[5][".caption"], joined[5][".width"]) == ("caption 5, grün", 105)
    assert ".uid" not in joined[5]


def test_csv_keeps_the_digits_of_whole_numbers(dataset: Dataset, tmp_path: Path) -> None:
    """One of more than 64 bits makes its column text; other numbers are the nearest floats."""
    rows = [f"{key},{2**63},{0.1 + 0.2},{2**53 + 1}" for key in KEYS[1:]]
    rows.append(f"{KEYS[0]},1,0.12345678901234567890,{-(2**63)}")
    (tmp_path / "t.csv").write_text("\n".join(["key,long,float,whole", *rows]))
    joined = dataset.join(tmp_path / "t.csv")
    assert (joined[0][".long"], joined[1][".long"]) == ("1", str(2**63))
    assert (joined[0][".float"], joined[1][".float"]) == (0.12345678901234567890, 0.1 + 0.2)
    assert (joined[0][".whole"], joined[1][".whole"]) == (-(2**63), 2**53 + 1)


@pytest.mark.parametrize(
    ("cells", "line"),
    [(['"1', "2"], 2), (["0", '"1', '"2', "3"], 3), (["0", '"1"x', "2", '"3\n"'], 3)],
)
def test_a_quote_that_is_not_closed_takes_no_rows(
    dataset: Dataset, tmp_path: Path, cells: list[str], line: int
) -> None:
    """It is an error with its line, also where samples without a row are dropped."""
    rows = [f"{key},{cell}" for key, cell in zip(KEYS, cells, strict=False)]
    (tmp_path / "t.csv").write_text("\n".join(["key,value", *rows]) + "\n")
    with pytest.raises(ValueError, match=rf"t\.csv: line {line}, or a row that begins there"):
        dataset.join(tmp_path / "t.csv", missing="drop")


def test_arrays_are_in_the_order_of_the_samples(dataset: Dataset, tmp_path: Path) -> None:
    """A file gives its name to the field; rows of numbers are arrays; the length must agree."""
    np.save(tmp_path / "score.npy", np.arange(COUNT) / 2)
    np.save(tmp_path / "latent.npy", np.arange(COUNT * 6, dtype=">f4").reshape(COUNT, 2, 3))
    joined = dataset.join(tmp_path / "score.npy").join(str(tmp_path / "latent.npy"))
    assert joined[3][".score"] == 1.5
    latent = joined[3][".latent.npy"]
    latent += 1  # a copy, as everywhere
    assert latent.tolist() == [[19, 20, 21], [22, 23, 24]]
    assert joined.gather([3, 1], ".latent.npy").shape == (2, 2, 3)
    raw = joined.read_raw(3)[".latent.npy"]
    assert np.load(io.BytesIO(raw)).tolist() == [[18, 19, 20], [21, 22, 23]]
    assert pickle.loads(pickle.dumps(joined))[11][".latent.npy"][1, 2] == 71
    assert dataset[::-1].join(np.arange(COUNT))[0][".npy"] == 0
    pairs = np.array([(n, n / 2) for n in range(COUNT)], [("a", "i4"), ("b", "f8")])
    assert dataset.join(pairs, aligned=True)[4][".b"] == 2.0
    assert dataset.join({"x": list(range(COUNT))}, aligned=True)[4][".x"] == 4
    with pytest.raises(ValueError, match=r"each of 5 samples"):
        dataset[:5].join(tmp_path / "score.npy")
    days = np.array(["2021-05-01", "NaT"] * 6, "datetime64[ns]")  # which are no integers
    joined = dataset.join({"key": KEYS, "day": days})
    assert [s[".day"] for s in joined[:2]] == [dt.datetime.fromisoformat("2021-05-01"), None]
    with pytest.raises(ValueError, match="single value"):
        dataset.join(np.array(3))


def test_samples_are_found_by_a_column_or_a_field(dataset: Dataset) -> None:
    """`on` names the column of keys, or the field and the column that are equal."""
    table = frame().rename(columns={"key": "image"})
    assert dataset.join(table, on="image")[2][".caption"] == "caption 2, grün"
    for on in ((".json:uid", "uid"), ".json:uid"):
        joined = dataset.join(table, on=on, fields=["width"], rename={"width": ".size"})
        assert [sample[".size"] for sample in joined] == list(range(100, 112))
    numbers = {"number": ORDER, "x": [n * 2 for n in ORDER]}
    assert dataset.join(numbers, on=(".cls", "number"))[7][".x"] == 14
    with pytest.warns(wids.WidsWarning, match="12 of 12 samples have no row"):
        shards = dataset.join({"key": np.array([1]), "x": [1]}, missing="fill")
    assert shards[1][".x"] is None
    gaps = dataset.join({"key": ["3"], "y": ["u3"]}, on=(".cls", "key"), missing="fill")
    assert gaps.join({"uid": ["u3"], "z": [1]}, on=(".y", "uid"), missing="drop")[0][".cls"] == 3


def test_what_the_table_or_the_samples_lack_is_named(dataset: Dataset) -> None:
    """Columns and fields that are not there, and two columns of one field, are errors."""
    for options in ({"fields": ["captoin"]}, {"on": "id"}, {"rename": {"txt": ".x"}}):
        with pytest.raises(ValueError, match="the table has no column '.*'uid'"):
            dataset.join(frame(), **options)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no column 'key'; on= .*aligned=True"):
        dataset.join(frame().rename(columns={"key": "image"}))
    with pytest.raises(ValueError, match="on: no sample has a value 'uidd'"):
        dataset.join(frame(), on=(".json:uidd", "uid"))
    with pytest.raises(ValueError, match="'uid' and 'width' would both be"):
        dataset.join(frame(), rename={"uid": ".width"})
    for right, rename in ((frame(), {"uid": "x"}), (dataset, {".cls": "label"})):
        with pytest.raises(ValueError, match="rename: a field begins with a dot"):
            dataset.join(right, rename=rename)
    table = {"key": KEYS, "cls": [n * 10 for n in range(COUNT)]}
    with pytest.raises(ValueError, match=r"join: both .* '\.cls'; .*rename"):
        dataset.join(table)
    assert dataset.join(table, replace=True).column(".cls").tolist()[3] == 30


def test_equal_numbers_of_different_types_are_joined(make_shard: MakeShard) -> None:
    """Integers equal floats, decimals and texts of the same number, as in filters; also as keys."""
    samples = [{"__key__": str(n), ".cls": str(n), ".half.json": str(n / 2)} for n in range(6)]
    dataset = wids.ShardListDataset([str(make_shard("n.tar", samples))])
    floats = pyarrow.table({"n": [5.0, 3.0, 9.5, None], "x": ["five", "three", "no", "null"]})
    found = dataset.join(floats, on=(".cls", "n"), missing="drop")
    assert [(sample[".cls"], sample[".x"]) for sample in found] == [(3, "three"), (5, "five")]
    keys = dataset.join(floats.rename_columns(["key", "x"]), missing="drop")
    assert [(sample["__key__"], sample[".x"]) for sample in keys] == [("3", "three"), ("5", "five")]
    batch = keys.gather_fields([0, 1])
    assert batch is not None
    assert batch["__key__"] == ["3", "5"]
    for numbers in ([decimal.Decimal("2.50"), decimal.Decimal(2)], ["2.50", "2"], [2.5, 2]):
        halves = dataset.join({"n": numbers, "x": [0, 1]}, on=(".half.json", "n"), missing="drop")
        assert [(sample[".cls"], sample[".x"]) for sample in halves] == [(4, 1), (5, 0)]
    assert [s[".cls"] for s in dataset.select_keys(["5.0", "1"], column=".cls")] == [5, 1]
    assert [s[".cls"] for s in dataset.select_keys(["1"], column=".half.json")] == [2]


def test_missing_rows_are_an_error_left_out_or_none(dataset: Dataset, tmp_path: Path) -> None:
    """The message says how many, and names the first key, and what the table begins with."""
    table = frame()[frame().key.isin(["k02", "k07", "k09"])]
    with pytest.raises(ValueError, match=r"9 of 12 samples .*'k00'; column 'key' begins.*drop"):
        dataset.join(table)
    some = dataset.join(table, missing="drop")
    assert [(s["__key__"], s[".width"], s["__index__"]) for s in some] == [
        ("k02", 102, 0),
        ("k07", 107, 1),
        ("k09", 109, 2),
    ]
    filled = dataset.join(table, missing="fill")
    assert [sample[".width"] for sample in filled][:3] == [None, None, 102]
    assert filled.column(".width", fill=-1).tolist()[:3] == [-1, -1, 102]
    assert list(filled.column(".width"))[:3] == [None, None, 102]
    assert filled.gather([2, 0], ".width") == [102, None]
    assert ".width" not in filled.read_raw(0)
    assert filled.field_sizes(0) == dataset.field_sizes(0)
    assert len(filled.filter("width > 102")) == 2
    assert filled.__getitems__([0])[0][".caption"] is None
    raw = dataset.with_options(transformations="bytes").join(table, missing="fill")
    assert raw[0][".width"] is None
    assert raw[2][".width"] == b"102"
    assert raw.gather_fields([0]) is None
    with pytest.raises(ValueError, match=r"12 of 12 samples.*\.json:uid 'u0'"):
        dataset.join({"uid": ["none"], "x": [1]}, on=".json:uid")
    empty = frame().iloc[:0]
    assert len(dataset.join(empty, missing="drop")) == 0
    assert dataset.join(empty, missing="fill")[3][".width"] is None
    assert len(dataset.join(empty, missing="fill").filter("width is null")) == COUNT
    nothing = dataset.join({"key": [], "width": []}, missing="fill")
    assert len(nothing.filter("width is null")) == COUNT
    pyarrow.parquet.write_table(
        pa.table({"key": pa.array([], pa.string())}), tmp_path / "t.parquet"
    )
    assert len(dataset.join(tmp_path / "t.parquet", missing="fill")) == COUNT
    with pytest.raises(ValueError, match="12 of 12 samples have no row"):
        dataset.join(empty)


def test_double_keys_are_an_error_if_samples_have_them(dataset: Dataset) -> None:
    """Two rows of one key are named; rows that no sample looks for, and null keys, may be many."""
    table = {"key": [*KEYS, "k05", "other", "other", None, None], "x": list(range(17))}
    with pytest.raises(ValueError, match="rows 5 and 12 of the table both have 'k05'"):
        dataset.join(table)
    table["key"][12] = "k99"
    assert dataset.join(table).column(".x").tolist() == list(range(COUNT))
    double = {"uid": ["u1", "u1"], "x": [1, 2]}
    with pytest.raises(ValueError, match="rows 0 and 1 .*'u1' in column 'uid'"):
        dataset.join(double, on=".json:uid", missing="fill")


def test_files_that_are_no_tables_are_refused(dataset: Dataset, tmp_path: Path) -> None:
    """By their name, or by what is in them; columns of other lengths are none of one table."""
    for name in ("t.xlsx", "t.parquet", "t.arrow", "t.csv"):
        (tmp_path / name).write_bytes(b"PAR1 no table" if name != "t.csv" else b"")
        with pytest.raises(ValueError, match=name):
            dataset.join(tmp_path / name)
    os.mkfifo(tmp_path / "pipe.csv")  # whose writer would be waited for
    with pytest.raises(wids.SpecError, match=r"pipe\.csv: expected a table as a file"):
        dataset.join(tmp_path / "pipe.csv")
    with pytest.raises(ValueError, match="columns of one length"):
        dataset.join({"key": KEYS, "x": [1]})
    with pytest.raises(FileNotFoundError):
        dataset.join(tmp_path / "none.parquet")


@pytest.mark.parametrize(
    "column",
    [
        pa.array([2**30] * len(KEYS), pa.date32()),
        pa.array([2**62] * len(KEYS), pa.timestamp("s")),
        pa.array([0] * len(KEYS), pa.timestamp("s", tz="Nowhere/City")),
    ],
)
def test_dates_that_python_lacks_are_errors_of_the_table(
    dataset: Dataset, tmp_path: Path, column: pa.Array
) -> None:
    """A sample, a batch and a column say so; the table's other columns are read."""
    pyarrow.feather.write_feather(
        pa.table({"key": KEYS, "date": column, "cap": KEYS}), tmp_path / "t.arrow"
    )
    joined = dataset.join(tmp_path / "t.arrow")
    for read in (joined.__getitem__, lambda index: joined.gather([index], ".date")):
        with pytest.raises(wids.SpecError, match="Python has no value for this"):
            read(0)
    assert list(joined.column(".cap")) == KEYS


def numbers_in(view: Any) -> list[int]:
    """Return the rows of the dataset that a view has, without reading a shard."""
    rows: list[int] = view.slots[0].rows.array().tolist()
    return rows


def test_columns_are_chosen_by_without_a_shard(dataset: Dataset, tmp_path: Path) -> None:
    """Filters, orders, strata and columns of a joined field read no tar."""
    joined = dataset.join(as_parquet(tmp_path))
    for path in tmp_path.glob("*.tar"):
        shutil.move(path, f"{path}.away")
    dataset.close()
    shutil.rmtree(tmp_path / "cache")
    assert numbers_in(joined.filter("width >= 104 and good = true")) == [4, 6, 8, 10]
    assert len(joined.filter("contains(caption, 'grün') and not uid in ('u1', 'u2')")) == 9
    found = joined.filter('"meta.json".deep.n < 2 or score = 2.75')
    assert numbers_in(found) == [0, 1, 11]
    assert numbers_in(joined.filter("list_contains(box, 5)")) == [4, 5]
    assert numbers_in(joined.filter("score > 2 and box[2] = 11")) == [10]
    order = numbers_in(joined.order_by("uid desc"))
    assert order[:3] == [9, 8, 7]
    parts = joined.split(by="sample", stratify=".good", a=0.5, b=0.5)
    assert parts["a"].column(".good").sum() == 3
    numbers = joined[2:9].filter(lambda width: width % 2 == 1, ".width")
    assert numbers.column(".width").tolist() == [103, 105, 107]


def test_raw_samples_have_raw_fields(dataset: Dataset, tmp_path: Path) -> None:
    """Bytes where the dataset reads bytes, streams where it decodes nothing."""
    table = as_parquet(tmp_path)
    for kind in ("bytes", "memoryview"):
        raw = dataset.with_options(transformations=kind).join(table)
        assert bytes(raw[3][".width"]) == b"103"
        assert bytes(raw[4][".box"]) == b"[4,5]"
        assert bytes(raw[4][".png"]) == picture(4)
        batch = raw[4:].gather_fields([0, 1])
        assert batch is not None
        assert [bytes(each) for each in batch[".width"]] == [b"104", b"105"]
    streams = dataset.join(table).with_options(transformations=[], fields=[".cls", ".caption"])
    assert sorted(name for name in streams[2] if name[0] == ".") == [".caption", ".cls"]
    assert streams[2][".caption"].read().decode() == "caption 2, grün"
    upper = dataset.with_options(decoders={".uid": lambda data: bytes(data).upper()}).join(table)
    assert upper[2][".uid"] == b"U2"
    assert list(upper.gather([2], ".uid")) == [b"U2"]


def test_a_renamed_column_leaves_the_field_of_its_old_name_to_the_shards(
    make_shard: MakeShard,
) -> None:
    """A column that a join renamed is no reason to read a field of a shard as that of a table."""
    keys = ["a", "b", "c"]
    documents = [b'{"n": 3}', b'{"n": 4}', b"{damaged"]
    left = wids.ShardListDataset(
        make_shard(
            "left.tar",
            [{"__key__": key, ".json": one} for key, one in zip(keys, documents, strict=True)],
        )
    )
    right = wids.ShardListDataset(
        make_shard("right.tar", [{"__key__": key, ".txt": b"x"} for key in keys])
    )
    with_table = right.join({"key": keys, "json": [{"n": 5}, {"n": 6}, {"n": 7}]})
    joined = left.join(with_table, rename={".json": ".other.json"})
    with pytest.warns(wids.WidsWarning, match="1 damaged"):
        assert list(joined.filter("json.n is distinct from 3").keys) == ["b", "c"]
    assert list(joined.filter('"other.json".n > 5').keys) == ["b", "c"]


def test_damaged_values_are_answered_like_fields(dataset: Dataset) -> None:
    """The error names field, sample and key; `on_error` of the dataset may replace the value."""
    table = {"key": KEYS, "json2.json": ["{"] * COUNT}
    with pytest.raises(wids.DecodeError, match=r"'\.json2\.json' of sample 3, key 'k03'"):
        dataset.join(table)[3]
    forgiving = dataset.with_options(on_error={".json2.json": 0}).join(table)
    assert forgiving[3][".json2.json"] == 0
    assert forgiving.column(".json2.json").tolist() == [0] * COUNT


def test_a_file_that_changed_is_refused_by_its_name(dataset: Dataset, tmp_path: Path) -> None:
    """A pickled join is small, reads the file of the table again, and notices another one."""
    path = tmp_path / "t.parquet"
    table = pa.table({"key": KEYS, "text": ["x" * 100_000] * COUNT})
    pyarrow.parquet.write_table(table, path)
    image = pickle.dumps(dataset.join(path))
    assert len(image) < 16_000
    assert pickle.loads(image)[0][".text"] == "x" * 100_000
    os.utime(path, ns=(1, 1))
    with pytest.raises(wids.SpecError, match="t.parquet: the table has changed since"):
        pickle.loads(image)
    path.unlink()
    with pytest.raises(FileNotFoundError, match=r"t\.parquet"):
        pickle.loads(image)


def test_large_tables_in_memory_are_shared(dataset: Dataset) -> None:
    """What is large is pickled as the path of a file, which lasts as long as the table."""
    blobs = [bytes([n]) * 9000 for n in range(COUNT)]
    table = {
        "key": KEYS,
        "bin": pa.array(blobs),
        "n": np.arange(COUNT),
        "o": [{"a": n} for n in range(COUNT)],
    }
    joined = dataset.join(table)
    image = pickle.dumps(joined)
    assert len(image) < 16_000
    copy = pickle.loads(image)
    assert copy[3][".bin"].read() == blobs[3]
    assert (copy[3][".n"], copy[3][".o"]) == (3, {"a": 3})
    loader = DataLoader(joined, batch_size=4, num_workers=1, collate_fn=list)
    assert [sample[".n"] for batch in loader for sample in batch] == list(range(COUNT))
    del joined, loader
    with pytest.raises(wids.WidsError, match="join a table in a file"):
        pickle.loads(image)


def test_an_uncompressed_arrow_file_is_mapped(dataset: Dataset, tmp_path: Path) -> None:
    """Its values take no memory of the process."""
    table = pa.table({"key": KEYS, "text": ["x" * 1_000_000] * COUNT})
    pyarrow.feather.write_feather(table, tmp_path / "t.arrow", compression="uncompressed")
    before = pa.total_allocated_bytes()
    joined = dataset.join(tmp_path / "t.arrow")
    assert joined[3][".text"] == "x" * 1_000_000
    assert pa.total_allocated_bytes() - before < 1_000_000


def test_a_join_of_a_join_is_joined_again(dataset: Dataset, tmp_path: Path) -> None:
    """Tables join views, concatenations and joins alike."""
    first = dataset.join(frame(), fields=["width"])
    second = (first[:4] + first[8:]).join(as_parquet(tmp_path), fields=["caption"])
    assert second[5][".caption"] == "caption 9, grün"
    assert second[5][".width"] == 109
    assert list(second.filter("width >= 109 and contains(caption, '1')").keys) == ["k10", "k11"]
    assert second.column(".width").tolist() == [100, 101, 102, 103, 108, 109, 110, 111]


def write_tables(folder: Path) -> None:
    """Write tables and statistics beside the shards, as img2dataset does: failed rows, too."""
    for start in range(0, COUNT, 5):
        numbers = [*range(start, min(start + 5, COUNT)), 100 + start]
        failed = [number >= 100 for number in numbers]
        table = {
            "url": [f"https://host/{number}.jpg" for number in numbers],
            "key": [f"k{number:02d}" for number in numbers],
            "status": ["failed_to_download" if each else "success" for each in failed],
            "error_message": ["404" if each and start else None for each in failed],
            "width": [None if each else n for n, each in zip(numbers, failed, strict=True)],
        }
        kinds = {"error_message": pa.string() if start else pa.null()}
        columns = {name: pa.array(column, kinds.get(name)) for name, column in table.items()}
        pyarrow.parquet.write_table(pa.table(columns), folder / f"{start}.parquet")
        (folder / f"{start}_stats.json").write_text(json.dumps({"count": 6, "successes": 5}))


def test_tables_beside_shards(dataset: Dataset, tmp_path: Path) -> None:
    """Each shard's own table gives its samples their columns; rows that failed are passed over."""
    write_tables(tmp_path)
    for samples in (dataset, wids.ShardListDataset(tmp_path, cache_dir=tmp_path / "cache")):
        joined = samples.join_tables("{shard}.parquet")
        assert len(joined) == COUNT
        assert (joined.column(".width") == joined.column(".cls")).all()
        by_key = joined.get("k07")
        assert (by_key[".width"], by_key[".url"]) == (7, "https://host/7.jpg")
        assert by_key[".error_message"] is None
        assert len(joined.filter("status = 'success' and width > 8")) == 3
    view = dataset[::-2].join_tables("./{shard}.parquet", fields=["width"], rename={"width": ".w"})
    assert [sample[".w"] for sample in view] == [11, 9, 7, 5, 3, 1]
    assert pickle.loads(pickle.dumps(view))[1][".w"] == 9
    files = [tmp_path / f"{start}.parquet" for start in range(0, COUNT, 5)]
    assert dataset.join(files, fields=["width"]).column(".width").tolist() == list(range(COUNT))
    both = (dataset[:2] + dataset[6:8]).join_tables(f"{tmp_path}/{{shard}}.parquet")
    assert both.column(".width").tolist() == [0, 1, 6, 7]
    path = tmp_path / "5.parquet"
    pyarrow.parquet.write_table(pyarrow.parquet.read_table(path).drop_columns(["width"]), path)
    with pytest.warns(wids.WidsWarning, match=r"no sample gets 'width'.*1 of 3 lack.*/5\.parquet"):
        joined = dataset.join_tables("{shard}.parquet")
    assert ".width" not in joined[0]
    assert dataset.join_tables("{shard}.parquet", fields=["url"])[7][".url"]
    shutil.copy(tmp_path / "0.parquet", tmp_path / "10.parquet")
    with pytest.raises(ValueError, match=r"rows 2 and 14 .*\(counted through .*'k02'"):
        dataset.join_tables("{shard}.parquet", fields=["url"], missing="drop")


def test_texts_in_lists_and_structs_of_several_row_groups(dataset: Dataset, tmp_path: Path) -> None:
    """Each group of rows has a dictionary of its own for the texts."""
    tags = [[f"tag {n}"] * (n % 3) for n in range(COUNT)]
    boxes = [None if n % 4 == 0 else {"name": f"box {n}"} for n in range(COUNT)]
    table = pa.table({"key": KEYS, "tags": tags, "box": boxes})
    pyarrow.parquet.write_table(table, tmp_path / "t.parquet", row_group_size=5)
    joined = dataset.join(tmp_path / "t.parquet")
    assert [(s[".tags"], s[".box"]) for s in joined] == list(zip(tags, boxes, strict=True))


def test_a_list_of_one_table_is_saved(dataset: Dataset, tmp_path: Path) -> None:
    """A view opens again whose list has one file, or that found one table beside its shards."""
    write_tables(tmp_path)
    for number in (5, 10):
        (tmp_path / f"{number}.parquet").unlink()
    listed = dataset[:5].join([tmp_path / "0.parquet"], fields=["width"])
    beside = dataset.join_tables("{shard}.parquet", fields=["width"], missing="drop")
    for number, joined in enumerate((listed, beside)):
        joined.save(tmp_path / f"{number}.json")
        again = wids.open(tmp_path / f"{number}.json", cache_dir=tmp_path / "cache")
        assert again.column(".width").tolist() == list(range(5))
    (tmp_path / "0.parquet").write_bytes(as_parquet(tmp_path).read_bytes())
    with pytest.raises(wids.SpecError, match="has changed since it was joined"):
        wids.open(tmp_path / "1.json", cache_dir=tmp_path / "cache")


def test_csv_files_beside_shards_are_one_table(make_shard: MakeShard, tmp_path: Path) -> None:
    """Whether a column has numbers or texts is decided by the cells of all files together."""
    keys = [["007", "12"], ["1000", "1001"], ["a7"]]
    for number, some in enumerate(keys):
        make_shard(f"{number}.tar", [{"__key__": key, ".cls": "0"} for key in some])
        lines = [f"{key},{2**60 + 1},{number}{'.5' * (number == 1)}" for key in some]
        (tmp_path / f"{number}.csv").write_text("\n".join(["key,uid,size", *lines]))
    shards = [(str(tmp_path / f"{number}.tar"), len(some)) for number, some in enumerate(keys)]
    dataset = wids.ShardListDataset(shards, cache_dir=tmp_path / "cache")
    joined = dataset.join_tables("{shard}.csv", fields=["uid"])
    assert [(s["__key__"], s[".uid"]) for s in joined] == [
        (key, 2**60 + 1) for some in keys for key in some
    ]
    whole = dataset.join_tables("{shard}.csv", fields=["size"])
    assert whole.column(".size").tolist() == [0.0, 0.0, 1.5, 1.5, 2.0]
    whole.save(tmp_path / "view.json")
    again = wids.open(tmp_path / "view.json", cache_dir=tmp_path / "cache")
    assert again.column(".size").tolist() == [0.0, 0.0, 1.5, 1.5, 2.0]


def test_tables_that_are_missing_are_named(dataset: Dataset, tmp_path: Path) -> None:
    """The message names the first file; "drop" and "fill" do without."""
    write_tables(tmp_path)
    (tmp_path / "5.parquet").unlink()
    with pytest.raises(ValueError, match=r"1 of 3 tables are not there.*/5\.parquet"):
        dataset.join_tables("{shard}.parquet")
    dropped = dataset.join_tables("{shard}.parquet", missing="drop")
    assert dropped.column(".width").tolist() == [0, 1, 2, 3, 4, 10, 11]
    assert dataset.join_tables("{shard}.parquet", missing="fill")[7][".width"] is None
    with pytest.raises(ValueError, match=r"3 of 3 tables are not there"):
        dataset.join_tables("none/{shard}.parquet", missing="drop")
    with pytest.raises(ValueError, match=r"expected a pattern such as '\{shard\}.parquet'"):
        dataset.join_tables("0.parquet")


@pytest.fixture
def saved(dataset: Dataset, tmp_path: Path) -> Path:
    """Save a filtered join of a file of a table, with samples that have no row."""
    as_parquet(tmp_path)
    some = dataset.join(tmp_path / "t.parquet", fields=["width"], rename={"width": ".w"})
    few = frame()[frame().key > "k03"][["key", "caption"]]
    few.to_csv(tmp_path / "few.csv", index=False)
    some[2:].join(tmp_path / "few.csv", missing="fill").save(tmp_path / "view.json")
    return tmp_path / "view.json"


def test_a_saved_join_names_its_tables(saved: Path, tmp_path: Path) -> None:
    """It opens in another folder, with the same fields; a changed table is refused by its name."""
    moved = tmp_path / "moved"
    moved.mkdir()
    for path in tmp_path.glob("*.*"):
        shutil.copy(path, moved)
    for home in (tmp_path, moved):
        view = wids.open(home / "view.json")
        assert [sample[".w"] for sample in view] == list(range(102, 112))
        assert [sample[".caption"] for sample in view][:3] == [None, None, "caption 4, grün"]
        assert pickle.loads(pickle.dumps(view))[4][".w"] == 106
    document = json.loads((moved / "view.json").read_text())
    assert str(tmp_path) not in json.dumps(document["datasets"])
    table = pyarrow.parquet.read_table(moved / "t.parquet")
    pyarrow.parquet.write_table(table.slice(1), moved / "t.parquet")
    with pytest.raises(wids.SpecError, match=r"moved/t\.parquet: the table has changed"):
        wids.open(moved / "view.json")
    (moved / "t.parquet").unlink()
    with pytest.raises(wids.SpecError, match=r"moved/t\.parquet"):
        wids.open(moved / "view.json")
    table = next(each for each in document["datasets"] if "table" in each)
    for change in ({"fields": {".w": "none"}}, {"key": "none"}, {"digest": 3}):
        table_before = dict(table)
        table |= change
        (tmp_path / "view.json").write_text(json.dumps(document))
        with pytest.raises(wids.SpecError, match=r"view\.json"):
            wids.open(tmp_path / "view.json")
        table |= table_before


def test_saved_joins_of_all_kinds_open(
    dataset: Dataset, tmp_path: Path, make_shard: MakeShard
) -> None:
    """Tables beside shards, arrays in order, fields as keys, and samples without counterparts."""
    write_tables(tmp_path)
    np.save(tmp_path / "score.npy", np.arange(COUNT))
    as_parquet(tmp_path)
    texts = [{"__key__": KEYS[n], ".txt": f"t{n}"} for n in (1, 3)]
    other = wids.ShardListDataset([(str(make_shard("other.tar", texts)), 2)])
    joins = {
        "beside": dataset.join_tables("{shard}.parquet", fields=["url"]),
        "npy": dataset.join(tmp_path / "score.npy"),
        "field": dataset.join(tmp_path / "t.parquet", on=".json:uid", fields=["width"]),
        "filled": dataset.join(other, missing="fill"),
    }
    for name, joined in joins.items():
        joined.save(tmp_path / f"{name}.json")
        assert list(wids.open(tmp_path / f"{name}.json")) == list(joined)
    pyarrow.parquet.write_table(pa.table({"key": KEYS, "url": KEYS}), tmp_path / "0.parquet")
    with pytest.raises(wids.SpecError, match=r"/0\.parquet and 2 more: the tables have changed"):
        wids.open(tmp_path / "beside.json")
    with pytest.raises(TypeError, match="a table in memory cannot be saved: write it to a file"):
        dataset.join(frame()).save(tmp_path / "memory.json")


def test_filters_compare_every_kind_of_value(dataset: Dataset) -> None:
    """Dates compare with texts in ISO's form, decimals with all digits."""
    days = [dt.datetime(2020, 1, n + 1) for n in range(3)]  # noqa: DTZ001 (dates without zone)
    hours = [None, *(dt.datetime(2020, 1, 1, n, tzinfo=dt.UTC) for n in (1, 2))]
    numbers = [decimal.Decimal(text) for text in ("0.1", f"0.1{'0' * 24}1", "2")]
    table = pa.table(
        {
            "key": KEYS[:3],
            "when": days,
            "zone": pa.array(hours, pa.timestamp("us", "UTC")),
            "exact": numbers,
            "size": [{"depth": number} for number in numbers],
            "good": [True, False, True],
            "word": ["True", "false", "x"],
        }
    )
    joined = dataset[:3].join(table)
    for condition, found in {
        "\"when\" > '2020-01-01'": [1, 2],
        'year("when") = 2020 and day("when") < 3': [0, 1],
        "zone = '2020-01-01 01:00'": [1],
        "exact = 0.1": [0],
        "exact <= 0.10000000000000000000000001": [0, 1],
        "size.depth > 0.1": [1, 2],
        "good = true and word = 'True'": [0],
    }.items():
        assert list(joined.filter(condition).keys) == [KEYS[n] for n in found], condition


def test_parts_of_a_concatenation_have_fields_of_their_own_tables(dataset: Dataset) -> None:
    """A field that one part has in its shards, and another one of a table, is read of each."""
    scored = dataset.join({"key": KEYS, "n": range(len(KEYS))})
    table = {"key": KEYS, "cls": [100 + n for n in range(len(KEYS))]}
    told = dataset.with_options(fields=[".json"]).join(table)
    both = wids.concat([scored, told])
    for name in (".cls", ".n"):
        expected = [sample.get(name, -1) for sample in both]
        assert list(both.column(name, fill=-1)) == expected
    count = len(dataset)
    assert list(both.gather([count, 1], ".cls")) == [100, 1]


def test_rows_in_order_must_have_the_keys(dataset: Dataset) -> None:
    """With `aligned`, a table whose own keys are in another order is refused."""
    table = {"key": KEYS, "n": list(range(COUNT))}
    assert dataset.join(table, aligned=True)[5][".n"] == 5
    with pytest.raises(ValueError, match="row 0 of the table has the key 'k11'"):
        dataset.join(table | {"key": KEYS[::-1]}, aligned=True)
    with pytest.raises(ValueError, match=r"each of 12 samples.*the table has 11"):
        dataset.join({name: table[name][1:] for name in table}, aligned=True)


def test_a_relative_table_moves_with_the_view(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table beside the folder of the document is found after both were moved."""
    monkeypatch.chdir(tmp_path)
    for name in ("old/tables", "old/views"):
        Path(name).mkdir(parents=True)
    as_parquet(Path("old/tables"))
    dataset.join("old/tables/t.parquet").save("old/views/wide.json")
    shutil.move("old", "new")
    document = json.loads(Path("new/views/wide.json").read_text())
    assert document["datasets"][1]["table"] == "../tables/t.parquet"
    assert wids.open("new/views/wide.json")[4][".width"] == 104


@pytest.fixture
def served(dataset: Dataset, tmp_path: Path, shard_server: ShardServer) -> Dataset:
    """Serve the shards and a table beside each of them, and open them through a new cache."""
    write_tables(tmp_path)
    shards = [shard["url"] for shard in dataset.shards]
    assert main(["create", *shards, "-o", str(tmp_path / "spec.json"), "--sidecars"]) == 0
    for path in tmp_path.iterdir():
        if path.is_file():
            shard_server.put(f"set/{path.name}", path.read_bytes())
    rows = [(f"{shard_server.url}/set/{shard}.tar", count) for shard, count in SHARDS]
    return wids.ShardListDataset(rows, cache_dir=tmp_path / "far", remote="range")


SHARDS = [("0", 5), ("5", 5), ("10", 2)]


def test_tables_beside_remote_shards_are_fetched(
    served: Dataset, shard_server: ShardServer, tmp_path: Path
) -> None:
    """Each is fetched once into the cache folder; filters on columns fetch no shard."""
    joined = served.join_tables("{shard}.parquet")
    assert joined.filter("width >= 8").column(".width").tolist() == [8, 9, 10, 11]
    assert joined[7][".width"] == 7
    asked = [request.path for request in shard_server.requests]
    assert sum(path.endswith(".parquet") for path in asked) == 3
    again = wids.ShardListDataset(
        [s["url"] for s in served.shards], cache_dir=tmp_path / "far", remote="range"
    )
    assert again.join_tables("{shard}.parquet").column(".width").tolist() == list(range(12))
    asked = [request.path for request in shard_server.requests[len(asked) :]]
    assert not any(path.endswith(".parquet") for path in asked)
    joined[4:].save(tmp_path / "far.json")
    opened = wids.open(tmp_path / "far.json", cache_dir=tmp_path / "other", remote="range")
    assert opened.column(".width").tolist() == list(range(4, 12))


def test_no_shard_is_fetched_for_its_keys(
    served: Dataset, shard_server: ShardServer, tmp_path: Path
) -> None:
    """Keys come from the sidecars beside remote shards, also where shards are read whole."""
    rows = [(shard["url"], shard["nsamples"]) for shard in served.shards]
    dataset = wids.ShardListDataset(rows, cache_dir=tmp_path / "whole")
    wide = dataset.join_tables("{shard}.parquet").filter("width >= 8")
    assert list(wide.keys) == KEYS[8:]
    assert dataset.index_of(KEYS[7]) == 7
    assert dataset.keys_at(np.array([11, 0, 6])) == [KEYS[11], KEYS[0], KEYS[6]]
    asked = [request.path for request in shard_server.requests]
    assert not any(
        path.endswith(".tar") and "Range" not in r.headers
        for path, r in zip(asked, shard_server.requests, strict=True)
    )
    assert wide[0][".cls"] == 8
    assert wide[0]["__key__"] == KEYS[8]


def test_faults_of_remote_tables_are_said(
    served: Dataset, shard_server: ShardServer, tmp_path: Path
) -> None:
    """A missing table, a page in its place, a cut one and a changed one are errors that name it."""
    served.join_tables("{shard}.parquet").save(tmp_path / "t.json")
    del shard_server.files["/set/5.parquet"]
    options: dict[str, Any] = {"cache_dir": tmp_path / "new", "remote": "range"}
    urls = [shard["url"] for shard in served.shards]
    dataset = wids.ShardListDataset(
        [(url, n) for url, (_, n) in zip(urls, SHARDS, strict=True)], **options
    )
    with pytest.raises(ValueError, match=r"1 of 3 tables are not there.*set/5\.parquet"):
        dataset.join_tables("{shard}.parquet")
    left = dataset.join_tables("{shard}.parquet", missing="drop")
    assert left.column(".width").tolist() == [0, 1, 2, 3, 4, 10, 11]
    shard_server.put("set/5.parquet", b"<html>please log in</html>" * 40)
    with pytest.raises(wids.FetchError, match=r"5\.parquet.*expected a table"):
        dataset.join_tables("{shard}.parquet")
    shard_server.put("set/5.parquet", b"PAR1 is not enough PAR1")
    with pytest.raises(ValueError, match=r"set/5\.parquet: .*damaged"):
        dataset.join_tables("{shard}.parquet")
    dataset.cache.clear()
    shard_server.put("set/5.parquet", (tmp_path / "0.parquet").read_bytes())
    with pytest.raises(wids.SpecError, match="have changed"):
        wids.open(tmp_path / "t.json", cache_dir=tmp_path / "third", remote="range")


def test_a_table_at_a_url_is_joined(
    dataset: Dataset, shard_server: ShardServer, tmp_path: Path
) -> None:
    """It is fetched, pickled as its URL, saved as it, and refused once it is another."""
    url = shard_server.put("t.parquet", as_parquet(tmp_path).read_bytes())
    joined = dataset.join(url)
    assert joined[4][".width"] == 104
    assert len(pickle.dumps(joined)) < 10_000
    assert pickle.loads(pickle.dumps(joined))[4][".width"] == 104
    joined.save(tmp_path / "url.json")
    assert json.loads((tmp_path / "url.json").read_text())["datasets"][1]["table"] == url
    assert wids.open(tmp_path / "url.json", cache_dir=tmp_path / "b")[4][".width"] == 104
    pyarrow.parquet.write_table(pa.table({"key": KEYS, "width": KEYS}), tmp_path / "t.parquet")
    shard_server.put("t.parquet", (tmp_path / "t.parquet").read_bytes())
    with pytest.raises(wids.SpecError, match="has changed since it was joined"):
        wids.open(tmp_path / "url.json", cache_dir=tmp_path / "c")


@pytest.mark.parametrize("ending", ["parquet", "arrow", "csv", "npy"])
def test_a_damaged_table_is_named_as_it_was_given(
    ending: str, dataset: Dataset, shard_server: ShardServer, tmp_path: Path
) -> None:
    """By its path or its URL, without credentials, whichever byte is damaged."""
    path, table = tmp_path / f"t.{ending}", pa.table({"key": KEYS, "n": range(COUNT)})
    if ending == "npy":
        np.save(path, np.arange(COUNT))
    else:
        kinds = {"parquet": pyarrow.parquet.write_table, "arrow": pyarrow.feather.write_feather}
        kinds.get(ending, pyarrow.csv.write_csv)(table, path)
    good, raised = path.read_bytes(), 0
    damaged = [good[: len(good) // 2], good.replace(b'"n"', b'"\xff"').replace(b"{", b"(", 1)]
    damaged += [b"%b\xff%b" % (good[:n], good[n + 1 :]) for n in range(4, 24, 2)]
    for number, data in enumerate(damaged):
        path.write_bytes(data)
        url = shard_server.put(f"{number}/{path.name}", data)
        for given, named in ((path, str(path)), (f"{url}?token=secret", f"{url}?...")):
            try:
                joined = dataset.join(given)
                assert [joined[index] for index in range(COUNT)]
            except (wids.WidsError, ValueError) as error:
                assert named in str(error)  # noqa: PT017 (some of the files can be read)
                raised += 1
    assert raised >= 4


@pytest.mark.parametrize("shape", [(12,), (12, 2)])
def test_an_array_at_a_url_has_the_name_of_its_file(
    dataset: Dataset,
    shard_server: ShardServer,
    tmp_path: Path,
    shape: tuple[int, ...],
) -> None:
    """A served .npy makes the field of a local one, and its saved join opens from the server."""
    array = np.arange(np.prod(shape)).reshape(shape)
    np.save(tmp_path / "my score.npy", array)
    local = dataset.join(tmp_path / "my score.npy")
    (field,) = set(local[0]) - set(dataset[0])
    url = shard_server.put("my%20score.npy", (tmp_path / "my score.npy").read_bytes())
    far = dataset.join(url)
    assert set(far[0]) == set(local[0])
    assert np.array_equal(far.column(field), array)
    assert ".other" in dataset.join(f"{url}?key=1", rename={field[1:]: ".other"})[0]
    local.save(tmp_path / "score.json")
    for path in tmp_path.iterdir():
        if path.suffix in (".json", ".tar"):
            shard_server.put(path.name, path.read_bytes())
    opened = wids.open(f"{shard_server.url}/score.json", cache_dir=tmp_path / "far")
    assert np.array_equal(opened.column(field), array)


@pytest.mark.parametrize(
    "frame",
    [
        pd.Series(range(COUNT)),
        Frame(pa.chunked_array([[1, 2]])),  # type: ignore[arg-type]
        pd.DataFrame({"key": KEYS, "mixed": [1, "a", None] * 4}),
        type("LazyFrame", (), {"__module__": "polars.lazyframe"})(),
    ],
)
def test_what_is_no_frame_is_refused(dataset: Dataset, frame: Any) -> None:
    """A series, a lazy frame and a column of several types are refused with the remedy."""
    with pytest.raises(ValueError, match=r"cannot be joined: .*\.to_frame\(\)"):
        dataset.join(frame)


def test_columns_are_told_apart_by_case(dataset: Dataset) -> None:
    """Two columns have two names in SQL; a column that hides a field of the samples is an error."""
    both = dataset.join({"key": KEYS, "Q": range(COUNT), "q": range(COUNT, 0, -1), "__x__": KEYS})
    row = both.sql("select q, q_2, __x__ from samples order by index limit 1").arrow().to_pylist()
    assert row == [{"q": both[0][".Q"], "q_2": both[0][".q"], "__x__": both[0][".__x__"]}]
    with pytest.raises(wids.SpecError, match=r"'\.cls' and '\.CLS' differ by case alone.*rename="):
        dataset.join({"key": KEYS, "CLS": range(COUNT)})


def test_times_of_numpy_in_a_list_are_those_of_python(dataset: Dataset) -> None:
    """Dates stay dates, and nanoseconds become no integers."""
    days = [np.datetime64("2020-01-01", unit) for unit in ("D", "ns", "s")] * 4
    found = dataset.join({"key": KEYS, "day": days}).column(".day")
    assert {str(each)[:10] for each in found} == {"2020-01-01"}


def test_a_column_has_values_of_one_type(dataset: Dataset) -> None:
    """Of rows that are dicts each has all keys, as in a data frame; mixed values are refused."""
    found = dataset.join({"key": KEYS[:2], "o": [{"a": 1}, {"b": 2}]}, missing="drop")
    assert [sample[".o"] for sample in found] == [{"a": 1, "b": None}, {"a": None, "b": 2}]
    noon = dt.datetime(2020, 1, 1, 12)  # noqa: DTZ001
    times: Any = [[noon.date(), noon], [noon, noon.replace(tzinfo=dt.UTC)], [[noon.date()], [noon]]]
    times.append([{"a": [noon]}, {"a": [noon.replace(tzinfo=dt.UTC)]}])
    for mixed in ([1, "a"], [2**70, 1], [1 + 2j, 1], ["a", b"a"], [b"a", "a"], *times):
        with pytest.raises(ValueError, match=r"a dict cannot be joined: .*of one type each"):
            dataset.join({"key": KEYS[:2], "o": mixed})
    masks = np.arange(COUNT * 6).reshape(COUNT, 2, 3) % 2 == 0
    joined = dataset.join({"key": KEYS, "mask": masks, "half": masks[:, 0].astype(np.float16)})
    assert joined.gather([3, 1], ".mask").tolist() == masks[[3, 1]].tolist()
    assert joined[2][".half"].dtype == np.float16
    copy = pickle.loads(pickle.dumps(joined))
    assert copy[5][".mask"].dtype == np.bool_
    (row,) = copy.sql("select mask, half from samples where index = 3").arrow().to_pylist()
    assert row == {"mask": masks[3].ravel().tolist(), "half": masks[3, 0].tolist()}
