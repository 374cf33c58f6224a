"""Deadlocks, each with what a report advises against it: `remedies.py NAME` hangs, as it is without.

`remedies.py 'NAME: REMEDY' ...` runs these side by side on one cluster, and prints those that have ended.
"""

from __future__ import annotations

import asyncio
import os
import queue
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import ray

HANGS = "as it is"


class Server:
    """Calls that hold its slots wait for one that comes after them."""

    def __init__(self, begun: Any) -> None:
        self.awake, self.begun = asyncio.Event(), begun

    async def generate(self, n: int) -> int:
        await self.begun.add.remote()
        await self.awake.wait()
        return n

    async def wake_up(self) -> None:
        self.awake.set()


@ray.remote(num_cpus=0)
class Count:
    def __init__(self) -> None:
        self.count = 0

    def add(self) -> int:
        self.count += 1
        return self.count

    def now(self) -> int:
        return self.count


def _await(begun: Any, count: int) -> None:
    """Calls of an async actor begin in any order."""
    while ray.get(begun.now.remote()) < count:
        time.sleep(0.05)


class GroupedServer(Server):
    """With a group of its own for that call."""

    loop: asyncio.AbstractEventLoop | None = None

    async def generate(self, n: int) -> int:
        self.loop = asyncio.get_running_loop()
        return await super().generate(n)

    @ray.method(concurrency_group="control")
    async def wake_up(self) -> None:
        if self.loop is None:  # nothing waits yet
            self.awake.set()
        else:
            self.loop.call_soon_threadsafe(self.awake.set)


def slots(remedy: str) -> Any:
    is_grouped = remedy == "a group of its own"
    options = {"max_concurrency": int(remedy) if remedy.isdigit() else 4, "num_cpus": 0}
    if is_grouped:
        options["concurrency_groups"] = {"control": 1}
    begun = Count.remote()
    server = ray.remote(**options)(GroupedServer if is_grouped else Server).remote(begun)
    out = [server.generate.remote(n) for n in range(8)]
    _await(begun, 4)
    ray.get(server.wake_up.remote())
    return ray.get(out)


class Ledger:
    """A lock is held over a call whose answer needs the same lock."""

    def __init__(self, leaves_first: bool) -> None:
        self.lock, self.leaves_first = asyncio.Lock(), leaves_first

    async def read(self) -> int:
        async with self.lock:
            return 3

    async def add(self, me: Any, auditor: Any) -> bool:
        if self.leaves_first:
            async with self.lock:
                pass
            return bool(await auditor.check.remote(me))
        async with self.lock:
            return bool(await auditor.check.remote(me))


class Auditor:
    async def check(self, ledger: Any) -> bool:
        return bool(await ledger.read.remote() >= 0)


def relock(remedy: str) -> Any:
    made = ray.remote(num_cpus=0)
    ledger = made(Ledger).remote(remedy == "leaves the lock")
    return ray.get(ledger.add.remote(ledger, made(Auditor).remote()))


class Purse:
    """Two threaded actors keep their locks while each waits for a call that needs the other's."""

    def __init__(self) -> None:
        self.lock, self.total = threading.RLock(), 100

    def deposit(self, n: int) -> None:
        with self.lock:
            self.total += n

    def transfer(self, other: Any, remedy: str, meeting: Any) -> int:
        if remedy == "the same order":  # this one's lock is the later one of both
            ray.get(other.deposit.remote(1))
            self.deposit(-1)
        elif remedy == "leaves the lock":
            self.deposit(-1)
            ray.get(other.deposit.remote(1))
        else:
            with self.lock:
                if meeting is not None:
                    ray.get(meeting.arrive.remote())
                self.total -= 1
                ray.get(other.deposit.remote(1))
        return self.total


def rlock(remedy: str) -> Any:
    made = ray.remote(num_cpus=0, max_concurrency=4)
    meeting = ray.remote(num_cpus=0)(Meeting).remote() if remedy == HANGS else None
    one, other = made(Purse).remote(), made(Purse).remote()
    first = HANGS if remedy == "the same order" else remedy
    return ray.get([one.transfer.remote(other, first, meeting), other.transfer.remote(one, remedy, meeting)])


