"""How many messages `testing.simulate` carries in a second of processor time, over plain calls between two Ray actors.

Both arms are two machines that send to each other. Of Ray's arm the processor time of both actors and of the driver counts,
and no other process of Ray's, though these work too.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import ray

import ray_snapshot as rs
from benchmarks.measure import Result, alternate
from ray_snapshot import testing

MESSAGES = 5_000
CALLS = 2_000
STEPS_A_MESSAGE = 4
"""At most: it is sent, carried, taken in, accepted."""


class Player(rs.SnapshotMixin):
    """Sends the ball back."""

    def __init__(self) -> None:
        self.hits = 0

    def hit(self, left: int, other: rs.SnapshotMixin) -> None:
        self.hits += 1
        if left > 1:
            other.hit.send(left - 1, self.handle)


def match(system: Any) -> None:
    """Two players, and the ball."""
    one, other = system.spawn(Player, name="one"), system.spawn(Player, name="other")
    one.hit.send(MESSAGES, other)


@ray.remote(num_cpus=0)
class Plain:
    """The same over Ray's own actor calls."""

    def __init__(self) -> None:
        self.hits = 0

    def hit(self, number: int) -> int:
        self.hits += 1
        return number

    def serve(self, other: Any, calls: int) -> None:
        ray.get([other.hit.remote(number) for number in range(calls)])

    def cpu_s(self) -> float:
        return time.process_time()


def run(names: set[str]) -> Iterator[Result]:
    """Yield the figure `simulate-messages`."""
    if "simulate-messages" not in names:
        return
    pair = Plain.remote(), Plain.remote()
    yield alternate(
        "simulate-messages",
        ">= 20",
        ("messages_per_cpu_s", simulated),
        ("ray_calls_per_cpu_s", lambda: called(*pair)),
        pairs=4,
    )


def simulated() -> float:
    """With one snapshot on the way, as `simulate` takes it by itself."""
    began = time.process_time()
    found = testing.simulate(match, seed=7, most_steps=STEPS_A_MESSAGE * MESSAGES)
    seconds = time.process_time() - began
    assert sum(player.hits for player in found.machines.values()) == MESSAGES
    return MESSAGES / seconds


def called(one: Any, other: Any) -> float:
    """Each calls the other, many calls at a time, which costs Ray least."""
    before = _cpu_s(one, other)
    ray.get(one.serve.remote(other, CALLS // 2))
    ray.get(other.serve.remote(one, CALLS // 2))
    return CALLS / (_cpu_s(one, other) - before)


def _cpu_s(*actors: Any) -> float:
    return time.process_time() + sum(ray.get([actor.cpu_s.remote() for actor in actors]))
