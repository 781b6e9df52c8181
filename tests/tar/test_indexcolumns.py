"""Columns of a tar index give the same results as its samples one by one."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from wids import ShardFormatError, TarIndex
from wids.tar.sidecar import ROW, read_sidecar

KEYS = st.lists(st.text("aAb/éÉ", min_size=1, max_size=5), min_size=1, max_size=12, unique=True)


def shard_of(make_shard: Callable[..., Path], keys: list[str]) -> TarIndex:
    """Index a shard whose samples have `.a`, and every second one also `.b.c`."""
    samples = []
    for number, key in enumerate(keys):
        fields = {"__key__": key, ".a": b"x" * number}
        samples.append(fields | ({".b.c": b"y" * (7 * number)} if number % 2 else {}))
    return TarIndex.from_tar(make_shard("s.tar", samples))


def usable(keys: list[str]) -> list[str]:
    """Return whether a text can be a key: no empty component, no slash at an end."""
    return [key for key in keys if all(key.split("/"))]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(KEYS.map(usable).filter(bool), st.text("aBb/éÉ", max_size=3))
def test_keys_are_found_as_python_finds_them(make_shard, keys: list[str], text: str):
    """A search by key or a part of it finds the samples that `str` methods find."""
    columns = shard_of(make_shard, keys).columns()
    parts = [place for place, key in enumerate(keys) if text.lower() in key.lower()]
    assert columns.places_with_key(text).tolist() == parts
    same = [place for place, key in enumerate(keys) if key == text]
    assert columns.places_with_key(text, whole=True).tolist() == same


def test_sizes_are_those_of_the_fields(make_shard: Callable[..., Path]):
    """The sizes of all fields are returned by extension and summed by sample."""
    index = shard_of(make_shard, ["k0", "k1", "k2", "k3"])
    columns = index.columns()
    sizes = {name: sorted(found.tolist()) for name, found in columns.sizes_by_extension().items()}
    assert sizes == {".a": [0, 1, 2, 3], ".b.c": [7, 21]}
    sums = [sum(size for _, _, size in index.fields(place)) for place in range(4)]
    assert columns.sample_sizes().tolist() == sums == [0, 8, 2, 24]


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
