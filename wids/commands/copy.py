"""Commands that write samples anew: `wids reshard`, `map`, `import` and `export`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import wids
from wids.commands.make import note_packed
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
    nbytes_given,
    note,
    pair_given,
    positive,
    print_json,
    rules_given,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["add_export", "add_import", "add_map", "add_reshard"]


def add_reshard(commands: Any) -> None:
    """Declare the command."""
    parser = add_command(
        commands,
        reshard,
        "copy samples into new shards: resize, shuffle, choose, merge",
        [
            "wids reshard train.json -o 'big/train-%06d.tar' --maxsize 1G",
            "wids reshard train.json -o 'mixed/train-%06d.tar' --maxcount 10000 --shuffle 1",
            "wids reshard a.json b.json -o 'both/train-%06d.tar' --rekey",
            "wids reshard all.json -o 'cats/cats-%06d.tar' --where 'cls = 3'",
        ],
    )
    parser.add_argument("specs", nargs="+", metavar="SPEC")
    _add_writing(parser)
    parser.add_argument("--shuffle", type=int, metavar="SEED", help="shuffle all samples")
    parser.add_argument(
        "--where", metavar="SQL", help="copy only samples that fulfil a condition, such as cls=3"
    )
    parser.add_argument("--rekey", action="store_true", help="replace the keys by numbers")
    add_rules(parser)
    add_strict(parser)
    add_workers(parser)


def _add_writing(parser: Any) -> None:
    """Declare the options of a command that writes shards of bounded size."""
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
    _add_shard_options(parser)


def _add_shard_options(parser: Any) -> None:
    """Declare the options of new shards."""
    parser.add_argument("--no-digest", action="store_true", help="do not compute MD5 and SHA-256")
    parser.add_argument("--sidecars", action="store_true", help="write the tar index of each shard")
    parser.add_argument("--resume", action="store_true", help="continue a run that was interrupted")


def _shard_options(args: Arguments) -> dict[str, Any]:
    """Return the options of new shards that were given."""
    options: dict[str, Any] = {"digests": ()} if args.no_digest else {}
    return options | ({"sidecars": True} if args.sidecars else {})


def _report_failures(output: str, failures: Mapping[str, Exception]) -> None:
    """Say which shards or parts failed, and how to go on."""
    for name, error in failures.items():
        complain_of(name, "failed", message_of(error))
    if failures:
        complain(
            f"{output}: {len(failures)} parts failed, and nothing names the others yet; mend the "
            "cause and run again with --resume"
        )


def reshard(args: Arguments) -> int:
    """Copy samples into new shards."""
    import numpy as np

    from wids.specs.newspec import refuse_replacing, spec_path_for
    from wids.tools.reshard import shuffled

    refuse_replacing(Path(spec_path_for(args.output)), args.specs)
    with _opened(args) as whole:
        samples = whole if args.where is None else whole.filter(args.where)
        indexes = np.arange(len(samples), dtype=np.int64)
        if args.shuffle is not None:
            indexes = shuffled(indexes, args.shuffle)
        done = wids.reshard(
            samples,
            indexes,
            args.output,
            maxcount=args.maxcount,
            maxsize=args.maxsize,
            rekey=args.rekey,
            resume=args.resume,
            workers=args.workers,
            strict=args.strict,
            **_shard_options(args),
        )
    _report_failures(args.output, done.failures)
    if not done.failures:
        note(f"{spec_path_for(args.output)}: {len(done.entries)} shards, {len(indexes)} samples")
    list_omissions(done.omissions.lines())
    return FAULTY if done.failures else DONE


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


def add_map(commands: Any) -> None:
    """Declare the command."""
    parser = add_command(
        commands,
        map_,
        "call a function for all samples, choose and rename fields",
        [
            "wids map train.json --function resize.py:smaller -o 'small/train-%06d.tar'",
            "wids map train.json --function captions:write --only-new -o 'captions-%06d.tar'",
            "wids map train.json --function lengths.py:count -o lengths.parquet",
            "wids map train.json --rename .txt=.caption.txt -o 'renamed-%06d.tar'",
            "wids map train.json -o - | tar -xf - -C files/      all members as plain files",
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
    parser.add_argument(
        "--function",
        metavar="NAME",
        help="module:function or file.py:function, from a sample to its new fields, or to a value",
    )
    parser.add_argument("--raw", action="store_true", help="give the function bytes, not values")
    parser.add_argument("--fields", metavar="EXT,...", help="read and copy only these fields")
    parser.add_argument(
        "--rename", action="append", default=[], metavar="OLD=NEW", help="new name of a field"
    )
    parser.add_argument("--only-new", action="store_true", help="write only new fields, to join")
    parser.add_argument("--where", metavar="SQL", help="only samples that fulfil a condition")
    parser.add_argument("--maxcount", type=positive, metavar="N", help="most samples per shard")
    parser.add_argument(
        "--on-error",
        choices=["raise", "skip"],
        default="raise",
        help="skip: leave out samples that fail (%(default)s)",
    )
    _add_shard_options(parser)
    add_rules(parser)
    add_strict(parser)
    add_workers(parser)
    add_json(parser)


def map_(args: Arguments) -> int:
    """Write what a function makes of all samples."""
    from wids.specs.newspec import refuse_replacing, spec_path_for
    from wids.tools.mapping import NamedFunction

    refuse_replacing(Path(spec_path_for(args.output)), args.specs)
    function = None if args.function is None else NamedFunction(args.function)
    with wids.open(
        args.specs if len(args.specs) > 1 else args.specs[0],
        transformations="bytes" if args.raw else "PIL",
        fields=None if args.fields is None else _fields(args.fields),
        cache_dir=args.cache_dir,
        **rules_given(args),
    ) as samples:
        chosen = samples if args.where is None else samples.filter(args.where)
        done = wids.map_samples(
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
        _report_failures(args.output, done.failures)
        return FAULTY if done.failures or done.num_skipped else DONE


def _fields(text: str) -> list[str]:
    return [f".{name.strip().removeprefix('.')}" for name in text.split(",") if name.strip()]


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
    done = import_shards(
        args.sources,
        args.output,
        args.kind,
        options,
        maxcount=args.maxcount,
        maxsize=args.maxsize,
        resume=args.resume,
        **_shard_options(args),
    )
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
    """Write a dataset as a table, or its indexes as a pack."""
    from wids.base.omissions import Omissions
    from wids.pack.packformat import is_pack_name
    from wids.tools.exporters import export_table

    if args.output == "-":
        raise ValueError("-: an export is a table or a pack, not a stream; name one")
    rules = rules_given(args)
    if is_pack_name(args.output):
        from wids.specs.newspec import name_in_spec
        from wids.specs.sources import load_spec
        from wids.tools.packing import write_pack
        from wids.views.opening import refuse_view

        if args.strict:
            raise ValueError(f"{args.output}: a pack takes no --strict")
        refuse_view(
            args.spec,
            "only specs of shards can be packed; write its samples as shards (wids reshard)",
        )
        spec = load_spec(args.spec, options=rules or None)
        note_packed(args.output, write_pack(spec, args.output))
        if spec.shards.pack is None:
            name = name_in_spec(args.output, Path(args.spec).parent)
            note(
                f'it is used by a spec of these shards that has the top-level key "pack": "{name}"'
            )
        return DONE
    omissions = Omissions(strict=args.strict)
    with wids.open(args.spec, transformations=[], **rules) as samples:
        written = export_table(samples, Path(args.output), omissions)
    note(f"{args.output}: {written} rows")
    list_omissions(omissions.lines())
    return DONE


def add_export(commands: Any) -> None:
    """Declare the command."""
    parser = add_command(
        commands,
        export,
        "write a table of the samples of a dataset, or a pack of its tar indexes",
        [
            "wids export train.json train.parquet",
            "wids export train.json train.wpack",
        ],
    )
    parser.add_argument("spec", metavar="SPEC")
    parser.add_argument(
        "output",
        metavar="OUTPUT",
        help="a .csv, .jsonl or .parquet table; a .wpack for the tar indexes and keys of all "
        "shards in one file, which the spec names",
    )
    add_rules(parser)
    add_strict(parser)
