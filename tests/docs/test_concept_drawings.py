"""The drawings of docs/concepts: each says in words what it shows, and is used."""

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

pytestmark = pytest.mark.contract

DOCS = Path(__file__).resolve().parents[2] / "docs"
FOLDER = DOCS / "images" / "concepts"
NAMES = sorted(path.stem for path in FOLDER.glob("*.svg"))


@pytest.mark.parametrize("name", NAMES)
def test_a_drawing_says_in_words_what_it_shows(name: str) -> None:
    root = ElementTree.fromstring((FOLDER / f"{name}.svg").read_text(encoding="utf-8"))
    said = {child.tag.rpartition("}")[2]: child.text or "" for child in root if child.text}
    assert len(said["title"]) > 10
    assert len(said["desc"]) > 60


def test_every_drawing_is_on_a_page_and_every_page_but_the_first_has_one() -> None:
    used: dict[str, list[str]] = {}
    for page in sorted((DOCS / "concepts").glob("*.md")):
        for drawing in re.findall(r"images/concepts/([\w-]+)\.svg", page.read_text(encoding="utf-8")):
            used.setdefault(drawing, []).append(page.stem)
    assert sorted(used) == NAMES
    pages = {page.stem for page in (DOCS / "concepts").glob("*.md")} - {"index"}
    assert pages == {page for places in used.values() for page in places}
