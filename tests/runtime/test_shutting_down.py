"""What stands in the place of Ray's `shutdown` while sessions are open; a stand-in for Ray's own."""

from types import SimpleNamespace
from typing import Any

import pytest

from ray_snapshot.runtime import shutting_down

Log = list[str]


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    """What was called, in that order; no session is open."""
    found: Log = []

    def shutdown() -> str:
        found.append("Ray")
        return "down"

    cell = SimpleNamespace(cell_contents=shutdown)
    monkeypatch.setattr(shutting_down, "_cell", lambda: cell)
    monkeypatch.setattr(shutting_down, "_connection", lambda: None)
    monkeypatch.setattr(shutting_down, "_open", {})
    monkeypatch.setattr(shutting_down, "_ours", [])
    return found


def opened(name: str, log: Log, error: BaseException | None = None) -> None:
    def close() -> None:
        log.append(name)
        shutting_down.closed(name)
        if error is not None:
            raise error

    shutting_down.opened(name, close)


def shut_down() -> Any:
    return shutting_down._cell().cell_contents()


def test_the_latest_is_closed_first_and_ray_last_and_then_it_is_as_it_was(log: Log) -> None:
    own = shutting_down._cell().cell_contents
    opened("first", log)
    opened("second", log)
    assert shutting_down._cell().cell_contents.__name__ == "shutdown", "by its name Ray finds what its client does"
    assert (shut_down(), log) == ("down", ["second", "first", "Ray"])
    assert shutting_down._cell().cell_contents is own
    assert (shut_down(), log[3:]) == ("down", ["Ray"])


@pytest.mark.parametrize("error", [ValueError("of ours"), KeyboardInterrupt()])
def test_ray_is_down_whatever_a_session_raises(log: Log, error: BaseException) -> None:
    opened("first", log)
    opened("second", log, error)
    with pytest.raises(type(error)):
        shut_down()
    assert log == ["second", *(["first"] if isinstance(error, Exception) else []), "Ray"]


def test_others_may_stand_in_its_place_too_before_and_behind(log: Log) -> None:
    cell = shutting_down._cell()
    own = cell.cell_contents
    opened("first", log)
    inner = cell.cell_contents
    cell.cell_contents = lambda: (log.append("other"), inner())[1]
    shutting_down.closed("first")
    opened("second", log)
    assert (shut_down(), log) == ("down", ["second", "other", "Ray"])
    opened("third", log)
    cell.cell_contents = own  # the other one has put back what it knows
    opened("fourth", log)
    assert (shut_down(), log[3:]) == ("down", ["fourth", "third", "Ray"])
