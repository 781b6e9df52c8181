"""Public names are those of `wids.__all__`; docs and examples use no others."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from helpers.shards import REPOSITORY

import wids

DOCUMENTS = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").glob("*.md"))]
# The one that speaks of the inside.
USERS_DOCUMENTS = [path for path in DOCUMENTS if path.name != "architecture.md"]
EXAMPLES = sorted((REPOSITORY / "examples").glob("*.py"))
OF_OLD = {"wids", "wids_decode", "wids_mmtar"}  # modules that programs for 0.1.11 import
# What a page names to say that it is not public, or no more.
NO_NAMES = {
    "api.md": {"__all__", "reading"},
    "coming-from-wids-0.1.11.md": {"wids_dl"},
    "formats.md": {"json"},  # the file wids.json
    "loading.md": {"json"},
}
PYTHON_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
IN_BACKTICKS = re.compile(r"`wids\.(\w+)")


def test_the_page_of_public_names_is_complete() -> None:
    """The tables of docs/api.md list each name of `wids.__all__` once."""
    tables = re.findall(
        r"^\| (`.+?) \|", (REPOSITORY / "docs" / "api.md").read_text(), re.MULTILINE
    )
    named = [name for row in tables for name in re.findall(r"`(\w+)`", row)]
    assert sorted(named) == sorted(set(wids.__all__) - {"__version__"})


def test_docs_and_examples_use_public_names_alone() -> None:
    """Docs and examples import only public names from `wids`."""
    for path in [*USERS_DOCUMENTS, *EXAMPLES]:
        used = {name for code in _programs(path) for name in _names_of_wids(code)}
        assert used <= set(wids.__all__) | OF_OLD, path


def test_the_text_names_what_is_public() -> None:
    """A name of `wids` in the text of a page can be imported."""
    for path in USERS_DOCUMENTS:
        text = re.sub(r"^```.*?^```$", "", path.read_text(), flags=re.DOTALL | re.MULTILINE)
        inside = set(IN_BACKTICKS.findall(text)) - set(wids.__all__) - OF_OLD
        assert inside <= NO_NAMES.get(path.name, set()), path


def _programs(path: Path) -> Iterator[str]:
    """Yield the Python programs of a document or example; from a dialogue, the typed lines."""
    text = path.read_text()
    for code in [text] if path.suffix == ".py" else PYTHON_BLOCK.findall(text):
        typed = re.findall(r"^(?:>>>|\.\.\.) ?(.*)$", code, re.MULTILINE)
        yield "\n".join(typed) + "\n" if ">>>" in code else code


def _names_of_wids(code: str) -> Iterator[str]:
    """Yield the names that a program takes from the package."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and node.module == "wids":
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("wids."):
            yield str(node.module).split(".")[1]
        elif isinstance(node, ast.Import):
            yield from (a.name.split(".")[1] for a in node.names if a.name.startswith("wids."))
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value) == "wids":
            yield node.attr
