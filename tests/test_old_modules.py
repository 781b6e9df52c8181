"""Programs that import the modules of wids 0.1.11 run and get correct results."""

import gzip
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import pytest
from helpers.shards import REPOSITORY, write_shard

import wids
from wids.wids import (
    IndexedTarSamples,
    compute_num_samples,
    group_by_key,
)
from wids.wids_decode import decode_all_gz
from wids.wids_mmtar import MMIndexedTar

Maker = Callable[..., Path]

OPENED = ["PIL", [2, 1], [1, 2, 3]]
ARRAY = ["numpy", "uint8", [[[1, 2, 3], [1, 2, 3]]]]
NUMBERS = ["numpy", "int16", [0, 1, 2]]


def png() -> bytes:
    stream = io.BytesIO()
    PIL.Image.new("RGB", (2, 1), (1, 2, 3)).save(stream, "png")
    return stream.getvalue()


def npy() -> bytes:
    stream = io.BytesIO()
    np.save(stream, np.arange(3, dtype=np.int16))
    return stream.getvalue()


PLAIN = [
    {"__key__": "a", ".png": png(), ".cls": "7", ".txt": "one"},
    {"__key__": "dir/b", ".png": png(), ".cls": "8", ".txt": "two"},
    {"__key__": "c", ".png": png(), ".cls": "9", ".txt": "three"},
]
PACKED = [
    {
        "__key__": "x",
        ".json.gz": gzip.compress(b'{"n": [1]}', mtime=0),
        ".seg.png": png(),
        ".npy": npy(),
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
    path = os.pathsep.join(entry for entry in sys.path if entry)
    done = subprocess.run(
        [sys.executable, program, folder],
        env={**os.environ, "PYTHONPATH": path, "WIDS_CACHE": str(folder / "cache")},
        capture_output=True,
        text=True,
        check=False,
    )
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
    picture = len(png())
    # A header and a block of data each; the picture fits one block.
    assert table[:4] == [
        ["a.png", 0, picture],
        ["a.cls", 1024, 1],
        ["a.txt", 2048, 3],
        ["dir/b.png", 3072, picture],
    ]
    assert (list(nbytes), nbytes["c.txt"]) == ([row[0] for row in table], 5)
    assert first == ["a.png", png().hex()]


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


def test_a_bomb_does_not_fill_the_memory() -> None:
    """The decompressed size of a `.gz` is bounded, and the error names the sample."""
    bomb = gzip.compress(bytes(513 << 20), compresslevel=1, mtime=0)
    with pytest.raises(wids.DecodeError, match=r"'\.bin\.gz' of key 'a'.*max_nbytes"):
        decode_all_gz({"__key__": "a", ".bin.gz": io.BytesIO(bomb)})


# Further ways to call them.


def test_the_old_modules_are_attributes_of_the_package() -> None:
    """After `import wids` alone they are there as attributes, as in 0.1.11."""
    code = (
        "import wids; names = wids.wids_mmtar.MMIndexedTar, wids.wids_decode.default_decoder;"
        "print(wids.wids.ShardListDataset is wids.ShardListDataset)"
    )
    run = [sys.executable, "-c", code]
    assert subprocess.run(run, stdout=subprocess.PIPE, check=True).stdout == b"True\n"


def test_the_old_modules_are_loaded_only_on_request() -> None:
    """`import wids` loads none of them, and none shadows a public name."""
    code = (
        "import sys, wids\n"
        "assert not [name for name in sys.modules if name.startswith('wids.wids')]\n"
        "assert 'torch' not in sys.modules\n"
        "import wids.wids, wids.wids_mmtar, wids.wids_decode\n"
        "assert wids.ShardListDataset is wids.wids.ShardListDataset\n"
        "assert not {'wids', 'wids_mmtar', 'wids_decode'} & set(wids.__all__)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_old_modules_need_no_torch() -> None:
    """The old modules work without torch."""
    code = "import sys; sys.modules['torch'] = None; import wids.wids, wids.wids_decode"
    subprocess.run([sys.executable, "-c", code], check=True)
