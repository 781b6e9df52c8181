"""Programs in Python, each in a fork of one process that has imported torch and the library.

A start of an interpreter that imports torch takes two seconds of a core, a fork some milliseconds.
To a program it is as an interpreter that was just started, apart from the modules that are loaded,
and OMP_NUM_THREADS, which is 1.
"""

import atexit
import json
import os
import pkgutil
import runpy
import selectors
import shlex
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
import types
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import IO, Any

__all__ = ["Program", "run_python", "run_ranks", "write_command"]

PRELOADED = (
    "torch.distributed",
    "torchdata.stateful_dataloader",
    "PIL.Image",
    "duckdb",
    "filelock",
    "numpy.ma",
    "orjson",
    "pandas",
    "platformdirs",
    "pyarrow.parquet",
    "requests",
    "wids",
)
TIMEOUT_SECONDS = 300.0


class Program:
    """A running program."""

    def __init__(
        self,
        *arguments: object,
        files: tuple[IO[Any], IO[Any], IO[Any]],
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        server: str | None = None,
    ) -> None:
        """Start it.

        Args:
            arguments: What follows `python` on a command line: `-c CODE`, `-m MODULE` or a path,
                and the program's own arguments.
            files: Its standard input, output and errors.
            cwd: The folder that it runs in.
            env: Variables beside those of this process.
            server: The socket of the process that forks; None for the one of this process.
        """
        request = {
            "arguments": [str(each) for each in arguments],
            "folder": str(cwd or Path.cwd()),
            "variables": {**os.environ, **(env or {})},
        }
        self._connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._connection.connect(server or _server())
        with tempfile.TemporaryFile() as text:  # a message has a bound, a file has none
            text.write(json.dumps(request).encode())
            text.flush()
            descriptors = [text.fileno(), *(each.fileno() for each in files)]
            socket.send_fds(self._connection, [b"run"], descriptors)
            self.pid = int(self._connection.recv(100))

    def wait(self) -> int:
        """Wait for its end; return its exit status, negative for a signal."""
        self._connection.settimeout(TIMEOUT_SECONDS)
        with self._connection:
            return int(self._connection.recv(100))


