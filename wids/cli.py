"""The command line: `wids create`, `info`, `ls`, `show`, `cat`, `update`; `widsindex` is the same.

Each subcommand is one function from its arguments to an exit code: 0 done, 1 something was wrong
with the data (the message says what), 2 the command was wrong. What programs read goes to standard
output, everything else to standard error. Heavy modules are imported where they are used, so that
`wids --help` is there at once.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import wids
from wids.errors import WidsError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from wids.shardlist import ShardList

__all__ = ["main"]

Arguments = argparse.Namespace
Command = "Callable[[Arguments], int]"

DONE, FAULTY, WRONG_USAGE = 0, 1, 2
_INTERRUPTED = 130  # what a shell reports for Ctrl-C

DESCRIPTION = """\
Random access to the samples of WebDataset tar shards.

Wherever a command takes SPEC, it takes a JSON shard-spec (path or URL), a single .tar, a folder
of shards, or a pattern such as 'train-{000..146}.tar' (quoted, so that the shell leaves it alone).
"""
EXAMPLES = """\
examples:
  wids create 'train-{000..146}.tar' -o train.json   index shards: count, size, digest
  wids info train.json                               how many samples, how large, where
  wids ls train.json 0:10                            keys and fields of the first ten samples
  wids show train.json 42                            one sample, its image drawn in the terminal
  wids cat train.json 42 .jpg > 42.jpg               one field as it is

'wids COMMAND --help' explains a command, with examples.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        argv: The arguments behind the program's name; those of the process by default.

    Returns:
        The exit code.
    """
    parser = _make_parser()
    args = _parse(parser, argv)
    try:
        code: int = args.run(args)
        sys.stdout.flush()
    except BrokenPipeError:  # `wids ls ... | head` has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except KeyboardInterrupt:
        return _INTERRUPTED
    except (WidsError, OSError, ValueError, LookupError, ImportError) as error:
        _complain(_message_of(error))
        return FAULTY
    return code


def _parse(parser: argparse.ArgumentParser, argv: Sequence[str] | None) -> Arguments:
    """Parse the arguments; the optional last positional may stand behind options, or begin with -.

    argparse gives an optional positional away at the first option, and takes `-5:` for one.
    """
    args, rest = parser.parse_known_args(argv)
    late = getattr(args, "late", None)
    if len(rest) == 1 and late is not None and getattr(args, late) is None:
        setattr(args, late, rest.pop())
    if rest:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    return args


def _message_of(error: BaseException) -> str:
    """Put an error in one line; a KeyError's text is its argument, not that in quotes."""
    text = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
    return " ".join(text.split()) or type(error).__name__


def _complain(message: str) -> None:
    from wids.listing import clean  # noqa: PLC0415

    print(f"wids: {clean(message)}", file=sys.stderr)


def _print_json(value: Any) -> None:
    print(json.dumps(value, indent=2))


# wids create


def create(args: Arguments) -> int:
    """Index shards and write their spec."""
    from wids.build import build_spec  # noqa: PLC0415
    from wids.outfile import write_whole  # noqa: PLC0415

    shards = _expand(_listed(args.files))
    to_stdout = args.output == "-"
    folder = None if args.base is not None else Path("." if to_stdout else args.output).parent
    built = build_spec(
        shards,
        folder=folder,
        header={
            "name": _name_for(args, shards),
            "info": None if args.info is None else Path(args.info).read_text(encoding="utf-8"),
            "base": args.base,
        },
        known=_known(Path(args.output)) if args.resume else None,
        workers=args.workers,
        digests=() if args.no_digest else ("md5", "sha256") if args.sha256 else ("md5",),
        sidecar=args.sidecars,
        cache_dir=args.cache_dir,
    )
    for shard, error in built.failures.items():
        _complain(f"{shard} failed: {_message_of(error)}")
    if not len(built.spec.shards):
        raise ValueError(f"none of {len(shards)} shards could be indexed; nothing was written")
    text = f"{built.spec.to_json()}\n"
    if to_stdout:
        sys.stdout.write(text)
    else:
        write_whole(Path(args.output), text.encode())
    _report_create(args, built, len(shards))
    return FAULTY if built.failures else DONE


def _name_for(args: Arguments, shards: list[str]) -> str | None:
    """Name the dataset as asked, else after what the user typed, else after the first shard."""
    from wids.build import default_name  # noqa: PLC0415

    if args.name is not None:
        return args.name or None
    return default_name(args.files[0]) or default_name(shards[0]) or None


