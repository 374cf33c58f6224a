"""A small app of which one function of ours is broken at a time: `python breaking_driver.py plain`, or `... SIDE TARGET ...`.

Prints what the app returns, as a line of JSON for each target: on the side `driver` a function is broken in the program, on the
side `worker` in the processes of its actors. `targets` prints all there are.
"""

from __future__ import annotations

import faulthandler
import importlib
import inspect
import json
import os
import sys
from types import FunctionType
from typing import Any

import ray

LONGEST_S = 90.0

MODULES = ("instrument.calls", "instrument.tracking", "instrument.here", "instrument.process", "instrument.envelopes",
           "instrument.coroutines", "instrument.loops", "instrument.threads", "instrument.unfollowed", "instrument.control",
           "instrument.reloading", "instrument.refs", "instrument.frames", "instrument.shape", "instrument.attaching",
           "protocol.calls", "protocol.acceptance", "runtime.here", "redaction", "encoding")  # fmt: skip
"""What runs in an app's processes."""

EDGES = {
    "instrument.calls:calling",  # gives the replacement, which is guarded; broken, nothing could be installed
    "instrument.calls:_Run.__enter__", "instrument.calls:_Run.__exit__", "instrument.calls:_Run.followed",
    "instrument.calls:_Run.item", "instrument.calls:_Run.refuse_if_held",
    "instrument.calls:_Inside.__enter__", "instrument.calls:_Inside.__exit__", "instrument.calls:_Inside.followed",
    "instrument.calls:_Inside.item", "instrument.calls:_Inside.refuse_if_held",
    "instrument.envelopes:Enveloped.__reduce__", "instrument.envelopes:Enveloped.__init__", "instrument.envelopes:opened",
    "instrument.control:Control._guarded_run",
}  # fmt: skip
"""The guarded edge itself: a line or two around `ours`, which the app calls directly."""


class Broken(Exception):
    """What a broken function raises."""


def targets() -> list[str]:
    """Every function and method of the modules, as `module:qualified.name`."""
    found = []
    for name in MODULES:
        module = importlib.import_module(f"ray_snapshot.{name}")
        for item in vars(module).values():
            members = vars(item).values() if inspect.isclass(item) else [item]
            if getattr(item, "__module__", "") != module.__name__:
                continue
            for member in members:
                function = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
                function = inspect.unwrap(function) if callable(function) else function
                if isinstance(function, FunctionType) and function.__code__.co_filename == module.__file__:
                    found.append(f"{name}:{function.__qualname__}")
    return [one for one in dict.fromkeys(found) if one not in EDGES]


def function_of(target: str) -> FunctionType:
    """The function of that name."""
    name, _, path = target.partition(":")
    item: Any = importlib.import_module(f"ray_snapshot.{name}")
    for part in path.split("."):
        item = inspect.getattr_static(item, part)
    item = item.fget if isinstance(item, property) else getattr(item, "__func__", item)
    return inspect.unwrap(item)  # type: ignore[no-any-return]


def broken(target: str) -> Any:
    """Break it, for all who know it already; returns what it was."""
    function = function_of(target)
    own = function.__code__
    space: dict[str, Any] = {}
    exec(f"def fail(*args, **kwargs):\n    raise RuntimeError({target!r} + ' is broken')\n", space)
    function.__code__ = space["fail"].__code__.replace(co_freevars=own.co_freevars)
    return own


def break_here() -> None:
    """The app's own setup hook: in a worker that is told so, one function of ours is broken."""
    if target := os.environ.get("BROKEN"):
        broken(target)


# ---- the app -----------------------------------------------------------------------------------------------------------


class Plain:
    def __init__(self, start: int) -> None:
        self.value = start

    def add(self, n: int) -> int:
        self.value += n
        return self.value

    def ask(self, other: Any) -> Any:
        return ray.get(other.double.remote(self.value))

    def count(self, n: int) -> Any:
        for item in range(n):  # noqa: UP028 - Ray sends something in, which a range does not take
            yield item

    def fail(self) -> None:
        raise ValueError("as the app means it")

    def pass_on(self, boxed: list[Any]) -> Any:
        return ray.get(boxed[0]), ray.get(ray.put(3))


class Loop:
    async def double(self, n: int) -> int:
        return 2 * n

    async def ask(self, other: Any) -> Any:
        return await other.add.remote(1)

    async def count(self, n: int) -> Any:
        for item in range(n):
            yield item


def seven() -> int:
    return 7


def app(options: dict[str, Any]) -> list[Any]:
    """What a program sees."""
    plain, loop = ray.remote(Plain).options(**options).remote(5), ray.remote(Loop).options(**options).remote()
    first = plain.add.remote(1)
    found = [ray.get(first), ray.get(plain.ask.remote(loop)), ray.get(loop.ask.remote(plain))]
    found.append([ray.get(item) for item in plain.count.options(num_returns="streaming").remote(2)])
    found.append([ray.get(item) for item in loop.count.options(num_returns="streaming").remote(2)])
    ready, rest = ray.wait([plain.add.remote(1), loop.double.remote(3)], num_returns=2)
    found += [sorted(ray.get(ready)), rest, ray.get(plain.pass_on.remote([first])), ray.get(ray.remote(seven).remote())]
    try:
        ray.get(plain.fail.remote())
    except ValueError as error:
        found.append(str(error).splitlines()[-1])
    return found


def main(side: str, names: list[str]) -> None:
    """Break one after the other."""
    if side == "plain":
        ray.init()
        print(json.dumps(app({})))
        return
    if side == "targets":
        print(json.dumps(targets()))
        return
    import ray_snapshot as rs
    from ray_snapshot.instrument import attaching, here

    watches: list[Any] = []
    rs.install(f"broken-{os.getpid()}", on_watch=watches.append, every=0.2)
    ray.init(runtime_env={"worker_process_setup_hook": break_here})
    watch = watches[0]
    for name in names:
        faulthandler.dump_traceback_later(LONGEST_S, exit=True)
        own = broken(name) if side == "driver" else None
        try:
            found: Any = app({"runtime_env": {"env_vars": {"BROKEN": name}}} if side == "worker" else {})
        except BaseException as error:
            found = f"{type(error).__name__}: {error}"
        finally:
            if own is not None:
                function_of(name).__code__ = own
        print(json.dumps([name, found]), flush=True)
        if here.here() is None:
            attaching.attach_driver(f"{watch.name}:{watch.run_id}", watch._service)
    faulthandler.cancel_dump_traceback_later()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
