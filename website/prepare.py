"""Copy the documents of the repository to one folder, as Sphinx reads them.

    python website/prepare.py build/docs/source

The documents stay plain Markdown that can be read on any code host: they link each other, the
README and source files by relative paths, and have no directives. For the site, this program

- makes the README the front page, with the groups of `docs/index.md` as the table of contents;
- adds one page of reference for each public name, made from its docstring;
- adds one page of source for each file outside of `docs/` that a document links;
- writes `llms.txt`, the list of all pages for language models, and `llms-full.txt`, their text.
"""

import re
import shutil
import sys
from collections.abc import Callable, Iterable
from pathlib import Path, PurePosixPath

import wids

REPOSITORY = Path(__file__).resolve().parent.parent
FROM_THE_ROOT = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md",
                 "CHANGELOG.md": "changelog.md"}  # fmt: skip
LINK = re.compile(
    r"(?P<text>!?\[(?:[^\]\[]|\[[^\]]*\])*)\]\((?P<target>[^)\s#]+)(?P<anchor>#[^)\s]*)?\)"
)
CODE_BLOCK = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
GROUP = re.compile(r"^\*\*(.+?)\*\*", re.MULTILINE)
PAGE_OF_GROUP = re.compile(r"^- \[.*?\]\((.+?)\)", re.MULTILINE)
LANGUAGES = {".py": "python", ".sh": "bash", ".ipynb": "json", "": "text"}
# Methods by which the parts of the library use each other. The reference leaves them out, except in
# the page of `SampleSequence`, which describes those that samplers, loaders and views call.
INTERNAL = """
batch_kind choose_remote column_at column_reader dataset_shards drop_if_changed gather_fields
index_rules is_near key_hashes keys_at locate_batch locate_sample
packed_keys pipeline places prefetches read_as read_batch_as
read_raw remote_index stored_at

add_time answer begin_pass of_thread receive timed

begin order restore share start

announce confirm cutter is_evicted read_heads read_spans version was_changed

check_rows check_sample find_spans from_bytes from_pack headers_start hides_archive is_linked
kept matches next_header_end probes

derived_path index_lock_path joins_folder local_path_of make_ready prepare
room_for_file sidecar_path touch
"""
SUMMARY = "Random access to WebDataset tar shards, with exact, resumable, distributed epochs."


