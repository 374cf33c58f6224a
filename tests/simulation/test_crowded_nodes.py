"""Waits for room on nodes in whole runs: apps by chance, too large for their nodes, under schedules by chance.

Each snapshot is held against its run (`room_truth`): who is reported as deadlocked never goes on, and what stands still for
ever is reported. Then the same with something broken, which must be seen.
"""

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import room_truth
from replaying import check_replay
from room_truth import judged, played
from worlds.calls import crowds
from worlds.calls.crowds import run_crowd
from worlds.calls.nodes import CPU, Nodes
from worlds.calls.world import CallWorld

from ray_snapshot.detectors import room_rows, rooms, wait_graph
from ray_snapshot.detectors.reduction import free
from ray_snapshot.instrument.watcher.resources import Looks
from ray_snapshot.protocol.calls import CallLedger
from ray_snapshot.protocol.demands import NOTHING, Demand, Held
from ray_snapshot.simulation.mail.oracle import OracleError

RUNS, NIGHTLY_RUNS, BLOCKS = 20, 6_000, 12
MOST_RUNS = 200
Patch = pytest.MonkeyPatch


def test_no_false_alarm_for_lack_of_room_and_none_missed() -> None:
    met = sum((played(seed) for seed in range(RUNS)), Counter())
    wanted = (
        "True for lack of room",
        "True in quiet",
        "False in quiet",
        "None for lack of room",
        "waits for room",
        "joins",
    )
    assert {what: met[what] for what in wanted if not met[what]} == {}, "too little has happened to mean anything"


@pytest.mark.nightly
@pytest.mark.parametrize("block", range(BLOCKS))
def test_no_false_alarm_for_lack_of_room_and_none_missed_in_thousands_of_runs(block: int) -> None:
    first = RUNS + block * NIGHTLY_RUNS // BLOCKS
    for seed in range(first, first + NIGHTLY_RUNS // BLOCKS):
        played(seed)


# ---- do these tests work? --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Mutant:
    """One thing that is wrong."""

    breaks: Callable[[Patch], None]
    seen_by: str
    first_seed: int = 0
    """Of rare cases: the seeds before do not show them."""


def tasks_log_no_demand(patch: Patch) -> None:
    """What a task needs is not in its sender's log."""
    start = CallLedger.start_task
    patch.setattr(CallLedger, "start_task", lambda *args, **more: start(*args, **{**more, "demand": None}))


def constructors_log_no_demand(patch: Patch) -> None:
    """Nor what an actor needs."""
    create = CallLedger.create
    patch.setattr(CallLedger, "create", lambda *args, **more: create(*args, **{**more, "demand": None}))


def holdings_are_of_an_earlier_moment(patch: Patch) -> None:
    """A process tells what it had before it began what it runs."""
    take, report = Nodes.take, Nodes.report

    def remember(self: Nodes, machine: str, node: str, demand: Demand | None) -> None:
        take(self, machine, node, demand)
        now, last = self.__dict__.setdefault("now", {}), self.__dict__.setdefault("last", {})
        last[machine], now[machine] = now.get(machine, NOTHING), demand or NOTHING

    def earlier(self: Nodes, machine: str, *, is_clean: bool) -> Held:
        last: Demand = self.__dict__.get("last", {}).get(machine, NOTHING)
        return replace(report(self, machine, is_clean=is_clean), amounts=dict(last.needs))

    patch.setattr(Nodes, "take", remember)
    patch.setattr(Nodes, "report", earlier)


def tasks_that_wait_keep_their_cpu(patch: Patch) -> None:
    """What a blocked task has given back counts as held (trap 29)."""
    patch.setattr(room_rows, "_is_cpu", lambda _: False)


def methods_that_wait_give_back_their_cpu(patch: Patch) -> None:
    """An actor counts as a task (trap 29)."""
    holder = room_rows._holder

    def without_cpu(*args: Any, **more: Any) -> room_rows.Holder:
        found = holder(*args, **more)
        return replace(found, amounts={name: amount for name, amount in found.amounts.items() if name != CPU})

    patch.setattr(room_rows, "_holder", without_cpu)


def tasks_that_wait_give_back_all(patch: Patch) -> None:
    """A blocked task counts as having nothing (trap 29)."""
    holder = room_rows._holder

    def empty(*args: Any, **more: Any) -> room_rows.Holder:
        found = holder(*args, **more)
        return replace(found, amounts={}) if found.is_task else found

    patch.setattr(room_rows, "_holder", empty)


def nodes_are_looked_at_once(patch: Patch) -> None:
    """Before the cut, and not behind it (trap 31)."""
    patch.setattr(room_truth, "Looks", lambda before, _: Looks(before, before))


def garbage_is_no_matter(patch: Patch) -> None:
    """Each process says that no handle lies in its garbage (trap 30)."""
    report = Nodes.report
    patch.setattr(Nodes, "report", lambda self, machine, **_: report(self, machine, is_clean=True))


def actors_at_rest_keep_what_they_have(patch: Patch) -> None:
    """Whoever could drop their handles (trap 32)."""
    frees = rooms.State._frees

    def keeps(self: rooms.State, index: int) -> bool:
        return not self.rooms.rests(index) and frees(self, index)

    patch.setattr(rooms.State, "_frees", keeps)


def actors_at_rest_keep_nothing(patch: Patch) -> None:
    frees = rooms.State._frees
    patch.setattr(rooms.State, "_frees", lambda self, index: self.rooms.rests(index) or frees(self, index))


def calls_on_their_way_end_no_actor(patch: Patch) -> None:
    """An actor of which a call is about to begin counts as at rest, and no more as soon as that runs."""
    queued = rooms._Finder.queued
    patch.setattr(rooms._Finder, "queued", lambda self, machine: queued(self, machine)[:0])
    patch.setattr(rooms, "_acting", lambda snapshot: np.zeros(snapshot.machine_count, np.bool_))


def a_part_here_and_a_part_there_are_room(patch: Patch) -> None:
    def is_met(self: rooms.State, demand: room_rows.Demand) -> bool:
        return rooms.fits(dict(demand.needs), room_rows.added(self.left[node] for node in self.allowed(demand)))

    patch.setattr(rooms.State, "is_met", is_met)


def a_free_slot_is_something_that_acts(patch: Patch) -> None:
    """So it wakes all actors at rest, and these could drop handles."""
    patch.setattr(wait_graph.WaitGraph, "acts", lambda self, seeds: bool(seeds.any() or free(self.graph).any()))
    patch.setattr(rooms.Rooms, "acting", property(lambda self: None, lambda *_: None), raising=False)


def replies_that_are_there_are_not_known(patch: Patch) -> None:
    """A call that has ended could be something that acts, and drops handles."""
    outside = wait_graph._outside

    def of_all(snapshot: Any, nodes: Any, untold: Any, silent: Any, graph: Any, unborn: Any) -> Any:
        return outside(
            snapshot, nodes, untold, silent, replace(graph, satisfied=np.zeros_like(graph.satisfied)), unborn
        )

    patch.setattr(wait_graph, "_outside", of_all)


def calls_that_lack_arguments_wake_their_actors(patch: Patch) -> None:
    patch.setattr(wait_graph, "_without_waiting", lambda snapshot, *_: snapshot.tables["messages"])


MUTANTS = [
    Mutant(tasks_log_no_demand, "missed"),
    Mutant(constructors_log_no_demand, "missed"),
    Mutant(holdings_are_of_an_earlier_moment, "missed"),
    Mutant(tasks_that_wait_keep_their_cpu, "false alarm", 174),
    Mutant(methods_that_wait_give_back_their_cpu, "missed"),
    Mutant(tasks_that_wait_give_back_all, "missed", 30),
    Mutant(nodes_are_looked_at_once, "false alarm", 31),
    Mutant(garbage_is_no_matter, "false alarm", 143),
    Mutant(actors_at_rest_keep_what_they_have, "false alarm", 143),
    Mutant(actors_at_rest_keep_nothing, "missed"),
    Mutant(calls_on_their_way_end_no_actor, "forgotten", 4479),
    Mutant(a_part_here_and_a_part_there_are_room, "missed", 25),
    Mutant(a_free_slot_is_something_that_acts, "missed", 151),
    Mutant(replies_that_are_there_are_not_known, "unknown for no reason"),
    Mutant(calls_that_lack_arguments_wake_their_actors, "missed", 33),
]


@pytest.mark.by_day(4)
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.breaks.__name__)
def test_what_is_broken_about_room_is_seen(mutant: Mutant, monkeypatch: Patch) -> None:
    mutant.breaks(monkeypatch)
    told = failures(mutant)
    assert mutant.seen_by in told[-1], f"{MOST_RUNS} runs did not show a {mutant.seen_by}; they showed {told[:2]}"


