"""What documents of all kinds become in the table: values are right, or null and counted."""

import json
import warnings

import pytest
from helpers.shards import write_shard

import wids


def open_samples(tmp_path, *shards):
    """Return a dataset of shards with the fields of each sample."""
    for number, fields in enumerate(shards):
        samples = [{"__key__": f"{number}-{i}", **each} for i, each in enumerate(fields)]
        write_shard(tmp_path / "shards" / f"s{number}.tar", samples)
    return wids.open(tmp_path / "shards", cache_dir=tmp_path / "cache")


def open_documents(tmp_path, *shards):
    """Return a dataset of shards with a document for each sample: values, or raw bytes."""
    documents = [
        [v if isinstance(v, bytes) else json.dumps(v) for v in values] for values in shards
    ]
    return open_samples(tmp_path, *([{".json": each} for each in shard] for shard in documents))


def matching(dataset, condition):
    found = dataset.sql(f"select index from samples where {condition} order by index")
    return [index for (index,) in found]


def test_an_integer_here_and_a_text_there_are_text(tmp_path):
    dataset = open_documents(tmp_path, [{"a": 1}, {"a": 5}], [{"a": "x"}, {"a": None}], [{"b": 1}])
    assert matching(dataset, "json.a = 'x'") == [2]
    assert matching(dataset, "json.a = '5'") == [1]
    assert matching(dataset, "try_cast(json.a as double) > 2") == [1]
    assert matching(dataset, "json.a is null") == [3, 4]
    with pytest.raises(ValueError, match="try_cast"):
        matching(dataset, "json.a > 2")


def test_numbers_keep_their_values(tmp_path):
    big = 2**63 + 1
    dataset = open_documents(
        tmp_path, [{"a": 1}], [{"a": 0.6}], [{"a": 2**53 + 1}], [{"n": big}, {"n": -1}], [{"n": 7}]
    )
    assert matching(dataset, "json.a >= 0.5") == [0, 1, 2]
    assert matching(dataset, "json.a >= 1") == [0, 2]
    assert matching(dataset, f"json.n = {big}") == [3]
    assert matching(dataset, "json.n > 3") == [3, 5]
    assert list(dataset.sql("select json.n - 10 from samples where json.n = 7")) == [(-3,)]


def test_true_is_not_one(tmp_path):
    dataset = open_documents(tmp_path, [{"a": True}, {"a": False}], [{"a": 1}])
    assert matching(dataset, "json.a = 'true'") == [0]
    assert matching(dataset, "json.a = '1'") == [2]


def test_an_object_here_and_a_number_there_are_text(tmp_path):
    dataset = open_documents(
        tmp_path, [{"m": {"x": 1}}], [{"m": 3}], [{"m": [1]}], [{"m": {}}], [{"m": None}]
    )
    assert matching(dataset, "json.m = '3'") == [1]
    assert matching(dataset, "(try_cast(json.m as json)->>'$.x') = '1'") == [0]


def test_objects_with_different_names(tmp_path):
    dataset = open_documents(
        tmp_path,
        [{"m": {"x": 1, "s": {"k": 1}}}],
        [{"m": {"y": [1, 2]}}],
        [{"m": {"y": ["t"], "s": {"k": 0.5}}}],
        [{"m": None}],
    )
    assert matching(dataset, "json.m.x = 1") == [0]
    assert matching(dataset, "list_contains(json.m.y, '2')") == [1]
    assert matching(dataset, "json.m.s.k > 0.4") == [0, 2]
    assert matching(dataset, "json.m is null") == [3]


def test_lists_of_objects(tmp_path):
    dataset = open_documents(
        tmp_path,
        [{"o": [{"l": "cat", "b": [1, 2]}]}],
        [{"o": [{"l": "dog"}, {"l": "cat", "z": 1}]}],
        [{"o": []}],
    )
    assert matching(dataset, "list_contains([x.l for x in json.o], 'cat')") == [0, 1]
    assert matching(dataset, "len(json.o) = 2") == [1]
    assert matching(dataset, "json.o[1].b[2] = 2") == [0]


def test_empty_objects_do_not_make_text_of_objects(tmp_path):
    dataset = open_documents(
        tmp_path,
        [{"m": {}}, {"m": {}, "o": [{"e": {}}]}],
        [{"m": {"a": 3}, "o": [{"e": {"k": 1}}]}],
    )
    assert matching(dataset, "json.m.a = 3") == [2]
    assert matching(dataset, "json.o[1].e.k = 1") == [2]
    # A number among empty objects is one that counts.
    mixed = open_documents(tmp_path / "mixed", [{"m": {}}, {"m": 5}])
    assert matching(mixed, "json.m = '5'") == [1]


