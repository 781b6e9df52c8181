"""What can come next in a condition or an order that is being typed, and texts to take it along."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, Any

from wids.browse.columns import PATH

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["completions", "copies"]

_MOST = 50
_VALUE_NEXT = re.compile(
    rf"({PATH})\s*(?:<>|!=|=|in\s*\([^()]*?|distinct\s+from)\s*$", re.IGNORECASE
)
_OPERATOR_NEXT = re.compile(rf"({PATH})\s+$")
_TYPED = re.compile(r'(?:"[^"]*"|[\w.])*(?:"[^"]*)?$')
_OPEN_QUOTE = re.compile(r"^(?:[^']|'[^']*')*('[^']*)$")
_OPERATORS = {
    "numbers": (">=", "<", "=", "in (", "between", "is null"),
    "texts": ("=", "in (", "ilike '%", "is null", "is distinct from"),
    "values": ("=", "in (", "is null", "is distinct from"),
    "others": ("is null", "is not null"),
}


def completions(words: Mapping[str, Any], before: str, kind: str = "condition") -> dict[str, Any]:
    """Return what may come at the end of what was typed so far.

    Args:
        words: The columns of the samples, their kinds, and their frequent values.
        before: The text before the cursor.
        kind: "condition", or "order" for what comes after ORDER BY.

    Returns:
        `entries`, each with its text and what is shown beside it; and how many characters of
        `before` they take the place of.

    >>> words = {"columns": [{"name": "cls", "kind": "numbers", "values": [["3", "3", 7]]}]}
    >>> completions({**words, "sizes": []}, "cls = ")
    {'entries': [{'text': '3', 'beside': '7'}], 'replaces': 0}
    """
    columns = {column["name"]: column for column in words["columns"]}
    quote = _OPEN_QUOTE.match(before)
    typed = quote[1] if quote else (_TYPED.search(before) or [""])[0]
    rest = before[: len(before) - len(typed)]
    named = _VALUE_NEXT.search(rest) if kind == "condition" else None
    operated = _OPERATOR_NEXT.search(rest)
    offered: list[tuple[str, str]] = []
    if named is not None and named[1] in columns:
        values = columns[named[1]]["values"]
        offered = [(text, _beside(text, label, count)) for text, label, count in values]
    elif quote:
        pass
    elif operated is not None and operated[1] in columns:
        operators = _OPERATORS[columns[operated[1]]["kind"]]
        offered = [(each, "") for each in (operators if kind == "condition" else ("desc",))]
    else:
        names = [*columns, *words["sizes"]]
        offered = [(name, columns[name]["kind"] if name in columns else "bytes") for name in names]
    wanted = typed.lstrip("'").lower()
    fitting = [each for each in offered if wanted in each[0].lower() and each[0] != typed]
    fitting.sort(key=lambda each: not _begins(each[0], wanted))
    entries = [{"text": text, "beside": beside} for text, beside in fitting[:_MOST]]
    return {"entries": entries, "replaces": len(typed)}


def _beside(text: str, label: str, count: int) -> str:
    shown = "" if label == text.strip("'") else f"{label} · "
    return f"{shown}{count:,}"


def _begins(text: str, wanted: str) -> bool:
    """Return whether a text, or the last step of a path, begins with what is wanted."""
    plain = text.lower().strip("'\"")
    return plain.startswith(wanted) or plain.rpartition(".")[2].strip('"').startswith(wanted)


def copies(source: str, condition: str, sort: str) -> list[list[str]]:
    """Return what a page shows as Python, SQL and a command, each after its name.

    >>> for name, text in copies("train.json", "cls = 3", ""):
    ...     print(name, text, sep=": ")
    Python: wids.open('train.json').filter('cls = 3')
    SQL: select * from samples where cls = 3
    Command: wids select train.json --where 'cls = 3' -o chosen.json
    """
    condition, sort = condition.strip(), sort.strip()
    python = f"wids.open({source!r})"
    python += f".filter({condition!r})" if condition else ""
    python += f".order_by({sort!r})" if sort else ""
    query = "select * from samples"
    query += f" where {condition}" if condition else ""
    query += f" order by {sort}" if sort else ""
    name = shlex.quote(source)
    if condition and not sort:
        command = f"wids select {name} --where {shlex.quote(condition)} -o chosen.json"
    else:
        command = f"wids sql {name} {shlex.quote(query)}"
    return [["Python", python], ["SQL", query], ["Command", command]]
