"""Deadlocks of calls that wait for room on a node. The truth about small systems is found by trying every order of events
(`Played`), which shares no code with the detector."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest
from calls_by_hand import App
from hypothesis import given, settings
from hypothesis import strategies as st

import ray_snapshot as rs
from ray_snapshot.detectors import Deadlock
from ray_snapshot.detectors.pending import why_pending

NODES = ("n1", "n2")


@dataclass(frozen=True)
class Room:
    """What the coverage of an app by hand tells of resources."""

    app: App

    def __post_init__(self) -> None:
        empty: dict[str, Any] = {"demands": [], "nodes": {}, "groups": [], "holders": [], "unsure": []}
        self.told.update({**empty, **self.told})

    @property
    def told(self) -> dict[str, Any]:
        found: dict[str, Any] = self.app.coverage.setdefault("resources", {})
        return found

    def node(self, name: str, **amounts: float) -> Room:
        self.told["nodes"][name] = amounts
        return self

    def holds(self, machine: str, node: str, by: list[str] | None = None, *, checked: bool = True, **held: Any) -> Room:
        row = {"machine": machine, "node": node, "amounts": held, "by": by, "checked": checked}
        self.told["holders"].append({**row, "task": "-" not in machine or machine.startswith("task")})
        return self

    def demands(self, source: str | None, target: str, numbers: Any = None, **more: Any) -> Room:
        row = {"source": source, "target": target, "numbers": numbers, "since": 10.0, "needs": {}}
        self.told["demands"].append({**row, "group": None, "bundle": -1, "nodes": None, **more})
        return self

    def group(self, key: str, *bundles: dict[str, float], on: str = "", **more: Any) -> Room:
        row = {"group": key, "name": "", "created": bool(on), "bundles": list(bundles), "nodes": [on] * len(bundles)}
        self.told["groups"].append({**row, "strategy": "PACK", "owners": [], **more})
        return self


def last_cpu(*, cpus: float = 4, **held: float) -> tuple[App, Room]:
    """Trainer-0, called by the driver, waits for a task that needs a CPU."""
    app = App().actor("driver").actor("Trainer-0")
    go = app.runs("Trainer-0", "driver", "go", "app.py:12")
    app.waits_for("driver", go)
    task = app.queues("prepare()", "Trainer-0", "prepare", number=1)
    app.waits_for(go, task)
    room = Room(app).node("n1", CPU=cpus).demands("Trainer-0", "prepare()", [[1, 1]], needs={"CPU": 1})
    return app, room.holds("Trainer-0", "n1", ["driver"], **(held or {"CPU": 4}))


def test_an_actor_on_the_last_cpus_that_waits_for_a_task_is_stuck_and_it_is_said_what_to_change() -> None:
    app, _ = last_cpu()
    verdict = app.verdict()

    assert verdict.holds is True
    assert verdict.sentence == (
        "Deadlock: Trainer-0 in Trainer.go (app.py:12) waits for prepare(); prepare(), not begun, waits for CPU 1, and"
        " Trainer-0 holds CPU 4 of 4; 2 calls can never move again; 1 more is stuck behind them (driver); this holds as long as"
        " no node joins, and nobody outside gives anything back."
    )
    assert verdict.evidence["advice"] == [
        "Give Trainer num_cpus=0 (Trainer-0 holds it), let Trainer wait for nothing that needs room, or give a node CPU 1"
        " more."
    ]
    assert [one.get("needs") for one in verdict.evidence["members"]] == [None, "CPU 1, and Trainer-0 holds CPU 4 of 4"]


def test_where_enough_is_free_it_is_a_delay_of_scheduling() -> None:
    app, _ = last_cpu(cpus=5)
    verdict = app.verdict()

    assert (verdict.holds, verdict.evidence["blocked_count"]) == (False, 3)


def test_what_is_not_known_to_be_held_counts_as_free() -> None:
    app, _ = last_cpu(GPU=1)
    assert app.verdict().holds is False


def test_room_on_another_node_counts_only_if_the_demand_allows_it() -> None:
    app, room = last_cpu()
    room.node("n2", CPU=1)
    assert app.verdict().holds is False

    room.told["demands"][0]["nodes"] = ["n1"]
    assert app.verdict().holds is True


def test_a_part_here_and_a_part_there_are_no_room() -> None:
    app, room = last_cpu()
    room.told["demands"][0]["needs"] = {"CPU": 2, "GPU": 1}
    room.node("n1", CPU=4, GPU=1).node("n2", CPU=2)
    assert app.verdict().holds is True


def test_fractions_are_exact() -> None:
    app, room = last_cpu(CPU=0.9)
    room.told["demands"][0]["needs"] = {"CPU": 0.1}
    room.node("n1", CPU=1)
    assert app.verdict().holds is False


def test_an_autoscaler_makes_it_unknown_and_is_named() -> None:
    app, room = last_cpu()
    room.told["unsure"].append("the cluster's autoscaler, which may add a node")
    verdict = app.verdict()

    assert (verdict.holds, verdict.evidence["depends_on"]) == (None, ["the cluster's autoscaler, which may add a node"])


def test_with_room_enough_an_autoscaler_matters_nothing() -> None:
    app, room = last_cpu(cpus=5)
    room.told["unsure"].append("the cluster's autoscaler, which may add a node")
    assert app.verdict().holds is False


def test_what_no_node_has_never_comes() -> None:
    app = App().actor("driver")
    app.waits_for("driver", app.queues("render()", "driver", "render", number=1))
    Room(app).node("n1", CPU=8).demands("driver", "render()", [[1, 1]], needs={"GPU": 2})
    verdict = app.verdict()

    assert verdict.holds is True
    assert verdict.sentence.startswith(
        "Deadlock: render(), not begun, waits for GPU 2, and no node has more than GPU 0;"
    )
    assert verdict.evidence["advice"] == ["Ask for less than GPU 2, or give the cluster a node that has it."]


def idle_holder(*, checked: bool = True) -> tuple[App, Room]:
    """The driver waits for a task; an actor at rest, of which it has the handle, holds all CPUs."""
    app = App().actor("driver").actor("Idle-0", status="passive")
    app.waits_for("driver", app.queues("prepare()", "driver", "prepare", number=1))
    room = Room(app).node("n1", CPU=1).demands("driver", "prepare()", [[1, 1]], needs={"CPU": 1})
    return app, room.holds("Idle-0", "n1", ["driver"], checked=checked, CPU=1)


def test_an_actor_at_rest_keeps_what_it_has_if_nobody_moves_who_has_its_handle() -> None:
    app, _ = idle_holder()
    assert app.verdict().holds is True


def test_a_handle_may_lie_in_garbage_until_that_was_collected() -> None:
    app, _ = idle_holder(checked=False)
    verdict = app.verdict()

    assert verdict.holds is None
    assert verdict.evidence["depends_on"] == ["whether a handle of Idle-0 is in use elsewhere, or garbage"]


def test_an_actor_at_rest_may_be_ended_by_whoever_has_its_handle_and_moves() -> None:
    app, room = idle_holder()
    app.actor("Warden-0", status="active")
    app.runs("Warden-0", "driver", "watch")
    assert app.verdict().holds is True, "it has no handle of it"

    room.told["holders"][0]["by"].append("Warden-0")
    assert app.verdict().holds is False


def test_an_actor_at_rest_that_anybody_may_find_may_be_ended_by_whatever_moves() -> None:
    app, room = idle_holder()
    app.actor("Warden-0", status="active")
    app.runs("Warden-0", "driver", "watch")
    room.told["holders"][0]["by"] = None
    assert app.verdict().holds is False


def test_what_was_not_observed_may_end_an_actor_at_rest_but_no_call_that_is_stuck() -> None:
    app, _ = idle_holder()
    app.coverage["uncovered"] = ["thread pool of driver"]
    assert app.verdict().holds is None, "whoever has the handle may"

    app, _ = last_cpu()
    app.coverage["uncovered"] = ["thread pool of driver"]
    assert app.verdict().holds is True


def test_a_call_that_is_about_to_begin_may_end_its_actor_as_one_that_runs_may() -> None:
    """`ray.actor.exit_actor()`, or a constructor that raises."""
    app, _ = idle_holder()
    app.queues("Idle-0", "driver", "leave", number=2)
    assert app.verdict().holds is False

    app, _ = idle_holder()
    app.runs("Idle-0", "driver", "leave", number=2)
    assert app.verdict().holds is False

    app, _ = idle_holder()
    app.machines[1]["status"] = "active"  # it starts
    assert app.verdict().holds is False


def test_a_reply_that_is_there_already_ends_nobody() -> None:
    """The driver waits for a list, of which one call has ended: nothing is left of that which could act."""
    app, _ = idle_holder()
    app.waits[0]["k"] = 2
    app.waits_for("driver", "driver/0/Idle-0/1", k=2, satisfied=True)
    assert app.verdict().holds is True


@pytest.mark.parametrize("target", ["after()", "Clerk-0"])
def test_a_call_that_lacks_an_argument_ends_nobody_and_wakes_nobody(target: str) -> None:
    """Neither a task that needs no room, nor one to an actor at rest that has the holder's handle."""
    app, room = idle_holder()
    task = app.messages[0]["call_id"]
    app.actor("Clerk-0", status="passive")
    room.told["holders"][0]["by"].append("Clerk-0")
    app.waits.append(_wait(target, app.queues(target, "driver", "after", number=1), task, 1))
    assert app.verdict().holds is True

    app.waits[-1]["satisfied"] = True
    assert app.verdict().holds is not True, "it is about to begin"