def test_objects_with_thousands_of_names_are_maps(tmp_path):
    many = [
        {"id": i, "d": {f"k{j}": j + 0.5 for j in range(i * 20, i * 20 + 20)}} for i in range(50)
    ]
    dataset = open_documents(tmp_path, many, [{"id": 1, "d": {"k3": 1, "z": 4}}, {"id": 2}])
    assert matching(dataset, "json.d.k77 > 1") == [3]
    assert matching(dataset, "json.d['k3'] = 1") == [50]
    assert matching(dataset, "len(map_keys(json.d)) = 2") == [50]


def test_many_shards_with_names_of_their_own_become_a_map(tmp_path):
    shards = [[{"d": {f"k{i}-{j}": i for j in range(100)}}] for i in range(3)]
    dataset = open_documents(tmp_path, *shards)
    assert matching(dataset, "json.d['k2-7'] = 2") == [2]


def test_nan_fulfils_nothing_and_text_keeps_it(tmp_path):
    dataset = open_documents(
        tmp_path,
        [b'{"s": NaN, "t": "a NaN: 1"}', b'{"s": 1.5}', b'{"s": null}', b'{"s": -Infinity}'],
    )
    assert matching(dataset, "json.s > 0") == [1]
    assert matching(dataset, "json.s < 0") == [3]
    assert matching(dataset, "json.t = 'a NaN: 1'") == [0]


def test_unusual_names(tmp_path):
    names = {"image size": {"width": 3}, "it's": 1, 'q"d': 2, "Select": 4, "a.b": 5, "é": 6}
    dataset = open_documents(tmp_path, [names], [{"x": {"b": 1}, "y": 1}])
    assert matching(dataset, 'json."image size".width = 3') == [0]
    shards = open_documents(tmp_path / "alone", [names])
    for name, value in list(names.items())[1:]:
        quoted = name.replace('"', '""')
        assert matching(shards, f'json."{quoted}" = {value}') == [0], name


def test_broken_and_odd_documents_are_null_counted_and_can_be_asked_for(tmp_path):
    deep = b'{"a":' * 200 + b"1" + b"}" * 200
    large = json.dumps({"a": "x" * (1 << 20)}).encode()
    documents = [
        b'{"a": "ok"}',
        b'{"a": 1',
        b"",
        b'{"a": "\\ud800"}',
        deep,
        large,
        b"[1]",
        b'\xef\xbb\xbf{"a": "bom"}',
        b'{"a": "\xff\xfe"}',
        b"null",
    ]
    dataset = open_documents(tmp_path, documents)
    with pytest.warns(wids.WidsWarning, match="7 fields 'json' are null") as warned:
        assert matching(dataset, "json.a is not null") == [0, 7]
    assert "1 nested deeper than 64, 1 larger than 1 MiB, 4 damaged, 1 no objects" in str(
        warned[0].message
    )
    assert matching(dataset, "sizes.json > 0 and json is null") == [1, 3, 4, 5, 6, 8, 9]
    assert matching(dataset, "json.a = 'bom'") == [7]
    # Depth counts, not the number of brackets, nor those in texts.
    flat = open_documents(tmp_path / "flat", [{"a": [[1]] * 100, "t": "[" * 200}])
    assert matching(flat, "len(json.a) = 100") == [0]


def test_documents_that_are_no_objects(tmp_path):
    dataset = open_documents(tmp_path, [[1, 2], [3]], [["a"]])
    assert matching(dataset, "json[1] = '3'") == [1]
    numbers = open_documents(tmp_path / "numbers", [1, 2, None])
    assert matching(numbers, "json > 1") == [1]
    only_null = open_documents(tmp_path / "nulls", [{"a": None}, {}], [{"a": None, "b": 1}])
    assert matching(only_null, "json.b = 1") == [2]


