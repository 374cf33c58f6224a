"""A traced run, done again up to an action: what is there then, and what can happen next."""

from __future__ import annotations

import io
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from moment_machines import Till

import ray_snapshot as rs
from ray_snapshot import cli, detectors, testing
from ray_snapshot.errors import HistoryNotFoundError, SettingError
from ray_snapshot.history import HistoryWriter
from ray_snapshot.testing.stage import RUN
from ray_snapshot.testing.traced import action_id, moment_behind
from ray_snapshot.witness.log import DiffersError, log_of
from ray_snapshot.witness.steps import actions_of

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
B = {"$machine": "b"}


def mail(end: str, name: str, number: int, method: str, *args: Any, kind: str = "mail", **more: Any) -> dict[str, Any]:
    return {end: name, "kind": kind, "number": number, "method": method, "args": list(args), **more}


def trace(*acts: tuple[str, str, list[Any], list[Any]]) -> list[dict[str, Any]]:
    """Rows of `actions`: (machine, method, accepted, sent), a second apart."""
    rows: list[dict[str, Any]] = []
    for machine, method, accepted, sent in acts:
        number = 1 + sum(row["machine"] == machine for row in rows)
        rows.append(
            {"machine": machine, "number": number, "method": method, "accepted": accepted, "sent": sent, "colour": 0,
             "acted_at": NOON + timedelta(seconds=len(rows)), "is_over": True, "waited_at": None, "raised": None}
        )  # fmt: skip
    return rows


def born(name: str, coins: int) -> list[tuple[str, str, list[Any], list[Any]]]:
    of = {"class": "moment_machines:Till"}
    return [
        ("driver", "send", [], [mail("target", name, 0, "__init__", coins, **of)]),
        (name, "__init__", [mail("source", "driver", 0, "__init__", coins, **of)], []),
    ]


def a_run() -> list[dict[str, Any]]:
    """a pays b twice; b has set a timer of 10 s, and stops; a hires c, which is not constructed when the trace ends."""
    return trace(
        *born("a", 10),
        *born("b", 5),
        ("driver", "send", [], [mail("target", "b", 1, "later", 10.0, 2)]),
        ("b", "later", [mail("source", "driver", 1, "later", 10.0, 2)],
         [mail("target", "b", 1, "take", 2, kind="timer", seconds=10.0)]),
        ("driver", "send", [], [mail("target", "a", 1, "pay", B, 3)]),
        ("a", "pay", [mail("source", "driver", 1, "pay", B, 3)], [mail("target", "b", 1, "take", 3, 0)]),
        ("driver", "send", [], [mail("target", "b", 2, "close")]),
        ("b", "take", [mail("source", "a", 1, "take", 3, 0)], []),
        ("b", "close", [mail("source", "driver", 2, "close")], []),
        ("driver", "send", [], [mail("target", "a", 2, "hire", "c", 4)]),
        ("a", "hire", [mail("source", "driver", 2, "hire", "c", 4)],
         [mail("target", "c", 0, "__init__", 4, **{"class": "moment_machines:Till"}), mail("target", "c", 1, "later", 1.0, 1)]),
    )  # fmt: skip


def behind(rows: list[dict[str, Any]], until: str) -> testing.Moment:
    return moment_behind("run", log_of(actions_of(rows)), action_id(until), ["moment_machines"])


def test_machines_messages_and_timers_are_as_they_were_behind_that_action() -> None:
    found = behind(a_run(), "a:2")
    assert {held.name: held.state["coins"] for held in found.machines} == {"a": 7, "b": 3}
    assert [(one.source, one.target, one.method, one.args, one.left) for one in found.flying] == [
        ("a", "b", "take", (3, 0), 0.0),
        ("b", "b", "take", (2,), 8.0),  # two seconds have passed since it was set
    ]
    assert found.at == (NOON + timedelta(seconds=7)).timestamp()
    run = testing.simulate(found)
    assert {name: machine.coins for name, machine in run.machines.items()} == {"a": 7, "b": 8}


