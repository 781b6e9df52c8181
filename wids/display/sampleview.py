"""One sample to look at: printed as text, or shown by a notebook with pictures."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from wids.base.text import clean, columns_of, format_nbytes
from wids.codecs.arrays import encode_npy
from wids.display.fieldview import ClassNames, Field, FieldView, content_line, view_field
from wids.display.notebook import sample_html

__all__ = ["SampleView", "show"]

MAX_REPR = 10_000  # characters of a value that only its own `repr` can describe
MAX_NAME = 30  # columns of a field's name
LINE_WIDTH = 120  # characters of a line of `repr`


@dataclass(frozen=True, repr=False)
class SampleView:
    """Sample to look at: `print` gives lines of text, a notebook shows pictures.

    Attributes:
        fields: Its fields, in their order.
        facts: What the sample states about itself: `key`, `index`, `shard` and the like.
        class_names: The name of each class, by its number; or None.

    >>> print(SampleView.of({"__key__": "a", "__index__": 3, ".cls": b"1", ".txt": b"one"}))
    sample 3, key a
      .cls       1 B  1
      .txt       3 B  'one'
    """

    fields: tuple[Field, ...]
    facts: Mapping[str, Any]
    class_names: ClassNames | None = None

    @classmethod
    def of(cls, sample: Mapping[str, Any], class_names: ClassNames | None = None) -> Self:
        """Make a view of a sample, raw or decoded.

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
        """Index and key of the sample, as text."""
        parts = [f"sample {self.facts['index']}"] if "index" in self.facts else ["sample"]
        parts += [f"key {self.facts['key']}"] if "key" in self.facts else []
        return ", ".join(parts)

    def lines(self, width: int = LINE_WIDTH) -> list[str]:
        """Lay the sample out as text that is safe to print.

        Args:
            width: Most characters of a line.
        """
        names = [clean(field.name, MAX_NAME) for field in self.fields]
        name_width = max(map(columns_of, names), default=0)
        lines = [clean(self.title, width)]
        for name, field, view in zip(names, self.fields, self.views().values(), strict=True):
            size = format_nbytes(view.nbytes) if field.stored else ""
            padding = " " * (name_width - columns_of(name))
            line = f"  {name}{padding}  {size:>8}  {clean(content_line(view))}"
            lines.append(clean(line, width))
        return lines

    def __repr__(self) -> str:
        return "\n".join(self.lines())

    def _repr_html_(self) -> str:
        return sample_html(self)


def show(sample: Mapping[str, Any], *, class_names: ClassNames | None = None) -> SampleView:
    """Show a sample that you have: in a notebook as a table with pictures, else as text.

    Args:
        sample: What a dataset gave, decoded or raw.
        class_names: The name of each class, by its number.

    >>> show({"__key__": "a", ".cls": 1}, class_names=["cat", "dog"])
    sample, key a
      .cls            1 (dog)
    """
    if not isinstance(sample, Mapping):
        raise TypeError(f"expected a sample, a dict of fields, got a {type(sample).__name__}")
    return SampleView.of(sample, class_names)


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
