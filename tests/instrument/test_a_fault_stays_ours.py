"""What goes wrong in the watching never reaches the app: no Ray in here, and a watcher that always fails."""

from __future__ import annotations

from typing import Any

import pytest

from ray_snapshot.instrument import process as processes
from ray_snapshot.instrument.here import here, settle_in
from ray_snapshot.instrument.process import Process
from ray_snapshot.protocol.calls import CallLedger

BOUND_S = 10.0


class Failing:
    """Whatever is asked of it raises, in the asking process."""

    def __getattr__(self, name: str) -> Any:
        return self

    def remote(self, *_: Any) -> Any:
        raise ValueError("the watcher cannot be asked")


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> Any:
    monkeypatch.setattr(processes.shape, "is_connected", lambda: True)
    found = Process("app:1", Failing(), CallLedger("A"), {})
    settle_in(found)
    yield found
    settle_in(None)


def test_a_watcher_that_cannot_be_asked_ends_the_watching_and_its_thread(process: Process, capsys: Any) -> None:
    process.control.thread.join(BOUND_S)
    assert not process.control.thread.is_alive()
    assert here() is None
    assert "A is not watched any more" in capsys.readouterr().err


def test_a_step_of_ours_that_fails_is_said_once_and_gives_nothing(process: Process, capsys: Any) -> None:
    process.control.thread.join(BOUND_S)
    capsys.readouterr()
    assert process.guarded(lambda: 1 // 0) is None
    assert capsys.readouterr().err.count("ZeroDivisionError") == 1


def test_nothing_is_said_of_a_cluster_that_has_ended(
    process: Process, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    process.control.thread.join(BOUND_S)
    capsys.readouterr()
    monkeypatch.setattr(processes.shape, "is_connected", lambda: False)
    assert process.guarded(lambda: 1 // 0) is None
    assert capsys.readouterr().err == ""