def main(target: Path) -> None:
    """Write the pages to `target`, which is emptied first."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    sources: set[PurePosixPath] = set()
    for path in documents():
        page = page_of(PurePosixPath(path.relative_to(REPOSITORY)))
        text = with_links_of_the_site(path, sources)
        (target / page).write_text(PAGE_EDITS.get(str(page), str)(text))
    for picture in (REPOSITORY / "docs").glob("*.[jp][pn]g"):
        shutil.copy(picture, target)
    (target / "reference").mkdir()
    for name in public_names():
        (target / "reference" / f"{name}.md").write_text(reference(name))
    for source in sources:
        write_source_page(target, source)
    write_lists_for_language_models(target / "llms")


def documents() -> list[Path]:
    """Return the Markdown documents of the repository; `docs/index.md` only gives the groups."""
    pages = sorted((REPOSITORY / "docs").glob("*.md"))
    return [REPOSITORY / name for name in FROM_THE_ROOT] + [p for p in pages if p.stem != "index"]


def page_of(path: PurePosixPath) -> PurePosixPath:
    """Return the page of the site that shows a file of the repository."""
    if str(path) in FROM_THE_ROOT:
        return PurePosixPath(FROM_THE_ROOT[str(path)])
    if path.parent == PurePosixPath("docs"):
        return PurePosixPath(path.name)
    return PurePosixPath("source", *path.parts[:-1], f"{path.name}.md")


def with_links_of_the_site(path: Path, sources: set[PurePosixPath]) -> str:
    """Return a document with its relative links turned into links between pages of the site.

    Args:
        path: The document.
        sources: Files and folders outside of `docs/` that the document links are added here.

    Raises:
        ValueError: A link leads to a file that does not exist.
    """

    def moved(link: re.Match[str]) -> str:
        start, target, anchor = link["text"], link["target"], link["anchor"] or ""
        if re.match(r"[a-z]+:", target):
            return link[0]
        linked = (path.parent / target).resolve()
        if not linked.exists():
            raise ValueError(f"{path}: the link {target!r} leads to no file; correct it")
        inside = PurePosixPath(linked.relative_to(REPOSITORY))
        page = page_of(inside)
        if page.parts[0] == "source":
            sources.add(inside)
        elif start == f"[{linked.name}":  # on a site, a page has a title and no file name
            start = f"[{title_of(linked)}"
        return f"{start}]({page}{anchor})"

    return outside_of_code(path.read_text(), lambda text: LINK.sub(moved, text))


def title_of(path: Path) -> str:
    """Return the title of a document: its first line, without the `#`."""
    return path.read_text().partition("\n")[0].removeprefix("#").strip()


def outside_of_code(text: str, edit: Callable[[str], str]) -> str:
    """Apply an edit to what is between the blocks of code of a document."""
    blocks = CODE_BLOCK.findall(text)
    between = [edit(part) for part in CODE_BLOCK.split(text)]
    return between[0] + "".join(
        block + part for block, part in zip(blocks, between[1:], strict=True)
    )


def public_names() -> list[str]:
    """Return the names that `wids` exports, without the version."""
    return sorted(name for name in wids.__all__ if not name.startswith("_"))


def with_table_of_contents(text: str) -> str:
    """Append the groups of `docs/index.md` to the front page, for the bar at the side."""
    index = (REPOSITORY / "docs" / "index.md").read_text()
    heads = list(GROUP.finditer(index))
    trees = []
    for head, following in zip(heads, [*heads[1:], None], strict=True):
        part = index[head.end() : following.start() if following else None]
        pages = [page_of(_in_repository(page)) for page in PAGE_OF_GROUP.findall(part)]
        trees.append(tree(head[1], (str(page.with_suffix("")) for page in pages)))
    trees.append(tree("Versions", ["changelog"]))
    return text + "\n" + "\n".join(trees)


def _in_repository(link: str) -> PurePosixPath:
    return PurePosixPath((REPOSITORY / "docs" / link).resolve().relative_to(REPOSITORY))


def tree(caption: str, pages: Iterable[str]) -> str:
    """Return a table of contents that only the bar at the side shows."""
    lines = [":hidden:", f":caption: {caption}" if caption else ":maxdepth: 1", "", *pages]
    return "```{toctree}\n" + "\n".join(lines) + "\n```\n"


def with_references(text: str) -> str:
    """Link each name in the first column of a table to its page of reference."""

    def linked(row: re.Match[str]) -> str:
        return re.sub(r"`(\w+)`", r"[`\1`](reference/\1.md)", row[0])

    text = re.sub(r"^\| `.+?\|", linked, text, flags=re.MULTILINE)
    return text + "\n" + tree("", (f"reference/{name}" for name in public_names()))


def reference(name: str) -> str:
    """Return the page of reference of one public name."""
    kind = "class" if isinstance(getattr(wids, name), type) else "function"
    return f"# {name}\n\n```{{eval-rst}}\n.. auto{kind}:: wids.{name}\n```\n"


def write_source_page(target: Path, source: PurePosixPath) -> None:
    """Write the page that shows a source file, or lists the files of a folder."""
    page = target / page_of(source)
    page.parent.mkdir(parents=True, exist_ok=True)
    here = REPOSITORY / source
    # What the search finds in the pages would be hidden behind the many words of the sources.
    head = f"---\norphan: true\nnosearch: true\n---\n\n# {source}\n\n"
    if here.is_dir():
        files = [file for file in sorted(here.rglob("*.py")) if file.name != "__init__.py"]
        for file in files:
            write_source_page(target, PurePosixPath(file.relative_to(REPOSITORY)))
        names = [file.relative_to(here) for file in files]
        page.write_text(head + "\n".join(f"- [{n}]({source.name}/{n}.md)" for n in names) + "\n")
    elif source.suffix == ".md":  # tables, whose headings are linked
        page.write_text(head + here.read_text())
    else:
        fence = "`" * 6  # longer than any fence of the file
        language = LANGUAGES.get(source.suffix, "text")
        page.write_text(f"{head}{fence}{language}\n{here.read_text()}{fence}\n")


def write_lists_for_language_models(target: Path) -> None:
    """Write `llms.txt`, as https://llmstxt.org describes it, and the text of all pages."""
    target.mkdir()
    index = (REPOSITORY / "docs" / "index.md").read_text()
    listed = re.sub(r"\]\((?:\.\./)?(\w[\w.-]*)\.md\)", r"](\1.html)", index)
    groups = listed[listed.index("**") : listed.index("Short programs")]
    groups = GROUP.sub(r"## \1", groups.replace("CONTRIBUTING.html", "contributing.html"))
    (target / "llms.txt").write_text(f"# wids\n\n> {SUMMARY}\n\n{groups.rstrip()}\n")
    (target / "llms-full.txt").write_text("\n\n".join(path.read_text() for path in documents()))


PAGE_EDITS: dict[str, Callable[[str], str]] = {
    "index.md": with_table_of_contents,
    "api.md": with_references,
}

if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
