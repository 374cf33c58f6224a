"""Crashes that take all back to a snapshot, mail that comes twice, mail that overtakes: each is a search of its own."""

from __future__ import annotations

from typing import Any

import explored_machines as machines
import pytest

import ray_snapshot as rs
from ray_snapshot import detectors, testing
from ray_snapshot.errors import ScheduleError, SettingError

pytestmark = pytest.mark.contract


class Till(rs.SnapshotMixin):
    """Keeps a sum, and a list that it does not record."""

    def __init__(self) -> None:
        self.sum = 0
        self.seen: list[int] = []

    def pay(self, amount: int, to: Any = None) -> None:
        self.sum += amount
        self.seen.append(amount)
        if to is not None:
            to.pay.send(amount)

    def snapshot_state(self) -> Any:
        return {"sum": self.sum}

    def restore_state(self, state: Any) -> None:
        self.sum = state["sum"]
        self.seen = []


def tills(system: Any) -> None:
    a, b = system.spawn(Till, name="a"), system.spawn(Till, name="b")
    a.pay.send(1, b)
    a.pay.send(2, b)


def sees_what_it_counts(states: Any) -> bool:
    return all(sum(till.seen) == till.sum for till in states.values())


def test_a_hook_that_does_not_record_all_shows_where_the_past_comes_back() -> None:
    assert testing.explore(tills, always=[sees_what_it_counts], crashes=1).ok
    found = testing.explore(tills, always=[sees_what_it_counts], crashes=1, rollback=True)
    assert found.counterexample is not None, str(found)
    assert found.counterexample.steps[1:] == [
        "a accepts pay(1, b) from driver; sends pay(1) to b; sum 0 -> 1",
        "a snapshot is taken",
        "a machine crashes: all go back to the snapshot",
    ]
    again = testing.replay(tills, found.counterexample.schedule)
    assert (again.machines["a"].sum, again.machines["a"].seen) == (1, [])
    assert again.steps == found.counterexample.steps
    assert found.counterexample.svg()


def test_where_hooks_bring_all_back_nothing_is_new_and_all_comes_to_its_end() -> None:
    total = detectors.TokenConservation(total=150, state="$.balance", messages={"deposit": "$[0]"})
    found = testing.explore(
        machines.bank, always=[total], eventually=[detectors.Termination()], crashes=2, rollback=True
    )
    assert found.complete, str(found)
    once = testing.explore(machines.bank)
    assert found.ends > once.ends, "with a snapshot and without"
    seen: list[set[str]] = [set(), set()]
    for shown, more in zip(seen, ({}, {"crashes": 1, "rollback": True}), strict=True):

        def note(states: Any, shown: set[str] = shown) -> bool:
            shown.add(repr({name: machine.balance for name, machine in states.items()}))
            return True

        testing.explore(machines.bank, always=[note], **more)  # type: ignore[arg-type]
    assert seen[0] == seen[1]


class Mother(rs.SnapshotMixin):
    def __init__(self) -> None:
        self.children = 0

    def have(self) -> None:
        self.spawn(machines.Account, 0)
        self.children += 1
        self.handle.later.send_after(3)

    def later(self) -> None:
        self.children += 10


def test_machines_born_behind_the_snapshot_are_gone_and_timers_are_set_again() -> None:
    shown = set()

    def note(states: Any) -> bool:
        shown.add((states["mother"].children, len(states)))
        return True

    def build(system: Any) -> None:
        system.spawn(Mother, name="mother").have.send()

    found = testing.explore(build, always=[note], eventually=[detectors.Termination()], crashes=1, rollback=True)
    assert found.complete, str(found)
    assert shown == {(0, 1), (1, 1), (1, 2), (11, 1), (11, 2)}, "never a child without its mother's knowing"


