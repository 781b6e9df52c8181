"""HTML built from parts, so that no text of a stranger is ever taken for markup."""

import html
from collections.abc import Iterable

__all__ = ["Markup", "tag"]

EMPTY_TAGS = {"br", "img"}  # they have neither content nor end


class Markup(str):
    """Text that is HTML already; every other string is escaped where it is put into a tag."""

    __slots__ = ()


def tag(name: str, *parts: str | Iterable[str], **attributes: object) -> Markup:
    """Build an element.

    Args:
        name: The element's name.
        parts: What it holds, one behind the other: strings, which are escaped unless they are
            `Markup`, or rows of such.
        attributes: Its attributes; a `_` at the end of a name is dropped, and None is left out.

    >>> print(tag("b", "a<b", tag("i", "c"), style="color:red", title=None))
    <b style="color:red">a&lt;b<i>c</i></b>
    """
    written = "".join(
        f' {key.rstrip("_")}="{html.escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in EMPTY_TAGS:
        return Markup(f"<{name}{written}>")
    content = "".join(_escaped(each) for part in parts for each in _strings(part))
    return Markup(f"<{name}{written}>{content}</{name}>")


def _strings(part: str | Iterable[str]) -> Iterable[str]:
    return [part] if isinstance(part, str) else part


def _escaped(text: str) -> str:
    return text if isinstance(text, Markup) else html.escape(text)
