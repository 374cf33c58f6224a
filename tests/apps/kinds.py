"""Every kind of actor: which thread runs what, and in which order."""

import asyncio
import sqlite3
import threading

import ray


def where():
    return "main" if threading.current_thread() is threading.main_thread() else "other"


@ray.remote
class Ledger:
    def __init__(self):
        self.born = where()
        self.local = threading.local()
        self.local.owner = "constructor"
        self.rows = sqlite3.connect(":memory:")
        self.rows.execute("create table notes (number integer)")

    def note(self, number):
        self.rows.execute("insert into notes values (?)", (number,))

    def notes(self):
        return [number for (number,) in self.rows.execute("select number from notes order by rowid")]

    def threads(self):
        return self.born, where(), self.local.owner


@ray.remote(max_concurrency=3)
class Meeting:
    def __init__(self):
        self.born = where()
        self.barrier = threading.Barrier(3)

    def join(self):
        self.barrier.wait(timeout=60)
        return threading.get_ident()

    def threads(self):
        return self.born, where(), type(threading.current_thread()).__name__


@ray.remote
class Loop:
    def __init__(self):
        self.born = where()
        self.order = []
        self.ready = asyncio.Event()

    async def add(self, number):
        self.order.append(number)

    async def wait_for_it(self):
        await self.ready.wait()
        return "it came"

    async def announce(self):
        self.ready.set()

    async def added(self):
        return self.order

    async def threads(self):
        return self.born, where(), asyncio.get_running_loop() is asyncio.get_event_loop()

    def plain(self):
        return "a plain method of an async actor"


@ray.remote(concurrency_groups={"io": 2, "compute": 1})
class Grouped:
    def __init__(self):
        self.born = where()
        self.pair = threading.Barrier(2)

    @ray.method(concurrency_group="io")
    def read(self):
        self.pair.wait(timeout=60)
        return "read"

    @ray.method(concurrency_group="compute")
    def compute(self, number):
        return number, where()

    def other(self):
        return "other", self.born, where()


@ray.remote(concurrency_groups={"slow": 1})
class AsyncGrouped:
    def __init__(self):
        self.ready = asyncio.Event()

    @ray.method(concurrency_group="slow")
    async def wait(self):
        return "never read"

    async def hello(self):
        return "hello"


def main():
    ledger = Ledger.remote()
    for number in range(100):
        ledger.note.remote(number)
    print("sync", ray.get(ledger.threads.remote()), ray.get(ledger.notes.remote()) == list(range(100)))

    meeting = Meeting.remote()
    print("threaded", len(set(ray.get([meeting.join.remote() for _ in range(3)]))), ray.get(meeting.threads.remote()))

    loop = Loop.remote()
    waiting = loop.wait_for_it.remote()
    ray.get([loop.add.remote(number) for number in range(50)])
    loop.announce.remote()
    print("async", ray.get(waiting), sorted(ray.get(loop.added.remote())) == list(range(50)))
    print("async", ray.get(loop.threads.remote()), ray.get(loop.plain.remote()))

    grouped = Grouped.remote()
    print("groups", ray.get([grouped.read.remote(), grouped.read.remote()]), ray.get(grouped.other.remote()))
    computed = [grouped.compute.remote(number) for number in range(20)]
    print("groups", ray.get(computed) == [(number, "other") for number in range(20)])
    print("groups", ray.get(grouped.other.options(concurrency_group="compute").remote()))
    both = AsyncGrouped.remote()
    print("async groups", ray.get([both.wait.remote(), both.hello.remote()]))


if __name__ == "__main__":
    ray.init()
    main()
