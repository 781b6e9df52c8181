"""Columns of a tar index: a damaged sidecar gives none."""

from collections.abc import Callable
from pathlib import Path

import pytest

from wids import ShardFormatError, TarIndex
from wids.tar.sidecar import ROW, read_sidecar


@pytest.mark.parametrize("column", [0, 1, 2])
def test_a_damaged_sidecar_is_refused(make_shard: Callable[..., Path], column: int):
    """Rows that point outside of keys, fields or sets raise an error."""
    path = make_shard("s.tar", [{"__key__": "k", ".a": b"1"}, {"__key__": "l", ".a": b"2"}])
    sidecar = path.with_suffix(".widx")
    TarIndex.from_tar(path).save(sidecar)
    image = bytearray(sidecar.read_bytes())
    rows = image.find(bytes(read_sidecar(sidecar).rows))
    row = rows + ROW.size * (1 if column == 2 else 2)
    image[row + 4 * column : row + 4 * column + 4] = (2**31).to_bytes(4, "little")
    sidecar.write_bytes(bytes(image))
    with pytest.raises(ShardFormatError, match="sidecar"):
        TarIndex.load(sidecar).columns()
