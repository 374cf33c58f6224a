"""What a restore does, piece by piece, in small scripted worlds; and that wrong restores are caught by the seeded runs."""

import random
from collections.abc import Mapping
from typing import Any

import pytest
from making_mutants import Edit, break_
from worlds.following import check_agreement
from worlds.mail.behaviours import Script
from worlds.mail.every_order import calm
from worlds.mail.machines import Behaviour, Call, Create, Later, Send
from worlds.mail.network import LossyNetwork
from worlds.mail.schedules import check_all, check_quiet, run_script
from worlds.mail.world import World
from worlds.rollback import restoring, storms
from worlds.rollback.flows import Flow, Operator, Source, sums_of
from worlds.rollback.restoring import beginning, obstacles, repeated, restored
from worlds.rollback.storms import run_storm

from ray_snapshot.errors import NotRestorableError
from ray_snapshot.protocol.barrier_host import BarrierCore
from ray_snapshot.protocol.choosing import AT_LEAST_ONCE, PROTOCOLS
from ray_snapshot.protocol.host import HostCore
from ray_snapshot.protocol.rollback import RollbackHost
from ray_snapshot.protocol.turning import Turning
from ray_snapshot.simulation.mail.oracle import OracleError, RecordedSnapshot

WRITER = Script(
    unasked=("one", "two", "late", "child", "ask"),
    sends=(
        ("one", (Send("reader", "first", 1),)),
        ("two", (Send("reader", "second", 2),)),
        ("late", (Later("reader", "alarm", 3),)),
        ("child", (Create("baby", "h1", Script(), ("made",)), Send("baby", "milk", 4))),
        ("ask", (Call("reader", "question", 5),)),
    ),
)


def _world(protocol: str) -> World:
    machines = {"writer": ("h0", WRITER, ()), "reader": ("h1", Script(), ())}
    return World(machines, protocol=protocol, is_atomic=True, trace=[])


def _snapshot_with_everything_in_flight(world: World) -> RecordedSnapshot:
    """The writer sends two messages and a timer, and makes a child; nothing reaches h1 before that has recorded."""
    for choice in (1, 2, 3, 4):
        world.perform(("act", "writer"), choice)
    run_script(
        world, ["snapshot", "tell request h1", "tell request h0", "record h1", "copy h1", "record h0", "copy h0"]
    )
    calm(world)
    (recorded,) = world.central.completed
    check_all(world)
    return recorded


def _check_that_all_comes_again(protocol: str) -> World:
    old = _world(protocol)
    recorded = _snapshot_with_everything_in_flight(old)
    assert {key: len(found) for key, found in recorded.channels.items()} == {
        ("writer", "reader", "mail"): 2,
        ("writer", "reader", "timer"): 1,
        ("writer", "baby", "mail"): 1,
    }
    world = restored(recorded, old, ("h1", "h0", "h2"))
    assert world.states() == {"writer": ("one", "two", "late", "child"), "reader": ()}
    calm(world)
    check_all(world)
    check_quiet(world)
    assert [event for event in world.states()["reader"] if event != "alarm"] == ["first", "second"]
    assert set(world.states()["reader"]) == {"first", "second", "alarm"}
    assert world.states()["baby"] == ("made", "milk")
    return world


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_was_in_flight_comes_again_in_its_order_with_timers_and_creations(protocol: str) -> None:
    _check_that_all_comes_again(protocol)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_numbering_begins_anew_and_snapshot_numbers_go_on(protocol: str) -> None:
    old = _world(protocol)
    world = restored(_snapshot_with_everything_in_flight(old), old)
    world.perform(("act", "writer"), 1)
    world.perform(("snapshot",))
    calm(world)
    (recorded,) = world.central.completed
    check_all(world)
    assert recorded.number == 2
    assert recorded.sent["writer", "reader", "mail"] == 3


def test_nobody_acts_before_it_has_been_told_that_all_have_loaded() -> None:
    old = _world("chandy-lamport")
    world = restored(_snapshot_with_everything_in_flight(old), old)
    assert {step[0] for step in world.enabled()} == {"control"}
    run_script(world, ["tell start h0", "flush h0", "deliver h0 h1"])
    assert world.enabled_on("h1") == []  # its messages wait
    run_script(world, ["tell start h1"])
    assert {"accept", "birth"} <= {step[0] for step in world.enabled_on("h1")}


