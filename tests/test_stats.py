"""`wids stats`: the figures are those that counting by hand gives."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wids.cli import main
from wids.specs.sources import load_spec
from wids.tools.stats import SizeStats, plot_stats, spec_stats, stats_lines

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
    """Fields by extension, and samples as the sum of their fields."""
    stats = spec_stats(load_spec("."), workers=1)
    text, label = stats.fields[".txt"], stats.fields[".cls"]
    assert (text.count, text.nbytes, text.smallest, text.largest, text.mean) == (5, 15, 1, 5, 3.0)
    assert (label.count, label.nbytes) == (3, 9)
    assert (stats.samples.count, stats.samples.nbytes, stats.samples.largest) == (5, 24, 6)
    assert stats.values == {}


def test_values_of_a_field_are_counted(folder: Path):
    """Classes are counted as they stand in the shard."""
    assert spec_stats(load_spec("."), values=".cls", workers=1).values == {"cat": 2, "dog": 1}


def test_shard_that_cannot_be_read_is_reported(folder: Path):
    """The others are summed up."""
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
    """It does not matter how samples are spread over shards."""
    assert SizeStats.of(left) + SizeStats.of(right) == SizeStats.of(left + right)


@given(sizes)
def test_bins_are_powers_of_two(found: list[int]):
    """Bin 0 counts zeros, bin b the sizes of b binary digits."""
    bins = SizeStats.of(found).bins
    assert sum(bins) == len(found)
    for b, count in enumerate(bins):
        assert count == sum(size.bit_length() == b for size in found)


def test_table_lists_fields_then_samples_then_values(folder: Path):
    """One line a field, and no more values than asked for."""
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
    """Programs get whole numbers; the dot of the extension may be left out."""
    assert main(["stats", ".", "--values", "cls", "--json", "--workers", "1"]) == 0
    stats = json.loads(capsys.readouterr().out)
    assert stats["fields"][".txt"]["nbytes"] == 15
    assert stats["values"] == {"cat": 2, "dog": 1}


def test_command_names_what_it_left_out(folder: Path, capsys):
    """A shard that cannot be read gives exit code 1 and its name."""
    Path("c.tar").write_bytes(b"no tar" * 1000)
    assert main(["stats", "."]) == 1
    captured = capsys.readouterr()
    assert "c.tar is left out" in captured.err
    assert ".txt" in captured.out


def test_plot_is_an_image(folder: Path):
    """The plot is a PNG, where matplotlib is installed."""
    pytest.importorskip("matplotlib")
    plot_stats(spec_stats(load_spec("."), values=".cls", workers=1), Path("plot.png"))
    assert Path("plot.png").read_bytes().startswith(b"\x89PNG")
