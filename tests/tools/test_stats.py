"""`wids stats`: the figures are those that counting by hand gives."""

import json
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wids.cli import main
from wids.specs.sources import load_spec
from wids.tools.stats import SizeStats, Stats, plot_stats, spec_stats, stats_lines

MakeShard = Callable[..., Path]


@pytest.fixture
def folder(make_shard: MakeShard, tmp_path: Path, monkeypatch) -> Path:
    """Make two shards: 5 texts of 1 to 5 bytes, 3 of them with a class."""
    rows = [{"__key__": f"{n}", ".txt": "x" * (n + 1)} for n in range(5)]
    for n, label in enumerate(("cat", "dog", "cat")):
        rows[n][".cls"] = label
    make_shard("a.tar", rows[:2])
    make_shard("b.tar", rows[2:])
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_counts_and_sizes_are_summed_over_shards(folder: Path):
    """Fields are counted by extension, and a sample's size is the sum of its fields."""
    stats = spec_stats(load_spec("."), workers=1)
    text, label = stats.fields[".txt"], stats.fields[".cls"]
    assert (text.count, text.nbytes, text.smallest, text.largest, text.mean) == (5, 15, 1, 5, 3.0)
    assert (label.count, label.nbytes) == (3, 9)
    assert (stats.samples.count, stats.samples.nbytes, stats.samples.largest) == (5, 24, 6)
    assert stats.values == {}


def test_texts_that_differ_by_blanks_are_counted_apart(make_shard: MakeShard, tmp_path: Path):
    """A value is what filters compare; a class is a number, whatever is around it."""
    texts = ["a", " a", "a ", "a\n", "\ta"]
    rows = [{"__key__": f"{n}", ".txt": each, ".cls": each} for n, each in enumerate(texts)]
    dataset = load_spec(str(make_shard("a.tar", rows)))
    counted = spec_stats(dataset, values=".txt", workers=1)
    assert counted.values == dict.fromkeys(texts, 1)
    assert any("'a\\n'" in line for line in stats_lines(counted))
    assert spec_stats(dataset, values=".cls", workers=1).values == {"a": 5}


def test_shard_that_cannot_be_read_is_reported(folder: Path):
    """A shard that cannot be read is reported, and the others are counted."""
    Path("c.tar").write_bytes(b"no tar" * 1000)
    stats = spec_stats(load_spec("."), workers=1)
    assert stats.samples.count == 5
    assert [Path(shard).name for shard in stats.failures] == ["c.tar"]


def test_any_executor_counts_the_same(folder: Path):
    """Threads count what one process counts."""
    alone = spec_stats(load_spec("."), values=".cls", workers=1)
    with ThreadPoolExecutor(2) as executor:
        assert spec_stats(load_spec("."), values=".cls", executor=executor) == alone


sizes = st.lists(st.integers(0, 2**40), max_size=30)


@given(sizes, sizes)
def test_sums_of_parts_are_the_figures_of_the_whole(left: list[int], right: list[int]):
    """The figures do not depend on how samples are divided into shards."""
    assert SizeStats.of(left) + SizeStats.of(right) == SizeStats.of(left + right)


@given(sizes)
def test_bins_are_powers_of_two(found: list[int]):
    """Bin 0 counts zeros, bin b the sizes of b binary digits."""
    bins = SizeStats.of(found).bins
    assert sum(bins) == len(found)
    for b, count in enumerate(bins):
        assert count == sum(size.bit_length() == b for size in found)


def test_table_lists_fields_then_samples_then_values(folder: Path):
    """The table has a line per field, then samples, then the requested number of values."""
    stats = spec_stats(load_spec("."), values=".cls", workers=1)
    lines = stats_lines(stats, max_values=1)
    assert [line.split()[:2] for line in lines[:4]] == [
        ["field", "count"],
        [".cls", "3"],
        [".txt", "5"],
        ["sample", "5"],
    ]
    assert lines[-2:] == ["cat        2", "and 1 other values"]