def test_states_of_machines_born_after_the_cut_are_gone() -> None:
    old = _world("chandy-lamport")
    old.perform(("act", "writer"), 4)
    calm(old)
    world = restored(beginning(old), old)
    assert "baby" in old.states()
    assert "baby" not in restored(beginning(old), old).states()
    assert beginning(world) == beginning(old)


def test_nothing_from_before_is_accepted() -> None:
    old = _world("chandy-lamport")
    for choice in (1, 2):
        old.perform(("act", "writer"), choice)
    run_script(old, ["flush h0", "snapshot", "tell request h0", "record h0", "copy h0", "report h0 1"])
    world = restored(beginning(old), old)
    assert len(world.network.batches) == 1
    assert sorted(one[0] for one in world.control) == ["start", "start"]
    assert sorted(one[0] for one in old.control) == ["part", "request"]
    calm(world)
    calm(old)
    assert world.states() == {"writer": (), "reader": ()}
    told = [line for line in world.trace or () if "refused" in line]
    assert len(told) == 3
    assert not world.central.answers


def test_a_machine_that_waits_inside_an_action_is_an_obstacle_and_is_named() -> None:
    old = _world("chandy-lamport")
    old.perform(("act", "writer"), 5)
    run_script(old, ["snapshot", "tell request h0", "record h0", "copy h0"])
    calm(old)
    (recorded,) = old.central.completed
    assert obstacles(recorded) == ["writer waits for a reply, inside an action"]
    with pytest.raises(NotRestorableError, match="snapshot 1 cannot be restored: writer waits for a reply"):
        restored(recorded, old)
    assert restoring.latest(old).number == 0


# ---- the flows themselves -----------------------------------------------------------------------------------------------


def test_what_alignment_skipped_accepts_too_early_is_named_and_comes_twice() -> None:
    """`join` takes an item of `fast` behind its barrier before the one of `slow` has come."""
    machines: Mapping[str, tuple[Behaviour, Any]] = {
        "fast": (Source(((0, 7, 0), (1, 9, 0)), ("join",)), 0),
        "slow": (Source(((2, 1, 0),), ("join",)), 0),
        "join": (Operator(("sink",)), ()),
        "sink": (Operator(is_summing=True), ()),
    }
    world = World(
        {name: (f"h-{name}", behaviour, state) for name, (behaviour, state) in machines.items()},
        protocol=AT_LEAST_ONCE,
        is_atomic=True,
    )
    for edge in (("fast", "join"), ("slow", "join"), ("join", "sink")):
        world.connect(*edge)
    begin = ["snapshot", "tell request h-fast", "copy h-fast", "act fast 1", "flush h-fast", "deliver h-fast h-join"]
    slow = ["tell request h-slow", "copy h-slow", "flush h-slow", "deliver h-slow h-join", "copy h-join"]
    run_script(world, [*begin, "accept h-join", "record h-join", *slow, "act fast 1", "act slow 1", "calm"])
    (recorded,) = world.central.completed
    assert recorded.duplicates == {("fast", "join", "mail"): 1}
    assert repeated(world.log, recorded) == [(("fast", "join", "mail", 1), (1, "item", (0, 7, 0)))]
    run = storms.Run(AT_LEAST_ONCE, random.Random(0), world, Flow(machines), has_crashes=False)
    storms.roll_back(run, recorded)
    storms.settle(run)
    assert sums_of(run.world.states()) == {("sink", 0): 14, ("sink", 1): 9, ("sink", 2): 1}
    storms.check_result(run)


# ---- wrong restores -------------------------------------------------------------------------------------------------------


def _with_states(states: str) -> Edit:
    """Others are restored, by `name` and the recorded `state`, or all of them at once."""
    every = states if states.startswith("{") else f"{{name: {states} for name, state in recorded.states.items()}}"
    return storms, f"prepared: from dataclasses import replace\nrecorded = replace(recorded, states={every})"


