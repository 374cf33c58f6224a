"""Links the first mention of a term on each page to the glossary, so that no page has to do it by hand."""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from sphinx import addnodes

TERMS = (
    "channel state", "checkpoint", "coverage", "deadlock", "detector", "in flight",
    "incarnation", "ledger", "mailbox", "marker", "obstacle", "observer", "redaction", "restorable", "snapshot",
    "space-time diagram", "stuck behind", "termination", "verdict", "watched app", "witness",
)  # fmt: skip
"""Those that are no common words, and mean the same wherever they stand."""

FOLDERS = (
    "start/",
    "howto/",
    "reference/watched",
    "reference/json",
    "reference/spark-jobs",
    "security",
    "real-programs",
)
_ANY = re.compile(rf"\b({'|'.join(sorted(TERMS, key=len, reverse=True))})(?=s?\b)", re.IGNORECASE)
_LEFT_ALONE = (nodes.title, nodes.literal, nodes.literal_block, nodes.reference, addnodes.pending_xref, nodes.raw)


def link_terms(app: Any, doctree: nodes.document) -> None:
    """Called when a page has been read."""
    if not app.env.docname.startswith(FOLDERS):
        return
    left = set(TERMS)
    for text in list(doctree.findall(nodes.Text)):
        if not _is_inside(text, _LEFT_ALONE) and left:
            _link(text, left, app.env.docname)


def _is_inside(node: nodes.Node, kinds: tuple[type[nodes.Node], ...]) -> bool:
    parent = node.parent
    while parent is not None:
        if isinstance(parent, kinds):
            return True
        parent = parent.parent
    return False


def _link(text: nodes.Text, left: set[str], page: str) -> None:
    parts: list[nodes.Node] = []
    told, at = text.astext(), 0
    for found in _ANY.finditer(told):
        term = found[1].lower()
        if term in left:
            left.discard(term)
            parts += [nodes.Text(told[at : found.start()]), _reference(found[1], term, page)]
            at = found.end()
    if parts:
        text.parent.replace(text, [*parts, nodes.Text(told[at:])])


def _reference(shown: str, term: str, page: str) -> nodes.Node:
    about = {
        "refdomain": "std",
        "reftype": "term",
        "reftarget": term,
        "refexplicit": True,
        "refwarn": True,
        "refdoc": page,
    }
    return addnodes.pending_xref("", nodes.inline(shown, shown, classes=["xref", "std", "std-term"]), **about)
