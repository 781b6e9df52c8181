"""Process that describes and draws fields for the server: `python -m wids.browse.decoderworker`.

It reads requests from an inherited socket and answers them one after the other until the socket is
closed. The server does not trust the answers, since an image that exploits a decoder controls what
the process sends.
"""

from __future__ import annotations

import os
import re
import signal
import sys
from dataclasses import asdict
from typing import Any

from wids.base.optional import load_if_present
from wids.base.system import limit_process
from wids.browse.workerprocess import Message, receive, send, serving
from wids.display.fieldview import view_field
from wids.display.thumbnails import film_strip, thumbnail
from wids.errors import DecodeError

__all__: list[str] = []

# Messages by which Python, Pillow, libwebp, ffmpeg and C++ report that memory is exhausted.
_NO_MEMORY = re.compile(
    r"MemoryError|out of memory|allocate memory|bad_alloc|could not create decoder", re.IGNORECASE
)


def _answer(request: dict[str, Any], data: bytes) -> Message:
    extension, drawn = request["extension"], b""
    try:
        if request["call"] == "view":
            found = asdict(view_field(extension, data))
        else:
            draw = film_strip if request.get("strip") else thumbnail
            found = asdict(draw(extension, data, size=request["size"]))
            drawn = found.pop("data")
    except (DecodeError, MemoryError) as error:
        found = {"error": str(error) or type(error).__name__}
    if _NO_MEMORY.search(found.get("error") or ""):
        found["error"] = "decoding it takes more memory than a decoder may use"
    return found, drawn


def _main(descriptor: int, nbytes: int, niceness: int) -> None:
    """Serve requests within a memory limit, each within its processor time."""
    os.nice(niceness)
    load_if_present("PIL.Image")
    limit_process(nbytes)
    with serving(descriptor) as connection:
        while True:
            request, data = receive(connection)
            signal.setitimer(signal.ITIMER_PROF, request["seconds"])
            header, drawn = _answer(request, data)
            signal.setitimer(signal.ITIMER_PROF, 0)
            del data  # frees the memory before the next field is received
            send(connection, header, drawn)


if __name__ == "__main__":
    _main(*map(int, sys.argv[1:]))
