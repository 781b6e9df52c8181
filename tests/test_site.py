"""The pages of the site are made of the documents, with a reference of each public name.

`make docs` makes the site itself, and fails for any warning of Sphinx.
"""

import importlib.util
import inspect
import re
from pathlib import Path
from types import ModuleType

import pytest
from helpers.shards import REPOSITORY

import wids
from wids import SampleSequence, View

NAMES = sorted(set(wids.__all__) - {"__version__"})


@pytest.fixture(scope="module")
def prepare() -> ModuleType:
    """Import the program that prepares the pages."""
    place = REPOSITORY / "website" / "prepare.py"
    spec = importlib.util.spec_from_file_location("prepare_site", place)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def pages(prepare: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pages")
    prepare.main(folder)
    return folder


def test_titles_of_pages_differ(prepare):
    """No two documents have the same title, since the site shows titles alone."""
    titles = [prepare.title_of(path) for path in prepare.documents()]
    assert sorted(set(titles)) == sorted(titles)


def test_each_public_name_has_its_reference(pages):
    """The page of public names links a page of reference for each of them."""
    api = (pages / "api.md").read_text()
    assert [n for n in NAMES if f"[`{n}`](reference/{n}.md)" not in api] == []
    assert sorted(path.stem for path in (pages / "reference").iterdir()) == NAMES


def test_source_files_are_shown_whole(pages):
    """A document's link to a source file leads to a page with its text."""
    shown = (pages / "source" / "tests" / "test_drop_in.py.md").read_text()
    assert (REPOSITORY / "tests" / "test_drop_in.py").read_text() in shown


def test_links_show_titles_in_place_of_file_names(prepare, tmp_path):
    """A link that shows the name of a document shows its title on the site; code is kept."""
    document = tmp_path / "page.md"
    views = REPOSITORY / "docs" / "views.md"
    document.write_text(
        f"[views.md]({views}) and [chosen]({views}#keys)\n```\n[views.md](x)\n```\n"
    )
    title = prepare.title_of(views)
    expected = f"[{title}](views.md) and [chosen](views.md#keys)\n```\n[views.md](x)\n```\n"
    assert prepare.with_links_of_the_site(document, set()) == expected


def test_a_link_that_leads_nowhere_is_an_error(prepare, tmp_path):
    """A relative link to no file is an error that names the document and the link."""
    document = tmp_path / "page.md"
    document.write_text("[gone](gone.md)")
    with pytest.raises(ValueError, match=r"page\.md: the link 'gone\.md' leads to no file"):
        prepare.with_links_of_the_site(document, set())


def test_language_models_get_a_list_of_pages(pages):
    """`llms.txt` names each page of the site under the heading of its group."""
    text = (pages / "llms" / "llms.txt").read_text()
    assert text.startswith("# wids\n\n> ")
    assert "## Training\n" in text
    named = set(re.findall(r"\]\(([\w.-]+)\.html\)", text))
    assert {path.stem for path in pages.glob("*.md")} - named == {"index", "changelog"}


def described_in(text: str) -> set[str]:
    """Return the names that have a description in the sections of a docstring."""
    lines = re.findall(r"^ *(?:- )?([*`\w, ]+):", text, re.MULTILINE)
    return {each.strip("*` ") for line in lines for each in line.split(",")}


def test_the_reference_describes_each_argument():
    """The page of a function or class describes all arguments of its call, by their names."""
    for name in NAMES:
        value = getattr(wids, name)
        made = inspect.getattr_static(value, "__init__", None) if isinstance(value, type) else None
        shown = "\n".join(filter(None, (inspect.getdoc(value), made and inspect.getdoc(made))))
        described = described_in(shown)
        if value is wids.ShardListDataset:  # those that 0.1.11 has not are options of `open`
            described |= described_in(inspect.getdoc(wids.open))
        if isinstance(value, type) and issubclass(value, BaseException):
            continue  # made by the library
        if value in (SampleSequence, View):
            continue  # which users do not make by a call
        arguments = [a for a in inspect.signature(value).parameters if not a.startswith("_")]
        assert [argument for argument in arguments if argument not in described] == [], name


@pytest.mark.parametrize("name", [n for n in NAMES if isinstance(getattr(wids, n), type)])
def test_the_reference_describes_arguments_and_results_of_methods(prepare, name):
    """A method that a page shows describes its arguments by name, and what it returns."""
    kind = getattr(wids, name)
    ours = [each for each in kind.__mro__ if each.__module__.startswith("wids.")]
    shown = {n for each in ours for n in vars(each) if not n.startswith("_")}
    hidden = set() if kind is SampleSequence else set(prepare.INTERNAL.split())
    lacking = []
    for method in sorted(shown - hidden):
        call = getattr(kind, method, None)
        if not (inspect.isfunction(call) or inspect.ismethod(call)):
            continue  # a property, or an attribute
        text, signature = inspect.getdoc(call) or "", inspect.signature(call)
        arguments = [a for a in signature.parameters if a != "self"]
        lacking += [f"{method}({a})" for a in arguments if a not in described_in(text)]
        returns = str(signature.return_annotation) not in ("None", str(inspect.Signature.empty))
        if returns and not re.search(r"^(Return|Yield)|^(Returns|Yields):", text, re.MULTILINE):
            lacking.append(f"{method} -> {signature.return_annotation}")
    assert lacking == []


def test_methods_that_the_reference_leaves_out_exist(prepare):
    """Each name that is left out of the pages is a member of a public class."""
    members = {n for name in NAMES for n in dir(getattr(wids, name))}
    assert set(prepare.INTERNAL.split()) - members == set()
