"""Termination of a group of machines, by hand: quiet is not enough, somebody outside may still send."""

from typing import Any

import pytest

from ray_snapshot import SettingError, Snapshot, Verdict
from ray_snapshot.detectors import Termination

pytestmark = pytest.mark.contract

QUIET = [{"machine": "w-1"}, {"machine": "w-2"}]
BUSY = {"machine": "other", "status": "active"}


def judged(recorded: list[dict[str, Any]], /, *messages: tuple[str, str], waits: Any = (), **settings: Any) -> Verdict:
    snapshot = Snapshot.from_rows(
        machines=recorded,
        messages=[{"source": source, "target": target} for source, target in messages],
        waits=waits,
        coverage={"uncovered": settings.pop("uncovered", [])},
    )
    return Termination(**{"machines": ["w-*"], **settings}).evaluate(snapshot)


def wakes(source: str, *targets: str) -> list[dict[str, Any]]:
    return [{"machine": target, "on_machine": source, "satisfied": False} for target in targets]


def test_a_quiet_group_in_a_quiet_system_has_terminated_though_others_are_stuck() -> None:
    assert judged([*QUIET, {"machine": "other"}]).holds is True
    stuck = [{"machine": "x", "waits_for": ["y"]}, {"machine": "y", "waits_for": ["x"]}]
    verdict = judged([*QUIET, *stuck])
    assert verdict.holds is True
    assert verdict.sentence == "w-* terminated: 2 machines passive or stopped, and none is left that could wake them."


@pytest.mark.parametrize(
    ("machines", "messages"),
    [
        ([{"machine": "w-1", "status": "active"}], []),
        ([{"machine": "w-1", "waits_for": ["w-2"]}], []),
        ([{"machine": "w-1"}], [("other", "w-1")]),
        ([{"machine": "w-1"}], [("other", "w-9")]),
    ],
    ids=["active", "blocked", "in flight", "in flight to one not born yet"],
)
def test_a_group_is_not_done_while_a_member_acts_waits_or_has_something_coming(machines: Any, messages: Any) -> None:
    assert judged([*machines, {"machine": "other"}], *messages).holds is False


def test_somebody_outside_who_can_act_may_send_to_it() -> None:
    verdict = judged([*QUIET, BUSY])
    assert verdict.holds is None
    assert verdict.evidence["could_be_woken_by"] == ["other"]
    assert judged([*QUIET, {"machine": "p"}, {"machine": "q"}], ("p", "q")).evidence["could_be_woken_by"] == ["q"]


def test_what_goes_to_a_stopped_member_is_no_work_and_a_stopped_group_is_done_whatever_others_do() -> None:
    stopped = [{**row, "status": "stopped"} for row in QUIET]
    assert judged([*stopped, BUSY], ("other", "w-1")).holds is True


def test_declared_inputs_say_who_may_wake_it() -> None:
    boss = {"machine": "boss", "status": "stopped"}
    assert judged([*QUIET, boss, BUSY], waits=wakes("boss", "w-1", "w-2")).holds is True
    assert judged([*QUIET, {"machine": "boss"}, BUSY], waits=wakes("boss", "w-1", "w-2")).holds is None
    at_rest = wakes("boss", "w-1", "w-2") + wakes("w-1", "boss")
    assert judged([*QUIET, {"machine": "boss"}, BUSY], waits=at_rest).holds is True, "only the workers wake the boss"


def test_a_source_that_can_move_may_leave_half_a_join_there_even_if_that_is_not_enough_to_act() -> None:
    both = [{"machine": "w-1", "on_machine": name, "k": 2, "satisfied": False} for name in ("other", "gone")]
    verdict = judged([{"machine": "w-1"}, BUSY, {"machine": "gone", "status": "stopped"}], waits=both)
    assert (verdict.holds, verdict.evidence["could_be_woken_by"]) == (None, ["other"])


def test_so_do_the_senders_that_are_named() -> None:
    boss = {"machine": "boss", "status": "stopped"}
    assert judged([*QUIET, BUSY], senders=[]).holds is True
    assert judged([*QUIET, boss, BUSY], senders=["boss"]).holds is True
    assert judged([*QUIET, {"machine": "boss"}, BUSY], senders="boss").evidence["could_be_woken_by"] == ["boss"]
    assert judged([*QUIET, BUSY], senders=["boss"]).holds is None, "the boss may still be born"
    assert judged([*QUIET, {"machine": "boss"}], senders=["boss"]).holds is True, "nobody is left to wake the boss"


def test_what_was_not_observed_may_send_to_it_unless_the_senders_are_named() -> None:
    assert judged(QUIET, uncovered=["plain tasks"]).evidence["could_be_woken_by"] == ["plain tasks"]
    assert judged(QUIET, uncovered=["plain tasks"], senders=[]).holds is True


def test_of_a_machine_that_is_not_recorded_nothing_is_known() -> None:
    verdict = judged(QUIET, machines=["w-1", "w-3"])
    assert (verdict.holds, verdict.evidence["absent"]) == (None, ["w-3"])
    assert judged(QUIET, machines="x-*").holds is None


def test_exact_names_make_it_stable_and_patterns_do_not() -> None:
    assert Termination(machines=["w-1", "w-2"]).stable is True
    assert Termination(machines="w-?").stable is False
    assert Termination(machines=["w-1"], senders="boss*").stable is False
    assert Termination().stable is True


def test_a_pattern_is_no_regular_expression() -> None:
    machines = [{"machine": "w.1"}, {"machine": "wx1", "status": "active"}]
    assert judged(machines, machines="w.?", senders=[]).holds is True


@pytest.mark.parametrize("given", [[], "", [""], 3])
def test_a_group_needs_names(given: Any) -> None:
    with pytest.raises(SettingError):
        Termination(machines=given)
    with pytest.raises(SettingError, match="whose termination"):
        Termination(senders=["boss"])
