"""Plain tasks: programs that end, that hang, and that are done though nobody reads a result. `python tasks.py SCENARIO`."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import ray

import ray_snapshot as rs
from ray_snapshot.instrument.here import process_here
from ray_snapshot.limits import LIMITS


@ray.remote
class Trainer:
    """Waits for a task that waits for it."""

    def go(self, me: Any) -> int:
        return ray.get(prepare.remote(me))

    def finish(self) -> int:
        return 1


@ray.remote
def prepare(trainer: Any) -> int:
    return ray.get(trainer.finish.remote())


@ray.remote
def add(one: int, other: int = 0) -> int:
    return one + other


@ray.remote
def outer(trainer: Any) -> int:
    return ray.get(prepare.remote(trainer))


@ray.remote
def after(one: int) -> int:
    return one


class Tally:
    def __init__(self) -> None:
        self.count = 0

    def add(self) -> int:
        self.count += 1
        return self.count

    def total(self) -> int:
        return self.count


@ray.remote
def tell(counter: Any) -> None:
    ray.get(counter.add.remote())


@ray.remote
class Gate:
    def __init__(self) -> None:
        self.is_open = asyncio.Event()

    async def wait(self) -> str:
        await self.is_open.wait()
        return "through"

    async def open(self) -> None:
        self.is_open.set()


@ray.remote
def open_later(gate: Any, seconds: float) -> None:
    time.sleep(seconds)
    ray.get(gate.open.remote())


def a_task_and_an_actor() -> None:
    trainer = Trainer.remote()
    ray.get(trainer.go.remote(trainer))


def a_task_in_a_task() -> None:
    """The inner one waits for an actor that waits for the outer one, which waits for the inner one."""

    @ray.remote
    class Starter:
        def go(self, me: Any) -> int:
            return ray.get(outer.remote(me))

        def finish(self) -> int:
            return 1

    starter = Starter.remote()
    ray.get(starter.go.remote(starter))


def a_task_that_waits_for_its_argument() -> None:
    """It never begins: its argument is the reply of one that waits for it."""
    trainer = Trainer.remote()
    stuck = trainer.go.remote(trainer)
    ray.get(after.remote(stuck))


def one_of_a_list() -> None:
    """Two results of a list are there, a small and a large one; the third never comes."""
    trainer = Trainer.remote()
    done = [add.remote(1), large.remote()]
    ray.get(done[0])
    ray.wait(done, num_returns=2)
    ray.get([*done, trainer.go.remote(trainer)])


@ray.remote
def large() -> bytes:
    return bytes(1_000_000)


def done_unread() -> None:
    """Nobody reads a result; the program waits until all is done."""
    counter = rs.remote(Tally).remote()
    watch = rs.watch(sys.argv[2])
    for _ in range(20):
        tell.remote(counter)
    print("termination", watch.wait_for("termination", timeout=60).holds, ray.get(counter.total.remote()))
    watch.close()


def opened_by_a_task() -> None:
    """Who is parked is no deadlock: a task holds a handle, and will open the gate."""
    gate = Gate.remote()
    waits = gate.wait.remote()
    open_later.remote(gate, 3.0)
    print(ray.get(waits))


@ray.remote(max_concurrency=2)
class Keeper:
    """Has a handle, and gives it away in a reply."""

    def __init__(self, gate: Any) -> None:
        self.gate = gate

    def give(self) -> Any:
        return self.gate

    def run(self) -> str:
        return ray.get(self.gate.wait.remote())


@ray.remote
class Slow:
    def go(self) -> None:
        time.sleep(4)


@ray.remote
def open_what_comes(refs: list[Any], slow: Any) -> None:
    ray.get(slow.go.remote())
    ray.get(ray.get(refs[0]).open.remote())


def opened_by_a_handle_in_a_reply() -> None:
    """The task was given a ref alone: the reply has the handle."""
    gate = Gate.remote()
    keeper, slow = Keeper.remote(gate), Slow.remote()
    ref = keeper.give.remote()
    ray.wait([ref])
    waits = keeper.run.remote()
    opened = open_what_comes.remote([ref], slow)
    print(ray.get(waits), ray.get(opened))


@ray.remote
def open_beside(gate: Any) -> str:
    async def later() -> None:
        await asyncio.sleep(3)
        await gate.open.remote()

    async def first() -> str:
        return await gate.wait.remote()

    async def both() -> str:
        return (await asyncio.gather(first(), later()))[0]

    return asyncio.run(both())


def opened_by_a_coroutine_of_the_task() -> None:
    print(ray.get(open_beside.remote(Gate.remote())))


@ray.remote(num_returns=0)
def add_later(counter: Any) -> None:
    time.sleep(3)
    ray.get(counter.add.remote())


@ray.remote
def starts_without_a_ref(counter: Any) -> None:
    add_later.remote(counter)


@ray.remote
def add_now(counter: Any) -> None:
    time.sleep(3)
    ray.get(counter.add.remote())


@ray.remote(max_calls=1)
def starts_and_ends(counter: Any) -> None:
    add_now.remote(counter)


def _items(counter: Any) -> Iterator[int]:
    for _ in range(2):
        time.sleep(1.5)
        yield ray.get(counter.add.remote())


@ray.remote(num_returns=2)
def returns_items(counter: Any) -> Iterator[int]:
    return _items(counter)


def done_without_a_ref() -> None:
    """All is done when a task is that nobody has a ref to, and that another task has started."""
    counter = rs.remote(Tally).remote()
    watch = rs.watch(sys.argv[2])
    ray.get(starts_without_a_ref.remote(counter))
    watch.wait_for("termination", timeout=30)
    print("told with", ray.get(counter.total.remote()))
    watch.close()


@ray.remote(num_returns=0)
def waits_for_good(trainer: Any) -> None:
    ray.get(trainer.go.remote(trainer))


def a_task_without_a_ref() -> None:
    """A task that nobody has a ref to is stuck behind a deadlock, and so is known not to end."""
    waits_for_good.remote(Trainer.remote())
    time.sleep(120)


def done_when_all_are() -> None:
    counter = rs.remote(Tally).remote()
    watch = rs.watch(sys.argv[2])
    for start, count in ((starts_and_ends, 1), (returns_items, 3)):
        refs = start.remote(counter)
        ray.wait(refs if isinstance(refs, list) else [refs], timeout=1)
        watch.wait_for("termination", timeout=30)
        print(count, ray.get(counter.total.remote()))
        del refs
    watch.close()


def held_by_no_poll() -> None:
    """A worker that ends behind its task waits for no answer of the watcher's."""

    @ray.remote(max_calls=1)
    def once() -> int:
        return os.getpid()

    process = process_here()
    assert process is not None
    ray.get(process.watcher.__ray_call__.remote(_poll_for_an_hour))
    worker = Path(f"/proc/{ray.get(once.remote())}/stat")
    with suppress(FileNotFoundError, ProcessLookupError):
        while ") Z" not in worker.read_text():
            time.sleep(0.05)


