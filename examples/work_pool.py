"""A pool of workers that share work as they go, and the question that is easy to get wrong: are they done?

What to look at: a front desk asks each worker in turn whether it is idle, and once all have said yes in
one round it calls the work finished. It is wrong, every time: a part of the work is on its way to a worker
that has not come up yet, and no worker that is asked can know. On the very snapshot in which the desk is sure,
`Termination` says no and names the messages in flight. It says yes only when there is neither a busy worker
nor a message, and then the count is complete.

The work: how many primes are there below a limit? A worker with a long range keeps one half and gives the
other away.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from math import isqrt
from typing import Any

import ray_snapshot as rs
from ray_snapshot import detectors
from ray_snapshot.examples.program import run

LONGEST_RANGE = 1_000


class Worker(rs.SnapshotMixin):
    """Halves its ranges, gives the upper halves to the others in turn, searches what is short enough."""

    def __init__(self, others: list[Any]) -> None:
        self.others = others
        self.turn = 0
        self.to_do: list[tuple[int, int]] = []
        self.searched = 0
        self.primes = 0

    def task(self, low: int, high: int) -> None:
        self.to_do.append((low, high))
        if len(self.to_do) == 1:
            self.handle.work.send()

    def work(self) -> None:
        low, high = self.to_do.pop()
        if high - low > LONGEST_RANGE:
            middle = (low + high) // 2
            self.to_do.append((low, middle))
            self._next_worker().task.send(middle, high)
        else:
            self.searched += high - low
            self.primes += sum(map(is_prime, range(low, high)))
        if self.to_do:
            self.handle.work.send()

    def are_you_idle(self, asker: Any) -> None:
        asker.answer.send(not self.to_do)

    def _next_worker(self) -> Any:
        self.turn += 1
        return self.others[(self.turn - 1) % len(self.others)]


class Desk(rs.SnapshotMixin):
    """The naive check: ask one worker after the other, start over at the first that is busy."""

    def __init__(self, workers: list[Any]) -> None:
        self.workers = workers
        self.idle_in_a_row = 0
        self.thinks_it_is_done = False

    def begin(self, low: int, high: int) -> None:
        self.workers[0].task.send(low, high)
        self._ask()

    def answer(self, idle: bool) -> None:
        self.idle_in_a_row = self.idle_in_a_row + 1 if idle else 0
        if self.idle_in_a_row == len(self.workers):
            self.thinks_it_is_done = True
        else:
            self._ask()

    def _ask(self) -> None:
        self.workers[self.idle_in_a_row].are_you_idle.send(self.handle)


def is_prime(number: int) -> bool:
    return number > 1 and all(number % divisor for divisor in range(2, isqrt(number) + 1))


@rs.detector(stable=True)
def everyone_said_idle(snapshot: rs.Snapshot) -> tuple[bool, dict[str, Any], str]:
    """What the desk believes, beside what is really still on its way."""
    desk = snapshot.machines["desk"].state if "desk" in snapshot.machines else {}
    tasks = sum(message.method == "task" for message in snapshot.messages)
    believes = bool(desk and desk["thinks_it_is_done"])
    belief = "calls the work finished" if believes else "still asks"
    return believes, {"tasks_in_flight": tasks}, f"The desk {belief}; {tasks} tasks are in flight."


def play(
    *,
    history: str | None = None,
    every: float = 0.2,
    on_verdict: Callable[[rs.Verdict], None] | None = None,
    workers: int = 6,
    limit: int = 60_000,
) -> dict[str, Any]:
    """Count the primes below `limit`; returns what the desk believed and what a snapshot proved."""
    verdicts: list[rs.Verdict] = []
    watch = [everyone_said_idle, detectors.Termination()]
    with rs.System("work_pool", history=history, every=every, detectors=watch) as system:
        system.subscribe(verdicts.append, repeat=True)
        if on_verdict:
            system.subscribe(on_verdict, repeat=True)
        late = system.machine("latecomer")
        names = [f"worker-{number}" for number in range(workers)]
        team = [system.machine(name) for name in names]
        arguments = [([late, *team[:n], *team[n + 1 :]],) for n in range(workers)]
        system.spawn_many(Worker, args=arguments, names=names, per_host=(workers + 1) // 2)
        desk = system.spawn(Desk, team, name="desk")
        system.start()
        desk.begin.send(0, limit)
        naive = system.wait_for(everyone_said_idle, timeout=60)
        too_early = system.snapshot(timeout=30)
        system.spawn(Worker, team, name="latecomer")
        proof = system.wait_for("termination", timeout=120)
        end = system.snapshot(timeout=30)
    return {
        "naive_snapshot": naive.snapshot_id,
        "tasks_in_flight": naive.evidence["tasks_in_flight"],
        "termination_then": _answer(verdicts, "termination", naive.snapshot_id),
        "searched_then": _sum(too_early, "searched"),
        "searched": _sum(end, "searched"),
        "primes": _sum(end, "primes"),
        "terminated": proof.holds,
    }


def _answer(verdicts: list[rs.Verdict], detector: str, snapshot_id: str) -> bool | None:
    return next(v.holds for v in verdicts if v.detector == detector and v.snapshot_id == snapshot_id)


def _sum(snapshot: rs.Snapshot, field: str) -> int:
    return sum(machine.state[field] for machine in snapshot.machines.values() if machine.class_name == "Worker")


def tell(facts: dict[str, Any]) -> None:
    print(f"Everyone had said idle, with {facts['tasks_in_flight']} tasks in flight.")
    print(f"Terminated, by the same snapshot: {facts['termination_then']}.")
    print(f"By then {facts['searched_then']} of {facts['searched']} numbers were searched.")
    print(f"At the proven end the pool has found {facts['primes']} primes; terminated: {facts['terminated']}.")


def main(argv: list[str] | None = None) -> int:
    return run(__doc__, play, tell, argv)


if __name__ == "__main__":
    sys.exit(main())
