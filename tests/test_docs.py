"""Every block of code in the README and in docs/ runs, or says why it does not.

The blocks of one file run in order in a folder of their own, which holds a small dataset: specs
`train.json` and `test.json` beside their shards (`.jpg`, `.cls`, `.json`, `.txt`), and `mds`, which
the library of that format wrote. Python blocks share their names, as in a notebook. Output is
compared where it is shown: after `>>>`, and in `print(...)  # 250: and why`, where the comment
begins with what is printed. A block that cannot run has a comment before it:
`<!-- not run: why -->`.
"""

import contextlib
import doctest
import io
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
import types
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from helpers.interpreters import write_command
from helpers.shards import REPOSITORY, write_shard
from PIL import Image

DOCUMENTS = [
    REPOSITORY / "README.md",
    REPOSITORY / "CONTRIBUTING.md",
    *sorted((REPOSITORY / "docs").glob("*.md")),
]
BLOCK = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
SHOWN = ("", "text", "json", "console", "toml", "diff")  # shown only; json must parse
OPTED_OUT = re.compile(r"<!-- not run: ((?:(?!-->).)+) -->\n+$", re.DOTALL)
PRINTED = re.compile(r"^print\(.*\)  # (.+)$", re.MULTILINE)
IDS = [path.name for path in DOCUMENTS]


@dataclass(frozen=True)
class Block:
    """One fenced block: its language, code, line in the file, and why it is not run, if so."""

    language: str
    code: str
    line: int
    reason: str | None


def blocks_of(text: str) -> Iterator[Block]:
    for hit in BLOCK.finditer(text):
        opted_out = OPTED_OUT.search(text[: hit.start()])
        line = text[: hit.start()].count("\n") + 2
        yield Block(hit[1].strip(), hit[2], line, opted_out[1] if opted_out else None)


def run_python(block: Block, path: Path, module: types.ModuleType) -> None:
    if ">>>" in block.code:
        examples = doctest.DocTestParser().get_doctest(
            block.code, module.__dict__, path.name, str(path), block.line - 1
        )
        examples.globs = module.__dict__  # get_doctest copies them; names are to stay
        runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
        report = io.StringIO()
        failed = runner.run(examples, out=report.write, clear_globs=False).failed
        assert not failed, report.getvalue()
    else:
        placed = "\n" * (block.line - 1) + block.code  # so that a traceback names the doc's line
        with contextlib.redirect_stdout(io.StringIO()) as output:
            exec(compile(placed, str(path), "exec"), module.__dict__)
        promised = PRINTED.findall(block.code)
        for comment, line in zip(promised, output.getvalue().splitlines(), strict=bool(promised)):
            assert comment.startswith(line), f"{path.name}:{block.line}: {line!r}, not {comment!r}"


def run_bash(block: Block, path: Path, tools: Path) -> None:
    environment = {
        **os.environ,
        "PATH": f"{tools}:{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry),
    }
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", block.code],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{path.name}:{block.line}\n{done.stdout}\n{done.stderr}"


@pytest.fixture(scope="session")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Put `wids` and `python` on the path, so that the docs run with the code under test."""
    folder = tmp_path_factory.mktemp("tools")
    write_command(folder / "wids", "-m", "wids")
    write_command(folder / "widsindex", "-m", "wids")
    write_command(folder / "python")
    return folder


def small_samples(start: int, stop: int) -> Iterator[dict[str, str | bytes]]:
    for number in range(start, stop):
        jpeg = io.BytesIO()
        Image.new("RGB", (32, 24), (number * 7 % 256, 90, 160)).save(jpeg, "JPEG")
        yield {
            "__key__": f"{number:06d}",
            ".jpg": jpeg.getvalue(),
            ".cls": str(number % 10),
            ".json": json.dumps({"number": number, "width": 32, "height": 24}),
            ".txt": f"picture number {number}",
        }


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make the folder in which a document's blocks run, with a small dataset."""
    folder = tmp_path / "workplace"
    for split, ends in {"train": [0, 40, 45, 100], "test": [100, 120]}.items():
        shardlist = []
        for shard, (start, stop) in enumerate(itertools.pairwise(ends)):
            path = folder / f"{split}-{shard:06d}.tar"
            write_shard(path, list(small_samples(start, stop)))
            shardlist.append({"url": path.name, "nsamples": stop - start})
        spec = {"wids_version": 1, "name": split, "shardlist": shardlist}
        (folder / f"{split}.json").write_text(json.dumps(spec))
    shutil.copytree(REPOSITORY / "tests" / "data" / "importing" / "mds" / "plain", folder / "mds")
    monkeypatch.chdir(folder)
    return folder


