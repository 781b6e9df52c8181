"""`ShardWriter` writes checked samples to complete shards."""

import contextlib
import gzip
import hashlib
import json
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.interpreters import run_python

from wids.specs.spec import DatasetSpec
from wids.writing.sampleencoder import SampleEncoder
from wids.writing.shardwriter import ShardWriter


def members_of(path: Path) -> list[tuple[str, bytes]]:
    """Read a shard by Python's tarfile."""
    with tarfile.open(path) as reader:
        return [(member.name, reader.extractfile(member).read()) for member in reader]


def names_in(folder: Path) -> list[str]:
    """List a folder."""
    return sorted(path.name for path in folder.iterdir())


def text_samples(count: int) -> list[dict[str, Any]]:
    """Make samples of two fields each."""
    return [
        {"__key__": f"{number:06}", "txt": f"text {number}", "cls": number}
        for number in range(count)
    ]


def write_all(pattern: Path, samples: list[dict[str, Any]], **options: Any) -> ShardWriter:
    """Write samples and close the writer."""
    with ShardWriter(pattern, **options) as writer:
        for sample in samples:
            writer.write(sample)
    return writer


def test_fields_become_members_named_by_key_and_extension(tmp_path: Path):
    """`jpg` and `.jpg` mean the same, values are encoded by extension, bytes are kept."""
    sample = {"__key__": "dir/a", "jpg": b"JPEG", ".cls": 7, "seg.png": memoryview(b"PNG")}
    write_all(tmp_path / "x-%06d.tar", [sample])
    assert members_of(tmp_path / "x-000000.tar") == [
        ("dir/a.cls", b"7"),
        ("dir/a.jpg", b"JPEG"),
        ("dir/a.seg.png", b"PNG"),
    ]


def test_equal_samples_give_equal_bytes(tmp_path: Path):
    """The shard does not depend on the order of dict keys or on the time."""
    sample = {"__key__": "a", "txt": "one", "cls": 1, "npy": np.arange(3)}
    turned = dict(reversed(sample.items()))
    first = write_all(tmp_path / "1-%d.tar", [sample])
    second = write_all(tmp_path / "2-%d.tar", [turned])
    assert first.shardlist[0]["sha256"] == second.shardlist[0]["sha256"]
    assert (tmp_path / "1-0.tar").read_bytes() == (tmp_path / "2-0.tar").read_bytes()


def test_names_of_the_form_dunder_are_left_out(tmp_path: Path):
    """A sample of a dataset can be written with its `__x__` entries, which are left out."""
    sample = {"__key__": "a", "__index__": 3, "__shard__": "x.tar", ".txt": "one"}
    write_all(tmp_path / "x-%d.tar", [sample])
    assert members_of(tmp_path / "x-0.tar") == [("a.txt", b"one")]


@pytest.mark.parametrize("sample", ["0001", None, [("__key__", "a"), ("txt", "one")]])
def test_only_a_dict_is_a_sample(tmp_path: Path, sample: object) -> None:
    """An object that is no dict is refused by its type, and the shard can be continued."""
    with ShardWriter(tmp_path / "x-%d.tar") as writer:
        writer.write({"__key__": "a", "txt": "one"})
        with pytest.raises(TypeError, match=f"as a dict.*got {type(sample).__name__}"):
            writer.write(sample)
    with tarfile.open(tmp_path / "x-0.tar") as archive:
        assert archive.getnames() == ["a.txt"]


def test_maxsize_is_never_exceeded_but_by_one_large_sample(tmp_path: Path):
    """A shard, with headers and end, has at most `maxsize` bytes unless one sample is larger."""
    samples = [{"__key__": f"{n}", "bin": b"x" * 2000} for n in range(5)]
    samples.insert(2, {"__key__": "large", "bin": b"x" * 20_000})
    samples.append({"__key__": "ключ", "bin": b"x" * 1500})  # this one needs a PAX header
    writer = write_all(tmp_path / "x-%d.tar", samples, maxsize=8000)
    assert [shard["nsamples"] for shard in writer.shardlist] == [2, 1, 2, 2]
    assert [shard["filesize"] for shard in writer.shardlist] == [6144, 22016, 6144, 6656]


