"""New names of fields, each that of the first of several which a sample has."""

import functools
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.pictures import draw, save
from helpers.server import ShardServer
from torch.utils.data import DataLoader

import wids
from wids.cli import main

IMAGE = {".image": ".jpg;.jpeg;.png;.webp"}
COUNT = 24


def stored(number: int) -> dict[str, Any]:
    """Return what a sample has: a JPEG or a PNG, or none, and perhaps a second caption."""
    picture = draw(8 + number, 8, number)
    fields: dict[str, Any] = {".cls": number}
    if number % 8 != 7:
        image = (".jpg", "JPEG") if number % 3 else (".png", "PNG")
        fields[image[0]] = save(picture, image[1])
    if number % 4 == 1:
        fields[".new.txt"] = f"new {number}"
    return fields | {".txt": f"old {number}"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write samples of one kind in one shard, and of all kinds in another."""
    folder = tmp_path_factory.mktemp("uneven")
    with wids.ShardWriter(f"{folder}/s-%d.tar", maxcount=10) as writer:
        for number in range(COUNT):
            writer.write({"__key__": f"k{number:02d}", **stored(number)})
    shards = sorted(map(str, folder.glob("*.tar")))
    assert main(["create", *shards, "-o", f"{folder}/s.json", "--sidecars"]) == 0
    return folder


def raw_of(number: int) -> bytes | None:
    fields = stored(number)
    found: bytes | None = fields.get(".jpg", fields.get(".png"))
    return found


WITH = [number for number in range(COUNT) if raw_of(number) is not None]


def ways(folder: Path, shard_server: ShardServer) -> list[Any]:
    """Return views of the samples with a picture, which are stored in unlike ways."""
    dataset = wids.open(folder / "s.json", transformations="bytes")
    parts = [dataset[:10].rename(IMAGE), dataset[10:].rename(IMAGE)]
    renamed = dataset.rename(IMAGE)
    for path in folder.iterdir():
        shard_server.put(f"set/{path.name}", path.read_bytes())
    far = wids.open(f"{shard_server.url}/set/s.json", transformations="bytes", remote="range",
                    cache_dir=folder / "far")  # fmt: skip
    renamed[WITH].save(folder / "saved.json")
    return [
        renamed[WITH],
        wids.concat(parts)[WITH],
        wids.Mixture(parts)[WITH],
        pickle.loads(pickle.dumps(renamed))[WITH],
        wids.open(folder / "saved.json", transformations="bytes"),
        renamed.with_options(fields=[".image", ".cls"], missing_ok=[".image"])[WITH],
        dataset.rename({".image": ".png;.x"}).rename({".image": ".jpg;.image"})[WITH],
        far.rename(IMAGE)[WITH],
    ]


@pytest.mark.filterwarnings("ignore:a Loader without a sampler")
def test_a_field_is_the_first_that_a_sample_has(folder: Path, shard_server: ShardServer) -> None:
    """Alone, in batches of a Loader and of a DataLoader with processes, in columns and raw."""
    wanted = [raw_of(number) for number in WITH]
    for workers, view in zip([2, *[0] * 7], ways(folder, shard_server), strict=True):
        assert [sample[".image"] for sample in view] == wanted
        assert not any(".jpg" in sample or ".png" in sample for sample in view)
        assert [bytes(each) for each in view.gather_bytes(range(len(view)), ".image")] == wanted
        assert view.read_raw(3)[".image"] == view.open_field(3, ".image").read() == wanted[3]
        assert view.read_raw(3, [".image"]).keys() >= {".image"}
        assert view.field_sizes(3)[".image"] == len(wanted[3] or b"")
        read = view.with_options(fields=[".image"], missing_ok=[".image"])
        for batches in (
            wids.Loader(read, batch_size=5, tensors=False),
            DataLoader(read, batch_size=5, num_workers=workers, collate_fn=collated),
        ):
            found = [bytes(each) for batch in batches for each in batch[".image"]]
            assert found == wanted
        widths = [8 + number for number in WITH]
        assert view.column(".image", "width").tolist() == widths
        assert view.column(".image:width").tolist() == widths
        assert len(view.filter(lambda width: width > 20, ".image:width")) == sum(
            width > 20 for width in widths
        )


def collated(samples: list[Any]) -> dict[str, Any]:
    return {".image": [sample[".image"] for sample in samples]}


def test_batches_of_unlike_files_are_made_field_by_field(folder: Path) -> None:
    """Raw fields are one buffer, decoded arrays one array, as for files of one kind."""
    view = wids.open(folder / "s.json", transformations="bytes").rename(IMAGE)[WITH]
    for batch in wids.Loader(view.with_options(fields=[".image", ".cls"]), batch_size=5):
        assert isinstance(batch[".image"], wids.Ragged)
    arrays = view.with_options(
        transformations=wids.ImageDecoder(to="numpy", size=wids.Resize((8, 8)))
    )
    batch = next(iter(wids.Loader(arrays.with_options(fields=[".image"]), batch_size=5)))
    assert batch[".image"].shape == (5, 8, 8, 3)
    assert batch[".image"].numpy().tolist() == [arrays[i][".image"].tolist() for i in range(5)]


def test_missing_fields_are_filled_or_named(folder: Path) -> None:
    """A sample without any of the fields lacks the new one."""
    view = wids.open(folder / "s.json").rename(IMAGE)
    assert ".image" not in view[7]
    widths = view.column(".image", "width", fill=-1)
    assert widths.tolist() == [8 + n if n in WITH else -1 for n in range(COUNT)]
    assert view.filter("image.width > 20").column(".cls").tolist() == [
        n for n in WITH if 8 + n > 20
    ]
    assert view.filter("image.width is null").column(".cls").tolist() == [7, 15, 23]
    with pytest.raises(wids.DecodeError, match="sample 7,.*expected a field '.webp'"):
        view.gather([6, 7], ".image")
    with pytest.raises(wids.DecodeError, match="rename"):
        view.column(".jpg")


def test_a_fill_stands_for_what_the_first_field_lacks(tmp_path: Path) -> None:
    """A value comes from the field that the sample has, not from a later one or one left out."""
    with wids.ShardWriter(f"{tmp_path}/j-%d.tar", spec=f"{tmp_path}/j.json") as writer:
        writer.write({"__key__": "a", ".x.json": {"b": 1}, ".y.json": {"a": 2}, ".txt": "t"})
        writer.write({"__key__": "b", ".y.json": {"a": 3}, ".caption.txt": "c", ".txt": "t"})
    dataset = wids.open(f"{tmp_path}/j.json")
    renamed = dataset.rename({".j.json": ".x.json;.y.json"})
    assert renamed.column(".j.json", "a", fill=-1).tolist() == [-1, 3]
    assert [sample[".j.json"].get("a", -1) for sample in renamed] == [-1, 3]
    some = dataset.with_options(fields=[".txt"]).rename({".said": ".none.txt;.caption.txt;.txt"})
    assert list(some.column(".said", fill="-")) == [sample[".said"] for sample in some]


def as_bytes(value: Any) -> bytes:
    """Return a raw field, or the pixels of a picture."""
    return value if isinstance(value, bytes) else np.asarray(value).tobytes()


@pytest.mark.parametrize("kind", ["bytes", "numpy"])
def test_batches_get_what_samples_lack(folder: Path, kind: str) -> None:
    """In a Loader, from raw and decoded fields, and in a DataLoader with processes."""
    view = wids.open(folder / "s.json", transformations=kind).rename(IMAGE)
    view = view.with_options(fields=[".image", ".new.txt", ".cls"], missing_ok=[".new.txt"])
    nothing: Any = b"" if kind == "bytes" else np.zeros((1, 1, 3), np.uint8)
    text: Any = b"" if kind == "bytes" else ""
    fills = {".image": nothing, ".new.txt": text}
    wanted = [view[n].get(".image", nothing) for n in range(COUNT)]
    texts = [view[n].get(".new.txt", text) for n in range(COUNT)]
    collated = functools.partial(wids.collate, missing=fills)
    for loader in (
        wids.Loader(view, batch_size=4, missing=fills, tensors=False),
        DataLoader(view, batch_size=4, num_workers=2, collate_fn=collated),
    ):
        batches = list(loader)
        images = [each for batch in batches for each in batch[".image"]]
        assert [*map(as_bytes, images)] == [*map(as_bytes, wanted)]
        found = [each for batch in batches for each in batch[".new.txt"]]
        assert [each if kind != "bytes" else bytes(each) for each in found] == texts
    if kind == "bytes":
        kinds = {type(batch[".image"]) for batch in wids.Loader(view, 4, missing=fills)}
        assert kinds == {wids.Ragged}
    batch = next(iter(wids.Loader(view, batch_size=8, missing="none")))
    assert batch[".image"][7] is None
    assert batch.keys() == {"__key__", "__index__", ".image", ".new.txt", ".cls"}
    with pytest.raises(ValueError, match=r"sample 1, key 'k01'.*missing=\{'.new.txt': ...\}"):
        list(wids.Loader(view, batch_size=8))
    with pytest.raises(KeyError, match=r"sample 7, key 'k07', has no '.image'.*wids.collate"):
        list(DataLoader(view.with_options(fields=[".image"]), batch_size=8))
    with pytest.raises(ValueError, match="give it to wids.collate"):
        wids.Loader(view, missing="none", collate_fn=list)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ({".a": ".txt", ".b": ".txt"}, "'.txt' 2 times"),
        ({".a": "txt"}, "starts with a dot"),
        ({"a": ".txt"}, "starts with a dot"),
        ({".a": []}, "expected a new name"),
        ({".a;.b": ".txt"}, "expected a new name"),
        ({".txt": ".caption"}, "is a field already"),
        ({".cls": ".txt"}, "is a field already"),
    ],
)
def test_names_that_cannot_be_are_refused(folder: Path, names: Any, message: str) -> None:
    """Where fields have two names, or two fields one, no sample is lost silently."""
    with pytest.raises(ValueError, match=message):
        wids.open(folder / "s.json").rename(names)


def test_unknown_and_renamed_fields_are_named(folder: Path) -> None:
    """A field that no first sample has is warned of; one that was renamed is an error."""
    dataset = wids.open(folder / "s.json")
    with pytest.warns(wids.WidsWarning, match=r"'.image' stands for .gif, and the first"):
        dataset.rename({".image": ".gif"})
    with pytest.raises(ValueError, match="'.jpg' was given another name"):
        dataset.rename(IMAGE).with_options(fields=[".jpg"])
    with pytest.raises(ValueError, match="rename"):
        dataset.with_options(fields=[".jpg;.png"])
    with pytest.raises(wids.SpecError, match="sample 1 has a field '.new.txt' already"):
        dataset.rename({".new.txt": ".txt"})[1]


def test_new_shards_and_tables_have_the_new_names(folder: Path, tmp_path: Path) -> None:
    """A file keeps its format in its name, so that it is decoded as before."""
    dataset = wids.open(folder / "s.json")
    view = dataset.rename({**IMAGE, ".said": ".new.txt;.txt", ".label.cls": ".cls"})
    wids.reshard(view, range(0, COUNT, 3), f"{tmp_path}/n-%d.tar")
    new = wids.open(f"{tmp_path}/n.json")
    assert {name for name in new[0] if name[0] == "."} == {".label.cls", ".said.txt", ".image.png"}
    assert new.rename({".image": ".image.jpg;.image.png"})[1][".image"].size == (11, 8)
    again = new.rename({".image": ".image.jpg;.image.png"})
    assert [again.read_raw(n).get(".image") for n in range(8)] == [
        view.read_raw(n).get(".image") for n in range(0, COUNT, 3)
    ]
    wids.map_samples(view, lambda sample: {".cls": sample["__index__"]}, f"{tmp_path}/m-%d.tar")
    mapped = wids.open(f"{tmp_path}/m.json")
    names = {name for sample in mapped for name in sample if name[0] == "."}
    assert names == {".cls", ".label.cls", ".said.txt", ".image.png", ".image.jpg"}
    assert [mapped.read_raw(n).get(".image.jpg") for n in range(COUNT)] == [
        stored(n).get(".jpg") for n in range(COUNT)
    ]
    changed = wids.map_samples(view, lambda _: {".image": b"gone"}, f"{tmp_path}/c-%d.tar")
    assert changed.num_samples == COUNT
    assert bytes(wids.open(f"{tmp_path}/c.json")[1][".image"].read()) == b"gone"
    assert ".image.jpg" not in wids.open(f"{tmp_path}/c.json")[1]
    view[WITH].save(tmp_path / "v.json")
    assert main(["export", str(tmp_path / "v.json"), f"{tmp_path}/places.jsonl"]) == 0
    rows = [json.loads(row) for row in (tmp_path / "places.jsonl").read_text().splitlines()]
    for number, row in zip(WITH, rows, strict=True):
        with Path(row["shard"]).open("rb") as shard:
            shard.seek(row[".image offset"])
            assert shard.read(row[".image size"]) == raw_of(number)
