"""Declaration, output and exit codes of commands."""

from __future__ import annotations

import argparse
import json
import re
import sys
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TextIO

from wids.base.files import named_write_errors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = [
    "DONE",
    "FAULTY",
    "Arguments",
    "add_cache_dir",
    "add_command",
    "add_json",
    "add_rules",
    "add_sample_arguments",
    "add_strict",
    "add_workers",
    "complain",
    "complain_of",
    "flush_output",
    "list_omissions",
    "message_of",
    "nbytes_given",
    "note",
    "out",
    "pair_given",
    "positive",
    "print_json",
    "rules_given",
    "standard_output",
]

Arguments = argparse.Namespace

DONE, FAULTY = 0, 1  # exit codes; 2 is argparse's

# Powers of ten, as disks and clouds are sold and `ls --si` counts.
_UNITS = {"": 1, "k": 1000, "M": 1000**2, "G": 1000**3, "T": 1000**4}


def add_command(
    commands: Any,
    run: Callable[[Arguments], int],
    text: str,
    examples: Iterable[str],
) -> Any:
    """Declare a subcommand.

    Args:
        commands: What `add_subparsers` returned.
        run: The function that runs it; it has the command's name.
        text: What it does, in a phrase.
        examples: Command lines that the help shows.

    Returns:
        Its parser, for the arguments.
    """
    parser = commands.add_parser(
        run.__name__.rstrip("_"),  # `import_` is no keyword
        help=text,
        description=f"{text[0].upper()}{text[1:]}.",
        epilog="\n  ".join(["examples:", *examples]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=run)
    return parser


def add_cache_dir(parser: Any) -> None:
    """Declare the option that names the cache folder."""
    parser.add_argument("--cache-dir", metavar="DIR", help="folder for fetched shards")


def add_sample_arguments(parser: Any) -> None:
    """Declare the arguments that name one sample of a dataset."""
    parser.add_argument("spec", metavar="SPEC")
    parser.add_argument(
        "sample",
        metavar="INDEX|KEY",
        help="index of the sample, where a negative one counts from the end, or its key; 139 is an "
        "index, 000139 a key",
    )


def add_json(parser: Any) -> None:
    """Declare the option that makes a command print JSON."""
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")


def add_workers(parser: Any) -> None:
    """Declare the options of a command that reads many shards in parallel."""
    parser.add_argument(
        "--workers", type=positive, metavar="N", help="number of processes (one per core)"
    )
    add_cache_dir(parser)


def add_rules(parser: Any) -> None:
    """Declare the options of a command that reads shards: how members become samples."""
    parser.add_argument(
        "--grouping",
        choices=["adjacent", "shard"],
        help="shard: members of a sample may be anywhere in a tar (by default as in the spec)",
    )
    parser.add_argument(
        "--key-rule",
        choices=["first_dot", "last_dot"],
        help="the dot between key and extension (by default as in the spec)",
    )
    parser.add_argument(
        "--concatenated",
        action="store_true",
        default=None,
        help="also read archives that follow the first one in a tar",
    )


def add_strict(parser: Any) -> None:
    """Declare the option by which a command fails if its copy would lose data."""
    parser.add_argument("--strict", action="store_true", help="fail if anything would be left out")


def list_omissions(lines: Iterable[str]) -> None:
    """List what a copy has left out, as `Omissions.lines` returns it."""
    for line in lines:
        complain(f"left out: {line}")


def rules_given(args: Arguments) -> dict[str, Any]:
    """Return the rules that were given: arguments of a dataset, or top-level keys of a spec."""
    names = ("grouping", "key_rule", "concatenated")
    return {name: value for name in names if (value := getattr(args, name)) is not None}


def positive(text: str) -> int:
    """Parse a whole number of at least 1."""
    # `int` alone would take "1_000", " 7" and Arabic digits, which are slips more likely than not.
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number, >= 1, got {text!r}")
    return int(text)


def pair_given(text: str, what: str) -> tuple[str, str]:
    """Parse NAME=VALUE; `what` is the option and its form, for the message."""
    name, equals, value = text.partition("=")
    if not equals or not name or not value:
        raise ValueError(f"expected {what}, got {text!r}")
    return name, value


def nbytes_given(text: str) -> int:
    """Parse a number of bytes, such as 1000 or 1.5G."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kKMGT]?)B?", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"expected bytes such as 500M or 1G, got {text!r}")
    return int(float(match[1]) * _UNITS[match[2].replace("K", "k")])


def out(lines: str | Iterable[str]) -> None:
    """Print one line or several on standard output."""
    with named_write_errors("standard output"):
        standard_output().writelines(
            f"{line}\n" for line in ([lines] if isinstance(lines, str) else lines)
        )


def flush_output() -> None:
    """Flush standard output.

    Raises:
        OSError: It leads to a full disk.
    """
    if sys.stdout is not None:  # None if the shell closed it; not every command prints
        with named_write_errors("standard output"):
            sys.stdout.flush()


def standard_output() -> TextIO:
    """Return standard output.

    Raises:
        OSError: The shell closed it, so that what a program waits for would be lost.
    """
    if sys.stdout is None:
        raise OSError("standard output is closed; send it to a file, a pipe or /dev/null")
    return sys.stdout


def print_json(value: Any) -> None:
    """Print a value as JSON on standard output."""
    out(json.dumps(value, indent=2, default=_json_value))


def _json_value(value: Any) -> Any:
    """Return what stands in JSON for a value of an answer of SQL that JSON has not."""
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    return str(value)  # dates


def note(message: str) -> None:
    """Print one line on standard error, with control characters escaped."""
    from wids.base.text import clean
    from wids.base.urls import hide_credentials

    # Standard error ends in the logs of jobs, and messages of other libraries quote whole URLs.
    sys.stderr.write(f"{clean(hide_credentials(message))}\n")


def complain(message: str) -> None:
    """Print one line about an error on standard error."""
    note(f"wids: {message}")


def complain_of(name: str, what: str, message: str) -> None:
    """Print one line about a shard or another part that failed, which names it once.

    Args:
        name: Its location, with which its message may begin, too.
        what: What became of it, such as "failed".
        message: The reason.
    """
    from wids.base.urls import display_url

    for said in (name, display_url(name)):
        message = message.removeprefix(f"{said}: ")
    complain(f"{display_url(name)} {what}: {message}")


def message_of(error: BaseException) -> str:
    r"""Format an error as one line.

    >>> message_of(KeyError("no such key")), message_of(ValueError("two\nlines"))
    ('no such key', 'two lines')
    >>> message_of(FileNotFoundError(2, "No such file or directory", "a.json"))
    'a.json: No such file or directory'
    """
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{error.filename}: {error.strerror}"  # without number and quotes
    # A KeyError's text is its argument in quotes.
    text = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
    return " ".join(text.split()) or type(error).__name__
