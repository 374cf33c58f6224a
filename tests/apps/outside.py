"""Actors that wait outside of Ray's calls, all of them for a while: `python outside.py hanging FILE|healthy`.

`hanging`: none of the waits ever ends; the program does when FILE is there. `healthy`: each ends, in a way that no call shows,
when it has lasted for `LONG_S`.
"""

import asyncio
import ctypes
import multiprocessing
import os
import queue
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import ray

ENV = {"PATH": os.defpath}
"""Of child processes."""

LONG_S = 18.0
"""Longer than a snapshot takes a wait for one that may end, with a collection of garbage, and a few snapshots more."""

MOST_S = 300.0


@ray.remote(num_cpus=0)
class Buffer:
    def __init__(self):
        self.items = queue.Queue()

    def put(self, item):
        self.items.put(item)

    def get(self):
        return self.items.get()


@ray.remote(num_cpus=0)
class Stuck:
    def lock(self):
        lock = threading.Lock()
        lock.acquire()
        with lock:
            return "locked"

    def condition(self):
        condition = threading.Condition()
        with condition:
            condition.wait()

    def socket(self):
        server = socket.create_server(("127.0.0.1", 0))
        client = socket.create_connection(server.getsockname())
        self.there = server.accept()
        client.recv(1)

    def child(self):
        subprocess.run(["sleep", str(2 * MOST_S)], env=ENV, check=True)

    def join(self):
        thread = threading.Thread(target=self.beat, name="beat", daemon=True)
        thread.start()
        thread.join()

    def beat(self):
        while True:
            time.sleep(0.1)

    def process_queue(self):
        multiprocessing.get_context("spawn").Queue().get()


@ray.remote(num_cpus=0)
class Loop:
    async def hold(self):
        """With a call behind it: Ray begins calls of an async actor in any order."""
        ray.get_runtime_context().current_actor.answer.remote()
        threading.Event().wait()

    async def answer(self):
        return "answered"


@ray.remote(num_cpus=0)
class Flag:
    """A method that is not async holds the loop until a call behind it releases the lock."""

    def __init__(self):
        self.lock = threading.Lock()

    def occupy(self):
        self.lock.acquire()
        self.lock.acquire()

    async def release(self):
        self.lock.release()


@ray.remote(num_cpus=0)
class Awaits:
    """Coroutines that await what no watched call gives."""

    async def locked(self):
        lock = threading.Lock()
        lock.acquire()
        await asyncio.to_thread(lock.acquire)

    async def reading(self):
        server = socket.create_server(("127.0.0.1", 0))
        reader, _ = await asyncio.open_connection(*server.getsockname())
        await reader.read(1)

    async def sleeping(self):
        await asyncio.sleep(MOST_S)


@ray.remote(num_cpus=0)
class AsksBack:
    """Its loop is free, and the thread that a call awaits waits for an actor that waits for the call."""

    async def ask(self, other):
        return await asyncio.to_thread(ray.get, other[0].answer.remote())


@ray.remote(num_cpus=0)
class Asker:
    def ask(self, other, method="ask"):
        return ray.get(getattr(other, method).remote([ray.get_runtime_context().current_actor]))

    def answer(self):
        return "answered"


