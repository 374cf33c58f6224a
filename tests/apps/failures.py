"""Exceptions and deaths: what the caller sees, what is tried again."""

import asyncio
import os
import tempfile
import time

import ray
from ray.exceptions import ActorDiedError, GetTimeoutError, RayActorError, RayTaskError, TaskCancelledError


class OwnError(Exception):
    def __init__(self, code, text):
        super().__init__(code, text)
        self.code = code


class SlottedError(ValueError):
    __slots__ = ("place",)


@ray.remote
class Failing:
    def builtin(self):
        raise KeyError("key")

    def own(self):
        raise OwnError(7, "seven")

    def slotted(self):
        raise SlottedError("slots")

    def chained(self):
        try:
            self.builtin()
        except KeyError as error:
            raise ValueError("outer") from error

    def of_another(self, other):
        return ray.get(other.own.remote())

    def caught(self, other):
        try:
            ray.get(other.own.remote())
        except OwnError as error:
            return error.code, isinstance(error, RayTaskError)

    def fine(self):
        return "fine"

    def leave(self):
        ray.actor.exit_actor()

    @ray.method(num_returns=2)
    def two(self):
        raise OwnError(2, "two")


@ray.remote
class AsyncFailing:
    async def fail(self):
        await asyncio.sleep(0)
        raise OwnError(9, "async")

    async def caught(self, other):
        try:
            await other.own.remote()
        except OwnError as error:
            return error.code

    async def forever(self):
        await asyncio.Event().wait()

    async def gathered(self, other):
        found = await asyncio.gather(other.own.remote(), other.fine.remote(), return_exceptions=True)
        return [type(item).__name__ for item in found]


@ray.remote
class Stillborn:
    def __init__(self):
        raise OwnError(1, "born dead")

    def hello(self):
        return "hello"


@ray.remote(max_restarts=2, max_task_retries=2)
class Phoenix:
    def __init__(self, folder):
        self.folder = folder
        self.calls = 0
        with open(os.path.join(folder, f"born-{len(os.listdir(folder))}"), "w"):
            pass

    def die_once(self):
        self.calls += 1
        if len(os.listdir(self.folder)) == 1:
            os._exit(1)
        return "alive again"

    def count(self):
        self.calls += 1
        return self.calls

    @ray.method(retry_exceptions=True)
    def second_time_lucky(self):
        self.calls += 1
        if self.calls < 5:
            raise OwnError(self.calls, "not yet")
        return self.calls


@ray.remote
class Caller:
    def __init__(self, target):
        self.target = target

    def call(self):
        return ray.get(self.target.die_once.remote()), ray.get(self.target.count.remote())


def told(work, *kinds):
    try:
        return work()
    except Exception as error:
        cause = getattr(error, "cause", None)
        known = [kind.__name__ for kind in kinds if isinstance(error, kind)]
        return type(error).__name__, type(cause).__name__, known, getattr(error, "code", None)


def main():
    failing, other = Failing.remote(), Failing.remote()
    get = ray.get
    print(told(lambda: get(failing.builtin.remote()), KeyError, RayTaskError))
    print(told(lambda: get(failing.own.remote()), OwnError, RayTaskError))
    print(told(lambda: get(failing.slotted.remote()), SlottedError, ValueError, RayTaskError))
    print(told(lambda: get(failing.chained.remote()), ValueError, KeyError, RayTaskError))
    print(told(lambda: get(failing.of_another.remote(other)), OwnError, RayTaskError))
    print(get(failing.caught.remote(other)), told(lambda: get(failing.two.remote()[1]), OwnError))
    text = str(told_error(lambda: get(failing.own.remote())))
    print("own" in text, "failures.py" in text, "OwnError" in text)

    slow = AsyncFailing.remote()
    print(
        told(lambda: get(slow.fail.remote()), OwnError),
        get(slow.caught.remote(other)),
        get(slow.gathered.remote(other)),
    )
    ref = slow.forever.remote()
    print(told(lambda: get(ref, timeout=0.2), GetTimeoutError, TimeoutError))
    ray.cancel(ref)
    print(told(lambda: get(ref, timeout=60), TaskCancelledError))

    print(told(lambda: get(Stillborn.remote().hello.remote()), ActorDiedError, RayActorError))
    failing.leave.remote()
    print(told(lambda: get(failing.fine.remote()), RayActorError))

    with tempfile.TemporaryDirectory() as folder:
        phoenix = Phoenix.remote(folder)
        print(get(phoenix.count.remote()), get(Caller.remote(phoenix).call.remote()), get(phoenix.count.remote()))
        print(get(phoenix.second_time_lucky.remote()), len(os.listdir(folder)))
        ray.kill(phoenix, no_restart=False)
        until(lambda: len(os.listdir(folder)) == 3)
        print(get(phoenix.count.remote()) >= 1)
        ray.kill(phoenix)
        until(lambda: isinstance(told_error(lambda: get(phoenix.count.remote())), RayActorError))
        print(told(lambda: get(phoenix.count.remote()), RayActorError))


def until(condition, seconds=30):
    """Ray kills in the background."""
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)


def told_error(work):
    try:
        work()
    except Exception as error:
        return error
    return None


if __name__ == "__main__":
    ray.init()
    main()
