"""Conditions in SQL: what they may consist of, the columns that they name, and hints for errors.

A condition may come from a stranger: from a web page, or a saved view. It is one expression of some
kinds and functions, none of which takes much memory or time for a row; all others are refused.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from wids.base.optional import load
from wids.catalogue.engine import Instance, lock_down
from wids.catalogue.structures import literal, quoted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

__all__ = [
    "Names",
    "check_columns",
    "check_condition",
    "check_order",
    "check_query",
    "explained",
]

MAX_LENGTH = 2000
_KINDS = """
COLUMN_REF COMPARISON CONJUNCTION CONSTANT OPERATOR FUNCTION CAST TYPE BETWEEN CASE COLLATE LAMBDA
"""
# None of these makes a long value of a short one, or reads anything but its arguments.
_FUNCTIONS = """
+ - * / // % ~~ !~~ ~~* !~~* ~~~ abs ceil floor round sign sqrt ln log10 greatest least
isnan isinf isfinite contains starts_with prefix ends_with suffix lower upper trim ltrim rtrim
strip_accents length len strlen substring substr left right instr strpos position
regexp_matches regexp_full_match list_contains list_has array_contains list_has_any list_has_all
list_position list_filter list_transform list_apply list_sum list_min list_max list_avg list_count
list_unique list_value array_length struct_extract array_extract list_extract
map_keys map_values map_contains json_extract json_extract_string ->> -> json_type json_valid
json_array_length json_keys json_exists json_contains year month day hour minute date_part
epoch strptime now hash coalesce ifnull nullif
"""
_TYPES = """
BOOLEAN INTEGER BIGINT HUGEINT DOUBLE FLOAT VARCHAR DATE TIMESTAMP JSON DECIMAL INT TEXT NUMERIC
"""
KINDS, FUNCTIONS, TYPES = (frozenset(each.split()) for each in (_KINDS, _FUNCTIONS, _TYPES))


class Names(frozenset[str]):
    """Names in a query, in lower case: those of columns, and the steps into them.

    Attributes:
        columns: Those that begin the name of a column.
    """

    columns: frozenset[str]

    @classmethod
    def of(cls, references: Iterable[Sequence[str]]) -> Names:
        """Return the names in references to columns, each of which is a column and steps."""
        listed = [list(map(str.lower, each)) for each in references]
        names = cls(name for each in listed for name in each)
        names.columns = frozenset(each[0] for each in listed)
        return names


_PARSER = Instance(lambda connection: lock_down(connection, []))


def check_condition(text: str) -> tuple[str, Names]:
    """Check that a text is one condition.

    Args:
        text: An expression of SQL over the columns of `samples`, such as `cls = 3`.

    Returns:
        The query for the indexes of the samples that fulfil it, and the names in the condition, in
        lower case, among which are those of all columns.

    Raises:
        ValueError: It is no condition, or has a part that a condition may not have.
        ModuleNotFoundError: DuckDB is not installed.

    >>> query, names = check_condition("json.width >= 900 and cls in (1, 3)")
    >>> sorted(names)
    ['cls', 'json', 'width']
    """
    _check_text(text, "condition")
    _parsed(f"SELECT\n{text}\n", text)  # so that it closes no bracket that it has not opened
    query = f"SELECT index FROM samples WHERE (\n{text}\n) ORDER BY index"
    like = "SELECT index FROM samples WHERE true ORDER BY index"
    part, _ = _only_other("where_clause", query, like, text, "condition")
    return query, Names.of(_allowed_names([part], "condition"))


def check_columns(text: str) -> Names:
    """Check that a text is one or more values of a sample, separated by commas.

    Args:
        text: As after SELECT, such as `cls, position // 64`.

    Returns:
        The names in it, in lower case.

    Raises:
        ValueError: It is something else, or has a part that a condition may not have.

    >>> sorted(check_columns("cls, json.width // 100"))
    ['cls', 'json', 'width']
    """
    _check_text(text, "columns")
    query = f"SELECT\n{text}\nFROM samples"
    parts, _ = _only_other("select_list", query, "SELECT cls FROM samples", text, "columns")
    return Names.of(_allowed_names(parts, "columns"))


def check_order(text: str) -> tuple[str, Names]:
    """Check that a text is an order: expressions as in conditions, with `desc` and the like.

    Args:
        text: As after ORDER BY, such as `json.score desc, key`.

    Returns:
        The query for the indexes of all samples in this order, equal ones in theirs, and the names
        in the text, in lower case.

    Raises:
        ValueError: It is no order.

    >>> query, names = check_order("json.score desc nulls last, key")
    >>> sorted(names)
    ['json', 'key', 'score']
    """
    _check_text(text, "order")
    query = f"SELECT index FROM samples ORDER BY\n{text}\n, index"
    like = "SELECT index FROM samples ORDER BY key, index"
    modifiers, (expected,) = _only_other("modifiers", query, like, text, "order")
    orders = modifiers[0].get("orders", [])
    is_order = modifiers == [expected | {"orders": orders}]
    if not is_order or len(orders) < 2 or orders[-1] != expected["orders"][-1]:
        raise _no_expression(text, "order")
    return query, Names.of(_allowed_names(orders[:-1], "order"))


def _check_text(text: str, what: str) -> None:
    if not isinstance(text, str):
        raise TypeError(f"{what}: expected a text of SQL, got {text!r:.80}")
    if not text.strip():
        raise ValueError(f"{what}: expected expressions of SQL, got {text!r}")
    if len(text) > MAX_LENGTH or "\0" in text:
        raise ValueError(
            f"{what}: expected at most {MAX_LENGTH:,} characters and none of them NUL, got "
            f"{len(text):,}: {text!r:.80}; sql() takes more"
        )


def _only_select(query: str, text: str, what: str) -> dict[str, Any]:
    """Return the parsed SELECT of a query, without the places in its text."""
    statements = _parsed(query, text)["statements"]
    node = statements[0]["node"] if len(statements) == 1 else {}
    if node.get("type") != "SELECT_NODE":
        raise _no_expression(text, what)
    select: dict[str, Any] = _without_places(node)
    return select


def _only_other(clause: str, query: str, like: str, text: str, what: str) -> tuple[Any, Any]:
    """Return a clause of a query that must differ in nothing else from another; and of that."""
    select, expected = (_only_select(each, text, what) for each in (query, like))
    both = select.pop(clause), expected.pop(clause)
    if select != expected or not both[0]:
        raise _no_expression(text, what)
    return both


def _no_expression(text: str, what: str) -> ValueError:
    return ValueError(f"{what}: expected expressions of SQL over a sample, got {text!r:.200}")


def _without_places(tree: Any) -> Any:
    if isinstance(tree, dict):
        places = {"query_location", "query_location_length"}
        return {k: _without_places(v) for k, v in tree.items() if k not in places}
    return list(map(_without_places, tree)) if isinstance(tree, list) else tree


def _nodes(tree: Any) -> Iterator[dict[str, Any]]:
    """Yield all objects in a parsed query."""
    stack = [tree]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            yield item
            stack += item.values()
        elif isinstance(item, list):
            stack += item


def _allowed_names(parts: Any, what: str) -> Iterator[list[str]]:
    """Yield the names in a parsed expression; raise ValueError for what is not allowed in it."""
    for node in _nodes(parts):
        kind = node.get("class")
        refused = None
        if kind is not None and kind not in KINDS:
            refused = kind.lower().replace("_", " ")
        elif kind == "FUNCTION" and node["function_name"].lower() not in FUNCTIONS:
            refused = f"function {node['function_name']}"
        elif kind == "TYPE" and str(node["type_name"]).upper() not in TYPES:
            refused = f"type {node['type_name']}"
        if refused is not None:
            raise ValueError(f"{what}: {refused} is not allowed in it; sql() takes all of SQL")
        if kind == "COLUMN_REF":
            yield node["column_names"]


def check_query(query: str) -> Names:
    """Check that a text is one query that changes nothing.

    Args:
        query: SQL: SELECT, FROM, WITH, VALUES, DESCRIBE or SUMMARIZE.

    Returns:
        The names of columns in it, in lower case; none for queries that DuckDB does not take apart.

    Raises:
        ValueError: It is something else, or not SQL.

    >>> sorted(check_query("select avg(json.width) from samples where cls = 3"))
    ['cls', 'json', 'width']
    """
    duckdb = load("duckdb", "sql")
    if not isinstance(query, str):
        raise TypeError(f"query: expected a text of SQL, got {query!r:.80}")
    try:
        with _PARSER.asked() as cursor:
            statements = cursor.extract_statements(query)
    except (duckdb.Error, RuntimeError) as error:
        raise explained(error, query) from None
    if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
        raise ValueError(
            f"query: expected one SELECT, got {query!r:.200}; `samples` is the table to ask, as "
            "in: select count(*) from samples where cls = 3"
        )
    try:
        nodes = _nodes(_parsed(query, query))
        return Names.of(n["column_names"] for n in nodes if n.get("class") == "COLUMN_REF")
    except ValueError:  # such as SUMMARIZE, which is not taken apart
        return Names.of(())


def _parsed(query: str, text: str) -> dict[str, Any]:
    """Return the tree of a query in which a text is; raise ValueError if DuckDB refuses it."""
    # A connection of our own: functions of the module would use one that forked processes share.
    try:
        with _PARSER.asked() as cursor:
            answer = cursor.execute("SELECT json_serialize_sql(?)", [query]).fetchone()[0]
        tree: dict[str, Any] = json.loads(answer)
    except (load("duckdb", "sql").Error, RuntimeError) as error:
        raise explained(error, text) from None
    if tree["error"]:
        raise explained(ValueError(tree["error_message"]), text)
    return tree


# For each mistake of beginners: how DuckDB or the query shows it, and what to write.
_HINTS = {
    r"syntax error at or near": "names are written as cls, json.width and jpg.width",
    r"Referenced column \"([^\"]*)\" (was )?not found": (
        "a text is in single quotes ('{0}'), double quotes are around names"
    ),
    r"Could not convert string '([^']*)' to": (
        "the names of classes are in cls_name, as in: cls_name = '{0}'; try_cast(x as double) "
        "makes null of what is no number"
    ),
    r"Cannot compare values of type VARCHAR.*explicit cast": (
        "a text is compared with a text ('7'); as a number: try_cast(x as double) > 7"
    ),
    r"[Cc]annot extract field 'length'": "the length of a text is length(txt)",
    r"[Cc]annot extract field '([^']*)' from expression": (
        "what it is taken from is no object, or text where values are of different kinds, such as "
        "json: json->>'$.{0}' reads a value in it"
    ),
}


def explained(error: Exception, query: str) -> ValueError:
    """Return the error for a query that DuckDB refused, with a hint for a usual mistake.

    Args:
        error: What DuckDB raised.
        query: The query or condition.
    """
    text = str(error).strip().split("\n\nLINE ")[0]
    if (condition := _of_old_filter(query)) is not None:
        return ValueError(f"{query!r:.200}: {text}\nHint: in SQL, this is {condition}")
    for pattern, hint in _HINTS.items():
        match = re.search(pattern, text)
        if match is not None:
            text += f"\nHint: {hint.format(*match.groups())}"
            break
    return ValueError(f"{query!r:.200}: {text}")


# A comparison as conditions had them before they were SQL: `.json:size.width >= 512`.
_OLD = re.compile(
    r"""(?P<name>key|(?<![\w"')\]])\.[A-Za-z_][\w.-]*|'\.[^']*')(?::(?P<path>(?:'[^']*'|[^\s=!<>()'])+))?\s*
    (?P<operator>not\s+in\b|in\b|contains\b|==|!=|<=|>=|<|>|=)\s*
    (?P<value>\([^)]*\)|'(?:[^']|'')*'|"[^"]*"|[^\s()]+)""",
    re.VERBOSE,
)
_QUOTES = "'\""
_OLD_OPERATORS = {"==": "=", "!=": "is distinct from"}


