"""Commands that make specs: `wids create` and `merge`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wids.base.hashing import DIGESTS
from wids.commands.terminal import (
    DONE,
    FAULTY,
    Arguments,
    add_command,
    add_json,
    add_rules,
    add_workers,
    complain,
    complain_of,
    message_of,
    note,
    print_json,
    rules_given,
    standard_output,
)

if TYPE_CHECKING:
    from wids.tools.creating import Created
    from wids.tools.packing import Packed

__all__ = ["add_create", "add_merge", "note_packed"]

_USUAL_DIGEST = "md5"  # what old readers know


def create(args: Arguments) -> int:
    """Index shards and write their spec."""
    from wids.tools.creating import create_spec

    files = args.files
    if files == ["-"]:
        files = [line.strip() for line in sys.stdin if line.strip()]
        if not files:
            raise ValueError("standard input named no shards; expected one path or URL a line")
    digests: tuple[str, ...] | None = (_USUAL_DIGEST, args.digest) if args.digest else None
    made = create_spec(
        files,
        None if args.output == "-" else Path(args.output),
        name=args.name,
        info=None if args.info is None else Path(args.info).read_text(encoding="utf-8"),
        base=args.base,
        pack=args.pack,
        catalogue=args.catalogue,
        skip_broken=args.skip_broken,
        resume=args.resume,
        workers=args.workers,
        cache_dir=args.cache_dir,
        rules=rules_given(args),
        digests=() if args.no_digest else digests,
        sidecar=args.sidecars,
        index_dir=args.index,
    )
    for shard, error in made.build.failures.items():
        complain_of(shard, "failed", message_of(error))
    if made.spec is None:
        return _report_failures(args, made)
    if args.output == "-":
        standard_output().write(f"{made.spec.to_json()}\n")
    _report(args, made)
    return DONE


def _report(args: Arguments, made: Created) -> None:
    """Say what was made, and what the shards have that no sample has."""
    from wids.base.omissions import Omissions
    from wids.base.text import format_nbytes
    from wids.base.urls import is_local
    from wids.tools.facts import spec_facts

    if made.num_names:
        note(f"class names: {made.num_names}, from the old spec")
    if made.lost:
        complain(
            f"{args.output}: the old spec had {', '.join(map(repr, made.lost))}, the new one has "
            f"not; the old one is {args.output}.bak"
        )
    if made.packed is not None:
        note_packed(args.pack, made.packed)
    if made.catalogue is not None:
        nbytes = made.catalogue.stat().st_size
        note(f"{made.catalogue}: the catalogue, {format_nbytes(nbytes)}")
    failures = {shard: message_of(error) for shard, error in made.build.failures.items()}
    facts = spec_facts(made.build.spec, args.output)
    if args.json and args.output != "-":
        print_json({**facts, "failures": failures})
    count = f"{facts['num_shards']} of {made.num_shards}" if failures else facts["num_shards"]
    advice = "; the others are left out, which the spec says" if failures else ""
    remote = [each for each in made.build.records if not is_local(each.url)]
    moved = sum(each.nbytes_read for each in remote)
    of = sum(each.entry.get("filesize", 0) for each in remote)
    read = f"; read {format_nbytes(moved)} of {format_nbytes(of)} from servers" if remote else ""
    note(
        f"{args.output}: {count} shards, {facts['nsamples']} samples, "
        f"{format_nbytes(facts['filesize'])}{read}{advice}"
    )
    omissions = Omissions()
    for record in made.build.records:
        omissions.add_members(record.skipped, record.url)
    for line in omissions.lines():
        note(f"left out: {line}")


def _report_failures(args: Arguments, made: Created) -> int:
    """Say how to go on after shards could not be read; return the exit code."""
    failures = {shard: message_of(error) for shard, error in made.build.failures.items()}
    if args.json and args.output != "-":
        print_json({"source": args.output, "failures": failures})
    if len(failures) == made.num_shards:
        complain(f"{args.output} was not written: none of {len(failures)} shards could be read")
        return FAULTY
    resume = "" if args.output == "-" else " with --resume, which reads only these,"
    complain(
        f"{args.output} was not written: {len(failures)} of {made.num_shards} shards could not be "
        f"read; mend them and run again{resume} or leave them out with --skip-broken"
    )
    return FAULTY


def note_packed(output: str, packed: Packed) -> None:
    """Note what a pack was made of.

    Args:
        output: Path of the pack.
        packed: What it was made of.
    """
    from wids.base.text import format_nbytes

    without = f"; no index of {packed.num_without} compressed shards" if packed.num_without else ""
    moved = packed.nbytes_read
    read = f"; read {format_nbytes(moved)} from servers for tar indexes" if moved else ""
    note(
        f"{output}: {packed.num_shards} shards, {packed.num_samples} samples, "
        f"{format_nbytes(packed.nbytes)}{without}{read}"
    )


def add_create(commands: Any) -> None:
    """Declare the command."""
    parser = add_command(
        commands,
        create,
        "index shards (count, size, digest) and write their JSON spec",
        [
            "wids create 'train-{000..146}.tar' -o train.json",
            "wids create shards/ -o shards/train.json --sidecars",
            "wids create 'https://host/train-{000..146}.tar' -o train.json",
            "wids create s3://bucket/train/ -o train.json --index train-index",
            "find /data -name '*.tar' | wids create - -o all.json --no-digest",
        ],
    )
    parser.add_argument(
        "files",
        nargs="+",
        help="shards: paths, URLs, folders (also of buckets), patterns; - reads them from stdin; "
        "the spec lists them by name (a-9 before a-10), whatever their order here",
    )
    parser.add_argument(
        "-o",
        "--output",
        default="shardindex.json",
        help="path of the spec (%(default)s); - prints it",
    )
    parser.add_argument(
        "-n", "--name", help="name of the dataset (by default from that of the first shard)"
    )
    parser.add_argument(
        "-i", "--info", metavar="FILE", help="file with a description of the dataset"
    )
    parser.add_argument(
        "-b", "--base", help="base of the spec: the folder or URL to which FILES are relative"
    )
    digests = parser.add_mutually_exclusive_group()
    digests.add_argument(
        "--no-digest", action="store_true", help="read only headers, and compute no digests"
    )
    for field, kind in DIGESTS.items():
        if kind.algorithm != _USUAL_DIGEST:
            digests.add_argument(
                f"--{field}",
                dest="digest",
                action="store_const",
                const=kind.algorithm,
                help=f"record {field} in addition to md5sum",
            )
    parser.add_argument(
        "--sidecars", action="store_true", help="write the tar index of each shard as a .widx file"
    )
    parser.add_argument(
        "--index",
        metavar="FOLDER",
        help="write the tar index of each remote shard into this folder, which may be of a bucket, "
        "and its place into the spec",
    )
    parser.add_argument(
        "--pack",
        metavar="PACK",
        help="write the tar indexes of all shards into this one file, .wpack, and its place into "
        "the spec",
    )
    parser.add_argument(
        "--catalogue",
        action="store_true",
        help="write a Parquet file with a row for each sample beside the spec, for `wids sql`, "
        "DuckDB, Polars, pandas and Spark, and its place into the spec; needs wids[sql]",
    )
    parser.add_argument(
        "--skip-broken",
        action="store_true",
        help="leave out shards that cannot be read; the spec records them, and readers warn of it",
    )
    parser.add_argument(
        "--resume",
        action="store_true",
        help="skip shards that an earlier run has read and that are unchanged since",
    )
    add_rules(parser)
    add_workers(parser)
    add_json(parser)


def merge(args: Arguments) -> int:
    """Merge several specs into one."""
    from wids.base.files import write_output
    from wids.specs.build import merge_specs
    from wids.specs.newspec import refuse_replacing
    from wids.tools.creating import check_writable
    from wids.views.opening import refuse_view

    output, printed = Path(args.output), args.output == "-"
    if not printed:
        check_writable(output)
    for source in args.specs:
        refuse_view(
            source,
            "only specs of shards can be merged; write its samples as shards first (wids reshard), "
            "or open several views as one: wids.open takes a list",
        )
    refuse_replacing(output, args.specs)
    spec = merge_specs(args.specs, output.parent, args.name or (None if printed else output.stem))
    text = f"{spec.to_json()}\n"
    if printed:
        standard_output().write(text)
    else:
        write_output(output, text.encode())
    note(f"{args.output}: {len(spec.shards)} shards")
    return DONE


def add_merge(commands: Any) -> None:
    """Declare the command."""
    parser = add_command(
        commands,
        merge,
        "make one spec of several, such as those of parallel writers",
        ["wids merge train-*-of-00004.json -o train.json"],
    )
    parser.add_argument("specs", nargs="+", metavar="SPEC")
    parser.add_argument("-o", "--output", required=True, help="the new spec; - prints it")
    parser.add_argument("-n", "--name", help="name of the dataset (by default from that of OUTPUT)")