BROKEN: dict[str, Edit] = {
    "channels_are_not_refilled": (restoring, "refill: messages = []"),
    "channels_are_refilled_twice": (restoring, "refill: messages = [one for one in messages for _ in range(2)]"),
    "timers_are_forgotten": (restoring, "refill: messages = [one for one in messages if one.kind != 'timer']"),
    # Under a number of their own: as mail.
    "timers_come_at_once": (restoring, "refill: messages = [one._replace(kind='mail') for one in messages]"),
    "creations_are_forgotten": (restoring, "refill: creations = []"),
    "a_source_begins_again": _with_states("0 if name.startswith('source') else state"),
    "a_source_goes_on_from_where_it_was_stopped": _with_states(
        "old.states()[name] if name.startswith('source') else state"
    ),
    "machines_born_after_the_cut_stay": _with_states("{**old.states(), **recorded.states}"),
    "an_operator_keeps_its_state": _with_states("old.states()[name] if name.startswith('operator') else state"),
    "an_older_generation_is_accepted": (RollbackHost, "judge: generation = max(generation, self.generation)"),
    "snapshot_numbers_begin_again": (World, "__init__: last = 0"),
    "who_waits_is_restored_too": (restoring, "obstacles: return []"),
    "lost_batches_are_forgotten": (LossyNetwork, "drop: self.lost.append(carried) => pass"),
    "duplicates_are_not_counted": (BarrierCore, "_check_white"),
    # The foretold duplicates do not come: the restored sum is as if each item had been accepted once.
    "replayed_items_are_told_apart": (storms, "effects: return {}"),
}
WRONG = [
    ("channels_are_not_refilled", "restore-chandy-lamport", "here, and sent|too little"),
    ("channels_are_not_refilled", "restore-observer", "here, and sent|too little"),
    ("channels_are_not_refilled", "storm-unaligned-barrier", "here, and sent|tokens in the first"),
    ("channels_are_refilled_twice", "restore-unaligned-barrier", "."),
    ("timers_are_forgotten", "restore-aligned-barrier", "here, and sent|too little"),
    ("timers_come_at_once", "restore-chandy-lamport", "."),
    ("creations_are_forgotten", "restore-chandy-lamport", "too little"),
    ("a_source_begins_again", "restore-chandy-lamport", "too much"),
    ("a_source_goes_on_from_where_it_was_stopped", "flow-chandy-lamport", "too little"),
    ("an_operator_keeps_its_state", "restore-observer", "too much"),
    ("machines_born_after_the_cut_stay", "restore-chandy-lamport", "."),
    ("an_older_generation_is_accepted", "flow-chandy-lamport", "."),
    ("an_older_generation_is_accepted", "storm-observer", "."),
    ("snapshot_numbers_begin_again", "flow-unaligned-barrier", "given out twice"),
    ("who_waits_is_restored_too", "storm-chandy-lamport", "wait inside an action"),
    ("lost_batches_are_forgotten", "flow-observer", "too little|waits for"),
    ("duplicates_are_not_counted", "restore-at-least-once-barrier", "."),
    ("replayed_items_are_told_apart", "restore-at-least-once-barrier", "too much"),
]


@pytest.mark.parametrize(("mutant", "name", "seen_by"), WRONG)
def test_a_wrong_restore_is_caught(mutant: str, name: str, seen_by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    break_(monkeypatch, BROKEN[mutant])
    with pytest.raises(OracleError, match=seen_by):
        _run_storms(name)


def _run_storms(name: str) -> None:
    for seed in range(150):
        run_storm(name, seed)


def test_a_refill_in_another_order_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    break_(monkeypatch, (restoring, "refill: messages = messages[::-1]"))
    with pytest.raises(AssertionError):
        _check_that_all_comes_again("observer")


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param((HostCore, "_report_if_late"), id="late messages are forgotten"),
        pytest.param((Turning, "is_white: return True"), id="the observer takes everything for white"),
        # A machine that is asked records behind its next action only.
        pytest.param((BarrierCore, "copy_next: if not self.runnable: return False"), id="barriers are late"),
    ],
)
def test_a_protocol_that_disagrees_is_caught(broken: Edit, monkeypatch: pytest.MonkeyPatch) -> None:
    break_(monkeypatch, broken)
    with pytest.raises(OracleError):
        _check_all_agree()


def _check_all_agree() -> None:
    for seed in range(60):
        check_agreement(seed)
