"""Healthy programs that look stuck to who only looks twice: NAME; nothing of ours in it. Each says `ready` and works on."""

import asyncio
import itertools
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import ray
from ray.util import ActorPool
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.queue import Queue

LONG_S = 600.0


@ray.remote(num_cpus=0)
class Busy:
    """Has a call waiting at another, which is as busy as this one."""

    def note(self, _: Any = None) -> None:
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

    def nap_a_second(self) -> None:
        time.sleep(1.0)

    def ask_note(self, other: Any) -> None:
        ray.get(other.note.remote())

    def ask_loop(self, other: Any) -> None:
        ray.get(other.loop_alone.remote())

    def loop_alone(self) -> None:
        end = time.monotonic() + LONG_S
        while time.monotonic() < end:
            sum(range(10_000))

    def volley(self, other: Any) -> None:
        while True:
            ray.get(other.note.remote())
            time.sleep(0.3)

    def by_a_thread(self, other: Any) -> None:
        other.note.remote()
        thread = threading.Thread(target=self.loop_alone)
        thread.start()
        thread.join()

    def reads(self, _: Any) -> None:
        end, _ = os.pipe()
        os.read(end, 1)


def both(method: str, **options: Any) -> list[Any]:
    one, two = (Busy.options(**options).remote() for _ in range(2))
    return [getattr(one, method).remote(two), getattr(two, method).remote(one)]


def asked(method: str, beside: str) -> list[Any]:
    """One asks another, and has a call of this kind itself."""
    one, two = Busy.remote(), Busy.remote()
    return [getattr(one, method).remote(two), getattr(two, beside).remote(one)]


def for_ever(step: Callable[[], object]) -> Callable[[], None]:
    def goes_on() -> None:
        while True:
            step()

    return goes_on


@ray.remote(num_cpus=0)
def numbers() -> Iterator[int]:
    for number in itertools.count():
        time.sleep(0.5)
        yield number


def streaming() -> Any:
    stream = numbers.options(_generator_backpressure_num_objects=4).remote()
    return for_ever(lambda: ray.get(next(stream)))


@ray.remote(num_cpus=0)
class Inbox:
    def __init__(self) -> None:
        self.queue: asyncio.Queue[int] = asyncio.Queue()

    async def take(self) -> int:
        return await self.queue.get()


def an_idle_inbox() -> Any:
    inbox = Inbox.remote()
    for _ in range(3):
        inbox.take.remote()
    return partial(reads_from, inbox)


def reads_from(_: Any) -> None:
    sys.stdin.read()


def a_busy_driver() -> Any:
    ref = Busy.remote().nap_alone.remote()
    return for_ever(lambda: (sum(range(10_000)), ray.wait([ref], timeout=0)))


def idle_actors() -> Any:
    crew = [Busy.remote() for _ in range(3)]
    ray.get([member.note.remote() for member in crew])
    return partial(reads_from, crew)


def many_calls() -> Any:
    one = Busy.remote()
    return for_ever(lambda: ray.get([one.note.remote() for _ in range(200)]))


@ray.remote(num_cpus=0, resources={"desk": 1})
def at_a_desk() -> None:
    time.sleep(0.5)


def tasks_in_turn() -> Any:
    refs = [at_a_desk.remote() for _ in range(8)]

    def turn() -> None:
        refs[:] = [*ray.wait(refs)[1], at_a_desk.remote()]

    return for_ever(turn)


def waits_for_room_that_comes() -> Any:
    return [Busy.options(resources={"hall": 1}).remote().nap_alone.remote() for _ in range(2)]


def a_chain_of_waits() -> Any:
    """Four wait for each other in a row; the last one works."""
    crew = [Relay.remote() for _ in range(4)]
    ray.get([one.know.remote(other) for one, other in itertools.pairwise(crew)])
    return crew[0].ask.remote()


@ray.remote(num_cpus=0)
class Relay:
    def __init__(self) -> None:
        self.other: Any = None

    def know(self, other: Any) -> None:
        self.other = other

    def ask(self) -> None:
        if self.other is None:
            time.sleep(LONG_S)
        else:
            ray.get(self.other.ask.remote())


def many_wait_for_one() -> Any:
    """Two hundred calls in the queue of one that is slow."""
    one = Busy.remote()
    return [one.nap_a_second.remote() for _ in range(200)]


def a_mutual_friend() -> Any:
    friend = Busy.remote()
    return [keeps_asking.remote(friend) for _ in range(2)]


@ray.remote(num_cpus=0)
def keeps_asking(friend: Any) -> None:
    while True:
        ray.get(friend.nap_a_second.remote())


def waits_in_turns() -> Any:
    """The program waits for whatever comes first, and gives out more."""
    refs = {one.nap_a_second.remote(): one for one in [Busy.remote() for _ in range(3)]}

    def turn() -> None:
        (done,), _ = ray.wait(list(refs))
        one = refs.pop(done)
        refs[one.nap_a_second.remote()] = one

    return for_ever(turn)


