"""Deadlocks that one can check by looking at them."""

import sys
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from calls_by_hand import table
from clean import ran
from waiting_game import BEFORE, LATER, NOW

import ray_snapshot as rs
from ray_snapshot import Wait
from ray_snapshot.detectors import Deadlock


def blocked(name: str, mode: str, *on: str, k: int | None = None, **more: Any) -> dict[str, Any]:
    return {"machine": name, "status": "blocked", "wait_mode": mode, "wait_k": k, "waits_for": list(on), **more}


def idle(name: str, status: str = "passive") -> dict[str, Any]:
    return {"machine": name, "status": status}


def rows_of(name: str, wait: Wait, **more: Any) -> list[dict[str, Any]]:
    """The rows of `waits` for a wait made by `all_of`, `any_of` and `at_least`."""
    return [
        {"machine": name, "alternative": number, "k": alternative.k, "on_machine": on, **more}
        for number, alternative in enumerate(wait.alternatives)
        for on in alternative.on
    ]


def judge(*machines: dict[str, Any], **tables: Any) -> rs.Verdict:
    return Deadlock().evaluate(rs.Snapshot.from_rows(machines=machines, started_at=NOW, **tables))


def members(verdict: rs.Verdict) -> list[str]:
    return [record["machine"] for record in verdict.evidence["members"]]


def behind(verdict: rs.Verdict) -> list[str]:
    return [record["machine"] for record in verdict.evidence["stuck_behind"]]


@pytest.mark.contract
def test_two_machines_that_wait_for_each_other_are_named_with_their_calls() -> None:
    verdict = judge(
        blocked("a", "all", "b", class_name="Account"),
        blocked("b", "all", "a", class_name="Account"),
        blocked("driver", "all", "a"),
        calls=[{"machine": "a", "method": "transfer", "call_site": "bank.py:12"}],
    )
    assert verdict.holds is True
    assert verdict.alarm
    assert verdict.evidence["members"] == [
        {
            "machine": "a",
            "class": "Account",
            "method": "transfer",
            "call_site": "bank.py:12",
            "waits_for": ["b"],
            "mode": "all",
        },
        {"machine": "b", "class": "Account", "method": None, "call_site": None, "waits_for": ["a"], "mode": "all"},
    ]
    assert behind(verdict) == ["driver"]
    assert verdict.evidence["cycle"] == ["a", "b"]
    assert verdict.sentence == (
        "Deadlock: a (Account.transfer at bank.py:12) waits for b, b waits for a;"
        " 2 machines can never move again; 1 more is stuck behind them (driver)."
    )


@pytest.mark.contract
def test_five_philosophers_and_their_forks_are_one_cycle() -> None:
    philosophers = [blocked(f"philosopher-{seat}", "all", f"fork-{(seat + 1) % 5}") for seat in range(5)]
    forks = [blocked(f"fork-{seat}", "any", f"philosopher-{seat}") for seat in range(5)]
    verdict = judge(*philosophers, *forks, blocked("waiter", "all", "philosopher-3"))
    assert verdict.holds is True
    assert len(members(verdict)) == len(verdict.evidence["cycle"]) == 10
    assert behind(verdict) == ["waiter"]
    assert verdict.sentence.startswith("Deadlock: philosopher-0 waits for fork-1, fork-1 waits for philosopher-1, ")
    assert "and so on round a cycle of 10" in verdict.sentence


@pytest.mark.contract
def test_nobody_blocked_is_no_deadlock_even_if_nothing_will_ever_happen() -> None:
    verdict = judge(idle("a"), idle("b"), idle("c", "stopped"))
    assert verdict.holds is False
    assert verdict.sentence == "No deadlock: no machine is blocked."


@pytest.mark.contract
def test_a_machine_that_waits_for_a_working_one_is_not_deadlocked() -> None:
    assert judge(blocked("a", "all", "b"), idle("b", "active")).holds is False


@pytest.mark.contract
def test_a_cycle_of_any_waits_with_an_exit_is_none_and_without_it_a_knot() -> None:
    ring = [blocked("a", "any", "b", "exit"), blocked("b", "any", "a")]
    assert judge(*ring, idle("exit", "active")).holds is False
    verdict = judge(*ring, blocked("exit", "any", "a"))
    assert verdict.holds is True
    assert sorted(members(verdict)) == ["a", "b", "exit"]
    assert verdict.evidence["members"][0]["mode"] == "any"
    assert "a waits for any of b, exit" in verdict.sentence