def test_a_state_that_is_not_taken_back_is_a_counterexample_and_one_that_is_not_recorded_is_said() -> None:
    class Refusing(Till):
        def restore_state(self, state: Any) -> None:
            raise KeyError("sum")

    class Locked(Till):
        def snapshot_state(self) -> Any:
            import threading

            return threading.Lock()

    def build(kind: Any) -> Any:
        return lambda system: system.spawn(kind, name="a").pay.send(1)

    found = testing.explore(build(Refusing), crashes=1, rollback=True)
    assert found.broken == "no action raises"
    assert "a does not take its state back: KeyError: 'sum'" in found.counterexample.sentence  # type: ignore[union-attr]
    assert testing.replay(build(Refusing), found.counterexample.schedule).failure  # type: ignore[union-attr]
    found = testing.explore(build(Locked), crashes=1, rollback=True)
    assert (found.ok, found.complete) == (True, False)
    assert "a cannot be restored: what it records does not pickle (an object of type lock)" in found.why[0]


def test_no_snapshot_is_taken_while_a_machine_waits_or_a_call_is_in_flight() -> None:
    found = testing.explore(machines.asking, never=[detectors.Deadlock()], crashes=1, rollback=True,
                            eventually=[detectors.Termination()])  # fmt: skip
    assert found.complete, str(found)


class Log(rs.SnapshotMixin):
    def __init__(self) -> None:
        self.words = ""

    def word(self, word: str) -> None:
        self.words += word

    def say(self, to: Any) -> None:
        for word in "abc":
            to.word.send(word)


def talk(system: Any) -> None:
    system.spawn(Log, name="one").say.send(system.spawn(Log, name="other"))


def words(**faults: int) -> set[str]:
    shown = set()

    def note(states: Any) -> bool:
        shown.add(states["other"].words)
        return True

    assert testing.explore(talk, always=[note], **faults).complete  # type: ignore[arg-type]
    return {one for one in shown if len(one) >= 3}


def test_a_message_comes_once_more_than_it_was_sent_at_its_place() -> None:
    assert words() == {"abc"}
    whole = {"aabc", "abac", "abca", "abbc", "abcb", "abcc"}
    assert words(duplicates=1) == {"abc", "aab", "aba", "abb", *whole, "abcab", "abcabc"}, (
        "and all of it, if it is told twice"
    )
    assert "ababc" in words(duplicates=2), "as behind a restore"


def test_a_message_overtakes_those_before_it() -> None:
    assert words(overtakes=1) == {"abc", "bac", "cab", "acb"}
    assert words(overtakes=2) == {"abc", "bac", "cab", "acb", "bca", "cba"}


@pytest.mark.parametrize("fault", [{"duplicates": 1}, {"overtakes": 1}])
def test_what_goes_wrong_with_mail_replays_and_is_told(fault: dict[str, int]) -> None:
    found = testing.explore(talk, always=[lambda states: "abc".startswith(states["other"].words)], **fault)  # type: ignore[arg-type]
    assert found.counterexample is not None
    assert any("come again" in step or "before what was sent earlier" in step for step in found.counterexample.steps)
    run = testing.replay(talk, str(found.counterexample.schedule))
    assert run.steps == found.counterexample.steps
    assert found.counterexample.svg()


def test_a_join_says_that_it_was_not_tried() -> None:
    found = testing.explore(machines.joining, duplicates=1)
    assert found.ok
    assert any("Pair joins messages" in why for why in found.why)


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ({"crashes": -1}, "crashes=-1"),
        ({"duplicates": -1}, "duplicates=-1"),
        ({"rollback": True}, "say crashes=1"),
        ({"workers": 2}, "one process searches"),
        ({"workers": 0}, "one process searches"),
        ({"most_states": 0}, "most_states=0"),
    ],
)
def test_a_setting_that_is_none_is_told(setting: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingError, match=said):
        testing.explore(talk, **setting)


def test_a_schedule_whose_settings_are_none_is_told() -> None:
    found = testing.explore(talk, always=[lambda states: not states["other"].words])
    text = str(found.counterexample.schedule).replace('"crashes": 0', '"crashes": "x"')  # type: ignore[union-attr]
    with pytest.raises(ScheduleError, match="crashes"):
        testing.replay(talk, text)
