"""The logger of the library: the standard logger named "wids"."""

import logging
import os

__all__ = ["logger", "show_if_verbose"]

logger = logging.getLogger("wids")
logger.addHandler(logging.NullHandler())


def show_if_verbose() -> None:
    """Show the library's log lines on standard error if `WIDS_VERBOSE` is set.

    A handler that the program has set up is kept.
    """
    # Read at each call, because programs may set it after they have imported the library.
    wanted = os.environ.get("WIDS_VERBOSE", "0") not in {"", "0"}
    if wanted and all(isinstance(handler, logging.NullHandler) for handler in logger.handlers):
        logger.addHandler(logging.StreamHandler())
        logger.setLevel(logging.INFO)