def failures(mutant: Mutant) -> list[str]:
    """What fails, run by run, until it is this."""
    told = ["nothing"]
    for seed in range(mutant.first_seed, mutant.first_seed + MOST_RUNS):
        try:
            played(seed)
        except AssertionError as error:
            told.append(str(error))
            if mutant.seen_by in told[-1]:
                break
    return told


def test_the_page_of_protocols_names_every_mutant_about_room() -> None:
    page = (Path(__file__).parents[2] / "docs" / "protocols.md").read_text()
    table = page.split("### Room on nodes")[1].split("\n##")[0]
    rows = [row.split("|")[3] for row in table.splitlines() if row.startswith("| ")]
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == {one.breaks.__name__ for one in MUTANTS}


def test_what_is_stuck_has_the_same_however_late_it_is_asked(monkeypatch: Patch) -> None:
    """So it is no matter that Ray is asked some moments behind the instant; what can move counts as free anyway."""
    seeds = range(4)
    at_once = [judged(crowd, cut).verdict.holds for crowd in map(run_crowd, seeds) for cut in crowd.cuts]
    report = CallWorld._report

    def late(self: CallWorld, name: str, number: int) -> str:
        machine = self.alive[name]
        held = self.nodes.report(name, is_clean=machine.dropped <= self.ray.dead)
        machine.ledger.open[number] = replace(machine.ledger.open[number], held=held)
        return report(self, name, number)

    monkeypatch.setattr(CallWorld, "_report", late)
    assert [judged(crowd, cut).verdict.holds for crowd in map(run_crowd, seeds) for cut in crowd.cuts] == at_once


def test_a_crowded_run_is_replayed_by_the_command_that_its_error_prints(monkeypatch: Patch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise OracleError("for the sake of the test")

    monkeypatch.setattr(crowds, "check_end", fails)
    traces: list[list[str]] = [[], []]
    for seed, trace in enumerate(traces, 7):
        with pytest.raises(OracleError, match="for the sake of the test") as caught:
            run_crowd(seed, trace)
    assert traces[0] != traces[1]
    check_replay(caught.value, traces[1])
