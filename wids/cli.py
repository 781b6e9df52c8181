"""Command line `wids`, also called `widsindex` and `python -m wids`.

Each command is one function from its arguments to an exit code: 0 for success, 1 for faulty data
(the message states the fault), 2 for wrong arguments (from argparse). Results go to standard
output, everything else to standard error. Large modules are imported where they are used, so that
`wids --help` is fast.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import wids
from wids.commands.browse import add_browse
from wids.commands.checks import add_cache, add_check, add_order
from wids.commands.choose import add_select
from wids.commands.copy import add_export, add_import, add_map, add_reshard
from wids.commands.look import add_cat, add_info, add_ls, add_show, add_sql
from wids.commands.make import add_create, add_merge
from wids.commands.terminal import DONE, FAULTY, Arguments, complain, flush_output, message_of, note
from wids.errors import WidsError

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

__all__ = ["main"]

_WRONG_ARGUMENTS = 2  # as argparse exits
_INTERRUPTED = 130  # what a shell reports for Ctrl-C

# Commands of earlier versions, and where they went.
_GONE = {
    "verify": "use 'wids check --digests SPEC'",
    "diff": "compare what 'wids sql SPEC \"select key from samples\" --csv' prints of both",
    "repair": "use 'wids check SHARD --repair NEW'",
    "stats": "use 'wids info SPEC --stats', and 'wids sql' for counts of values",
    "pack": "use 'wids export SPEC NAME.wpack'",
    "sample": "use 'wids show SPEC INDEX', and 'wids cat SPEC INDEX .EXT' for the bytes of a field",
    "update": "edit 'name', 'info' and 'base' at the top of the spec, which is JSON",
    "card": "Croissant cards are no longer written; mlcroissant makes them",
}

# What people use each day first, as `--help` lists them.
_DAILY = (
    add_create,
    add_info,
    add_show,
    add_cat,
    add_check,
    add_select,
    add_reshard,
    add_browse,
)
_FURTHER = (
    add_sql,
    add_ls,
    add_merge,
    add_import,
    add_export,
    add_map,
    add_order,
    add_cache,
)
DESCRIPTION = """\
Random access to the samples of WebDataset tar shards.

Wherever a command takes SPEC, it takes a JSON shard-spec (path or URL), a single .tar, a folder
of shards, or a pattern such as 'train-{000..146}.tar' (quoted, so that the shell leaves it alone).
Commands that read samples take what `wids select` saved, too.
"""
EXAMPLES = """\
examples:
  wids create 'train-{000..146}.tar' -o train.json   index shards: count, size, digest
  wids info train.json                               how many samples, how large, where
  wids ls train.json 0:10                            keys and fields of the first ten samples
  wids show train.json 42                            one sample, its image drawn in the terminal
  wids browse train.json                             all of it, in a web browser
  wids cat train.json 42 .jpg > 42.jpg               one field as it is
  wids check train.json                              is everything as the spec says?
  wids info train.json --stats                       which fields there are, and how large

'wids COMMAND --help' explains a command, with examples.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        argv: The arguments after the program's name; those of the process by default.

    Returns:
        The exit code.
    """
    parser, commands = _make_parser()
    _check_command(parser, commands, sys.argv[1:] if argv is None else argv)
    args = _parse(parser, argv)
    if args.command is None:
        parser.print_help(sys.stderr)
        parser.exit(_WRONG_ARGUMENTS)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Under LANG=C, letters of a caption may have no encoding. They are escaped, because an
        # error would cut off the output.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        with warnings.catch_warnings():
            # Without the line of code that Python adds, which does not help the user of a command.
            warnings.showwarning = lambda message, *_, **__: complain(str(message))
            code: int = args.run(args)
        flush_output()
    except BrokenPipeError:  # the reader has ended, as in `wids ls ... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except KeyboardInterrupt as error:
        _print_notes(error)
        return _INTERRUPTED
    except (WidsError, OSError, ValueError, LookupError, ImportError) as error:
        complain(message_of(error))
        _print_notes(error)
        return FAULTY
    return code


def _print_notes(error: BaseException) -> None:
    """Print what an error notes, such as how to go on."""
    for each in getattr(error, "__notes__", ()):
        note(each)


def _check_command(
    parser: argparse.ArgumentParser, commands: Collection[str], argv: Sequence[str]
) -> None:
    """Exit with the name of the command that was probably meant, if there is none of that name."""
    # What precedes the command are options without values.
    name = next((word for word in argv if not word.startswith("-")), None)
    if name is None or name in commands:
        return
    if name in _GONE:
        parser.error(f"the command {name!r} is gone: {_GONE[name]}")
    from difflib import get_close_matches  # imported here: it is rarely needed

    for near in get_close_matches(name, commands, 1):  # else argparse lists all of them
        parser.error(f"there is no command {name!r}; did you mean {near!r}?")


def _parse(parser: argparse.ArgumentParser, argv: Sequence[str] | None) -> Arguments:
    """Parse the arguments; the optional last positional may follow options or begin with `-`.

    argparse treats an optional positional as missing once an option comes before it, and takes
    `-5:` for an option.
    """
    args, rest = parser.parse_known_args(argv)
    # Only if the command has such an argument and argparse has not found it.
    late = getattr(args, "late", None)
    if len(rest) == 1 and late is not None and getattr(args, late) is None:
        setattr(args, late, rest.pop())
    if rest:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    return args


def _make_parser() -> tuple[argparse.ArgumentParser, Collection[str]]:
    """Return the parser, and the names of its commands."""
    started_as = Path(sys.argv[0]).name
    parser = argparse.ArgumentParser(
        # Help and usage show a command that the user can type, which `__main__.py` is not.
        prog="python -m wids" if started_as == "__main__.py" else None,
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"wids {wids.__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    for add in (*_DAILY, *_FURTHER):
        add(commands)
    return parser, commands.choices
