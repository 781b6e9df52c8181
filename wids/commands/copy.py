"""Commands that copy samples: `wids reshard`, `import` and `export`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import wids
from wids.commands.choose import shares_of
from wids.commands.make import note_packed
from wids.commands.terminal import (
    DONE,
    FAULTY,
    Arguments,
    add_command,
    add_rules,
    add_strict,
    add_workers,
    complain,
    complain_of,
    list_omissions,
    message_of,
    nbytes_given,
    note,
    pair_given,
    range_given,
    rules_given,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from wids.tools.reshard import Resharded

__all__ = ["add_export", "add_import", "add_reshard"]


def add_reshard(commands: Any) -> None:
    """Declare the command."""
    parser = add_command(
        commands,
        reshard,
        "copy samples into new shards: resize, shuffle, choose, merge, split",
        [
            "wids reshard train.json -o 'big/train-%06d.tar' --maxsize 1G",
            "wids reshard train.json -o 'mixed/train-%06d.tar' --maxcount 10000 --shuffle 1",
            "wids reshard a.json b.json -o 'both/train-%06d.tar' --rekey",
            "wids reshard all.json -o 'cats/cats-%06d.tar' --where 'cls = 3'",
            "wids reshard all.json -o 'out/{split}-%06d.tar' --shuffle 1 --split train=0.9,val=0.1",
        ],
    )
    parser.add_argument("specs", nargs="+", metavar="SPEC")
    _add_writing(parser)
    parser.add_argument("--shuffle", type=int, metavar="SEED", help="shuffle all samples")
    chosen = parser.add_mutually_exclusive_group()
    chosen.add_argument("--range", metavar="FIRST:LAST", help="copy only samples FIRST to LAST - 1")
    chosen.add_argument(
        "--indexes", metavar="FILE", help="copy only the samples in this file, one index per line"
    )
    parser.add_argument(
        "--where", metavar="SQL", help="copy only samples that fulfil a condition, such as cls=3"
    )
    parser.add_argument(
        "--split",
        metavar="NAME=SHARE,...",
        help="divide the samples; NAME replaces {split} in PATTERN",
    )
    parser.add_argument("--rekey", action="store_true", help="replace the keys by numbers")
    parser.add_argument(
        "--columns-as",
        metavar="EXT",
        help="write the columns of a joined table as one JSON field, such as .json",
    )
    add_rules(parser)
    add_strict(parser)
    add_workers(parser)


def _add_writing(parser: Any) -> None:
    """Declare the options of a command that writes shards."""
    parser.add_argument(
        "-o",
        "--output",
        required=True,
        metavar="PATTERN",
        help="path of the new shards, with %%06d for their number",
    )
    parser.add_argument(
        "--maxcount", type=int, default=100_000, help="most samples per shard (%(default)s)"
    )
    parser.add_argument(
        "--maxsize", type=nbytes_given, default="3G", help="most bytes per shard (%(default)s)"
    )
    parser.add_argument("--no-digest", action="store_true", help="do not compute MD5 and SHA-256")
    parser.add_argument("--sidecars", action="store_true", help="write the tar index of each shard")
    parser.add_argument("--resume", action="store_true", help="continue a run that was interrupted")


def _writer_options(args: Arguments) -> dict[str, Any]:
    names = ("maxcount", "maxsize", "sidecars", "resume")
    digests = () if args.no_digest else ("md5", "sha256")
    return {**{name: getattr(args, name) for name in names}, "digests": digests}


def import_(args: Arguments) -> int:
    """Convert a dataset in another format to shards."""
    from wids.importing.options import ImportOptions
    from wids.importing.writing import import_shards

    options = ImportOptions(
        fields=dict(pair_given(text, "--field COLUMN=EXT") for text in args.field),
        files=args.file,
        key=args.key,
        classes=_classes(args.classes),
        split=args.split,
        pattern=args.pattern,
        allow_outside=args.allow_outside,
        **rules_given(args),
        rekeyed=args.rekey,
        strict=args.strict,
    )
    done = import_shards(args.sources, args.output, args.kind, options, **_writer_options(args))
    list_omissions(done.omissions.lines())
    for line in done.omissions.remarks():
        complain(f"kept, look at them: {line}")
    total = sum(shard["nsamples"] for shard in done.entries)
    note(f"{done.spec}: {len(done.entries)} shards, {total} samples")
    return DONE


def _classes(text: str | None) -> list[str] | str | None:
    """Parse --classes: names separated by commas, a file with one name per line, or "auto"."""
    from wids.importing.options import SORTED_CLASSES

    if text is None or text == SORTED_CLASSES:
        return text
    path = Path(text)
    lines = path.read_text(encoding="utf-8-sig").splitlines() if path.is_file() else text.split(",")
    names = [line.strip() for line in lines if line.strip()]
    twice = next((name for name in names if names.count(name) > 1), None)
    if not names or twice is not None:
        raise ValueError(f"--classes: expected different names, got {twice or text!r:.80}")
    return names


def add_import(commands: Any) -> None:
    """Declare the command."""
    from wids.importing.importers import IMPORTERS

    parser = add_command(
        commands,
        import_,
        "make shards of a dataset in another form",
        [
            "wids import pictures/ -o 'shards/train-%06d.tar'        classes or samples",
            "wids import labels.csv -o 'shards/train-%06d.tar' --file path --field label=cls",
            "wids import a.csv b.csv -o 'shards/x-%06d.tar' --field label=cls --classes auto",
            "wids import captions.jsonl -o 'shards/train-%06d.tar' --field caption=txt",
            "wids import mds/ -o 'shards/train-%06d.tar'             MosaicML MDS",
            "wids import saved/ -o 'shards/train-%06d.tar' --split train   Hugging Face datasets",
            "wids import train.tfrecord-* -o 'shards/train-%06d.tar' --field image/encoded=jpg",
            "wids import lmdb/ -o 's/x-%06d.tar' --pattern '(?P<ext>\\w+)-(?P<key>\\d+)'",
            "curl https://host/old.tar | wids import - -o 's/x-%06d.tar' --grouping shard",
        ],
    )
    parser.add_argument(
        "sources",
        nargs="+",
        metavar="SOURCE",
        help="folder, table, database, or tars; - reads a tar from standard input",
    )
    _add_writing(parser)
    parser.add_argument(
        "--from", dest="kind", choices=[each.kind for each in IMPORTERS], help="format of SOURCE"
    )
    parser.add_argument(
        "--field",
        action="append",
        default=[],
        metavar="COLUMN=EXT",
        help="write this column as field EXT",
    )
    parser.add_argument(
        "--file", action="append", metavar="COLUMN", help="column with paths of files"
    )
    parser.add_argument(
        "--allow-outside",
        action="store_true",
        help="read files outside of the source's folder that rows name; for sources you trust",
    )
    parser.add_argument("--key", metavar="COLUMN", help="column with the keys of the samples")
    parser.add_argument(
        "--classes", metavar="NAMES", help="classes in order: a,b,c, a file, or auto (sorted)"
    )
    parser.add_argument("--split", metavar="NAME", help="part of the source to import")
    parser.add_argument(
        "--pattern",
        metavar="REGEX",
        help="regular expression with groups key and ext for the keys of an LMDB",
    )
    add_rules(parser)
    parser.add_argument("--rekey", action="store_true", help="replace the keys by numbers")
    add_strict(parser)


def export(args: Arguments) -> int:
    """Write a dataset as files or as a table, or its indexes as a pack."""
    from wids.base.omissions import Omissions
    from wids.pack.packformat import is_pack_name
    from wids.tools.exporters import export_samples

    if args.output == "-":
        raise ValueError("-: an export is a folder, a table or a pack, not a stream; name one")
    rules = rules_given(args)
    if is_pack_name(args.output):
        from wids.specs.sources import load_spec
        from wids.tools.packing import write_pack
        from wids.views.opening import refuse_view

        if args.members or args.values or args.strict:
            raise ValueError(f"{args.output}: a pack takes no --members, --values and --strict")
        refuse_view(
            args.spec,
            "only specs of shards can be packed; write its samples as shards (wids reshard)",
        )
        note_packed(
            args.output, write_pack(load_spec(args.spec, options=rules or None), args.output)
        )
        return DONE
    omissions = Omissions(strict=args.strict)
    # Of members, only the tar indexes are read.
    remote = "range" if args.members else "whole"
    with wids.open(args.spec, transformations=[], remote=remote, **rules) as samples:
        count, what = export_samples(
            samples, args.output, values=args.values, members=args.members, omissions=omissions
        )
    note(f"{args.output}: {count} {what}")
    list_omissions(omissions.lines())
    return DONE


def add_export(commands: Any) -> None:
    """Declare the command."""
    parser = add_command(
        commands,
        export,
        "write a dataset as plain files, a table of its samples, or a pack of its tar indexes",
        [
            "wids export train.json files/",
            "wids export train.json train.parquet --values 'cls, json.caption as caption'",
            "wids export train.json train.wpack",
            "wids export train.wpack members.parquet --members",
        ],
    )
    parser.add_argument("spec", metavar="SPEC")
    parser.add_argument(
        "output",
        metavar="OUTPUT",
        help="folder for files; a .csv, .jsonl or .parquet table; a .wpack for the tar indexes, "
        "entries and keys of all shards in one file",
    )
    parser.add_argument(
        "--values",
        action="append",
        default=[],
        metavar="SQL",
        help="add columns to a table, such as cls or 'json.caption, length(txt) as n'",
    )
    parser.add_argument(
        "--members",
        action="store_true",
        help="write a table with a row for each member: shard, key, field, offset, size",
    )
    add_rules(parser)
    add_strict(parser)


def reshard(args: Arguments) -> int:
    """Copy samples into new shards."""
    import numpy as np

    from wids.specs.newspec import spec_path_for
    from wids.tools import reshard as resharding

    for pattern in _shares(args):
        new = Path(spec_path_for(pattern))
        for spec in args.specs:
            if new.exists() and Path(spec).exists() and new.samefile(spec):
                raise ValueError(
                    f"{pattern}: its spec would replace {spec}, which is read; write the new "
                    "shards into another folder, or under another name"
                )
    code = DONE
    lines: dict[str, None] = {}  # parts of a split read the same shards, mostly
    with _opened(args) as whole:
        dataset = _chosen(args, whole)
        indexes = np.arange(len(dataset), dtype=np.int64)
        if args.shuffle is not None:
            indexes = resharding.shuffled(indexes, args.shuffle)
        parts = _parts(args, indexes)
        for pattern, part in parts.items():
            if not len(part):  # found before any of the parts is written
                names = ("where", "range", "indexes", "split")
                given = [f"--{name} {value}" for name in names if (value := getattr(args, name))]
                hint = f"check {' '.join(given)}" if given else "the dataset is empty"
                raise ValueError(f"{pattern}: no sample goes there, nothing was written; {hint}")
        for pattern, part in parts.items():
            done = resharding.reshard(
                dataset,
                part,
                pattern,
                rekey=args.rekey,
                columns_as=args.columns_as,
                workers=args.workers,
                strict=args.strict,
                **_writer_options(args),
            )
            code = max(code, _report_reshard(pattern, done, len(part)))
            lines |= dict.fromkeys(done.omissions.lines())
    list_omissions(lines)
    return code


def _opened(args: Arguments) -> Any:
    """Open the samples that are copied, those of one dataset as a choice of it."""
    from wids.views.opening import is_joined, shards_and_rows

    options: dict[str, Any] = {"cache_dir": args.cache_dir, **rules_given(args)}
    source = args.specs if len(args.specs) > 1 else args.specs[0]
    view = wids.open(source, transformations=[], **options)
    if is_joined(view):
        return view
    dataset, rows = shards_and_rows(view, transformations=[], **options)
    return dataset if rows is None else dataset.select(rows)


def _report_reshard(pattern: str, done: Resharded, nsamples: int) -> int:
    from wids.specs.newspec import spec_path_for

    for path, error in done.failures.items():
        complain_of(str(path), "failed", message_of(error))
    total = len(done.entries) + len(done.failures)
    if done.failures:
        complain(
            f"{spec_path_for(pattern)} was not written: {len(done.failures)} of {total} shards "
            "failed; mend the cause and run again with --resume"
        )
        return FAULTY
    note(f"{spec_path_for(pattern)}: {total} shards, {nsamples} samples")
    return DONE


def _chosen(args: Arguments, view: Any) -> Any:
    """Return the samples that the options choose, in order."""
    if args.range is not None:
        wanted = range_given(args.range, len(view))
        if wanted is None:
            raise ValueError(f"--range: expected [first, last) such as 0:100, got {args.range!r}")
        view = view[wanted]
    elif args.indexes is not None:
        lines = Path(args.indexes).read_text(encoding="utf-8").split()
        for line in lines:
            if re.fullmatch(r"-?\d+", line) is None:
                raise ValueError(f"{args.indexes}: expected one index a line, found {line!r:.60}")
        view = view.select([int(line) for line in lines])
    if args.where is not None:
        view = view.filter(args.where)
    return view


def _parts(args: Arguments, indexes: NDArray[np.int64]) -> dict[str, NDArray[np.int64]]:
    """Return a dict from each output pattern to the indexes of its samples."""
    from wids.tools.reshard import split_order

    if args.split is None:
        return {args.output: indexes}
    return split_order(indexes, _shares(args))


def _shares(args: Arguments) -> dict[str, float]:
    """Return a dict from each output pattern to its share of the samples."""
    return {args.output: 1.0} if args.split is None else shares_of(args.split, args.output)