def test_a_free_slot_is_nothing_that_acts() -> None:
    app, room = idle_holder()
    task = app.messages[0]["call_id"]
    app.actor("Pair-0", slots=2)
    app.waits_for(app.runs("Pair-0", "driver", "go"), task)
    app.waits.append(_wait("Pair-0", app.queues("Pair-0", "driver", "after", number=2), task, 1))
    room.told["holders"][0]["by"] = None
    assert app.verdict().holds is True


def test_who_is_being_made_may_get_a_handle_and_whoever_is_not_known_may_have_one() -> None:
    app, room = idle_holder()
    app.queues("Warden-0", "driver", "__init__", number=0)
    room.told["holders"][0]["by"].append("Warden-0")
    assert app.verdict().holds is False

    app, room = idle_holder()
    room.told["holders"][0]["by"].append("nobody that was heard of")
    assert app.verdict().holds is False


def test_that_nobody_waits_for_what_can_never_begin_is_no_deadlock() -> None:
    app = App().actor("driver", status="active")
    early = app.queues("render()", "driver", "render", number=1)
    late = app.queues("after()", "driver", "after", number=1)
    app.waits.append(_wait("after()", late, early, 1))
    Room(app).node("n1", CPU=8).demands("driver", "render()", [[1, 1]], needs={"GPU": 2})
    verdict = app.verdict()

    assert (verdict.holds, verdict.evidence["blocked_count"]) == (False, 2)


