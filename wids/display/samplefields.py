"""The fields of one sample as bytes that can be viewed, be they stored or decoded."""

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np

from wids.codecs.arrays import encode_npy
from wids.display.fieldview import ClassNames, FieldView, view_field

__all__ = ["Field", "SampleFields"]

MAX_REPR = 10_000  # characters of a value that only its own `repr` can describe


class Field(NamedTuple):
    """A field as bytes that `view_field` understands.

    Attributes:
        name: What the sample calls it, such as ".jpg" or "image".
        format: The extension that says how to read `data`.
        data: The bytes.
        stored: Whether they are what the shard holds, or were made from a decoded value.
    """

    name: str
    format: str
    data: bytes | memoryview
    stored: bool


@dataclass(frozen=True, repr=False)
class SampleFields:
    """A sample taken apart: what can be viewed, and what it says of itself.

    Attributes:
        fields: Its fields, in their order.
        facts: What the sample says of itself: `key`, `index`, `shard` and the like.
        class_names: The name of each class, by its number; or None.

    >>> SampleFields.of({"__key__": "a", "__index__": 3, ".cls": b"1"}).title
    'sample 3, key a'
    """

    fields: tuple[Field, ...]
    facts: Mapping[str, Any]
    class_names: ClassNames | None = None

    @classmethod
    def of(cls, sample: Mapping[str, Any], class_names: ClassNames | None = None) -> Self:
        """Make it of a sample, raw or decoded.

        Args:
            sample: What a dataset gave: fields by name, as bytes, as streams, or as the values
                that decoding and transformations made of them.
            class_names: The name of each class, by its number.
        """
        # Transformations may give a sample any keys; what is shown of one is its text.
        items = [(str(name), value) for name, value in sample.items()]
        facts = {name.strip("_"): value for name, value in items if _is_fact(name)}
        fields = (_field(name, value) for name, value in items if not _is_fact(name))
        return cls(tuple(fields), facts, class_names)

    def views(self) -> dict[str, FieldView]:
        """View each field, by its name."""
        return {
            field.name: view_field(field.format, field.data, class_names=self.class_names)
            for field in self.fields
        }

    @property
    def title(self) -> str:
        """The sample in a few words: its index and key."""
        parts = [f"sample {self.facts['index']}"] if "index" in self.facts else ["sample"]
        parts += [f"key {self.facts['key']}"] if "key" in self.facts else []
        return ", ".join(parts)


def _is_fact(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


def _field(name: str, value: Any) -> Field:
    """Return the bytes of a field; of a decoded value, bytes from which it can be shown."""
    if isinstance(value, io.BytesIO | bytearray):
        value = bytes(value if isinstance(value, bytearray) else value.getbuffer())
    if isinstance(value, bytes | memoryview):
        return Field(name, name if name.startswith(".") else f".{name}", value, stored=True)
    try:
        return Field(name, *_shown(name, value), stored=False)
    except Exception as error:  # noqa: BLE001 (a stranger's object may fail in any way)
        text = f"{type(value).__name__}, which cannot be shown: {error}"
        return Field(name, ".txt", text.encode("utf-8", "replace"), stored=False)


def _shown(name: str, value: Any) -> tuple[str, bytes]:
    """Return a format and bytes that show a decoded value."""
    if isinstance(value, np.generic):
        value = value.item()  # a number as it was meant, not an array without axes
    if isinstance(value, str):
        return ".txt", value.encode("utf-8", "backslashreplace")
    if isinstance(value, int) and not isinstance(value, bool) and name.lower().endswith(".cls"):
        return ".cls", str(value).encode()
    if hasattr(value, "getbands") and hasattr(value, "save"):  # a PIL image
        return ".png", _png(value)
    if hasattr(value, "dtype") and hasattr(value, "shape"):  # an array, or a tensor on any device
        value = value.detach().cpu() if hasattr(value, "detach") else value
        return ".npy", encode_npy(np.asarray(value))
    try:
        return ".json", json.dumps(value, ensure_ascii=False).encode("utf-8", "backslashreplace")
    except (TypeError, ValueError, RecursionError):
        return ".txt", repr(value)[:MAX_REPR].encode("utf-8", "backslashreplace")


def _png(image: Any) -> bytes:
    """Encode a PIL image of any mode; those that PNG lacks are turned into colours."""
    stream = io.BytesIO()
    known = image.mode in {"1", "L", "LA", "P", "RGB", "RGBA", "I;16"}
    (image if known else image.convert("RGB")).save(stream, "PNG", compress_level=1)
    return stream.getvalue()