@pytest.mark.contract
def test_an_all_wait_needs_everybody_and_an_all_cycle_has_no_exit() -> None:
    ring = [blocked("a", "all", "b", "exit"), blocked("b", "all", "a")]
    assert judge(*ring, idle("exit", "active")).holds is True


@pytest.mark.contract
@pytest.mark.parametrize(("k", "holds"), [(1, False), (2, False), (3, True)])
def test_k_of_n_holds_exactly_if_fewer_than_k_can_answer(k: int, holds: bool) -> None:
    machines = [blocked("a", "k_of_n", "b", "c", "d", k=k), idle("b", "active"), idle("c", "active")]
    assert judge(*machines, blocked("d", "all", "a")).holds is holds


@pytest.mark.contract
def test_a_k_of_n_wait_that_asks_for_more_than_there_are_can_never_be_met() -> None:
    waits = [{"machine": "a", "k": 3, "on_machine": name} for name in ("b", "c")]
    verdict = judge(idle("a", "blocked"), idle("b", "active"), idle("c", "active"), waits=waits)
    assert verdict.holds is True
    assert verdict.evidence["members"][0]["k"] == 3
    assert "a waits for 3 of b, c, and so many can never come" in verdict.sentence


@pytest.mark.contract
def test_nested_waits_are_decided_by_each_of_their_alternatives() -> None:
    wait = rs.any_of(rs.all_of("b", "c"), "d")
    stuck = [idle("a", "blocked"), blocked("c", "all", "a"), blocked("d", "all", "a"), idle("b", "active")]
    verdict = judge(*stuck, waits=rows_of("a", wait))
    assert verdict.holds is True
    assert verdict.evidence["members"][0] == {
        "machine": "a",
        "class": "Machine",
        "method": None,
        "call_site": None,
        "waits_for": ["d", "b", "c"],
        "mode": "any",
        "alternatives": [{"k": 2, "of": ["b", "c"]}],
    }
    free = [idle("a", "blocked"), blocked("c", "any", "b"), blocked("d", "all", "a"), idle("b", "active")]
    assert judge(*free, waits=rows_of("a", wait)).holds is False


@pytest.mark.contract
def test_all_of_nested_any_is_decided_as_a_conjunction() -> None:
    wait = rs.all_of(rs.any_of("b", "c"), rs.at_least(2, "d", "e", "f"))
    active = [idle(name, "active") for name in ("b", "d")]
    stuck = [
        idle("a", "blocked"),
        *active,
        blocked("c", "all", "a"),
        blocked("e", "all", "a"),
        blocked("f", "all", "a"),
    ]
    assert judge(*stuck, waits=rows_of("a", wait)).holds is True
    stuck[-1] = idle("f", "active")
    assert judge(*stuck, waits=rows_of("a", wait)).holds is False


@pytest.mark.contract
def test_a_message_in_flight_from_the_awaited_machine_dissolves_the_cycle() -> None:
    ring = [blocked("a", "all", "b"), blocked("b", "all", "a")]
    assert judge(*ring, messages=[{"source": "b", "target": "a"}]).holds is False
    assert judge(*ring, messages=[{"source": "c", "target": "a"}]).holds is True


@pytest.mark.contract
def test_satisfied_that_was_not_recorded_is_looked_up_in_the_messages() -> None:
    ring = [blocked("a", "all", "b"), blocked("b", "all", "a")]
    snapshot = rs.Snapshot.from_rows(machines=ring, messages=[{"source": "b", "target": "a"}])
    waits = snapshot.tables["waits"]
    column = waits.schema.get_field_index("satisfied")
    bare = waits.set_column(column, "satisfied", pa.nulls(len(waits), pa.bool_()))
    assert Deadlock().evaluate(rs.Snapshot({**snapshot.tables, "waits": bare})).holds is False
    known = waits.set_column(column, "satisfied", pa.array([False] * len(waits)))
    assert Deadlock().evaluate(rs.Snapshot({**snapshot.tables, "waits": known})).holds is True


@pytest.mark.contract
def test_senders_at_full_mailboxes_round_a_ring_are_a_deadlock_although_messages_are_in_flight() -> None:
    names = ["a", "b", "c"]
    pairs = list(zip(names, names[1:] + names[:1], strict=True))
    full = [{"source": one, "target": other} for one, other in pairs for _ in range(3)]
    waits = [{"machine": one, "k": 1, "on_machine": other, "satisfied": False} for one, other in pairs]
    verdict = judge(*(idle(name, "blocked") for name in names), waits=waits, messages=full)
    assert verdict.holds is True
    assert members(verdict) == names


