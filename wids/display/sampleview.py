"""One sample to look at: printed, or shown by a notebook."""

from collections.abc import Mapping
from typing import Any

from wids.base.text import clean, columns_of, format_nbytes
from wids.display.fieldview import ClassNames
from wids.display.notebook import sample_html
from wids.display.oneline import content_line
from wids.display.samplefields import SampleFields

__all__ = ["SampleView", "show"]

MAX_NAME = 30  # columns of a field's name
LINE_WIDTH = 120  # characters of a line of `repr`


class SampleView(SampleFields):
    """A sample to look at: `print` gives lines of text, a notebook shows pictures.

    >>> print(SampleView.of({"__key__": "a", "__index__": 3, ".cls": b"1", ".txt": b"one"}))
    sample 3, key a
      .cls       1 B  1
      .txt       3 B  'one'
    """

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
