"""Shards that cannot be opened leave no descriptor and no map open."""

import gzip
import io
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import wids
from wids.errors import WidsError
from wids.specs.build import index_shard
from wids.tar.shard import Shard
from wids.tar.tarindex import TarIndex


def whole(num_samples: int = 20, kind: int = tarfile.GNU_FORMAT, name: str = "") -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=kind) as tar:
        for number in range(num_samples):
            member = tarfile.TarInfo(f"{name}{number:04}.txt")
            member.size = 600
            tar.addfile(member, io.BytesIO(b"x" * 600))
    return stream.getvalue()


def patched(data: bytes, place: int, content: bytes) -> bytes:
    return data[:place] + content + data[place + len(content) :]


def stated_size(text: bytes) -> bytes:
    """Return a shard whose second member states a size, with a checksum that fits."""
    data = patched(whole(), 1536 + 124, text)
    data = patched(data, 1536 + 148, b" " * 8)
    return patched(data, 1536 + 148, b"%06o\0 " % sum(data[1536:2048]))


DATA = whole()
DAMAGED: dict[str, bytes] = {
    "empty": b"",
    "one byte": b"x",
    "page": b"<html>" * 1000,
    "noise": bytes(range(256)) * 40,
    "cut in a header": DATA[:1700],
    "cut in a field": DATA[:2100],
    "cut after a header": DATA[:2048],
    "checksum": patched(DATA, 1536 + 148, b"0000000\0"),
    "name exchanged": patched(DATA, 1536, b"other.txt"),
    "header of text": patched(DATA, 1536, b"A" * 512),
    "size is none": stated_size(b"zzzzzzzzzzz\0"),
    "size beyond the end": stated_size(b"77777777777\0"),
    "negative size": stated_size(b"\xff" * 12),
    "size of 2**63": stated_size(b"\x80\0\0\0\x80" + bytes(7)),
    "PAX cut": whole(kind=tarfile.PAX_FORMAT, name="ä" * 80)[:700],
    "PAX damaged": patched(whole(kind=tarfile.PAX_FORMAT, name="ä" * 80), 512, b"x" * 40),
    "long name cut": whole(name="n" * 300)[:800],
    "gzip": gzip.compress(DATA),
    "gzip cut": gzip.compress(DATA)[:-30],
    "two archives": DATA + whole(5, name="other"),
}


def open_files(folder: Path) -> list[str]:
    """Return the descriptors and maps of files below a folder."""
    links = [link for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    held = [str(link.readlink()) for link in links if link.is_symlink()]
    held += Path("/proc/self/maps").read_text().splitlines()
    return [each for each in held if f"{folder}/" in each]


def open_dataset(path: str) -> None:
    with wids.ShardListDataset([path], cache_dir=Path(path).with_name("cache")) as dataset:
        dataset[len(dataset) - 1]


OPENINGS: dict[str, Callable[[str], Any]] = {
    "index_shard": index_shard,
    "from_tar": TarIndex.from_tar,
    "open": lambda path: TarIndex.open(path, f"{path}.index"),
    "Shard": Shard,
    "ShardListDataset": open_dataset,
}


@pytest.mark.filterwarnings("ignore::wids.WidsWarning")
@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs the list of open files")
@pytest.mark.parametrize("opening", OPENINGS)
def test_a_failed_opening_closes_what_it_opened(opening: str, tmp_path: Path) -> None:
    """Files are closed while the error is still at hand, not when its traceback is let go."""
    failed = 0
    for kind, data in DAMAGED.items():
        path = tmp_path / f"{kind}.tar"
        path.write_bytes(data)
        error: Exception | None = None
        try:
            OPENINGS[opening](str(path))
        except WidsError as caught:
            error = caught
        failed += error is not None
        assert not open_files(tmp_path), (kind, error)
    assert failed > 10


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs the list of open files")
def test_a_damaged_sidecar_is_closed(tmp_path: Path) -> None:
    """A sidecar that is none, or another shard's, is not left mapped beside its error."""
    path, sidecar = tmp_path / "a.tar", tmp_path / "a.tar.index"
    path.write_bytes(DATA)
    TarIndex.from_tar(path).save(sidecar)
    image = sidecar.read_bytes()
    for damaged in [b"", image[:10], image[:-5], b"x" * 5000]:
        sidecar.write_bytes(damaged)
        error: Exception | None = None
        try:
            TarIndex.load(sidecar, tar=path)
        except WidsError as caught:
            error = caught
        assert not open_files(tmp_path), error
