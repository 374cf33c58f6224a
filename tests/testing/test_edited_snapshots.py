"""An edited snapshot: what it becomes, what is written of the edit, and what cannot be edited."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from checkpointed import RUN_ID, handle, record
from moment_machines import Till

import ray_snapshot as rs
from ray_snapshot import detectors, testing
from ray_snapshot.errors import CheckpointError, NotRestorableError, SettingError, UnknownMachineError
from ray_snapshot.history import checkpoints
from ray_snapshot.testing.stage import RUN


def till(amount: int, peer: Any = None) -> tuple[type, Any]:
    return Till, {"coins": amount, "peer": peer, "paid_at": None}


@pytest.fixture
def tills(tmp_path: Path) -> tuple[Path, str]:
    messages = [("a", "b", "take", (2,)), ("a", "b", "take", (4,)), ("b", "a", "take", (1,), 2.5)]
    return tmp_path / "h", record(tmp_path / "h", {"a": till(3, handle("b")), "b": till(5)}, messages)


@pytest.fixture(scope="module")
def untouched(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The same, for those who write nothing."""
    history = tmp_path_factory.mktemp("untouched") / "h"
    messages = [("a", "b", "take", (2,)), ("a", "b", "take", (4,))]
    return history, record(history, {"a": till(3), "b": till(5)}, messages)


def ends(history: Path, snapshot_id: str) -> dict[str, int]:
    run = testing.simulate(testing.from_snapshot(history, snapshot_id))
    return {name: machine.coins for name, machine in run.machines.items()}


def test_a_state_a_dropped_and_an_added_message_lead_elsewhere(tills: tuple[Path, str]) -> None:
    history, snapshot_id = tills
    snapshot = rs.History(history).load(snapshot_id)
    edited = testing.edit(
        history, snapshot_id,
        states={"a": lambda state: {**state, "coins": 100}},
        drop=[snapshot.channels["a", "b"].messages[0], {"source": "b", "target": "a", "number": 1, "kind": "timer"}],
        add=[
            {"source": "a", "target": "b", "method": "take", "args": [10], "kwargs": {"hops": 0}},
            {"source": "driver", "target": "a", "method": "pay", "args": [testing.handle("b"), 30]},
            {"source": "a", "target": "a", "method": "take", "args": [1], "kind": "timer", "seconds": 4},
        ],
    )  # fmt: skip
    assert ends(history, snapshot_id) == {"a": 4, "b": 11}
    assert ends(history, edited) == {"a": 71, "b": 5 + 4 + 10 + 30}
    whole = b"".join(checkpoints.read(history, edited, checkpoints.checkpoint_key()).sections)
    assert RUN.encode() not in whole  # a restore on Ray knows the recorded run's machines alone
    found = testing.from_snapshot(history, edited)
    assert [one.args for one in found.flying if (one.source, one.target) == ("a", "b")] == [(4,), (10,)]


def test_a_machine_at_rest_is_edited_as_any_other(tmp_path: Path) -> None:
    history = tmp_path / "h"
    tills, messages = {"a": till(3, handle("b")), "b": till(5), "c": till(1)}, [("a", "b", "take", (2,))]
    snapshot_id = record(history, tills, messages, at_rest=["a", "c"])
    edited = testing.edit(history, snapshot_id, states={"c": lambda state: {**state, "coins": 100}})
    assert ends(history, snapshot_id) == {"a": 3, "b": 7, "c": 1}
    assert ends(history, edited) == {"a": 3, "b": 7, "c": 100}


def test_what_was_edited_is_written_where_every_reader_finds_it(tills: tuple[Path, str]) -> None:
    history, snapshot_id = tills
    drop = [{"source": "a", "target": "b", "number": 1}]
    one = testing.edit(
        history, snapshot_id, states={"b": lambda state: state.update(coins=0)}, note="what if b is poor"
    )
    two = testing.edit(history, one, drop=drop, add=[{"source": "b", "target": "a", "method": "take", "args": [7]}])
    first, second = (rs.History(history).load(each) for each in (one, two))
    before, after = '{"coins":5,"peer":null,"paid_at":null}', '{"coins":0,"peer":null,"paid_at":null}'
    assert first.coverage["edited"] == {
        "from": snapshot_id, "changes": [f"state of b: {before} -> {after}"], "note": "what if b is poor",
    }  # fmt: skip
    assert second.coverage["edited"]["changes"] == [
        "dropped: take(2) from a to b (mail 1)",
        "added: take(7) from b to a",
    ]
    assert (first.restored_from, second.restored_from) == (snapshot_id, one)
    assert len({snapshot_id, one, two}) == len({RUN_ID, first.run_id, second.run_id}) == 3
    for edited in (first, second):
        header = checkpoints.read(history, edited.snapshot_id, checkpoints.checkpoint_key()).about
        assert header["edited"] == edited.coverage["edited"]
    assert first.machines["b"].state["coins"] == 0
    assert [message.args for message in second.messages] == [[4], [7], [1]]
    assert second.channels["a", "b"].settled_count == 1