def test_groups_of_others_and_groups_that_others_may_find_count_as_free() -> None:
    for more in ({"owners": []}, {"owners": ["Owner-0"], "name": "everybodys"}):
        app = App().actor("driver")
        app.waits_for("driver", app.queues("prepare()", "driver", "prepare", number=1))
        room = Room(app).node("n1", CPU=2).demands("driver", "prepare()", [[1, 1]], needs={"CPU": 1})
        room.group("foreign", {"CPU": 2}, on="n1", **more)
        assert app.verdict().holds is False


def test_a_doubt_about_one_actor_is_none_about_a_deadlock_elsewhere() -> None:
    app, room = two_groups()
    app.actor("Store-0", status="passive")
    room.node("n1", CPU=2, GPU=1).holds("Store-0", "n1", ["driver"], checked=False, GPU=1)
    assert app.verdict().holds is True


def test_bundles_that_must_be_apart_need_as_many_nodes() -> None:
    app, room = two_groups()
    room.told["groups"] = [one for one in room.told["groups"] if one["group"].startswith("wanted")]
    for one in room.told["groups"]:
        one.update(created=False, strategy="STRICT_SPREAD", bundles=[{"CPU": 1}] * 2, nodes=["", ""])
    assert app.verdict().holds is True

    room.node("n2", CPU=2)
    assert app.verdict().holds is False


def test_it_is_told_of_the_nodes_that_the_demand_allows_and_by_how_much_they_are_short() -> None:
    app, room = last_cpu(CPU=1)
    app.actor("Bystander-0")
    app.waits_for(app.runs("Bystander-0", "driver", "go"), app.calls[0]["call_id"])
    room.node("n2", CPU=8).holds("Bystander-0", "n2", [], CPU=8)
    room.told["demands"][0].update(nodes=["n1"], needs={"CPU": 4})
    verdict = app.verdict()

    assert "Trainer-0 holds CPU 1 of 4" in verdict.sentence
    assert "Bystander" not in str(verdict.evidence["members"]) + str(verdict.evidence["advice"])
    assert verdict.evidence["advice"][0].endswith("or give a node CPU 1 more.")


