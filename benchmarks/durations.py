"""Tables of things that take seconds, such as downloads; `table.py` puts them into the docs."""

from typing import Any

__all__ = ["duration_table"]

_COLUMNS = {
    "ratio": ("x the first", lambda value: f"{value:.2f}"),
    "requests": ("requests", str),
    "connections": ("connections", str),
    "beyond_nbytes": ("bytes beyond the samples", lambda value: f"{value:,}"),
}


def in_time(seconds: float) -> str:
    """Write a time in the unit that suits it.

    >>> in_time(0.01264), in_time(5.32)
    ('13 ms', '5.32 s')
    """
    return f"{1000 * seconds:.0f} ms" if seconds < 1 else f"{seconds:.2f} s"


def duration_table(name: str, rows: list[dict[str, Any]]) -> str:
    """Lay out one table: the median, the spread, and what else the rows hold.

    >>> print(duration_table("cold", [{"label": "curl", "seconds": 1, "min": 0.5, "max": 2}]))
    | cold | time | shortest - longest |
    |---|--:|--:|
    | curl | 1.00 s | 500 ms - 2.00 s |
    """
    shown = {key: column for key, column in _COLUMNS.items() if key in rows[0]}
    titles = [name, "time", "shortest - longest", *(title for title, _ in shown.values())]
    lines = [f"| {' | '.join(titles)} |", "|---" + "|--:" * (len(titles) - 1) + "|"]
    for row in rows:
        spread = f"{in_time(row['min'])} - {in_time(row['max'])}"
        cells = [row["label"], in_time(row["seconds"]), spread]
        cells += [write(row[key]) for key, (_, write) in shown.items()]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)
