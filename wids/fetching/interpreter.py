"""How to start an interpreter of our own that finds this library, and nothing of a stranger's."""

from __future__ import annotations

import os
import sys
from pathlib import Path

__all__ = ["fresh_python"]


def fresh_python(*arguments: str) -> tuple[list[str], dict[str, str]]:
    """Return command and environment of a new interpreter with the modules of this process.

    Args:
        arguments: What it is to run, such as `"-m", "wids"`.

    >>> command, environment = fresh_python("-c", "import wids")
    >>> command[1:], "PYTHONPATH" in environment
    (['-P', '-c', 'import wids'], True)
    """
    # It must find this very package, however it came on the path of this process, and no other
    # modules: -P leaves out the folder it happens to be in, where data may lie that somebody else
    # made.
    paths = os.pathsep.join(path or str(Path.cwd()) for path in sys.path)
    return [sys.executable, "-P", *arguments], {**os.environ, "PYTHONPATH": paths}
