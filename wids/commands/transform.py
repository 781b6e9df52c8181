"""Command `wids map`: a program or a function over all samples, or other fields and order."""

from __future__ import annotations

from typing import Any

import wids
from wids.commands.terminal import (
    DONE,
    FAULTY,
    Arguments,
    add_command,
    add_json,
    add_rules,
    add_strict,
    add_workers,
    complain,
    complain_of,
    list_omissions,
    message_of,
    note,
    pair_given,
    positive,
    print_json,
    rules_given,
)

__all__ = ["add_map"]


def add_map(commands: Any) -> None:
    """Declare the command."""
    parser = add_command(
        commands,
        map_,
        "call a program or a function for all samples, choose and rename fields, sort, mix",
        [
            "wids map train.json --function resize.py:smaller -o 'small/train-%06d.tar'",
            "wids map train.json --command 'mogrify -resize 256 sample.jpg' -o 'out/x-%06d.tar'",
            "wids map train.json --function captions:write --only-new -o 'captions-%06d.tar'",
            "wids map train.json --function lengths.py:count -o lengths.parquet",
            "wids map a.json b.json --shuffle 1 --rename .txt=.caption.txt -o 'mix-%06d.tar'",
            "wids map train.json --fields .txt -o - | tar -tf -",
        ],
    )
    parser.add_argument("specs", nargs="+", metavar="SPEC")
    parser.add_argument(
        "-o",
        "--output",
        required=True,
        metavar="OUTPUT",
        help="new shards (with %%06d for their number), a table (.parquet), or - for one "
        "tar on standard output",
    )
    called = parser.add_mutually_exclusive_group()
    called.add_argument(
        "--function",
        metavar="NAME",
        help="module:function or file.py:function, from a sample to its new fields, or to a value",
    )
    called.add_argument(
        "--command",
        dest="program",
        metavar="COMMAND",
        help="program that changes the files sample.EXT in its working folder; no shell runs it",
    )
    parser.add_argument("--raw", action="store_true", help="give the function bytes, not values")
    parser.add_argument("--fields", metavar="EXT,...", help="read and copy only these fields")
    parser.add_argument(
        "--rename", action="append", default=[], metavar="OLD=NEW", help="new name of a field"
    )
    parser.add_argument("--only-new", action="store_true", help="write only new fields, to join")
    parser.add_argument("--where", metavar="SQL", help="only samples that fulfil a condition")
    order = parser.add_mutually_exclusive_group()
    order.add_argument("--order-by", metavar="SQL", help="in an order of SQL, such as 'cls, key'")
    order.add_argument("--shuffle", type=int, metavar="SEED", help="mix all samples")
    parser.add_argument("--maxcount", type=positive, metavar="N", help="most samples per shard")
    parser.add_argument(
        "--on-error",
        choices=["raise", "skip"],
        default="raise",
        help="skip: leave out samples that fail (%(default)s)",
    )
    parser.add_argument("--no-digest", action="store_true", help="do not compute MD5 and SHA-256")
    parser.add_argument("--sidecars", action="store_true", help="write the tar index of each shard")
    parser.add_argument("--resume", action="store_true", help="continue a run that was interrupted")
    add_rules(parser)
    add_strict(parser)
    add_workers(parser)
    add_json(parser)


def map_(args: Arguments) -> int:
    """Write what a function makes of all samples."""
    from wids.specs.newspec import spec_path_for
    from wids.tools.fieldcommand import FieldCommand, NamedFunction
    from wids.tools.mapping import map_samples

    function: Any = None
    if args.program is not None:
        function = FieldCommand(args.program)
    elif args.function is not None:
        function = NamedFunction(args.function)
    raw = args.raw or args.program is not None
    with wids.open(
        args.specs if len(args.specs) > 1 else args.specs[0],
        transformations="bytes" if raw else "PIL",
        fields=None if args.fields is None else _fields(args.fields),
        cache_dir=args.cache_dir,
        **rules_given(args),
    ) as samples:
        chosen = _ordered(args, samples)
        done = map_samples(
            chosen,
            function,
            args.output,
            rename=dict(pair_given(text, "--rename OLD=NEW") for text in args.rename),
            only_new=args.only_new,
            maxcount=args.maxcount,
            on_error=args.on_error,
            resume=args.resume,
            workers=args.workers,
            strict=args.strict,
            **_shard_options(args),
        )
        total = len(chosen)
        for line in done.skipped:
            complain(f"left out: {line}")
        omitted = done.omissions.lines()
        list_omissions(omitted)
        for name, error in done.failures.items():
            complain_of(name, "failed", message_of(error))
        counts = {
            "samples": total,
            "written": done.num_samples,
            "dropped": done.num_dropped,
            "skipped": done.num_skipped,
        }
        if args.json and args.output != "-":
            failures = {name: message_of(error) for name, error in done.failures.items()}
            print_json({**counts, "left_out": omitted, "failures": failures})
        what = ", ".join(f"{count} {name}" for name, count in list(counts.items())[1:])
        spec = spec_path_for(args.output) if done.entries and not done.failures else ""
        opened = f"; the spec is {spec}" if spec and args.output != "-" else ""
        note(f"{args.output}: of {total} samples {what}{opened}")
        if done.failures:
            complain(
                f"{len(done.failures)} parts failed, and nothing names the others yet; mend the "
                "cause and run again with --resume"
            )
        return FAULTY if done.failures or done.num_skipped else DONE


def _ordered(args: Arguments, samples: Any) -> Any:
    """Return the chosen samples in the order in which they are written."""
    from wids.tools.reshard import shuffled

    if args.where is not None:
        samples = samples.filter(args.where)
    if args.order_by is not None:
        samples = samples.order_by(args.order_by)
    if args.shuffle is not None:
        import numpy as np

        samples = samples.select(shuffled(np.arange(len(samples)), args.shuffle))
    return samples


def _fields(text: str) -> list[str]:
    return [f".{name.strip().removeprefix('.')}" for name in text.split(",") if name.strip()]


def _shard_options(args: Arguments) -> dict[str, Any]:
    if not args.output.endswith(".tar"):
        given = {"--no-digest": args.no_digest, "--sidecars": args.sidecars}
        if args.output != "-":
            given["--strict"] = args.strict
        if wrong := [name for name, value in given.items() if value]:
            raise ValueError(f"{' and '.join(wrong)}: for new shards, and -o is {args.output}")
        return {}
    return {"sidecars": args.sidecars, "digests": () if args.no_digest else ("md5", "sha256")}
