"""Places in a notebook are told as it numbers its cells, whichever process is there. No kernel and no Ray in here."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest
from lone_app import snapshot_of
from lone_process import lone_process

from ray_snapshot.instrument.process import cells
from ray_snapshot.instrument.process.stacks import Stack, StackFrame
from ray_snapshot.instrument.watcher.outboxes import Outboxes
from ray_snapshot.instrument.watcher.questions import Questions
from ray_snapshot.instrument.watcher.roster import Roster
from ray_snapshot.limits import LIMITS
from ray_snapshot.names import DRIVER
from ray_snapshot.protocol.calls import CallLedger
from ray_snapshot.protocol.commands import Overdue, Request
from ray_snapshot.protocol.coordinator import Coordinator

FILE = "/tmp/ipykernel_7/1234.py"
CELLS = {FILE: "In[4]"}


def _notebook(monkeypatch: pytest.MonkeyPatch, numbers: dict[str, int]) -> None:
    shell = SimpleNamespace(compile=SimpleNamespace(_filename_map=numbers))
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))


def test_the_cells_that_ran_last_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    _notebook(monkeypatch, {f"{at}.py": at for at in range(LIMITS.notebook_cells + 5)})
    found = cells.cells()
    assert (len(found), found["5.py"], "4.py" in found) == (LIMITS.notebook_cells, "In[5]", False)


def test_a_cell_that_runs_again_is_among_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its file has its name by its text, and keeps its place."""
    _notebook(monkeypatch, {**{f"{at}.py": at for at in range(LIMITS.notebook_cells + 5)}, "0.py": 999})
    assert cells.cells()["0.py"] == "In[999]"


_STRANGE = SimpleNamespace(get_ipython=lambda: SimpleNamespace(compile=SimpleNamespace(_filename_map=5)))


@pytest.mark.parametrize("module", [None, SimpleNamespace(), SimpleNamespace(get_ipython=lambda: None), _STRANGE])
def test_without_a_notebook_there_are_none(monkeypatch: pytest.MonkeyPatch, module: Any) -> None:
    monkeypatch.setitem(sys.modules, "IPython", module)
    assert cells.cells() == {}


@pytest.mark.parametrize(("machine", "told"), [(DRIVER, CELLS), ("A", {})])
def test_the_program_tells_its_cells(monkeypatch: pytest.MonkeyPatch, machine: str, told: dict[str, str]) -> None:
    _notebook(monkeypatch, {FILE: 4})
    with lone_process(CallLedger(machine)) as process:
        process.obey(Request(1))
        process.obey(Overdue(1))
        assert process.recording.reports[1].cells == told


def test_a_snapshot_names_the_cell() -> None:
    coordinator, ledger = Coordinator(), CallLedger(DRIVER, acts_unasked=True)
    coordinator.join(DRIVER, 0, 0)
    for file in (FILE, "app.py"):
        ledger.wait(None, [], 1, 0.0, call_site=f"{file}:10")
    snapshot = snapshot_of(coordinator, {DRIVER: ledger}, {DRIVER: {"shown": DRIVER, "cells": CELLS}})
    assert [row["call_site"] for row in snapshot.calls] == ["In[4]:10", "app.py:10"]


def test_a_stack_names_it_too() -> None:
    roster = Roster(lambda _: False)
    roster.facts[DRIVER] = {"shown": DRIVER, "cells": CELLS}
    questions = Questions(roster, Outboxes())
    questions.answers[1] = {}
    questions.told(1, "A", [Stack("work", None, (StackFrame("work", FILE, 10), StackFrame("main", "app.py", 1)))])
    assert [frame.file for frame in questions.answers[1]["A"][0].frames] == ["In[4]", "app.py"]