@ray.remote(num_cpus=0)
class Elsewhere:
    """What it does runs on the event loop of a thread of its own."""

    def __init__(self):
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, name="its loop", daemon=True).start()

    def run(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result()

    def ask_there(self, other):
        return self.run(answer_of(other[0]))

    def wait_there(self, kind, sleeper=None):
        return self.run(WAITS_THERE[kind](sleeper))


async def answer_of(other):
    return await other.answer.remote()


async def a_sleep_there(_):
    await asyncio.sleep(LONG_S)
    return "a sleep there"


async def a_thread_beside(_):
    come, loop = asyncio.Event(), asyncio.get_running_loop()
    threading.Timer(LONG_S, loop.call_soon_threadsafe, [come.set]).start()
    await come.wait()
    return "a thread beside"


async def an_executor(_):
    await asyncio.get_running_loop().run_in_executor(None, time.sleep, LONG_S)
    return "an executor"


async def a_task_there(sleeper):
    come = asyncio.Event()

    async def asks():
        await sleeper.nap.remote()
        come.set()

    asking = asyncio.ensure_future(asks())
    await come.wait()
    await asking
    return "a task there"


WAITS_THERE = {one.__name__: one for one in (a_sleep_there, a_thread_beside, an_executor, a_task_there)}


class Unwritten:
    """What is never written out."""

    def __reduce__(self):
        threading.Event().wait()
        return str, ()


@ray.remote(num_cpus=0)
def unwritten():
    return Unwritten()


@ray.remote(num_cpus=0)
def unread():
    return ray.get(unwritten.remote())


@ray.remote(num_cpus=0)
class Service:
    def run(self):
        threading.Event().wait()


def hanging():
    buffer, loop, service = Buffer.remote(), Loop.remote(), Service.remote()
    flag, asks_back, asker = Flag.remote(), AsksBack.remote(), Asker.remote()
    in_a_thread, reading = Awaits.options(name="locked").remote(), Awaits.options(name="reading").remote()
    asks_there, asker_there = Elsewhere.remote(), Asker.remote()
    beside = (buffer, loop, service, flag, asks_back, asker, in_a_thread, reading, asks_there, asker_there)
    kinds = ("lock", "condition", "socket", "child", "process_queue", "join")
    actors = {kind: Stuck.options(name=kind).remote() for kind in kinds}
    ray.get([actor.__ray_ready__.remote() for actor in (*actors.values(), *beside)])
    refs = [buffer.get.remote(), buffer.put.remote(7), loop.hold.remote()]
    refs += [service.run.remote(), flag.occupy.remote(), flag.release.remote()]
    refs += [getattr(actor, kind).remote() for kind, actor in actors.items()]
    refs += [asker.ask.remote(asks_back), in_a_thread.locked.remote(), reading.reading.remote()]
    refs += [reading.sleeping.remote(), unread.remote()]
    refs += [asker_there.ask.remote(asks_there, "ask_there")]
    given_up, most_s = Path(sys.argv[2]), time.monotonic() + MOST_S
    while not given_up.exists() and time.monotonic() < most_s:
        ray.wait(refs, num_returns=len(refs), timeout=1.0)
    print("given up")
    for actor in (*actors.values(), *beside):
        ray.kill(actor)


@ray.remote(num_cpus=0, max_concurrency=2)
class Holder:
    """A slow holder of a lock, in a thread of its own."""

    def __init__(self):
        self.lock, self.is_held = threading.Lock(), threading.Event()

    def hold(self):
        with self.lock:
            self.is_held.set()
            time.sleep(LONG_S)

    def want(self):
        self.is_held.wait()
        with self.lock:
            return "a lock"


@ray.remote(num_cpus=0)
class Waiter:
    def __init__(self):
        self.come = threading.Event()

    def timer(self):
        threading.Timer(LONG_S, self.come.set).start()
        self.come.wait()
        return "a timer"

    def c_timer(self):
        """A thread of the C library, which has no frame in Python until it calls."""
        library = ctypes.CDLL(None)
        self.started = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(lambda _: self.come.set())
        self.wake = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(self._sleep_in_c(library))
        thread = ctypes.c_ulong()
        library.pthread_create(ctypes.byref(thread), None, self.wake, None)
        self.come.wait()
        return "a thread of C"

    def _sleep_in_c(self, library):
        def sleep(_):
            library.usleep(int(LONG_S * 1e6))
            self.come.set()

        return sleep

    def reply(self, sleeper):
        sleeper.nap.remote().future().add_done_callback(lambda _: self.come.set())
        self.come.wait()
        return "a reply"

    def child(self):
        subprocess.run(["sleep", str(LONG_S)], env=ENV, check=True)
        return "a child"

    def request(self):
        server = socket.create_server(("127.0.0.1", 0))
        code = f"import socket, time; s = socket.create_connection({server.getsockname()}); time.sleep({LONG_S}); s.send(b'x')"
        client = subprocess.Popen([sys.executable, "-c", code], env=ENV)
        connection, _ = server.accept()
        connection.recv(1)
        client.wait()
        return "a request"


@ray.remote(num_cpus=0)
class Sleeper:
    def nap(self):
        time.sleep(LONG_S)


@ray.remote(num_cpus=0, concurrency_groups={"io": 2})
class Groups:
    """A blocking wait on the loop of one group, which a coroutine of another group ends."""

    def __init__(self):
        self.come = threading.Event()

    async def wait(self):
        self.come.wait()
        return "another group"

    @ray.method(concurrency_group="io")
    async def release(self):
        await asyncio.sleep(LONG_S)
        self.come.set()


def healthy():
    holder, groups = Holder.remote(), Groups.remote()
    beside = [holder.hold.remote(), groups.release.remote()]
    refs = [holder.want.remote(), groups.wait.remote()]
    refs += [Waiter.remote().reply.remote(Sleeper.remote())]
    refs += [getattr(Waiter.remote(), kind).remote() for kind in ("timer", "c_timer", "child", "request")]
    refs += [Elsewhere.remote().wait_there.remote(kind, Sleeper.remote()) for kind in WAITS_THERE]
    print(ray.get(refs), ray.get(beside))


if __name__ == "__main__":
    ray.init(address=os.environ.get("RAY_ADDRESS"), include_dashboard=False, log_to_driver=False)
    globals()[sys.argv[1]]()
