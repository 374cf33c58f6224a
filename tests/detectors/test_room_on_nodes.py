"""Deadlocks of calls that wait for room on a node: who holds it, who may give it back, and what to change."""

from datetime import UTC, datetime
from typing import Any

import pytest
from calls_by_hand import App
from rooms_by_hand import Room, last_cpu, two_groups, wait_row

import ray_snapshot as rs
from ray_snapshot.detectors import Deadlock, Infeasible
from ray_snapshot.detectors.pending import why_pending


@pytest.mark.contract
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


@pytest.mark.contract
def test_where_enough_is_free_it_is_a_delay_of_scheduling() -> None:
    app, _ = last_cpu(cpus=5)
    verdict = app.verdict()
    assert (verdict.holds, verdict.evidence["blocked_count"]) == (False, 3)


@pytest.mark.contract
def test_what_is_not_known_to_be_held_counts_as_free() -> None:
    app, _ = last_cpu(GPU=1)
    assert app.verdict().holds is False


@pytest.mark.contract
def test_room_on_another_node_counts_only_if_the_demand_allows_it() -> None:
    app, room = last_cpu()
    room.node("n2", CPU=1)
    assert app.verdict().holds is False
    room.told["demands"][0]["nodes"] = ["n1"]
    assert app.verdict().holds is True


@pytest.mark.contract
def test_a_part_here_and_a_part_there_are_no_room() -> None:
    app, room = last_cpu()
    room.told["demands"][0]["needs"] = {"CPU": 2, "GPU": 1}
    room.node("n1", CPU=4, GPU=1).node("n2", CPU=2)
    assert app.verdict().holds is True


@pytest.mark.contract
def test_fractions_are_exact() -> None:
    app, room = last_cpu(CPU=0.9)
    room.told["demands"][0]["needs"] = {"CPU": 0.1}
    room.node("n1", CPU=1)
    assert app.verdict().holds is False


@pytest.mark.contract
def test_an_autoscaler_makes_it_unknown_and_is_named() -> None:
    app, room = last_cpu()
    room.told["unsure"].append("the cluster's autoscaler, which may add a node")
    verdict = app.verdict()
    assert (verdict.holds, verdict.evidence["depends_on"]) == (None, ["the cluster's autoscaler, which may add a node"])


@pytest.mark.contract
def test_with_room_enough_an_autoscaler_matters_nothing() -> None:
    app, room = last_cpu(cpus=5)
    room.told["unsure"].append("the cluster's autoscaler, which may add a node")
    assert app.verdict().holds is False


@pytest.mark.contract
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


@pytest.mark.contract
def test_an_actor_at_rest_keeps_what_it_has_if_nobody_moves_who_has_its_handle() -> None:
    app, _ = idle_holder()
    assert app.verdict().holds is True


@pytest.mark.contract
def test_a_handle_may_lie_in_garbage_until_that_was_collected() -> None:
    app, _ = idle_holder(checked=False)
    verdict = app.verdict()
    assert verdict.holds is None
    assert verdict.evidence["depends_on"] == ["whether a handle of Idle-0 is in use elsewhere, or garbage"]


@pytest.mark.contract
def test_an_actor_at_rest_may_be_ended_by_whoever_has_its_handle_and_moves() -> None:
    app, room = idle_holder()
    app.actor("Warden-0", status="active")
    app.runs("Warden-0", "driver", "watch")
    assert app.verdict().holds is True, "it has no handle of it"
    room.told["holders"][0]["by"].append("Warden-0")
    assert app.verdict().holds is False


@pytest.mark.contract
def test_an_actor_at_rest_that_anybody_may_find_may_be_ended_by_whatever_moves() -> None:
    app, room = idle_holder()
    app.actor("Warden-0", status="active")
    app.runs("Warden-0", "driver", "watch")
    room.told["holders"][0]["by"] = None
    assert app.verdict().holds is False