@pytest.mark.parametrize("path", DOCUMENTS, ids=IDS)
@pytest.mark.usefixtures("workplace")
# The warning of a part that shows what is done about a broken sample.
@pytest.mark.filterwarnings("ignore:a sample is replaced by another one")
def test_blocks_run(path: Path, tools: Path, monkeypatch: pytest.MonkeyPatch):
    """The code blocks of a document run in order and show the stated output."""
    module = types.ModuleType("__doc_blocks__")
    monkeypatch.setitem(sys.modules, module.__name__, module)  # workers look functions up there
    for block in blocks_of(path.read_text()):
        if block.reason:
            continue
        if block.language == "python":
            run_python(block, path, module)
        elif block.language == "bash":
            run_bash(block, path, tools)
        elif block.language == "json":
            json.loads(block.code)
        else:
            assert block.language in SHOWN, f"{path.name}:{block.line}: ```{block.language}"


def test_links_lead_somewhere():
    """Every relative link names an existing file and heading."""
    for path in DOCUMENTS:
        targets = re.findall(r"\]\(([^)\s]+)\)", BLOCK.sub("", path.read_text()))
        relative = [target for target in targets if not re.match(r"[a-z]+:", target)]
        assert [target for target in relative if not leads_somewhere(path, target)] == [], path


def leads_somewhere(path: Path, target: str) -> bool:
    name, _, anchor = target.partition("#")
    linked = (path.parent / name).resolve() if name else path
    if not linked.exists():
        return False
    return not anchor or linked.suffix != ".md" or anchor in anchors_of(linked.read_text())


def anchors_of(text: str) -> set[str]:
    """Return the anchors that GitHub makes for the headings."""
    headings = re.findall(r"^#+ +(.+)$", BLOCK.sub("", text), re.MULTILINE)
    kept = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.strip().replace(" ", "-") for heading in kept}


def test_every_document_is_in_the_table_of_contents():
    """docs/index.md links every other page of docs/."""
    index = (REPOSITORY / "docs" / "index.md").read_text()
    pages = [path for path in DOCUMENTS if path.parent == REPOSITORY / "docs"]
    missing = [path.name for path in pages if f"({path.name})" not in index]
    assert missing == ["index.md"]


def test_reasons_are_given_for_blocks_that_do_not_run():
    """A block that is not run has a reason."""
    reasons = [
        (path.name, block.line, block.reason)
        for path in DOCUMENTS
        for block in blocks_of(path.read_text())
        if block.reason is not None
    ]
    assert [where for where in reasons if len(where[2].split()) < 2] == []


def test_recipes_are_parts_of_the_examples():
    """A block that is part of an example stands in it, and the documents link each example."""
    for path in DOCUMENTS:
        for block in blocks_of(path.read_text()):
            if block.reason and block.reason.startswith("part of "):
                example = textwrap.dedent((REPOSITORY / block.reason.split()[-1]).read_text())
                indents = ("", " " * 4)
                assert any(textwrap.indent(block.code, by) in example for by in indents), (
                    f"{path.name}:{block.line}"
                )
    text = "".join(path.read_text() for path in DOCUMENTS)
    names = [path.name for path in REPOSITORY.glob("examples/frameworks/*.py")]
    assert [name for name in names if f"examples/frameworks/{name})" not in text] == []