@pytest.mark.contract
def test_a_sender_at_the_full_mailbox_of_a_passive_machine_will_get_on() -> None:
    full = [{"source": "a", "target": "b"}] * 3
    waits = [{"machine": "a", "k": 1, "on_machine": "b", "satisfied": False}]
    assert judge(idle("a", "blocked"), idle("b"), waits=waits, messages=full).holds is False


@pytest.mark.contract
def test_waiting_for_a_passive_machine_that_nobody_is_left_to_wake_is_a_deadlock() -> None:
    verdict = judge(blocked("a", "all", "b"), idle("b"))
    assert verdict.holds is True
    assert members(verdict) == ["a"]
    assert verdict.evidence["cycle"] == []
    assert "a waits for b (b is passive, and nothing is left to wake it)" in verdict.sentence
    assert judge(blocked("a", "all", "b"), idle("b"), idle("c", "active")).holds is False
    assert judge(blocked("a", "all", "b"), idle("b"), messages=[{"source": "a", "target": "b"}]).holds is False


@pytest.mark.contract
def test_those_who_wait_for_passive_machines_are_one_core_and_others_are_behind_it() -> None:
    verdict = judge(blocked("a", "all", "x"), blocked("b", "all", "y"), idle("x"), idle("y"), blocked("c", "all", "a"))
    assert verdict.evidence["cores"] == [["a", "b"]]
    assert behind(verdict) == ["c"]


@pytest.mark.contract
def test_waiting_for_a_stopped_machine_is_a_deadlock_even_with_a_message_for_it() -> None:
    verdict = judge(
        blocked("a", "all", "b"), idle("b", "stopped"), idle("c", "active"), messages=[{"source": "a", "target": "b"}]
    )
    assert verdict.holds is True
    assert "a waits for b (b is stopped); 1 machine can never move again" in verdict.sentence


@pytest.mark.contract
def test_independent_cores_are_told_apart_and_each_is_listed() -> None:
    verdict = judge(
        blocked("c", "all", "d"), blocked("a", "all", "b"), blocked("d", "all", "c"), blocked("b", "all", "a")
    )
    assert verdict.evidence["cores"] == [["c", "d"], ["a", "b"]]
    assert verdict.evidence["core_count"] == 2
    assert "4 machines can never move again, in 2 independent cores" in verdict.sentence


@pytest.mark.contract
def test_a_machine_that_waits_for_itself_is_a_cycle_of_one() -> None:
    assert judge(blocked("a", "all", "a")).evidence["cycle"] == ["a"]


@pytest.mark.contract
@pytest.mark.parametrize(("due_at", "holds"), [(LATER, False), (None, False), (BEFORE, True)])
def test_a_pending_timer_lets_a_blocked_machine_move_but_one_long_due_lies_in_its_mailbox(
    due_at: Any, holds: bool
) -> None:
    timer = {"source": "a", "target": "a", "kind": "timer", "due_at": due_at}
    assert judge(blocked("a", "all", "b"), blocked("b", "all", "a"), messages=[timer]).holds is holds


@pytest.mark.contract
def test_a_pending_timer_does_nothing_to_who_is_inside_an_action() -> None:
    """It lies in the mailbox until the action is over, which it never is."""
    timer = {"source": "a", "target": "a", "kind": "timer", "due_at": LATER}
    both = blocked("a", "all", "b"), blocked("b", "all", "a")
    assert judge(*both, messages=[timer]).holds is False
    assert judge(*both, messages=[timer], calls=[{"machine": "a", "method": "act", "holds_slot": True}]).holds is True


@pytest.mark.contract
def test_a_wait_with_a_timeout_ends_by_itself() -> None:
    waits = [{"machine": "a", "on_machine": "b", "timeout_at": LATER}, {"machine": "b", "on_machine": "a"}]
    assert judge(idle("a", "blocked"), idle("b", "blocked"), waits=waits).holds is False


@pytest.mark.contract
def test_two_waits_of_one_machine_in_two_calls_are_alternatives() -> None:
    waits = [
        {"machine": "a", "call_id": "1", "k": 2, "on_machine": "b"},
        {"machine": "a", "call_id": "1", "k": 2, "on_machine": "d"},
        {"machine": "a", "call_id": "2", "k": 1, "on_machine": "c"},
        {"machine": "b", "call_id": "3", "k": 1, "on_machine": "a"},
    ]
    machines = [idle("a", "blocked"), idle("b", "blocked"), idle("d", "stopped")]
    assert judge(*machines, idle("c", "active"), waits=waits).holds is False
    assert judge(*machines, idle("c", "active"), waits=waits[:2] + waits[3:]).holds is True
    assert judge(*machines, idle("c", "stopped"), waits=waits).holds is True


