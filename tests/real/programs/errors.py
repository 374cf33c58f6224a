"""What tasks and actors raise, as their callers catch it: by its own class, by Ray's, with causes, through several calls."""

import ray
from ray.exceptions import ActorDiedError, RayActorError, RayTaskError, TaskUnschedulableError, WorkerCrashedError


class OwnError(Exception):
    def __init__(self, code, text):
        super().__init__(code, text)
        self.code = code


class Unpicklable(Exception):
    def __init__(self):
        super().__init__("cannot travel")
        self.attribute = (n for n in range(3))


class SlottedError(ValueError):
    __slots__ = ("place",)


@ray.remote(num_cpus=0.1)
def fails(kind):
    if kind == "slotted":
        raise SlottedError("slots")
    if kind == "own":
        raise OwnError(7, "as it was asked")
    if kind == "unpicklable":
        raise Unpicklable
    if kind == "cause":
        try:
            {}["key"]
        except KeyError as error:
            raise ValueError("with a cause") from error
    return kind


@ray.remote(num_cpus=0.1)
def passes_on(argument):
    return argument


@ray.remote(num_cpus=0.1)
def calls(kind):
    return ray.get(fails.remote(kind))


@ray.remote(num_cpus=0.1, max_retries=0)
def crashes():
    import os

    os._exit(3)


@ray.remote(num_cpus=0.1)
class Fragile:
    def __init__(self, *, is_broken=False):
        if is_broken:
            raise OwnError(1, "in its constructor")

    def method(self):
        raise OwnError(2, "in a method")

    def caught(self):
        try:
            ray.get(fails.remote("own"))
        except OwnError as error:
            return error.code, isinstance(error, RayTaskError)

    async def coroutine(self):
        raise OwnError(3, "in a coroutine")


def tell(title, call):
    try:
        print("app:", title, ray.get(call()))
    except Exception as error:
        kinds = [
            kind.__name__ for kind in (OwnError, ValueError, RayTaskError, RayActorError) if isinstance(error, kind)
        ]
        last = str(error).strip().splitlines()[-1]
        last = last if "Error" in last and "ID" not in last.upper().split() else ""
        print(
            "app:", title, type(error).__name__, kinds, getattr(error, "code", None), last, "ray_snapshot" in str(error)
        )


def main():
    for kind in ("nothing", "own", "slotted", "unpicklable", "cause"):
        tell(kind, lambda kind=kind: fails.remote(kind))
    tell("as an argument", lambda: passes_on.remote(fails.remote("own")))
    tell("through a call", lambda: calls.remote("own"))
    tell("crash", crashes.remote)
    fragile = Fragile.remote()
    tell("method", fragile.method.remote)
    tell("caught", fragile.caught.remote)
    tell("coroutine", fragile.coroutine.remote)
    tell("constructor", Fragile.remote(is_broken=True).method.remote)
    print(
        "app:", issubclass(ActorDiedError, RayActorError), WorkerCrashedError.__name__, TaskUnschedulableError.__name__
    )


if __name__ == "__main__":
    ray.init(num_cpus=4, log_to_driver=False)
    main()
    print("app:", "the end")