@pytest.mark.contract
def test_what_was_not_observed_may_end_an_actor_at_rest_but_no_call_that_is_stuck() -> None:
    app, _ = idle_holder()
    app.coverage["uncovered"] = ["thread pool of driver"]
    assert app.verdict().holds is None, "whoever has the handle may"
    app, _ = last_cpu()
    app.coverage["uncovered"] = ["thread pool of driver"]
    assert app.verdict().holds is True


@pytest.mark.contract
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


@pytest.mark.contract
def test_a_reply_that_is_there_already_ends_nobody() -> None:
    """The driver waits for a list, of which one call has ended: nothing is left of that which could act."""
    app, _ = idle_holder()
    app.waits[0]["k"] = 2
    app.waits_for("driver", "driver/0/Idle-0/1", k=2, satisfied=True)
    assert app.verdict().holds is True


@pytest.mark.contract
@pytest.mark.parametrize("target", ["after()", "Clerk-0"])
def test_a_call_that_lacks_an_argument_ends_nobody_and_wakes_nobody(target: str) -> None:
    """Neither a task that needs no room, nor one to an actor at rest that has the holder's handle."""
    app, room = idle_holder()
    task = app.messages[0]["call_id"]
    app.actor("Clerk-0", status="passive")
    room.told["holders"][0]["by"].append("Clerk-0")
    app.waits.append(wait_row(target, app.queues(target, "driver", "after", number=1), task, 1))
    assert app.verdict().holds is True
    app.waits[-1]["satisfied"] = True
    assert app.verdict().holds is not True, "it is about to begin"


@pytest.mark.contract
def test_a_free_slot_is_nothing_that_acts() -> None:
    app, room = idle_holder()
    task = app.messages[0]["call_id"]
    app.actor("Pair-0", slots=2)
    app.waits_for(app.runs("Pair-0", "driver", "go"), task)
    app.waits.append(wait_row("Pair-0", app.queues("Pair-0", "driver", "after", number=2), task, 1))
    room.told["holders"][0]["by"] = None
    assert app.verdict().holds is True


@pytest.mark.contract
def test_who_is_being_made_may_get_a_handle_and_whoever_is_not_known_may_have_one() -> None:
    app, room = idle_holder()
    app.queues("Warden-0", "driver", "__init__", number=0)
    room.told["holders"][0]["by"].append("Warden-0")
    assert app.verdict().holds is False
    app, room = idle_holder()
    room.told["holders"][0]["by"].append("nobody that was heard of")
    assert app.verdict().holds is False


@pytest.mark.contract
def test_that_nobody_waits_for_what_can_never_begin_is_no_deadlock() -> None:
    app = App().actor("driver", status="active")
    early = app.queues("render()", "driver", "render", number=1)
    late = app.queues("after()", "driver", "after", number=1)
    app.waits.append(wait_row("after()", late, early, 1))
    Room(app).node("n1", CPU=8).demands("driver", "render()", [[1, 1]], needs={"GPU": 2})
    verdict = app.verdict()
    assert (verdict.holds, verdict.evidence["blocked_count"]) == (False, 2)


@pytest.mark.contract
def test_groups_that_others_may_find_count_as_free_and_whether_those_of_others_are_removed_cannot_be_told() -> None:
    for more, expected in (({"owners": []}, None), ({"owners": ["Owner-0"], "name": "everybodys"}, False)):
        app = App().actor("driver")
        app.waits_for("driver", app.queues("prepare()", "driver", "prepare", number=1))
        room = Room(app).node("n1", CPU=2).demands("driver", "prepare()", [[1, 1]], needs={"CPU": 1})
        room.group("foreign", {"CPU": 2}, on="n1", **more)
        assert app.verdict().holds is expected


@pytest.mark.contract
def test_a_doubt_about_one_actor_is_none_about_a_deadlock_elsewhere() -> None:
    app, room = two_groups()
    app.actor("Store-0", status="passive")
    room.node("n1", CPU=2, GPU=1).holds("Store-0", "n1", ["driver"], checked=False, GPU=1)
    assert app.verdict().holds is True


