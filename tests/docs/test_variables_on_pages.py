"""Every variable of the environment that the program reads stands in the reference, and no other."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
BETWEEN_OURS = {"RAY_SNAPSHOT_HOOK_KEY"}
"""Passed from one of our processes to another, and set by no user."""


def test_what_is_read_is_listed() -> None:
    code = "\n".join(path.read_text() for path in (ROOT / "ray_snapshot").rglob("*.py"))
    read = {*re.findall(r'^\w+ = "(RAY_SNAPSHOT_[A-Z_]+)"$', code, re.MULTILINE)}
    assert read > BETWEEN_OURS
    page = (ROOT / "docs" / "reference" / "settings.md").read_text()
    assert {*re.findall(r"^\| `(RAY_SNAPSHOT_[A-Z_]+)` \|", page, re.MULTILINE)} == read - BETWEEN_OURS