def test_command_prints_json(folder: Path, capsys):
    """`--json` prints integers; the extension may be given without its dot."""
    assert main(["stats", ".", "--values", "cls", "--json", "--workers", "1"]) == 0
    stats = json.loads(capsys.readouterr().out)
    assert stats["fields"][".txt"]["nbytes"] == 15
    assert stats["values"] == {"cat": 2, "dog": 1}


def test_no_zeros_stand_for_shards_that_were_not_read(folder: Path, capsys):
    """If no shard can be read, no table of zeros is printed."""
    Path("bad.tar").write_bytes(b"no tar" * 1000)
    assert main(["stats", "bad.tar", "--values", "cls"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "bad.tar is left out" in captured.err
    assert "no sample has a field .cls; there are none, as no sample was read" in captured.err


def test_json_counts_and_names_what_was_not_read(folder: Path, capsys):
    """`--json` has the number and names of unreadable shards, without the secrets of a URL."""
    Path("c.tar").write_bytes(b"no tar" * 1000)
    urls = ["a.tar", "c.tar", "http://me:SECRET@127.0.0.1:bad/x.tar?sig=SECRET"]
    spec = {"shardlist": [{"url": url, "nsamples": 2} for url in urls]}
    Path("x.json").write_text(json.dumps(spec))
    assert main(["stats", "x.json", "--json", "--workers", "1"]) == 1
    captured = capsys.readouterr()
    assert "SECRET" not in captured.out + captured.err
    assert "2 parts could not be read" in captured.err
    found = json.loads(captured.out)
    assert found["samples"]["count"] == found["num_failures"] == len(found["failures"]) == 2
    assert [name.rpartition("/")[2] for name in found["failures"]] == ["c.tar", "x.tar?..."]


def test_a_shard_of_another_count_than_promised_is_left_out(
    make_shard: MakeShard, tmp_path: Path, capsys
):
    """As a dataset does, `wids stats` takes a shard that lost samples for damaged."""
    rows = [{"__key__": f"{n}", ".cls": "0"} for n in range(3)]
    names = [make_shard(name, rows).name for name in ("a.tar", "b.tar")]
    listed = [{"url": url, "nsamples": n} for url, n in zip(names, (3, 5), strict=True)]
    (tmp_path / "a.json").write_text(json.dumps({"shardlist": listed}))
    assert main(["stats", str(tmp_path / "a.json"), "--json"]) == 1
    said = capsys.readouterr()
    assert "b.tar is left out: the spec says 5 samples, the shard holds 3" in said.err
    assert json.loads(said.out)["samples"]["count"] == 3


def test_missing_field_is_named(folder: Path, capsys):
    """Counting the values of a field that no sample has is an error that lists the fields."""
    assert main(["stats", ".", "--values", "clz"]) == 1
    captured = capsys.readouterr()
    assert "no sample has a field .clz; there are .cls .txt" in captured.err
    assert ".txt" in captured.out
    assert main(["stats", ".", "--values", ".cls:a"]) == 1
    assert "no sample has a value .cls:a; there are .cls .txt" in capsys.readouterr().err


def test_classes_go_with_their_names(make_shard: MakeShard, tmp_path: Path, capsys):
    """Values of `.cls` are shown with class names, other integers without."""
    rows = [{"__key__": f"{n}", ".cls": str(n % 2), ".txt": str(n % 2)} for n in range(3)]
    path = make_shard("a.tar", rows)
    spec = {"shardlist": [{"url": path.name, "nsamples": 3}], "class_names": ["cat", "dog"]}
    (tmp_path / "a.json").write_text(json.dumps(spec))
    assert main(["stats", str(tmp_path / "a.json"), "--values", ".cls"]) == 0
    assert capsys.readouterr().out.splitlines()[-2:] == ["0          2  cat", "1          1  dog"]
    assert main(["stats", str(tmp_path / "a.json"), "--values", ".txt"]) == 0
    assert "cat" not in capsys.readouterr().out


@pytest.mark.filterwarnings("default::wids.WidsWarning")
def test_broken_file_of_names_spoils_nothing(folder: Path, capsys):
    """With a broken file of class names, classes are counted, and a warning is given."""
    Path("classes.json").write_text("12")
    assert main(["stats", ".", "--values", ".cls"]) == 0
    assert "classes have no names" in capsys.readouterr().err


class TestPlot:
    """The plot, where matplotlib is installed."""

    @pytest.fixture(autouse=True)
    def _needs_matplotlib(self) -> None:
        pytest.importorskip("matplotlib")

    def test_command_draws_and_names_what_it_cannot(self, folder: Path, capsys):
        """`--plot` writes the file; an unknown suffix is refused with the known ones."""
        assert main(["stats", ".", "--plot", "plot.png"]) == 0
        assert Path("plot.png").exists()
        assert main(["stats", ".", "--plot", "plot.foo"]) == 1
        assert "expected the name of a picture" in capsys.readouterr().err

    def test_plot_counts_what_was_not_read(self, folder: Path, capsys):
        """The title counts unreadable shards; without any readable shard nothing is drawn."""
        Path("c.tar").write_bytes(b"no tar" * 1000)
        assert main(["stats", ".", "--plot", "plot.svg", "--workers", "1"]) == 1
        assert "5 samples, 24 B, 1 parts not read" in Path("plot.svg").read_text()
        assert main(["stats", "c.tar", "--plot", "none.svg", "--workers", "1"]) == 1
        assert "none.svg is not drawn, as no sample was read" in capsys.readouterr().err
        assert not Path("none.svg").exists()

    def test_svg_tells_fields_and_values(self, folder: Path):
        """The plot has each field with its count, and each value with its class name."""
        stats = spec_stats(load_spec("."), values=".cls", workers=1)
        texts = svg_texts(stats, {"cat": "a cat"})
        assert {".txt  5", ".cls  3", "cat a cat", "dog"} <= texts
        assert "5 samples, 24 B" in texts

    def test_strangers_texts_are_drawn_as_text(self):
        """Formulas, escapes, unknown letters and long texts are plain labels."""
        strange = ["$x^{", "\\frac", "_hidden", "\x1b[2J", "\u202e", "\U0001f9ff", "x" * 500, ""]
        one = SizeStats.of([1])
        stats = Stats(one, {f".{name}": one for name in strange}, Counter(strange))
        texts = svg_texts(stats)
        assert {"$x^{", ".$x^{  1", "_hidden", "\\x1b[2J"} <= texts
        assert max(map(len, texts)) < 60

    def test_of_many_the_largest_and_commonest_are_drawn(self):
        """Of a thousand fields and values the most frequent are drawn, and the plot says so."""
        fields = {f".{n}": SizeStats.of([n]) for n in range(1000)}
        values = Counter({str(n): n for n in range(1000)})
        texts = svg_texts(Stats(SizeStats.of(range(1000)), fields, values))
        assert ".999  1" in texts
        assert ".900  1" not in texts
        assert "samples, the 40 commonest of 1,000 values" in texts

    def test_nothing_can_be_plotted(self):
        """A dataset without samples gives an empty plot."""
        assert "0 samples, 0 B" in svg_texts(Stats())


def svg_texts(stats: Stats, names: dict[str, str] | None = None) -> set[str]:
    """Plot as SVG with text as text, and return what is written there."""
    import matplotlib as mpl

    with mpl.rc_context({"svg.fonttype": "none"}), TemporaryDirectory() as folder:
        plot_stats(stats, Path(folder, "plot.svg"), names)
        root = ET.parse(Path(folder, "plot.svg")).getroot()
    return {"".join(text.itertext()) for text in root.iter("{http://www.w3.org/2000/svg}text")}
