"""What happened before a program hangs, and what only looks like it: `before.py healthy`, or names of what it waits for.

Who died, who is started again and again, and what raised.
"""

import asyncio
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import ray

COUNTS = Path(tempfile.mkdtemp())
KEPT = []
"""Handles that the program has to the end."""


@ray.remote
class Pool:
    def __init__(self):
        self.permits = asyncio.Semaphore(1)
        self.full = asyncio.Event()

    async def acquire(self):
        await self.permits.acquire()

    async def release(self):
        self.permits.release()

    async def wait(self):
        await self.full.wait()


@ray.remote
class Embedder:
    def __init__(self, pool):
        self.pool = pool

    def embed(self, leaves=False):
        ray.get(self.pool.acquire.remote())
        if leaves:
            os._exit(1)
        ray.get(self.pool.release.remote())

    def keep(self):
        ray.get(self.pool.acquire.remote())


def made(*actors):
    KEPT.extend(actors)
    return actors


def permit():
    (pool,) = made(Pool.remote())
    first, second = made(Embedder.remote(pool), Embedder.remote(pool))
    ray.wait([first.embed.remote(True)])
    return second.embed.remote()


def killed():
    (pool,) = made(Pool.remote())
    first, second = made(Embedder.remote(pool), Embedder.remote(pool))
    ray.get(first.keep.remote())
    ray.kill(first)
    return second.embed.remote()


@ray.remote
class Painter:
    def paint(self, parts):
        return 1 / parts

    def takes(self, value):
        return value

    def loses_a_thread_and_a_child(self):
        thread = threading.Thread(target=self.paint, args=[0], name="brush")
        thread.start()
        thread.join()
        self.child = subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"])
        os.waitid(os.P_PID, self.child.pid, os.WEXITED | os.WNOWAIT)


@ray.remote(max_task_retries=-1)
class Retried:
    @ray.method(retry_exceptions=True)
    def tries(self, place):
        time.sleep(0.2)
        with Path(place).open("a") as tries:
            tries.write(".")
        return {}["missing"]


@ray.remote
class Reader:
    async def awaits(self, refs):
        try:
            await refs[0]
        except ZeroDivisionError:
            return "awaited"


def unread():
    pool, painter, retried = made(Pool.remote(), Painter.options(name="painter-1").remote(), Retried.remote())
    tries = COUNTS / "tries"
    retried.tries.remote(str(tries))
    while not tries.exists() or tries.stat().st_size < 4:
        time.sleep(0.1)
    ray.get(painter.loses_a_thread_and_a_child.remote())
    painter.paint.remote(0)
    return pool.wait.remote()


@ray.remote(max_restarts=-1, max_task_retries=-1)
class Model:
    def load(self):
        time.sleep(0.4)
        os._exit(7)


@ray.remote(max_restarts=-1, max_task_retries=-1)
class Unborn:
    def __init__(self):
        time.sleep(0.4)
        sys.exit(3)

    def ask(self):
        return 1


@ray.remote(max_restarts=-1, max_task_retries=-1)
class Killed:
    def __init__(self):
        time.sleep(0.4)
        os._exit(9)

    def ask(self):
        return 1


def loop():
    return made(Model.remote())[0].load.remote()


def unborn():
    return made(Unborn.remote())[0].ask.remote()


def killed_unborn():
    return made(Killed.remote())[0].ask.remote()


def is_first(place):
    try:
        Path(place).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


@ray.remote(max_restarts=1, max_task_retries=1)
class Once:
    def raises_once(self, place):
        if is_first(place):
            raise ValueError("the first time")
        return "at last"

    def dies_once(self, place):
        if is_first(place):
            os._exit(1)
        return "alive"

    def leaves(self):
        ray.actor.exit_actor()


def caught(work):
    try:
        return work()
    except ZeroDivisionError:
        return "caught"
    except ray.exceptions.RayError as error:
        return type(error).__name__


def healthy():
    """Waits for a line with one error unread, and for another one when all were read."""
    painter, reader, once = Painter.remote(), Reader.remote(), Once.remote()
    late = painter.paint.remote(0)
    ray.wait([late])
    print("unread", flush=True)
    input()
    print(caught(lambda: ray.get(late)), flush=True)
    print(
        caught(lambda: ray.get([painter.paint.remote(1), painter.paint.remote(0), painter.paint.remote(0)])), flush=True
    )
    print(caught(painter.paint.remote(0).future().result), flush=True)
    print(ray.get(reader.awaits.remote([painter.paint.remote(0)])), flush=True)
    print(caught(lambda: ray.get(painter.takes.remote(painter.paint.remote(0)))), flush=True)
    retried = once.raises_once.options(retry_exceptions=True, max_task_retries=2)
    print(
        ray.get(retried.remote(str(COUNTS / "raised"))),
        ray.get(once.dies_once.remote(str(COUNTS / "died"))),
        flush=True,
    )
    leaver, victim = Once.options(max_restarts=0).remote(), Painter.remote()
    print(caught(lambda: ray.get(leaver.leaves.remote())), ray.get(victim.takes.remote("there")), flush=True)
    ray.kill(victim)
    print("read", flush=True)
    input()


if __name__ == "__main__":
    ray.init()
    print("ready", flush=True)
    if sys.argv[1] == "healthy":
        healthy()
    else:
        ray.get([globals()[name]() for name in sys.argv[1:]])
