"""Deadlocks of what waits for room in a placement group, or for the group itself."""

from __future__ import annotations

import pytest
from calls_by_hand import App
from rooms_by_hand import Room, last_cpu, two_groups

pytestmark = pytest.mark.contract

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


@pytest.mark.parametrize(
    ("bundle", "advice"),
    [
        (
            4,
            "run it in that group (scheduling_strategy=PlacementGroupSchedulingStrategy(...)), or remove the group first",
        ),
        (0.5, "remove that group first"),
    ],
)
def test_room_in_a_group_that_nothing_uses_may_be_meant_for_what_waits(bundle: float, advice: str) -> None:
    app = App().actor("driver")
    app.waits_for("driver", app.queues("prepare()", "driver", "prepare", number=1))
    room = Room(app).node("n1", CPU=4).demands("driver", "prepare()", [[1, 1]], needs={"CPU": 1})
    room.group("spare", *[{"CPU": bundle}] * int(4 / bundle), on="n1", owners=["driver"])
    (told,) = app.verdict().evidence["advice"]
    assert told == f"Placement group spare of driver holds what is needed: {advice}, or give a node CPU 1 more."
