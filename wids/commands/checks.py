"""Commands that report: `wids check`, `order`, `cache`."""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import wids
from wids.commands.terminal import (
    DONE,
    FAULTY,
    Arguments,
    add_command,
    add_json,
    add_rules,
    add_workers,
    complain,
    nbytes_given,
    note,
    out,
    positive,
    print_json,
    rules_given,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from wids.tools.check import Checked, Fault

__all__ = ["add_cache", "add_check", "add_order"]

_APART = ("digests", "repair")  # options of `check` that take no other


def check(args: Arguments) -> int:
    """Check a dataset against its spec, or repair a shard."""
    from wids.tools.check import check_dataset

    apart = next((name for name in _APART if getattr(args, name)), None)
    if apart is not None and (args.no_digest or args.decode):
        raise ValueError(f"--{apart}: is a check of its own; leave out --no-digest and --decode")
    if args.repair is not None:
        if rules_given(args):
            raise ValueError("--repair: copies members as they lie; leave out rules of samples")
        return _repair(args)
    done = check_dataset(
        args.spec,
        headers=not args.digests,
        digests=not args.no_digest,
        decode=args.decode,
        cache_dir=args.cache_dir,
        workers=args.workers,
        rules=rules_given(args),
    )
    return _report(args, done)


def _repair(args: Arguments) -> int:
    """Copy the intact samples of a damaged shard."""
    from wids.base.text import clean
    from wids.tools.repair import repair_shard

    done = repair_shard(args.spec, args.repair)
    if args.json:
        left_out = [asdict(each) for each in done.left_out]
        print_json({"entry": done.entry, "left_out": left_out})
    else:
        out(clean(str(each)) for each in done.left_out)
    if not done.left_out:
        note(f"{args.spec}: nothing is damaged, nothing was written")
        return DONE
    if done.entry is None:
        complain(f"{args.spec}: holds no whole sample, nothing was written")
        return FAULTY
    note(f"{args.repair}: {done.entry['nsamples']} samples; {len(done.left_out)} parts left out")
    return DONE


def _report(args: Arguments, done: Checked) -> int:
    from wids.base.urls import display_url

    errors = [fault for fault in done.faults if fault.severity == "error"]
    if args.json:
        print_json(
            {
                "source": display_url(args.spec),
                "num_shards": done.num_shards,
                "num_errors": len(errors),
                "faults": [fault.as_dict() for fault in done.faults],
            }
        )
    else:
        # Notes that differ by their shards and numbers alone are one; each error is by itself.
        groups: dict[Any, list[Fault]] = {}
        for number, fault in enumerate(done.faults):
            words = re.sub("[0-9]+", "", f"{fault.place}: {fault.what}")
            key = (words, fault.cure) if fault.severity == "note" else number
            groups.setdefault(key, []).append(fault)
        out(line for alike in groups.values() for line in _fault_lines(alike))
    bad = len({fault.shard for fault in errors})
    # On standard error, so that a report sent to a file holds faults only.
    found = f"{_counted(len(errors), 'fault')} in {bad} of them" if errors else "no faults"
    tables = f"and {done.num_tables} tables " if done.num_tables else ""
    note(f"{args.spec}: {_counted(done.num_shards, 'shard')} {tables}checked, {found}")
    return FAULTY if errors else DONE


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _fault_lines(alike: list[Fault]) -> list[str]:
    from wids.base.text import clean
    from wids.base.urls import display_url, hide_credentials

    fault = alike[0]
    shard, said = display_url(fault.shard), hide_credentials(f"{fault.place}: {fault.what}")
    if others := len({each.shard for each in alike}) - 1:
        shard += f" and {_counted(others, 'other shard')} alike"
    return [clean(f"{fault.severity}: {shard}: {said}"), clean(f"    cure: {fault.cure}")]


def add_check(commands: Any) -> None:
    """Declare the command."""
    parser = add_command(
        commands,
        check,
        "check a dataset: headers, keys, counts, sizes, digests, fields on request",
        [
            "wids check train.json",
            "wids check train.json --no-digest --decode --json",
            "wids check train-000017.tar --repair repaired/train-000017.tar",
        ],
    )
    parser.add_argument("spec", metavar="SPEC")
    parser.add_argument(
        "--no-digest", action="store_true", help="read only headers, and check no digests"
    )
    parser.add_argument("--decode", action="store_true", help="decode every field")
    apart = parser.add_mutually_exclusive_group()
    apart.add_argument(
        "--digests", action="store_true", help="compare sizes and digests alone, as md5sum --check"
    )
    apart.add_argument(
        "--repair",
        metavar="NEW",
        help="copy the whole samples of SPEC, a damaged shard, into a new one",
    )
    add_rules(parser)
    add_workers(parser)
    add_json(parser)


def add_order(commands: Any) -> None:
    """Declare the command."""
    parser = add_command(
        commands,
        order,
        "show what the order of an epoch costs, and how well it mixes, before a run",
        [
            "wids order train.json --nodes 4 --ranks 8 --workers 4",
            "wids order train.json --interleave 1 4 16 64",
        ],
    )
    parser.add_argument("spec", metavar="SPEC", help="the dataset")
    parser.add_argument(
        "--nodes", type=positive, default=1, metavar="N", help="number of machines (1)"
    )
    parser.add_argument(
        "--ranks", type=positive, default=1, metavar="N", help="ranks per machine (1)"
    )
    parser.add_argument("--workers", type=int, default=0, metavar="N", help="workers per rank (0)")
    parser.add_argument(
        "--batch-size", type=positive, default=32, metavar="N", help="batch size of a rank (32)"
    )
    parser.add_argument(
        "--cache-shards", type=int, metavar="N", help="number of shards in a machine's cache (all)"
    )
    parser.add_argument(
        "--partition",
        default="global",
        choices=["contiguous", "fixed", "global", "uniform"],
        help="how shards are put in a line (global)",
    )
    parser.add_argument(
        "--interleave",
        type=int,
        nargs="+",
        default=[16],
        metavar="K",
        help="shards mixed at a time; several values are compared (16)",
    )
    parser.add_argument(
        "--streams",
        "--lanes",
        type=int,
        metavar="N",
        help="parts read in parallel (one per machine)",
    )
    parser.add_argument(
        "--chunksize", type=int, metavar="N", help="samples per chunk (whole shards)"
    )
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N", help="random seed of the order (0)"
    )
    add_rules(parser)
    add_json(parser)


