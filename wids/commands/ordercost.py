"""Command `wids order`: the cost of an epoch's order, before a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from wids.commands.terminal import DONE, Arguments, add_command, add_json, note, out, print_json

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["add_order_commands"]


def add_order_commands(commands: Any) -> None:
    """Declare the command."""
    parser = add_command(
        commands,
        order,
        "show what the order of an epoch costs, and how well it mixes, before a run",
        [
            "wids order train.json --nodes 4 --ranks 8 --workers 4",
            "wids order train.json --interleave 1 4 16 64 --plot order.png",
        ],
    )
    parser.add_argument("spec", metavar="SPEC", help="the dataset")
    parser.add_argument("--nodes", type=int, default=1, metavar="N", help="machines (1)")
    parser.add_argument("--ranks", type=int, default=1, metavar="N", help="ranks on each (1)")
    parser.add_argument("--workers", type=int, default=0, metavar="N", help="workers a rank (0)")
    parser.add_argument("--batch-size", type=int, default=32, metavar="N", help="of a rank (32)")
    parser.add_argument(
        "--cache-shards", type=int, metavar="N", help="shards that a node's cache holds (all)"
    )
    parser.add_argument(
        "--partition",
        default="global",
        choices=["contiguous", "fixed", "global", "uniform"],
        help="how shards are dealt to lanes (global)",
    )
    parser.add_argument(
        "--interleave",
        type=int,
        nargs="+",
        default=[16],
        metavar="K",
        help="shards mixed at once; several values are compared (16)",
    )
    parser.add_argument("--lanes", type=int, metavar="N", help="parts side by side (one a node)")
    parser.add_argument("--chunksize", type=int, metavar="N", help="samples a chunk (whole shards)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of the order (0)")
    parser.add_argument("--plot", metavar="FILE", help="write the comparison as a picture")
    add_json(parser)


def order(args: Arguments) -> int:
    """Print the cost of the order that the recommended sampler gives."""
    from wids.ordering.orderreport import Cluster, compare_interleaves, plot_order

    cluster = Cluster(
        nodes=args.nodes,
        ranks_per_node=args.ranks,
        workers=args.workers,
        batch_size=args.batch_size,
        cache_shards=args.cache_shards,
    )
    options = {name: getattr(args, name) for name in ("partition", "lanes", "chunksize", "seed")}
    reports = compare_interleaves(_lengths(args.spec), cluster, args.interleave, **options)
    if args.json:
        print_json([report.to_dict() for report in reports])
    else:
        for place, report in enumerate(reports):
            out([""] * bool(place) + report.lines())  # an empty line between reports
    if args.plot:
        plot_order(reports, args.plot)
        note(f"{args.plot}: written")
    return DONE


def _lengths(source: str) -> Sequence[int]:
    from wids.reading.shardlist import ShardList

    # The dataset, not the spec alone: it counts the shards of which the spec does not.
    with ShardList(source, transformations="memoryview") as samples:
        return samples.lengths
