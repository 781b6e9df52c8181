"""Commands that show a dataset: `wids info`, `ls`, `show`, `cat` and `sql`."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Any

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
    out,
    print_json,
    rules_given,
    standard_output,
)

__all__ = ["add_cat", "add_info", "add_ls", "add_show", "add_sql"]


def info(args: Arguments) -> int:
    """Print the totals of datasets, and on request those of fields."""
    from wids.base.urls import hide_credentials
    from wids.tools.facts import (
        dataset_facts,
        field_sizes,
        size_lines,
        spec_lines,
        spec_table_row,
    )

    rules = rules_given(args)
    if args.table and args.stats:
        raise ValueError("-t: has no room for --stats; leave it out")
    found = []
    for source in args.filenames:
        facts = dataset_facts(source, args.cache_dir, rules)
        if args.stats:
            with wids.open(source, cache_dir=args.cache_dir, **rules) as samples:
                facts["sizes"] = field_sizes(samples)
        found.append(facts)
    if args.json:
        print_json(found[0] if len(found) == 1 else found)
    elif args.table:
        out("file\tname\tnbytes\tnsamples\tbase\tlast\tdatasets")
        out(map(spec_table_row, found))
    else:
        for facts in found:
            lines = [f"filename: {facts['source']}", *spec_lines(facts), ""]
            lines += [*size_lines(facts["sizes"]), ""] if args.stats else []
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
        found = [
            {"index": index, "key": dataset.key_at(index), "fields": dataset.field_sizes(index)}
            for index in indexes
        ]
    if args.json:
        print_json(found)
        return DONE
    lines: list[tuple[Any, ...]] = [("index", "key", "fields")]
    for row in found:
        fields = (f"{name} {format_nbytes(nbytes)}" for name, nbytes in row["fields"].items())
        lines.append((row["index"], row["key"], ", ".join(fields)))
    out(table(lines, right=[0]))
    return DONE


def _parse_range(text: str, total: int) -> range:
    """Parse an index or a range, such as `5`, `5:10` or `-10:`; note if it reaches beyond."""
    from wids.base.arguments import checked_position

    if re.fullmatch(r"-?\d+", text) is not None:
        index = checked_position(int(text), total)
        return range(index, index + 1)
    match = re.fullmatch(r"(-?\d+)?:(-?\d+)?", text)
    if match is None:
        raise ValueError(f"expected an index or a range [first, last) such as 0:10, got {text!r}")
    bounds = [None if each is None else int(each) for each in match.groups()]
    if any(bound is not None and not -total <= bound <= total for bound in bounds):
        note(f"range {text}: there are only {total} samples; those within the range are taken")
    return range(*slice(*bounds).indices(total))


def show(args: Arguments) -> int:
    """Show one sample: fields, sizes, values, images."""
    from wids.codecs.formats import is_class
    from wids.commands.show import (
        describe_sample,
        draw_pictures,
        sample_lines,
        screen_of,
    )
    from wids.display.pixels import names_labels

    output, (columns, rows) = standard_output(), shutil.get_terminal_size((100, 40))
    screen = screen_of(args.pictures, output, os.environ, columns, rows)
    with _open_raw(args) as dataset:
        found = _chosen(dataset, args.sample)
        # Looking for names may ask a server, so only a sample with classes waits for that.
        fields = [name for name in found if name.startswith(".")]
        has_class = any(map(is_class, fields))
        has_labels = screen is not None and any(map(names_labels, fields))
        names = dataset.class_names if has_class or has_labels else None
        description = describe_sample(found, names)
        total = len(dataset)
    if args.json:
        print_json(description)
        return DONE
    out(sample_lines(description, total, columns if output.isatty() else 1000))
    if screen is not None:
        stored = {name: value for name, value in found.items() if value is not None}
        out(draw_pictures(stored, screen, names))
    return DONE


def cat(args: Arguments) -> int:
    """Write the bytes of one field to standard output."""
    with _open_raw(args) as dataset:
        _write_field(_chosen(dataset, args.sample), args.field)
    return DONE


def _chosen(dataset: Any, sample: str) -> dict[str, Any]:
    """Return the sample at an index, or that with a key; keys are written with leading zeros."""
    is_index = re.fullmatch(r"-?(0|[1-9][0-9]*)", sample) is not None
    found: dict[str, Any] = dataset[int(sample)] if is_index else dataset.get(sample)
    return found


def _write_field(sample: dict[str, Any], field: str) -> None:
    """Write one field of a sample of bytes to standard output.

    Raises:
        LookupError: The sample has no such field, or no value of it.
    """
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


def _open_raw(args: Arguments) -> Any:
    # A look at one sample of a remote shard that has a sidecar fetches that sample, not gigabytes.
    # Bytes, as `cat` must write what is stored, and `show` knows kinds by itself.
    return wids.open(args.spec, transformations="bytes", remote="range", **rules_given(args))


def add_info(commands: Any) -> None:
    """Declare the command."""
    parser = add_command(
        commands,
        info,
        "sum up a dataset: samples, bytes, shards",
        [
            "wids info train.json",
            "wids info *.json -t",
            "wids info train.json --stats",
        ],
    )
    parser.add_argument("filenames", metavar="SPEC", nargs="+", help="specs, shards or patterns")
    parser.add_argument(
        "-t", "--table", action="store_true", help="print one row per spec, separated by tabs"
    )
    parser.add_argument(
        "--stats", action="store_true", help="add the number and the sizes of each field"
    )
    add_cache_dir(parser)
    add_rules(parser)
    add_json(parser)


def add_ls(commands: Any) -> None:
    """Declare the command."""
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


def add_show(commands: Any) -> None:
    """Declare the command."""
    parser = add_command(
        commands,
        show,
        "show one sample: fields, sizes, values, images",
        [
            "wids show train.json 42",
            "wids show train-000.tar -1",
            "wids show train.json n01440764_18",
        ],
    )
    add_sample_arguments(parser)
    parser.add_argument(
        "--pictures",
        choices=("auto", "kitty", "blocks", "none"),
        default="auto",
        help="how images are drawn: by kitty's protocol or with half blocks; by default as the "
        "terminal's variables say that it can",
    )
    add_rules(parser)
    add_json(parser)


def add_cat(commands: Any) -> None:
    """Declare the command."""
    parser = add_command(
        commands,
        cat,
        "write one field of one sample to standard output, as it is",
        ["wids cat train.json 42 .jpg > 42.jpg"],
    )
    add_sample_arguments(parser)
    parser.add_argument("field", metavar="FIELD", help="its extension, such as .jpg")
    add_rules(parser)


def add_sql(commands: Any) -> None:
    """Declare the command."""
    parser = add_command(
        commands,
        sql,
        "ask in SQL: the table `samples` has a row for each sample",
        [
            "wids sql train.json 'select cls, count(*) from samples group by cls order by 2 desc'",
            "wids sql train.json \"select key from samples where json.lang = 'de'\" --csv",
            "wids sql train.json 'select key, json.caption from samples' -o captions.parquet",
            "wids sql train.json 'describe samples'",
        ],
    )
    parser.add_argument("spec", metavar="SPEC")
    parser.add_argument("query", metavar="QUERY", help="one SELECT, as DuckDB takes it")
    form = parser.add_mutually_exclusive_group()
    add_json(form)
    form.add_argument("--csv", action="store_true", help="print CSV")
    form.add_argument(
        "-o", "--output", metavar="FILE", help="write it to a .csv, .jsonl or .parquet table"
    )
    add_cache_dir(parser)
    add_rules(parser)


def sql(args: Arguments) -> int:
    """Print the answer to a query, or write it to a table."""
    if args.output is not None:
        from wids.tools.exporters import check_table_name, write_table
        from wids.views.joining import refuse_joined

        check_table_name(Path(args.output))
    with wids.open(args.spec, cache_dir=args.cache_dir, **rules_given(args)) as samples:
        if args.output is not None:
            refuse_joined(Path(args.output), samples)
        found = samples.sql(args.query)
    if args.output is not None:
        write_table(Path(args.output), found.arrow())
        note(f"{args.output}: {len(found)} rows")
    elif args.json:
        print_json([dict(zip(found.columns, row, strict=True)) for row in found])
    elif args.csv:
        import csv  # imported here: it is rarely needed

        writer = csv.writer(standard_output(), lineterminator="\n")
        writer.writerow(found.columns)
        writer.writerows(found)
    else:
        out(found.lines())
    return DONE
