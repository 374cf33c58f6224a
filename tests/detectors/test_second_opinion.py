"""`second_opinion.py` against the detectors: what is so it confirms (or leaves open), what was changed it refutes."""

from __future__ import annotations

import json
import random
from typing import Any

import pyarrow as pa
import pytest
from second_opinion import CONFIRMED, UNCHECKED, WRONG, check

from ray_snapshot.detectors import Deadlock, Termination, TokenConservation
from ray_snapshot.snapshot import Snapshot
from ray_snapshot.verdicts import Detector, Verdict, evaluate

CONSERVATION = TokenConservation(total=30, state="$.balance", messages={"deposit": "$[0]"})
COVERED: dict[str, Any] = {"coverage": {"uncovered": []}}


def opinion(snapshot: Snapshot, verdict: Verdict) -> tuple[str, str]:
    spec, evidence = (json.dumps(part) for part in (verdict.detector_spec, verdict.evidence))
    return check(snapshot, {"detector_spec": spec, "evidence": evidence, "holds": verdict.holds})


def judged(snapshot: Snapshot, detector: Detector, **changed: Any) -> tuple[str, str]:
    """The second opinion on a detector's verdict, after parts of it or of its evidence were changed."""
    verdict = evaluate(detector, snapshot)
    evidence = {**verdict.evidence, **changed.pop("evidence", {})}
    return opinion(snapshot, verdict.model_copy(update={**changed, "evidence": evidence}))


def some_snapshot(chance: random.Random) -> Snapshot:
    """A few machines that wait for some of each other, in all modes, with and without messages."""
    names = [f"m{n}" for n in range(chance.randint(2, 6))]
    machines = []
    for name in names:
        machine: dict[str, Any] = {
            "machine": name,
            "status": chance.choice(["active", "passive", "stopped", "blocked"]),
        }
        if machine["status"] == "blocked":
            on = chance.sample(names, chance.randint(1, min(3, len(names))))
            machine |= {"waits_for": on, "wait_mode": chance.choice(["all", "any", "k_of_n"]), "wait_k": 1}
        machines.append(machine | {"state": {"balance": 10}})
    sends = [chance.sample(names, 2) for _ in range(chance.choice([0, 0, 1]))]
    messages = [{"source": one, "target": two, "method": "deposit", "args": [1]} for one, two in sends]
    return Snapshot.from_rows(machines=machines, messages=messages, **COVERED)


@pytest.mark.parametrize("seed", range(300))
def test_no_verdict_of_a_detector_is_refuted_and_most_are_confirmed(seed: int) -> None:
    snapshot = some_snapshot(random.Random(seed))
    for detector in (Termination(), Deadlock(), CONSERVATION):
        outcome, reason = judged(snapshot, detector)
        assert outcome != WRONG, f"{detector}: {reason} (seed {seed})"


def test_hardly_any_verdict_of_a_known_detector_is_left_open() -> None:
    outcomes = [
        judged(snapshot, detector)[0]
        for seed in range(300)
        for snapshot in [some_snapshot(random.Random(seed))]
        for detector in (Termination(), Deadlock(), CONSERVATION)
    ]
    assert outcomes.count(CONFIRMED) > 0.9 * len(outcomes)


def test_an_answer_turned_round_is_refuted() -> None:
    refuted = 0
    for seed in range(300):
        snapshot = some_snapshot(random.Random(seed))
        for detector in (Termination(), CONSERVATION):
            holds = evaluate(detector, snapshot).holds
            assert judged(snapshot, detector, holds=not holds)[0] == WRONG, f"{detector} (seed {seed})"
        deadlock = evaluate(Deadlock(), snapshot)
        if deadlock.holds is False:
            assert judged(snapshot, Deadlock(), holds=True)[0] == WRONG, f"nobody is named (seed {seed})"
            refuted += 1
    assert refuted > 30


def table() -> Snapshot:
    machines = [
        {"machine": "kant", "waits_for": ["hume"]},
        {"machine": "hume", "waits_for": ["kant"]},
        {"machine": "guest", "status": "blocked", "waits_for": ["waiter"]},
        {"machine": "waiter", "status": "active"},
    ]
    return Snapshot.from_rows(machines=machines, **COVERED)


