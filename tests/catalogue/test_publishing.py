"""`wids create --catalogue` and `wids sql`."""

import json
import shutil

import pyarrow.parquet
import pytest
from helpers.shards import write_shard, write_shards

import wids
from wids.cli import main


@pytest.fixture
def published(tmp_path):
    """A folder with shards, a spec, and the catalogue that it names."""
    samples = [
        {"__key__": f"k{n}", ".json": f'{{"n": {n}, "m{n // 4}": "x"}}', ".cls": str(n % 3)}
        for n in range(12)
    ]
    folder = tmp_path / "data"
    write_shards(folder, samples, 4, "s{}.tar")
    command = ["create", str(folder), "-o", str(folder / "train.json"), "--catalogue"]
    assert main([*command, "--cache-dir", str(tmp_path / "building")]) == 0
    return folder


def ask(dataset, query):
    return list(dataset.sql(query))


def test_the_spec_names_one_file_that_others_read(published):
    spec = json.loads((published / "train.json").read_text())
    assert spec["catalogue"].startswith("train-")
    table = pyarrow.parquet.read_table(published / spec["catalogue"])
    assert table["key"].to_pylist() == [f"k{n}" for n in range(12)]
    assert table["shard_index"].to_pylist() == [0] * 4 + [1] * 4 + [2] * 4
    assert [each["n"] for each in table["json"].to_pylist()] == list(range(12))


def test_a_remote_dataset_is_asked_without_fetching_a_shard(published, tmp_path, shard_server):
    for path in published.iterdir():
        shard_server.put(path.name, path.read_bytes())
    url = f"{shard_server.url}/train.json"
    dataset = wids.open(url, cache_dir=tmp_path / "c")
    expected = [(5, "k5", 1), (8, "k8", 2), (11, "k11", 2)]
    query = "select index, key, shard_index from samples where json.n > 4 and cls = 2 order by 1"
    assert ask(dataset, query) == expected
    assert not [each for each in shard_server.requests if each.path.endswith(".tar")]
    # And it is fetched once.
    shard_server.requests.clear()
    assert ask(wids.open(url, cache_dir=tmp_path / "c"), query) == expected
    requested = {each.path.rpartition(".")[2] for each in shard_server.requests}
    assert not requested & {"tar", "parquet"}
    assert dataset[5]["__key__"] == "k5"


def test_a_shard_that_was_replaced_since_is_noticed(published, tmp_path):
    write_shard(published / "s1.tar", [{"__key__": f"n{n}", ".cls": "7"} for n in range(4)])
    dataset = wids.open(published / "train.json", cache_dir=tmp_path / "c")
    assert dataset[4]["__key__"] == "n0"
    with pytest.warns(wids.WidsWarning, match="replaced since"):
        assert ask(dataset, "select key from samples where cls = 7 limit 1") == [("n0",)]


@pytest.mark.parametrize("damage", ["missing", "cut", "other"])
def test_a_catalogue_that_does_not_fit_is_built_anew(published, tmp_path, damage):
    spec = json.loads((published / "train.json").read_text())
    path = published / spec["catalogue"]
    if damage == "missing":
        path.unlink()
    elif damage == "cut":
        path.write_bytes(path.read_bytes()[:-20])
    else:
        spec["shardlist"] = spec["shardlist"][:2]
        (published / "train.json").write_text(json.dumps(spec))
    dataset = wids.open(published / "train.json", cache_dir=tmp_path / "c")
    with pytest.warns(wids.WidsWarning, match="built from the shards"):
        assert ask(dataset, "select count(*) from samples") == [(8 if damage == "other" else 12,)]


def test_a_hostile_file_does_not_reach_sql(published, tmp_path):
    """What a file states of its types becomes SQL, so it may state types alone."""
    spec = json.loads((published / "train.json").read_text())
    path = published / spec["catalogue"]
    table = pyarrow.parquet.read_table(path)
    stated = dict(table.schema.metadata or {}) or dict(pyarrow.parquet.read_metadata(path).metadata)
    hostile = "BIGINT) FROM x; COPY (SELECT 1) TO 'pwned.csv' --"
    stated[b"wids.structure"] = json.dumps({"key": "VARCHAR", "cls": hostile}).encode()
    pyarrow.parquet.write_table(table.replace_schema_metadata(stated), path)
    dataset = wids.open(published / "train.json", cache_dir=tmp_path / "c")
    with pytest.warns(wids.WidsWarning, match="expected a type of the catalogue"):
        assert ask(dataset, "select count(*) from samples") == [(12,)]


def test_a_spec_on_a_server_may_not_name_a_local_catalogue(published, tmp_path, shard_server):
    spec = json.loads((published / "train.json").read_text())
    spec["catalogue"] = (published / spec["catalogue"]).as_uri()
    url = shard_server.put("train.json", json.dumps(spec).encode())
    with pytest.raises(wids.SpecError, match="catalogue"):
        wids.open(url, cache_dir=tmp_path / "c")


def test_the_cache_alone_is_enough_after_a_move(published, tmp_path):
    shutil.move(published, tmp_path / "moved")
    dataset = wids.open(tmp_path / "moved" / "train.json", cache_dir=tmp_path / "c")
    assert ask(dataset, "select sum(json.n)::int from samples") == [(66,)]
    assert not (tmp_path / "c").exists() or not list((tmp_path / "c").glob("*.parquet"))


def test_create_refuses_a_catalogue_of_a_printed_spec(published, capsys):
    assert main(["create", str(published), "-o", "-", "--catalogue"]) != 0
    assert "--catalogue" in capsys.readouterr().err


def test_the_command_prints_tables_json_and_csv(published, tmp_path, capsys):
    query = "select cls, count(*) as n from samples group by cls order by cls"
    command = ["sql", str(published / "train.json"), query, "--cache-dir", str(tmp_path / "c")]
    capsys.readouterr()
    assert main(command) == 0
    assert capsys.readouterr().out == "cls  n\n  0  4\n  1  4\n  2  4\n"
    assert main([*command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[2] == {"cls": 2, "n": 4}
    assert main([*command, "--csv"]) == 0
    assert capsys.readouterr().out == "cls,n\n0,4\n1,4\n2,4\n"
    assert main(["sql", str(published / "train.json"), "select json.nn from samples"]) != 0
    assert '"n"' in capsys.readouterr().err
