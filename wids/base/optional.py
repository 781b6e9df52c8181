"""Import of optional libraries, with an error that names the extra to install."""

from functools import cache
from importlib import import_module
from typing import Any

__all__ = ["load", "load_if_present"]

# Names of packages that differ from the names of their modules. Messages name the package as well
# as the extra, because `wids` on the public index is another library without these extras.
_NAMES = {
    "PIL": "pillow",
    "google_crc32c": "google-crc32c",
    # The web server needs all three.
    "starlette": "starlette uvicorn anyio",
    "uvicorn": "starlette uvicorn anyio",
}


@cache
def load(module: str, extra: str) -> Any:
    """Import an optional library.

    Args:
        module: The module to import, such as "msgpack".
        extra: The extra of `wids` that installs it, such as "msgpack".

    Raises:
        ModuleNotFoundError: It is missing or does not load; the message says what to install.

    >>> load("json", "core").dumps([1])
    '[1]'
    """
    package = module.split(".", maxsplit=1)[0]
    try:
        return import_module(module)
    except (ImportError, OSError) as error:  # OSError: its shared library does not load
        raise ModuleNotFoundError(
            f"the library {module!r} is needed and cannot be imported ({error}); the extra "
            f"wids[{extra}] brings it, and so does: pip install {_NAMES.get(package, package)}"
        ) from error


@cache
def load_if_present(module: str) -> Any | None:
    """Import a library that is only an optimisation, or return None where it is missing.

    Args:
        module: The module to import, such as "orjson".

    >>> load_if_present("no_such_library") is None
    True
    """
    try:
        return import_module(module)
    except (ImportError, OSError):
        return None