class Tree:
    async def size(self, me: Any, depth: int, is_direct: bool) -> int:
        if depth == 0:
            return 1
        return 1 + await (self.size if is_direct else me.size.remote)(me, depth - 1, is_direct)


def itself(remedy: str) -> Any:
    tree = ray.remote(num_cpus=0, max_concurrency=2)(Tree).remote()
    return ray.get(tree.size.remote(tree, 4, remedy == "directly"))


class Lock:
    def __init__(self) -> None:
        self.lock = asyncio.Lock()

    async def take(self) -> None:
        await self.lock.acquire()

    async def give_back(self) -> None:
        self.lock.release()


class Meeting:
    """Both have taken one lock before either takes another."""

    def __init__(self) -> None:
        self.count, self.both = 0, asyncio.Event()

    async def arrive(self) -> None:
        self.count += 1
        if self.count == 2:
            self.both.set()
        await self.both.wait()


class Worker:
    def work(self, locks: list[Any], meeting: Any) -> str:
        ray.get(locks[0].take.remote())
        if meeting is not None:
            ray.get(meeting.arrive.remote())
        ray.get(locks[1].take.remote())
        ray.get([lock.give_back.remote() for lock in locks])
        return "done"


def order(remedy: str) -> Any:
    made = ray.remote(num_cpus=0)
    locks = [made(Lock).remote() for _ in range(2)]
    is_same = remedy == "the same order"
    meeting = None if is_same else made(Meeting).remote()
    workers = [made(Worker).remote() for _ in range(2)]
    orders = [locks, locks if is_same else locks[::-1]]
    return ray.get([one.work.remote(locks, meeting) for one, locks in zip(workers, orders, strict=True)])


class Buffer:
    """A `get` that waits in its thread holds the only slot, and the `put` stands behind it."""

    def __init__(self) -> None:
        self.items: queue.Queue[int] = queue.Queue()

    def put(self, item: int) -> None:
        self.items.put(item)

    def get(self) -> int:
        return self.items.get()


class GroupedBuffer(Buffer):
    @ray.method(concurrency_group="control")
    def put(self, item: int) -> None:
        super().put(item)


def behind_get(remedy: str) -> Any:
    is_grouped = remedy == "a group of its own"
    options: dict[str, Any] = {"num_cpus": 0}
    if is_grouped:
        options["concurrency_groups"] = {"control": 1}
    elif remedy.isdigit():
        options["max_concurrency"] = int(remedy)
    buffer = ray.remote(**options)(GroupedBuffer if is_grouped else Buffer).remote()
    got = buffer.get.remote()
    ray.get(buffer.put.remote(7))
    return ray.get(got)


class Account:
    def transfer(self, me: Any, other: Any, *, waits: bool = True, balance: int | None = None) -> Any:
        return ray.get(other.receive.remote(me, waits, balance))

    def receive(self, asker: Any, waits: bool, balance: int | None) -> int:
        if balance is not None:
            return balance
        asked = asker.balance.remote()
        return ray.get(asked) if waits else 0

    def balance(self) -> int:
        return 3


class AsyncAccount:
    async def transfer(self, me: Any, other: Any) -> Any:
        return await other.receive.remote(me, True, None)

    async def balance(self) -> int:
        return 3


def asks_back(remedy: str) -> Any:
    made = ray.remote(num_cpus=0)
    kind = AsyncAccount if remedy == "async" else Account
    options = {"max_concurrency": int(remedy)} if remedy.isdigit() else {}
    one, other = made(kind).options(**options).remote(), made(Account).remote()
    how = {"without waiting": {"waits": False}, "with its value": {"balance": 3}}.get(remedy, {})
    return ray.get(one.transfer.remote(one, other, **how))


class Job:
    """A method that is not async occupies the event loop, and the call that would end it stands behind it."""

    def __init__(self, begun: Any) -> None:
        self.is_stopped, self.begun = False, begun

    def run(self) -> str:
        self.begun.add.remote()
        while not self.is_stopped:
            time.sleep(0.05)
        return "stopped"

    async def stop(self) -> None:
        self.is_stopped = True


