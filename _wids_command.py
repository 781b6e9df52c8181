"""Start of the console command `wids`: a module beside the package, and not in it.

webdataset below 1.0 replaces `wids/__init__.py` by a file that imports torch. Python runs that file
before any other of the package, so that only a module outside of the folder can say what is wrong.
"""

import sys
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path

__all__ = ["main"]


def main() -> int:
    """Run the command line; returns the exit code."""
    fault = _installation_fault()
    if fault is not None:
        print(f"wids: {fault}", file=sys.stderr)
        return 1
    from wids.__main__ import main as run

    return run()


def _installation_fault() -> str | None:
    """Call `wids.installation.installation_fault` without importing the package."""
    package = find_spec("wids")  # which imports nothing
    for folder in (package and package.submodule_search_locations) or ():
        path = Path(folder) / "installation.py"
        found = spec_from_file_location("_wids_installation", path)
        if path.exists() and found is not None and found.loader is not None:
            module = module_from_spec(found)
            found.loader.exec_module(module)
            fault: str | None = module.installation_fault()
            return fault
    return None