def test_methods_of_an_actor_whose_creation_waits_wait_with_it() -> None:
    app = App().actor("Trainer-0")
    make = app.runs("Trainer-0", "driver", "make")
    app.queues("Helper-0", "Trainer-0", "__init__", number=0)
    app.waits_for(make, app.queues("Helper-0", "Trainer-0", "ping", number=1))
    room = Room(app).node("n1", CPU=1).demands(None, "Helper-0", needs={"CPU": 1})
    room.holds("Trainer-0", "n1", [], CPU=1)
    assert app.verdict().holds is True


def tree(*, cpus: float) -> App:
    """Two supervisors, each waits for two trainers that keep a CPU from their birth on, as in an example of Ray's."""
    app = App()
    room = Room(app).node("n1", CPU=cpus)
    for number in range(2):
        supervisor = f"Supervisor-{number}"
        app.actor(supervisor)
        fit, trainers = app.runs(supervisor, "driver", "fit"), [f"Trainer-{2 * number + each}" for each in range(2)]
        for trainer in trainers:
            app.queues(trainer, supervisor, "__init__", number=0)
        app.waits_for(fit, *(app.queues(trainer, supervisor, "fit", number=1) for trainer in trainers), k=2)
        for trainer in trainers:
            room.demands(None, trainer, needs={"CPU": 1})
        room.holds(supervisor, "n1", [], CPU=cpus / 2)
    return app


@pytest.mark.parametrize(
    ("cpus", "advice"),
    [
        (2, "Give Supervisor, Trainer num_cpus=0 (Supervisor-0, Supervisor-1 hold it), or give a node CPU 4 more."),
        (
            4,
            "Give Supervisor num_cpus=0 (Supervisor-0, Supervisor-1 hold it), let Supervisor wait for nothing that needs room,"
            " or give a node CPU 4 more.",
        ),
    ],
)
def test_what_keeps_its_room_needs_room_for_all_of_it(cpus: float, advice: str) -> None:
    verdict = tree(cpus=cpus).verdict()
    assert verdict.holds is True
    assert verdict.evidence["advice"] == [advice]


def test_whoever_could_call_an_actor_that_is_stuck_in_its_only_slot_cannot_end_it() -> None:
    app, room = last_cpu()
    app.actor("Warden-0", status="active")
    app.runs("Warden-0", "driver", "watch")
    room.told["holders"][0]["by"].append("Warden-0")
    assert app.verdict().holds is True

    app.machines[1]["max_concurrency"] = 2
    assert app.verdict().holds is False, "a second call may end it"


def nested(**held: float) -> tuple[App, Room]:
    """A plain task that waits for another one."""
    app = App().actor("outer-0")
    run = app.runs("outer-0", "driver", "outer")
    app.waits_for(run, app.queues("inner()", "outer-0", "inner", number=1))
    room = Room(app).node("n1", CPU=1, seat=1).demands("outer-0", "inner()", [[1, 1]], needs={"CPU": 1, "seat": 1})
    room.holds("outer-0", "n1", [], **held)
    room.told["holders"][-1]["task"] = True
    return app, room


def test_a_plain_task_that_waits_gives_back_its_cpu_and_nothing_else() -> None:
    assert nested(CPU=1)[0].verdict().holds is False
    assert nested(CPU=1, seat=1)[0].verdict().holds is True


def test_a_plain_task_whose_thread_or_loop_waits_keeps_its_cpu() -> None:
    app, room = nested(CPU=1)
    room.told["holders"][-1]["keeps_cpu"] = True
    assert app.verdict().holds is True


@pytest.mark.parametrize(
    ("needs", "taken", "is_stuck"),
    [
        (0.5, [[0, 0.6], [1, 0.6]], True),
        (0.4, [[0, 0.6], [1, 0.6]], False),
        (0.5, [[0, 0.6]], False),
        (1, [[0, 0.1], [1, 0.1]], True),
        (1, [[0, 1.0]], False),
        (2, [[0, 0.1]], True),
    ],
)
def test_a_part_of_one_device_and_a_part_of_another_are_no_room(
    needs: float, taken: list[list[float]], is_stuck: bool
) -> None:
    app = App().actor("driver").actor("Trainer-0")
    go = app.runs("Trainer-0", "driver", "go", "app.py:12")
    app.waits_for("driver", go)
    app.waits_for(go, app.queues("prepare()", "Trainer-0", "prepare", number=1))
    room = Room(app).node("n1", GPU=2).demands("Trainer-0", "prepare()", [[1, 1]], needs={"GPU": needs})
    room.holds("Trainer-0", "n1", ["driver"], GPU=sum(part for _, part in taken))
    room.told["holders"][-1]["devices"] = {"GPU": taken}

    assert app.verdict().holds is is_stuck