class AsyncJob(Job):
    async def run(self) -> str:  # type: ignore[override]
        self.begun.add.remote()
        while not self.is_stopped:
            await asyncio.sleep(0.05)
        return "stopped"


class ThreadedJob(Job):
    async def run(self) -> str:  # type: ignore[override]
        return await asyncio.to_thread(super().run)


def occupied(remedy: str) -> Any:
    job = ray.remote(num_cpus=0)({"async": AsyncJob, "in a thread": ThreadedJob}.get(remedy, Job)).remote(
        begun := Count.remote()
    )
    out = job.run.remote()
    _await(begun, 1)
    return ray.get([job.stop.remote(), out])


class Locked:
    """A method waits on the event loop for a lock, and the call that would release it stands behind it."""

    def __init__(self, begun: Any) -> None:
        self.lock, self.begun = threading.Lock(), begun
        self.lock.acquire()

    def take(self) -> str:
        self.begun.add.remote()
        self.lock.acquire()
        return "taken"

    async def release(self) -> None:
        self.lock.release()


class ThreadedLocked(Locked):
    async def take(self) -> str:  # type: ignore[override]
        self.begun.add.remote()
        await asyncio.to_thread(self.lock.acquire)
        return "taken"


def on_loop(remedy: str) -> Any:
    locked = ray.remote(num_cpus=0)(ThreadedLocked if remedy == "in a thread" else Locked).remote(
        begun := Count.remote()
    )
    taken = locked.take.remote()
    _await(begun, 1)
    ray.get(locked.release.remote())
    return ray.get(taken)


class Store:
    """It makes an object, and gives the id away: Ray counts no ref for that."""

    def number(self) -> int:
        return 7

    def make(self, is_whole: bool) -> Any:
        ref = ray.put(7)
        return [ref] if is_whole else ref.binary()


class Reader:
    def read(self, given: Any) -> int:
        (ref,) = given if isinstance(given, list) else [ray.ObjectRef(given)]
        return int(ray.get(ref))


def as_an_id(remedy: str) -> Any:
    store, reader = (ray.remote(num_cpus=0)(kind).remote() for kind in (Store, Reader))
    made = ray.get(store.make.remote(remedy == "the ref itself"))
    return ray.get(reader.read.remote(made))


def too_large(remedy: str) -> Any:
    return ray.get(ray.remote(num_cpus=0 if remedy == "less" else 10_000)(Store).remote().make.remote(True))


OTHERS = """
import ray, time
ray.init("{address}", namespace="jobs", log_to_driver=False)
holder = ray.remote(resources={{"node:__internal_head__": 1}})(type("Holder", (), dict(ready=lambda self: 7)))
ray.get(holder.options(name="held", lifetime="detached", num_cpus=0).remote().ready.remote())
"""


def detached(remedy: str) -> Any:
    """An actor of another job, which has ended, holds what is asked for."""
    address = ray.get_runtime_context().gcs_address
    program = [sys.executable, "-c", OTHERS.format(address=address)]
    settings = {name: os.environ[name] for name in os.environ if name.startswith(("HOME", "PATH", "RAY_"))}
    subprocess.run(program, env=settings, check=True, stdout=subprocess.DEVNULL)
    made = ray.remote(num_cpus=0, resources={"node:__internal_head__": 1})(Store).remote().number.remote()
    read = ray.remote(num_cpus=0)(Reader).remote().read.remote([made])
    if remedy == "ray.kill":
        ray.kill(ray.get_actor("held", namespace="jobs"))
    return ray.get(read)


def main(*wanted: str) -> None:
    ray.init()
    if len(wanted) == 1:
        print(globals()[wanted[0]](HANGS))
        return
    pairs = [one.split(": ") for one in wanted]
    with ThreadPoolExecutor(len(pairs)) as pool:
        for pair, _ in zip(wanted, pool.map(lambda one: globals()[one[0]](one[1]), pairs), strict=True):
            print(pair, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
