"""The drawings of docs/concepts: what the script draws is what is committed, can be read, and is used."""

from __future__ import annotations

import re
import sys
from importlib import util
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
FOLDER = DOCS / "images" / "concepts"


def _script() -> ModuleType:
    spec = util.spec_from_file_location("concept_drawings", FOLDER / "draw.py")
    assert spec is not None
    assert spec.loader is not None
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SCRIPT = _script()
NAMES = sorted(SCRIPT.DRAWINGS)


@pytest.mark.contract
@pytest.mark.parametrize("name", NAMES)
def test_a_committed_drawing_is_what_the_script_draws(name: str) -> None:
    committed = (FOLDER / f"{name}.svg").read_text(encoding="utf-8")
    assert committed == SCRIPT.DRAWINGS[name]().svg(), "run: python docs/images/concepts/draw.py"


def test_the_script_writes_all_files_and_no_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SCRIPT, "HERE", tmp_path)
    assert SCRIPT.main() == 0
    made = {path.name: path.read_bytes() for path in tmp_path.glob("*.svg")}
    assert made == {path.name: path.read_bytes() for path in FOLDER.glob("*.svg")}


@pytest.mark.contract
@pytest.mark.parametrize("name", NAMES)
def test_no_text_lies_over_another_or_leaves_the_card(name: str) -> None:
    sheet = SCRIPT.DRAWINGS[name]()
    for place, words in enumerate(sheet.words):
        assert 8 <= words.left < words.right <= sheet.width - 2, words
        assert 4 <= words.top < words.bottom <= sheet.height - 4, words
        assert not [other.words for other in sheet.words[place + 1 :] if words.overlaps(other)], words


@pytest.mark.contract
@pytest.mark.parametrize("name", NAMES)
def test_a_drawing_says_in_words_what_it_shows(name: str) -> None:
    root = ElementTree.fromstring((FOLDER / f"{name}.svg").read_text(encoding="utf-8"))
    said = {child.tag.rpartition("}")[2]: child.text or "" for child in root if child.text}
    assert len(said["title"]) > 10
    assert len(said["desc"]) > 60


@pytest.mark.contract
def test_every_drawing_is_on_a_page_and_every_page_but_the_first_has_one() -> None:
    used: dict[str, list[str]] = {}
    for page in sorted((DOCS / "concepts").glob("*.md")):
        for drawing in re.findall(r"images/concepts/([\w-]+)\.svg", page.read_text(encoding="utf-8")):
            used.setdefault(drawing, []).append(page.stem)
    assert sorted(used) == NAMES
    pages = {page.stem for page in (DOCS / "concepts").glob("*.md")} - {"index"}
    assert pages == {page for places in used.values() for page in places}


@pytest.mark.contract
def test_each_word_of_the_style_is_used() -> None:
    drawn = "".join(SCRIPT.DRAWINGS[name]().svg().partition("</style>")[2] for name in NAMES)
    used = {word for classes in re.findall(r'class="([^"]+)"', drawn) for word in classes.split()}
    told = set(re.findall(r"^\.([a-z-]+)|(?<=[a-z])\.([a-z-]+)(?= \{)", sys.modules["pen"].STYLE, re.MULTILINE))
    assert {word for pair in told for word in pair if word} == used


@pytest.mark.contract
def test_a_cut_is_consistent_if_no_message_runs_backwards() -> None:
    run = sys.modules["pen"].Run({"a": [("send", 10.0)], "b": [("accept", 20.0)]}, [("send", "accept")])
    assert run.in_flight({"a": 15, "b": 15}) == [("send", "accept")]
    assert not run.backwards({"a": 15, "b": 15})
    assert run.backwards({"a": 5, "b": 25}) == [("send", "accept")]
    assert not run.in_flight({"a": 5, "b": 25})
    assert not run.backwards({"a": 5, "b": 5})
    assert not run.in_flight({"a": 25, "b": 25})
