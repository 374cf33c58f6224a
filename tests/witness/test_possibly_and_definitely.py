"""`possibly` and `definitely` of a traced run of machines."""

import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from test_blame import a_run, history_of
from witness_machines import Trace, message

import ray_snapshot as rs
from ray_snapshot import Snapshot, detectors, testing
from ray_snapshot.errors import HistoryNotFoundError, SettingError
from ray_snapshot.history import HistoryWriter

MODULES = ["witness_machines"]


def side_by_side() -> Trace:
    """a and b have 10 each; the driver gives a 5, and b 7, and takes them back: nobody hears of the other."""
    trace = Trace()
    trace.create("a", 10)
    trace.create("b", 10)
    for name, coins in (("a", 5), ("b", 7)):
        for number, amount in enumerate((coins, -coins), 1):
            trace.act("driver", "send", [], [message({"target": name}, number, "take", amount)])
            trace.act(name, "take", [message({"source": "driver"}, number, "take", amount)], [])
    return trace


@pytest.fixture
def history(tmp_path: Path) -> str:
    return history_of(tmp_path / "h", side_by_side())


def rich(purse: Any) -> bool:
    return bool(purse.coins > 10)


def both_rich(states: Any) -> bool:
    return len(states) == 2 and all(map(rich, states.values()))


@rs.detector(stable=False)
def rich_at_once(snapshot: Snapshot) -> bool:
    return len(snapshot.machines) == 2 and all(one.state["coins"] > 10 for one in snapshot.machines.values())


@pytest.mark.parametrize(
    "predicate", [{"a": rich, "b": rich}, both_rich, rich_at_once], ids=["each", "all", "detector"]
)
def test_what_no_clock_has_seen_may_have_been(history: str, predicate: Any) -> None:
    found = testing.possibly(history, "latest", predicate, modules=MODULES)
    assert found.holds is True
    assert found.cut is not None
    assert (found.cut["a"], found.cut["b"]) == (2, 2), "behind what each was given first"
    must = testing.definitely(history, "latest", predicate, modules=MODULES)
    assert must.holds is False
    assert all((cut["a"], cut["b"]) != (2, 2) for cut in must.path)


def test_money_is_conserved_on_every_cut_and_not_only_where_somebody_looked(tmp_path: Path) -> None:
    """What is in flight on a cut belongs to it."""
    history = history_of(tmp_path / "h", a_run(4, 2))

    @rs.detector(stable=False)
    def too_little(snapshot: Snapshot) -> bool:
        money = detectors.TokenConservation(total=20, state="$.coins", messages={"take": "$[0]"})
        return len(snapshot.machines) == 2 and money.evaluate(snapshot).holds is False

    found = testing.possibly(history, "latest", too_little, modules=MODULES)
    assert (found.holds, found.cut) == (False, None)
    assert found.cuts > 10
    lost = history_of(tmp_path / "lost", a_run(4, 2, method="give_less"))
    assert testing.definitely(lost, "latest", too_little, modules=MODULES).holds is True


def test_the_cut_is_drawn(history: str, tmp_path: Path) -> None:
    found = testing.possibly(history, "latest", {"a": rich, "b": rich}, modules=MODULES)
    found.diagram(tmp_path / "cut.svg")
    assert ET.parse(tmp_path / "cut.svg").getroot().tag.endswith("svg")
    none = testing.possibly(history, "latest", {"a": lambda purse: purse.coins > 99}, modules=MODULES)
    with pytest.raises(SettingError, match="there is no cut to draw"):
        none.diagram(tmp_path / "no.svg")


def test_too_many_cuts_are_no_answer(history: str) -> None:
    found = testing.possibly(history, "latest", lambda _: False, modules=MODULES, most_cuts=3)
    assert (found.holds, found.cuts) == (None, 3)


def test_what_cannot_be_asked(history: str, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="the run has no machine 'c'; it has a, b"):
        testing.possibly(history, "latest", {"c": rich}, modules=MODULES)
    with HistoryWriter(tmp_path / "bare") as writer:
        writer.add(Snapshot.from_rows(snapshot_id="20260301T120000000000Z-run-000001", run_id="run"))
    with pytest.raises(HistoryNotFoundError, match="holds no trace of run run"):
        testing.definitely(tmp_path / "bare", "latest", both_rich)


