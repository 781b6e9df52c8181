"""The architecture: allowed imports, public names, and the cost of importing."""

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

import wids

PACKAGE = Path(wids.__file__).parent
Function = ast.FunctionDef | ast.AsyncFunctionDef

# The packages and single modules of the house, from the ground up, and which of ours each may name
# in an import, at a module's top or inside a function. Within a package, imports run one way too.
MAY_IMPORT = {
    "errors": "",
    "log": "",
    "installation": "",
    "base": "errors log",
    "fetching": "base errors log",
    "tar": "base errors log",
    "codecs": "base errors",
    "caching": "base errors fetching tar log",
    "pack": "base caching errors fetching log",
    "specs": "base caching errors fetching pack tar log",
    "ordering": "base log",
    "display": "base codecs errors specs",
    "reading": "base caching codecs errors fetching log ordering pack specs tar display",
    "views": "base caching codecs display errors fetching ordering reading specs",
    "writing": "base codecs specs tar",
    "importing": "base caching codecs errors specs tar",
    "adapters": "base reading views",
    "tools": (
        "base caching codecs errors fetching log ordering pack reading specs tar display views "
        "writing"
    ),
    "browse": "base codecs errors fetching log ordering reading specs tar tools display views",
    "commands": (
        "base browse caching codecs display errors importing log ordering pack reading specs "
        "tools views writing"
    ),
    "cli": "commands errors installation",
    "wids": "base codecs errors ordering reading tar views",
    "__init__": (
        "caching codecs display errors importing installation ordering reading specs tar tools "
        "views writing"
    ),
    "__main__": "cli installation",
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


def loaded_modules(name: str) -> set[str]:
    """Return the modules of the library that importing a module loads."""

    def run(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
        for node in body:
            yield node
            if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
                yield from run(node.orelse)
            elif not isinstance(node, Function):
                yield from run(ast.iter_child_nodes(node))

    return named_modules(run(ast.parse(source(name)).body))


def test_each_module_has_a_name_of_its_own() -> None:
    """No two modules have the same file name, except `__init__`."""
    names = Counter(name.rsplit(".", maxsplit=1)[-1] for name in modules())
    assert [name for name, count in names.items() if count > 1] == ["__init__"]


# Bounds of what has to be kept in mind to read a module or a function.
DEEPEST = 14  # modules on the longest chain of imports
LONGEST = 60  # lines of code of a function, without its docstring
MOST_PARAMETERS = 12
# Their arguments are those of wids 0.1.11, and of torch's DataLoader and DistributedSampler.
DICTATED = {
    "ordering.samplers.DistributedChunkedSampler.__init__",
    "reading.loader.Loader.__init__",
    "reading.shardlist.ShardList.__init__",
}


def functions(name: str) -> Iterator[tuple[str, Function]]:
    """Yield all functions of a module, methods and nested ones included, with their full names."""

    def visit(node: ast.AST, scope: str) -> Iterator[tuple[str, Function]]:
        for child in ast.iter_child_nodes(node):
            inner = f"{scope}.{child.name}" if hasattr(child, "name") else scope
            if isinstance(child, Function):
                yield inner, child
            yield from visit(child, inner)

    return visit(ast.parse(source(name)), name)


def lines_of_code(function: Function, lines: list[str]) -> int:
    """Count the lines of a function that are neither blank, nor a comment, nor its docstring."""
    numbers = set(range(function.lineno, (function.end_lineno or 0) + 1))
    if ast.get_docstring(function) is not None:
        docstring = function.body[0]
        numbers -= set(range(docstring.lineno, (docstring.end_lineno or 0) + 1))
    texts = (lines[number - 1].strip() for number in numbers)
    return sum(bool(text) and not text.startswith("#") for text in texts)


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


def test_imports_are_not_deep() -> None:
    """No chain of imports is longer than the bound, so that few modules are needed to read one."""

    @cache
    def longest(name: str) -> tuple[str, ...]:
        below = (longest(each) for each in loaded_modules(name) - {name})
        return (name, *max(below, key=len, default=()))

    deepest = max(map(longest, modules()), key=len)
    assert len(deepest) <= DEEPEST, " -> ".join(deepest)


@pytest.mark.parametrize("name", modules())
def test_functions_fit_a_screen(name: str) -> None:
    """No function has more lines of code than fit a screen."""
    lines = source(name).splitlines()
    found = {each: lines_of_code(function, lines) for each, function in functions(name)}
    assert not {each: count for each, count in found.items() if count > LONGEST}


@pytest.mark.parametrize("name", modules())
def test_functions_have_few_parameters(name: str) -> None:
    """Only constructors whose arguments other interfaces dictate have many parameters."""
    for each, function in functions(name):
        given = function.args
        named = [*given.posonlyargs, *given.args, *given.kwonlyargs]
        count = sum(argument.arg not in {"self", "cls"} for argument in named)
        count += sum(argument is not None for argument in (given.vararg, given.kwarg))
        assert count <= MOST_PARAMETERS or each in DICTATED, each


# Calls that run strangers' text, and what to use instead.
FORBIDDEN_CALLS = {
    "os.system": "subprocess.run with a list",
    "eval": "nothing",
    "exec": "nothing",
    "tempfile.mktemp": "a temp file beside the final one",
    "pickle.load": "allow_pickle and pickle.loads in the decoder that says so",
}


def calls(name: str) -> set[str]:
    tree = ast.parse(source(name))
    return {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}


@pytest.mark.parametrize("name", modules())
def test_no_module_calls_what_runs_strangers_text(name: str) -> None:
    """No module uses a shell, eval or pickle streams; only the command line prints."""
    assert not calls(name) & set(FORBIDDEN_CALLS)
    assert "shell=True" not in source(name)
    if home(name) not in {"cli", "commands", "__main__"}:
        assert "print" not in calls(name)


@pytest.mark.parametrize("name", modules())
def test_no_module_validates_by_assertion(name: str) -> None:
    """No module uses assert, which `python -O` removes."""
    tree = ast.parse(source(name))
    assert not [node.lineno for node in ast.walk(tree) if isinstance(node, ast.Assert)]


@pytest.mark.parametrize("name", modules())
def test_all_names_what_is_there(name: str) -> None:
    """Each module has an `__all__` of names that it defines."""
    if name.rsplit(".", maxsplit=1)[-1] in {"__init__", "__main__"}:
        return
    tree = ast.parse(source(name))
    if isinstance(tree.body[-1], ast.Raise):
        return  # a module of 0.1.11 that is gone
    (public,) = (
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    )
    defined = {node.name for node in tree.body if hasattr(node, "name")}
    for node in tree.body:
        targets = getattr(node, "targets", [getattr(node, "target", None)])
        for target in targets:
            names = target.elts if isinstance(target, ast.Tuple) else [target]
            defined |= {each.id for each in names if isinstance(each, ast.Name)}
        if isinstance(node, ast.ImportFrom):
            defined |= {alias.asname or alias.name for alias in node.names}
    assert set(public) <= defined


def test_the_repository_holds_no_shard_and_no_index() -> None:
    """No shard and no index that a trial left behind is part of the repository."""
    root = PACKAGE.parent
    run = ["git", "ls-files", "*.tar", "*.widx", "*.part", "*.lock"]
    if (root / ".git").exists():
        assert not subprocess.run(run, cwd=root, capture_output=True, text=True, check=True).stdout


def test_the_indexer_and_the_command_line_never_load_torch() -> None:
    """The indexer and the command line do not import torch."""
    code = (
        "import sys, wids.cli, wids.specs.build, wids.reading.shardlist\n"
        "print('torch' in sys.modules)"
    )
    run = [sys.executable, "-c", code]
    assert subprocess.run(run, capture_output=True, text=True, check=True).stdout == "False\n"