def test_the_history_stays_right_and_its_latest_is_no_edit(tills: tuple[Path, str]) -> None:
    history, snapshot_id = tills
    testing.edit(history, "latest", states={"b": till(1)[1]})
    testing.edit(history, "latest", add=[{"source": "a", "target": "b", "method": "take", "args": [7]}])
    found = rs.History(history)
    assert [problems for _, problems in found.verify()] == [[], [], []]
    assert found.resolve("latest") == found.resolve("-1") == found.resolve(snapshot_id[:10]) == snapshot_id
    assert found.restorable() == [snapshot_id]


def test_a_verdict_on_an_edited_snapshot_is_not_true(tmp_path: Path) -> None:
    snapshot_id = record(tmp_path / "h", {"a": till(3)})
    edited = testing.edit(tmp_path / "h", snapshot_id, states={"a": till(4)[1]})
    money = detectors.TokenConservation(total=4, state="$.coins")
    found = rs.History(tmp_path / "h").load(edited)
    assert [detector.evaluate(found).holds for detector in (detectors.Termination(), money)] == [None, None]
    assert detectors.Termination().evaluate(rs.History(tmp_path / "h").load(snapshot_id)).holds is True
    assert testing.explore(testing.from_snapshot(tmp_path / "h", edited), always=[money, detectors.Termination()]).ok


def fails(state: Any) -> Any:
    return state["no such"]


@pytest.mark.parametrize(
    ("edit", "error", "said"),
    [
        ({}, SettingError, "nothing to do"),
        ({"states": {"b": till(5)[1]}}, SettingError, "nothing to do"),
        ({"states": {"z": 1}}, UnknownMachineError, "no machine 'z' in snapshot .* it has a, b"),
        ({"states": {"a": fails}}, SettingError, "the function for the state of a raised KeyError: 'no such'"),
        ({"states": {"a": (one for one in ())}}, NotRestorableError, "nothing was written"),
        ({"drop": [{"source": "a", "target": "b", "number": 9}]}, SettingError, "mail 9 .* is not in flight.*mail 1, mail 2"),
        ({"drop": [{"source": "a", "target": "b"}]}, SettingError, "lacks number"),
        ({"add": [{"source": "a", "target": "b"}]}, SettingError, "lacks method"),
        ({"add": [{"source": "z", "target": "b", "method": "take"}]}, UnknownMachineError, "no machine 'z' sends"),
        ({"add": [{"source": "a", "target": "driver", "method": "take"}]}, ValueError, "nothing can be sent to it"),
        ({"add": [{"source": "a", "target": "b", "method": "__init__"}]}, SettingError, "is no method"),
        ({"add": [{"source": "a", "target": "b", "method": "take", "seconds": 1}]}, SettingError, '"kind": "timer"'),
        ({"add": [{"source": "a", "target": "b", "method": "take", "when": 1}]}, SettingError, "has when"),
    ],
)  # fmt: skip
def test_what_is_no_edit_is_said_and_nothing_is_written(
    untouched: tuple[Path, str], edit: Any, error: type[Exception], said: str
) -> None:
    history, snapshot_id = untouched
    with pytest.raises(error, match=said):
        testing.edit(history, snapshot_id, **edit)
    assert len(rs.History(history).snapshots()) == 1
    assert len([*(history / "checkpoints").iterdir()]) == 1


def test_an_edit_needs_the_key(untouched: tuple[Path, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_SNAPSHOT_KEY", "quite another key")
    with pytest.raises(CheckpointError, match="was not written with this key"):
        testing.edit(*untouched, states={"a": {}})
