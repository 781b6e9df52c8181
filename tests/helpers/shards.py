"""Paths of real archives, and small shards written by Python's tarfile."""

import io
import os
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
SHARED_DATA = Path(os.environ.get("WIDS_SHARED_DATA", REPOSITORY.parent / "shared" / "data"))

Sample = Mapping[str, str | bytes]


def write_shard(
    path: Path, samples: Sequence[Sample], tar_format: int = tarfile.USTAR_FORMAT
) -> Path:
    """Write samples as a shard with Python's tarfile, independently of the library."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w", format=tar_format) as archive:
        for sample in samples:
            for extension, data in sample.items():
                if extension == "__key__":
                    continue
                content = data.encode() if isinstance(data, str) else data
                member = tarfile.TarInfo(f"{sample['__key__']}{extension}")
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
    return path
