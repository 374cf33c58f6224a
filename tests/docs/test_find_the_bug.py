"""The drawing on the page Find the bug is the one that its commands draw."""

import sys
from importlib import import_module
from pathlib import Path

import pytest
from code_blocks import DOCS, pages

from ray_snapshot import testing

pytestmark = pytest.mark.contract

DRAWING = DOCS / "images" / "find-the-bug.svg"


def drawn(folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """What the counterexample of the page looks like."""
    for block in pages()["start/find-the-bug"].blocks:
        if "file" in block.marks:
            (folder / block.marks["file"]).write_text(block.code, encoding="utf-8")
    monkeypatch.syspath_prepend(folder)
    try:
        found = testing.explore(import_module("lease").build, always=[import_module("lock").one_at_a_time])
    finally:
        for name in ("lock", "lease"):
            sys.modules.pop(name, None)
    assert found.counterexample is not None
    return found.counterexample.svg()


def test_the_drawing_on_the_page_is_what_its_commands_draw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    svg = drawn(tmp_path, monkeypatch)
    assert DRAWING.read_text(encoding="utf-8") == svg, f"write `lease.svg` of the page to {DRAWING.name}"
