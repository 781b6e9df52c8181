"""Programs that import the modules of wids 0.1.11 run and get correct results."""

import gzip
import io
import json
import random
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.interpreters import run_python
from helpers.pictures import plain
from helpers.shards import REPOSITORY, write_shard
from helpers.specimens import npy

import wids
from wids.codecs.formats import FORMAT_OF
from wids.wids import (
    IndexedTarSamples,
    ShardListDataset,
    compute_file_md5sum,
    compute_num_samples,
    group_by_key,
    iterate_ranges,
    splitname,
)
from wids.wids_decode import default_decoder
from wids.wids_mmtar import MMIndexedTar

Maker = Callable[..., Path]

OPENED = ["PIL", [2, 1], [1, 2, 3]]
ARRAY = ["numpy", "uint8", [[[1, 2, 3], [1, 2, 3]]]]
NUMBERS = ["numpy", "int16", [0, 1, 2]]


PNG = plain("PNG", (2, 1), (1, 2, 3))
PLAIN = [
    {"__key__": "a", ".png": PNG, ".cls": "7", ".txt": "one"},
    {"__key__": "dir/b", ".png": PNG, ".cls": "8", ".txt": "two"},
    {"__key__": "c", ".png": PNG, ".cls": "9", ".txt": "three"},
]
PACKED = [
    {
        "__key__": "x",
        ".json.gz": gzip.compress(b'{"n": [1]}', mtime=0),
        ".seg.png": PNG,
        ".npy": npy(np.arange(3, dtype=np.int16)),
        ".mp": b"\x81\xa1n\x01",
        ".webp": b"RIFF",
        ".gz": b"packed",
    },
    {"__key__": "y", ".note.TXT.GZ": gzip.compress(b"zipped", mtime=0), ".bin": b"\0\1"},
]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Run all programs over shards; return the results of each."""
    folder = tmp_path_factory.mktemp("old")
    for name, samples in (("plain", PLAIN), ("packed", PACKED)):
        write_shard(folder / f"{name}.tar", samples)
        shards = [{"url": f"{name}.tar", "nsamples": len(samples)}]
        document = {"wids_version": 1, "shardlist": shards}
        (folder / f"{name}.json").write_text(json.dumps(document))
    program = REPOSITORY / "tests" / "programs" / "old_modules.py"
    done = run_python(program, folder, env={"WIDS_CACHE": str(folder / "cache")})
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


# Programs.


def test_metadata_is_made_of_counted_shards(found: dict[str, Any]) -> None:
    """`compute_num_samples` counts shards for a JSON."""
    assert found["write_metadata"]["shardlist"] == [
        {"url": "packed.tar", "nsamples": 2},
        {"url": "plain.tar", "nsamples": 3},
    ]


def test_members_are_found_by_key(found: dict[str, Any]) -> None:
    """`MMIndexedTar`, `group_by_key` and `splitname` give a table of keys."""
    table = {"a": [0, 1, 2], "dir/b": [3, 4, 5], "c": [6, 7, 8]}
    fields = {"dir/b.cls": "8", "dir/b.txt": "two"}
    assert found["look_up_by_key"] == [9, table, fields]


def test_a_single_tar_feeds_a_loader(found: dict[str, Any]) -> None:
    """`IndexedTarSamples` and `default_decoder` work inside a program's own dataset."""
    captions = {"a": "one", "dir/b": "two", "c": "three"}
    rows = [
        {"__key__": key, ".png": ARRAY, ".cls": number, ".txt": text, "caption": text}
        for number, (key, text) in enumerate(captions.items(), 7)
    ]
    assert found["join_captions"] == [rows[:2], rows[2:]]


def test_members_are_listed_with_offsets(found: dict[str, Any]) -> None:
    """`reader.by_index` has names, header offsets and sizes; iteration yields data."""
    table, nbytes, first = found["list_members"]
    picture = len(PNG)
    # A header and a block of data each; the picture fits one block.
    assert table[:4] == [
        ["a.png", 0, picture],
        ["a.cls", 1024, 1],
        ["a.txt", 2048, 3],
        ["dir/b.png", 3072, picture],
    ]
    assert (list(nbytes), nbytes["c.txt"]) == ([row[0] for row in table], 5)
    assert first == ["a.png", PNG.hex()]


