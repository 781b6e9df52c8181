"""Array files: written arrays are read back, and forged or damaged files are refused."""

import json
import random
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

from wids.base.arrayfile import read_arrays, write_arrays

numbers = arrays_of.arrays(
    st.sampled_from(["?", "i1", "<u2", ">i4", "<i8", "f4", "<f8", "c8"]),
    arrays_of.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.text(max_size=5), numbers, max_size=4))
def test_arrays_come_back(tmp_path: Path, arrays: dict[str, Any]) -> None:
    """Names, types, shapes and elements are read back; the arrays are read-only and aligned."""
    write_arrays(tmp_path / "a", {"of": [1, None]}, arrays)
    about, found = read_arrays(tmp_path / "a")
    assert about == {"of": [1, None]}
    assert list(found) == list(arrays)
    for name, array in arrays.items():
        assert found[name].dtype == array.dtype
        assert found[name].shape == array.shape
        assert found[name].tobytes() == array.tobytes()
        assert not found[name].flags.writeable
        assert found[name].flags.aligned


def test_arrays_outlive_their_file(tmp_path: Path) -> None:
    """Arrays stay valid when another process replaces or removes the file."""
    write_arrays(tmp_path / "a", None, {"x": np.arange(5000)})
    _, found = read_arrays(tmp_path / "a")
    (tmp_path / "a").unlink()
    assert found["x"].tolist() == list(range(5000))


@pytest.mark.parametrize(
    "array", [np.array(["text"]), np.array([{}]), np.array(0, "M8[s]"), np.zeros(2, "i4,f4")]
)
def test_only_numbers_are_kept(tmp_path: Path, array: Any) -> None:
    """Text, objects, dates and records are refused and leave no file."""
    with pytest.raises(ValueError, match="'x': expected numbers"):
        write_arrays(tmp_path / "a", None, {"x": array})
    assert list(tmp_path.iterdir()) == []


def test_damage_anywhere_is_noticed(tmp_path: Path) -> None:
    """A flipped bit, a cut or appended bytes raise an error at any position."""
    path = tmp_path / "a"
    write_arrays(path, {"of": 1}, {"x": np.arange(20), "y": np.ones(3, "?")})
    whole = path.read_bytes()
    chance = random.Random(0)
    for _ in range(300):
        damaged = bytearray(whole)
        damaged[chance.randrange(len(whole))] ^= 1 << chance.randrange(8)
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=str(path)):
            read_arrays(path)
    for other in (b"", b"WIDSarr1", whole[:-1], whole + b"\0", b"{}" * 99):
        path.write_bytes(other)
        with pytest.raises(ValueError, match=str(path)):
            read_arrays(path)


def forge(path: Path, head: Any) -> None:
    """Give a file another head with a matching checksum."""
    data = path.read_bytes()
    size = int.from_bytes(data[8:16], "little")
    if isinstance(head, dict):
        head = json.loads(data[20 : 20 + size]) | head
    text = head if isinstance(head, bytes) else json.dumps(head).encode()
    start = data[:8] + len(text).to_bytes(8, "little") + zlib.crc32(text).to_bytes(4, "little")
    path.write_bytes(start + text + data[20 + size :])


@pytest.mark.parametrize(
    "entry",
    [
        ["|u1", [8], 10**9],
        ["|u1", [8], -8],
        ["|u1", [9], 0],
        ["|u1", [2**70], 1],
        ["|u1", [0, 2**70], 0],
        ["|u1", [-1, -8], 0],
        ["|u1", [1.5], 0],
        ["|u1", [0] * 70, 0],
        ["|O", [1], 0],
        ["no type", [1], 0],
        ["<i8", "x", 0],
        ["|u1", [8]],
        "x",
        None,
    ],
)
def test_a_forged_entry_is_refused(tmp_path: Path, entry: Any) -> None:
    """A head with a wrong shape, type or offset never leads outside the file."""
    write_arrays(tmp_path / "a", {}, {"x": np.arange(8, dtype=np.uint8)})
    forge(tmp_path / "a", {"arrays": {"x": entry}})
    with pytest.raises(ValueError, match="malformed head"):
        read_arrays(tmp_path / "a")


@pytest.mark.parametrize("head", [b"[]", b"7", b"{}", b"no JSON", b"[" * 9999, {"arrays": []}])
def test_a_forged_head_is_refused(tmp_path: Path, head: Any) -> None:
    """A head of another form raises a ValueError."""
    write_arrays(tmp_path / "a", {}, {})
    forge(tmp_path / "a", head)
    with pytest.raises(ValueError, match=r"head|damaged|JSON|Expecting"):
        read_arrays(tmp_path / "a")