def _report_create(args: Arguments, built: Any, num_shards: int) -> None:
    from wids.listing import format_nbytes, spec_facts  # noqa: PLC0415

    facts = spec_facts(built.spec, args.output)
    if args.json and args.output != "-":
        failures = {shard: _message_of(error) for shard, error in built.failures.items()}
        _print_json({**facts, "failures": failures})
    count = f"{facts['num_shards']} of {num_shards}" if built.failures else facts["num_shards"]
    print(
        f"{args.output}: {count} shards, {facts['nsamples']} samples, "
        f"{format_nbytes(facts['filesize'])}"
        + ("; mend the others and run again with --resume" if built.failures else ""),
        file=sys.stderr,
    )


def _listed(files: list[str]) -> list[str]:
    """Take the list of shards from standard input when it is `-`."""
    if files == ["-"]:
        return [line.strip() for line in sys.stdin if line.strip()]
    return files


def _expand(files: list[str]) -> list[str]:
    """Replace folders and patterns by the shards they mean."""
    from wids.sources import find_shards  # noqa: PLC0415

    return [shard for file in files for shard in find_shards(file) or [file]]


def _known(output: Path) -> dict[str, dict[str, Any]]:
    """Take the entries of an earlier spec whose shards have not changed since it was written."""
    if not output.exists():
        return {}
    written = output.stat().st_mtime_ns
    document = json.loads(output.read_text(encoding="utf-8"))
    known = {}
    for entry in document["shardlist"]:
        path = output.parent / entry["url"]
        status = path.stat() if path.exists() else None
        if status and status.st_size == entry["filesize"] and status.st_mtime_ns <= written:
            known[entry["url"]] = entry
    return known


# wids info, ls


def info(args: Arguments) -> int:
    """Sum up specs."""
    from wids.listing import spec_facts, spec_lines, spec_table_row  # noqa: PLC0415
    from wids.sources import load_spec  # noqa: PLC0415

    all_facts = [spec_facts(load_spec(source), source) for source in args.filenames]
    if args.json:
        _print_json(all_facts[0] if len(all_facts) == 1 else all_facts)
    elif args.table:
        print("file\tname\tnbytes\tnsamples\tbase\tlast\tdatasets")
        for facts in all_facts:
            print(spec_table_row(facts))
    else:
        for facts in all_facts:
            print("filename:", facts["source"])
            print("\n".join(spec_lines(facts)), end="\n\n")
    return DONE


def ls(args: Arguments) -> int:
    """List the shards of a dataset, or some of its samples."""
    if args.samples is not None:
        return _ls_samples(args)
    from wids.listing import format_nbytes, shard_rows, table  # noqa: PLC0415
    from wids.sources import load_spec  # noqa: PLC0415

    rows = shard_rows(load_spec(args.spec))
    if args.json:
        _print_json(rows)
        return DONE
    lines: list[tuple[Any, ...]] = [("shard", "first", "samples", "size", "url")]
    for row in rows:
        first, nsamples = row["first_index"], row.get("nsamples")
        nbytes = "?" if "filesize" not in row else format_nbytes(row["filesize"])
        counts = ("?" if first is None else first, "?" if nsamples is None else nsamples)
        lines.append((row["shard"], *counts, nbytes, row["url"]))
    print("\n".join(table(lines, right=range(4))))
    return DONE


def _ls_samples(args: Arguments) -> int:
    from wids.listing import format_nbytes, table  # noqa: PLC0415

    with _open_raw(args.spec) as dataset:
        indexes = _parse_range(args.samples, len(dataset))
        found = [_sample_row(dataset, index) for index in indexes]
    if args.json:
        _print_json(found)
        return DONE
    lines: list[tuple[Any, ...]] = [("index", "key", "fields")]
    for row in found:
        fields = (f"{name} {format_nbytes(nbytes)}" for name, nbytes in row["fields"].items())
        lines.append((row["index"], row["key"], ", ".join(fields)))
    print("\n".join(table(lines, right=[0])))
    return DONE


def _sample_row(dataset: ShardList, index: int) -> dict[str, Any]:
    from wids.show import field_names  # noqa: PLC0415

    sample = dataset[index]
    fields = {name: len(sample[name]) for name in field_names(sample)}
    return {"index": sample["__index__"], "key": sample["__key__"], "fields": fields}


def _parse_range(text: str, total: int) -> range:
    """Read `5`, `5:10`, `:10` or `-10:` as Python does."""
    parts = text.split(":")
    try:
        bounds = [int(part) if part else None for part in parts]
    except ValueError:
        bounds = []
    if len(bounds) == 2:
        return range(*slice(*bounds).indices(total))
    if len(bounds) == 1 and bounds[0] is not None:
        if not -total <= bounds[0] < total:
            raise IndexError(f"index {bounds[0]} lies outside a dataset of {total} samples")
        return range(bounds[0] % total, bounds[0] % total + 1)
    raise ValueError(f"expected an index or a range [first, last) such as 0:10, got {text!r}")


