"""Where few waits can plainly all end, `Deadlock` says what it says of the graph, and mutants of that look do not."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from ray_snapshot import Snapshot
from ray_snapshot.detectors import Deadlock, Termination, deadlock, few_waits
from ray_snapshot.detectors.few_waits import blocked_that_can_move
from tests.detectors.test_deadlock_at_stake import apart, made_up, said

SEEDS = 80
_THEN = datetime(2026, 1, 1, tzinfo=UTC)


def of_calls(seed: int) -> Snapshot:
    """Machines that run calls, by chance: calls that wait for calls, for machines, for what is not recorded; most can move."""
    chance = random.Random(seed)
    names = [f"m{number}" for number in range(chance.randint(2, 8))]
    machines = [
        {"machine": name, "status": chance.choice(["active", "active", "passive", "blocked"])} for name in names
    ]
    calls = [
        {"machine": name, "call_id": f"m0/0/{name}/{number}", "method": "work"}
        for number in range(1, chance.randint(1, 3))
        for name in names
        if chance.random() < 0.6
    ]
    if chance.random() < 0.1 and calls:
        calls.append(calls[0] | ({"call_id": f"{calls[0]['call_id']}#2"} if chance.random() < 0.5 else {}))
    queued = [
        {"source": "m0", "target": name, "kind": "call", "number": 9, "call_id": f"m0/0/{name}/9", "method": "work"}
        for name in names
        if chance.random() < 0.2
    ]
    ids = [row["call_id"] for row in (*calls, *queued)]
    owners = [(row["machine"], row["call_id"]) for row in calls if chance.random() < 0.4]
    owners += [(row["machine"], None) for row in machines if row["status"] == "blocked" and chance.random() < 0.8]
    owners += [(row["target"], row["call_id"]) for row in queued if chance.random() < 0.1]
    waits: list[dict[str, Any]] = []
    for machine, call in owners:
        for alternative in range(chance.choice([1, 1, 2])):
            size = chance.choice([1, 1, 2, 3])
            k = chance.choice([1, size, None])
            for _ in range(size):
                on: dict[str, Any] = {"on_machine": chance.choice([*names, *names, "unborn", None])}
                if ids and chance.random() < 0.6:
                    on["on_call_id"] = chance.choice([*ids, *ids, "m9/0/m8/7", "m0/3"])
                late = {"timeout_at": chance.choice([None] * 9 + [_THEN])}
                answered = {"satisfied": chance.choice([False, False, True])}
                wait = {"machine": machine, "call_id": call, "alternative": alternative, "k": k}
                waits.append({**wait, **on, **late, **answered})
    coverage: dict[str, Any] = {"uncovered": chance.choice([[], ["threads"]])}
    if calls and chance.random() < 0.1:
        coverage["blocked_loops"] = {calls[0]["machine"]: calls[0]["call_id"]}
    return Snapshot.from_rows(machines=machines, calls=calls, messages=queued, waits=waits, coverage=coverage)


def of_the_graph(monkeypatch: pytest.MonkeyPatch, taken: Snapshot) -> tuple[object, ...]:
    """What `Deadlock` says of it without a look at the rows of waits alone."""
    with monkeypatch.context() as patch:
        patch.setattr(deadlock, "blocked_that_can_move", lambda _: None)
        patch.setattr(deadlock, "_at_stake", lambda _: None)
        return said(taken)


@pytest.mark.parametrize("make", [made_up, of_calls])
def test_what_is_plain_is_what_the_graph_says(make: Callable[[int], Snapshot], monkeypatch: pytest.MonkeyPatch) -> None:
    some = 0
    for seed in range(SEEDS):
        taken = make(seed)
        if (plain := blocked_that_can_move(taken)) is not None:
            assert said(taken) == of_the_graph(monkeypatch, taken), seed
            some += plain.machines + plain.calls > 0
    assert some > SEEDS // 10


def test_it_is_plain_where_the_rows_of_passive_machines_are_elsewhere() -> None:
    machines = [
        {"machine": name, "status": word} for name, word in zip("abc", ("blocked", "active", "passive"), strict=True)
    ]
    waits = [{"machine": "a", "on_machine": "b", "k": 1, "satisfied": False}]
    taken = apart(Snapshot.from_rows(machines=machines, waits=waits, coverage={"uncovered": []}))

    assert blocked_that_can_move(taken) == few_waits.Waiting(1, 0)
    assert Deadlock().evaluate(taken).holds is False
    assert taken.parted[1] is not None


@pytest.mark.parametrize("detector", [Deadlock(), Termination()], ids=["deadlock", "termination"])
def test_another_thread_may_load_rows_at_any_time(detector: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    machines = [{"machine": f"m{number}", "status": "passive"} for number in range(9)]
    machines += [{"machine": "a", "status": "blocked"}, {"machine": "b", "status": "active"}]
    waits = [{"machine": "a", "on_machine": "b", "k": 1, "satisfied": False}] * 501
    whole = Snapshot.from_rows(machines=machines, waits=waits, coverage={"uncovered": []})
    expected = detector.evaluate(whole)
    for looks in range(1, 8):
        left, parted = [looks], Snapshot.parted.fget  # type: ignore[attr-defined]

        def loaded(taken: Snapshot, left: list[int] = left, parted: Any = parted) -> Any:
            found = parted(taken)
            left[0] -= 1
            if not left[0]:
                taken.to_arrow()
            return found

        with monkeypatch.context() as patch:
            patch.setattr(Snapshot, "parted", property(loaded))
            found = detector.evaluate(apart(whole))
        assert (found.holds, found.evidence, found.sentence) == (expected.holds, expected.evidence, expected.sentence)


def _agrees(choice: list[Any], moves: set[Any]) -> bool:
    return any(on is None or on in moves for _, on in choice)


MUTANTS: dict[str, tuple[str, Callable[..., Any]]] = {
    "one is enough": ("_is_met", _agrees),
    "untold": ("_check_told", lambda *_: None),
    "all move": ("_check_all_move", lambda *_: None),
    "not begun": (
        "_owner",
        lambda name, call, running: ("call", call) if call in running else ("machine", name),
    ),
    "machine for call": ("_awaited", lambda on_machine, on_call_id, running: ("machine", on_machine)),
    "runs": (
        "_running",
        lambda calls: dict(zip(calls["call_id"].to_pylist(), calls["machine"].to_pylist(), strict=True)),
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_caught(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    def is_caught(taken: Snapshot) -> bool:
        real = blocked_that_can_move(taken)
        with monkeypatch.context() as patch:
            patch.setattr(few_waits, *MUTANTS[name])
            if blocked_that_can_move(taken) in (real, None):
                return False
            wrongly = said(taken)
        return wrongly != of_the_graph(monkeypatch, taken)

    assert any(is_caught(make(seed)) for seed in range(10 * SEEDS) for make in (of_calls, made_up))
