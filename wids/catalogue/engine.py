"""Instances of DuckDB: their settings, and what happens to them in threads and forked processes.

DuckDB ends its threads when its last connection goes. A forked process has no such threads, and a
connection that it inherited cannot go there without a crash, nor be used. So a process opens an
instance of its own, and what it inherited stays, unused, until the process ends.
"""

from __future__ import annotations

import ctypes
import os
import secrets
import tempfile
import threading
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wids.base.optional import load
from wids.base.system import num_cores
from wids.catalogue.structures import literal, quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["Instance", "keep_table", "lock_down"]

# The connections of this process, so that a forked one can keep them.
_OPEN: list[Any] = []


def _keep_inherited() -> None:
    for connection in _OPEN:
        # Else the end of the interpreter, which empties all modules, would let it go.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))
    _OPEN.clear()


os.register_at_fork(after_in_child=_keep_inherited)


def _close(connection: Any, pid: int) -> None:
    if pid == os.getpid():
        _OPEN[:] = [each for each in _OPEN if each is not connection]
        connection.close()


class Instance:
    """An instance of DuckDB in memory, opened when a process first asks.

    A copy in a forked process, and a pickled one, open another instance.

    Args:
        define: Function that defines tables and views on a connection, and locks it down.
        threads: Number of its threads; None for one per core.
    """

    def __init__(self, define: Callable[[Any], None], threads: int | None = None) -> None:
        self._define, self._threads = define, threads
        self._forget()

    def _forget(self) -> None:
        self._pid, self._lock = os.getpid(), threading.Lock()
        self._connection: Any = None
        self._end: Any = None

    def cursor(self) -> Any:
        """Return a connection to the instance, for one query in one thread."""
        if self._pid != os.getpid():
            self._forget()
        with self._lock:
            if self._connection is None:
                threads = self._threads or num_cores()
                config = {"threads": threads, "autoinstall_known_extensions": "false"}
                connection = load("duckdb", "sql").connect(":memory:", config=config)
                _OPEN.append(connection)
                self._end = weakref.finalize(self, _close, connection, os.getpid())
                try:
                    self._define(connection)
                except BaseException:
                    self._end()
                    raise
                self._connection = connection
            return self._connection.cursor()

    def close(self) -> None:
        """End the instance of this process; the next query opens another."""
        if self._pid == os.getpid() and self._end is not None:
            self._end()
            self._forget()

    def __getstate__(self) -> dict[str, Any]:
        return {"define": self._define, "threads": self._threads}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._define, self._threads = state["define"], state["threads"]
        self._forget()


def keep_table(connection: Any, name: str, table: Any) -> None:
    """Copy a table of Arrow into DuckDB, under a name."""
    connection.register("given", table)
    connection.execute(f"CREATE TABLE {quoted(name)} AS FROM given")
    connection.unregister("given")


def lock_down(connection: Any, paths: Iterable[str]) -> None:
    """Let queries read some files and nothing else, and change no setting.

    Args:
        connection: The connection.
        paths: The files.
    """
    # DuckDB makes this folder when it needs it, and removes it. Its default is in the working one.
    temporary = Path(tempfile.gettempdir()) / f"wids-sql-{secrets.token_hex(8)}"
    allowed = ", ".join(map(literal, paths))
    for name, value in {
        "temp_directory": literal(str(temporary)),
        "max_expression_depth": "100",
        "parquet_metadata_cache": "true",
        "allowed_paths": f"[{allowed}]",
        "enable_external_access": "false",
        "autoload_known_extensions": "false",
        "allow_community_extensions": "false",
        "python_enable_replacements": "false",
        "lock_configuration": "true",  # the last, since nothing can be set after it
    }.items():
        connection.execute(f"SET {name} = {value}")
