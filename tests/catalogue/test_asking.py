"""Asking datasets, selections and concatenations in SQL, and what is refused."""

import pickle
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from helpers.hostile import HOSTILE_CONDITIONS
from helpers.pictures import plain
from helpers.shards import write_shard, write_shards

import wids
from wids.catalogue.conditions import check_columns, check_condition, check_order
from wids.catalogue.samples import SampleTable
from wids.views.storage import sides_of

LANGUAGES = ("de", "en", "fr")


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shards")
    samples = []
    for number in range(30):
        document = f'{{"width": {number * 100}, "lang": "{LANGUAGES[number % 3]}"}}'
        sample = {"__key__": f"k{number:03}", ".json": document, ".cls": str(number % 4)}
        samples.append({**sample, ".png": plain(size=(number + 1, 2))})
    write_shards(folder, samples, 10, "s{}.tar")
    return folder


@pytest.fixture(scope="module")
def dataset(shards, tmp_path_factory):
    return wids.open(shards, cache_dir=tmp_path_factory.mktemp("cache"))


def indexes(samples, condition):
    found = samples.sql(f"select index from samples where {condition} order by index")
    return [index for (index,) in found]


def test_each_sample_is_a_row(dataset, shards):
    row = dataset.sql("select * from samples where index = 17")
    names = ["index", "key", "shard", "shard_index", "cls", "json", "offsets", "sizes"]
    assert row.columns == names
    ((index, key, shard, shard_index, number, document, offsets, sizes),) = row
    assert (index, key, shard_index, number) == (17, "k017", 1, 1)
    assert document == {"width": 1700, "lang": "fr"}
    assert Path(shard) == shards / "s1.tar"
    # Others can read the samples by it.
    start = offsets["json"]
    data = (shards / "s1.tar").read_bytes()[start : start + sizes["json"]]
    assert data == b'{"width": 1700, "lang": "fr"}'


def test_a_result_is_a_finished_table(dataset):
    found = dataset.sql("select json.lang, count(*) as n from samples group by all order by 1")
    assert list(found) == [("de", 10), ("en", 10), ("fr", 10)]
    assert found.arrow().to_pydict() == {"lang": list(LANGUAGES), "n": [10, 10, 10]}
    assert found.df()["n"].tolist() == [10, 10, 10]
    assert repr(found).splitlines() == ["lang   n", "de    10", "en    10", "fr    10"]
    assert list(pickle.loads(pickle.dumps(found))) == list(found)
    polars = pytest.importorskip("polars")
    assert found.pl().equals(polars.DataFrame({"lang": list(LANGUAGES), "n": [10, 10, 10]}))


def test_a_long_result_is_shown_in_part(dataset):
    lines = repr(dataset.sql("select key from samples order by key")).splitlines()
    assert len(lines) == 22
    assert "and 10 more rows" in lines[-1]


def test_selections_and_concatenations_have_indexes_of_their_own(dataset):
    view = dataset[[29, 5, 5, 0]]
    assert indexes(view, "json.width = 500") == [1, 2]
    assert indexes(view[1:], "json.width = 500") == [0, 1]
    both = wids.concat([view, dataset])
    assert indexes(both, "key = 'k005'") == [1, 2, 9]
    assert indexes(both[::-1], "key = 'k005'") == [24, 31, 32]
    assert indexes(view.map(len), "cls = 0") == [3]


def test_datasets_with_different_fields_are_one_table(dataset, tmp_path):
    write_shard(tmp_path / "a.tar", [{"__key__": "x", ".json": '{"width": "wide"}', ".txt": "t"}])
    other = wids.open(str(tmp_path / "a.tar"), cache_dir=tmp_path / "cache")
    both = wids.concat([dataset, other])
    assert indexes(both, "json.width = 'wide' and txt = 't'") == [30]
    assert indexes(both, "json.width = '500'") == [5]


def test_headers_are_read_when_they_are_named(dataset, tmp_path):
    assert indexes(dataset, "png.width between 5 and 7 and png.height = 2") == [4, 5, 6]
    assert list(dataset.sql("select max(png.width) from samples where cls = 1")) == [(30,)]
    assert indexes(dataset[::-1], "png.width = 1") == [29]


def test_conditions_and_orders(dataset):
    table, sides = SampleTable(), sides_of(dataset)
    assert table.matching(sides, "json.width >= 2500 and cls in (1, 3)").tolist() == [
        25,
        27,
        29,
    ]
    order = table.ordered(sides_of(dataset), "cls desc, json.width desc")
    expected = sorted(range(30), key=lambda n: (n % 4, n), reverse=True)
    assert order.tolist() == expected
    # Equal ones keep their order.
    assert table.ordered(sides, "cls").tolist() == sorted(range(30), key=lambda n: n % 4)
    assert table.matching(sides_of(dataset), "true -- all\n").dtype == np.int64


def test_a_wrong_name_is_answered_with_the_right_one(dataset):
    with pytest.raises(ValueError, match=r'"widht"[\s\S]*"width"'):
        dataset.sql("select json.widht from samples")