def order(args: Arguments) -> int:
    """Print the cost of the order that the recommended sampler gives."""
    from wids.tools.orderreport import Cluster, order_report

    cluster = Cluster(
        nodes=args.nodes,
        ranks_per_node=args.ranks,
        workers=args.workers,
        batch_size=args.batch_size,
        cache_shards=args.cache_shards,
    )
    options = {name: getattr(args, name) for name in ("partition", "streams", "chunksize", "seed")}
    lengths, options["nbytes"] = _sizes(args)
    reports = [order_report(lengths, cluster, interleave=k, **options) for k in args.interleave]
    if args.json:
        print_json([report.to_dict() for report in reports])
    else:
        for number, report in enumerate(reports):
            out([""] * bool(number) + report.lines())  # an empty line between reports
    return DONE


def _sizes(args: Arguments) -> tuple[Sequence[int], int | None]:
    """Return the number of samples of each shard, and the bytes of all if they are known."""
    from wids.reading.describe import nbytes_of

    # The dataset, not the spec alone: it counts the shards of which the spec does not.
    with wids.open(args.spec, transformations="memoryview", **rules_given(args)) as samples:
        lengths: Sequence[int] = list(map(int, samples.lengths))
        shards = getattr(samples, "shards", None)
        return lengths, None if shards is None else nbytes_of(shards)


def add_cache(commands: Any) -> None:
    """Declare the command."""
    parser = add_command(
        commands,
        cache,
        "list, verify, trim or clear the folder that fetched shards are kept in",
        [
            "wids cache                     what lies there, the least recently used first",
            "wids cache verify              read all again; damaged shards are removed",
            "wids cache trim 100G           evict the least recently used down to this size",
            "wids cache clear               remove everything",
        ],
    )
    parser.add_argument(
        "action",
        nargs="?",
        default="list",
        choices=["list", "verify", "trim", "clear", "path"],
        help="what to do with it (list); path prints where it is",
    )
    parser.add_argument(
        "nbytes",
        nargs="?",
        type=nbytes_given,
        metavar="BYTES",
        help="size to which `trim` evicts, such as 500M or 100G",
    )
    parser.add_argument(
        "--cache-dir",
        metavar="DIR",
        help="the cache folder; by default $WIDS_CACHE, else that of the user",
    )
    add_json(parser)


def cache(args: Arguments) -> int:
    """List, verify, trim or clear the cache folder."""
    from wids.caching.cache import ShardCache

    if args.action != "trim" and args.nbytes is not None:
        raise ValueError(f"{args.action} takes no number of bytes, got {args.nbytes}; trim does")
    if args.action == "trim" and args.nbytes is None:
        raise ValueError("trim takes a number of bytes: wids cache trim 100G")
    kept = ShardCache(args.cache_dir)
    if args.action == "path":
        out(str(kept.cache_dir))
        return DONE
    if args.action == "verify":
        damaged = kept.verify()
        if args.json:
            paths = [str(shard.path) for shard in damaged]
            print_json({"folder": str(kept.cache_dir), "damaged": paths})
        else:
            out(f"damaged, removed: {shard.path.name}" for shard in damaged)
        note(f"{kept.cache_dir}: {len(damaged)} damaged files removed")
        return FAULTY if damaged else DONE  # a script may want to know, though all is well again
    if args.action == "trim":
        kept.trim(args.nbytes)
    if args.action == "clear":
        kept.clear()
    shards = kept.shards()  # those that other processes hold stay, and pinned ones
    if args.json:
        rows = [{"path": str(shard.path), "nbytes": shard.nbytes} for shard in shards]
        print_json({"folder": str(kept.cache_dir), "shards": rows})
        return DONE
    out(f"{shard.nbytes:>14,}  {shard.path.name}" for shard in shards)
    total = sum(shard.nbytes for shard in shards)
    note(f"{kept.cache_dir}: {len(shards)} files, {total:,} bytes")
    return DONE