# wids show, cat, sample


def show(args: Arguments) -> int:
    """Show one sample: fields, sizes, values, images."""
    from wids.show import describe_sample, sample_lines  # noqa: PLC0415

    with _open_raw(args.spec) as dataset:
        description, values = describe_sample(dataset[args.index])
        total = len(dataset)
    if args.json:
        _print_json(description)
        return DONE
    columns, rows = shutil.get_terminal_size((100, 40))
    width = columns if sys.stdout.isatty() else 1000
    print("\n".join(sample_lines(description, total, width)))
    drawable = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    if args.image or (drawable and os.environ.get("TERM") != "dumb" and not args.no_image):
        _draw_images(values, min(columns, 80), max(rows - 12, 12))
    return DONE


def _draw_images(values: dict[str, Any], columns: int, rows: int) -> None:
    from wids.show import draw_image  # noqa: PLC0415

    for extension, value in values.items():
        if hasattr(value, "getbands"):
            print(f"\n{extension}")
            print("\n".join(draw_image(value, columns, rows)))


def cat(args: Arguments) -> int:
    """Write the bytes of one field to standard output."""
    with _open_raw(args.spec) as dataset:
        _write_field(dataset[args.index], args.field)
    return DONE


def _write_field(sample: dict[str, Any], field: str) -> None:
    from wids.show import field_names  # noqa: PLC0415

    extension = field if field in sample else f".{field}"
    if extension not in field_names(sample):
        raise LookupError(
            f"sample {sample['__index__']} ({sample['__key__']}) has no field {field!r}; "
            f"it has {' '.join(field_names(sample))}"
        )
    sys.stdout.buffer.write(sample[extension])


def sample(args: Arguments) -> int:
    """Print one sample as the old `widsindex sample` did."""
    from wids.listing import clean  # noqa: PLC0415
    from wids.shardlist import ShardList  # noqa: PLC0415

    raw = args.raw or args.python or args.cat is not None
    with ShardList(args.filename, transformations="bytes" if raw else "PIL") as dataset:
        print("dataset size:", len(dataset), file=sys.stderr)
        found = dataset[int(args.index or 0)]
    if args.cat is not None:
        _write_field(found, args.cat)
        return DONE
    names = {name: clean(name) for name in found}
    name_width = max(map(len, names.values()))
    for name, value in sorted(found.items()):
        print(names[name].ljust(name_width), repr(value)[: args.width - name_width - 1])
    return DONE


def _open_raw(spec: str) -> ShardList:
    from wids.shardlist import ShardList  # noqa: PLC0415

    return ShardList(spec, transformations="bytes")


# wids update


def update(args: Arguments) -> int:
    """Change the name, base or folders of a spec."""
    from wids.specedit import edit_spec  # noqa: PLC0415

    wanted = {"name": args.name, "info": args.info, "base": args.base, "keep": args.keep}
    changes = {key: value for key, value in wanted.items() if value is not None}
    document = edit_spec(
        Path(args.filename),
        changes,
        folder="" if args.nodir else args.dir,
        rebased=args.rebase,
    )
    if args.rebase:
        print(f"{args.filename}: the base is now {document['base']}", file=sys.stderr)
    return DONE


# The parser


def _make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"wids {wids.__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for add in (_add_create, _add_info, _add_ls, _add_show, _add_cat, _add_update, _add_sample):
        add(commands)
    return parser