@pytest.mark.contract
def test_where_k_was_not_recorded_every_row_is_needed() -> None:
    waits = [{"machine": "a", "k": None, "on_machine": name} for name in ("b", "c")]
    machines = [idle("a", "blocked"), idle("b", "active")]
    assert judge(*machines, idle("c", "active"), waits=waits).holds is False
    assert judge(*machines, idle("c", "stopped"), waits=waits).holds is True


@pytest.mark.contract
def test_of_several_calls_one_that_holds_a_slot_is_named() -> None:
    calls = [{"machine": "a", "method": name, "holds_slot": name == "works"} for name in ("queued", "works", "later")]
    verdict = judge(blocked("a", "all", "a"), calls=calls)
    assert verdict.evidence["members"][0]["method"] == "works"


@pytest.mark.contract
def test_what_was_not_observed_can_wake_the_passive_but_not_answer_for_others() -> None:
    plain_tasks = {"uncovered": ["plain tasks"]}
    unsure = judge(blocked("a", "all", "b"), idle("b"), coverage=plain_tasks)
    assert unsure.holds is None
    assert unsure.evidence["depends_on"] == ["plain tasks"]
    assert members(unsure) == ["a"]
    assert "a can move only by what was not observed: plain tasks" in unsure.sentence
    sure = judge(
        blocked("a", "all", "b"), blocked("b", "all", "a"), blocked("c", "all", "d"), idle("d"), coverage=plain_tasks
    )
    assert sure.holds is True
    assert members(sure) == ["a", "b"]
    assert behind(sure) == []


@pytest.mark.contract
@pytest.mark.parametrize("item", ["b", {"machine": "b", "what": "background threads"}])
def test_a_machine_that_coverage_names_may_move(item: Any) -> None:
    machines = [blocked("a", "all", "b"), blocked("b", "all", "a")]
    assert judge(*machines, coverage={"uncovered": [item]}).holds is None


@pytest.mark.contract
def test_coverage_that_was_never_stated_counts_as_nothing_covered() -> None:
    assert judge(blocked("a", "all", "b"), idle("b"), coverage={}).holds is None


@pytest.mark.contract
def test_a_wait_for_a_machine_that_was_not_recorded_cannot_be_told() -> None:
    verdict = judge(blocked("a", "all", "ghost"))
    assert verdict.holds is None
    assert verdict.evidence["depends_on"] == ["ghost, which is waited for but not recorded"]


def birth(name: str, **changed: Any) -> dict[str, Any]:
    return {"source": "driver", "target": name, "kind": "mail", "number": 0, "method": "__init__", **changed}


@pytest.mark.contract
def test_a_machine_that_is_about_to_be_born_will_act() -> None:
    """It is a message in flight; whatever its constructor does, somebody who waits for it is not stuck yet."""
    stuck = [blocked("a", "all", "b"), blocked("b", "all", "a")]
    assert judge(blocked("a", "all", "unborn"), messages=[birth("unborn")]).holds is False
    also = {"source": "driver", "target": "unborn", "kind": "mail", "number": 1, "method": "go"}
    assert judge(blocked("a", "all", "unborn"), messages=[birth("unborn"), also]).holds is False
    assert judge(*stuck, messages=[birth("unborn")]).holds is True, "it frees nobody who does not wait for it"
    assert judge(blocked("a", "all", "idle"), idle("idle"), messages=[birth("unborn")]).holds is False, "it may send"
    assert judge(blocked("a", "all", "ghost"), messages=[birth("unborn")]).holds is None
    for other in ({"number": 1}, {"kind": "timer"}):
        assert judge(blocked("a", "all", "unborn"), messages=[birth("unborn", **other)]).holds is None


@pytest.mark.contract
def test_a_blocked_machine_of_which_no_wait_was_recorded_cannot_be_told() -> None:
    verdict = judge(idle("a", "blocked"))
    assert verdict.holds is None
    assert verdict.evidence["depends_on"] == ["what a waits for"]


@pytest.mark.contract
def test_a_wait_for_something_without_a_name_cannot_be_told() -> None:
    verdict = judge(idle("a", "blocked"), waits=[{"machine": "a", "satisfied": False, "on_machine": None}])
    assert verdict.holds is None