def _of_old_filter(text: str) -> str | None:
    """Return the SQL of a condition in the language of earlier versions; None for any other.

    >>> print(_of_old_filter(".cls == cat and not .json:tags.0 contains x or .cap.txt != null"))
    cls_name = 'cat' and not contains(json.tags[1], 'x') or "cap.txt" is not null
    """
    found = _OLD.sub(_in_sql, text)
    return (
        None if found == text or not re.search(r"(^|[\s('])\.[A-Za-z_]|contains\s", text) else found
    )


def _in_sql(match: re.Match[str]) -> str:
    column = match["name"].strip("'").removeprefix(".").lower()
    name = column if column.isidentifier() else quoted(column)
    for part in re.findall(r"'[^']*'|[^.']+", match["path"] or ""):
        step = part.strip("'")
        if step.isdecimal():
            name += f"[{int(step) + 1}]"
        elif step == "length":
            name = f"length({name})"
        else:
            name += f".{step if step.isidentifier() else quoted(step)}"
    operator, typed = " ".join(match["operator"].split()), match["value"]
    if typed.lower() in {"null", "none"}:
        return f"{name} is {'not ' if operator == '!=' else ''}null"
    if operator == "contains":
        name = "cls_name" if name == "cls" else name
        return f"contains({name}, {literal(typed.strip(_QUOTES))})"
    values = [_old_value(each) for each in typed.strip("()").split(",")]
    if name == "cls" and any(each.startswith("'") and not each[1:2].isdigit() for each in values):
        name = "cls_name"
    value = f"({', '.join(values)})" if typed.startswith("(") else values[0]
    return f"{name} {_OLD_OPERATORS.get(operator, operator)} {value}"


def _old_value(typed: str) -> str:
    word = typed.strip()
    is_plain = word.lower() in {"true", "false"} or re.fullmatch(r"[+-]?[\d.]+(e[+-]?\d+)?", word)
    return word if is_plain else literal(word.strip(_QUOTES).replace("''", "'"))
