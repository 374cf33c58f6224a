"""The pages of docs/concepts, and the glossary: each term that a page links is explained, and every page has the same shape."""

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.contract

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = sorted(path for path in (DOCS / "concepts").glob("*.md") if path.stem != "index")


def _terms() -> list[str]:
    return re.findall(r"^(\w.*)\n  \S", (DOCS / "glossary.md").read_text(encoding="utf-8"), re.MULTILINE)


def _prose(page: Path) -> str:
    return re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def test_the_glossary_is_in_order_and_has_each_term_once() -> None:
    terms = _terms()
    assert len(terms) > 60
    assert terms == sorted(set(terms), key=str.lower)


def test_each_term_that_a_page_links_is_in_the_glossary() -> None:
    terms = set(_terms())
    for page in [*PAGES, DOCS / "concepts" / "index.md"]:
        linked = re.findall(r"\{term\}`([^`]+)`", page.read_text(encoding="utf-8"))
        names = {re.sub(r"\s+", " ", re.sub(r".*<(.+)>", r"\1", text, flags=re.DOTALL)) for text in linked}
        assert names
        assert names <= terms, page.name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_has_a_label_begins_with_a_question_and_ends_with_where_it_shows(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    label, _, rest = text.partition("\n")
    assert re.fullmatch(r"\(concept-[a-z-]+\)=", label)
    assert re.match(r'# .+\n\n\*"[^"]+\?[^"]*"\*\n', rest)
    last = text.rpartition("\n## ")[2]
    assert last.startswith("Where it shows\n")
    assert re.search(r"\n(Next: \{ref\}`concept-[a-z-]+`\.|Back to the .+)\n$", last)
    assert 300 <= len(_prose(page).split()) <= 900


def test_the_first_page_lists_all_pages_twice_in_the_same_order() -> None:
    text = (DOCS / "concepts" / "index.md").read_text(encoding="utf-8")
    told = re.findall(r"^\d\. \[.+\]\((.+)\.md\)", text, re.MULTILINE)
    contents = re.findall(r"^[a-z-]+$", text.rpartition(":hidden:")[2], re.MULTILINE)
    assert told == contents
    assert sorted(told) == [page.stem for page in PAGES]
