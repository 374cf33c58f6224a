"""Loops that ask: `polls.py NAME SECONDS`, hung ones and healthy ones, which end by themselves after so many seconds."""

import asyncio
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import ray
from ray.exceptions import PendingCallsLimitExceeded
from ray.util.queue import Queue

SECONDS = float(sys.argv[2]) if len(sys.argv) > 2 else 60.0


@ray.remote
class Buffer:
    def __init__(self):
        self.groups = []
        self.asked = 0

    def add(self, group):
        self.groups.append(group)

    def sample(self, most):
        self.asked += 1
        return self.groups[:most] if len(self.groups) >= most else None

    def drain(self):
        self.groups.clear()


@ray.remote
class Collector:
    def __init__(self, buffer):
        self.buffer = buffer

    def start(self, groups):
        threading.Thread(target=self.collect, args=[groups], daemon=True).start()

    def collect(self, groups):
        for group in range(groups):
            ray.get(self.buffer.add.remote(group))


@ray.remote
class Trainer:
    def train(self, buffer):
        while True:
            batch = ray.get(buffer.sample.remote(8))  # actor
            if batch is not None:
                return batch
            time.sleep(0.2)


@ray.remote
class AsyncTrainer:
    async def take(self, queue):
        while True:
            try:
                return await asyncio.wait_for(queue.get.remote(), 0.5)  # timing_out
            except TimeoutError:
                print("not yet")

    async def train(self, buffer):
        while (batch := await buffer.sample.remote(8)) is None:  # awaiting
            await asyncio.sleep(0.2)
        return batch


@ray.remote
class Worker:
    def __init__(self):
        self.steps = 0

    def ping(self):
        return "ok"

    def step(self):
        self.steps += 1

    def is_idle(self):
        return False

    def take(self, queue):
        return queue.get()

    def work(self, seconds):
        time.sleep(seconds)
        return seconds


@ray.remote
class Engine:
    def __init__(self, seconds):
        self.up_at = time.time() + seconds

    def is_up(self):
        return time.time() > self.up_at


def made():
    buffer = Buffer.remote()
    collector = Collector.remote(buffer)
    ray.get(collector.start.remote(6))
    return buffer, collector


# What hangs


def driver():
    buffer, _collector = made()
    while (batch := ray.get(buffer.sample.remote(8))) is None:  # driver
        time.sleep(0.2)
    return batch


def actor():
    buffer, _collector = made()
    return ray.get(Trainer.remote().train.remote(buffer))


def awaiting():
    buffer, _collector = made()
    return ray.get(AsyncTrainer.remote().train.remote(buffer))


def timing_out():
    """For what nobody adds, a new call each time."""
    queue = Queue()
    return ray.get(AsyncTrainer.remote().take.remote(queue.actor))


def naming():
    while True:
        try:
            return ray.get_actor("trainer")  # naming
        except ValueError:
            time.sleep(0.2)


def refused():
    """By a worker whose queue is full until the program goes on."""
    queue = Queue()
    worker = Worker.options(max_pending_calls=1).remote()
    worker.take.remote(queue)
    while True:
        try:
            return ray.get(worker.take.remote(queue))  # refused
        except PendingCallsLimitExceeded:
            time.sleep(0.2)


def waiting():
    """For workers that wait for what the program has not put into their queue."""
    queue = Queue()
    refs = [Worker.remote().take.remote(queue) for _ in range(2)]
    while refs:
        ready, refs = ray.wait(refs, timeout=0.2)  # waiting
        for one in ready:
            queue.put(ray.get(one))


def getting():
    ref = Worker.remote().take.remote(Queue())
    while True:
        try:
            return ray.get(ref, timeout=0.2)  # getting
        except ray.exceptions.GetTimeoutError:
            print("not yet")


def pooled():
    """On threads, for which the program waits."""
    worker = Worker.remote()
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(lambda _: _until_idle(worker), range(2)))


def _until_idle(worker):
    while not ray.get(worker.is_idle.remote()):  # pooled
        time.sleep(0.2)


def tasks():
    """Beside each other on one event loop."""
    worker = Worker.remote()

    async def until_idle():
        while not await worker.is_idle.remote():  # tasks
            await asyncio.sleep(0.2)

    async def both():
        await asyncio.gather(until_idle(), until_idle())

    asyncio.run(both())


# What only looks like it


def heartbeat():
    """Next to an actor that works."""
    worker, busy = Worker.remote(), Worker.options(max_concurrency=2).remote()
    end = busy.work.remote(SECONDS)
    while not ray.wait([end], timeout=0.2)[0]:
        if ray.get(worker.ping.remote()) != "ok":
            raise RuntimeError
    return ray.get(end)


def monitor():
    """For ever, beside the program's own work."""
    workers = [Worker.remote() for _ in range(2)]

    def watch():
        while True:
            if not all(ray.get([worker.ping.remote() for worker in workers])):
                raise RuntimeError
            time.sleep(0.2)

    threading.Thread(target=watch, daemon=True).start()
    return ray.get(workers[0].work.remote(0)) or ray.get(Worker.remote().work.remote(SECONDS))


def stepping():
    worker, until = Worker.remote(), time.time() + SECONDS
    while time.time() < until:
        ray.get(worker.step.remote())
        time.sleep(0.05)


def bounded():
    buffer, _collector = made()
    for _ in range(int(SECONDS / 0.2)):
        if ray.get(buffer.sample.remote(8)):
            break
        time.sleep(0.2)
    return "without"


def engine():
    """Which starts by itself, as its clock says, next to an actor that works."""
    up, busy = Engine.remote(SECONDS), Worker.remote()
    busy.work.remote(10 * SECONDS)
    while not ray.get(up.is_up.remote()):
        time.sleep(0.2)
    return "up"


def loading():
    """Waits for an engine by its name, which a task makes when it has loaded."""
    load.remote(SECONDS)
    while True:
        try:
            return ray.get(ray.get_actor("engine").ping.remote())
        except ValueError:
            time.sleep(0.2)


@ray.remote
def load(seconds):
    time.sleep(seconds)
    Worker.options(name="engine", lifetime="detached").remote()


def progress():
    """A bar over slow tasks."""
    refs = [Worker.remote().work.remote(SECONDS) for _ in range(2)]
    while refs:
        refs = ray.wait(refs, timeout=0.2)[1]
    return "done"


def giving_up():
    ref, tries = Worker.remote().take.remote(Queue()), 0
    while True:
        try:
            return ray.get(ref, timeout=0.2)
        except ray.exceptions.GetTimeoutError:
            tries += 1
            if tries > 5 * SECONDS:
                return "without"


def router():
    """Asks who is free, and gives it work."""
    workers, until, given = [Worker.remote() for _ in range(2)], time.time() + SECONDS, 0
    while True:
        free = [worker for worker in workers if ray.get(worker.ping.remote()) == "ok"]
        ray.get(free[given % 2].step.remote())
        given += 1
        if time.time() > until:
            return given
        time.sleep(0.1)


def filling():
    """Somebody else adds by and by."""
    buffer = Buffer.remote()
    feeder = Feeder.remote(buffer)
    feeder.feed.remote(SECONDS)
    while (batch := ray.get(buffer.sample.remote(8))) is None:
        time.sleep(0.2)
    return len(batch)


@ray.remote
class Feeder:
    def __init__(self, buffer):
        self.buffer = buffer

    async def feed(self, seconds):
        for group in range(8):
            await asyncio.sleep(seconds / 8)
            await self.buffer.add.remote(group)


if __name__ == "__main__":
    ray.init()
    print(globals()[sys.argv[1]](), flush=True)
