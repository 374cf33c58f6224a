"""What checkpoints cost, how long a restore takes, and how long a system is away when a host of it is killed."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pyarrow.compute as pc
import ray

import ray_snapshot as rs
from benchmarks.measure import Result, alternate, timed_ms

WINDOW_S = 6.0
EVERY_S = 1.0
PATIENCE_S = 300.0


class Carrier(rs.SnapshotMixin):
    """Has a state of a kilobyte, and passes what it gets on to the next machine, for ever."""

    def __init__(self, position: int, count: int) -> None:
        self.next = self.machine(f"Carrier-{(position + 1) % count}")
        self.far = self.machine(f"Carrier-{(position + count // 2) % count}")
        self.fill = f"{position:>1000}"

    def pass_on(self, turns: int) -> None:
        (self.far if turns % 4 == 0 else self.next).pass_on.send(turns + 1)


class Idle(rs.SnapshotMixin):
    """A machine with a small state."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.recent = [number, number + 1, number + 2]

    def pid(self) -> int:
        """Where it lives."""
        return os.getpid()


class Fresh:
    """A process that loads what a host loads, and does nothing."""

    def __init__(self) -> None:
        import ray_snapshot.runtime.host.actor  # noqa: F401 - for the time that it takes

    def pid(self) -> int:
        """Where it lives."""
        return os.getpid()

    def stay(self) -> None:
        """Until it is killed."""
        time.sleep(PATIENCE_S)


def run(names: set[str]) -> Iterator[Result]:
    """Yield the figures `checkpoint-throughput`, `restore-scaling`, `recovery`."""
    if "checkpoint-throughput" in names:
        with_it, without = ({"checkpoint": found} for found in (True, False))
        yield alternate(
            "checkpoint-throughput",
            ">= 0.95",
            ("messages_per_s_with", lambda: _rate(with_it)),
            ("messages_per_s_without", lambda: _rate(without)),
            pairs=4,
        )
    if "restore-scaling" in names:
        yield _scaling()
    if "recovery" in names:
        yield _recovery()


def _rate(options: dict[str, Any]) -> float:
    """Messages a second that 1,000 machines of 1 KB accept, with a snapshot every second."""
    with (
        tempfile.TemporaryDirectory() as folder,
        rs.System("benchmark-checkpoint", history=folder, every=EVERY_S, detectors=[], **options) as system,
    ):
        machines = system.spawn_many(Carrier, args=[(n, 1_000) for n in range(1_000)], per_host=500)
        system.start()
        for machine in machines:
            machine.pass_on.send(1)
        time.sleep(1.0)
        first = system.snapshot()
        time.sleep(WINDOW_S)
        last = system.snapshot()
        accepted = [pc.sum(found.tables["machines"]["accepted_count"]).as_py() for found in (first, last)]
        return float((accepted[1] - accepted[0]) / (last.started_at - first.started_at).total_seconds())


def _scaling() -> Result:
    with _restorable(100_000, "benchmark-large") as large, _restorable(10_000, "benchmark-small") as small:
        taken = {system.name: system.snapshot(timeout=PATIENCE_S) for system in (large, small)}
        return alternate(
            "restore-scaling",
            "<= 1.3",
            ("us_per_machine_at_100000", lambda: timed_ms(lambda: large.restore(taken[large.name])) / 100),
            ("us_per_machine_at_10000", lambda: timed_ms(lambda: small.restore(taken[small.name])) / 10),
            pairs=4,
        )


def _restorable(count: int, name: str, **options: Any) -> rs.System:
    system = rs.System(name, detectors=[], checkpoint=True, snapshot_timeout=PATIENCE_S, **options)
    system.spawn_many(Idle, args=[(number,) for number in range(count)], per_host=count // 2)
    system.start()
    return system


def _recovery() -> Result:
    """From the kill of a host until a machine of it answers, over the sum of what cannot be avoided, each measured apart.

    Nothing is done again: the host is killed right behind a snapshot.
    """
    with _restorable(1_000, "benchmark-recovery", recover="rollback", most_failures=1_000) as system:
        return alternate(
            "recovery",
            "<= 1.5",
            ("kill_to_answer_ms", lambda: _killed(system)),
            ("detect_restart_load_ms", lambda: _parts(system)),
            pairs=4,
        )


def _killed(system: rs.System) -> float:
    taken = system.snapshot()
    for _ in _attempts(0.01, f"the system to go back to {taken.snapshot_id}"):
        if ray.get(system._service.about.remote())["goes_back_to"] >= taken.snapshot_id:
            break
    machine = system.machine("Idle-0")
    pid = ray.get(machine.pid.remote())
    return timed_ms(lambda: _kill_and_ask(pid, machine))


def _kill_and_ask(pid: int, machine: Any) -> None:
    os.kill(pid, signal.SIGKILL)
    for _ in _attempts(0.005, f"an answer from another process than {pid}"):
        with suppress(rs.RolledBackError, rs.HostDiedError):
            if ray.get(machine.pid.remote(), timeout=PATIENCE_S) != pid:
                return


def _attempts(pause_s: float, what: str) -> Iterator[None]:
    """Again and again, for at most `PATIENCE_S`."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        yield
        time.sleep(pause_s)
    raise TimeoutError(f"waited {PATIENCE_S:g} s for {what}")


def _parts(system: rs.System) -> float:
    """Ray notices that a process is gone; another is started; everybody loads."""
    kind = ray.remote(num_cpus=0, max_concurrency=2)(Fresh)
    doomed = kind.remote()
    pid, staying = ray.get(doomed.pid.remote()), doomed.stay.remote()

    def notice() -> None:
        os.kill(pid, signal.SIGKILL)
        ray.wait([staying], timeout=PATIENCE_S)

    detected = timed_ms(notice)
    fresh: list[Any] = []

    def start() -> None:
        fresh.append(kind.remote())
        ray.get(fresh[0].pid.remote())

    started = timed_ms(start)
    ray.kill(fresh[0])
    taken = system.snapshot()
    return detected + started + timed_ms(lambda: system.restore(taken))
