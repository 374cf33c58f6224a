"""How the site is built: `make docs`. What is generated of the code stands in `generated.py` beside this file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import generated
import glossary_links

import ray_snapshot

project = "ray-snapshot"
author = "the authors of ray-snapshot"
version = release = ray_snapshot.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc"]
exclude_patterns = ["generated.py", "glossary_links.py", "meanings.py"]
templates_path: list[str] = []

html_theme = "furo"
html_title = "ray-snapshot"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False
html_show_copyright = False
html_theme_options = {"navigation_with_keys": False}
smartquotes = False
"""Two hyphens are an option, and no dash."""
pygments_style = "friendly"
pygments_dark_style = "github-dark"

myst_enable_extensions = ["attrs_block", "attrs_inline", "colon_fence", "deflist"]
myst_heading_anchors = 4
suppress_warnings = ["config.cache"]

default_role = "literal"
"""In docstrings, as in Markdown, single backticks are code."""
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_class_signature = "mixed"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
toc_object_entries_show_parents = "hide"

nitpick_ignore_regex = [
    ("py:class", r"(collections|contextlib|datetime|os|pathlib|pyarrow|pa)\..*|Path|datetime|dict\[str"),
    (
        "py:class",
        r"(ray_snapshot\..*\.)?(M|F|MachineClass|Raiser|RaySnapshotError|FunctionDetector|Alternative|Shape|Ending|Absent|NameIndex|Words|Summary)",
    ),
    (
        "py:class",
        r"ray_snapshot\..*\.(SettingsGiven|WatchSettingsGiven|Held|Flying|Unmade|Stage|Sent|Reader|Reading|DataFile|Retained|StorePath|Stamps|Sums|Count|Expected|Ledger|Together|Holders|Hosts|Phases|Log|Told|Written)",
    ),
]
"""Names in signatures that have no place in the reference: those of others, type variables, and what only we make."""


def fill_in(_app: Any, _docname: str, source: list[str]) -> None:
    """Put in what only Sphinx can show."""
    source[0] = generated.filled(source[0])


def setup(app: Any) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("source-read", fill_in)
    app.connect("doctree-read", glossary_links.link_terms)
    app.connect("autodoc-skip-member", generated.is_skipped)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
