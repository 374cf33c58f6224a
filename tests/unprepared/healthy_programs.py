"""Healthy programs that look stuck to who only looks twice: NAME; nothing of ours in it. Each says `ready` and works on."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import ray

LONG_S = 600.0


@ray.remote(num_cpus=0)
class Busy:
    """Has a call waiting at another, which is as busy as this one."""

    def note(self) -> None:
        pass

    def loop(self, other: Any) -> None:
        other.note.remote()
        end = time.monotonic() + LONG_S
        while time.monotonic() < end:
            sum(range(10_000))

    def nap(self, other: Any) -> None:
        other.note.remote()
        time.sleep(LONG_S)

    def naps(self, other: Any) -> None:
        other.note.remote()
        for _ in range(int(LONG_S * 10)):
            time.sleep(0.1)

    def poll(self, other: Any) -> None:
        ref = other.note.remote()
        end = time.monotonic() + LONG_S
        while time.monotonic() < end:
            ray.wait([ref], timeout=0.1)

    def wait(self, other: Any) -> None:
        with suppress(ray.exceptions.GetTimeoutError):
            ray.get(other.note.remote(), timeout=LONG_S)

    def ask(self, other: Any) -> None:
        ray.get(other.nap_alone.remote())

    def nap_alone(self) -> None:
        time.sleep(LONG_S)


def both(method: str) -> None:
    one, two = Busy.remote(), Busy.remote()
    calls = [getattr(one, method).remote(two), getattr(two, method).remote(one)]
    print("ready", flush=True)
    ray.get(calls)


def long_loops() -> None:
    both("loop")


def long_sleeps() -> None:
    both("nap")


def short_sleeps() -> None:
    both("naps")


def polling() -> None:
    both("poll")


def waits_with_a_timeout() -> None:
    both("wait")


def a_slow_call() -> None:
    one, two = Busy.remote(), Busy.remote()
    calls = [one.ask.remote(two), one.note.remote()]
    print("ready", flush=True)
    ray.get(calls)


@ray.remote(num_cpus=0)
def numbers() -> Iterator[int]:
    number = 0
    while True:
        time.sleep(0.5)
        number += 1
        yield number


def streaming() -> None:
    stream = numbers.options(_generator_backpressure_num_objects=4).remote()
    print("ready", flush=True)
    for ref in stream:
        ray.get(ref)


@ray.remote(num_cpus=0)
class Inbox:
    def __init__(self) -> None:
        self.queue: asyncio.Queue[int] = asyncio.Queue()

    async def take(self) -> int:
        return await self.queue.get()


def an_idle_inbox() -> None:
    inbox = Inbox.remote()
    for _ in range(3):
        inbox.take.remote()
    print("ready", flush=True)
    sys.stdin.read()


def a_busy_driver() -> None:
    ref = Busy.remote().nap_alone.remote()
    print("ready", flush=True)
    while True:
        sum(range(10_000))
        ray.wait([ref], timeout=0)


def idle_actors() -> None:
    crew = [Busy.remote() for _ in range(3)]
    ray.get([member.note.remote() for member in crew])
    print("ready", flush=True)
    sys.stdin.read()


def many_calls() -> None:
    one = Busy.remote()
    print("ready", flush=True)
    while True:
        ray.get([one.note.remote() for _ in range(200)])


@ray.remote(num_cpus=0, resources={"desk": 1})
def at_a_desk() -> None:
    time.sleep(0.5)


def tasks_in_turn() -> None:
    """More tasks than there is room for."""
    print("ready", flush=True)
    refs = [at_a_desk.remote() for _ in range(8)]
    while refs:
        _, refs = ray.wait(refs)
        refs.append(at_a_desk.remote())


@ray.remote(num_cpus=0, resources={"hall": 1})
class InTheHall:
    def nap(self) -> None:
        time.sleep(LONG_S)


def waits_for_room_that_comes() -> None:
    """The second begins when the first has ended."""
    first = InTheHall.remote()
    call = first.nap.remote()
    second = InTheHall.remote()
    print("ready", flush=True)
    ray.get([call, second.nap.remote()])


HEALTHY: tuple[Callable[[], None], ...] = (
    long_loops,
    long_sleeps,
    short_sleeps,
    polling,
    waits_with_a_timeout,
    a_slow_call,
    streaming,
    an_idle_inbox,
    a_busy_driver,
    idle_actors,
    many_calls,
    tasks_in_turn,
    waits_for_room_that_comes,
)

if __name__ == "__main__":
    ray.init(logging_level="ERROR", log_to_driver=False)
    next(program for program in HEALTHY if program.__name__ == sys.argv[1])()