@ray.remote(num_cpus=0)
class Ticker:
    async def run(self) -> None:
        while True:
            await asyncio.sleep(0.2)

    async def ticks_of(self, other: Any) -> int:
        return int(await other.run.remote())


def timers() -> Any:
    one, two = Ticker.remote(), Ticker.remote()
    return [one.ticks_of.remote(two), two.run.remote()]


def a_queue_that_is_used() -> Any:
    queue = Queue(maxsize=2, actor_options={"num_cpus": 0})
    return [puts.remote(queue), takes.remote(queue)]


@ray.remote(num_cpus=0)
def puts(queue: Any) -> None:
    while True:
        queue.put(1)
        time.sleep(0.7)


@ray.remote(num_cpus=0)
def takes(queue: Any) -> None:
    while True:
        queue.get()


@ray.remote(num_cpus=0)
class SlowToStart:
    def __init__(self) -> None:
        time.sleep(LONG_S)

    def value(self) -> int:
        return 1


@ray.remote(num_cpus=0)
def gathers() -> None:
    ray.get([naps.remote() for _ in range(3)])


@ray.remote(num_cpus=0)
def naps() -> None:
    time.sleep(LONG_S)


@ray.remote(num_cpus=0, max_retries=1_000, retry_exceptions=True)
def fails() -> None:
    time.sleep(1.0)
    raise ValueError


def a_pool() -> Any:
    pool = ActorPool([Busy.remote() for _ in range(2)])
    return lambda: list(pool.map(lambda one, _: one.nap_a_second.remote(), range(1_000)))


@ray.remote(num_cpus=0)
def uses(given: Any) -> Any:
    return given


def waits_for_a_group() -> Any:
    """A placement group that will be there when another one goes."""
    groups = [placement_group([{"hall": 1}])]
    ray.get(groups[0].ready())

    def turn() -> None:
        groups.append(placement_group([{"hall": 1}]))
        time.sleep(1.0)
        remove_placement_group(groups.pop(0))
        ray.get(groups[0].ready())

    return for_ever(turn)


def sockets() -> Any:
    """Two that talk by a socket of their own, and not by Ray."""
    listener = Listener.remote()
    port = ray.get(listener.open.remote())
    return [listener.serve.remote(), talks.remote(port, listener)]


@ray.remote(num_cpus=0)
class Listener:
    def open(self) -> int:
        self.socket = socket.create_server(("127.0.0.1", 0))
        return int(self.socket.getsockname()[1])

    def serve(self) -> None:
        connection, _ = self.socket.accept()
        while connection.recv(1):
            connection.sendall(b"x")

    def note(self) -> None:
        pass


@ray.remote(num_cpus=0)
def talks(port: int, listener: Any) -> None:
    listener.note.remote()
    with socket.create_connection(("127.0.0.1", port)) as connection:
        while True:
            time.sleep(0.5)
            connection.sendall(b"x")
            connection.recv(1)


HEALTHY: dict[str, Callable[[], Any]] = {
    "long_loops": lambda: both("loop"),
    "long_sleeps": lambda: both("nap"),
    "short_sleeps": lambda: both("naps"),
    "polling": lambda: both("poll"),
    "waits_with_a_timeout": lambda: both("wait"),
    "a_slow_call": lambda: asked("ask", "note"),
    "streaming": streaming,
    "an_idle_inbox": an_idle_inbox,
    "a_busy_driver": a_busy_driver,
    "idle_actors": idle_actors,
    "many_calls": many_calls,
    "tasks_in_turn": tasks_in_turn,
    "waits_for_room_that_comes": waits_for_room_that_comes,
    "a_chain_of_waits": a_chain_of_waits,
    "a_chain_that_computes": lambda: asked("ask_loop", "note"),
    "many_wait_for_one": many_wait_for_one,
    "a_mutual_friend": a_mutual_friend,
    "ping_pong": lambda: both("volley", max_concurrency=4),
    "waits_in_turns": waits_in_turns,
    "timers": timers,
    "a_queue_that_is_used": a_queue_that_is_used,
    "a_long_constructor": lambda: [SlowToStart.remote().value.remote()],
    "a_task_that_waits_for_tasks": gathers.remote,
    "a_thread_works": lambda: asked("by_a_thread", "ask_note"),
    "retries": fails.remote,
    "a_pool": a_pool,
    "arguments_that_come": lambda: uses.remote(naps.remote()),
    "waits_for_its_user": lambda: asked("reads", "ask_note"),
    "waits_for_a_group": waits_for_a_group,
    "sockets": sockets,
}
"""By name: what is waited for, or what goes on."""

if __name__ == "__main__":
    ray.init(logging_level="ERROR", log_to_driver=False)
    goes_on = HEALTHY[sys.argv[1]]()
    print("ready", flush=True)
    goes_on() if callable(goes_on) else ray.get(goes_on)
