"""Snapshots and rows of a history as tables of others, and snapshots by what the command line calls them."""

from __future__ import annotations

from pathlib import Path

import pytest
from incidents import deadlocked, incident, judged

from ray_snapshot.errors import HistoryNotFoundError, SettingError
from ray_snapshot.history import History


@pytest.mark.contract
def test_a_snapshot_gives_its_tables(tmp_path: Path) -> None:
    one = deadlocked(0)
    assert one.to_arrow().num_rows == 3
    assert list(one.to_pandas("messages")["method"]) == ["deposit", "deposit"]
    with pytest.raises(SettingError, match="a snapshot has no table 'mesages'; it has snapshots, machines"):
        one.to_arrow("mesages")


@pytest.mark.contract
def test_rows_of_a_history_become_tables(tmp_path: Path) -> None:
    rows = History(incident(tmp_path / "history")).machines("bank-00005")
    assert rows.to_arrow().num_rows == len(rows.to_pandas()) == 3


def test_a_verdict_is_short_as_text() -> None:
    stuck, _ = judged(deadlocked(0))
    assert repr(stuck).startswith("<Verdict deadlock: holds, an alarm; Deadlock: ")
    assert "member_count" not in repr(stuck)


def test_a_history_is_asked_as_the_command_line_is(tmp_path: Path) -> None:
    history = History(incident(tmp_path / "history"))
    assert history.load("latest").snapshot_id == "bank-00005"
    assert history.load("-2", system="bank").snapshot_id == "bank-00004"
    with pytest.raises(HistoryNotFoundError, match="no snapshot 'bank-9' in the history"):
        history.load("bank-9")
    with pytest.raises(HistoryNotFoundError, match="did you mean deadlock\\? there are: deadlock, termination"):
        history.verdicts("dedlock")
    assert len(history.verdicts("deadlock")) == 6
