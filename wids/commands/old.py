"""The commands of wids 0.1.11 that scripts still call: `widsindex update` and `sample`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import wids
from wids.commands.look import write_field
from wids.commands.terminal import DONE, Arguments, add_command, add_rules, note, out, rules_given

__all__ = ["add_sample", "add_update"]


def update(args: Arguments) -> int:
    """Change the name, base or folders of a spec."""
    from wids.base.files import refuse_url
    from wids.specs.specedit import edit_spec
    from wids.views.opening import refuse_view

    refuse_url(Path(args.filename))
    wanted = {"name": args.name, "info": args.info, "base": args.base, "keep": args.keep}
    changes = {key: value for key, value in wanted.items() if value is not None}
    if Path(args.filename).is_file():
        refuse_view(
            args.filename,
            "only a spec of shards can be changed so; change the spec that it names as its base, "
            "or save the view anew (wids select)",
        )
    document = edit_spec(
        Path(args.filename),
        changes,
        folder="" if args.nodir else args.dir,
        rebased=args.rebase,
    )
    if document is None:
        note(f"{args.filename}: left as it is, no option asks for a change; see update --help")
        return DONE
    base = f", the base is now {document['base'] or 'its own folder'}" if args.rebase else ""
    note(f"{args.filename}: written{base}; the old one is {args.filename}.bak")
    return DONE


def add_update(commands: Any) -> None:
    """Declare the command."""
    parser = add_command(
        commands,
        update,
        "change a spec in place: name, info, base, folders",
        [
            "widsindex update train.json -n imagenet -b https://host/shards",
            "widsindex update train.json --rebase",
        ],
        listed=False,
    )
    parser.add_argument("filename", metavar="SPEC")
    parser.add_argument("-n", "--name", help="set the name")
    parser.add_argument("-i", "--info", help="set the description")
    bases = parser.add_mutually_exclusive_group()
    bases.add_argument("-b", "--base", help="set the folder or URL of relative URLs")
    bases.add_argument(
        "-B",
        "--rebase",
        action="store_true",
        help="set the base to the common folder of the shards",
    )
    folders = parser.add_mutually_exclusive_group()
    folders.add_argument(
        "-d", "--dir", help="replace the folders of all shards by this folder or URL"
    )
    folders.add_argument(
        "-D", "--nodir", action="store_true", help="remove the folders of all shards"
    )
    keeps = parser.add_mutually_exclusive_group()
    keeps.add_argument("-k", "--keep", action="store_true", default=None, help="set the keep flag")
    keeps.add_argument(
        "-K",
        "--nokeep",
        action="store_false",
        dest="keep",
        default=None,
        help="clear the keep flag",
    )


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
        write_field(found, args.cat)
        return DONE
    found["__shard__"] = display_url(str(found["__shard__"]))
    names = {name: clean(name) for name in found}
    name_width = max(map(len, names.values()))
    for name, value in sorted(found.items()):
        out(f"{names[name]:<{name_width}} {repr(value)[: args.width - name_width - 1]}")
    return DONE


def add_sample(commands: Any) -> None:
    """Declare the command."""
    parser = add_command(
        commands,
        sample,
        "print one sample as the old widsindex did ('show' shows more)",
        ["widsindex sample train.json 42", "widsindex sample train.json 42 --cat .jpg > 42.jpg"],
        listed=False,
    )
    parser.add_argument("filename", metavar="SPEC")
    parser.add_argument("index", nargs="?", metavar="INDEX", help="the first one by default")
    parser.set_defaults(late="index")
    parser.add_argument("-p", "--python", action="store_true", help="same as --raw")
    parser.add_argument("-r", "--raw", action="store_true", help="do not decode the fields")
    parser.add_argument("-c", "--cat", metavar="EXT", help="write the bytes of a field")
    parser.add_argument("-w", "--width", type=int, default=250, help="columns (%(default)s)")
    add_rules(parser)
