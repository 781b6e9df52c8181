"""One hostile field in a shard, read as every field is."""

import io
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from helpers.shards import write_shard
from PIL import Image

from attacks.runner import BOUNDED, RIGHT, Attack, Scene, Wrong
from wids.codecs.decode import SampleDecoder
from wids.codecs.framing import CenterCrop
from wids.codecs.images import ImageDecoder
from wids.errors import DecodeError
from wids.reading.shardlist import ShardList

NOTHING = object()  # no value is known to be the right one
MAX_NBYTES = 64 << 20  # the default takes seconds to fill, so few variants use it
MAX_PIXELS = 16 << 20


@dataclass(frozen=True)
class Field:
    """A field of a sample.

    Attributes:
        extension: With its dot.
        data: Its bytes.
        expected: The value that it must decode to; NOTHING if any value or an error will do.
    """

    extension: str
    data: bytes
    expected: Any = NOTHING


def field_attack(make: Callable[[random.Random], Field], *, refused: bool = False) -> Attack:
    """Return the attack by one field.

    Args:
        make: Makes the field.
        refused: Whether no value at all is right.
    """

    def attack(scene: Scene) -> Callable[[], str]:
        field = make(scene.chance)
        path = write_shard(
            scene.folder / "a.tar", [{"__key__": "0001", field.extension: field.data}]
        )
        default = scene.chance.random() < 0.02
        images = scene.chance.choice(
            ["PIL", "numpy", ImageDecoder("numpy", "RGB", size=CenterCrop(64), backend="pillow")]
        )
        decoder = SampleDecoder(
            images,
            **({} if default else {"max_nbytes": MAX_NBYTES}),
            copy=scene.chance.random() < 0.5,
        )

        def attempt() -> str:
            value = _read(path, field.extension, decoder)
            if refused:
                raise Wrong(f"{field.extension} was read: {value!r:.200}")
            if field.expected is not NOTHING and not same(value, field.expected):
                raise Wrong(
                    f"{field.extension}: got {value!r:.200}, expected {field.expected!r:.200}"
                )
            return BOUNDED if field.expected is NOTHING else RIGHT

        return attempt

    return attack


def _read(path: Path, extension: str, decoder: SampleDecoder) -> Any:
    """Read the one field; check that an error says where it is."""
    with ShardList([str(path)], transformations=decoder) as dataset:
        try:
            value = dataset[0][extension]
            if isinstance(value, Image.Image):
                # As an array, its bytes would be there three times, which is the caller's choice.
                value.load()
                value = np.asarray(value) if value.width * value.height < MAX_PIXELS else value
            elif isinstance(value, io.BytesIO):
                value = value.read()
        except DecodeError as error:
            for said in (f"'{extension}'", "0001", "a.tar"):
                if said not in str(error):
                    raise Wrong(f"the message does not say {said}: {error}") from error
            raise
    return value


def same(one: Any, other: Any) -> bool:
    """Return whether two values are equal, arrays in type and shape, too."""
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        one, other = np.asarray(one), np.asarray(other)
        return (
            one.dtype == other.dtype
            and one.shape == other.shape
            and one.tobytes() == other.tobytes()
        )
    if isinstance(one, dict) and isinstance(other, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)
