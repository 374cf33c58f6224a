"""Waits for room on nodes in whole runs: apps by chance, too large for their nodes, under schedules by chance.

Each snapshot is held against its run (`room_truth`): who is reported as deadlocked never goes on, and what stands still for
ever is reported. Then the same with something broken, which must be seen.
"""

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import room_truth
from making_mutants import Broken, Mutant, mutants
from replaying import check_replay
from room_truth import judged, played
from worlds.calls import crowds
from worlds.calls.crowds import run_crowd
from worlds.calls.nodes import Nodes
from worlds.calls.world import CallWorld

from ray_snapshot.detectors import room_rows, rooms, wait_graph
from ray_snapshot.protocol.calls import CallLedger
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


HELD_BEFORE = """\
last, now = (self.__dict__.setdefault(name, {}) for name in ("last", "now"))
last[machine], now[machine] = now.get(machine, NOTHING), demand or NOTHING"""

BROKEN: Broken = {
    (0, "missed"): {
        # What a task needs is not in its sender's log.
        "tasks_log_no_demand": (CallLedger, "start_task: demand = None"),
        # Nor what an actor needs.
        "constructors_log_no_demand": (CallLedger, "create: demand = None"),
        # A process tells what it had before it began what it runs.
        "holdings_are_of_an_earlier_moment": [
            (Nodes, f"take: {HELD_BEFORE}"),
            (Nodes, "report: self.held.get( => self.__dict__.get('last', {}).get("),
        ],
        # An actor counts as a task (trap 29).
        "methods_that_wait_give_back_their_cpu": (
            room_rows,
            '_holder: if row["task"] and not computes and not row.get("keeps_cpu", False): => if True:',
        ),
        "actors_at_rest_keep_nothing": (rooms.State, "_frees: if self.rooms.rests(index): return True"),
    },
    # What a blocked task has given back counts as held (trap 29).
    (174, "false alarm"): {"tasks_that_wait_keep_their_cpu": (room_rows, "_is_cpu: return False")},
    (30, "missed"): {
        # A blocked task counts as having nothing (trap 29).
        "tasks_that_wait_give_back_all": (
            room_rows,
            '_holder: row["node"], amounts, => row["node"], {} if row["task"] else amounts,',
        ),
    },
    (31, "false alarm"): {
        # Before the cut, and not behind it (trap 31).
        "nodes_are_looked_at_once": (room_truth, "snapshot_of: _cluster(cut.after) => _cluster(cut.before)"),
    },
    (143, "false alarm"): {
        # Each process says that no handle lies in its garbage (trap 30).
        "garbage_is_no_matter": (Nodes, "report: is_clean = True"),
        # Whoever could drop their handles (trap 32).
        "actors_at_rest_keep_what_they_have": (rooms.State, "_frees: if self.rooms.rests(index): return False"),
    },
    (4479, "forgotten"): {
        # An actor of which a call is about to begin counts as at rest, and no more as soon as that runs.
        "calls_on_their_way_end_no_actor": [
            (rooms._Finder, "queued: return []"),
            (rooms, "_acting: return np.zeros(snapshot.machine_count, np.bool_)"),
        ],
    },
    (25, "missed"): {
        "a_part_here_and_a_part_there_are_room": (
            rooms.State,
            "is_met: return fits(dict(demand.needs), added(self.left[node] for node in self.allowed(demand)))",
        ),
    },
    (151, "missed"): {
        # So it wakes all actors at rest, and these could drop handles.
        "a_free_slot_is_something_that_acts": [
            (wait_graph.WaitGraph, "acts: return bool(seeds.any() or free(self.graph).any())"),
            (rooms.State, "__init__: moves[: rooms.acting].any() => moves.any()"),
        ],
    },
    (0, "unknown for no reason"): {
        # A call that has ended could be something that acts, and drops handles.
        "replies_that_are_there_are_not_known": (wait_graph, "_outside:  & ~graph.satisfied => "),
    },
    (33, "missed"): {
        "calls_that_lack_arguments_wake_their_actors": (
            wait_graph,
            "_without_waiting: return snapshot.tables['messages']",
        ),
    },
}
"""By the first seed that shows it, and what is said then."""

MUTANTS = mutants(BROKEN)


@pytest.mark.by_day(4)
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_what_is_broken_about_room_is_seen(mutant: Mutant, monkeypatch: Patch) -> None:
    mutant.breaks(monkeypatch)
    told = failures(mutant)
    assert mutant.seen_by in told[-1], f"{MOST_RUNS} runs did not show a {mutant.seen_by}; they showed {told[:2]}"


def failures(mutant: Mutant) -> list[str]:
    """What fails, run by run, until it is this."""
    told = ["nothing"]
    for seed in range(mutant.shown_by, mutant.shown_by + MOST_RUNS):
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
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == {one.name for one in MUTANTS}


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
