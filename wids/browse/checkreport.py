"""What `wids check --json` found, if its report lies beside the spec."""

import json
from pathlib import Path
from typing import Any

from wids.base.urls import is_local, local_path

__all__ = ["CheckReport", "find_report", "read_report"]

_MOST_NBYTES = 64 << 20

CheckReport = dict[str, Any]


def find_report(source: str) -> CheckReport | None:
    """Read the report beside a spec: `train.check.json` for `train.json`.

    Args:
        source: The spec, as it was given on the command line.

    Returns:
        The report, or None where there is none that can be read.
    """
    if not is_local(source) or not source.endswith(".json"):
        return None
    path = local_path(source).with_suffix(".check.json")
    try:
        return read_report(path) if path.is_file() else None
    except (OSError, ValueError):
        return None


def read_report(path: Path) -> CheckReport:
    """Read a report.

    Returns:
        `num_shards`, `num_errors`, and `faults`, each with shard, place, what, cure, severity.

    Raises:
        ValueError: It is none.
        OSError: It cannot be read.
    """
    if path.stat().st_size > _MOST_NBYTES:
        raise ValueError(f"{path}: expected at most {_MOST_NBYTES} bytes of a report")
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
    except RecursionError as error:
        raise ValueError(f"{path}: more levels of JSON than are read") from error
    faults = report.get("faults") if isinstance(report, dict) else None
    if not isinstance(faults, list) or not all(isinstance(fault, dict) for fault in faults):
        raise ValueError(
            f"{path}: expected what `wids check SPEC --json` prints, found no list of faults"
        )
    names = ("shard", "place", "what", "cure", "severity")
    kept = [{name: str(fault.get(name, "")) for name in names} for fault in faults]
    return {
        "num_shards": _count(report.get("num_shards")),
        "num_errors": _count(report.get("num_errors")),
        "faults": kept,
    }


def _count(value: Any) -> int:
    return value if isinstance(value, int) else 0