@pytest.mark.parametrize(
    ("condition", "hint"),
    [
        (".cls == 3 and .json:lang contains d", "cls = 3 and contains(json.lang, 'd')"),
        ("cls : 3", "json.width"),
        ("json.lang = de", "'de'"),
        ('json.lang = "de"', "'de'"),
        ("json.lang > 7", "try_cast"),
        ("json.lang.length > 1", "length"),
        ("cls = 'cat'", "cls_name = 'cat'"),
    ],
)
def test_mistakes_of_beginners_get_a_hint(dataset, condition, hint):
    with pytest.raises(ValueError, match="Hint: ") as error:
        SampleTable().matching(sides_of(dataset), condition)
    assert hint in str(error.value)


def test_hostile_conditions_are_refused_at_once(dataset, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    dataset.filter("true")
    for condition in HOSTILE_CONDITIONS:
        for ask in (dataset.filter, dataset.order_by):
            start = time.process_time()  # since others may have the processor
            with pytest.raises(ValueError, match=r"\S"):
                ask(condition)
            assert time.process_time() - start < 2, condition
    assert not list(tmp_path.iterdir())
    assert len(dataset.filter("cls = 1")) == 8


@pytest.mark.parametrize(
    ("check", "texts"),
    [
        (check_order, ["key limit 3", "1; drop table x", "random()", "key\nunion select 1"]),
        (
            check_columns,
            ["", "count(*)", "cls from samples where cls = 1", "distinct cls", "cls; x"],
        ),
    ],
)
def test_hostile_orders_and_columns_are_refused(check, texts):
    for text in [*texts, "*", "(select 1)"]:
        with pytest.raises(ValueError, match=r"\S"):
            check(text)


@pytest.mark.parametrize(
    "condition",
    [
        "json.width >= 512 and json.lang in ('de', 'en')",
        "contains(txt, 'x') or txt ilike '%dog%' or regexp_matches(txt, 'a+')",
        "x is distinct from 3 and y not in (1, 2) and z between 1 and 2",
        "list_contains(json.tags, 'dog') or 'dog' in json.tags or json.tags[1] = 'a'",
        "list_contains(list_transform(json.o, lambda o: o.l), 'cat')",
        "[o.l for o in json.o] is not null",
        "case when cls = 1 then true else false end",
        "try_cast(txt as double) > 7 and cast(key as varchar) = 'k'",
        "coalesce(jpg.width, png.width) > 3 and not isnan(json.x)",
        "json.date::date >= '2024-05-01' and year(strptime(json.d, '%Y')) < 2025",
        "abs(json.x - 3) * 2 % 5 > 1e-3 and -json.x < 0",
        "key like 'train/%' collate nocase",
        "length(txt) > 3 /* long */ -- and so on",
    ],
)
def test_usual_conditions_are_allowed(condition):
    query, names = check_condition(condition)
    assert condition in query
    assert names


@pytest.mark.parametrize(
    "query",
    [
        "copy samples to 'x.csv'",
        "select * from read_csv('/etc/passwd')",
        "from '/etc/passwd'",
        "select * from glob('/*')",
        "set threads = 1",
        "attach 'x.db'",
        "select 1; select 2",
        "install httpfs",
        "create table x (i int)",
        "not sql",
    ],
)
def test_queries_reach_the_samples_alone(dataset, query):
    with pytest.raises(ValueError, match=r"\S"):
        dataset.sql(query)


def test_queries_of_every_kind(dataset):
    described = {name: kind for name, kind, *_ in dataset.sql("describe samples")}
    assert described["json"] == "STRUCT(width BIGINT, lang VARCHAR)"
    assert described.keys() == {name for name, *_ in dataset.sql("summarize samples")}
    assert list(dataset.sql("with a as (from samples) select count(*) from a")) == [(30,)]
    with pytest.raises(TypeError, match="a text of SQL"):
        dataset.sql(7)


def test_many_threads_ask_at_the_same_time(dataset):
    answers = {}

    def ask(number):
        answers[number] = indexes(dataset, f"json.width = {number * 100}")

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == {number: [number] for number in range(8)}


def test_without_duckdb_the_error_names_the_extra(dataset, monkeypatch):
    from wids.base import optional

    optional.load.cache_clear()
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(ModuleNotFoundError, match=r"wids\[sql\]"):
        dataset.sql("select 1")
    optional.load.cache_clear()


def test_others_read_the_files_without_this_library(dataset):
    import duckdb
    import pyarrow.parquet

    dataset.sql("select 1 from samples")
    files = sorted(Path(dataset.cache_dir).glob("*.catalogue2.parquet"))
    files = [each for each in files if ".png." not in each.name]
    assert len(files) == 3
    tables = [pyarrow.parquet.read_table(each) for each in files]
    assert [table.num_rows for table in tables] == [10, 10, 10]
    assert tables[0].column_names == ["key", "cls", "json", "offsets", "sizes"]
    listed = [str(each) for each in files]
    with duckdb.connect() as connection:
        query = "select count(*) from read_parquet(?) where json.width >= 900"
        assert connection.execute(query, [listed]).fetchone() == (21,)
    polars = pytest.importorskip("polars")
    frame = polars.read_parquet(listed)
    assert frame.filter(polars.col("json").struct.field("lang") == "de").height == 10
