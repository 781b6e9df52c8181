"""Commands that choose samples without copying them: `wids select`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import wids
from wids.base.urls import scheme_of
from wids.commands.terminal import (
    DONE,
    Arguments,
    add_cache_dir,
    add_command,
    add_rules,
    note,
    rules_given,
)

__all__ = ["add_select"]

# Options of `select`, and those that they serve.
_SERVES = {
    "seed": ("take", "split"),
    "by": ("split",),
    "stratify": ("split",),
    "column": ("keys", "exclude"),
    "ignore_missing": ("keys", "exclude"),
}


def select(args: Arguments) -> int:
    """Save a view of some samples, or one for each part of a split."""
    for name, served in _SERVES.items():
        value = getattr(args, name)
        # 0 is a value, though it equals False.
        given = value is not None and value is not False
        if given and all(getattr(args, other) is None for other in served):
            option, others = name.replace("_", "-"), " or ".join(f"--{other}" for other in served)
            raise ValueError(f"--{option} has no effect without {others}; give both, or neither")
    if args.split is None and "{split}" in args.output:
        raise ValueError(
            f"-o: {{split}} stands for the name of a part, got {args.output!r} without --split"
        )
    shares = {} if args.split is None else _shares_of(args.split, args.output)
    with wids.open(args.spec, cache_dir=args.cache_dir, **rules_given(args)) as samples:
        chosen = _chosen(args, samples)
        views = {args.output: chosen}
        if shares:  # the names of the files are those of the parts
            by, seed = args.by or "key", args.seed or 0
            views = chosen.split(seed=seed, by=by, stratify=args.stratify, **shares)
        for path, view in views.items():
            if not len(view):
                raise ValueError(f"{path}: no sample is chosen, nothing was written")
        for path, view in views.items():
            view.save(path)
            note(f"{path}: {len(view)} of {len(samples)} samples")
    return DONE


def _keys_in(named: str, column: str) -> list[str]:
    """Return the keys in a file; raise ValueError for a URL and for indexes."""
    from wids.views.keytable import read_keys

    if scheme_of(named):
        raise ValueError(f"{named}: expected a file of keys on this machine; fetch it first")
    return read_keys(Path(named), numbers=column != "key")


def _chosen(args: Arguments, samples: Any) -> Any:
    """Return the view that the options choose, applied in the order of the help."""
    chosen = samples
    if args.where is not None:
        chosen = chosen.filter(args.where)
    missing, column = "drop" if args.ignore_missing else "error", args.column or "key"
    if args.keys is not None:
        chosen = chosen.select_keys(_keys_in(args.keys, column), column=column, missing=missing)
    if args.exclude is not None:
        chosen = chosen.exclude(_keys_in(args.exclude, column), column=column, missing=missing)
    if args.take is not None:
        chosen = chosen.take(args.take, args.seed or 0)
    if args.order_by is not None:
        chosen = chosen.order_by(args.order_by)
    return chosen


def _shares_of(split: str, pattern: str) -> dict[str, float]:
    """Return a dict from the output name of each part of a split to its share.

    Args:
        split: Names and shares, such as `train=0.9,val=0.1`.
        pattern: A name in which `{split}` stands for the name of the part.

    Raises:
        ValueError: They are malformed, or there is one part alone.

    >>> _shares_of("train=.9,val=.1", "{split}.json")
    {'train.json': 0.9, 'val.json': 0.1}
    """
    import re

    if "{split}" not in pattern:
        raise ValueError(f"--split needs {{split}} in the pattern, got {pattern!r}")
    shares: dict[str, float] = {}
    for part in split.split(","):
        name, _, share = part.partition("=")
        output = pattern.replace("{split}", name)
        if not name or re.fullmatch(r"\d*\.?\d+|\d+\.", share) is None or output in shares:
            raise ValueError(
                f"--split: expected different names with a share each, such as train=0.9,val=0.1, "
                f"got {part!r} in {split!r}"
            )
        shares[output] = float(share)
    if len(shares) == 1:
        # Shares count relative to their sum: one alone is everything, which nobody asks for.
        raise ValueError(
            f"--split: one part alone takes all samples, got {split!r}; name the rest, too, "
            "such as train=0.1,rest=0.9"
        )
    return shares


def add_select(commands: Any) -> None:
    """Declare the command."""
    parser = add_command(
        commands,
        select,
        "save a view: some samples of a dataset, without copying them",
        [
            "wids select train.json --where \"cls_name in ('cat', 'dog')\" -o pets.json",
            "wids select train.json --exclude opted-out.txt -o clean.json",
            "wids select train.json --keys uids.npy --column .json:uid -o subset.json",
            "wids select train.json --take 1000 --seed 1 -o trial.json",
            "wids select clean.json --split train=.9,val=.1 -o 'clean-{split}.json'",
        ],
    )
    parser.add_argument("spec", metavar="SPEC")
    parser.add_argument("-o", "--output", required=True, metavar="VIEW.json")
    parser.add_argument("--where", metavar="SQL", help="samples that fulfil a condition of SQL")
    parser.add_argument(
        "--keys", metavar="FILE", help="only samples with the keys in this file, one per line"
    )
    parser.add_argument("--exclude", metavar="FILE", help="no samples with the keys in this file")
    parser.add_argument(
        "--column",
        metavar="COLUMN",
        help="compare the listed keys with this column, such as .json:uid",
    )
    parser.add_argument(
        "--ignore-missing", action="store_true", help="ignore listed keys that no sample has"
    )
    parser.add_argument("--take", type=int, metavar="N", help="a random choice of N samples")
    parser.add_argument(
        "--order-by", metavar="SQL", help="in an order of SQL, such as 'json.score desc, key'"
    )
    parser.add_argument(
        "--split",
        metavar="NAME=SHARE,...",
        help="divide the samples; NAME replaces {split} in VIEW",
    )
    parser.add_argument(
        "--by",
        metavar="KEY|SAMPLE|COLUMN",
        help="what --split divides: keys (by default), samples, or the groups of a column",
    )
    parser.add_argument(
        "--stratify",
        metavar="COLUMN",
        help="let --split give each part its share of every value of this column",
    )
    parser.add_argument(
        "--seed", type=int, metavar="N", help="random seed of --take and --split (0)"
    )
    add_cache_dir(parser)
    add_rules(parser)
