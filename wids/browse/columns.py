"""The columns of the samples of a page: names in SQL, kinds of values, and picks of values.

What is picked of a column is a parameter of a URL: values between commas, or ranges of numbers.
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote

from wids.catalogue.build import has_headers
from wids.catalogue.structures import literal, quoted
from wids.codecs.formats import field_kind, is_class
from wids.codecs.headers import HEADER_FACTS
from wids.display.pixels import names_labels

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = [
    "ENDPOINTS",
    "NUMBERS",
    "PARAMETERS",
    "PATH",
    "Column",
    "Columns",
    "check_parameters",
    "column_name",
    "has_classes",
    "in_brackets",
    "is_path",
    "number_of",
    "parameter_of",
    "text_of",
    "written",
]

# Parameters of each endpoint. Others are an error, because they would silently have no effect.
_ORDER = (
    "order seed epoch rank replicas interleave lanes chunksize where q marks inside near far shard "
    "missing broken sort"
)
ENDPOINTS = {
    "dataset": "",
    "facets": _ORDER,
    "groups": f"by across {_ORDER}",
    "map": f"field colour {_ORDER}",
    "overview": "",
    "page": f"at count look {_ORDER}",
    "raw": "i f save v",
    "sample": f"i p from {_ORDER}",
    "selection": f"without {_ORDER}",
    "shards": "from count",
    "thumb": "i f s v strip soon",
    "turns": "i f from",
    "words": "before kind",
}
# Those of the page's own URLs, too. A column of such a name is in quotes there.
PARAMETERS = frozenset(" ".join(["compare view shards size token", *ENDPOINTS.values()]).split())
_INTEGERS = ("tinyint", "smallint", "integer", "bigint", "hugeint")
_UNSIGNED = tuple(f"u{each}" for each in _INTEGERS)
NUMBERS = frozenset((*_INTEGERS, *_UNSIGNED, "float", "double", "decimal"))
_NULL = "null"  # in the parameter of a column: samples without a value
_EMPTY = "%"
_MOST_LEVELS = 3
_FACTS = {"image": 2, "audio": 1, "video": 3}  # how many of the facts of a header are counted
_DERIVED = ("depth", "normal", "flow", "mask")
_PLAIN_NAME = re.compile(r"[a-z_]\w*")
# Words of SQL that are columns in quotes alone.
_WORDS = """
all analyse analyze and anti any array as asc asof asymmetric at authorization binary both by case
cast check collate collation column columns concurrently constraint create cross default deferrable
desc describe distinct do else end except false fetch for foreign freeze from full generated glob
group having ilike in initially inner intersect into is isnull join lambda lateral leading left like
limit map natural not notnull null offset on only or order outer overlaps pivot pivot_longer
pivot_wider placing positional primary qualify references returning right select semi show similar
some struct summarize symmetric table tablesample then to trailing true try_cast tuple union unique
unpack unpivot using variadic verbose when where window with
"""
_KEYWORDS = frozenset(_WORDS.split())
_NAME = r'(?:"(?:[^"]|"")*"|[A-Za-z_]\w*)'
PATH = rf"{_NAME}(?:\.{_NAME})*"  # pattern of a column, which may lie within another one
_INTEGER = re.compile(r"\s*-?\d{1,18}\s*")
_NUMBER = re.compile(r"-?\d{1,38}(\.\d{0,40})?(e[+-]?\d{1,3})?", re.IGNORECASE)


class Column(NamedTuple):
    """A column that holds one value for each sample.

    Attributes:
        name: Its name in SQL.
        kind: "numbers", "values" (truth values), "texts", or "others".
        field: The column of `samples` in which it lies.
    """

    name: str
    kind: str
    field: str


class Columns:
    """The columns of the table `samples`.

    Args:
        cursor: A connection that has the table.
    """

    def __init__(self, cursor: Any) -> None:
        relation = cursor.sql("SELECT * FROM samples LIMIT 0")
        self.kinds = dict(zip(relation.columns, relation.types, strict=True))

    @property
    def has_class_names(self) -> bool:
        """Whether classes have names."""
        return "cls_name" in self.kinds

    @cached_property
    def fields(self) -> list[str]:
        """The columns of all fields of samples, whether these have values or not."""
        return [name for name, _ in self.kinds["sizes"].children] if "sizes" in self.kinds else []

    @cached_property
    def scalars(self) -> list[Column]:
        """The columns of single values."""
        plain = (each for each in self.kinds.items() if each[0] not in ("offsets", "sizes"))
        return [column for name, kind in plain for column in _scalars((name,), kind)]

    def header_columns(self) -> dict[str, list[Column]]:
        """Return the facts of headers that are counted, by the column of their field."""
        found: dict[str, list[Column]] = {}
        for name in self.fields:
            kind = field_kind(f".{name}")
            derived = names_labels(f".{name}") or any(word in name for word in _DERIVED)
            if has_headers(f".{name}") and not derived and kind in _FACTS:
                found[name] = [
                    Column(column_name(name, fact), "numbers", name)
                    for fact in HEADER_FACTS[kind][: _FACTS[kind]]
                ]
        return found

    def known(self) -> list[Column]:
        """Return the columns of single values, and those of headers that are not built yet."""
        headers = [each for its in self.header_columns().values() for each in its]
        return list(dict.fromkeys([*self.scalars, *headers]))

    def picked(self, cursor: Any, source: str, name: str, text: str) -> str:
        """Return the condition that a column has one of some values.

        Args:
            cursor: A connection.
            source: What is selected from.
            name: The column, or an expression that was checked.
            text: The values, each as `written` writes it, or as a range such as `3..7.5`.

        Raises:
            ValueError: A number was expected.
        """
        items = text.split(",")
        value = cursor.sql(f"SELECT {in_brackets(name)} AS value FROM {source} LIMIT 0")
        subject = name if is_path(name) else in_brackets(name)
        parts = [f"{subject} IS NULL"] if _NULL in items else []
        items = [each for each in items if each != _NULL]
        if name.lower() == "cls" and self.has_class_names:
            named = [each for each in items if not _INTEGER.fullmatch(unquote(each))]
            items = [each for each in items if each not in named]
            names = ", ".join(literal(unquote(each)) for each in named)
            parts += [f"cls_name IN ({names})"] if named else []
        if value.types[0].id in NUMBERS:
            ranges = [each.split("..", 1) for each in items if ".." in each]
            for low, high in ranges:
                bounds = [f"{subject} >= {_number(name, low)}"] if low else []
                bounds += [f"{subject} < {_number(name, high)}"] if high else []
                parts.append(" AND ".join(bounds) or f"{subject} IS NOT NULL")
            values = [_number(name, each) for each in items if ".." not in each]
        else:
            values = [literal("" if each == _EMPTY else unquote(each)) for each in items]
        return _either([*parts, *([f"{subject} IN ({', '.join(values)})"] if values else [])])


def _scalars(path: tuple[str, ...], kind: Any) -> Iterator[Column]:
    if kind.id == "struct":
        for child, inner in kind.children if len(path) <= _MOST_LEVELS else ():
            yield from _scalars((*path, child), inner)
    else:
        kinds = {"boolean": "values", "varchar": "texts", **dict.fromkeys(NUMBERS, "numbers")}
        yield Column(column_name(*path), kinds.get(kind.id, "others"), path[0])


def _either(parts: Sequence[str]) -> str:
    if len(parts) == 1:
        return parts[0]
    return f"({' OR '.join(parts)})" if parts else "true"


def _number(name: str, text: str) -> str:
    if _NUMBER.fullmatch(text.strip()) is None:
        raise ValueError(
            f"{name}: expected numbers and ranges, such as 3,10..20, got {text[:40]!r}"
        )
    return text


def check_parameters(endpoint: str, query: Mapping[str, str]) -> None:
    """Raise ValueError for a parameter that an endpoint does not know.

    Raises:
        ValueError: There is one; the message lists the known ones.

    >>> check_parameters("turns", {"i": "3", "field": "0"})
    Traceback (most recent call last):
    ...
    ValueError: unknown parameter 'field'; 'turns' takes f, from, i
    """
    known = ENDPOINTS[endpoint].split()
    for name in query:
        # Others than those of the page are columns, of which values are wanted.
        is_pick = "where" in known and name not in PARAMETERS
        if name not in [*known, "token"] and not is_pick:
            takes = ", ".join(sorted(known)) or "none"
            raise ValueError(f"unknown parameter {name[:40]!r}; {endpoint!r} takes {takes}")


def number_of(query: Mapping[str, str], name: str, default: int = 0) -> int:
    """Return a whole number of a request.

    Raises:
        ValueError: It is none.
    """
    text = query.get(name, "")
    # Long texts are refused first, since int() takes seconds for millions of digits.
    if not text:
        return default
    # 64 bits have 20 digits.
    if len(text) > 20 or not text.removeprefix("-").isdecimal():
        raise ValueError(f"{name}: expected a whole number, got {text[:40]!r}")
    return int(text)


def has_classes(name: str) -> bool:
    """Return whether the values of a column are classes, by its name in SQL."""
    plain = name.strip('"')
    return is_class(f".{plain}")


def column_name(field: str, *steps: str) -> str:
    """Return a column of `samples`, or what steps into it lead to, as SQL has it.

    >>> print(column_name("json", "image size", "group"), column_name("group"))
    json."image size".group "group"
    """
    names = [each if _PLAIN_NAME.fullmatch(each) else quoted(each) for each in (field, *steps)]
    return ".".join([quoted(field) if field in _KEYWORDS else names[0], *names[1:]])


def parameter_of(name: str) -> str:
    """Return a column as the parameter of a URL: in quotes, where the page uses its name itself."""
    return quoted(name) if name in PARAMETERS else name


def is_path(text: str) -> bool:
    """Return whether a text is a column, and no other expression."""
    return re.fullmatch(PATH, text) is not None


def in_brackets(text: str) -> str:
    """Return an expression in brackets, whose end no comment in it hides."""
    return f"(\n{text}\n)" if "--" in text or "\n" in text else f"({text})"


def text_of(value: Any) -> str:
    """Return a value as SQL writes it, but for quotes around texts."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def written(value: Any, name: str | None = None, *, is_clear: bool = False) -> str:
    """Return a value as the parameter of its column has it, where commas separate values.

    Args:
        value: The value.
        name: Its name, if it is a class.
        is_clear: Whether no other class has this name.

    >>> written("a, 50%"), written(True), written(3), written(None), written("null"), written("")
    ('a%2C 50%25', 'true', '3', 'null', '%6Eull', '%')
    >>> written(3, "cat", is_clear=True), written(3, "7", is_clear=True)
    ('cat', '3')
    """
    if value is None:
        return _NULL
    if name is not None and is_clear and not _INTEGER.fullmatch(name):
        value = name
    text = text_of(value).replace("%", "%25").replace(",", "%2C").replace("..", "%2E%2E")
    return _EMPTY if not text else f"%6E{text[1:]}" if text == _NULL else text