def _poll_for_an_hour(watcher: Any) -> None:
    object.__setattr__(LIMITS, "watcher_poll_s", 3600.0)


# ---- refs of `ray.put` as arguments, in lists, and from other processes -----------------------------------------------------


@ray.remote
def slowly(*_: Any) -> int:
    time.sleep(0.7)
    return 1


@ray.remote
class Putter:
    def __init__(self) -> None:
        self.ref = ray.put("the keeper's")

    def give(self) -> list[Any]:
        return [self.ref]

    def add(self, *_: Any) -> int:
        time.sleep(0.7)
        return 1

    def read(self, refs: list[Any]) -> int:
        return len(ray.get([*refs, slowly.remote(*refs)]))


@ray.remote
class Reader:
    async def read(self, refs: list[Any]) -> int:
        return len(await asyncio.gather(*refs, slowly.remote(*refs)))


@ray.remote
class PuttingTrainer:
    """Waits for a task that waits for it; each has what was put among what it waits for."""

    def go(self, me: Any, refs: list[Any]) -> Any:
        return ray.get([*refs, ray.put("mine"), prepare_with_puts.remote(me, *refs)])

    def finish(self, *_: Any) -> int:
        return 1


@ray.remote
def prepare_with_puts(trainer: Any, *refs: Any) -> Any:
    ready, _ = ray.wait([ray.put(1), trainer.finish.remote(ray.put(2), *refs)], num_returns=2)
    return ready


def healthy_with_puts() -> None:
    mine, keeper, reader = ray.put("mine"), Putter.remote(), Reader.remote()
    (other,) = ray.get(keeper.give.remote())
    refs = [mine, other]
    print(ray.get([slowly.remote(ref) for ref in refs]), ray.get(keeper.add.remote(*refs)))
    print(ray.get([*refs, slowly.remote(*refs)]), len(ray.wait([slowly.remote(), *refs], num_returns=3)[0]))
    print(ray.get([keeper.read.remote(refs), reader.read.remote(refs)]))


def deadlock_with_puts() -> None:
    trainer = PuttingTrainer.remote()
    ray.get(trainer.go.remote(trainer, []))


def deadlock_behind_anothers_put() -> None:
    keeper, trainer = Putter.remote(), PuttingTrainer.remote()
    (other,) = ray.get(keeper.give.remote())
    first = trainer.go.remote(trainer, [])
    ray.get(slowly.remote(other, first))


if __name__ == "__main__":
    ray.init()
    globals()[sys.argv[1]]()
    print("the end")