@pytest.mark.contract
@pytest.mark.parametrize(("column", "value"), [("consistent", False), ("status", "aborted")])
def test_a_snapshot_that_is_no_consistent_cut_proves_nothing(column: str, value: Any) -> None:
    verdict = judge(blocked("a", "all", "b"), blocked("b", "all", "a"), **{column: value})
    assert verdict.holds is None
    assert not verdict.alarm


@pytest.mark.contract
def test_the_example_of_a_snapshot_by_hand() -> None:
    snapshot = rs.Snapshot.from_rows(
        machines=[
            {"machine": "a", "status": "blocked", "wait_mode": "all", "waits_for": ["b"]},
            {"machine": "b", "status": "passive"},
        ],
        messages=[{"source": "a", "target": "b", "method": "deposit", "args": [10]}],
    )
    assert Deadlock().evaluate(snapshot).holds is False


@pytest.mark.parametrize(("last", "stuck"), [("stopped", 19_999), ("active", 0)])
def test_a_chain_of_twenty_thousand_is_decided_and_its_evidence_is_bounded(last: str, stuck: int) -> None:
    size = 20_000
    names = np.array([f"m{number}" for number in range(size)])
    machines = table("machines", size, machine=names, status=["blocked"] * (size - 1) + [last])
    waits = table("waits", size - 1, machine=names[:-1], on_machine=names[1:])
    snapshots = table("snapshots", 1, snapshot_id=["s"], run_id=["r"])
    verdict = Deadlock().evaluate(rs.Snapshot({"snapshots": snapshots, "machines": machines, "waits": waits}))
    assert verdict.holds is bool(stuck)
    assert verdict.evidence["member_count"] + verdict.evidence["stuck_behind_count"] == stuck
    assert len(verdict.evidence["stuck_behind"]) == min(1_000, max(0, stuck - 1))


def test_many_freed_at_a_time_are_freed_as_one_by_one() -> None:
    """2,000 can move, each of 2,000 others waits for two of these, each of 2,000 more for one of those."""
    size = 2_000
    first, second, third = (np.array([f"{letter}{number}" for number in range(size)]) for letter in "abc")
    names = [*first, *second, *third, "odd"]
    status = ["active"] * size + ["blocked"] * (2 * size + 1)
    on = np.concatenate([first, np.roll(first, 1), second, ["odd", "b7"]])
    who = np.concatenate([second, second, third, ["odd", "odd"]])
    k = np.concatenate([np.full(2 * size, 2), np.full(size, 1), [2, 2]])
    tables = {
        "snapshots": table("snapshots", 1, snapshot_id=["s"], run_id=["r"]),
        "machines": table("machines", len(names), machine=names, status=status),
        "waits": table("waits", len(who), machine=who, on_machine=on, k=k),
    }
    verdict = Deadlock().evaluate(rs.Snapshot(tables))
    assert members(verdict) == ["odd"]
    assert behind(verdict) == []


@pytest.mark.contract
def test_the_sentence_names_up_to_five_members_that_the_cycle_does_not_name() -> None:
    def sentence(count: int) -> str:
        names = [f"p{at}" for at in range(count)]
        stuck = [blocked(name, "any", "p0" if name != "p0" else "p1", *names[2:]) for name in names]
        return Deadlock().evaluate(rs.Snapshot.from_rows(machines=stuck)).sentence

    assert "; 5 machines can never move again (p0, p1, p2, p3, p4)." in sentence(5)
    assert "; 7 machines can never move again (p0, p1, p2, p3, p4 and 2 more)." in sentence(7)
    assert sentence(2).endswith("; 2 machines can never move again.")


@pytest.mark.contract
@pytest.mark.parametrize("machines", [2, 12_000])
def test_all_that_a_deadlock_needs_is_loaded_by_warming_up(machines: int) -> None:
    script = f"""
import sys
from ray_snapshot import Snapshot
from ray_snapshot.detectors import Deadlock
names = [f"m{{at}}" for at in range({machines})]
around = zip(names, names[1:] + names[:1])
stuck = [{{"machine": a, "status": "blocked", "waits_for": [b], "wait_mode": "all"}} for a, b in around]
snapshot = Snapshot.from_rows(machines=stuck)
Deadlock().warm_up()
Deadlock().warm_up_for({machines})
before = set(sys.modules)
assert Deadlock().evaluate(snapshot).holds is True
print(sorted(set(sys.modules) - before), "scipy" in sys.modules)
"""
    found = ran(sys.executable, "-c", script)
    assert (found.stdout.strip(), found.stderr) == (f"[] {machines > 10_000}", "")
