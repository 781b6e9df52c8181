"""HTML for notebooks: its contents, and that no sample can add markup."""

import base64
import io
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.pictures import draw, save
from helpers.serving import serve_shard
from helpers.shards import MakeShard
from helpers.specimens import npy, specimens
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

import wids
from wids import ShardListDataset, ShardWriter
from wids.display.notebook import DatasetFacts, SampleView, dataset_html, sample_html

# All that a page is made of: nothing here loads or runs anything.
TAGS = {"div", "span", "b", "table", "tr", "td", "img", "pre", "audio", "video"}
ATTRIBUTES = {"style", "title", "src", "width", "height", "alt", "controls", "preload"}
SCRIPT = "<script>alert(1)</script><img src=x onerror=alert(2)>"


class Page(HTMLParser):
    """A parsed page: its elements, text and pictures."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.open: list[str] = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, name: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append((name, dict(attributes)))
        if name != "img":
            self.open.append(name)

    def handle_endtag(self, name: str) -> None:
        assert self.open.pop() == name

    def handle_data(self, data: str) -> None:
        self.text += data

    @property
    def pictures(self) -> list[Image.Image]:
        sources = [attributes["src"] for name, attributes in self.tags if name == "img"]
        return [
            Image.open(io.BytesIO(base64.b64decode(source.split(",")[1]))) for source in sources
        ]


def checked(html: str) -> Page:
    """Parse a page and check the promises that hold for all pages."""
    page = Page(html)
    for name, attributes in page.tags:
        assert name in TAGS
        assert set(attributes) <= ATTRIBUTES
        assert re.match(
            r"data:(image|audio|video)/[\w-]+;base64,",
            attributes.get("src") or "data:image/x;base64,",
        )
        assert "url(" not in (attributes.get("style") or "")
    assert len(html) < 8 << 20
    html.encode()  # no lone surrogate
    return page


@pytest.fixture
def kinds(tmp_path: Path) -> ShardListDataset:
    """Make a dataset with one sample for each kind of field, and one with all of them."""
    fields = specimens()
    with ShardWriter(f"{tmp_path}/kinds-%d.tar") as writer:
        for number, (extension, data) in enumerate(fields.items()):
            writer.write({"__key__": f"{number:02d}", extension: data})
        writer.write({"__key__": "all", **fields})
    return ShardListDataset(tmp_path, transformations="bytes")


def test_a_dataset_shows_its_facts_and_first_samples(make_shard: MakeShard, tmp_path: Path) -> None:
    """A dataset shows name, counts, bytes, fields, and tiles of the first twelve samples."""
    samples = [
        {"__key__": f"k{n}", ".png": save(draw(40, 30, n), "PNG"), ".cls": str(n % 2)}
        for n in range(20)
    ]
    path = make_shard("a.tar", samples)
    row = {"url": "a.tar", "nsamples": 20, "filesize": path.stat().st_size}
    spec = {"name": "pets", "shardlist": [row], "class_names": ["cat", "dog"]}
    (tmp_path / "pets.json").write_text(json.dumps(spec))
    page = checked(ShardListDataset(tmp_path / "pets.json")._repr_html_())
    assert "pets ShardListDataset20 samples · 1 shard · " in page.text
    assert ".cls 1 B" in page.text
    assert len(page.pictures) == 12
    assert "3 k31 (dog)" in page.text
    assert "k12" not in page.text
    for number, picture in enumerate(page.pictures):
        assert np.array_equal(np.asarray(picture), draw(40, 30, number))


def test_samples_of_all_kinds_have_a_tile_and_a_page(kinds: ShardListDataset) -> None:
    """For all kinds of fields, the page is well formed and shows no error."""
    checked(kinds._repr_html_())
    page = checked(kinds.show(-1)._repr_html_())
    assert "cannot be decoded" not in page.text
    for extension in specimens():
        assert extension in page.text
        checked(kinds.show(list(specimens()).index(extension))._repr_html_())
    assert {name for name, _ in page.tags} >= {"audio", "video", "img", "pre"}


@pytest.mark.parametrize("extension", sorted(specimens()))
def test_strangers_content_never_becomes_markup(extension: str) -> None:
    """Scripts in keys, names, text, documents, errors and URLs are shown as text."""
    sample = {
        "__key__": SCRIPT,
        "__index__": 1,
        "__shard__": f"https://host/{SCRIPT}?signature=secret",
        "__shardindex__": 0,
        f".{SCRIPT}": SCRIPT.encode(),
        extension: SCRIPT.encode(),
        ".json": json.dumps({SCRIPT: [SCRIPT]}).encode(),
        ".cls": b"1",
        ".x.npy": npy(np.zeros(2, [(SCRIPT, "f4")])),
    }
    view = SampleView.of(sample, class_names=[SCRIPT, SCRIPT])
    facts = DatasetFacts(SCRIPT, SCRIPT, 1, 1, None, [(f".{SCRIPT}", 3)])
    for html in (
        view._repr_html_(),
        dataset_html(facts, [view, ValueError(SCRIPT)], SCRIPT),
    ):
        page = checked(html)
        assert "alert(1)" in page.text
        assert "secret" not in html


@given(st.text(), st.text(), st.binary(max_size=60), st.sampled_from([".txt", ".json", ".npy", ""]))
def test_any_sample_has_a_page(key: str, name: str, data: bytes, suffix: str) -> None:
    """Samples with control characters, surrogates and right-to-left text have a page."""
    sample = {"__key__": key, f".{name}{suffix}": data, "\udc80": data}
    view = SampleView.of(sample)
    checked(view._repr_html_())
    facts = DatasetFacts("ShardList", name, 1, 1, 2, [(name, 1)])
    checked(dataset_html(facts, [view, KeyError(key)]))
    assert all(line.isprintable() for line in repr(view).splitlines())


def test_pages_are_bounded() -> None:
    """A thousand fields, a million letters and large pictures give a page of bounded size."""
    noise = save(np.random.default_rng(0).integers(0, 256, (600, 600, 4), np.uint8), "PNG")
    page = checked(SampleView.of({f".{n}.png": noise for n in range(100)})._repr_html_())
    assert "and 50 more fields" in page.text
    assert len(page.pictures) < 40
    long = sample_html(SampleView.of({".txt": b"x" * (1 << 20), ".wav": bytes(5 << 20)}))
    assert len(long) < 20_000
    samples = [SampleView.of({".png": noise}) for _ in range(100)]
    checked(dataset_html(DatasetFacts("ShardList", "n", 100, 1, 0), samples))


def test_fields_that_fail_say_so(make_shard: MakeShard) -> None:
    """A damaged field shows its error, and the others are shown."""
    cut = save(draw(400, 300), "JPEG")[:3000]
    path = make_shard("a.tar", [{"__key__": "a", ".jpg": cut, ".cls": "cat", ".txt": "fine"}])
    dataset = ShardListDataset([path])
    page = checked(dataset.show(0)._repr_html_())
    assert "This file is cut: it is drawn as far as it goes." in page.text
    assert "cannot be decoded: ValueError" in page.text
    assert "fine" in page.text
    tile = checked(dataset._repr_html_()).text
    assert "This file is cut" in tile
    assert "fine" in tile


def test_a_damaged_shard_is_shown_as_such(make_shard: MakeShard) -> None:
    """A dataset whose shard is damaged or missing has a page that says so."""
    path = make_shard("a.tar", [{"__key__": "a", ".txt": "x"}])
    dataset = ShardListDataset([(str(path), 1)])
    path.write_bytes(b"no tar at all" * 100)
    assert "ShardFormatError" in checked(dataset._repr_html_()).text
    assert repr(dataset).endswith("1 sample, 1 shard, 1.3 kB)")
    path.unlink()
    assert "Error" in checked(dataset._repr_html_()).text
    assert repr(dataset).endswith("1 sample, 1 shard)")


def test_an_empty_dataset_has_a_page(make_shard: MakeShard) -> None:
    """An empty dataset has a page without a grid."""
    dataset = ShardListDataset([make_shard("a.tar", [])])
    assert "0 samples · 1 shard" in checked(dataset._repr_html_()).text
    assert repr(dataset).endswith("0 samples, 1 shard, 10.2 kB)")


class TestRemote:
    """Datasets with remote shards."""

    @pytest.fixture
    def url(self, make_shard: MakeShard, shard_server: Any) -> str:
        samples = [
            {"__key__": f"{n}", ".txt": f"text {n}", ".bin": bytes(100_000)} for n in range(30)
        ]
        return serve_shard(shard_server, make_shard("a.tar", samples))

    def test_nothing_is_fetched_to_show_a_dataset(self, url: str, shard_server: Any) -> None:
        """A page fetches no shard; once the shard is in the cache, the samples are shown."""
        dataset = ShardListDataset([(url, 30)])
        described = repr(dataset)
        page = checked(dataset._repr_html_())
        assert "show(0) fetches it" in page.text
        assert shard_server.requests == []
        assert "'text 0'" in repr(dataset.show(0))
        assert "show(0)" not in checked(dataset._repr_html_()).text
        assert repr(dataset) == described  # what a checkpoint may hold does not depend on the cache

    def test_samples_are_read_by_range_where_that_was_asked_for(
        self, url: str, shard_server: Any
    ) -> None:
        """With `remote="range"`, only the samples of the grid are read."""
        dataset = ShardListDataset([(url, 30)], remote="range")
        assert "text 11" in checked(dataset._repr_html_()).text
        shard, _, _ = dataset.locate_sample(0)
        assert shard.nbytes_read < 1_500_000


class TestRepr:
    """The one-line `repr` of a dataset."""

    def test_counts_bytes_and_fields(self, make_shard: MakeShard, tmp_path: Path) -> None:
        """Counts are those of the spec, and fields those of the first shard with samples."""
        make_shard("empty.tar", [])
        path = make_shard("a.tar", [{"__key__": "a/b.c", ".x.png": b"1", ".cls": b"22"}] * 1)
        rows = [
            {"url": name, "nsamples": count, "filesize": (tmp_path / name).stat().st_size}
            for name, count in (("empty.tar", 0), ("a.tar", 1))
        ]
        dataset = ShardListDataset(rows, base=str(tmp_path), dataset_name="both")
        nbytes = path.stat().st_size + (tmp_path / "empty.tar").stat().st_size
        expected = f"ShardListDataset('both', 1 sample, 2 shards, {nbytes / 1000:.1f} kB, "
        assert repr(dataset) == f"{expected}.c.x.png .c.cls)"
        last_dot = ShardListDataset(
            rows, base=str(tmp_path), dataset_name="both", fields=[".png"], key_rule="last_dot"
        )
        assert repr(last_dot) == f"{expected}.png)"
        assert repr(ShardListDataset([str(path)], dataset_name="x", grouping="shard")) == (
            f"ShardListDataset('x', 1 sample, 1 shard, {path.stat().st_size / 1000:.1f} kB)"
        )


class TestShow:
    """One sample, of a dataset or given by the caller."""

    def test_transformations_do_not_matter(self, kinds: ShardListDataset) -> None:
        """Fields are shown as stored, with their shard."""
        plain = repr(kinds.show(3))
        kinds.transformations = lambda _sample: 1 / 0
        assert repr(kinds.show(3)) == plain
        assert "kinds-0.tar, sample 3 in it" in checked(kinds.show(3)._repr_html_()).text

    @pytest.mark.parametrize("transformations", ["PIL", "numpy", "bytes", "memoryview", []])
    def test_decoded_samples_can_be_shown(
        self, make_shard: MakeShard, transformations: Any
    ) -> None:
        """A decoded sample is shown with its picture and text."""
        sample = {
            "__key__": "a", ".png": save(draw(40, 30), "PNG"), ".txt": "words", ".cls": "1",
            ".json": "[1.5]", ".npy": npy(np.arange(9)),
        }  # fmt: skip
        dataset = ShardListDataset([make_shard("a.tar", [sample])], transformations=transformations)
        view = wids.show(dataset[0], class_names=["a", "b"])
        page = checked(view._repr_html_())
        assert np.array_equal(np.asarray(page.pictures[0]), draw(40, 30))
        for words in ("words", "1 (b)", "1.5", "int64, 9: 0, 1, 2, 3"):
            assert words in page.text

    def test_values_of_all_types_can_be_shown(self) -> None:
        """Tensors, images of rare modes, None, and objects without a working `repr` are shown."""

        class Broken:
            def __repr__(self) -> str:
                raise RuntimeError("no words")

        torch = pytest.importorskip("torch")
        sample = {
            "image": torch.zeros(3, 20, 30, requires_grad=True),
            "bf16": torch.zeros(4, dtype=torch.bfloat16),
            "float": Image.new("F", (20, 20)),
            "inks": Image.new("CMYK", (20, 20)),
            "none": None,
            "set": {1},
            "nested": {"a": (1, np.float32(2))},
            "broken": Broken(),
            "surrogate": "\udc80",
            "objects": np.array([None]),
            "scalar": np.float32(0.5),
            ".cls": np.int64(3),
            "buffer": bytearray(b"grey"),
            7: "seven",
        }
        page = checked(wids.show(sample)._repr_html_())
        assert len(page.pictures) == 3
        assert "no words" in page.text
        assert "{1}" in page.text
        lines = [line.split() for line in repr(wids.show(sample)).splitlines()]
        for words in (["scalar", "0.5"], [".cls", "3"], ["7", "'seven'"]):
            assert words in lines
        assert ["buffer", "4", "B", "'grey'"] in lines
        assert "Broken, which cannot be shown: no words" in repr(wids.show(sample))


@pytest.mark.parametrize("extension", [".png", ".seg.png", ".seg.npy"])
def test_masks_of_a_dataset_have_the_names_of_its_classes(
    make_shard: MakeShard, extension: str
) -> None:
    """The legend of a mask names its classes by the dataset, where no sample has a class."""
    mask = np.zeros((20, 40), np.uint8)
    mask[:5] = 3
    data = npy(mask) if extension == ".seg.npy" else save(mask, "PNG")
    path = make_shard("a.tar", [{"__key__": "a", extension: data}])
    path.with_name("class_names.json").write_text('{"3": "three"}')
    page = checked(ShardListDataset([path]).show(0)._repr_html_())
    assert "3 three 25.0%" in page.text
