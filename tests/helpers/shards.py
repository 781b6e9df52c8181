"""Paths of real archives, and small shards written by Python's tarfile."""

import io
import os
import tarfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
SHARED_DATA = Path(os.environ.get("WIDS_SHARED_DATA", REPOSITORY.parent / "shared" / "data"))

Sample = Mapping[str, str | bytes]
MakeShard = Callable[..., Path]  # the type of the fixture `make_shard`


def tar_bytes(
    members: Iterable[tuple[str, bytes]],
    tar_format: int = tarfile.USTAR_FORMAT,
    mtime: float = 0,
) -> bytes:
    """Write members to a tar in memory with Python's tarfile, independently of the library."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tar_format) as archive:
        for name, content in members:
            member = tarfile.TarInfo(name)
            member.size, member.mtime = len(content), mtime
            archive.addfile(member, io.BytesIO(content))
    return stream.getvalue()


def read_tar(path: Path) -> dict[str, bytes]:
    """Read the files of a tar with Python's tarfile; return their contents by their names."""
    with tarfile.open(path) as archive:
        return {each.name: archive.extractfile(each).read() for each in archive if each.isfile()}


def write_shard(
    path: Path, samples: Sequence[Sample], tar_format: int = tarfile.USTAR_FORMAT
) -> Path:
    """Write samples as a shard with Python's tarfile."""
    path.parent.mkdir(parents=True, exist_ok=True)
    members = [
        (f"{sample['__key__']}{extension}", data.encode() if isinstance(data, str) else data)
        for sample in samples
        for extension, data in sample.items()
        if extension != "__key__"
    ]
    path.write_bytes(tar_bytes(members, tar_format))
    return path


def write_shards(
    folder: Path, samples: Sequence[Sample], length: int, name: str = "{}.tar"
) -> list[tuple[str, int]]:
    """Write samples as shards of a length; return the path and the length of each."""
    rows = []
    for number, start in enumerate(range(0, len(samples), length)):
        part = samples[start : start + length]
        rows.append((str(write_shard(folder / name.format(number), part)), len(part)))
    return rows
