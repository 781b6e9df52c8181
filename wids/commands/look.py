"""Commands that show a dataset: `wids info`, `ls`, `show`, `cat`, `card` and the old `sample`."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import wids
from wids.commands.terminal import (
    DONE,
    Arguments,
    add_cache_dir,
    add_command,
    add_json,
    add_rules,
    add_sample_arguments,
    note,
    note_beyond,
    out,
    print_json,
    rules_given,
    standard_output,
)

if TYPE_CHECKING:
    from wids.reading.samplesequence import SampleSequence

__all__ = ["add_look_commands"]


def add_look_commands(commands: Any) -> None:
    """Declare the commands."""
    for add in (_add_info, _add_ls, _add_show, _add_cat, _add_card, _add_sample):
        add(commands)


def info(args: Arguments) -> int:
    """Print the totals of datasets."""
    from wids.base.urls import hide_credentials
    from wids.tools.facts import dataset_facts, spec_lines, spec_table_row

    rules = rules_given(args)
    all_facts = [dataset_facts(source, args.cache_dir, rules) for source in args.filenames]
    if args.json:
        print_json(all_facts[0] if len(all_facts) == 1 else all_facts)
    elif args.table:
        out("file\tname\tnbytes\tnsamples\tbase\tlast\tdatasets")
        for facts in all_facts:
            out(spec_table_row(facts))
    else:
        for facts in all_facts:
            lines = [f"filename: {facts['source']}", *spec_lines(facts), ""]
            out(map(hide_credentials, lines))
    return DONE


def ls(args: Arguments) -> int:
    """List the shards of a dataset, or some of its samples."""
    if args.samples is not None:
        return _ls_samples(args)
    from wids.base.text import format_nbytes, table
    from wids.specs.sources import load_spec
    from wids.tools.facts import shard_rows, view_rows
    from wids.views.opening import is_saved_view

    if is_saved_view(args.spec):
        with _open_raw(args) as view:
            rows = view_rows(view)
    else:
        rows = shard_rows(load_spec(args.spec))
    if args.json:
        print_json(rows)
        return DONE
    lines: list[tuple[Any, ...]] = [("shard", "first", "samples", "size", "url")]
    for row in rows:
        first, nsamples = row["first_index"], row.get("nsamples")
        nbytes = "?" if "filesize" not in row else format_nbytes(row["filesize"])
        counts = ("?" if first is None else first, "?" if nsamples is None else nsamples)
        lines.append((row["shard"], *counts, nbytes, row["url"]))
    out(table(lines, right=range(4)))
    return DONE


def _ls_samples(args: Arguments) -> int:
    from wids.base.text import format_nbytes, table

    with _open_raw(args) as dataset:
        indexes = _parse_range(args.samples, len(dataset))
        # Columns as wide as the widest cell need all rows first; they hold names and numbers.
        found = [_sample_row(dataset, index) for index in indexes]
    if args.json:
        print_json(found)
        return DONE
    lines: list[tuple[Any, ...]] = [("index", "key", "fields")]
    for row in found:
        fields = (f"{name} {format_nbytes(nbytes)}" for name, nbytes in row["fields"].items())
        lines.append((row["index"], row["key"], ", ".join(fields)))
    out(table(lines, right=[0]))
    return DONE


def _sample_row(dataset: SampleSequence, index: int) -> dict[str, Any]:
    # From the tar index alone: no field is read to tell its size.
    return {"index": index, "key": dataset.key_at(index), "fields": dataset.field_sizes(index)}


def _parse_range(text: str, total: int) -> range:
    """Parse `5`, `5:10`, `:10` or `-10:` as a slice."""
    parts = text.split(":")
    try:
        bounds = [int(part) if part else None for part in parts]
    except ValueError:
        bounds = []
    if len(bounds) == 2:
        note_beyond(text, bounds, total)
        return range(*slice(*bounds).indices(total))
    if len(bounds) == 1 and bounds[0] is not None:
        if not -total <= bounds[0] < total:
            raise IndexError(f"index {bounds[0]} lies outside a dataset of {total} samples")
        return range(bounds[0] % total, bounds[0] % total + 1)
    raise ValueError(f"expected an index or a range [first, last) such as 0:10, got {text!r}")


def show(args: Arguments) -> int:
    """Show one sample: fields, sizes, values, images."""
    from wids.codecs.formats import is_class
    from wids.commands.show import describe_sample, draw_pictures, sample_lines
    from wids.commands.terminalpictures import protocol_of, screen_of
    from wids.display.pixels import names_labels

    protocol = protocol_of(
        "none" if args.no_image else args.pictures, standard_output(), os.environ
    )
    if args.image and protocol == "none":
        protocol = "blocks"
    with _open_raw(args) as dataset:
        found = dataset[args.index]
        # Looking for names may ask a server, so only a sample with classes waits for that.
        fields = [name for name in found if name.startswith(".")]
        has_class = any(map(is_class, fields))
        has_labels = protocol != "none" and any(map(names_labels, fields))
        names = dataset.class_names if has_class or has_labels else None
        description = describe_sample(found, names)
        total = len(dataset)
    if args.json:
        print_json(description)
        return DONE
    columns, rows = shutil.get_terminal_size((100, 40))
    width = columns if standard_output().isatty() else 1000
    out(sample_lines(description, total, width))
    if protocol != "none":
        screen = screen_of(protocol, standard_output(), columns, rows)
        stored = {name: value for name, value in found.items() if value is not None}
        out(draw_pictures(stored, screen, names))
    return DONE


def cat(args: Arguments) -> int:
    """Write the bytes of one field to standard output."""
    with _open_raw(args) as dataset:
        _write_field(dataset[args.index], args.field)
    return DONE


def _write_field(sample: dict[str, Any], field: str) -> None:
    from wids.base.files import named_write_errors
    from wids.commands.show import field_names

    extension = field if field in sample else f".{field}"
    if extension not in field_names(sample):
        raise LookupError(
            f"sample {sample['__index__']} ({sample['__key__']}) has no field {field!r}; "
            f"it has {' '.join(field_names(sample))}"
        )
    if sample[extension] is None:
        raise LookupError(
            f"sample {sample['__index__']} ({sample['__key__']}): {field!r} is None, as the joined "
            "data have no value for this sample"
        )
    with named_write_errors("standard output"):
        standard_output().buffer.write(sample[extension])


def sample(args: Arguments) -> int:
    """Print one sample as the old `widsindex sample` did."""
    from wids.base.text import clean
    from wids.base.urls import display_url

    raw = args.raw or args.python or args.cat is not None
    transformations = "bytes" if raw else "PIL"
    rules = rules_given(args)
    with wids.open(args.filename, transformations=transformations, **rules) as dataset:
        note(f"dataset size: {len(dataset)}")
        found = dataset[int(args.index or 0)]
    if args.cat is not None:
        _write_field(found, args.cat)
        return DONE
    found["__shard__"] = display_url(str(found["__shard__"]))
    names = {name: clean(name) for name in found}
    name_width = max(map(len, names.values()))
    for name, value in sorted(found.items()):
        out(f"{names[name]:<{name_width}} {repr(value)[: args.width - name_width - 1]}")
    return DONE


def _open_raw(args: Arguments) -> Any:
    # A look at one sample of a remote shard that has a sidecar fetches that sample, not gigabytes.
    # Bytes, as `cat` must write what is stored, and `show` knows kinds by itself.
    return wids.open(args.spec, transformations="bytes", remote="range", **rules_given(args))


def card(args: Arguments) -> int:
    """Print or write the Croissant card of a dataset."""
    from wids.base.files import write_output
    from wids.reading.samplesequence import is_sharded
    from wids.tools.croissant import ABOUT, croissant_card

    output = None if args.output is None else Path(args.output)
    if output is not None:
        _refuse_other_file(output)
    about = {name: getattr(args, name) for name in ABOUT if getattr(args, name) is not None}
    rules = rules_given(args)
    options = {"cache_dir": args.cache_dir, "remote": "range", "transformations": []}
    with wids.open(args.spec, **options, **rules) as dataset:
        if not is_sharded(dataset):
            raise ValueError(
                f"{args.spec}: a card names whole shards, and this is a view of some samples; "
                "write its samples as shards first (wids reshard)"
            )
        folder = Path() if output is None else output.parent
        found = croissant_card(dataset, about, folder)
    text = json.dumps(found, indent=2, ensure_ascii=False)
    if output is None:
        out(text)
    else:
        write_output(output, f"{text}\n".encode())
        note(f"{output}: {len(found['recordSet'])} sets of records")
    if missing := [name for name in ABOUT if name not in found]:
        options_of = ", ".join(f"--{_OPTION_OF.get(name, name)}" for name in missing)
        note(f"the card says nothing of: {', '.join(missing)}; see {options_of}")
    return DONE


# Options whose names differ from those of the properties.
_OPTION_OF = {"citeAs": "cite", "datePublished": "date"}


def _refuse_other_file(path: Path) -> None:
    """Raise ValueError if a card would replace a file that is no card, such as a spec."""
    if path.exists() and b"mlcommons.org/croissant" not in path.read_bytes():
        raise ValueError(f"{path}: exists and is no card; give another name with -o")


def _add_card(commands: Any) -> None:
    parser = add_command(
        commands,
        card,
        "describe a dataset in the Croissant format, for search engines and other libraries",
        [
            "wids card train.json -o croissant.json --license https://spdx.org/licenses/MIT",
            "wids card s3://bucket/train/train.json --description 'Digits' > croissant.json",
        ],
    )
    parser.add_argument("spec", metavar="SPEC")
    parser.add_argument("-o", "--output", metavar="FILE", help="write there, and not to the output")
    for name, text in (
        ("description", "what the data are"),
        ("license", "URL or name of the licence"),
        ("url", "home page of the dataset"),
        ("citeAs", "how to cite it"),
        ("creator", "who made it"),
        ("version", "version of the data, such as 1.0.0"),
        ("datePublished", "date in ISO's form, such as 2026-01-31"),
    ):
        option = _OPTION_OF.get(name, name)
        parser.add_argument(
            f"--{option}", dest=name, metavar="TEXT", help=f"{text} (as the spec says)"
        )
    add_cache_dir(parser)
    add_rules(parser)


def _add_info(commands: Any) -> None:
    parser = add_command(
        commands,
        info,
        "sum up a dataset: samples, bytes, shards",
        ["wids info train.json", "wids info shards/", "wids info *.json -t"],
    )
    parser.add_argument("filenames", metavar="SPEC", nargs="+", help="specs, shards or patterns")
    parser.add_argument(
        "-t", "--table", action="store_true", help="print one row per spec, separated by tabs"
    )
    add_cache_dir(parser)
    add_rules(parser)
    add_json(parser)


def _add_ls(commands: Any) -> None:
    parser = add_command(
        commands,
        ls,
        "list the shards of a dataset, or some of its samples",
        ["wids ls train.json", "wids ls train.json 0:10", "wids ls train.json -5:"],
    )
    parser.add_argument("spec", metavar="SPEC")
    parser.add_argument("samples", nargs="?", metavar="INDEX|FIRST:LAST", help="samples to list")
    parser.set_defaults(late="samples")
    add_rules(parser)
    add_json(parser)


def _add_show(commands: Any) -> None:
    parser = add_command(
        commands,
        show,
        "show one sample: fields, sizes, values, images",
        ["wids show train.json 42", "wids show train-000.tar -1", "wids show train.json 42 --json"],
    )
    add_sample_arguments(parser)
    images = parser.add_mutually_exclusive_group()
    images.add_argument(
        "--image", action="store_true", help="draw images even if the output is not a terminal"
    )
    images.add_argument("--no-image", action="store_true", help="draw no images")
    images.add_argument(
        "--pictures",
        choices=("auto", "kitty", "blocks", "none"),
        default="auto",
        help="how images are drawn: by kitty's protocol or with half blocks; by default as the "
        "terminal's variables say that it can",
    )
    add_rules(parser)
    add_json(parser)


def _add_cat(commands: Any) -> None:
    parser = add_command(
        commands,
        cat,
        "write one field of one sample to standard output, as it is",
        ["wids cat train.json 42 .jpg > 42.jpg"],
    )
    add_sample_arguments(parser)
    parser.add_argument("field", metavar="FIELD", help="its extension, such as .jpg")
    add_rules(parser)


def _add_sample(commands: Any) -> None:
    parser = add_command(
        commands,
        sample,
        "print one sample as the old widsindex did ('show' shows more)",
        ["widsindex sample train.json 42", "widsindex sample train.json 42 --cat .jpg > 42.jpg"],
    )
    parser.add_argument("filename", metavar="SPEC")
    parser.add_argument("index", nargs="?", metavar="INDEX", help="the first one by default")
    parser.set_defaults(late="index")
    parser.add_argument("-p", "--python", action="store_true", help="same as --raw")
    parser.add_argument("-r", "--raw", action="store_true", help="do not decode the fields")
    parser.add_argument("-c", "--cat", metavar="EXT", help="write the bytes of a field")
    parser.add_argument("-w", "--width", type=int, default=250, help="columns (%(default)s)")
    add_rules(parser)