def test_evidence_that_names_somebody_who_can_move_is_refuted() -> None:
    assert judged(table(), Deadlock())[0] == CONFIRMED
    members = [{"machine": "kant"}, {"machine": "hume"}]
    for extra, said in (
        ("guest", "whose waits can all end"),
        ("waiter", "is active and waits for nothing"),
        ("rousseau", "which the snapshot does not have"),
    ):
        changed = {"members": [*members, {"machine": extra}], "member_count": 3}
        outcome, reason = judged(table(), Deadlock(), evidence=changed)
        assert (outcome, said in reason) == (WRONG, True), reason
    assert judged(table(), Deadlock(), evidence={"members": members[:1], "member_count": 1})[0] == CONFIRMED


def test_figures_that_are_not_those_of_the_rows_are_refuted() -> None:
    snapshot = Snapshot.from_rows(
        machines=[{"machine": name, "state": {"balance": 10}} for name in "ab"],
        messages=[{"source": "a", "target": "b", "method": "deposit", "args": [10]}],
        **COVERED,
    )
    assert judged(snapshot, CONSERVATION) == (CONFIRMED, "")
    assert judged(snapshot, CONSERVATION, evidence={"found": 29})[0] == WRONG
    assert judged(snapshot, CONSERVATION, evidence={"expected": 29})[0] == WRONG
    assert judged(snapshot, Termination(), evidence={"active": 3})[0] == WRONG
    assert judged(snapshot, TokenConservation(total=0, state="$['a b']"))[0] == UNCHECKED


def with_state(text: str, *, is_cut: bool = False) -> Snapshot:
    """One machine whose state is this JSON text."""
    found = Snapshot.from_rows(machines=[{"machine": "a", "state": {"balance": 30}}], **COVERED)
    table = found.tables["machines"]
    for name, value in (("state", text), ("state_truncated", is_cut)):
        place = table.schema.get_field_index(name)
        table = table.set_column(place, name, pa.array([value], table.schema.field(name).type))
    return Snapshot({**found.tables, "machines": table})


SAID = Verdict(
    holds=True, evidence={"expected": 30, "found": 30}, sentence="", detector_spec=CONSERVATION.spec, snapshot_id="s"
)
PLAIN = "what it counts is no plain number everywhere"


@pytest.mark.parametrize(
    ("text", "is_cut", "expected"),
    [
        ('{"balance":30}', False, (CONFIRMED, "")),
        ('{"balance":3e1}', False, (CONFIRMED, "")),
        ('{"balance":1e999999999}', False, (UNCHECKED, PLAIN)),
        ('{"balance":1e-999999999}', False, (UNCHECKED, PLAIN)),
        ('{"balance":"30"}', False, (UNCHECKED, PLAIN)),
        ('{"balance":[30]}', False, (UNCHECKED, PLAIN)),
        ('{"balance":30', False, (UNCHECKED, PLAIN)),
        ('{"balance":30}', True, (UNCHECKED, PLAIN)),
        ("[" * 100_000, False, (UNCHECKED, PLAIN)),
    ],
)
def test_what_it_cannot_count_within_its_bounds_it_leaves_open(
    text: str, is_cut: bool, expected: tuple[str, str]
) -> None:
    assert opinion(with_state(text, is_cut=is_cut), SAID) == expected


def test_it_says_why_it_leaves_a_verdict_open() -> None:
    members = [{"machine": "kant"}, {"machine": "hume"}]
    cut = {"members": members, "member_count": 2, "stuck_behind_count": 200}
    assert judged(table(), Deadlock(), evidence=cut) == (UNCHECKED, "its evidence was cut off")
    assert judged(table(), Deadlock(), evidence={"members": [{}]})[1].startswith("its evidence is not of the shape")
    assert judged(table(), Deadlock(), evidence={"members": "kant"})[0] == UNCHECKED
    assert judged(table(), Deadlock(), evidence={"members": []}) == (WRONG, "it names no machine")
    assert judged(table(), Deadlock(), holds=None) == (UNCHECKED, "the detector could not tell")
    assert judged(table(), CONSERVATION, holds=True, evidence={"expected": None})[0] == UNCHECKED
    unknown = SAID.model_copy(update={"detector_spec": {"type": "callable"}})
    assert opinion(table(), unknown) == (UNCHECKED, "there is no checker for this detector")
