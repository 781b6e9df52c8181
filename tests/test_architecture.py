"""The architecture: which package may import which."""

import ast
import re
import subprocess
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import wids

PACKAGE = Path(wids.__file__).parent

# The packages and single modules of the house, from the ground up, and which of ours each may name
# in an import, at a module's top or inside a function. Within a package, imports run one way too.
MAY_IMPORT = {
    "errors": "",
    "log": "",
    "base": "errors log",
    "fetching": "base errors log",
    "tar": "base errors log",
    "codecs": "base errors",
    "caching": "base errors fetching tar log",
    "pack": "base caching errors fetching log",
    "specs": "base caching errors fetching pack tar log",
    "ordering": "base log",
    "grain": "base ordering",
    "lightning": "ordering",
    "display": "base codecs errors specs",
    "reading": "base caching codecs errors fetching log ordering pack specs tar display",
    "catalogue": "base codecs errors log reading specs tar",
    "views": ("base caching catalogue codecs display errors fetching ordering reading specs tar"),
    "writing": "base codecs specs tar",
    "importing": "base caching codecs errors specs tar writing",
    "filesystem": "base reading views",
    "tools": (
        "base caching catalogue codecs errors fetching log ordering pack reading specs tar display "
        "views writing"
    ),
    "browse": "base catalogue codecs errors fetching log ordering reading specs tar display views",
    "commands": (
        "base browse caching catalogue codecs display errors importing log ordering pack reading "
        "specs "
        "tools views writing"
    ),
    "cli": "commands errors",
    "wids": "base codecs errors ordering reading tar views",
    "__init__": (
        "caching codecs display errors importing ordering reading specs tar tools views writing"
    ),
    "__main__": "cli",
}


@cache
def modules() -> list[str]:
    """Return all modules, dotted, without the leading `wids.`, packages included."""
    paths = (path.relative_to(PACKAGE).with_suffix("") for path in PACKAGE.rglob("*.py"))
    return sorted(".".join(path.parts) for path in paths)


def source(name: str) -> str:
    return (PACKAGE / f"{name.replace('.', '/')}.py").read_text()


def home(name: str) -> str:
    """Return the package of a module, or the module itself if it is in no package."""
    if name.startswith("wids_"):
        return "wids"  # the modules of 0.1.11, which have one row
    return name.split(".", maxsplit=1)[0]


def named_modules(nodes: Iterable[ast.AST]) -> set[str]:
    """Return the modules of the library that import statements among some nodes name."""
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names} | {node.module}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    own = {each.removeprefix("wids.") for each in found if each.startswith("wids.")}
    return own & set(modules())


def imported_modules(name: str) -> set[str]:
    """Return the modules of the library that a module imports at any place."""
    return named_modules(ast.walk(ast.parse(source(name))))


def test_packages_import_only_what_the_plan_allows() -> None:
    """Each package imports only the packages in its row of the table."""
    assert {home(name) for name in modules()} == set(MAY_IMPORT)
    for name in modules():
        others = {home(each) for each in imported_modules(name)} - {home(name)}
        assert others <= set(MAY_IMPORT[home(name)].split()), name


def test_the_plan_stands_on_the_ground() -> None:
    """Each row of the table names only rows above it."""
    seen: set[str] = set()
    for name, below in MAY_IMPORT.items():
        if name != "__init__":
            assert set(below.split()) <= seen, name
        seen.add(name)


def test_the_plan_is_told_in_the_docs() -> None:
    """The table of docs/architecture.md names every package in an allowed order."""
    text = (Path(__file__).parents[1] / "docs" / "architecture.md").read_text()
    rows = [line for line in text.partition("\n## ")[0].splitlines() if line.startswith("| `")]
    named = [name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])]
    assert sorted(named) == sorted(set(MAY_IMPORT) - {"__init__", "__main__"})
    for place, name in enumerate(named):
        assert set(MAY_IMPORT[name].split()) <= set(named[:place]), name


def test_imports_run_one_way() -> None:
    """No module imports itself indirectly."""
    done: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, " -> ".join((*path, name))
        if name not in done:
            for imported in sorted(imported_modules(name)):
                visit(imported, (*path, name))
            done.add(name)

    for name in modules():
        visit(name, ())


def test_the_repository_holds_no_shard_and_no_index() -> None:
    """No shard and no index that a trial left behind is part of the repository."""
    root = PACKAGE.parent
    run = ["git", "ls-files", "*.tar", "*.widx", "*.part", "*.lock"]
    if (root / ".git").exists():
        assert not subprocess.run(run, cwd=root, capture_output=True, text=True, check=True).stdout
