"""Detects that another package has written its files into the folder of this one.

webdataset below 1.0 brings a package `wids` of its own. Installed over this package, it replaces
some of its files; removed afterwards, it takes them away. pip says neither.
"""

from pathlib import Path

__all__ = ["installation_fault", "other_owners"]

_FOLDER = Path(__file__).resolve().parent
_CURE = (
    "Run `pip uninstall wids webdataset`, install this package again, and webdataset 1.0 or newer "
    "if you need it"
)


def installation_fault() -> str | None:
    """Return what is wrong with the files of this package and how to repair it, None if nothing.

    It reads one small file, so that every start of the command line can call it.
    """
    try:
        is_ours = b"_HOME_OF" in (_FOLDER / "__init__.py").read_bytes()
    except FileNotFoundError:
        return (
            f"{_FOLDER} has no __init__.py: another package that has a folder `wids`, such as "
            f"webdataset below 1.0 or the old wids, was removed and took it away. {_CURE}."
        )
    if is_ours:
        return None
    owners = ", ".join(other_owners()) or "the old wids, or webdataset below 1.0"
    return (
        f"{_FOLDER}/__init__.py is a file of another package ({owners}), which was installed over "
        f"this one; Python programs import that one. {_CURE}."
    )


def other_owners() -> list[str]:
    """Return the other installed packages that own a file in the folder `wids`.

    To remove or update one of them damages this package, even where all is well now.

    Returns:
        Names and versions, such as `["webdataset 0.2.100"]`.
    """
    from importlib import metadata  # which reads mail headers: every command would wait for that

    owners = set()
    for package in metadata.distributions():
        if package.name != "wids" and any(path.parts[0] == "wids" for path in package.files or ()):
            owners.add(f"{package.name} {package.version}")
    return sorted(owners)