def test_post_gets_each_whole_shard_by_its_final_name(tmp_path: Path):
    """`post` is called with the final path of each complete shard."""
    seen = []

    def post(name: str) -> None:
        seen.append((Path(name).name, len(members_of(Path(name)))))

    write_all(tmp_path / "x-%d.tar", text_samples(3), maxcount=2, post=post)
    assert seen == [("x-0.tar", 4), ("x-1.tar", 2)]


def test_error_in_the_block_keeps_whole_shards_and_drops_the_open_one(tmp_path: Path):
    """After an error, complete shards are kept, and the open shard and the spec are not written."""
    spec = tmp_path / "spec" / "x.json"
    with (
        contextlib.suppress(KeyboardInterrupt),
        ShardWriter(tmp_path / "x-%d.tar", maxcount=2, spec=spec) as writer,
    ):
        for sample in text_samples(3):
            writer.write(sample)
        raise KeyboardInterrupt
    assert [path.name for path in tmp_path.glob("x-*")] == ["x-0.tar"]
    assert not spec.exists()


def test_spec_describes_the_shards(tmp_path: Path):
    """Counts, sizes and digests in the spec are those of the files, with relative URLs."""
    samples = text_samples(3)
    write_all(tmp_path / "sub" / "x-%d.tar", samples, maxcount=2, spec=tmp_path / "train.json")
    document = json.loads((tmp_path / "train.json").read_text())
    assert (document["wids_version"], document["name"]) == (1, "train")
    assert [shard["url"] for shard in document["shardlist"]] == ["sub/x-0.tar", "sub/x-1.tar"]
    for shard in document["shardlist"]:
        data = (tmp_path / shard["url"]).read_bytes()
        assert shard["filesize"] == len(data)
        assert shard["md5sum"] == hashlib.md5(data).hexdigest()
        assert shard["sha256"] == hashlib.sha256(data).hexdigest()
    assert [shard["nsamples"] for shard in document["shardlist"]] == [2, 1]
    assert len(DatasetSpec.parse(json.dumps(document), str(tmp_path / "train.json")).shards) == 2


BAD_SAMPLES = [
    ({"txt": "x"}, "needs a '__key__'"),
    ({"__key__": "", "txt": "x"}, "needs a '__key__'"),
    ({"__key__": 7, "txt": "x"}, "needs a '__key__'.*got 7"),
    ({"__key__": "a.b", "txt": "x"}, "'a.b'.*dot in its last part"),
    ({"__key__": "a/b.c", "txt": "x"}, "'a/b.c'.*dot in its last part"),
    ({"__key__": "/a", "txt": "x"}, "'/a'.*empty"),
    ({"__key__": "a//b", "txt": "x"}, "'a//b'.*empty"),
    ({"__key__": "a/", "txt": "x"}, "'a/'.*empty"),
    ({"__key__": "../a", "txt": "x"}, "'../a'.*'..'"),
    ({"__key__": "a\nb", "txt": "x"}, "control character"),
    ({"__key__": "__meta__/a", "txt": "x"}, "'__meta__/a': readers leave out"),
    ({"__key__": "a\ud800", "txt": "x"}, "surrogate"),
    ({"__key__": "a"}, "'a' has no fields"),
    ({"__key__": "a", "jpg": b"1", ".jpg": b"2"}, r"'a'.*'\.jpg' comes twice"),
    ({"__key__": "a", "": b"1"}, "'' cannot be an extension"),
    ({"__key__": "a", "..txt": b"1"}, "cannot be an extension"),
    ({"__key__": "a", "x/y": b"1"}, "'x/y' cannot be an extension"),
    ({"__key__": "a", "t\0": b"1"}, "cannot be an extension"),
    ({"__key__": "a", 3: b"1"}, "3 cannot be an extension"),
    ({"__key__": "a", "cls": object()}, r"'a', field '\.cls': a object could not be encoded"),
    ({"__key__": "a", "txt": None}, r"'a', field '\.txt': a NoneType could not be encoded"),
    ({"__key__": "a", "unheard": 1.5}, r"'a', field '\.unheard': a float could not be encoded"),
]


