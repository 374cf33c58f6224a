"""Deadlocks that end in an error: `DeadlockError` out of each kind of wait, or inside one call of the deadlock."""

import asyncio
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import ray
import ray.util.scheduling_strategies


@ray.remote
class Meeting:
    """Lets two callers go on together, so that each has begun."""

    def __init__(self):
        self.here = 0
        self.both = asyncio.Event()

    async def arrive(self):
        self.here += 1
        if self.here == 2:
            self.both.set()
        await self.both.wait()


@ray.remote(num_cpus=0)
class Account:
    def know(self, other, meeting):
        self.other, self.meeting = other, meeting

    def pay(self):
        ray.get(self.meeting.arrive.remote())
        return 1 + ray.get(self.other.take.remote())

    def take(self):
        return 1

    def items(self):
        yield self.pay()


@ray.remote(num_cpus=0)
class AsyncAccount:
    async def know(self, other, meeting):
        self.other, self.meeting = other, meeting

    async def pay(self):
        await self.meeting.arrive.remote()
        return 1 + await self.other.take.remote()


@ray.remote(num_cpus=0)
def asked_back(account):
    return ray.get(account.take.remote())


@ray.remote(num_cpus=0)
class Starter:
    def pay(self, me):
        return 1 + ray.get(asked_back.remote(me))

    def take(self):
        return 1


def two(first=Account, **options):
    meeting = Meeting.remote()
    a, b = first.options(**options).remote(), Account.options(**options).remote()
    ray.get([a.know.remote(b, meeting), b.know.remote(a, meeting)])
    return a, b


def waits_by(how, refs, a):
    if how == "get":
        return ray.get(refs)
    if how == "wait":
        return ray.wait(refs, num_returns=2)
    if how == "threads":
        with ThreadPoolExecutor() as pool:
            return list(pool.map(ray.get, refs))
    if how == "awaits":

        async def main():
            return await asyncio.gather(*refs)

        return asyncio.run(main())
    return ray.get(next(a.items.options(num_returns="streaming").remote()))


def caught(how):
    """Each wait ends in the error, and the program goes on: it ends the deadlock by itself."""
    a, b = two()
    refs = [a.pay.remote(), b.pay.remote()]
    try:
        print("app:", waits_by(how, refs, a))
    except Exception as error:
        names = sorted({one["machine"] for one in error.evidence["members"]})
        print("app:", how, "ended in", type(error).__name__, "on", names)
    ray.kill(a)
    try:
        print("app:", ray.get(refs[1]))
    except ray.exceptions.RayError as error:
        print("app: then", type(error).__name__)


def every_kind():
    for how in ("get", "wait", "threads", "awaits", "next"):
        caught(how)


def uncaught():
    a, b = two()
    print("app:", ray.get([a.pay.remote(), b.pay.remote()]))


def outcomes(refs):
    for ref in refs:
        try:
            print("app: got", ray.get(ref))
        except ray.exceptions.RayTaskError as error:
            print("app:", type(error).__name__, "with", len(error.evidence["members"]), "members")


def one_call():
    a, b = two()
    outcomes([a.pay.remote(), b.pay.remote()])


def one_call_of_two_kinds():
    a, b = two(AsyncAccount)
    outcomes([a.pay.remote()])
    del b


def a_task():
    starter = Starter.remote()
    outcomes([starter.pay.remote(starter)])


def retried():
    a, b = two(max_restarts=1, max_task_retries=1)
    refs = [a.pay.remote(), b.pay.remote()]
    try:
        ray.get(refs)
    except Exception as error:
        print("app:", type(error).__name__)


@ray.remote(num_cpus=0)
class Dog:
    def cancel(self, refs):
        time.sleep(6.0)
        ray.cancel(refs[0])

    def remove(self, group):
        time.sleep(6.0)
        ray.util.remove_placement_group(group)


@ray.remote(num_cpus=0)
def given(value):
    return value


def ended_by_others():
    """Each time somebody else ends it: by a ref to a task that has not begun, by a placement group, by a thread of any name."""
    a, b = two()
    refs = [a.pay.remote(), b.pay.remote()]
    waits = given.remote(refs[0])
    dog = Dog.remote()
    dog.cancel.remote([waits])
    try:
        ray.get(waits)
    except ray.exceptions.RayError as error:
        print("app: by a ref", type(error).__name__)
    for one in (a, b):
        ray.kill(one)

    group = ray.util.placement_group([{"CPU": 0.01}])
    ray.get(group.ready())
    strategy = ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy(group)
    a, b = two(scheduling_strategy=strategy)
    dog.remove.remote(group)
    try:
        ray.get([a.pay.remote(), b.pay.remote()])
    except ray.exceptions.RayError as error:
        print("app: by a group", isinstance(error, ray.exceptions.RayActorError))

    a, b = two()
    threading.Thread(target=lambda: (time.sleep(6.0), ray.kill(a)), name="ray_watchdog").start()
    try:
        ray.get([a.pay.remote(), b.pay.remote()])
    except ray.exceptions.RayError as error:
        print("app: by a thread", isinstance(error, ray.exceptions.RayActorError))


if __name__ == "__main__":
    ray.init(log_to_driver=False)
    globals()[sys.argv[1]]()
    print("app: the end")
