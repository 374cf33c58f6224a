"""What a snapshot costs: the system's throughput while they are taken, and the time of one by the number of machines."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from statistics import median
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import ray

import ray_snapshot as rs
from benchmarks.measure import Result, alternate, timed_ms
from benchmarks.processes import Spent
from ray_snapshot.schema import MACHINES

EVERY_S = 0.25
WINDOW_S = 4.0
EMPTY_TIMES = 50
"""So many empty snapshots, or calls, make one measurement."""


class Runner(rs.SnapshotMixin):
    """Passes what it gets on to the next machine, for ever."""

    def __init__(self, position: int, count: int) -> None:
        self.next = self.machine(f"Runner-{(position + 1) % count}")
        self.far = self.machine(f"Runner-{(position + count // 2) % count}")
        self.passed = 0

    def pass_on(self, turns: int) -> None:
        self.passed += 1
        (self.far if turns % 4 == 0 else self.next).pass_on.send(turns + 1)

    def beat(self, every: float, left: int) -> None:
        """Start a snapshot every so many seconds, and wait for none of them."""
        self.request_snapshot()
        if left > 1:
            self.handle.beat.send_after(every, every, left - 1)


class Idle(rs.SnapshotMixin):
    """A machine with a small state, which is read in every snapshot."""

    volatile: bool | None = True

    def __init__(self, number: int) -> None:
        self.number = number
        self.balance = 100.5
        self.name = f"account number {number}"
        self.recent = [number, number + 1, number + 2]


class Resting(Idle):
    """The same, read once."""

    volatile = None


def run(names: set[str]) -> Iterator[Result]:
    """Yield the figures `throughput-with-snapshots`, `snapshot-empty`, `snapshot-10000` and `snapshot-unchanged`."""
    if "throughput-with-snapshots" in names:
        yield _throughput()
    if "snapshot-empty" in names:
        yield _empty()
    if names & {"snapshot-10000", "snapshot-unchanged"}:
        yield from _sizes(names)


class Plain:
    """An actor like the service: asynchronous, and asked by the program."""

    async def answer(self, *given: object) -> int:
        """How many arguments it got."""
        return len(given)


def _empty() -> Result:
    """Two machines on two hosts at rest, and a program that does nothing else."""
    actor = ray.remote(Plain).options(num_cpus=0, max_concurrency=1_000).remote()
    with _idle(2, "benchmark-empty", Resting) as system:
        for _ in range(10):
            system.snapshot()
            ray.get(actor.answer.remote(1))
        taken = ("snapshot_ms", lambda: _median_ms(system.snapshot))
        asked = ("ray_round_trip_ms", lambda: _median_ms(lambda: ray.get(actor.answer.remote(1))))
        return alternate("snapshot-empty", "<= 8", taken, asked)


def _median_ms(work: Callable[[], object]) -> float:
    return median(timed_ms(work) for _ in range(EMPTY_TIMES))


def _throughput() -> Result:
    with tempfile.TemporaryDirectory() as folder, rs.System("benchmark-throughput", history=folder) as system:
        machines = system.spawn_many(Runner, args=[(n, 1_000) for n in range(1_000)], per_host=500)
        system.start()
        for machine in machines:
            machine.pass_on.send(1)
        spent = Spent(hosts=2)
        found = alternate(
            "throughput-with-snapshots",
            ">= 0.95",
            ("messages_per_s_with", lambda: _rate(system, machines[0], spent)),
            ("messages_per_s_without", lambda: _rate(system, None, spent)),
            pairs=6,
        )
    return replace(found, parts=spent.per_snapshot())


def _rate(system: rs.System, metronome: Any, spent: Spent) -> float:
    """Messages accepted a second between two snapshots, with one every `EVERY_S` in between or with none."""
    service = system._service
    first = system.snapshot()
    with spent.measured(lambda: ray.get(service.last_number.remote()), is_with=metronome is not None):
        if metronome is not None:
            metronome.beat.send(EVERY_S, int(WINDOW_S / EVERY_S) - 1)
        time.sleep(WINDOW_S)
    last = system.snapshot()
    accepted = [pc.sum(found.tables["machines"]["accepted_count"]).as_py() for found in (first, last)]
    return (accepted[1] - accepted[0]) / (last.started_at - first.started_at).total_seconds()


def _sizes(names: set[str]) -> Iterator[Result]:
    states = [dict(vars(_bare(number))) for number in range(10_000)]
    plain = ("json_and_arrow_ms", lambda: timed_ms(lambda: _json_and_arrow(states)))
    if "snapshot-unchanged" in names:
        with _idle(10_000, "benchmark-unchanged", Resting) as system:
            yield alternate("snapshot-unchanged", "<= 0.4", ("snapshot_ms", lambda: timed_ms(system.snapshot)), plain)
    if "snapshot-10000" in names:
        with _idle(10_000, "benchmark-large") as system:
            yield alternate("snapshot-10000", "<= 2", ("snapshot_ms", lambda: timed_ms(system.snapshot)), plain)


def _bare(number: int) -> Idle:
    return Idle(number)


@contextmanager
def _idle(count: int, name: str, kind: type[Idle] = Idle, **options: Any) -> Iterator[rs.System]:
    with rs.System(name, detectors=[], **options) as system:
        system.spawn_many(kind, args=[(number,) for number in range(count)], per_host=count // 2)
        system.start()
        assert system.snapshot().machine_count == count + 1, "all of them, and the driver"
        yield system


def _json_and_arrow(states: list[dict[str, object]]) -> pa.Table:
    """The machines' table of the same states, built in one process."""
    count = len(states)
    texts = [json.dumps(state) for state in states]
    columns = {
        "machine": [f"Idle-{number}" for number in range(count)],
        "state": texts,
        "state_bytes": [len(text) for text in texts],
        "status": ["passive"] * count,
        "accepted_count": [0] * count,
        "sent_count": [0] * count,
    }
    return pa.table(
        [
            pa.array(columns[item.name], item.type) if item.name in columns else pa.nulls(count, item.type)
            for item in MACHINES
        ],
        schema=MACHINES,
    )
