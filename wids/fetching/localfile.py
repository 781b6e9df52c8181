"""Reading of small local documents, apart from `fetch`, which loads what talks to servers."""

import os
import stat

from wids.base.urls import display_url, local_path, without_secrets
from wids.errors import FetchError

__all__ = ["MAX_DOCUMENT_NBYTES", "read_local", "too_large"]

MAX_DOCUMENT_NBYTES = 256 << 20  # a spec of a million shards takes 200 MB


def read_local(location: str) -> bytes:
    """Return the content of a small document, such as a JSON spec, at a path or `file:` URL.

    Raises:
        FetchError: It cannot be read, or is larger than 256 MiB.
    """
    path = local_path(location)
    try:
        # A pipe into which nobody writes is at its end, and not waited for.
        with open(
            path, "rb", opener=lambda it, flags: os.open(it, flags | os.O_NONBLOCK)
        ) as stream:
            os.set_blocking(stream.fileno(), True)
            status = os.fstat(stream.fileno())
            if stat.S_ISREG(status.st_mode) and not status.st_size:
                return b""  # not read: some files of /proc say 0 bytes and let a reader wait
            data = stream.read(MAX_DOCUMENT_NBYTES + 1)
    except OSError as error:
        raise FetchError(f"{display_url(location)}: {error.strerror}") from without_secrets(error)
    except ValueError as error:  # a name that no file can have
        raise FetchError(f"{display_url(location)}: {error}") from None
    if len(data) > MAX_DOCUMENT_NBYTES:
        raise FetchError(too_large(location, MAX_DOCUMENT_NBYTES))
    return data


def too_large(url: str, max_nbytes: int) -> str:
    """Return the message for a document that is larger than allowed."""
    return (
        f"{display_url(url)}: larger than the {max_nbytes} bytes that a document may have; check "
        "that it is the right file"
    )