def test_ranges_are_drawn(found: dict[str, Any]) -> None:
    """`iterate_ranges` works in a program's own sampler."""
    drawn, chunked = found["sample_ranges"]
    assert sorted(drawn) == ["a", "a", "c", "dir/b"]
    assert chunked == [0, 1, 2]


def decoded(picture: Any) -> list[dict[str, Any]]:
    first = {"__key__": "x", ".json": {"n": [1]}, ".seg.png": picture, ".npy": NUMBERS}
    first |= {
        ".mp": {"n": 1},
        ".webp": ["stream", b"RIFF".hex()],
        ".gz": ["stream", b"packed".hex()],
    }
    return [first, {"__key__": "y", ".note.TXT": "zipped", ".bin": ["stream", "0001"]}]


def test_the_old_steps_of_decoding_chain(found: dict[str, Any]) -> None:
    """`decode_all_gz`, `decode_basic` and the image decoders change a sample in place."""
    assert found["decode_to_arrays"] == decoded(ARRAY)
    for row, expected in zip(found["decode_step_by_step"], decoded(OPENED), strict=True):
        assert {key: row[key] for key in expected} == expected


def test_the_old_default_decodes_what_it_decoded(found: dict[str, Any]) -> None:
    """Formats unknown to 0.1.11 stay streams, and `.gz` stays in the name."""
    first, second = decoded(OPENED)
    first[".json.gz"] = first.pop(".json")
    second[".note.TXT.GZ"] = second.pop(".note.TXT")
    assert found["decode_as_ever"] == [first, second]


# Right where 0.1.11 was wrong.


def test_a_doubled_member_shifts_no_name(make_shard: Maker) -> None:
    """Names and data of a doubled member stay together; as a sample it is an error."""
    one, two = {"__key__": "a", ".txt": "first"}, {"__key__": "a", ".txt": "second"}
    path = make_shard("double.tar", [one, two, {"__key__": "b", ".txt": "b"}])
    reader = MMIndexedTar(path)
    assert list(reader) == [("a.txt", b"first"), ("a.txt", b"second"), ("b.txt", b"b")]
    assert [reader.get_file(i)[0] for i in range(len(reader))] == reader.names()
    assert reader["a.txt"] == ("a.txt", b"second")
    with pytest.raises(wids.ShardFormatError, match="two members for one field"):
        IndexedTarSamples(path=path)


def test_samples_that_lie_apart_are_an_error(make_shard: Maker) -> None:
    """Interleaved samples are an error."""
    names = ["a.txt", "b.txt", "a.cls", "b.cls"]
    path = make_shard("mixed.tar", [{"__key__": name[0], name[1:]: "1"} for name in names])
    with pytest.raises(ValueError, match=r"name 2, 'a\.cls': .* found 'a\.txt' as name 0"):
        group_by_key(names)
    with pytest.raises(ValueError, match=r"name 1, 'a\.txt'"):
        group_by_key(["a.txt", "a.txt"])
    with pytest.raises(wids.ShardFormatError, match="members of one sample are apart"):
        compute_num_samples(path)
    with pytest.raises(wids.ShardFormatError, match="members of one sample are apart"):
        IndexedTarSamples(path=path)


def test_names_that_belong_to_no_sample_are_left_out() -> None:
    """Names with dots in folders keep their keys, and hidden files are left out."""
    assert group_by_key(["v1.2/README", "a/.hidden.txt", "a.txt", "__meta__/x.json"]) == [[2]]
    for name in ("v1.2/README", ".hidden.txt", "__meta__/x.json"):
        with pytest.raises(ValueError, match="has no key and extension"):
            splitname(name)
    assert splitname("v1.2/a.seg.png") == ("v1.2/a", ".seg.png")


# Further ways to call them.


