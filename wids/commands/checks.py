"""Commands that read whole datasets: `wids check`, `verify` and `stats`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wids.commands.terminal import (
    DONE,
    FAULTY,
    Arguments,
    add_command,
    add_json,
    add_workers,
    complain,
    note,
    out,
    print_json,
)

if TYPE_CHECKING:
    from wids.specs.spec import DatasetSpec
    from wids.tools.check import Fault

__all__ = ["add_check_commands"]

CLASS_EXTENSIONS = {".cls", ".cls2"}


def add_check_commands(commands: Any) -> None:
    """Declare the commands."""
    for add in (_add_check, _add_verify, _add_stats):
        add(commands)


def check(args: Arguments) -> int:
    """Check a dataset against its spec."""
    from wids.specs.sources import load_spec
    from wids.tools.check import check_spec

    spec = load_spec(args.spec)
    faults = check_spec(
        spec,
        digests=not args.no_digest,
        decode=args.decode,
        cache_dir=args.cache_dir,
        workers=args.workers,
    )
    return _report(args, spec, faults, "checked")


def verify(args: Arguments) -> int:
    """Compare sizes and digests with the spec."""
    from wids.specs.sources import load_spec
    from wids.tools.check import check_spec

    spec = load_spec(args.spec)
    bare = sum("md5sum" not in shard and "sha256" not in shard for shard in spec.shards)
    if bare:
        # Agreeing with nothing would look like agreement.
        raise ValueError(
            f"{args.spec}: {bare} of {len(spec.shards)} shards have no digest to compare with; "
            "note them with wids create, or check the headers with wids check"
        )
    faults = check_spec(spec, headers=False, cache_dir=args.cache_dir, workers=args.workers)
    return _report(args, spec, faults, "verified")


def _report(args: Arguments, spec: DatasetSpec, faults: list[Fault], done: str) -> int:
    errors = [fault for fault in faults if fault.severity == "error"]
    if args.json:
        listed = [fault.as_dict() for fault in faults]
        _print_report(args.spec, len(spec.shards), len(errors), listed)
    else:
        out(line for fault in faults for line in _fault_lines(fault))
    bad = len({fault.shard for fault in errors})
    # On standard error, so that a report sent to a file holds faults only.
    note(
        f"{args.spec}: {len(spec.shards)} shards {done}, "
        + (f"{len(errors)} faults in {bad} of them" if errors else "no faults")
    )
    return FAULTY if errors else DONE


def _print_report(source: str, num_shards: int, num_errors: int, faults: list[Any]) -> None:
    print_json(
        {"source": source, "num_shards": num_shards, "num_errors": num_errors, "faults": faults}
    )


def _fault_lines(fault: Fault) -> list[str]:
    from wids.base.text import clean

    what = clean(f"{fault.severity}: {fault.shard}: {fault.place}: {fault.what}")
    return [what, clean(f"    cure: {fault.cure}")]


def stats(args: Arguments) -> int:
    """Print counts, sizes and values of the fields."""
    from wids.specs.sources import load_spec
    from wids.tools.stats import spec_stats, stats_lines

    values = args.values if args.values is None else f".{args.values.lstrip('.')}"
    spec = load_spec(args.spec)
    found = spec_stats(spec, values=values, cache_dir=args.cache_dir, workers=args.workers)
    for shard, message in found.failures.items():
        complain(f"{shard} is left out: {message}")
    if values is not None and not found.values:
        # An empty table would look like a dataset without classes.
        complain(f"no sample has a field {values}; there are {' '.join(found.fields)}")
    names = _names_of_values(spec, values)
    if args.json:
        print_json(found.as_dict())
    else:
        out(stats_lines(found, names=names))
    if args.plot:
        from wids.tools.stats import plot_stats

        plot_stats(found, Path(args.plot), names)
    return FAULTY if found.failures or (values and not found.values) else DONE


def _names_of_values(spec: DatasetSpec, values: str | None) -> dict[str, str]:
    """Return the names of the classes, if classes are counted."""
    from wids.display.classnames import find_class_names
    from wids.specs.locations import folder_of

    if values not in CLASS_EXTENSIONS:
        return {}
    # A folder or a list of shards has no base, and files may lie beside its shards.
    first = folder_of(spec.shards.urls[0]) or os.curdir if len(spec.shards) else ""
    names = find_class_names(spec.header, spec.base, first)
    return {str(number): name for number, name in names.items()}


def _add_check(commands: Any) -> None:
    parser = add_command(
        commands,
        check,
        "check a dataset: headers, keys, counts, sizes, digests, fields on request",
        ["wids check train.json", "wids check train.json --no-digest --decode --json"],
    )
    parser.add_argument("spec", metavar="SPEC")
    parser.add_argument("--no-digest", action="store_true", help="read headers only")
    parser.add_argument("--decode", action="store_true", help="decode every field")
    add_workers(parser)
    add_json(parser)


def _add_verify(commands: Any) -> None:
    parser = add_command(
        commands,
        verify,
        "compare sizes and digests with the spec, and look no further",
        ["wids verify train.json", "wids verify https://host/train.json --json"],
    )
    parser.add_argument("spec", metavar="SPEC")
    add_workers(parser)
    add_json(parser)


def _add_stats(commands: Any) -> None:
    parser = add_command(
        commands,
        stats,
        "sum up a dataset: fields, sizes, classes",
        ["wids stats train.json", "wids stats train.json --values .cls --plot train.png"],
    )
    parser.add_argument("spec", metavar="SPEC")
    parser.add_argument("--values", metavar="EXT", help="count the values of a field")
    parser.add_argument("--plot", metavar="FILE", help="draw histograms into an image")
    add_workers(parser)
    add_json(parser)