@pytest.mark.parametrize(("sample", "message"), BAD_SAMPLES)
def test_bad_sample_is_refused_before_a_byte_is_written(
    tmp_path: Path, sample: dict[Any, Any], message: str
):
    """A refused sample raises an error that names key and field, and writes nothing."""
    good = text_samples(2)
    write_all(tmp_path / "good-%d.tar", good)
    with ShardWriter(tmp_path / "bad-%d.tar") as writer:
        writer.write(good[0])
        with pytest.raises(ValueError, match=message):
            writer.write(sample)
        writer.write(good[1])
    assert (tmp_path / "bad-0.tar").read_bytes() == (tmp_path / "good-0.tar").read_bytes()


def test_key_twice_in_a_shard_is_refused(tmp_path: Path):
    """A second sample with the same key is an error."""
    with ShardWriter(tmp_path / "x-%d.tar") as writer:
        for sample in text_samples(2):
            writer.write(sample)
        with pytest.raises(ValueError, match=r"'000000' is in .*x-0\.tar already \(sample 0"):
            writer.write({"__key__": "000000", "jpg": b""})
    assert writer.shardlist[0]["nsamples"] == 2


def test_own_encoders_come_before_the_table(tmp_path: Path):
    """The user's encoder with the longest suffix is used before the built-in ones."""
    encoders = {
        ".txt": lambda value: b"txt " + value.encode(),
        "odd.txt": lambda value: b"odd " + value.encode(),
    }
    sample = {"__key__": "a", "txt": "1", "ODD.txt": "2", "new.txt.gz": "3", "x.cls": 4}
    raw = {"__key__": "b", "txt": b"raw"}
    write_all(tmp_path / "x-%d.tar", [sample, raw], encoders=encoders)
    found = dict(members_of(tmp_path / "x-0.tar"))
    assert gzip.decompress(found.pop("a.new.txt.gz")) == b"txt 3"
    assert found == {"a.txt": b"txt 1", "a.ODD.txt": b"odd 2", "a.x.cls": b"4", "b.txt": b"raw"}


def test_encoder_that_returns_no_bytes_is_named():
    """An encoder that returns no bytes is an error that names the type."""
    with pytest.raises(TypeError, match=r"'\.odd'.*returned a str"):
        SampleEncoder({"odd": lambda value: "text"})({"__key__": "a", "odd": 1})


def test_arguments_stand_in_the_order_of_webdataset(tmp_path: Path):
    """The positional arguments are those of webdataset's `ShardWriter`."""
    seen: list[str] = []
    with ShardWriter(str(tmp_path / "x-%d.tar"), 2, 3e9, seen.append, 7) as writer:
        for sample in text_samples(3):
            writer.write(sample)
    assert [Path(name).name for name in seen] == ["x-7.tar", "x-8.tar"]


def test_part_of_a_killed_writer_is_in_nobodys_way(tmp_path: Path):
    """The temporary file of a killed process is overwritten and removed."""
    (tmp_path / "x-0.tar.part").write_bytes(b"left behind" * 100_000)
    write_all(tmp_path / "x-%d.tar", text_samples(1))
    write_all(tmp_path / "y-%d.tar", text_samples(1))
    assert names_in(tmp_path) == ["x-0.tar", "y-0.tar"]
    assert (tmp_path / "x-0.tar").read_bytes() == (tmp_path / "y-0.tar").read_bytes()


def test_a_disk_that_takes_no_more_is_named(tmp_path: Path) -> None:
    """A shard that cannot grow is named in the error of the sample, and leaves no file."""
    script = (
        "import resource, sys, wids\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))\n"
        "with wids.ShardWriter(sys.argv[1]) as writer:\n"
        "    for number in range(100):\n"
        "        writer.write({'__key__': f'{number:03d}', 'bin': bytes(100_000)})\n"
    )
    done = run_python("-c", script, f"{tmp_path}/train-%03d.tar")
    assert f"File too large: '{tmp_path}/train-000.tar'" in done.stderr
    assert list(tmp_path.iterdir()) == []