def test_texts_and_classes(tmp_path):
    samples = [
        {".txt": " a cat\n", ".cls": "3\n"},
        {".txt": "7\n", ".jpg": b"no picture"},
        {".txt": b"\xff", ".cls": "12"},
        {".cap.txt": "it's 5\" wide"},
    ]
    (tmp_path / "shards").mkdir()
    (tmp_path / "shards" / "classes.txt").write_text("".join(f"class {i}\n" for i in range(4)))
    dataset = open_samples(tmp_path, samples)
    with pytest.warns(wids.WidsWarning, match="1 fields 'txt' are null"):
        assert matching(dataset, "txt is null and sizes.txt > 0") == [2]  # reading is an error
    assert matching(dataset, "txt = ' a cat\n'") == [0]  # as reading gives it
    assert matching(dataset, "trim(txt, ' \n') = 'a cat'") == [0]
    assert matching(dataset, "txt = 'a cat'") == []
    assert matching(dataset, "length(txt) > 3") == [0]
    assert matching(dataset, "cls in (3, 12)") == [0, 2]
    assert matching(dataset, "cls_name = 'class 3'") == [0]
    assert matching(dataset, "cls is distinct from 3") == [1, 2, 3]
    assert matching(dataset, "\"cap.txt\" = 'it''s 5\" wide'") == [3]
    assert matching(dataset, "offsets.txt is null") == [3]
    with pytest.warns(wids.WidsWarning, match="1 fields 'jpg' are null"):
        assert matching(dataset, "sizes.jpg > 0 and jpg is null") == [1]
    with pytest.raises(ValueError, match="cls_name = 'cat'"):
        matching(dataset, "cls = 'cat'")


def test_a_field_of_damaged_documents_in_one_shard_alone(tmp_path):
    dataset = open_samples(tmp_path, [{".txt": "one"}], [{".b.json": b"{", ".txt": "two"}])
    with pytest.warns(wids.WidsWarning, match="1 fields 'b.json' are null"):
        assert matching(dataset, 'sizes."b.json" > 0 and "b.json" is null') == [1]
    assert matching(dataset, '"b.json" is null') == [0, 1]


def test_a_damaged_class_among_numbers_is_null(tmp_path):
    dataset = open_samples(tmp_path, [{".cls": each} for each in ("3", b"x", "03\n", "5")])
    with pytest.warns(wids.WidsWarning, match="1 fields 'cls' are null"):
        assert matching(dataset, "cls = 3") == [0, 2]
    assert matching(dataset, "cls is null and sizes.cls > 0") == [1]


def test_names_that_differ_by_case_or_are_empty_are_left_out_with_a_warning(tmp_path):
    first = [{"t": 1, "Exif": {}}, {"t": 2, "T": 3, "o": [{"a": 1, "A": 2}]}, {"": 5, "t": 1}]
    dataset = open_documents(tmp_path, first, [{"t": 1, "o": [{"a": 2}]}])
    with pytest.warns(wids.WidsWarning, match="3 names in the objects of 'json' are left out"):
        assert matching(dataset, "json.t = 1") == [0, 2, 3]
    assert matching(dataset, "json.t = 2") == [1]
    assert matching(dataset, "json.o[1].a = 1") == [1]
    assert len(dataset.filter(lambda t: t == 3, ".json:T", fill=0)) == 1


def test_classes_that_are_no_integers(tmp_path):
    shards = (["1", "2"], ["0.5", "1"], ["cat", "2"])
    dataset = open_samples(tmp_path, *([{".cls": each} for each in shard] for shard in shards))
    assert matching(dataset, "cls = 'cat'") == [4]
    assert matching(dataset, "try_cast(cls as double) = 2") == [1, 5]


def test_fields_with_reserved_names_and_names_that_differ_by_case(tmp_path):
    sample = {".key.txt": "k", ".index.txt": "5", ".TXT": "b", ".txt": "s"}
    dataset = open_samples(tmp_path, [sample], [{".sizes": "x", ".Cap.txt": "c"}])
    assert matching(dataset, "txt = 'b' and txt_2 = 's'") == [0]
    assert matching(dataset, "sizes.sizes_ = 1") == [1]
    assert matching(dataset, "\"cap.txt\" = 'c' and key = '1-0'") == [1]


def test_compressed_fields(tmp_path):
    import gzip

    packed = gzip.compress(b'{"a": 5}')
    dataset = open_samples(tmp_path, [{".json.gz": packed}, {".json.gz": b"broken"}])
    with pytest.warns(wids.WidsWarning, match="1 damaged"):
        assert matching(dataset, '"json.gz".a = 5') == [0]


def test_no_samples(tmp_path):
    dataset = open_samples(tmp_path, [])
    assert list(dataset.sql("select count(*) from samples")) == [(0,)]
    both = open_samples(tmp_path, [], [{".cls": "1"}])
    assert list(both.sql("select index, shard_index, cls from samples")) == [(0, 1, 1)]


def test_nothing_is_warned_of_when_all_is_well(tmp_path):
    dataset = open_documents(tmp_path, [{"a": 1}])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert matching(dataset, "json.a = 1") == [0]
