"""The house plan: which module may import which, what is public, what costs nothing to import."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import wids

PACKAGE = Path(wids.__file__).parent

# Every module, leaf to top within its part, and the modules of ours that it may name in an import,
# at its top or inside a function.
MAY_IMPORT = {
    # what all may use
    "errors": "",
    "log": "",
    "progress": "",
    "extras": "",
    "urls": "errors",
    # the spec
    "columns": "",
    "locations": "urls",
    "spec": "columns errors locations urls",
    "sources": "errors fetch spec urls",
    # the tar index
    "tarheader": "",
    "tarruns": "tarheader",
    "tarscan": "errors tarheader tarruns",
    "nametable": "",
    "grouping": "errors nametable",
    "mapping": "",
    "sidecar": "errors grouping mapping",
    "tarindex": "errors grouping sidecar tarscan",
    "foreign": "errors sidecar tarheader tarindex",
    "shard": "errors mapping tarindex",
    # fetch and cache
    "digests": "",
    "locking": "",
    "ranges": "",
    "partfile": "digests errors",
    "prefetch": "errors",
    "transport": "errors",
    "http": "errors transport urls",
    "objectstore": "errors transport urls",
    "pipe": "errors transport urls",
    "unpack": "errors partfile",
    "cachefolder": "errors unpack urls",
    "hub": "errors http transport urls",
    "tarcheck": "errors partfile unpack",
    "durable": "cachefolder",
    "eviction": "cachefolder",
    "fetch": "errors http hub objectstore partfile pipe ranges transport urls",
    "cache": (
        "cachefolder digests durable errors eviction fetch locking partfile prefetch tarcheck "
        "unpack urls"
    ),
    # decode and encode
    "arrays": "errors extras",
    "compressed": "errors extras",
    "documents": "errors extras",
    "framing": "",
    "resample": "extras",
    "images": "errors extras framing resample",
    "media": "errors extras",
    "tenbin": "errors",
    "decode": "arrays compressed documents errors images media tenbin",
    "encode": "arrays compressed extras tenbin",
    # the dataset
    "locate": "",
    "openshards": "",
    "scanners": "errors log tarindex",
    "rangeshard": "cachefolder errors fetch log tarheader tarindex urls cache shard",
    "shardlist": (
        "cache decode errors grouping locate log openshards progress rangeshard scanners shard "
        "sidecar sources spec tarindex"
    ),
    "dataset": "shardlist",
    # the order
    "permute": "",
    "chunks": "permute",
    "order": "chunks permute",
    "passes": "order",
    "replicas": "",
    "samplers": "chunks order passes permute replicas",
    "orderreport": "chunks order permute",
    # writing
    "tarwriter": "",
    "outfile": "",
    "members": "encode grouping",
    "entries": "spec urls",
    "resume": "build entries tarindex",
    "writer": "encode entries members outfile resume sidecar tarindex tarwriter",
    # work over many shards
    "parallel": "progress",
    "build": "cache entries parallel sidecar sources spec tarindex unpack urls",
    "check": "build decode errors parallel shard sidecar spec tarindex",
    "stats": "build extras listing parallel shard spec tarindex",
    "reshard": "permute progress shardlist writer",
    "importers": "extras images",
    "exporters": "extras outfile progress shardlist",
    "specedit": "errors locations outfile",
    # the command line
    "listing": "spec",
    "show": "decode listing",
    "terminal": "listing",
    "lookcommands": "listing shardlist show sources terminal",
    "makecommands": "build listing outfile sources specedit terminal urls",
    "checkcommands": "check listing sources stats terminal",
    "copycommands": "exporters importers progress reshard shardlist sources terminal writer",
    "ordercommands": "orderreport shardlist terminal",
    "cachecommands": "cache terminal",
    "cli": (
        "cachecommands checkcommands copycommands errors lookcommands makecommands ordercommands "
        "terminal"
    ),
    # the package
    "__init__": (
        "cache dataset decode encode errors framing images samplers shard spec tarindex writer"
    ),
    "__main__": "cli",
}


def modules() -> list[str]:
    return sorted(path.stem for path in PACKAGE.glob("*.py"))


def imported_siblings(name: str) -> set[str]:
    """Read which modules of the package a module names in its imports, wherever they stand."""
    tree = ast.parse((PACKAGE / f"{name}.py").read_text())
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            if node.module == "wids":
                found |= {alias.name for alias in node.names if alias.name in modules()}
            elif node.module.startswith("wids."):
                found.add(node.module.split(".")[1])
        elif isinstance(node, ast.Import):
            found |= {alias.name.split(".")[1] for alias in node.names if alias.name[:5] == "wids."}
    return found


def test_modules_import_only_what_the_plan_allows() -> None:
    """The plan names every module, and no module imports another that its row does not name."""
    assert set(modules()) == set(MAY_IMPORT)
    for name in modules():
        assert imported_siblings(name) <= set(MAY_IMPORT[name].split()), name


def test_imports_run_one_way() -> None:
    """No module is reached from itself."""
    done: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, " -> ".join((*path, name))
        if name not in done:
            for imported in sorted(imported_siblings(name)):
                visit(imported, (*path, name))
            done.add(name)

    for name in modules():
        visit(name, ())


# Calls that run strangers' text, and what to use instead.
FORBIDDEN_CALLS = {
    "os.system": "subprocess.run with a list",
    "eval": "nothing",
    "exec": "nothing",
    "tempfile.mktemp": "a temp file beside the final one",
    "pickle.load": "allow_pickle and pickle.loads in the decoder that says so",
}


def calls(name: str) -> set[str]:
    tree = ast.parse((PACKAGE / f"{name}.py").read_text())
    return {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}


@pytest.mark.parametrize("name", modules())
def test_no_module_calls_what_runs_strangers_text(name: str) -> None:
    """Shells, eval and pickle streams appear nowhere; only the command line prints."""
    assert not calls(name) & set(FORBIDDEN_CALLS)
    assert "shell=True" not in (PACKAGE / f"{name}.py").read_text()
    if not (name.startswith(("cli", "__main__")) or name.endswith(("cli", "commands"))):
        assert "print" not in calls(name)


@pytest.mark.parametrize("name", modules())
def test_no_module_validates_by_assertion(name: str) -> None:
    """An assertion vanishes under `python -O`; errors are raised."""
    tree = ast.parse((PACKAGE / f"{name}.py").read_text())
    assert not [node.lineno for node in ast.walk(tree) if isinstance(node, ast.Assert)]


@pytest.mark.parametrize("name", modules())
def test_all_names_what_is_there(name: str) -> None:
    """Each module has an `__all__` that names things it defines."""
    if name in {"__init__", "__main__"}:
        return
    tree = ast.parse((PACKAGE / f"{name}.py").read_text())
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


def test_the_indexer_and_the_command_line_never_load_torch() -> None:
    """What people run on machines without a GPU stack does not import it."""
    code = "import sys, wids.cli, wids.build, wids.shardlist; print('torch' in sys.modules)"
    run = [sys.executable, "-c", code]
    assert subprocess.run(run, capture_output=True, text=True, check=True).stdout == "False\n"
