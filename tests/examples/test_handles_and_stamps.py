"""Garbage and virtual time, held against what machines went on to do; and waits for what is gone."""

import json
from typing import Any

import pytest
from roaming import roaming, timed

import ray_snapshot as rs
from ray_snapshot import Snapshot, Verdict, testing
from ray_snapshot.detectors import Deadlock, OrphanedWait, from_spec
from ray_snapshot.errors import SettingError
from ray_snapshot.examples.garbage import Garbage
from ray_snapshot.examples.virtual_time import VirtualTime

pytestmark = pytest.mark.contract

SEEDS = range(20)
UNUSED = Garbage("*")
TIME = VirtualTime(messages={"event": "$[0]"})

# ---- garbage -------------------------------------------------------------------------------------------------------


def garbage_found(seeds: Any = SEEDS) -> int:
    """Plays; what was said to be garbage must not have acted since. Returns how many were."""
    count = 0
    for seed in seeds:
        run = testing.simulate(roaming, seed=seed, snapshots=4, detectors=[UNUSED])
        assert run.failure is None, run.failure
        for snapshot, verdict in zip(run.snapshots, run.verdicts, strict=True):
            said = verdict.evidence.get("garbage", []) if verdict.holds else []
            count += len(said)
            for name in said:
                then, last = snapshot.machines[name].state["acted"], run.machines[name].acted
                assert then == last, f"seed {seed}: {name} was said to be garbage, and has acted since"
            assert set(said) == left_over(snapshot), f"seed {seed}"
    return count


def left_over(snapshot: Snapshot) -> set[str]:
    """Who is not reached, found slowly, from the rows alone."""
    if snapshot.status != "complete":
        return set()
    know = {name: json.dumps(one.state) for name, one in snapshot.machines.items()}
    for message in snapshot.messages:
        know[message.target] = know.get(message.target, "") + json.dumps(message.args)
    todo = [name for name, one in snapshot.machines.items() if one.status == "active"]
    todo += [message.target for message in snapshot.messages]
    reached: set[str] = set()
    while todo:
        name = todo.pop()
        if name not in reached:
            reached.add(name)
            todo += [other for other in snapshot.machines if f'"{other}"' in know[name]]
    return snapshot.machines.keys() - reached - {"driver"}


def test_garbage_never_acts_again_and_all_of_it_is_found() -> None:
    assert garbage_found() > 100, "hardly any was found: this shows nothing"


def machine(name: str, **more: Any) -> dict[str, Any]:
    return {"machine": name, "state": {}, **more}


def of(*machines: dict[str, Any], **more: Any) -> Snapshot:
    return Snapshot.from_rows(machines=machines, coverage={"uncovered": []}, **more)


def test_garbage_by_hand() -> None:
    rows = [
        machine("driver", status="active", state=None),
        machine("root", state={"next": {"$machine": "held"}}),
        machine("held"),
        machine('odd "name"\\', class_name="Odd"),
        machine("circle", status="blocked", waits_for=["other"], state={"on": "other"}),
        machine("other", status="blocked", waits_for=["circle"], state={"on": "circle"}),
        machine("stopped", status="stopped", state={"knows": "lost"}),
        machine("lost", class_name="Lost"),
    ]
    rest = [row["machine"] for row in rows if row["machine"] != "root"]
    said = Garbage(rest).evaluate(of(*rows))
    assert said.evidence["garbage"] == ["circle", "lost", 'odd "name"\\', "other"]
    assert said.evidence["classes"] == {"Machine": 2, "Lost": 1, "Odd": 1}
    assert said.sentence.startswith("Garbage: nobody can reach circle, lost, ")
    rows[1]["state"]["more"] = ['odd "name"\\', "lost"]
    assert Garbage(rest).evaluate(of(*rows)).evidence["garbage"] == ["circle", "other"]
    assert Garbage(rest, roots=["other"]).evaluate(of(*rows)).holds is False
    assert Garbage("*").evaluate(of(*rows)).evidence["count"] == 6
    assert Garbage("lost").evaluate(of(*rows)).holds is False, "the program may have a handle of all others"


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"coverage": {"uncovered": ["a thread"]}}, "a thread"),
        ({"status": "aborted", "abort_reason": "slow"}, "the snapshot was aborted (slow)"),
    ],
)
def test_what_was_not_seen_may_have_handles(more: dict[str, Any], words: str) -> None:
    rows = [machine("driver", status="active", state=None), machine("a")]
    said = Garbage("*").evaluate(Snapshot.from_rows(machines=rows, **{"coverage": {"uncovered": []}, **more}))
    assert said.holds is None
    assert words in said.sentence


