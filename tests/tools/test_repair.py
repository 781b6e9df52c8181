"""`wids check --repair`: every whole sample of a damaged shard comes back, and nothing else."""

import gzip
import io
import json
import random
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest
from helpers.shards import read_tar, tar_bytes

import wids
from wids.cli import main
from wids.tools.repair import repair_shard

NUM_SAMPLES = 30


def sample(number: int) -> dict[str, bytes]:
    chance = random.Random(number)
    return {
        f"{number:04}.jpg": chance.randbytes(700 + 37 * number),
        f"{number:04}.txt": b"text %d" % number,
    }


SAMPLES = [sample(number) for number in range(NUM_SAMPLES)]
WHOLE = tar_bytes([member for each in SAMPLES for member in each.items()])


def ends() -> list[tuple[int, int]]:
    """Return where each sample begins and ends in the whole shard, by Python's tarfile."""
    with tarfile.open(fileobj=io.BytesIO(WHOLE)) as archive:
        members = archive.getmembers()
    blocks = [(m.offset, m.offset_data + m.size + -m.size % 512) for m in members]
    return [(first[0], last[1]) for first, last in zip(blocks[::2], blocks[1::2], strict=True)]


def repair(tmp_path: Path, data: bytes) -> tuple[Any, dict[str, bytes]]:
    """Repair a shard; return what was done, and the members of the new shard."""
    (tmp_path / "x.tar").write_bytes(data)
    output = tmp_path / "new.tar"
    output.unlink(missing_ok=True)
    done = repair_shard(str(tmp_path / "x.tar"), output)
    assert output.exists() == (done.entry is not None)
    return done, read_tar(output) if output.exists() else {}


def repaired(tmp_path: Path, data: bytes) -> list[str]:
    """Repair a shard; check that each sample of the new one is one of the old, and name them."""
    done, found = repair(tmp_path, data)
    assert done.left_out
    if done.entry is None:
        return []
    keys = sorted({name.split(".")[0] for name in found})
    for key in keys:
        expected = SAMPLES[int(key)]
        assert {name: found[name] for name in found if name.startswith(key)} == expected
    assert done.entry["nsamples"] == len(keys)
    return keys


def test_truncated_shards_give_all_samples_before_the_cut(tmp_path: Path) -> None:
    """All samples before the cut but the last one are recovered, wherever the file ends."""
    chance = random.Random(1)
    bounds = ends()
    for cut in [*(chance.randrange(len(WHOLE)) for _ in range(60)), bounds[3][1], bounds[3][1] + 5]:
        expected = [f"{i:04}" for i, (_, end) in enumerate(bounds) if end <= cut]
        found = repaired(tmp_path, WHOLE[:cut])
        if len(expected) < 2:
            continue  # nothing tells which fields a sample has
        # Of a sample whose last padding is cut off, all data may be there.
        assert found in (expected[:-1], expected)


def is_sound(path: Path, data: bytes) -> bool:
    path.write_bytes(data)
    try:
        wids.TarIndex.from_tar(path, quiet=True)
    except wids.ShardFormatError:
        return False
    return True


@pytest.mark.parametrize("seed", range(40))
def test_torn_shards_give_whole_samples_only(tmp_path: Path, seed: int) -> None:
    """From shards with lost, inserted or changed bytes, only complete samples come, and most do."""
    chance = random.Random(seed)
    start = chance.randrange(512, len(WHOLE) - 12_000)
    length = chance.choice([1, 100, 512, 4096, 10_000])
    ways = {
        "lost": WHOLE[:start] + WHOLE[start + length :],
        "inserted": WHOLE[:start] + chance.randbytes(length) + WHOLE[start:],
        "doubled": WHOLE[: start + length] + WHOLE[start:],
    }
    # Data that are overwritten in place cannot be told from others; so headers are hit here.
    # Zeros at the very end are an end of the archive like any other.
    first = ends()[chance.randrange(NUM_SAMPLES - 3)][0]
    ways["header"] = WHOLE[:first] + b"?" * 512 + WHOLE[first + 512 :]
    ways["zeros"] = WHOLE[:first] + bytes(4096) + WHOLE[first + 4096 :]
    for way, data in ways.items():
        if is_sound(tmp_path / "sound.tar", data):
            continue  # what was lost goes from one data byte to another, and headers still fit
        found = repaired(tmp_path, data)
        lost = NUM_SAMPLES - len(found)
        touched = sum(begin < start + length and end > start for begin, end in ends())
        assert lost <= (0 if way in {"header", "zeros"} else touched) + 6, way


