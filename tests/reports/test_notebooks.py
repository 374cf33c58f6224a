"""What a notebook shows of snapshots, verdicts, histories and rows; and how they become tables of others."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

import pytest
from incidents import deadlocked, healthy, incident, judged

from ray_snapshot.errors import HistoryNotFoundError, SettingError
from ray_snapshot.history import History

EVIL = "<script>alert(1)</script>"


def tags(fragment: str) -> set[str]:
    """All tags that are opened; fails if one is not closed."""
    found: list[str] = []
    ahead: list[str] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, _: object) -> None:
            found.append(tag)
            ahead.append(tag)

        def handle_startendtag(self, tag: str, _: object) -> None:
            found.append(tag)

        def handle_endtag(self, tag: str) -> None:
            assert ahead.pop() == tag

    Reader().feed(fragment)
    assert ahead == []
    return set(found)


def test_a_snapshot_shows_its_facts_and_its_waits(tmp_path: Path) -> None:
    fragment = deadlocked(0, (EVIL, "b"))._repr_html_()
    assert {"table", "svg"} <= tags(fragment)
    assert "script" not in tags(fragment)
    assert "3 blocked" in fragment
    assert "svg" not in tags(healthy(0)._repr_html_())


def test_a_verdict_shows_its_sentence_and_its_deadlock_and_is_short_as_text() -> None:
    stuck, done = judged(deadlocked(0, (EVIL, "b")))
    assert "svg" in tags(stuck._repr_html_())
    assert "script" not in tags(stuck._repr_html_())
    assert "svg" not in tags(done._repr_html_())
    assert repr(stuck).startswith("<Verdict deadlock: holds, an alarm; Deadlock: ")
    assert "member_count" not in repr(stuck)


def test_a_history_shows_its_last_snapshots_and_its_rows(tmp_path: Path) -> None:
    history = History(incident(tmp_path / "history", (EVIL, "b")))
    assert "6 snapshots" in history._repr_html_()
    rows = history.machines("bank-00005")
    assert "script" not in tags(rows._repr_html_())
    assert rows.to_arrow().num_rows == len(rows.to_pandas()) == 3
    assert History(tmp_path / "history").verdicts("termination")._repr_html_().count("<tr>") == 7


@pytest.mark.contract
def test_a_snapshot_gives_its_tables(tmp_path: Path) -> None:
    one = deadlocked(0)
    assert one.to_arrow().num_rows == 3
    assert list(one.to_pandas("messages")["method"]) == ["deposit", "deposit"]
    with pytest.raises(SettingError, match="a snapshot has no table 'mesages'; it has snapshots, machines"):
        one.to_arrow("mesages")


def test_a_history_is_asked_as_the_command_line_is(tmp_path: Path) -> None:
    history = History(incident(tmp_path / "history"))
    assert history.load("latest").snapshot_id == "bank-00005"
    assert history.load("-2", system="bank").snapshot_id == "bank-00004"
    with pytest.raises(HistoryNotFoundError, match="no snapshot 'bank-9' in the history"):
        history.load("bank-9")
    with pytest.raises(HistoryNotFoundError, match="did you mean deadlock\\? there are: deadlock, termination"):
        history.verdicts("dedlock")
    assert len(history.verdicts("deadlock")) == 6