def test_handles_are_of_the_system_without_ray() -> None:
    (message,) = [one for one in behind(a_run(), "driver:4").flying if one.target == "a"]
    assert (message.args[0]._run_id, message.args[0]._name) == (RUN, "b")


def test_who_has_stopped_and_who_is_being_made_are_known() -> None:
    found = behind(a_run(), "a:3")
    assert {held.name: held.is_stopped for held in found.machines} == {"a": False, "b": True}
    assert [(one.creator, one.name, one.kind, one.args) for one in found.unmade] == [("a", "c", Till, (4,))]
    run = testing.simulate(found)
    assert {name: machine.coins for name, machine in run.machines.items()} == {"a": 3, "b": 6, "c": 4}


@pytest.mark.parametrize(
    ("until", "said"),
    [
        ("a:9", "it has its actions 1 to 3"),
        ("z:1", "it has none of z"),
        ("a", "names no action"),
        ("a:x", "names no action"),
    ],
)
def test_an_action_that_is_not_there_is_said(until: str, said: str) -> None:
    with pytest.raises(SettingError, match=said):
        behind(a_run(), until)


@pytest.mark.parametrize("protocol", ["chandy-lamport", "observer", "aligned-barrier"])
def test_a_call_of_the_program_that_is_in_flight_is_made_there(protocol: str) -> None:
    called = trace(
        *born("a", 10), *born("b", 5), ("driver", "send", [], [mail("target", "a", 1, "pay", B, 3, kind="call")])
    )
    moment = behind(called, "driver:3")
    run = testing.simulate(moment, protocol=protocol)
    assert (run.machines["a"].coins, run.machines["b"].coins) == (7, 8)
    assert testing.explore(moment).complete


def test_what_differs_from_the_trace_is_no_beginning() -> None:
    rows = a_run()
    rows[7]["sent"][0]["args"] = [4, 0]
    rows[9]["accepted"][0]["args"] = [4, 0]
    with pytest.raises(DiffersError, match="action 2 of a"):
        behind(rows, "a:2")


def test_a_history_without_a_trace_says_how_to_get_one(tmp_path: Path) -> None:
    with HistoryWriter(tmp_path) as writer:
        writer.add(rs.Snapshot.from_rows(machines=[{"machine": "a"}]))
    with pytest.raises(HistoryNotFoundError, match="trace=True"):
        testing.from_trace(tmp_path, "latest", "a:1")


@pytest.mark.ray
@pytest.mark.nightly
def test_a_run_on_ray_is_left_at_any_action_and_its_end_is_among_what_can_happen(
    ray_cluster: None, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    history = tmp_path / "history"
    with rs.System("traced", history=history, trace=True, detectors=[]) as system:
        a, b = system.spawn_many(Till, args=[(5,), (5,)], names=["a", "b"])
        system.start()
        for amount in (1, 2, 3):
            a.pay.send(b, amount)
        a.hire.send("c", 1)
        system.wait_for("termination", timeout=60)
        system.snapshot()
    for until in ("a:1", "a:3", "driver:4", "b:2"):
        found = testing.from_trace(history, "latest", until)
        asked = testing.explore(found, eventually=[detectors.Termination()])
        assert (asked.ok, asked.complete) == (True, True)
    whole = testing.simulate(testing.from_trace(history, "latest", "a:5"))
    assert {name: machine.coins for name, machine in whole.machines.items()} == {"a": -2, "b": 11, "c": 1}
    words = [str(history), "latest", "--until", "a:2"]
    monkeypatch.setattr(sys, "stdin", io.StringIO("q\n"))
    assert cli.main(["explore", "--by-hand", "--from", *words, "--module", "moment_machines"]) == 0
    assert "behind action 2 of a" in capsys.readouterr().out
    assert cli.main(["explore", "--from", *words, "--module", "moment_machines", "--reach", "termination"]) == 0
    assert cli.main(["explore", "--from", *words[:2], "--trust"]) == 2
    assert "they go with --until" in capsys.readouterr().err
