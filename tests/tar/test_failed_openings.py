"""Shards that cannot be opened leave no descriptor and no map open."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.archives import BAD, A, B
from helpers.tarbytes import END

import wids
from wids.errors import WidsError
from wids.specs.build import index_shard
from wids.tar.shard import Shard
from wids.tar.tarindex import TarIndex


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
    for kind, data in {**BAD, "two archives": A + END + B + END}.items():
        path = tmp_path / f"{kind}.tar"
        path.write_bytes(data)
        error: Exception | None = None
        try:
            OPENINGS[opening](str(path))
        except WidsError as caught:
            error = caught
        failed += error is not None
        assert not open_files(tmp_path), (kind, error)
    assert failed > 30


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs the list of open files")
def test_a_damaged_sidecar_is_closed(tmp_path: Path) -> None:
    """A sidecar that is none, or another shard's, is not left mapped beside its error."""
    path, sidecar = tmp_path / "a.tar", tmp_path / "a.tar.index"
    path.write_bytes(A + B + END)
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
