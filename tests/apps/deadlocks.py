"""Programs that hang for ever, each in its own way: `python deadlocks.py NAME`; `NAME.uvloop` runs its actors on uvloop."""

import asyncio
import os
import queue
import sys
import tempfile
import threading

import ray
from ray.util.queue import Queue


@ray.remote
class Account:
    def meet(self, other):
        self.other = other

    def transfer(self):
        return ray.get(self.other.deposit.remote())

    def both(self):
        return ray.get(self.other.transfer.remote())

    def deposit(self):
        return "done"

    def where(self):
        return ray.get_runtime_context().get_node_id()

    def again(self):
        return ray.get(ray.get_runtime_context().current_actor.deposit.remote())


@ray.remote
class Loop:
    def __init__(self):
        self.opened = asyncio.Event()
        self.entered = 0

    def meet(self, other):
        self.other = other

    async def again(self):
        return await ray.get_runtime_context().current_actor.answer.remote()

    async def together(self):
        me = ray.get_runtime_context().current_actor
        return await asyncio.gather(me.answer.remote())

    async def doze(self):
        await asyncio.sleep(3_600)

    async def blocking(self):
        return ray.get(self.other.ask.remote())

    async def ask(self):
        return await self.other.answer.remote()

    async def answer(self):
        return "done"

    async def deposit(self):
        self.opened.set()

    async def enter(self):
        self.entered += 1
        if self.entered == 2:
            ray.get_runtime_context().current_actor.open.remote()
        await self.opened.wait()

    async def open(self):
        self.opened.set()


@ray.remote(concurrency_groups={"narrow": 1, "wide": 4})
class Grouped:
    def again(self):
        me = ray.get_runtime_context().current_actor
        return ray.get(me.answer.options(concurrency_group="narrow").remote())

    def answer(self):
        return "done"


@ray.remote(max_concurrency=2)
class Threads:
    def __init__(self):
        self.both = threading.Barrier(2)

    def again(self):
        self.both.wait()
        return ray.get(ray.get_runtime_context().current_actor.answer.remote())

    def answer(self):
        return "done"


@ray.remote
class Courier:
    def __init__(self, inbox, outbox):
        self.inbox = inbox
        self.outbox = outbox

    def deliver(self):
        self.outbox.put("first")
        self.outbox.put("second")
        return self.inbox.get()


@ray.remote
class Parent:
    def __init__(self, helper):
        self.ready = ray.get(helper.report_to.remote(ray.get_runtime_context().current_actor))

    def hello(self):
        return "hello"


@ray.remote
class Helper:
    def report_to(self, parent):
        return ray.get(parent.hello.remote())


@ray.remote(max_restarts=1, max_task_retries=1)
class Phoenix:
    def __init__(self, other, mark):
        self.other = other
        self.mark = mark

    def work(self):
        if not os.path.exists(self.mark):
            open(self.mark, "w").close()
            os._exit(1)
        return ray.get(self.other.help.remote())

    def status(self):
        return "fine"


@ray.remote
class Nurse:
    def meet(self, patient):
        self.patient = patient

    def start(self):
        return ray.get(self.patient.work.remote())

    def help(self):
        return "helped"


@ray.remote
class Voter:
    def meet(self, leader):
        self.leader = leader

    def vote(self, is_eager):
        return "yes" if is_eager else ray.get(self.leader.approve.remote())


@ray.remote
class Leader:
    def elect(self, voters):
        votes = [voter.vote.remote(number == 0) for number, voter in enumerate(voters)]
        ready, _ = ray.wait(votes, num_returns=2)
        return ray.get(ready)

    def approve(self):
        return "yes"


def pair(kind):
    a, b = kind.remote(), kind.remote()
    ray.get([a.meet.remote(b), b.meet.remote(a)])
    return a, b


def two():
    a, _ = pair(Account)
    return ray.get(a.both.remote())


def on_nodes(*places):
    """Of nodes that have these resources."""
    a, b = (Account.options(resources={place: 1}).remote() for place in places)
    ray.get([a.meet.remote(b), b.meet.remote(a)])
    print(len(set(ray.get([a.where.remote(), b.where.remote()]))), "nodes", flush=True)
    return ray.get(b.both.remote())


def self_call():
    return ray.get(Account.remote().again.remote())


def async_self_call():
    return ray.get(Loop.options(max_concurrency=1).remote().again.remote())


def gathered_self_call():
    return ray.get(Loop.options(max_concurrency=1).remote().together.remote())


def blocked_loop():
    a, _ = pair(Loop)
    dozing = a.doze.remote()
    return ray.get([a.blocking.remote(), dozing])