def test_a_state_that_was_not_recorded_may_have_any_handle() -> None:
    rows = [machine("a", status="active"), machine("b")]
    taken = of(*rows)
    table = taken.tables["machines"]
    lacking = table.set_column(table.schema.get_field_index("state"), "state", [[None, "{}"]])
    said = Garbage("*").evaluate(Snapshot({**taken.tables, "machines": lacking}))
    assert (said.holds, said.evidence["unknown"]) == (None, ["the state of a was not recorded whole"])
    assert Garbage("*").evaluate(taken).holds is True


# ---- virtual time ----------------------------------------------------------------------------------------------------


def time_passed(seeds: Any = SEEDS) -> int:
    """Plays; nobody may be sent anything earlier than the time that was said. Returns how many snapshots had one."""
    count = 0
    for seed in seeds:
        run = testing.simulate(timed, seed=seed, snapshots=4, detectors=[TIME])
        assert run.failure is None, run.failure
        before = None
        for snapshot, verdict in zip(run.snapshots, run.verdicts, strict=True):
            now = verdict.evidence.get("virtual_time")
            assert now == slow_time(snapshot), f"seed {seed}"
            if now is None:
                continue
            count += 1
            assert before is None or (now >= before and verdict.holds is True), f"seed {seed}: {verdict.sentence}"
            before = now
            for name, one in snapshot.machines.items():
                done = len(one.state["seen"]) if one.state else 0
                later = run.machines[name].seen[done:] if name != "driver" else []
                assert all(stamp >= now for stamp in later), f"seed {seed}: {name} was sent {later} after {now}"
    return count


def slow_time(snapshot: Snapshot) -> int | None:
    clocks = [one.state["clock"] for one in snapshot.machines.values() if one.state]
    clocks += [message.args[0] for message in snapshot.messages if message.method == "event"]
    return min((clock for clock in clocks if clock is not None), default=None)


def test_nobody_is_sent_anything_earlier_than_virtual_time() -> None:
    assert time_passed() > 60, "in hardly any snapshot was there a stamp: this shows nothing"


def stamped(*clocks: Any, stamps: Any = ()) -> Snapshot:
    messages = [{"source": "m0", "target": "m1", "method": "event", "args": [stamp]} for stamp in stamps]
    rows = [machine(f"m{at}", state={"clock": clock}) for at, clock in enumerate(clocks)]
    return of(*rows, messages=messages)


@pytest.mark.parametrize(
    ("snapshot", "holds", "words"),
    [
        (stamped(5, None, 7), True, "Virtual time is 5 (m0)."),
        (stamped(5, 6, stamps=[2.5]), False, "it is 2.5 (the message event from m0 to m1)"),
        (stamped(4, 4, 9), False, "Virtual time has not come to 5: it is 4 (m0)."),
        (stamped(None, None), True, "there is no stamp"),
        (stamped("soon", 7), None, "m0: there is 'soon' where its time should be"),
        (stamped("soon", 3), False, "it is 3 (m1)"),
        (stamped(7, 7, stamps=[None]), None, "there is None where its time should be"),
    ],
)
def test_a_time_to_reach(snapshot: Snapshot, holds: bool | None, words: str) -> None:
    said = VirtualTime(5, messages={"event": "$[0]"}).evaluate(snapshot)
    assert (said.holds, said.alarm) == (holds, False)
    assert words in said.sentence


def test_that_it_goes_back_is_an_alarm() -> None:
    item = VirtualTime()
    assert item.evaluate(stamped(5, 8)).holds is None
    assert item.evaluate(stamped(6, 8), earlier=stamped(5, 8)).holds is True
    said = item.evaluate(stamped(4, 8), earlier=stamped(5, 8))
    assert (said.holds, said.alarm) == (False, True)
    assert said.sentence == "Virtual time has gone back: from 5 to 4 (m0)."