def test_the_command_lists_what_it_leaves_out_by_byte(tmp_path: Path, capsys) -> None:
    """Each gap is listed with its bytes and reason."""
    first, _ = ends()[5]
    damaged = WHOLE[: first + 600] + WHOLE[first + 700 :]
    (tmp_path / "x.tar").write_bytes(damaged)
    with pytest.raises(wids.ShardFormatError, match="wids check --repair"):
        wids.TarIndex.from_tar(tmp_path / "x.tar")
    output = tmp_path / "new" / "x.tar"
    assert main(["check", str(tmp_path / "x.tar"), "--repair", str(output)]) == 0
    said = capsys.readouterr()
    assert f"bytes [{first}, " in said.out
    assert f"{output}: 27 samples" in said.err
    keys = [each["__key__"] for each in wids.ShardListDataset(output, transformations="bytes")]
    assert keys == [f"{i:04}" for i in range(NUM_SAMPLES) if i not in (4, 5, 6)]
    output.unlink()
    assert main(["check", str(tmp_path / "x.tar"), "--repair", str(output), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["entry"]["nsamples"] == 27
    assert [each["key"] for each in report["left_out"]] == ["0004", None, "0005", "0006"]
    assert report["left_out"][1]["start"] == first


def test_a_sound_shard_is_left_alone(tmp_path: Path, capsys) -> None:
    """Nothing is written for an undamaged shard, and never over the shard itself."""
    path = tmp_path / "x.tar"
    path.write_bytes(WHOLE)
    assert main(["check", str(path), "--repair", str(tmp_path / "new.tar")]) == 0
    assert "nothing is damaged" in capsys.readouterr().err
    assert not (tmp_path / "new.tar").exists()
    path.write_bytes(WHOLE[:-20_000])
    assert main(["check", str(path), "--repair", str(path)]) == 1
    assert path.read_bytes() == WHOLE[:-20_000]


@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
def test_long_names_survive(tmp_path: Path, form: int) -> None:
    """Long names, stored in extended headers, are recovered."""
    members = {f"{'folder' * 30}/größe {i:04}.txt": b"x" * 600 for i in range(10)}
    _, found = repair(tmp_path, tar_bytes(members.items(), form)[:-12_000])
    assert list(found) == list(members)[: len(found)]
    assert len(found) >= 3


def test_a_tar_inside_of_a_field_is_no_sample(tmp_path: Path) -> None:
    """After damage, headers of an archive in a field are not taken for the shard's."""
    inner = tar_bytes([("inner.txt", b"no sample")])
    members = {f"{i}.tar": inner for i in range(8)}
    data = bytearray(tar_bytes(members.items()))
    second = 512 + len(inner)
    data[second + 20 : second + 40] = b"?" * 20
    done, found = repair(tmp_path, data)
    assert found.keys() == {f"{i}.tar" for i in range(4, 8)}
    assert done.left_out


def test_samples_of_a_tar_inside_of_a_field_are_none_of_the_shard(tmp_path: Path) -> None:
    """They may look like some of the shard's samples, which have fewer fields than others."""
    inner = tar_bytes([(f"inner{i}.jpg", b"none") for i in range(7)])
    members = {"few.jpg": b"few"}
    for number in range(20):
        members |= {f"{number:02}.jpg": b"picture", f"{number:02}.tar": inner}
    whole = tar_bytes(members.items())
    damaged = whole.index(b"12.tar")
    data = whole[: damaged + 20] + b"?" * 20 + whole[damaged + 40 :]
    done, found = repair(tmp_path, data)
    assert found.items() <= members.items()
    assert {"few.jpg", "11.jpg", "11.tar", "16.jpg", "16.tar"} <= found.keys()
    assert "inner3" in {each.key for each in done.left_out}


def test_no_other_file_is_replaced(tmp_path: Path) -> None:
    """A file that has the name of the new shard may be an intact shard, and stays."""
    (tmp_path / "x.tar").write_bytes(WHOLE[: len(WHOLE) // 2])
    (tmp_path / "new.tar").write_bytes(WHOLE)
    with pytest.raises(FileExistsError, match=r"exists already; remove it, .*new\.tar"):
        repair_shard(str(tmp_path / "x.tar"), tmp_path / "new.tar")
    assert (tmp_path / "new.tar").read_bytes() == WHOLE


def test_compressed_shards_are_to_be_unpacked_first(tmp_path: Path) -> None:
    """A damaged `.tar.gz` is an error that says how; gzip gives the samples up to the cut."""
    packed = gzip.compress(WHOLE)
    (tmp_path / "x.tar.gz").write_bytes(packed[: len(packed) // 2])
    with pytest.raises(ValueError, match=r"x\.tar\.gz: is compressed; unpack it .*gzip -dc"):
        repair_shard(str(tmp_path / "x.tar.gz"), tmp_path / "new.tar")
    run = ["gzip", "-dc", str(tmp_path / "x.tar.gz")]
    unpacked = subprocess.run(run, capture_output=True, check=False).stdout
    assert NUM_SAMPLES // 4 < len(repaired(tmp_path, unpacked)) < NUM_SAMPLES


@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
def test_a_cut_behind_an_extended_header_ends_the_search(tmp_path: Path, form: int) -> None:
    """A cut after an extended header does not repeat the search before it."""
    members = {f"{'x' * 130}{i:04}.txt": b"y" * 700 for i in range(6)}
    data = tar_bytes(members.items(), form)
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        begins = [member.offset for member in archive.getmembers()]
    for cut in range(begins[4] + 100, begins[5], 256):
        _, found = repair(tmp_path, data[:cut])
        assert list(found)[:3] == list(members)[:3]


def test_hard_links_do_not_lead_the_search_back(tmp_path: Path) -> None:
    """A hard link, whose data lie before it, does not move the search back."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for number in range(6):
            first = tarfile.TarInfo(f"{number}.txt")
            first.size = 600
            archive.addfile(first, io.BytesIO(b"a" * 600))
        link = tarfile.TarInfo("6.txt")
        link.type, link.linkname = tarfile.LNKTYPE, "0.txt"
        archive.addfile(link)
        damaged = archive.offset
    done, found = repair(tmp_path, stream.getvalue()[:damaged] + b"?" * 5000)
    assert list(found)[:6] == [f"{number}.txt" for number in range(6)]
    assert [each.start for each in done.left_out if each.key is None] == [damaged]


@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
def test_a_sample_without_a_field_whose_name_is_lost_is_said(tmp_path: Path, form: int) -> None:
    """A field whose long name is lost leaves its sample, which is left out or named."""
    folder = "é" if form == tarfile.PAX_FORMAT else "x" * 120
    fields = [f"{folder}{i}.{ext}" for i in range(8) for ext in ("cls", "json")]
    # Before the sample where the name becomes a key of its own, and after it where it is cut.
    fields.insert(8 if form == tarfile.PAX_FORMAT else 10, f"{folder}4.jpg")
    data = tar_bytes([(name, b"x" * 600) for name in fields], form)
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        member = archive.getmember(f"{folder}4.jpg")
    start, end = member.offset, member.offset_data - 512
    torn = b"?" * (end - start) if form == tarfile.PAX_FORMAT else b""
    done, _ = repair(tmp_path, data[:start] + torn + data[end:])
    kept = wids.Shard(tmp_path / "new.tar").index.keys
    assert f"{folder}4" not in list(kept) or any(
        repr(f"{folder}4") in each.reason for each in done.left_out
    )


def some_fields(chance: random.Random, number: int) -> dict[str, bytes]:
    """Return one sample: a third field in some, data of any length that may end in zeros."""
    extensions = ["jpg", "txt", *(["z.json"] if chance.random() < 0.4 else [])]
    sizes = [0, 1, 20, 511, 512, 513, 700, 3000]
    data = [chance.randbytes(chance.choice(sizes)) for _ in extensions]
    data = [each + bytes(chance.choice([0, 0, 100])) for each in data]
    return {f"{number:04}.{ext}": each for ext, each in zip(extensions, data, strict=True)}


def damaged_somehow(chance: random.Random, data: bytes, bounds: list[int]) -> bytes:
    """Return data that are cut, or that lose or get bytes at a border of blocks or anywhere."""
    start = chance.choice([*bounds, chance.randrange(1, bounds[-1]), chance.choice(bounds) + 700])
    length = chance.choice([1, 100, 512, 1024, 4096])
    ways = [
        data[:start],
        data[:start] + data[start + length :],
        data[:start] + chance.choice([bytes(length), chance.randbytes(length)]) + data[start:],
        data[: start + length] + data[start:],
    ]
    return chance.choice(ways)


@pytest.mark.parametrize("block", range(4))
def test_a_sample_is_whole_or_listed(tmp_path: Path, block: int) -> None:
    """Every sample is recovered completely or listed in the report."""
    for seed in range(25 * block, 25 * block + 25):
        chance = random.Random(seed)
        samples = [some_fields(chance, number) for number in range(chance.choice([3, 12]))]
        data = tar_bytes([member for sample in samples for member in sample.items()])
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            members = archive.getmembers()
        bounds = [0, *(m.offset_data + m.size + -m.size % 512 for m in members)]
        hurt = damaged_somehow(chance, data, bounds[1:])
        if is_sound(tmp_path / "x.tar", hurt):
            continue
        done, found = repair(tmp_path, hurt)
        for number, sample in enumerate(samples):
            back = {name: found.pop(name) for name in sample if name in found}
            assert not back or back == sample, seed
            raw = tar_bytes(sample.items())[
                : sum(1024 + len(d) + -len(d) % 512 - 512 for d in sample.values())
            ]
            place = hurt.find(raw)
            if not back and place >= 0:
                assert any(
                    each.key == f"{number:04}" or each.start < place + len(raw) > place < each.end
                    for each in done.left_out
                ), seed
        assert not found, seed