def async_slots():
    loop = Loop.options(max_concurrency=2).remote()
    return ray.get([loop.enter.remote() for _ in range(2)])


def awaited_slots():
    """The program awaits what can never come, as programs that are asynchronous themselves do."""

    async def main():
        loop = Loop.options(max_concurrency=2).remote()
        return await asyncio.gather(*(loop.enter.remote() for _ in range(2)))

    return asyncio.run(main())


def threaded_slots():
    threads = Threads.remote()
    return ray.get([threads.again.remote() for _ in range(2)])


def named_group():
    return ray.get(Grouped.remote().again.options(concurrency_group="narrow").remote())


def queues():
    """Beside what can act no more: a task that has ended, an object in the store, a thread that is parked."""
    ray.get(ray.remote(lambda x: x + 1).remote(1))
    ray.put({"plain": list(range(1_000)), "others": os})
    threading.Thread(target=queue.Queue().get, daemon=True).start()
    left, right = Queue(maxsize=1), Queue(maxsize=1)
    a, b = Courier.remote(left, right), Courier.remote(right, left)
    return ray.get([a.deliver.remote(), b.deliver.remote()])


def constructor():
    return ray.get(Parent.remote(Helper.remote()).hello.remote())


def restart():
    nurse = Nurse.remote()
    with tempfile.TemporaryDirectory() as folder:
        phoenix = Phoenix.remote(nurse, os.path.join(folder, "died"))
        ray.get(nurse.meet.remote(phoenix))
        return ray.get(nurse.start.remote())


def votes():
    leader, voters = Leader.remote(), [Voter.remote() for _ in range(3)]
    ray.get([voter.meet.remote(leader) for voter in voters])
    return ray.get(leader.elect.remote(voters))


@ray.remote(num_cpus=0.1, _generator_backpressure_num_objects=2)
def numbers(count):
    for number in range(count):
        yield number * number


def two_of(items):
    yield from items[:2]


class Lines:
    def ready(self):
        return "ready"

    @ray.method(_generator_backpressure_num_objects=1)
    def lines(self):
        yield "a line"
        yield "another line"

    @ray.method(_generator_backpressure_num_objects=1)
    def inner(self):
        yield from two_of(["a line", "another line"])


@ray.remote(num_cpus=0.1)
class AsyncLines:
    @ray.method(_generator_backpressure_num_objects=2)
    async def lines(self):
        await asyncio.sleep(0)
        for number in range(9):
            yield f"line {number}"


@ray.remote(num_cpus=0.1)
class Asker:
    def items(self, other):
        yield "an item"
        yield ray.get(other.answer.remote())


@ray.remote(num_cpus=0.1)
class Reader:
    def read(self, me, asker):
        return [ray.get(ref) for ref in asker.items.remote(me)]

    def answer(self):
        return "done"


@ray.remote(num_cpus=0.1)
class AsyncReader:
    def __init__(self):
        self.is_free = asyncio.Lock()

    async def read(self, me, asker):
        async with self.is_free:
            return [await ref async for ref in asker.items.remote(me)]

    async def answer(self):
        async with self.is_free:
            return "done"


def held_generators():
    made = ray.remote(num_cpus=0.1)(Lines)
    one, both = made.remote(), made.options(max_concurrency=2).remote()
    held = [numbers.remote(9), one.lines.remote(), both.inner.remote()]
    ray.get(next(held[0]))
    return ray.get(one.ready.remote()), held


def held_async_generator():
    held = AsyncLines.remote().lines.remote()
    ray.get(next(held))
    return ray.get(held.completed())


def next_item():
    reader = Reader.remote()
    return ray.get(reader.read.remote(reader, Asker.remote()))


def async_next_item():
    reader = AsyncReader.remote()
    return ray.get(reader.read.remote(reader, Asker.remote()))


def in_order():
    """Ray begins no call of one process to an actor before the one in front, whose argument waits for the one behind."""
    loop, account = Loop.remote(), Account.remote()
    ray.get(account.meet.remote(loop))
    account.meet.remote(loop.enter.remote())
    return ray.get(account.transfer.remote())


def again():
    print(ray.get(Account.remote().deposit.remote()))
    ray.shutdown()
    ray.init()
    threading.Thread(target=two).start()
    return "left"  # the program's own end waits for its threads


if __name__ == "__main__":
    name, _, loop = sys.argv[1].partition(".")
    ray.init(runtime_env={"env_vars": {"RAY_USE_UVLOOP": "1"}} if loop == "uvloop" else None)
    print("start", flush=True)
    print(globals()[name](*sys.argv[2:]))