def run_python(
    *arguments: object,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    input: str = "",  # noqa: A002 (as for subprocess.run)
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, as `subprocess.run` does with `python` and these arguments."""
    with (
        tempfile.TemporaryFile("w+") as given,
        tempfile.TemporaryFile("w+") as output,
        tempfile.TemporaryFile("w+") as errors,
    ):
        given.write(input)
        given.seek(0)
        program = Program(*arguments, files=(given, output, errors), cwd=cwd, env=env)
        status = program.wait()
        output.seek(0)
        errors.seek(0)
        return subprocess.CompletedProcess(arguments, status, output.read(), errors.read())


def run_ranks(
    count: int,
    *arguments: object,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> str:
    """Run a program on several ranks as torchrun does, to a good end; return what they printed."""
    from torch.distributed import TCPStore

    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    job = {
        "WORLD_SIZE": str(count),
        "LOCAL_WORLD_SIZE": str(count),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(store.port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "GLOO_SOCKET_IFNAME": "lo",
        **(env or {}),
    }
    with (
        Path(os.devnull).open() as nothing,
        tempfile.TemporaryFile("w+") as output,
        tempfile.TemporaryFile("w+") as errors,
    ):
        ranks = [
            Program(
                *arguments,
                files=(nothing, output, errors),
                cwd=cwd,
                env={**job, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            )
            for rank in range(count)
        ]
        statuses = [rank.wait() for rank in ranks]
        output.seek(0)
        errors.seek(0)
        assert statuses == [0] * count, errors.read()[-3000:]
        return output.read()


def write_command(path: Path, *arguments: str) -> None:
    """Write a command for shells: `python` with these arguments and those given to the command."""
    words = [sys.executable, "-I", "-S", __file__, _server().removeprefix("\0"), *arguments]
    path.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
    path.chmod(0o755)


@cache
def _server() -> str:
    """Start the process that forks, which ends with this one; return the name of its socket."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind("")  # a name that the kernel chooses
    listener.listen(64)
    process = subprocess.Popen(
        [sys.executable, __file__, str(listener.fileno())],
        stdin=subprocess.PIPE,
        pass_fds=[listener.fileno()],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    atexit.register(process.communicate)  # the end of its input ends it
    name: bytes = listener.getsockname()
    listener.close()
    return name.decode()


def _serve(listener: socket.socket) -> list[int]:
    """Fork for each request, and report how the children end; return its files in a child."""
    running: dict[int, socket.socket] = {}
    with selectors.DefaultSelector() as selector:
        selector.register(listener, selectors.EVENT_READ)
        selector.register(sys.stdin, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is sys.stdin:
                    os._exit(0)
                if key.fileobj is not listener:
                    selector.unregister(key.fileobj)
                    os.close(key.fd)
                    status = os.waitstatus_to_exitcode(os.waitpid(key.data, 0)[1])
                    with running.pop(key.data) as connection:
                        connection.send(str(status).encode())
                    continue
                connection = listener.accept()[0]
                descriptors = socket.recv_fds(connection, 100, 4)[1]
                pid = os.fork()
                if pid == 0:
                    for each in (listener, connection, *running.values()):
                        each.close()
                    return descriptors
                for each in descriptors:
                    os.close(each)
                running[pid] = connection
                connection.send(str(pid).encode())
                selector.register(os.pidfd_open(pid), selectors.EVENT_READ, pid)


def _run(descriptors: list[int]) -> None:
    """Become the program of a request."""
    with os.fdopen(descriptors[0]) as text:
        text.seek(0)
        request = json.load(text)
    for number, descriptor in enumerate(descriptors[1:]):
        os.dup2(descriptor, number)
        os.close(descriptor)
    # As at a start, for files of another kind.
    sys.stdin = sys.__stdin__ = os.fdopen(0, closefd=False)
    sys.stdout = sys.__stdout__ = os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.__stderr__ = os.fdopen(2, "w", 1, errors="backslashreplace", closefd=False)
    os.environ.clear()
    os.environ.update(request["variables"])
    os.chdir(request["folder"])
    kind, *arguments = request["arguments"]
    if kind == "-m":
        sys.argv = arguments
        sys.path.insert(0, request["folder"])
        runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
        return
    module = sys.modules["__main__"] = types.ModuleType("__main__")
    if kind in ("-c", "-"):
        code = sys.stdin.read() if kind == "-" else arguments.pop(0)
        sys.argv = [kind, *arguments]
        sys.path.insert(0, "")
        exec(compile(code, "<string>", "exec"), module.__dict__)
    else:
        sys.argv = [kind, *arguments]
        sys.path.insert(0, str(Path(kind).parent))
        module.__file__ = kind
        exec(compile(Path(kind).read_bytes(), kind, "exec"), module.__dict__)


def _main(which: str, *arguments: str) -> None:
    if arguments:  # a command of `write_command`
        files = (sys.stdin, sys.stdout, sys.stderr)
        status = Program(*arguments, files=files, server=f"\0{which}").wait()
        sys.exit(status if status >= 0 else 128 - status)
    del sys.path[0]  # the folder of this file
    for name in PRELOADED:
        __import__(name)
    for each in pkgutil.walk_packages(sys.modules["wids"].__path__, "wids."):
        # Lightning is not among the requirements of the tests.
        if not each.name.endswith(("__main__", ".lightning")):
            __import__(each.name)
    descriptors = _serve(socket.socket(fileno=int(which)))
    status = 1
    try:
        _run(descriptors)
        status = 0
    except SystemExit as end:
        if not isinstance(end.code, int | None):
            print(end.code, file=sys.stderr)
        else:
            status = end.code or 0
    except BaseException:  # noqa: BLE001 (as an interpreter does)
        traceback.print_exc()
    # What else an interpreter does at its end takes longer than most programs.
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    os._exit(status)


if __name__ == "__main__":
    _main(*sys.argv[1:])
