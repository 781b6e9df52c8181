"""Instances of DuckDB: their settings, and what happens to them in threads and forked processes.

DuckDB ends its threads when its last connection goes. A forked process has no such threads, and a
connection that it inherited cannot go there without a crash, nor be used. So a process opens an
instance of its own, and what it inherited stays, unused, until the process ends.

A fork waits for the queries of other threads: a lock that is held within DuckDB or the C++ library
while a process is forked is held forever in the child.
"""

from __future__ import annotations

import ctypes
import os
import secrets
import tempfile
import threading
import weakref
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wids.base.optional import load
from wids.base.system import num_cores
from wids.catalogue.structures import literal, quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

__all__ = ["FORKS_WAIT", "Instance", "keep_table", "lock_down"]

# The connections of this process, so that a forked one can keep them.
_OPEN: list[Any] = []


def _keep_inherited() -> None:
    for connection in _OPEN:
        # Else the end of the interpreter, which empties all modules, would let it go.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))
    _OPEN.clear()


class _ForksWait:
    """Context in which a thread uses DuckDB, and for whose end the forks of other threads wait.

    Who would begin to use it waits for a fork that waits, so that the fork comes soon. It may be
    entered again by the same thread, since finalizers run anywhere.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._users: Counter[int] = Counter()  # how many times each thread is in the context
        self._forking: int | None = None  # the thread that forks, or waits to

    def __enter__(self) -> None:
        own = threading.get_ident()
        with self._changed:
            self._changed.wait_for(lambda: own in self._users or self._forking in (None, own))
            self._users[own] += 1

    def __exit__(self, *_: object) -> None:
        own = threading.get_ident()
        with self._changed:
            self._users[own] -= 1
            if not self._users[own]:
                del self._users[own]
            self._changed.notify_all()

    def begin_fork(self) -> None:
        """Wait until no other thread uses DuckDB, and let none begin before `end_fork`."""
        own = threading.get_ident()
        self._changed.acquire()
        self._changed.wait_for(lambda: self._forking is None)
        self._forking = own
        self._changed.wait_for(lambda: not self._users.keys() - {own})

    def end_fork(self) -> None:
        """Let threads use DuckDB again, in the parent and in the child."""
        self._forking = None
        self._changed.notify_all()
        self._changed.release()


FORKS_WAIT = _ForksWait()

os.register_at_fork(
    before=FORKS_WAIT.begin_fork,
    after_in_parent=FORKS_WAIT.end_fork,
    after_in_child=FORKS_WAIT.end_fork,
)
os.register_at_fork(after_in_child=_keep_inherited)


def _close(connection: Any, pid: int) -> None:
    if pid == os.getpid():
        _OPEN[:] = [each for each in _OPEN if each is not connection]
        with FORKS_WAIT:
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

    @contextmanager
    def asked(self) -> Iterator[Any]:
        """Context with a connection to the instance, for one query in one thread."""
        with FORKS_WAIT:
            cursor = self.cursor()
            try:
                yield cursor
            finally:
                cursor.close()

    def cursor(self) -> Any:
        """Return a connection to the instance, for the one thread of a process."""
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
