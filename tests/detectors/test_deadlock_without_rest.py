"""Where the rows of machines at rest are not here, `Deadlock` says the same as of all rows."""

import random
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from ray_snapshot import Snapshot
from ray_snapshot.detectors import Deadlock
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


def test_the_same_is_said_where_the_rows_of_passive_machines_are_elsewhere() -> None:
    for seed in range(SEEDS):
        taken = made_up(seed)
        if len(set(taken.tables["machines"]["machine"].to_pylist())) == taken.machine_count:
            assert said(apart(taken)) == said(taken), seed
