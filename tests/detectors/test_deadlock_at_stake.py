"""While a machine is active, `Deadlock` looks at few rows first: it says the same as of all rows, and mutants do not."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from ray_snapshot import Snapshot
from ray_snapshot.detectors import Deadlock, deadlock
from ray_snapshot.snapshot import Absent

SEEDS = 80
_THEN = datetime(2026, 1, 1, tzinfo=UTC)


def made_up(seed: int) -> Snapshot:
    """Machines, waits, calls and messages by chance: unknown words, names that are not recorded or recorded twice, nulls."""
    chance = random.Random(seed)
    names = [f"m{number}" for number in range(chance.randint(2, 9))]
    is_simple = chance.random() < 0.6
    statuses = chance.choice(
        ["blocked active passive", "blocked passive", "blocked passive passive active stopped odd"]
    )
    machines: list[dict[str, Any]] = [
        {"machine": name, "status": chance.choice(statuses.split()), "max_concurrency": chance.choice([1, 1, 2])}
        for name in names
    ]
    for row in machines:
        if row["status"] == "blocked" and chance.random() < 0.3:
            row |= {"wait_mode": chance.choice(["all", "any"]), "waits_for": chance.sample(names, 1)}
    if chance.random() < 0.1:
        machines.append({"machine": chance.choice(names), "status": chance.choice(statuses.split())})
    run = [
        {"machine": chance.choice(names), "call_id": f"m0/{n}", "method": "work"}
        for n in range(0 if is_simple else chance.randint(0, 4))
    ]
    sent: list[dict[str, Any]] = []
    for number in range(chance.randint(0, 1 if is_simple else 8)):
        kind = chance.choice(["mail", "mail", "call", "timer"])
        given = {"call_id": f"m1/{number}"} if kind == "call" else {}
        place = {"source": chance.choice(names), "target": chance.choice([*names, "unborn"])}
        sent.append({**place, "kind": kind, "number": chance.choice([0, number + 1]), "method": "work", **given})
    ids = [row["call_id"] for row in [*run, *sent] if "call_id" in row]
    waits: list[dict[str, Any]] = []
    owners: list[tuple[str, str | None]] = [(row["machine"], row["call_id"]) for row in run]
    owners += [(row["machine"], None) for row in machines if row["status"] == "blocked"]
    owners += [(row["machine"], None) for row in machines if row["status"] == "passive" and chance.random() < 0.3]
    for machine, call in owners:
        for alternative in range(1 if is_simple else chance.choice([0, 1, 1, 2])):
            for _ in range(k := 1 if is_simple else chance.choice([1, 1, 2])):
                on = {"on_machine": chance.choice(names if is_simple else [*names, *names, *names, "unborn", None])}
                if ids and chance.random() < 0.3:
                    on["on_call_id"] = chance.choice([*ids, "m9/99"])
                late = {"timeout_at": _THEN} if chance.random() < 0.05 else {}
                answered = {"satisfied": chance.choice([False, False, False, False, True, None])}
                wait = {"machine": machine, "call_id": call, "alternative": alternative, "k": chance.choice([k, 1])}
                waits.append({**wait, **on, **late, **answered})
    coverage = {"uncovered": chance.choice([[], [], ["threads"]])}
    return Snapshot.from_rows(
        machines=machines, waits=waits, calls=run, messages=sent, coverage=coverage, started_at=_THEN
    )


def apart(taken: Snapshot) -> Snapshot:
    """The same with the rows of passive machines elsewhere."""
    machines = taken.tables["machines"]
    elsewhere = pa.array([status == "passive" for status in machines["status"].to_pylist()], pa.bool_())
    rest = machines.filter(elsewhere)

    def fetch(names: list[str] | None, _: float = 0) -> pa.Table:
        return (
            rest
            if names is None
            else rest.filter(pa.array([one in names for one in rest["machine"].to_pylist()], pa.bool_()))
        )

    absent = Absent({"": rest.num_rows}, {}, {}, 0, fetch, lambda *_: [])
    return Snapshot({**taken.tables, "machines": machines.filter(pa.compute.invert(elsewhere))}, absent)


def said(taken: Snapshot) -> tuple[object, ...]:
    verdict = Deadlock().evaluate(taken)
    return verdict.holds, verdict.evidence, verdict.sentence


def differing(monkeypatch: pytest.MonkeyPatch, seeds: range) -> Iterator[int]:
    """The seeds of which few rows say something else than all."""
    for seed in seeds:
        few = said(made_up(seed))
        with monkeypatch.context() as patch:
            patch.setattr(deadlock, "_at_stake", lambda _: None)
            if few != said(made_up(seed)):
                yield seed


def test_of_few_rows_the_same_is_said_as_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(differing(monkeypatch, range(SEEDS))) == []
    clear = [seed for seed in range(SEEDS) if said(made_up(seed))[0] is False]
    few = [seed for seed in clear if deadlock._at_stake(made_up(seed)) is not None]
    assert min(SEEDS - len(clear), len(clear) - len(few), len(few)) > SEEDS // 20


def test_the_same_is_said_where_the_rows_of_passive_machines_are_elsewhere() -> None:
    for seed in range(SEEDS):
        taken = made_up(seed)
        if len(set(taken.tables["machines"]["machine"].to_pylist())) == taken.machine_count:
            assert said(apart(taken)) == said(taken), seed


def test_machines_that_nobody_waits_for_are_not_looked_at() -> None:
    idle = [{"machine": f"m{number}", "status": "active"} for number in range(100)]
    stuck = [{"machine": "a", "status": "blocked"}, {"machine": "b", "status": "passive"}]
    mail = [{"source": "m1", "target": "m2"}, {"source": "b", "target": "a"}]
    waits = [{"machine": "a", "on_machine": "b", "k": 1}]
    few = deadlock._at_stake(Snapshot.from_rows(machines=[*idle, *stuck], waits=waits, messages=mail))
    assert few is not None
    assert sorted(few.machines) == ["a", "b", "m0"]
    assert [message.target for message in few.messages] == ["a"]


def _though_none_is_active(real: Callable[[Snapshot], Snapshot | None]) -> Callable[[Snapshot], Snapshot | None]:
    """What is at stake, also if nothing but machines that are left out can move."""

    def made(snapshot: Snapshot) -> Snapshot | None:
        found = real(snapshot)
        if found is not None or not snapshot.tables["machines"].num_rows:
            return found
        one = {"machine": "made-up", "status": "active", "snapshot_id": snapshot.snapshot_id}
        row = pa.Table.from_pylist([one], snapshot.tables["machines"].schema)
        return snapshot.with_machines(pa.concat_tables([snapshot.tables["machines"], row]))

    return made


def _changed(change: Callable[[Snapshot], Snapshot]) -> Callable[[Any], Callable[[Snapshot], Snapshot | None]]:
    """What is at stake, and then changed."""

    def mutant(real: Callable[[Snapshot], Snapshot | None]) -> Callable[[Snapshot], Snapshot | None]:
        return lambda snapshot: None if (found := real(snapshot)) is None else change(found)

    return mutant


def _with_all_awake(found: Snapshot) -> Snapshot:
    """The inputs of machines at rest are forgotten."""
    machines, waits = found.tables["machines"], found.tables["waits"]
    passive = machines.filter(pa.compute.equal(machines["status"], "passive"))["machine"].combine_chunks()
    kept = pa.compute.invert(pa.compute.is_in(waits["machine"], passive))
    return found.with_rows(machines=machines, waits=waits.filter(kept))


def _without_short_form(found: Snapshot) -> Snapshot:
    """Those are left out that no row of `waits` names."""
    waits, machines = found.tables["waits"], found.tables["machines"]
    named = pa.concat_arrays([waits["machine"].combine_chunks(), waits["on_machine"].combine_chunks()])
    is_active = pa.compute.invert(pa.compute.is_in(machines["status"], pa.array(["blocked", "passive", "stopped"])))
    return found.with_machines(machines.filter(pa.compute.or_(pa.compute.is_in(machines["machine"], named), is_active)))


@pytest.mark.parametrize(
    "mutant",
    [_though_none_is_active, _changed(_with_all_awake), _changed(_without_short_form)],
    ids=["none", "awake", "short"],
)
def test_a_mutant_is_caught(monkeypatch: pytest.MonkeyPatch, mutant: Any) -> None:
    monkeypatch.setattr(deadlock, "_at_stake", mutant(deadlock._at_stake))
    assert next(differing(monkeypatch, range(5 * SEEDS)), None) is not None