@pytest.mark.contract
def test_bundles_that_must_be_apart_need_as_many_nodes() -> None:
    app, room = two_groups()
    room.told["groups"] = [one for one in room.told["groups"] if one["group"].startswith("wanted")]
    for one in room.told["groups"]:
        one.update(created=False, strategy="STRICT_SPREAD", bundles=[{"CPU": 1}] * 2, nodes=["", ""])
    assert app.verdict().holds is True
    room.node("n2", CPU=2)
    assert app.verdict().holds is False


@pytest.mark.contract
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


@pytest.mark.contract
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


@pytest.mark.contract
@pytest.mark.parametrize(
    ("cpus", "advice"),
    [
        (2, "Give Supervisor, Trainer num_cpus=0 (Supervisor-[0-1] hold it), or give a node CPU 4 more."),
        (
            4,
            "Give Supervisor num_cpus=0 (Supervisor-[0-1] hold it), let Supervisor wait for nothing that needs room,"
            " or give a node CPU 4 more.",
        ),
    ],
)
def test_what_keeps_its_room_needs_room_for_all_of_it(cpus: float, advice: str) -> None:
    app = tree(cpus=cpus)
    verdict = app.verdict()
    assert verdict.holds is True
    assert verdict.evidence["advice"] == [advice]
    for one in app.machines:
        one["class_name"] = one["class_name"].replace("Supervisor", "Boss")
    of_class = advice.replace("Supervisor", "Boss").replace("Boss-[", "Supervisor-[")
    assert app.verdict().evidence["advice"] == [of_class], "also where it has a name of its own"


@pytest.mark.contract
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


@pytest.mark.contract
def test_a_plain_task_that_waits_gives_back_its_cpu_and_nothing_else() -> None:
    assert nested(CPU=1)[0].verdict().holds is False
    assert nested(CPU=1, seat=1)[0].verdict().holds is True


@pytest.mark.contract
def test_a_plain_task_whose_thread_or_loop_waits_keeps_its_cpu() -> None:
    app, room = nested(CPU=1)
    room.told["holders"][-1]["keeps_cpu"] = True
    assert app.verdict().holds is True


@pytest.mark.contract
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


@pytest.mark.contract
def test_tasks_that_wait_with_more_than_a_cpu_are_told_first_not_to_hold_it() -> None:
    app, _ = nested(CPU=1, seat=1)
    assert app.verdict().evidence["advice"] == [
        "Do not hold seat while waiting: give outer no seat, or split outer, so that the part with seat ends before the other"
        " part waits; or give a node seat 1 more."
    ]


@pytest.mark.contract
def test_more_room_for_a_task_that_calls_itself_is_more_for_each_level() -> None:
    app, room = nested(seat=1)
    app.messages[0]["target"] = room.told["demands"][0]["target"] = "outer()"
    (advice,) = app.verdict().evidence["advice"]
    assert advice.startswith("Do not hold seat while waiting: give outer no seat, or split outer")
    assert advice.endswith("; or give a node seat 1 more for each level of calls.")


@pytest.mark.contract
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


@pytest.mark.contract
def test_a_plain_task_is_ended_by_nobody_who_has_handles() -> None:
    app, room = nested(CPU=1, seat=1)
    app.actor("Clock-0", status="active")
    app.runs("Clock-0", "driver", "tick")
    app.machines[0]["max_concurrency"] = 2
    room.told["holders"][0]["by"] = None
    assert app.verdict().holds is True


# ---- what a stranger's history tells -----------------------------------------------------------------------------------


@pytest.mark.contract
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


@pytest.mark.contract
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


def held_by_others() -> tuple[App, Room]:
    """The driver waits for an actor that needs a CPU; two detached ones of another program have both."""
    app = App().actor("driver")
    app.queues("Trainer-0", "driver", "__init__", number=0)
    app.waits_for("driver", app.queues("Trainer-0", "driver", "train", number=1))
    room = Room(app).node("n1", CPU=2).demands(None, "Trainer-0", needs={"CPU": 1})
    about = {"kind": "Cache", "key": "ab" * 8, "namespace": "jobs", "job": "02000000", "detached": True}
    room.told["outside"] = [{**about, "name": f"cache-{i}", "node": "n1", "amounts": {"CPU": 1.0}} for i in (0, 1)]
    return app, room