def test_a_time_is_a_number() -> None:
    with pytest.raises(SettingError, match="it is a number"):
        VirtualTime("soon")  # type: ignore[arg-type]


# ---- waits for what is gone --------------------------------------------------------------------------------------------


def waiting(mode: str, k: int | None, stopped: tuple[str, ...], coming: tuple[str, ...] = ()) -> Verdict:
    rows = [machine("w", waits_for=["a", "b", "c"], wait_mode=mode, wait_k=k), machine("x", waits_for=["w"])]
    rows += [machine(name, status="stopped" if name in stopped else "passive") for name in "abc"]
    messages = [{"source": name, "target": "w", "method": "go"} for name in coming]
    return OrphanedWait().evaluate(of(*rows, messages=messages))


@pytest.mark.parametrize(
    ("mode", "k", "stopped", "coming", "holds"),
    [
        ("all", 3, (), (), False),
        ("all", 3, ("b",), (), True),
        ("all", 3, ("b",), ("b",), False),
        ("any", 1, ("a", "b"), (), False),
        ("any", 1, ("a", "b", "c"), (), True),
        ("any", 1, ("a", "b", "c"), ("c",), False),
        ("k_of_n", 2, ("a",), (), False),
        ("k_of_n", 2, ("a", "b"), (), True),
        ("k_of_n", 2, ("a", "b"), ("a",), False),
    ],
)
def test_a_wait_is_orphaned_if_too_few_are_left(
    mode: str, k: int, stopped: tuple[str, ...], coming: tuple[str, ...], holds: bool
) -> None:
    said = waiting(mode, k, stopped, coming)
    assert (said.holds, said.alarm) == (holds, holds)
    if holds:
        assert said.evidence["orphans"] == [{"machine": "w", "waits_for": ["a", "b", "c"], "gone": sorted(stopped)}]
        assert said.sentence == f"1 wait for what is gone: w waits for {', '.join(sorted(stopped))}, stopped."


def test_an_orphan_is_deadlocked_and_who_waits_for_it_is_not_named() -> None:
    rows = [machine("w", waits_for=["a"]), machine("x", waits_for=["w"]), machine("a", status="stopped")]
    taken = of(*rows)
    stuck = Deadlock().evaluate(taken).evidence
    assert {row["machine"] for row in (*stuck["members"], *stuck["stuck_behind"])} == {"w", "x"}
    assert [one["machine"] for one in OrphanedWait().evaluate(taken).evidence["orphans"]] == ["w"]


def test_a_wait_that_ends_by_itself_is_no_orphan() -> None:
    rows = [machine("w", status="blocked"), machine("a", status="stopped")]
    wait = {"machine": "w", "on_machine": "a", "k": 1, "satisfied": False}
    assert OrphanedWait().evaluate(of(*rows, waits=[wait])).holds is True
    timed_wait = {**wait, "timeout_at": of().started_at}
    assert OrphanedWait().evaluate(of(*rows, waits=[timed_wait])).holds is False


@pytest.mark.parametrize("item", [UNUSED, TIME, VirtualTime(3), OrphanedWait(name="o"), Garbage("b*", roots=["a"])])
def test_they_are_data(item: Any) -> None:
    assert from_spec(json.loads(json.dumps(item.spec))).spec == item.spec
    assert repr(item).startswith(type(item).__name__)


# ---- on Ray -------------------------------------------------------------------------------------------------------------


class Child(rs.SnapshotMixin):
    """Does nothing."""


class Parent(rs.SnapshotMixin):
    def __init__(self) -> None:
        self.kept: Any = None

    def make(self) -> None:
        self.kept = self.spawn(Child, name="kept-child")
        self.spawn(Child, name="lost-child")


@pytest.mark.ray
@pytest.mark.usefixtures("ray_cluster")
@pytest.mark.nightly
def test_what_the_program_has_made_is_its_own_and_a_child_that_nobody_keeps_is_garbage() -> None:
    with rs.System("family", detectors=[]) as system:
        parent, *_ = system.spawn_many(Parent, count=3)
        system.start()
        parent.make.send()
        system.wait_for("termination", timeout=60)
        taken = system.snapshot()
        assert Garbage("*-child").evaluate(taken).evidence["garbage"] == ["lost-child"]
        assert Garbage("kept-*").evaluate(taken).holds is False
