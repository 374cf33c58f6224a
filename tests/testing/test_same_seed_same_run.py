"""A seed stands for one run: what it gave once, it gives with every later version, under each protocol.

`recorded_runs.json` holds what each run came to. It is written anew (`python tests/testing/test_same_seed_same_run.py`) only
where chance is asked otherwise on purpose.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import explored_machines as machines
import pytest

from ray_snapshot import testing
from ray_snapshot.protocol.choosing import PROTOCOLS

RECORDED = Path(__file__).with_name("recorded_runs.json")
BUILDS = (
    machines.bank, machines.asking, machines.family, machines.joining, machines.racing, machines.throwing,
    machines.clocked, machines.choosing, machines.hurrying, machines.leaving, machines.keeping,
)  # fmt: skip
SETTINGS: tuple[dict[str, Any], ...] = (
    {"seed": 1, "snapshots": 3},
    {"seed": 2, "snapshots": 2, "hosts": 2, "crashes": 1, "most_steps": 300},
)
COLUMNS = {
    "machines": ("machine", "state", "status"),
    "messages": ("source", "target", "kind", "number", "method", "args"),
    "channels": ("source", "target", "kind", "sent_count", "accepted_count", "in_flight_count"),
}


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=repr).encode()).hexdigest()[:16]


def _facts(run: testing.Run) -> dict[str, Any]:
    snapshots = [
        snapshot.to_arrow(name).select(columns).to_pylist()
        for snapshot in run.snapshots
        for name, columns in COLUMNS.items()
    ]
    return {
        "count": len(run.schedule),
        "schedule": _digest(run.schedule.steps),
        "steps": _digest([*run.steps]),
        "events": _digest([repr(event) for event in run.events]),
        "snapshots": _digest(snapshots),
        "machines": _digest({name: vars(machine) for name, machine in run.machines.items()}),
        "verdicts": [verdict.holds for verdict in run.verdicts],
        "failed": run.failure is not None,
        "is_over": run.is_over,
    }


def _runs() -> Iterator[tuple[str, Any, dict[str, Any]]]:
    for build in BUILDS:
        for protocol in PROTOCOLS:
            for settings in SETTINGS:
                name = f"{build.__name__} {protocol} {settings['seed']}"
                yield name, build, {**settings, "protocol": protocol, "detectors": ["termination", "deadlock"]}


@pytest.mark.parametrize("build", BUILDS, ids=lambda build: build.__name__)
def test_a_seed_gives_the_run_that_it_always_gave(build: Any) -> None:
    recorded = json.loads(RECORDED.read_text("utf-8"))
    for name, found, settings in _runs():
        if found is build:
            assert _facts(testing.simulate(build, **settings)) == recorded[name], name


if __name__ == "__main__":
    facts = {name: _facts(testing.simulate(build, **settings)) for name, build, settings in _runs()}
    lines = [f"{json.dumps(name)}: {json.dumps(one)}" for name, one in facts.items()]
    RECORDED.write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")