def test_tasks_that_wait_with_more_than_a_cpu_are_told_first_not_to_hold_it() -> None:
    app, _ = nested(CPU=1, seat=1)
    assert app.verdict().evidence["advice"] == [
        "Do not hold seat while waiting: give outer no seat, or split outer, so that the part with seat ends before the other"
        " part waits; or give a node seat 1 more."
    ]


def test_more_room_for_a_task_that_calls_itself_is_more_for_each_level() -> None:
    app, room = nested(seat=1)
    app.messages[0]["target"] = room.told["demands"][0]["target"] = "outer()"
    (advice,) = app.verdict().evidence["advice"]
    assert advice.startswith("Do not hold seat while waiting: give outer no seat, or split outer")
    assert advice.endswith("; or give a node seat 1 more for each level of calls.")


def test_where_tasks_and_actors_hold_it_both_are_told() -> None:
    app, room = nested(seat=1)
    app.actor("Trainer-0")
    app.waits_for(app.runs("Trainer-0", "driver", "go"), app.messages[0]["call_id"])
    room.node("n1", CPU=1, seat=2).holds("Trainer-0", "n1", ["driver"], seat=1)
    (advice,) = app.verdict().evidence["advice"]
    assert advice.startswith("Do not hold seat while waiting: give outer no seat")
    assert (
        "; give Trainer less of it (Trainer-0 holds it), let Trainer wait for nothing that needs room; or give"
        in advice
    )


def test_a_plain_task_is_ended_by_nobody_who_has_handles() -> None:
    app, room = nested(CPU=1, seat=1)
    app.actor("Clock-0", status="active")
    app.runs("Clock-0", "driver", "tick")
    app.machines[0]["max_concurrency"] = 2
    room.told["holders"][0]["by"] = None
    assert app.verdict().holds is True


def two_groups() -> tuple[App, Room]:
    """Two owners, each with a group that was made, wait for another."""
    app, room = App(), None
    for name in ("Owner-0", "Owner-1"):
        app.actor(name)
        take = app.runs(name, "driver", "take")
        app.waits_for(take, app.queues("ready()", name, "ready", number=1))
        room = room or Room(app).node("n1", CPU=2)
        room.group(f"made-{name}", {"CPU": 1}, on="n1", owners=[name])
        room.group(f"wanted-{name}", {"CPU": 1}, owners=[name])
        room.demands(name, "ready()", [[1, 1]], group=f"wanted-{name}")
    assert room is not None
    return app, room


ONE = {"CPU": 1}
MANY = {
    "STRICT_SPREAD": (
        [ONE, ONE],
        "CPU 2, on 2 nodes for its bundles (STRICT_SPREAD), and there is 1;",
        "Add nodes: placement group wanted needs 2 nodes for its bundles (STRICT_SPREAD), and there is 1; or make it with"
        " SPREAD or PACK.",
    ),
    "STRICT_PACK": (
        [ONE] * 5,
        "CPU 5, and no node has more than CPU 4;",
        "Ask for less than CPU 5, or give the cluster a node that has it.",
    ),
    "SPREAD": ([ONE] * 5, "CPU 5, and all nodes together have CPU 4;", "Give a node CPU 1 more."),
    "PACK": (
        [{"CPU": 1, "Custom": 1}],
        "CPU 1, Custom 1, and no node has more than Custom 0;",
        "Ask for less than Custom 1, or give the cluster a node that has it.",
    ),
}


@pytest.mark.parametrize("strategy", MANY)
def test_why_a_group_can_never_be_made_is_told_with_what_would_help(strategy: str) -> None:
    bundles, why, advice = MANY[strategy]
    app = App().actor("driver")
    app.waits_for("driver", app.queues("ready()", "driver", "ready", number=1))
    room = Room(app).node("n1", CPU=4).group("wanted", *bundles, strategy=strategy, owners=["driver"])
    room.demands("driver", "ready()", [[1, 1]], group="wanted")
    verdict = app.verdict()

    assert verdict.holds is True
    assert f"waits for placement group wanted of driver, which needs {why}" in verdict.sentence
    assert verdict.evidence["advice"] == [advice]