def test_a_file_without_a_name_can_be_read(make_shard: Maker) -> None:
    """An open file can be read although its name is now another file's."""
    path = make_shard("a.tar", PLAIN)
    with tempfile.TemporaryFile() as nameless:
        nameless.write(path.read_bytes())
        nameless.flush()
        assert len(IndexedTarSamples(stream=nameless)) == 3
    with path.open("rb") as opened:
        make_shard("other.tar", PLAIN[:1]).replace(path)
        assert len(MMIndexedTar(opened)) == 9
        assert compute_file_md5sum(opened) != compute_file_md5sum(path)


def test_a_tar_is_checked_against_what_is_expected(make_shard: Maker) -> None:
    """A wrong `md5sum` or `expected_size` raises an error of the library."""
    path = make_shard("a.tar", PLAIN)
    digest = compute_file_md5sum(path)
    with IndexedTarSamples(path=path, md5sum=digest.upper(), expected_size=3).reader.get_file(0)[1]:
        pass
    with pytest.raises(wids.IntegrityError, match=f"expected MD5 {'0' * 32}, found {digest}"):
        IndexedTarSamples(path=path, md5sum="0" * 32)
    with pytest.raises(wids.SampleCountError, match="expected 4 samples, found 3"):
        IndexedTarSamples(path=path, expected_size=4)
    with pytest.raises(ValueError, match="expected a path or a stream"):
        IndexedTarSamples()


@pytest.mark.usefixtures("no_fd_leaks")
def test_samples_count_from_the_end_and_close(make_shard: Maker) -> None:
    """Negative indexes, iteration and closing work as for a sequence."""
    samples = IndexedTarSamples(path=make_shard("a.tar", PLAIN))
    assert samples[-1]["__key__"] == "c"
    assert [sample["__key__"] for sample in samples] == ["a", "dir/b", "c"]
    with pytest.raises(IndexError):
        samples[3]
    samples.close()
    for read in (lambda: samples[0], lambda: samples.reader[0]):
        with pytest.raises(ValueError, match="closed"):
            read()


def test_ranges_are_shuffled_as_in_0_1_11() -> None:
    """The same `random.Random` gives the order of 0.1.11."""
    ranges = [(0, 3), (10, 13), (20, 23)]
    printed_by_0_1_11 = [0, 1, 2, 11, 10, 12, 22, 20, 21]
    assert list(iterate_ranges(ranges, random.Random(5))) == printed_by_0_1_11


def test_the_old_default_restores_the_old_formats(make_shard: Maker) -> None:
    """As a transformation, `default_decoder` keeps the streams of 0.1.11."""
    path = make_shard("a.tar", [{"__key__": "a", ".jpeg": PNG, ".cls": "3", ".png": PNG}])
    sample = ShardListDataset([(str(path), 1)], transformations=default_decoder)[0]
    assert (sample[".jpeg"].read(), sample[".cls"]) == (PNG, 3)
    assert sample[".png"].size == (2, 1)
    with pytest.raises(ValueError, match="expected 'PIL' or 'numpy', got 'torch'"):
        default_decoder({}, format="torch")


def test_the_page_lists_the_formats_that_were_streams() -> None:
    """The page lists the formats that 0.1.11 decoded and those decoded now."""
    page = (REPOSITORY / "docs" / "coming-from-wids-0.1.11.md").read_text()
    section = page.partition("## Formats that were streams")[2].partition("```")[0]
    old, new = (set(re.findall(r"`(\.\w+)`", part)) for part in section.split("all other fields"))
    decode = wids.SampleDecoder()
    decoded = {suffix for suffix in FORMAT_OF if decode.decoder_of(suffix) is not io.BytesIO}
    assert old <= decoded
    assert new == decoded - old | {".zst"}


def test_the_old_modules_are_attributes() -> None:
    """They are there as in 0.1.11, and shadow no public name."""
    assert wids.wids_mmtar.MMIndexedTar is MMIndexedTar
    assert wids.wids_decode.default_decoder is default_decoder
    assert wids.ShardListDataset is wids.wids.ShardListDataset
    assert not {"wids", "wids_mmtar", "wids_decode"} & set(wids.__all__)