def test_where_a_detector_cannot_tell_nothing_is_said_to_be_impossible(history: str) -> None:
    @rs.detector(stable=False)
    def unsure(snapshot: Snapshot) -> Any:
        return None if len(snapshot.machines) == 1 else False

    assert testing.possibly(history, "latest", unsure, modules=MODULES).holds is None
    assert testing.definitely(history, "latest", unsure, modules=MODULES).holds is None


def given(class_name: str, coins: int) -> Trace:
    """A machine with so many coins, which is given none."""
    trace = Trace()
    trace.create("a", coins, class_name=class_name)
    trace.act("driver", "send", [], [message({"target": "a"}, 1, "take", 0)])
    trace.act("a", "take", [message({"source": "driver"}, 1, "take", 0)], [])
    return trace


@rs.detector(stable=False)
def at_rest(snapshot: Snapshot) -> bool:
    return "a" in snapshot.machines and snapshot.machines["a"].status == "passive"


def test_where_a_hook_asks_for_the_time_it_cannot_be_told_what_hangs_on_it(tmp_path: Path) -> None:
    awake = history_of(tmp_path / "awake", given("witness_machines:Drowsy", 5))
    assert testing.possibly(awake, "latest", at_rest, modules=MODULES).holds is True
    asleep = history_of(tmp_path / "asleep", given("witness_machines:Drowsy", 7))
    for ask in (testing.possibly, testing.definitely):
        found = ask(asleep, "latest", at_rest, modules=MODULES)
        assert found.holds is None
        assert found.reason is not None
        assert "a hook of a asks for the time, by self.now(), and what it was told is not in the trace" in found.reason
    assert testing.possibly(asleep, "latest", rich_alone, modules=MODULES).holds is False, "it hangs on no hook"


def two_of(class_name: str) -> Trace:
    trace = Trace()
    for name in "ab":
        trace.create(name, 7, class_name=class_name)
    for name in "ab":
        trace.act("driver", "send", [], [message({"target": name}, 1, "take", 0)])
        trace.act(name, "take", [message({"source": "driver"}, 1, "take", 0)], [])
    return trace


@rs.detector(stable=False)
def one_of_two_is_active(snapshot: Snapshot) -> bool:
    statuses = [machine.status for machine in snapshot.machines.values()]
    return statuses.count("active") == 1 and statuses.count("passive") == 1


@pytest.mark.parametrize("ask", [testing.possibly, testing.definitely])
def test_hooks_of_several_may_have_been_told_anything(ask: Any, tmp_path: Path) -> None:
    drowsy = history_of(tmp_path / "drowsy", two_of("witness_machines:Drowsy"))
    assert ask(drowsy, "latest", one_of_two_is_active, modules=MODULES).holds is None, "one of them, and not the other"
    patient = history_of(tmp_path / "patient", two_of("witness_machines:Patient"))
    for detector in (detectors.Deadlock(), one_of_two_is_active):
        found = ask(patient, "latest", detector, modules=MODULES)
        assert (found.holds, "asks for the time" in str(found.reason)) == (None, True), (
            "it may have waited for the other"
        )
    coins = detectors.TokenConservation(total=14, state="$.coins")
    assert ask(patient, "latest", coins, modules=MODULES).holds is True, "states do not hang on it"


@rs.detector(stable=False)
def rich_alone(snapshot: Snapshot) -> bool:
    return any(one.state["coins"] > 10 for one in snapshot.machines.values() if one.state)


def test_of_a_join_that_is_half_begun_it_cannot_be_told_who_sends_the_rest(tmp_path: Path) -> None:
    trace = given("witness_machines:Pairing", 5)
    trace.act("driver", "send", [], [message({"target": "a"}, 2, "left", 1)])
    found = testing.possibly(history_of(tmp_path / "h", trace), "latest", detectors.Deadlock(), modules=MODULES)
    assert found.holds is None
    assert found.reason is not None
    assert "a holds a part of a join and lacks the rest" in found.reason
    assert "lacks right" in found.reason