def test_two_owners_of_groups_that_wait_for_another_each_are_stuck() -> None:
    app, _ = two_groups()
    verdict = app.verdict()

    assert verdict.holds is True
    assert {one["machine"] for one in verdict.evidence["members"]} == {"Owner-0", "Owner-1", "ready()"}
    assert "waits for placement group wanted-O of Owner-0, which needs CPU 1, and" in verdict.sentence
    assert "Owner-0 holds CPU 1 of 2 by placement group made-Own" in verdict.sentence
    assert verdict.evidence["advice"] == [
        "Reserve all that is needed at once, in one placement group (Owner-0, Owner-1 each have one and wait for another),"
        " remove the first one before the second is asked for, or give a node CPU 1 more."
    ]


def test_what_no_node_can_give_a_group_is_told_as_such() -> None:
    app, room = two_groups()
    room.told["groups"][1].update(bundles=[{"CPU": 1}, {"CPU": 3}], nodes=["", ""])
    verdict = app.verdict()

    assert "which needs CPU 4, and no node has more than CPU 2" in verdict.sentence
    assert "Ask for less than CPU 3, or give the cluster a node that has it." in verdict.evidence["advice"]


def test_groups_may_be_removed_by_whatever_moves() -> None:
    app, _ = two_groups()
    app.actor("Clock-0", status="active")
    app.runs("Clock-0", "driver", "tick")
    assert app.verdict().holds is False


def test_a_pending_group_holds_nothing() -> None:
    app, room = two_groups()
    room.told["groups"] = [one for one in room.told["groups"] if one["group"] != "made-Owner-1"]
    assert app.verdict().holds is False


def test_a_group_in_which_somebody_is_stuck_is_not_removed() -> None:
    app, room = last_cpu(**{"CPU_group_g": 1, "bundle_group_g": 0.001})
    app.actor("Clock-0", status="active")
    app.runs("Clock-0", "driver", "tick")
    room.node("n1", CPU=1).group("g", {"CPU": 1}, on="n1", owners=["driver"])
    verdict = app.verdict()

    assert verdict.holds is True
    assert "Trainer-0 holds CPU 1 of 1 by placement group g" in verdict.sentence


def test_within_a_group_its_bundles_are_all_there_is() -> None:
    app, room = last_cpu(**{"CPU_group_g": 1, "CPU_group_0_g": 1})
    room.node("n1", CPU=8, CPU_group_g=1, CPU_group_0_g=1).group("g", {"CPU": 1}, on="n1")
    room.told["demands"][0]["group"] = "g"
    assert app.verdict().holds is True

    room.node("n1", CPU=8, CPU_group_g=2, CPU_group_0_g=2)
    assert app.verdict().holds is False


# ---- against every order ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Small:
    """A system: actors of which each runs a call that waits for tasks, actors at rest, tasks that have not begun."""

    cpus: tuple[int, ...]
    """Of each node."""
    callers: tuple[tuple[int, int, tuple[int, ...]], ...]
    """(node, CPUs held, tasks that its call waits for; none: it acts)."""
    idle: tuple[tuple[int, int, tuple[int, ...]], ...]
    """(node, CPUs held, callers that have its handle)."""
    tasks: tuple[tuple[int, int | None, tuple[int, ...]], ...]
    """(CPUs needed, the only node, tasks whose results are arguments)."""


@st.composite
def smalls(draw: st.DrawFn) -> Small:
    nodes = draw(st.integers(1, 2))
    free = [draw(st.integers(1, 3)) for _ in range(nodes)]
    cpus = tuple(free)
    count = draw(st.integers(1, 4))

    def held() -> tuple[int, int]:
        node = draw(st.integers(0, nodes - 1))
        amount = draw(st.integers(0, free[node]))
        free[node] -= amount
        return node, amount

    def some(most: int) -> tuple[int, ...]:
        return tuple(sorted(draw(st.sets(st.integers(0, most - 1), max_size=2)))) if most else ()

    callers = tuple((*held(), some(count)) for _ in range(draw(st.integers(1, 3))))
    idle = tuple((*held(), some(len(callers))) for _ in range(draw(st.integers(0, 2))))
    tasks = tuple(
        (draw(st.integers(0, 3)), draw(st.none() | st.integers(0, nodes - 1)), some(index)) for index in range(count)
    )
    return Small(cpus, callers, idle, tasks)


