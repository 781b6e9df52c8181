"""Command `wids browse`: a dataset in a web browser."""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import threading
import time
import warnings
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import wids
from wids.base.urls import hide_credentials
from wids.commands.terminal import (
    DONE,
    Arguments,
    add_command,
    add_rules,
    note,
    out,
    rules_given,
)
from wids.errors import WidsWarning

if TYPE_CHECKING:
    from collections.abc import Iterator

    from wids.browse.fieldreader import Uncounted

__all__ = ["add_browse"]

_THREADS = ("AnyIO worker thread", "wids-")  # those that answer, draw and fetch
# Longer than an answer takes that is under way, shorter than anybody waits after Ctrl-C.
_JOIN_SECONDS = 1.0
_MOST_ALIKE = 3


def add_browse(commands: Any) -> None:
    """Declare the command."""
    parser = add_command(
        commands,
        browse,
        "show a dataset in a web browser: samples, fields, shards, statistics",
        [
            "wids browse train.json",
            "wids browse train-000.tar --index 42",
            "wids browse https://host/data/train.json   # samples are read by byte range",
        ],
    )
    parser.add_argument("spec", metavar="SPEC", help="the dataset")
    parser.add_argument("--index", type=int, metavar="N", help="open this sample first")
    parser.add_argument(
        "--port",
        type=_port,
        metavar="N",
        help="port; by default 8765, or a free one if that is taken; 0: any free port",
    )
    parser.add_argument(
        "--host",
        default="127.0.0.1",
        metavar="HOST",
        help="address to listen on (%(default)s)",
    )
    parser.add_argument(
        "--no-token",
        action="store_true",
        help="answer whoever reaches the port, other users of this machine too; by default the "
        "printed URL holds a secret that is asked for",
    )
    parser.add_argument(
        "--class-names", metavar="FILE", help="file with class names: JSON, or one per line"
    )
    parser.add_argument("--cache-dir", metavar="DIR", help="folder for fetched shards and indexes")
    parser.add_argument(
        "--no-open",
        "--no-browser",
        action="store_true",
        help="print the URL and do not open a browser",
    )
    add_rules(parser)
    parser.add_argument("--json", action="store_true", help="print only the URL, as JSON")


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) >= 1 << 16:
        raise argparse.ArgumentTypeError(f"expected 0 to 65535, got {text!r}")
    return int(text)


def browse(args: Arguments) -> int:
    """Serve the page of a dataset until Ctrl-C."""
    from wids.base.arguments import checked_position
    from wids.base.optional import load

    # Said before the dataset is opened, which may take a while.
    load("starlette", "browse")
    load("uvicorn", "browse")
    from wids.browse.fieldreader import FieldReader, JoinedFields
    from wids.browse.handlers import ApiHandlers
    from wids.browse.server import BrowseServer
    from wids.log import logger
    from wids.specs.classnames import parse_class_names
    from wids.views.opening import is_joined, shards_and_rows
    from wids.views.plan import datasets_in

    names = parse_class_names(Path(args.class_names)) if args.class_names else None
    with _warnings_printed(quiet=args.json):
        uncounted: Uncounted = {}
        opened = wids.open(
            args.spec,
            transformations="memoryview",
            remote="range",
            cache_dir=args.cache_dir,
            on_uncounted=uncounted.__setitem__,
            **rules_given(args),
        )
        dataset, chosen = shards_and_rows(
            opened, leftmost=True, transformations="memoryview", remote="range"
        )
        joined = JoinedFields(opened, chosen) if is_joined(opened) else None
        if uncounted and not len(dataset):
            raise next(iter(uncounted.values()))
        for error in uncounted.values():
            logger.warning("left out, as its samples cannot be counted: %s", error)
        with dataset:
            first = None if args.index is None else checked_position(args.index, len(dataset))
            reader = FieldReader(dataset, uncounted, joined=joined)
            if names is not None:
                for shards in (dataset, *datasets_in(opened)):
                    shards.class_names = names
            handlers = ApiHandlers(reader, dataset.dataset_name, chosen, source=args.spec)
            try:
                handlers.decoders.start()
                server = BrowseServer(handlers, args.host, args.port, token=not args.no_token)
                url = server.url
                if first is not None:
                    url += f"{'&' if '?' in url else '?'}i={first}"
                _announce(args, url, server.port)
                server.run()
            finally:
                handlers.close()
            end = time.monotonic() + _JOIN_SECONDS
            ours = [each for each in threading.enumerate() if each.name.startswith(_THREADS)]
            for each in ours:
                each.join(max(0.0, end - time.monotonic()))
            if any(each.is_alive() and not each.daemon for each in ours):
                sys.stdout.flush()
                os._exit(DONE)
    return DONE


class _WarningPrinter(logging.Handler):
    """Log handler that prints warnings on standard error, but only the first similar ones."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._counts: Counter[str] = Counter()

    def emit(self, record: logging.LogRecord) -> None:
        """Print a warning, unless many similar ones were printed."""
        self._counts[record.msg] += 1
        count = self._counts[record.msg]
        if count <= _MOST_ALIKE:
            note(f"wids: {hide_credentials(record.getMessage())}")
        if count == _MOST_ALIKE:
            note("wids: more of this kind is not repeated")


@contextmanager
def _warnings_printed(*, quiet: bool) -> Iterator[None]:
    """Context manager that prints only the warnings of the library on standard error."""
    from wids.log import logger

    def show(message: Warning | str, category: type[Warning], *_: object, **__: object) -> None:
        # Pillow warns of damaged files, once for each tile: the page says it at the picture.
        if issubclass(category, WidsWarning):
            logger.warning("%s", message)

    teller = _WarningPrinter()
    shows = any(not isinstance(handler, logging.NullHandler) for handler in logger.handlers)
    if not (quiet or shows):
        logger.addHandler(teller)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = show
            yield
    finally:
        logger.removeHandler(teller)


def _announce(args: Arguments, url: str, port: int) -> None:
    if args.json:
        out(json.dumps({"url": url}))
        sys.stdout.flush()
        return
    out(url)
    sys.stdout.flush()
    if "SSH_CONNECTION" in os.environ and args.host == "127.0.0.1":
        host = os.uname().nodename
        note(f"from your own machine: ssh -L {port}:localhost:{port} {host}, then open the URL")
    note("Ctrl-C ends it")
    if not args.no_open and sys.stdout.isatty() and _has_display():
        import webbrowser

        webbrowser.open(url)


def _has_display() -> bool:
    """Return whether this machine has a display on which a browser can open."""
    if "SSH_CONNECTION" in os.environ:
        return False
    return sys.platform == "darwin" or bool({"DISPLAY", "WAYLAND_DISPLAY"} & os.environ.keys())
