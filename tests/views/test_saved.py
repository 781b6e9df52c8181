"""Saved views: opened again, elsewhere too, and refused when their base has changed."""

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.server import ShardServer
from helpers.shards import MakeShard, write_shards

import wids
from wids.cli import main
from wids.views.tables import stamp_of

COUNT = 3000
KEYS = [f"k{number:04d}" for number in range(COUNT)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Write three shards and their spec into a folder."""
    folder = tmp_path / "data"
    samples = [{"__key__": key, ".cls": str(n % 10)} for n, key in enumerate(KEYS)]
    write_shards(folder, samples, 1000, "s{}.tar")
    rows = [{"url": f"s{shard}.tar", "nsamples": 1000} for shard in range(3)]
    (folder / "train.json").write_text(json.dumps({"wids_version": 1, "shardlist": rows}))
    return folder


def keys(samples: Any) -> list[str]:
    return samples.keys_at(np.arange(len(samples)))


def base_of(view: Any) -> Any:
    return view.slots[0].sources[0].leaf


def edited(path: Path, **changes: Any) -> Path:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    return path


def edited_dataset(path: Path, **changes: Any) -> Path:
    (dataset,) = json.loads(path.read_text())["datasets"]
    return edited(path, datasets=[dataset | changes])


CHOICES: dict[str, Callable[[Any], Any]] = {
    "thin": lambda dataset: dataset.take(150, 1),
    "two": lambda dataset: wids.concat([dataset.take(300), dataset[5:]], names=["a", "b"]).take(
        500
    ),
    "whole": lambda dataset: dataset,
    "join": lambda dataset: dataset.take(200).join(
        dataset[::-1], rename={".cls": ".other"}, missing="drop"
    ),
}


def sides(make_shard: MakeShard) -> list[wids.ShardListDataset]:
    """Return two datasets with the same keys and fields, and other values."""
    paths = [
        make_shard(
            f"{side}.tar",
            [{"__key__": f"k{n}", ".cls": f"{n + first}", ".txt": side} for n in range(4)],
        )
        for side, first in (("left", 0), ("right", 9))
    ]
    return [wids.ShardListDataset([(str(path), 4)], cache_dir=None) for path in paths]


JOINS: dict[str, Callable[[Any, Any], Any]] = {
    "fields": lambda left, right: left.join(right, fields=[".txt"], replace=True),
    "renamed": lambda left, right: left.join(right, fields=[".txt"], rename={".txt": ".new.txt"}),
    "of a view": lambda left, right: left.take(2).join(right, fields=[".txt"], replace=True),
    "filled": lambda left, right: left.join(
        right[:3], fields=[".txt"], replace=True, missing="fill"
    ),
    "options": lambda left, right: left.join(right.with_options(fields=[".txt"]), replace=True),
    "left": lambda left, right: left.with_options(fields=[".cls"]).join(right, fields=[".txt"]),
    "two": lambda left, right: left.join(
        right.join(left, fields=[".cls"], replace=True), replace=True
    ),
    "concatenated": lambda left, right: left.join(
        right[:2].with_options(fields=[".txt"]) + right[2:].with_options(fields=[".txt"]),
        replace=True,
    ),
}


@pytest.mark.parametrize("way", JOINS)
def test_a_saved_join_keeps_the_fields_of_its_sides(
    make_shard: MakeShard, tmp_path: Path, way: str
) -> None:
    """Samples, batches and columns come from the same side as before; options still choose."""
    joined = JOINS[way](*sides(make_shard))
    joined.save(tmp_path / "j.json")
    opened = wids.open(tmp_path / "j.json", cache_dir=None)
    assert list(opened) == list(joined)
    assert list(opened.column(".cls", fill=-1)) == list(joined.column(".cls", fill=-1))
    some = wids.open(tmp_path / "j.json", cache_dir=None, fields=[".cls"])
    assert [each.get(".cls") for each in some] == [each.get(".cls") for each in joined]
    assert not any(".txt" in each for each in some)


def test_fields_of_a_saved_join_are_extensions(make_shard: MakeShard, tmp_path: Path) -> None:
    """Anything else, written by hand, is an error that names the document."""
    path = tmp_path / "j.json"
    JOINS["fields"](*sides(make_shard)).save(path)
    document = json.loads(path.read_text())
    document["datasets"][1]["fields"] = ".txt"
    path.write_text(json.dumps(document))
    with pytest.raises(wids.SpecError, match=r"j\.json.*expected a list, each item a text"):
        wids.open(path)


@pytest.mark.parametrize("choice", CHOICES)
def test_what_is_saved_is_opened(folder: Path, choice: str, tmp_path: Path) -> None:
    """The same samples, in the same order; where the folders were moved, and from a server."""
    view = CHOICES[choice](wids.ShardListDataset(folder / "train.json"))
    view.save(folder / "clean.json")
    opened = wids.open(folder / "clean.json")
    assert keys(opened) == keys(view)
    assert opened[-1] == view[-1]
    assert opened[0]["__dataset__"] == view[0]["__dataset__"]
    moved = tmp_path / "elsewhere"
    shutil.move(folder, moved)
    assert keys(wids.open(str(moved / "clean.json"), transformations="bytes")) == keys(view)
    for file in moved.iterdir():
        assert file.suffix == ".tar" or file.stat().st_size < 11000


def test_a_view_is_opened_from_a_server(folder: Path, shard_server: ShardServer) -> None:
    """Documents, indexes and shards may all lie on one."""
    view = wids.ShardListDataset(folder / "train.json").take(300, 5)
    view.save(folder / "some.json")
    for file in folder.iterdir():
        url = shard_server.put(file.name, file.read_bytes())
    url = url.rpartition("/")[0] + "/some.json"
    assert keys(wids.open(url)) == keys(view)


@pytest.mark.parametrize("step", ["concatenated", "joined"])
def test_what_was_made_in_many_steps_is_opened(folder: Path, step: str) -> None:
    """A view that was joined or concatenated, and chosen from, many times over opens again."""
    dataset = view = wids.ShardListDataset(folder / "train.json")[:40]
    for number in range(12 if step == "joined" else 150):
        if step == "concatenated":
            view = (view + dataset[:3])[::-1]
        else:
            table = folder / f"column{number}.npy"
            np.save(table, np.arange(len(view)) * number)
            view = view.join(table)[::-1]
    view.save(folder / "steps.json")
    opened = wids.open(folder / "steps.json")
    assert keys(opened) == keys(view)
    assert opened[5] == view[5]


def test_the_document_says_how_it_was_made(folder: Path) -> None:
    """Words of each choice stand in it, and with the view that is opened."""
    dataset = wids.ShardListDataset(folder / "train.json")
    view = dataset.filter("cls in (1, 2)").split(seed=3, train=0.5, val=0.5)["val"][2:]
    view.save(folder / "val.json")
    document = json.loads((folder / "val.json").read_text())
    assert document["wids_version"] == 3
    assert document["nsamples"] == len(view)
    assert document["datasets"][0]["spec"] == "train.json"
    assert document["made"][0] == "filter('cls in (1, 2)')"
    assert "['val']" in document["made"][1]
    assert wids.open(folder / "val.json").made == view.made
    assert repr(view.made[2]) == "'[2:]'"


def test_datasets_of_which_nothing_was_chosen_are_not_saved(
    make_shard: MakeShard, tmp_path: Path
) -> None:
    """Neither the rest of a concatenation, nor what was joined to that."""
    left, right = sides(make_shard)
    joined = right.join(left, rename={".cls": ".l.cls", ".txt": ".l.txt"}, missing="drop")
    both = wids.concat([left[2:], [{"__key__": "no shard"}], joined.rename({".t": ".l.txt"})])
    both[[4, 3]].save(tmp_path / "some.json")
    (both[:2] + left.windows(after=1))[1:3].save(tmp_path / "first.json")
    for name, counts in (("some", (2, 2)), ("first", (1, 2))):
        document = json.loads((tmp_path / f"{name}.json").read_text())
        assert (len(document["datasets"]), len(document["slots"])) == counts
    assert list(wids.open(tmp_path / "some.json", cache_dir=None)) == list(both[[4, 3]])
    opened = wids.open(tmp_path / "first.json", cache_dir=None)
    assert [sample[".cls"] for sample in opened] == [3, [0, 1]]


def test_a_list_of_shards_is_written_into_the_document(folder: Path) -> None:
    """A dataset without a spec of its own is named by its shards, and by how they are grouped."""
    shards = sorted(map(str, folder.glob("*.tar")))
    wids.ShardListDataset(shards, grouping="shard")[5:].save(folder / "rest.json")
    document = json.loads((folder / "rest.json").read_text())
    assert [row["url"] for row in document["datasets"][0]["shardlist"]] == [
        "s0.tar",
        "s1.tar",
        "s2.tar",
    ]
    opened = wids.open(folder / "rest.json")
    assert keys(opened) == KEYS[5:]
    assert base_of(opened).index_rules["grouping"] == "shard"
    with pytest.warns(wids.WidsWarning, match="grouping='adjacent' has no effect.*'shard'"):
        assert keys(wids.open(folder / "rest.json", grouping="adjacent")) == KEYS[5:]


def test_what_is_open_already_is_not_opened(folder: Path) -> None:
    """A dataset or a view in place of a location is an error that says so."""
    dataset = wids.ShardListDataset(folder / "train.json")
    for source in (dataset, [str(folder / "train.json"), dataset[:0]]):
        with pytest.raises(TypeError, match=r"open: .* open already.*wids\.concat"):
            wids.open(source)


def test_options_of_the_dataset_are_kept(folder: Path) -> None:
    """Class names, rules and names that a dataset was opened with come back; new ones win."""
    given: dict[str, Any] = {"classes": ["a", "b"], "grouping": "shard", "license": "MIT"}
    shards = sorted(map(str, folder.glob("*.tar")))
    for source in (folder / "train.json", shards):
        for options in (
            {"options": given | {"name": "x"}},
            {"options": given, "dataset_name": "x"},
        ):
            wids.ShardListDataset(source, **options)[5:].save(folder / "rest.json")
            opened = base_of(wids.open(folder / "rest.json"))
            assert opened.class_names == {0: "a", 1: "b"}
            assert opened.index_rules["grouping"] == "shard"
            assert (opened.header["license"], opened[0]["__dataset__"]) == ("MIT", "x")
    options = {"dataset_name": "y", "options": {"classes": ["c"]}}
    again = base_of(wids.open(folder / "rest.json", **options))
    assert again.class_names == {0: "c"}
    assert (again.header["license"], again[0]["__dataset__"]) == ("MIT", "y")


def test_options_that_cannot_be_kept_are_refused(folder: Path) -> None:
    """Values that are no JSON when the view is saved; shards of its own when it is opened."""
    dataset = wids.ShardListDataset(folder / "train.json", options={"made_by": folder})
    with pytest.raises(TypeError, match="save: options .*made_by"):
        dataset.save(folder / "rest.json")
    options: dict[str, Any] = {"shardlist": [{"url": "/etc/hosts", "nsamples": 1}]}
    wids.ShardListDataset(folder / "train.json", options=options).save(folder / "own.json")
    assert "spec" not in json.loads((folder / "own.json").read_text())["datasets"][0]
    edited_dataset(folder / "own.json", options=options)
    with pytest.raises(wids.SpecError, match="options: expected top-level keys without shards"):
        wids.open(folder / "own.json")


def test_a_document_moved_alone_says_so(folder: Path) -> None:
    """The message names the document, its dataset, and what to do."""
    wids.ShardListDataset(folder / "train.json")[::2].save(folder / "half.json")
    (folder / "train.json").rename(folder / "other.json")
    message = r"half\.json: its dataset .*train\.json is not there; move"
    with pytest.raises(wids.SpecError, match=message):
        wids.open(folder / "half.json")


def test_appended_samples_with_other_numbers_of_classes_are_refused(folder: Path) -> None:
    """A view of two specs, one of which has changed, is refused where a class has two names."""
    spec = json.loads((folder / "train.json").read_text())
    for name, classes in (("one.json", ["a", "b"]), ("two.json", ["b", "a"])):
        (folder / name).write_text(json.dumps(spec | {"classes": classes}))
    path = folder / "both.json"
    parts = [wids.open(folder / name) for name in ("one.json", "two.json")]
    wids.concat(parts, classes="any").save(path)
    edited(path, classes="same")
    with pytest.raises(wids.SpecError, match=r"both\.json: .*number their classes differently"):
        wids.open(path)
    both = wids.open(edited(path, classes="any"))
    assert len(both) == 2 * COUNT
    both.save(folder / "again.json")
    again = wids.open(folder / "again.json")
    with pytest.warns(wids.WidsWarning, match="different names to class"):
        assert again.class_names == {}


def test_a_changed_base_is_refused(folder: Path) -> None:
    """Another number of samples, another order or other names are not what was chosen from."""
    wids.ShardListDataset(folder / "train.json")[::-1].save(folder / "back.json")
    spec = json.loads((folder / "train.json").read_text())
    for shardlist in (spec["shardlist"][:2], spec["shardlist"][::-1]):
        (folder / "train.json").write_text(json.dumps(spec | {"shardlist": shardlist}))
        with pytest.raises(wids.SpecError, match=r"train\.json has changed .* make the view again"):
            wids.open(folder / "back.json")


def with_step(*steps: dict[str, Any]) -> dict[str, Any]:
    """Return a plan of one slot, of three rows, with some steps."""
    source = {"dataset": 0, "steps": list(steps)}
    return {"slots": [{"sources": [source], "rows": {"range": [0, 3, 1]}}], "nsamples": 3}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"slots": 7}, "a list, each item an object"),
        ({"slots": []}, "at least one"),
        ({"slots": None, "datasets": []}, "at least one"),
        ({"datasets": [{}] * 1001}, "at most 1000 datasets"),
        ({"slots": [{"sources": [{"dataset": 0}] * 10_001}]}, "at most 10000 sources"),
        ({"slots": [{"sources": [{"dataset": 0}], "rows": {"range": [0, 9, 0]}}]}, "a range"),
        ({"slots": [{"sources": [{"dataset": 0}], "rows": {"range": [0, 3001, 1]}}]}, "0 to 2999"),
        ({"slots": [{"sources": [{"dataset": 0}], "rows": {"list": [-1]}}]}, "0 to 2999"),
        ({"slots": [{"sources": [{"dataset": 0}], "rows": {"list": [0.5]}}]}, "a whole number"),
        ({"slots": [{"sources": [{"dataset": 0}], "rows": {"starts": [5]}}]}, "runs"),
        (
            {"slots": [{"sources": [{"dataset": 0}], "rows": {"starts": [5], "lengths": [0]}}]},
            "runs",
        ),
        (
            {"slots": [{"sources": [{"dataset": 0}], "rows": {"starts": [9], "lengths": [2992]}}]},
            "0 to 2999",
        ),
        ({"slots": [{"sources": [{"dataset": 0}], "rows": 7}]}, "rows: expected an object"),
        ({"slots": [{"sources": [{"dataset": 1}], "rows": {"list": [1]}}]}, "has the number 1"),
        ({"slots": [{"sources": [], "rows": {"list": [1]}}]}, "row numbers from 0 to -1"),
        (with_step({"join": 0}), "a later slot"),
        (with_step({"before": [0]}), "a later slot"),
        (with_step({"before": [], "after": [7]}), "a later slot"),
        (with_step({"after": 1}), "a list, each item a count"),
        (with_step({"names": {".a": []}}), "a new name and the fields"),
        (with_step({"names": {".a": [".b"], ".c": [".b"]}}), "'.b' 2 times"),
        (with_step({"names": {"a": [".b"]}}), "starts with a dot"),
        (with_step({"names": [".b"]}), "an object, each value a list"),
        (with_step(*[{"names": {".b": [".b"]}}] * 1000), "at most 1000 reads and steps"),
        ({"arrays": {"file": "none.rows"}}, "No such file"),
        ({"arrays": {"file": "train.json"}}, "no file of arrays"),
        ({"arrays": {"file": 3}}, "expected a path or URL"),
        ({"arrays": {"file": "thin.rows", "digest": "0"}}, "SHA-256"),
        ({"datasets": [{}]}, "found nothing"),
        ({"nsamples": 2}, "expected 2 samples, found 300"),
    ],
)
def test_a_malformed_document_is_an_error(folder: Path, changes: Any, message: str) -> None:
    """Whatever stands in it, the message names the document and what is wrong."""
    dataset = wids.ShardListDataset(folder / "train.json")
    dataset.take(300).save(folder / "thin.json")
    document = json.loads((folder / "thin.json").read_text()) | changes
    (folder / "bad.json").write_text(json.dumps(document))
    with pytest.raises((wids.SpecError, TypeError), match=message):
        wids.open(folder / "bad.json")


def test_slots_that_name_each_other_are_bounded(folder: Path) -> None:
    """A document of some kilobytes could make one sample of millions of others."""
    path = folder / "bomb.json"
    wids.ShardListDataset(folder / "train.json")[:3].save(path)
    document = json.loads(path.read_text())
    steps = [
        [{"join": number + 1, "rename": {".cls": ".1"}}, {"before": [number + 1]}]
        for number in range(30)
    ]
    rows = {"range": [0, 3, 1]}
    document["slots"] = [
        {"sources": [{"dataset": 0, "steps": each}], "rows": rows} for each in [*steps, []]
    ]
    path.write_text(json.dumps(document))
    with pytest.raises(wids.SpecError, match="at most 1000 reads and steps"):
        wids.open(path)


def test_a_misspelt_key_is_warned_of(folder: Path) -> None:
    """A key without effect, in the document or in a dataset, may be meant to choose samples."""
    path = folder / "v.json"
    for change in (edited, edited_dataset):
        wids.ShardListDataset(folder / "train.json")[:3].save(path)
        change(path, field=[".cls"])
        with pytest.warns(wids.WidsWarning, match="'field' has no effect.*expected.*nsamples"):
            wids.open(path)


def test_a_patch_corrects_some_samples(folder: Path, make_shard: MakeShard) -> None:
    """Its fields replace those of samples with its keys; a misspelt key is named."""
    fixes = [{"__key__": "k0007", ".cls": "77", ".txt": "new"}, {"__key__": "k007", ".cls": "8"}]
    fix = wids.open(make_shard("fix.tar", fixes))
    dataset = wids.open(folder / "train.json")
    with pytest.warns(wids.WidsWarning, match=r"1 of 2 samples change nothing.* 'k007'"):
        dataset.exclude(["k0001"]).join(fix, missing="keep", replace=True).save(folder / "v.json")
    opened = wids.open(folder / "v.json")
    assert keys(opened) == [KEYS[0], *KEYS[2:]]
    assert (opened.get("k0007")[".cls"], opened.get("k0007")[".txt"]) == (77, "new")
    assert opened.get("k0008")[".cls"] == 8
    assert ".txt" not in opened.get("k0008")
    table = {"key": ["k0003", "k0004"], "cls": [33, None], "note": ["a", "b"]}
    corrected = dataset.join(table, missing="keep", replace=True)
    assert [each.get(".cls") for each in corrected[2:6]] == [2, 33, None, 5]
    assert corrected.column(".cls", fill=-1)[2:6].tolist() == [2, 33, -1, 5]
    assert [".note" in each for each in corrected[2:6]] == [False, True, True, False]
    answer = corrected.sql("select cls from samples where index between 2 and 5 order by index")
    assert answer.arrow()["cls"].to_pylist() == [2, 33, None, 5]
    assert keys(corrected[2:6].filter("cls >= 5")) == ["k0003", "k0005"]


def test_fields_are_those_of_the_view(folder: Path) -> None:
    """Fields that a join has renamed, and columns of its tables, are chosen by their new names."""
    dataset = wids.ShardListDataset(folder / "train.json")[:10]
    np.save(folder / "score.npy", np.arange(10))
    joined = dataset.join(dataset[::-1], rename={".cls": ".other"}).join(folder / "score.npy")
    joined[2:].save(folder / "j.json")
    for fields in ([".other"], [".cls"], [".score", ".other"]):
        opened = wids.open(folder / "j.json", fields=fields)
        assert {name for name in opened[0] if name[0] == "."} == set(fields)
        assert opened[0] == joined.with_options(fields=fields)[2:][0]


def test_what_has_a_function_is_not_saved(folder: Path) -> None:
    """A function or weights have no place in a document; nothing is written."""
    dataset = wids.ShardListDataset(folder / "train.json")
    for wrong in (dataset.map(dict)[::2], wids.Mixture([dataset, dataset], [1, 2])):
        with pytest.raises(TypeError, match="cannot be saved"):
            wrong.save(folder / "wrong.json")
    with pytest.raises(ValueError, match=r"\.json"):
        dataset[:3].save(folder / "wrong")
    assert not list(folder.glob("wrong*"))


def test_readers_of_version_1_refuse_it(folder: Path) -> None:
    """A view that is opened as a dataset is an error which says what opens it."""
    wids.ShardListDataset(folder / "train.json")[:3].save(folder / "few.json")
    with pytest.raises(wids.SpecError, match=r"wids\.open"):
        wids.ShardListDataset(folder / "few.json")
    assert len(wids.open(folder)) == COUNT
    assert len(wids.open([str(folder / "s1.tar")])) == 1000
    with pytest.raises(wids.SpecError):
        wids.open(folder / "none.json")
    (folder / "none.json").write_text('{"wids_version": 3}')
    with pytest.raises(wids.SpecError, match=r"slots: .*save\(\) writes views"):
        wids.open(folder / "none.json")


def test_a_view_does_not_replace_its_dataset(folder: Path) -> None:
    """A file that is no saved view stays; an older view, and an empty file, are replaced."""
    dataset = wids.ShardListDataset(folder / "train.json")
    before = (folder / "train.json").read_bytes()
    (folder / "link.json").symlink_to("train.json")
    for name in ("train.json", "link.json"):
        with pytest.raises(ValueError, match="no saved view"):
            dataset[:4].save(folder / name)
    assert (folder / "train.json").read_bytes() == before
    (folder / "few.json").touch()
    for count in (4, 6):
        dataset[:count].save(folder / "few.json")
        assert len(wids.open(folder / "few.json")) == count


@pytest.mark.parametrize("fact", ["filesize", "md5sum", "sha256"])
def test_shards_with_other_contents_are_refused(folder: Path, fact: str) -> None:
    """Sizes and digests of shards are compared, where the spec says them then and now."""
    document = json.loads((folder / "train.json").read_text())
    values: dict[str, list[Any]] = {
        "filesize": [(folder / f"s{n}.tar").stat().st_size for n in range(3)],
        "md5sum": ["a" * 32, "b" * 32, "c" * 32],
        "sha256": ["a" * 64, "b" * 64, "c" * 64],
    }

    other = {"filesize": 10240, "md5sum": "d" * 32, "sha256": "d" * 64}

    def write(values: list[Any]) -> None:
        shards = document["shardlist"]
        rows = [row | {fact: value} for row, value in zip(shards, values, strict=False)]
        new = document | {"shardlist": rows or shards}
        (folder / "train.json").write_text(json.dumps(new))

    write(values[fact])
    wids.ShardListDataset(folder / "train.json")[5:9].save(folder / "v.json")
    assert len(wids.open(folder / "v.json")) == 4
    write([])  # a spec that does not say it
    assert len(wids.open(folder / "v.json")) == 4
    write([other[fact], *values[fact][1:]])
    with pytest.raises(wids.SpecError, match=f"another {fact}"):
        wids.open(folder / "v.json")


@pytest.mark.filterwarnings("ignore:.*zero bytes follow:wids.WidsWarning")
def test_files_of_another_size_are_refused_where_the_spec_says_none(folder: Path) -> None:
    """A folder of shards has no spec, so the sizes of its files are compared."""
    (folder / "train.json").unlink()
    wids.ShardListDataset(folder)[5:9].save(folder / "few.json")
    assert len(wids.open(folder / "few.json")) == 4
    with (folder / "s1.tar").open("ab") as stream:
        stream.write(bytes(10240))
    with pytest.raises(wids.SpecError, match="another filesize"):
        wids.open(folder / "few.json")


def test_a_saved_view_is_no_spec_to_merge(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command says how to make shards of it; a shard that failed is named once."""
    wids.ShardListDataset(folder / "train.json")[5:].save(folder / "rest.json")
    assert main(["merge", str(folder / "rest.json"), "-o", str(folder / "all.json")]) == 1
    assert "wids reshard" in capsys.readouterr().err
    assert not (folder / "all.json").exists()
    missing = str(folder / "none.tar")
    assert main(["create", missing, "-o", str(folder / "all.json")]) == 1
    assert capsys.readouterr().err.count(missing) == 1


@pytest.mark.parametrize("given", ["a folder", "a list"])
def test_a_saved_choice_is_of_the_shards_that_it_was_made_of(
    make_shard: MakeShard, tmp_path: Path, given: str
) -> None:
    """Without digests, too, shards with other members are refused when they are read."""

    def write(name: str, order: Sequence[int]) -> Path:
        return make_shard(name, [{"__key__": f"k{i}", ".cls": str(i)} for i in order])

    (tmp_path / "set").mkdir()
    shards = [write(f"set/{n}.tar", range(3 * n, 3 * n + 3)) for n in range(3)]
    source: Any = str(tmp_path / "set") if given == "a folder" else [str(each) for each in shards]
    path = tmp_path / "few.json"
    wids.ShardListDataset(source).exclude(["k4"]).save(path)
    expected = [f"k{i}" for i in range(9) if i != 4]
    assert keys(wids.open(path)) == expected
    write("new.tar", [4, 3, 5]).replace(shards[1])
    again = wids.open(path)
    assert [again[index]["__key__"] for index in (0, 1, 2, 5, 6, 7)] == [
        *expected[:3],
        "k6",
        "k7",
        "k8",
    ]
    for read in (lambda: again[3], lambda: again.column(".cls"), lambda: list(again.keys)):
        with pytest.raises(wids.FetchError, match=r"1\.tar: the shard was replaced since"):
            read()
    document = json.loads(path.read_text())
    for wrong in ("1:AAAA", 7, "1"):
        document["datasets"][0]["versions"] = wrong
        path.write_text(json.dumps(document))
        with pytest.raises(wids.SpecError, match=r"few\.json: versions: "):
            wids.open(path)


@pytest.mark.parametrize("way", ["index", "pack", "url", "table"])
def test_a_document_on_a_server_names_no_file_of_this_machine(
    folder: Path, shard_server: ShardServer, way: str
) -> None:
    """Not in the rows of its shards either, nor among the files of a table."""
    secret = folder / "s0.csv"
    secret.write_text("key,caption\n" + "".join(f"{key},secret\n" for key in KEYS[:1000]))
    shard_server.put("s0.tar", (folder / "s0.tar").read_bytes())
    row: dict[str, Any] = {"url": "s0.tar", "nsamples": 1000}
    stamp = stamp_of(secret)
    table: dict[str, Any] = {"nbytes": stamp.nbytes, "digest": stamp.digest}
    table |= {"fields": {".caption": "caption"}, "key": "key"}
    datasets: list[dict[str, Any]] = [{"shardlist": [row]}]
    if way == "table":
        datasets.append(table | {"table": ["s0.csv", secret.as_uri()]})
    else:
        row[way] = secret.as_uri()
    sources = [{"dataset": number} for number in range(len(datasets))]
    slots = [{"sources": sources[:1], "rows": {"range": [0, 1000, 1]}}]
    document = {"wids_version": 3, "datasets": datasets, "slots": slots}
    url = shard_server.put("sly.json", json.dumps(document).encode())
    with pytest.raises(wids.SpecError, match=r"sly\.json.*allow_local"):
        wids.open(url)


def test_an_index_beside_a_moved_document_is_found(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Locations of sidecars are relative to the document, as those of their shards."""
    (folder / "indexes").mkdir()
    wids.index_shard(str(folder / "s0.tar"), sidecar=True)
    (folder / "s0.tar.widx").rename(folder / "indexes/s0.widx")
    monkeypatch.chdir(folder)
    rows = [{"url": "s0.tar", "nsamples": 1000, "index": "indexes/s0.widx"}]
    wids.ShardListDataset(rows)[:3].save("v.json")
    moved = tmp_path / "elsewhere"
    shutil.move(folder, moved)
    monkeypatch.chdir(tmp_path)
    opened = wids.open("elsewhere/v.json")
    assert dict(base_of(opened).shards[0])["index"] == "elsewhere/indexes/s0.widx"
    assert keys(opened) == KEYS[:3]


def test_a_dict_is_named_so(folder: Path) -> None:
    """A document in memory has no location for its errors."""
    with pytest.raises(wids.SpecError, match=r"^the dict: slots"):
        wids.open({"wids_version": 3, "slots": []})