class Played:
    """All that may become of a system: tasks begin where there is room, and end; calls whose tasks have ended return."""

    def __init__(self, system: Small) -> None:
        self.system = system
        self.returned = {index for index, (_, _, on) in enumerate(system.callers) if not on}
        self.seen: set[Any] = set()
        self.ever: set[tuple[str, int]] = set()
        self._go(frozenset(self.returned), frozenset(), ())

    def _go(self, returned: frozenset[int], ended: frozenset[int], running: tuple[tuple[int, int], ...]) -> None:
        stack = [(returned, ended, running)]
        while stack:
            state = stack.pop()
            if state in self.seen:
                continue
            self.seen.add(state)
            returned, ended, running = state
            self.ever |= {("caller", one) for one in returned} | {("task", one) for one, _ in running}
            for index, (_, _, on) in enumerate(self.system.callers):
                if index not in returned and ended.issuperset(on):
                    stack.append((returned | {index}, ended, running))
            for task, _ in running:
                stack.append((returned, ended | {task}, tuple(one for one in running if one[0] != task)))
            for index, (cpus, only, needs) in enumerate(self.system.tasks):
                if index in ended or index in {one for one, _ in running} or not ended.issuperset(needs):
                    continue
                for node in range(len(self.system.cpus)):
                    if only in (None, node) and self._free(node, returned, running) >= cpus:
                        stack.append((returned, ended, tuple(sorted((*running, (index, node))))))

    def _free(self, node: int, returned: frozenset[int], running: tuple[tuple[int, int], ...]) -> int:
        free = self.system.cpus[node] - sum(self.system.tasks[task][0] for task, at in running if at == node)
        free -= sum(
            held for index, (at, held, _) in enumerate(self.system.callers) if at == node and index not in returned
        )
        return free - sum(held for at, held, by in self.system.idle if at == node and not returned.intersection(by))


def as_app(system: Small) -> App:
    app = App()
    room = Room(app)
    for node, cpus in enumerate(system.cpus):
        room.node(NODES[node], CPU=cpus)
    ids = [app.queues(f"t{index}()", "driver", f"t{index}", number=1) for index in range(len(system.tasks))]
    for index, (cpus, only, needs) in enumerate(system.tasks):
        nodes = None if only is None else [NODES[only]]
        room.demands("driver", f"t{index}()", [[1, 1]], needs={"CPU": cpus} if cpus else {}, nodes=nodes)
        for on in needs:
            app.waits.append(_wait(f"t{index}()", ids[index], ids[on], len(needs)))
    for index, (node, cpus, on) in enumerate(system.callers):
        app.actor(f"A-{index}", status="blocked" if on else "active")
        run = app.runs(f"A-{index}", "driver", "go")
        app.waits_for(run, *(ids[task] for task in on))
        room.holds(f"A-{index}", NODES[node], [], CPU=cpus)
    for index, (node, cpus, by) in enumerate(system.idle):
        app.actor(f"I-{index}", status="passive")
        room.holds(f"I-{index}", NODES[node], [f"A-{one}" for one in by], CPU=cpus)
    return app


def _wait(machine: str, call_id: str, on: str, k: int) -> dict[str, Any]:
    row = {"machine": machine, "call_id": call_id, "k": k, "on_machine": on.split("/")[2], "on_call_id": on}
    return {**row, "satisfied": False, "alternative": 0}


@settings(max_examples=400)
@given(smalls())
def test_the_verdict_is_that_of_every_order(system: Small) -> None:
    played = Played(system)
    stuck = {f"A-{index}" for index in range(len(system.callers)) if ("caller", index) not in played.ever}
    stuck |= {f"t{index}()" for index in range(len(system.tasks)) if ("task", index) not in played.ever}
    verdict: rs.Verdict = as_app(system).verdict()

    is_anybody = any(name.startswith("A-") for name in stuck)
    assert verdict.holds is is_anybody
    told = {one["machine"] for name in ("members", "stuck_behind") for one in verdict.evidence[name]}
    assert told == (stuck if is_anybody else set())


# ---- why is this pending? --------------------------------------------------------------------------------------------


def test_it_is_told_of_each_pending_thing_why() -> None:
    app, room = last_cpu(cpus=2)
    room.told["holders"][0]["amounts"] = {"CPU": 1}
    app.actor("slow-0", status="active")
    app.runs("slow-0", "driver", "slow")
    room.holds("slow-0", "n1", CPU=1)
    room.told["holders"][-1]["task"] = True
    late = app.queues("after()", "driver", "after", number=1)
    app.waits.append(_wait("after()", late, "Trainer-0/0/prepare()/1", 1))
    room.group("spare", {"CPU": 4})

    assert why_pending(app.snapshot(started_at=datetime.fromtimestamp(110, UTC))) == [
        "prepare() of Trainer-0 has waited for 100 s: it needs CPU 1, and Trainer-0 holds CPU 1 of 2; slow-0 holds CPU 1 of 2",
        "after() waits for its arguments, by prepare()",
        "placement group spare has not been made: it needs CPU 4, and no node has more than CPU 2",
    ]
    assert app.verdict().holds is False, "a task that computes gives its CPU back"


