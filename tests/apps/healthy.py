"""Programs that look as if they hang, and do not."""

import asyncio
import sys
import threading
import time

import ray
from ray.util.queue import Queue


@ray.remote
class Account:
    def meet(self, other):
        self.other = other

    def transfer(self):
        return ray.get(self.other.deposit.remote())

    def deposit(self):
        return "done"

    def slow(self, seconds):
        time.sleep(seconds)
        return "slow"

    def relay(self, seconds):
        return ray.get(self.other.slow.remote(seconds))

    def hurried(self):
        me = ray.get_runtime_context().current_actor
        try:
            return ray.get(me.deposit.remote(), timeout=1.5)
        except ray.exceptions.GetTimeoutError:
            return "gave up"

    def polling(self):
        me = ray.get_runtime_context().current_actor
        ref, rounds = me.deposit.remote(), 0
        while rounds < 15 and not ray.wait([ref], timeout=0.1)[0]:
            rounds += 1
        return rounds


@ray.remote
class Loop:
    def __init__(self):
        self.come = asyncio.Event()

    async def again(self):
        me = ray.get_runtime_context().current_actor
        return await asyncio.gather(*(me.answer.remote(0.4) for _ in range(3)))

    async def answer(self, seconds):
        await asyncio.sleep(seconds)
        return "done"

    async def by_thread(self):
        loop = asyncio.get_running_loop()
        threading.Timer(1.5, lambda: loop.call_soon_threadsafe(self.come.set)).start()
        await self.come.wait()
        return "thread"

    async def by_timer(self):
        asyncio.get_running_loop().call_later(1.5, self.come.set)
        await self.come.wait()
        return "timer"

    async def by_task(self):
        self.task = asyncio.ensure_future(self.later())
        await self.come.wait()
        return "task"

    async def later(self):
        await asyncio.sleep(1.5)
        self.come.set()

    async def wait(self):
        await self.come.wait()
        return "opened"

    async def open(self):
        self.come.set()


@ray.remote(max_concurrency=2)
class Threads:
    def __init__(self):
        self.come = threading.Event()

    def wait(self):
        self.come.wait()
        return "notified"

    def notify(self):
        self.come.set()


@ray.remote
class Producer:
    def fill(self, queue, n):
        for i in range(n):
            queue.put(i)
        return n


@ray.remote
class Consumer:
    def drain(self, queue, n):
        time.sleep(0.5)
        return sum(queue.get() for _ in range(n))


@ray.remote
def opener(loop):
    time.sleep(1.5)
    ray.get(loop.open.remote())


def main():
    a, b = Account.remote(), Account.remote()
    loops = [Loop.remote() for _ in range(2)]
    threads = Threads.remote()
    queue = Queue(maxsize=1)
    ray.get([a.meet.remote(b), b.meet.remote(a)])
    for _ in range(100):
        assert ray.get(a.transfer.remote()) == ray.get(b.transfer.remote()) == "done"
    print("one after the other")
    print("slow calls", ray.get([a.relay.remote(1.2), b.deposit.remote()]))
    print("timeouts", ray.get([a.hurried.remote(), b.polling.remote()]))
    print("own handle", ray.get([loop.again.remote() for loop in loops]))
    print("threads and timers", ray.get([loops[0].by_thread.remote(), loops[1].by_timer.remote()]))
    fresh = [Loop.remote() for _ in range(2)]
    print("tasks", ray.get(fresh[0].by_task.remote()))
    waiting = fresh[1].wait.remote()
    opener.remote(fresh[1])
    print("a plain task", ray.get(waiting))
    waiting = threads.wait.remote()
    print("wait", len(ray.wait([waiting], timeout=1.2)[0]))
    threads.notify.remote()
    print("a thread's event", ray.get(waiting))
    made, used = Producer.remote().fill.remote(queue, 30), Consumer.remote().drain.remote(queue, 30)
    print("a full queue", ray.get([made, used]))


if __name__ == "__main__":
    ray.init(runtime_env={"env_vars": {"RAY_USE_UVLOOP": "1"}} if "uvloop" in sys.argv else None)
    main()
    sys.exit(0)