def _add(commands: Any, run: Callable[[Arguments], int], text: str, examples: str) -> Any:
    parser = commands.add_parser(
        run.__name__,
        help=text,
        description=f"{text[0].upper()}{text[1:]}.",
        epilog=f"examples:\n{examples}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=run)
    return parser


def _add_json(parser: Any) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")


def _add_create(commands: Any) -> None:
    parser = _add(
        commands,
        create,
        "index shards (count, size, digest) and write their JSON spec",
        "  wids create 'train-{000..146}.tar' -o train.json\n"
        "  wids create shards/ -o shards/train.json --sidecars\n"
        "  wids create 'https://host/train-{000..146}.tar' -o train.json\n"
        "  find /data -name '*.tar' | wids create - -o all.json --no-digest",
    )
    parser.add_argument(
        "files", nargs="+", help="shards: paths, URLs, folders, brace patterns; - reads a list"
    )
    parser.add_argument(
        "-o", "--output", default="shardindex.json", help="the spec (%(default)s); - prints it"
    )
    parser.add_argument("-n", "--name", help="name of the dataset (made of the first shard's)")
    parser.add_argument("-i", "--info", metavar="FILE", help="file with a description")
    parser.add_argument(
        "-b", "--base", help="folder or URL that the shards' names count from, when used"
    )
    digests = parser.add_mutually_exclusive_group()
    digests.add_argument("--no-digest", action="store_true", help="read headers only")
    digests.add_argument("--sha256", action="store_true", help="record SHA-256 besides MD5")
    parser.add_argument("--sidecars", action="store_true", help="write tar indexes beside shards")
    parser.add_argument("--resume", action="store_true", help="skip what OUTPUT has, unchanged")
    parser.add_argument("--workers", type=_positive, metavar="N", help="processes (one per core)")
    parser.add_argument("--cache-dir", metavar="DIR", help="keep fetched shards there")
    _add_json(parser)


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError
    return number


def _add_info(commands: Any) -> None:
    parser = _add(
        commands,
        info,
        "sum up a dataset: samples, bytes, shards",
        "  wids info train.json\n  wids info *.json -t",
    )
    parser.add_argument("filenames", metavar="SPEC", nargs="+", help="specs, shards or patterns")
    parser.add_argument("-t", "--table", action="store_true", help="one row per spec, tabs between")
    _add_json(parser)


def _add_ls(commands: Any) -> None:
    parser = _add(
        commands,
        ls,
        "list the shards of a dataset, or some of its samples",
        "  wids ls train.json\n  wids ls train.json 0:10\n  wids ls train.json -5:",
    )
    parser.add_argument("spec", metavar="SPEC")
    parser.add_argument("samples", nargs="?", metavar="INDEX|FIRST:LAST", help="which samples")
    parser.set_defaults(late="samples")
    _add_json(parser)


def _add_show(commands: Any) -> None:
    parser = _add(
        commands,
        show,
        "show one sample: fields, sizes, values, images",
        "  wids show train.json 42\n  wids show train-000.tar -1\n  wids show train.json 42 --json",
    )
    parser.add_argument("spec", metavar="SPEC")
    parser.add_argument("index", type=int, metavar="INDEX", help="negative: from the end")
    images = parser.add_mutually_exclusive_group()
    images.add_argument("--image", action="store_true", help="draw images wherever it goes")
    images.add_argument("--no-image", action="store_true", help="draw no images")
    _add_json(parser)


def _add_cat(commands: Any) -> None:
    parser = _add(
        commands,
        cat,
        "write one field of one sample to standard output, as it is",
        "  wids cat train.json 42 .jpg > 42.jpg",
    )
    parser.add_argument("spec", metavar="SPEC")
    parser.add_argument("index", type=int, metavar="INDEX", help="negative: from the end")
    parser.add_argument("field", metavar="FIELD", help="its extension, such as .jpg")


def _add_update(commands: Any) -> None:
    parser = _add(
        commands,
        update,
        "change a spec in place: name, info, base, folders",
        "  wids update train.json -n imagenet -b https://host/shards\n"
        "  wids update train.json --rebase",
    )
    parser.add_argument("filename", metavar="SPEC")
    parser.add_argument("-n", "--name", help="set the name")
    parser.add_argument("-i", "--info", help="set the description")
    bases = parser.add_mutually_exclusive_group()
    bases.add_argument("-b", "--base", help="set the base that relative URLs count from")
    bases.add_argument(
        "-B", "--rebase", action="store_true", help="make the shards' common folder the base"
    )
    folders = parser.add_mutually_exclusive_group()
    folders.add_argument("-d", "--dir", help="put all shards into this folder or URL")
    folders.add_argument("-D", "--nodir", action="store_true", help="leave only file names")
    keeps = parser.add_mutually_exclusive_group()
    keeps.add_argument("-k", "--keep", action="store_true", default=None, help="set the keep flag")
    keeps.add_argument(
        "-K", "--nokeep", action="store_false", dest="keep", default=None, help="clear it"
    )


def _add_sample(commands: Any) -> None:
    parser = _add(
        commands,
        sample,
        "print one sample as the old widsindex did ('show' shows more)",
        "  widsindex sample train.json 42\n  widsindex sample train.json 42 --cat .jpg > 42.jpg",
    )
    parser.add_argument("filename", metavar="SPEC")
    parser.add_argument("index", nargs="?", metavar="INDEX", help="the first one by default")
    parser.set_defaults(late="index")
    parser.add_argument("-p", "--python", action="store_true", help="as --raw")
    parser.add_argument("-r", "--raw", action="store_true", help="do not decode the fields")
    parser.add_argument("-c", "--cat", metavar="EXT", help="write the bytes of a field")
    parser.add_argument("-w", "--width", type=int, default=250, help="columns (%(default)s)")