def at(second: float) -> datetime:
    return datetime.fromtimestamp(second, UTC)


def test_where_others_that_are_not_watched_have_all_room_it_cannot_be_told_and_they_are_named() -> None:
    app, _ = held_by_others()
    verdict = app.verdict(started_at=at(25))
    holders = ", ".join(f"cache-{i} (a detached Cache of job 02000000)" for i in (0, 1)) + " each hold CPU 1 of 2"
    assert verdict.holds is None
    assert f"Trainer-0 needs CPU 1, and {holders}: these are not watched" in verdict.sentence
    assert "ray.kill(ray.get_actor('cache-1', namespace='jobs'))" in verdict.evidence["advice"][0]
    assert why_pending(app.snapshot(started_at=at(25)))[0].endswith(f"it needs CPU 1, and {holders}")


@pytest.mark.contract
def test_others_may_give_their_room_back_at_once_and_what_fits_beside_them_waits_for_nothing_of_theirs() -> None:
    app, _ = held_by_others()
    assert app.verdict(started_at=at(15)).holds is False, "it has waited for 5 s"
    app, room = held_by_others()
    room.node("n1", CPU=3)
    assert app.verdict(started_at=at(25)).holds is False
    app, room = held_by_others()
    app.actor("Busy-0", status="active")
    room.node("n1", CPU=3).holds("Busy-0", "n1", CPU=1)
    assert app.verdict(started_at=at(25)).holds is False, "Busy-0 may give it back"


@pytest.mark.contract
def test_what_runs_of_another_program_and_is_no_actor_is_named_by_its_job() -> None:
    app, room = held_by_others()
    room.told["outside"] = [{"job": "03000000", "node": "n1", "amounts": {"CPU": 2.0}}]
    assert "Trainer-0 needs CPU 1, and job 03000000 holds CPU 2 of 2: " in app.verdict(started_at=at(25)).sentence


@pytest.mark.contract
def test_a_demand_that_no_node_can_meet_is_infeasible_after_ten_seconds_whoever_waits_for_it() -> None:
    app = App().actor("driver", status="active")
    app.queues("render()", "driver", "render", number=1)
    room = Room(app).node("n1", CPU=8).demands("driver", "render()", [[1, 1]], needs={"GPU": 2})
    verdict = Infeasible().evaluate(app.snapshot(started_at=at(25)))
    assert (verdict.holds, verdict.alarm) == (True, True)
    assert "render() of driver has waited for 15 s: it needs GPU 2, and no node has more than GPU 0" in verdict.sentence
    assert verdict.evidence["advice"] == ["Ask for less than GPU 2, or give the cluster a node that has it."]
    assert Infeasible().evaluate(app.snapshot(started_at=at(15))).holds is False, "it has waited for 5 s"
    room.told["unsure"] = ["the cluster's autoscaler, which may add a node"]
    assert Infeasible().evaluate(app.snapshot(started_at=at(25))).holds is None


@pytest.mark.contract
def test_a_demand_that_others_hold_and_one_without_a_node_of_its_labels_are_told_apart() -> None:
    app, room = held_by_others()
    assert Infeasible().evaluate(app.snapshot(started_at=at(25))).holds is False
    room.told["demands"][0]["nodes"] = []
    verdict = Infeasible().evaluate(app.snapshot(started_at=at(25)))
    assert "it needs CPU 1, and no node that it may run on is there" in verdict.sentence


@pytest.mark.contract
def test_what_is_held_is_no_matter_where_no_call_needs_room() -> None:
    app = App().actor("A-0").actor("B-0").actor("Hog-0", status="active")
    asks, answers = app.runs("A-0", "driver", "ask"), app.runs("B-0", "A-0", "answer")
    app.waits_for(asks, answers).waits_for(answers, asks)
    Room(app).node("n1", CPU=1).group("g", {"CPU": 1}).holds("Hog-0", "n1", ["driver"], CPU=1)
    assert app.verdict().holds is True
