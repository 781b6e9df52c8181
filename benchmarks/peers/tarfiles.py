"""The samples as Python's tarfile reads them, for peers that convert them to files of their own."""

import json
import tarfile
from collections.abc import Iterator
from pathlib import Path


def samples_of(folder: Path) -> Iterator[tuple[bytes, ...]]:
    """Yield the fields of all samples, in order."""
    for shard in json.loads((folder / "spec.json").read_text())["shardlist"]:
        yield from samples_of_shard(shard["url"])


def samples_of_shard(path: str) -> Iterator[tuple[bytes, ...]]:
    """Yield the fields of the samples of one shard, in order."""
    with tarfile.open(path) as archive:
        key, fields = "", []
        for member in archive:
            stem = member.name.split(".", maxsplit=1)[0]
            if stem != key and fields:
                yield tuple(fields)
                fields = []
            key = stem
            fields.append(archive.extractfile(member).read())
        yield tuple(fields)