def test_a_group_that_somebody_asks_for_again_and_again_has_an_owner_and_who_holds_it_is_told() -> None:
    """No call waits for it that was recorded. A group with a name is called by that, and what it has is reserved, too."""
    app = App().actor("Owner-0", status="active")
    room = Room(app).node("n1", CPU=4).group("0123456789abcdef", {"CPU": 4}, owners=["Owner-0"])
    room.group("made", {"CPU": 1}, on="n1", owners=["Owner-0"]).group("named", {"CPU": 1}, on="n1", name="spare")
    assert why_pending(app.snapshot()) == [
        "placement group 01234567 of Owner-0 has not been made: it needs CPU 4, and Owner-0 holds CPU 1 of 4 by placement group"
        " made; its owner holds CPU 1 of 4 by placement group spare"
    ]

    room.told["groups"] = [one for one in room.told["groups"] if not one["created"]]
    assert why_pending(app.snapshot()) == [
        "placement group 01234567 of Owner-0 has not been made: it needs CPU 4, and there is room: it is about to be made"
    ]


def test_an_actor_that_computes_holds_what_it_has_though_it_may_take_a_call_more() -> None:
    """For a verdict it counts as about to give it back; not for the answer why something waits now."""
    app, _ = last_cpu()
    app.machines[1].update(status="active", max_concurrency=2)
    (line,) = why_pending(app.snapshot(started_at=datetime.fromtimestamp(110, UTC)))
    assert line.endswith("it needs CPU 1, and Trainer-0 holds CPU 4 of 4")


def test_it_is_told_that_there_is_room() -> None:
    app, _ = last_cpu(cpus=5)
    assert why_pending(app.snapshot(started_at=datetime.fromtimestamp(110, UTC))) == [
        "prepare() of Trainer-0 has waited for 100 s: it needs CPU 1, and a node has room: Ray has not begun it all the same"
    ]


# ---- what a stranger's history tells -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("demands", 0, "needs"), {"CPU": "many"}),
        (("demands", 0, "bundle"), -5),
        (("holders", 0, "by"), "driver"),
        (("groups",), None),
        (("demands", 0, "needs"), {"CPU": float("inf")}),
        (("demands", 0, "numbers"), [[1, 2**80]]),
        (("demands", 0, "since"), None),
        (("nodes",), [1]),
        (("holders", 0, "amounts"), {"CPU": -1}),
        (("holders", 0), "Trainer-0"),
        (("unsure",), {"a": 1}),
    ],
)
def test_a_coverage_of_another_form_is_refused_with_its_place(place: tuple[Any, ...], value: Any) -> None:
    app, room = last_cpu()
    found: Any = room.told
    for step in place[:-1]:
        found = found[step]
    found[place[-1]] = value

    with pytest.raises(rs.DetectorError, match=rf"coverage\.resources\.{place[0]}"):
        Deadlock().evaluate(app.snapshot())


def test_replies_that_are_there_do_not_hide_who_holds_the_room_and_are_not_waited_for() -> None:
    """More actors than CPUs, all asked in one list: those that have answered are at rest, and keep what they hold."""
    app = App().actor("driver")
    room = Room(app).node("n1", CPU=2)
    for number in range(2):
        app.actor(f"Sim-{number}", status="passive")
        room.holds(f"Sim-{number}", "n1", ["driver"], CPU=1)
        app.waits_for("driver", f"driver/0/Sim-{number}/1", k=3, satisfied=True)
    app.queues("Sim-2", "driver", "__init__", number=0)
    app.waits_for("driver", app.queues("Sim-2", "driver", "step", number=1), k=3)
    room.demands("driver", "Sim-2", needs={"CPU": 1})
    verdict = app.verdict()

    assert verdict.holds is True, verdict.sentence
    (driver,) = (one for one in verdict.evidence["members"] if one["machine"] == "driver")
    assert (driver["waits_for"], driver["mode"]) == (["Sim-2"], "all")
