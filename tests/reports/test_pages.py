"""A report as a file: whole in itself, harmless whatever the history holds, and small."""

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from incidents import START, deadlocked, incident, written

from ray_snapshot import Snapshot, Verdict
from ray_snapshot.history import History
from ray_snapshot.reports.gathering import gather
from ray_snapshot.reports.markdown import MOST, markdown
from ray_snapshot.reports.page import html

EVIL = "<script>alert(1)</script><img src=x onerror=alert(2)>"
ALSO_EVIL = '"]--><b>\n```\n@everyone [a](http://evil.example) | \u202e \x1b[31m'


class Tags(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.addresses: list[str] = []
        self.handlers: list[str] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.handlers += [name for name, _ in attributes if name.startswith("on")]
        self.addresses += [value or "" for name, value in attributes if name in ("src", "href", "action", "srcset")]

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture
def evil(tmp_path: Path) -> History:
    return History(incident(tmp_path / "history", (EVIL, ALSO_EVIL)))


def test_the_page_asks_for_nothing_and_runs_nothing(evil: History) -> None:
    page = html(gather(evil, "bank-00005"))
    found = Tags(page)
    assert found.tags.isdisjoint({"script", "iframe", "object", "embed", "form", "b", "link"})
    assert found.handlers == []
    assert [one for one in found.addresses if not one.startswith(("#card-", "data:image/svg+xml;base64,"))] == []
    assert "default-src 'none'" in page
    assert not re.search(r"url\((?!#)", page)


def test_names_are_shown_as_they_are_and_what_a_reader_would_obey_is_escaped(evil: History) -> None:
    page = html(gather(evil, "bank-00005", has_charts=False))
    assert EVIL in Tags(page).text
    assert "\u202e" not in page
    assert "\x1b" not in page


def test_markdown_holds_no_markup_of_a_stranger(evil: History) -> None:
    text = markdown(gather(evil, "bank-00005", has_charts=False))
    outside = re.sub(r"^(`{3,})(json|mermaid)\n.*?\n\1$", "", text, flags=re.DOTALL | re.MULTILINE)
    assert "\\<script\\>" in outside
    assert not re.search(r"(?<!\\)[<@\[]", outside)
    assert "http://" not in outside
    assert "```" not in outside
    graph = text[text.index("```mermaid") : text.index("\n```\n")]
    assert "script" in graph
    assert "<script" not in graph
    assert graph.count('"') == 2 * 3, "each of the three labels is quoted, and holds no quote"


def test_a_fence_is_longer_than_any_in_the_state(tmp_path: Path) -> None:
    history = History(written(tmp_path / "history", [deadlocked(0, state={"text": "``` ```` end"})]))
    assert "\n```````json\n" in markdown(gather(history, "bank-00000", has_charts=False))


def test_a_deadlock_of_thousands_with_large_states_stays_small(tmp_path: Path) -> None:
    names = [f"m{number}" for number in range(4_000)]
    machines = [
        {"machine": name, "class_name": "Worker", "status": "blocked", "wait_mode": "all", "waits_for": [names[at - 1]],
         "state": {"text": "x" * 4_000, "more": list(range(200))}}
        for at, name in enumerate(names)
    ]  # fmt: skip
    snapshot = Snapshot.from_rows(machines=machines, snapshot_id="bank-00000", system="bank", started_at=START)
    report = gather(History(written(tmp_path / "history", [snapshot])), "bank-00000")
    assert report.waiting is not None
    assert report.waiting.picture.is_grouped
    assert report.waiting.lines[-1] == "... and 3,988 more"
    assert len(html(report).encode()) < 2_000_000
    assert len(markdown(report)) <= MOST


def test_a_page_that_would_be_too_large_leaves_evidence_out_first(tmp_path: Path) -> None:
    names = [f"{'&' * 300}{number}" for number in range(60)]
    machines = [
        {"machine": name, "class_name": "&" * 300, "status": "blocked", "wait_mode": "all", "waits_for": names,
         "state": {"x": "&" * 4_000}}
        for name in names
    ]  # fmt: skip
    one = Snapshot.from_rows(machines=machines, snapshot_id="bank-00000", system="bank", started_at=START)
    said = [Verdict(detector=f"d{number}", snapshot_id="bank-00000", holds=True, alarm=True, sentence="&" * 9_000,
                    evidence={"x": "&" * 60_000}) for number in range(45)]  # fmt: skip
    report = gather(History(written(tmp_path / "history", [one], verdicts={"bank-00000": said})), "bank-00000")
    page = html(report)
    assert len(page.encode()) < 2_000_000
    assert "left out: the page would be too large" in page
    assert "more verdicts" in page
    text = markdown(report)
    assert len(text) <= MOST
    assert text.index("### What the detectors say") < text.index("more\n", text.index("### What the detectors say"))
    assert "### The snapshot" in text
