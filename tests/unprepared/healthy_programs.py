"""Healthy programs that look stuck to who only looks twice: NAME; nothing of ours in it. Each says `ready` and works on."""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
import threading
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

    def reads(self) -> None:
        end, _ = os.pipe()
        os.read(end, 1)


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


def a_chain_of_waits() -> None:
    """Four wait for each other in a row; the last one works."""
    crew = [Relay.remote() for _ in range(4)]
    ray.get([one.know.remote(other) for one, other in itertools.pairwise(crew)])
    print("ready", flush=True)
    ray.get(crew[0].ask.remote())


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


def a_chain_that_computes() -> None:
    """The same; the last one is in a loop of its own."""
    one, two = Busy.remote(), Busy.remote()
    print("ready", flush=True)
    ray.get([one.ask_loop.remote(two), two.note.remote()])


def many_wait_for_one() -> None:
    """Twenty calls in the queue of one that is slow."""
    one = Busy.remote()
    calls = [one.nap_a_second.remote() for _ in range(200)]
    print("ready", flush=True)
    ray.get(calls)


def a_mutual_friend() -> None:
    """Two ask a third one, in turn, for ever."""
    friend = Busy.remote()
    print("ready", flush=True)
    ray.get([keeps_asking.remote(friend) for _ in range(2)])


@ray.remote(num_cpus=0)
def keeps_asking(friend: Any) -> None:
    while True:
        ray.get(friend.nap_a_second.remote())


def ping_pong() -> None:
    """Two ask each other, in turn: each has threads enough."""
    one, two = (Busy.options(max_concurrency=4).remote() for _ in range(2))
    print("ready", flush=True)
    ray.get([one.volley.remote(two), two.volley.remote(one)])


def waits_in_turns() -> None:
    """The program waits for whatever comes first, and gives out more."""
    crew = [Busy.remote() for _ in range(3)]
    refs = {one.nap_a_second.remote(): one for one in crew}
    print("ready", flush=True)
    while True:
        (done,), _ = ray.wait(list(refs))
        one = refs.pop(done)
        refs[one.nap_a_second.remote()] = one


@ray.remote(num_cpus=0)
class Ticker:
    """An async actor that works by timers."""

    def __init__(self) -> None:
        self.ticks = 0

    async def run(self) -> None:
        while True:
            await asyncio.sleep(0.2)
            self.ticks += 1

    async def ticks_of(self, other: Any) -> int:
        return int(await other.run.remote())


def timers() -> None:
    one, two = Ticker.remote(), Ticker.remote()
    print("ready", flush=True)
    ray.get([one.ticks_of.remote(two), two.run.remote()])


def a_queue_that_is_used() -> None:
    from ray.util.queue import Queue

    queue = Queue(maxsize=2, actor_options={"num_cpus": 0})
    refs = [puts.remote(queue), takes.remote(queue)]
    print("ready", flush=True)
    ray.get(refs)


@ray.remote(num_cpus=0)
def puts(queue: Any) -> None:
    while True:
        queue.put(1)
        time.sleep(0.7)


@ray.remote(num_cpus=0)
def takes(queue: Any) -> None:
    while True:
        queue.get()


def a_long_constructor() -> None:
    """A call waits for an actor that is being made."""
    slow = SlowToStart.remote()
    print("ready", flush=True)
    ray.get(slow.value.remote())


@ray.remote(num_cpus=0)
class SlowToStart:
    def __init__(self) -> None:
        time.sleep(LONG_S)

    def value(self) -> int:
        return 1


def a_task_that_waits_for_tasks() -> None:
    print("ready", flush=True)
    ray.get(gathers.remote())


@ray.remote(num_cpus=0)
def gathers() -> None:
    ray.get([naps.remote() for _ in range(3)])


@ray.remote(num_cpus=0)
def naps() -> None:
    time.sleep(LONG_S)


def a_thread_works() -> None:
    """A method waits for a thread that computes."""
    one, two = Busy.remote(), Busy.remote()
    print("ready", flush=True)
    ray.get([one.by_a_thread.remote(two), two.ask_note.remote(one)])


def retries() -> None:
    print("ready", flush=True)
    ray.get(fails.remote())


@ray.remote(num_cpus=0, max_retries=1_000, retry_exceptions=True)
def fails() -> None:
    time.sleep(1.0)
    raise ValueError


def a_pool() -> None:
    from ray.util import ActorPool

    pool = ActorPool([Busy.remote() for _ in range(2)])
    print("ready", flush=True)
    for _ in pool.map(lambda one, _: one.nap_a_second.remote(), range(1_000)):
        pass


def arguments_that_come() -> None:
    """A task waits for its argument, which somebody makes."""
    slow = naps.remote()
    print("ready", flush=True)
    ray.get(uses.remote(slow))


@ray.remote(num_cpus=0)
def uses(given: Any) -> Any:
    return given


def waits_for_its_user() -> None:
    """An actor that waits for a line on a pipe, and one that waits for it."""
    one, two = Busy.remote(), Busy.remote()
    print("ready", flush=True)
    ray.get([one.reads.remote(), two.ask_note.remote(one)])


def waits_for_a_group() -> None:
    """A placement group that will be there when another one goes."""
    from ray.util.placement_group import placement_group, remove_placement_group

    first = placement_group([{"hall": 1}])
    ray.get(first.ready())
    print("ready", flush=True)
    while True:
        second = placement_group([{"hall": 1}])
        time.sleep(1.0)
        remove_placement_group(first)
        ray.get(second.ready())
        first = second


def sockets() -> None:
    """Two that talk by a socket of their own, and not by Ray."""
    listener = Listener.remote()
    port = ray.get(listener.open.remote())
    print("ready", flush=True)
    ray.get([listener.serve.remote(), talks.remote(port, listener)])


@ray.remote(num_cpus=0)
class Listener:
    def open(self) -> int:
        import socket

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
    import socket

    listener.note.remote()
    with socket.create_connection(("127.0.0.1", port)) as connection:
        while True:
            time.sleep(0.5)
            connection.sendall(b"x")
            connection.recv(1)


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
    a_chain_of_waits,
    a_chain_that_computes,
    many_wait_for_one,
    a_mutual_friend,
    ping_pong,
    waits_in_turns,
    timers,
    a_queue_that_is_used,
    a_long_constructor,
    a_task_that_waits_for_tasks,
    a_thread_works,
    retries,
    a_pool,
    arguments_that_come,
    waits_for_its_user,
    waits_for_a_group,
    sockets,
)

if __name__ == "__main__":
    ray.init(logging_level="ERROR", log_to_driver=False)
    next(program for program in HEALTHY if program.__name__ == sys.argv[1])()
