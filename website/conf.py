"""Sphinx makes the site from the pages that `prepare.py` wrote; see `make docs`."""

import sys
from pathlib import Path

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform

import wids

sys.path.insert(0, str(Path(__file__).resolve().parent))
from prepare import INTERNAL

project = "wids"
author = "the authors of wids"
copyright = f"{author}, BSD-3-Clause"  # noqa: A001 (Sphinx wants this name)
version = release = wids.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
exclude_patterns = ["llms"]
myst_heading_anchors = 4  # the anchors that code hosts make, which the documents link

# Docstrings are Google sections, and their code is in single backticks as in Markdown.
default_role = "code"
napoleon_numpy_docstring = False
napoleon_use_ivar = True
autoclass_content = "both"  # the arguments of some classes are those of their __init__
autodoc_member_order = "groupwise"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
maximum_signature_line_length = 80
autodoc_class_signature = "mixed"
autodoc_default_options = {
    "members": True,
    # What a class has from ours is public; what Python, typing and torch give it is theirs.
    "inherited-members": "Dataset, Sampler, DistributedSampler, Sequence, Protocol, Exception, "
    "OSError, ValueError, UserWarning, BaseException, object",
    "special-members": "__getitem__, __getitems__, __len__, __iter__, __call__, __add__",
}

html_theme = "furo"
html_title = f"wids {release}"
html_extra_path = ["../build/docs/source/llms"]
html_static_path = ["static"]
html_css_files = ["wids.css"]
html_js_files = [("search.js", {"defer": "defer"})]  # after the search tools, before they begin
html_show_sourcelink = False
html_copy_source = False
copybutton_exclude = ".linenos, .gp, .go"  # of a console or a Python dialogue, the typed text


class LinkPublicNames(SphinxPostTransform):
    """Link a public name in code type, such as `wids.Loader` or `Loader`, to its reference."""

    default_priority = 5

    def run(self, **_kwargs: object) -> None:
        """Put a reference around each literal that is a public name."""
        for literal in list(self.document.findall(nodes.literal)):
            name = literal.astext().removesuffix("()").removeprefix("wids.")
            page = f"reference/{name}"
            linked = isinstance(literal.parent, (nodes.reference, pending_xref, nodes.title))
            if name in wids.__all__ and not linked and page != self.env.docname:
                target = self.app.builder.get_relative_uri(self.env.docname, page)
                literal.replace_self(nodes.reference("", "", literal.deepcopy(), refuri=target))


def skip_internal(
    app: Sphinx, _kind: str, name: str, _value: object, skip: bool, _options: object
) -> bool:
    """Return whether a member of a class stays out of its page."""
    shown_anyway = app.env.docname == "reference/SampleSequence"  # it says what they are for
    return skip or (name in INTERNAL.split() and not shown_anyway)


def setup(app: Sphinx) -> None:
    """Register what this file adds to Sphinx."""
    app.add_post_transform(LinkPublicNames)
    app.connect("autodoc-skip-member", skip_internal)
