"""A small app of which one function of ours is broken at a time: `python breaking_driver.py plain`, `... SIDE WHEN TARGET ...`.

Prints what the app returns, as a line of JSON for each target: on the side `driver` a function is broken in the program, on the
side `worker` in the processes of its actors; `born`: before the actors are made, `later`: when they are there. `A+B` breaks
both. `targets` prints all there are, by side and by when they run.
"""

import faulthandler
import importlib
import inspect
import json
import os
import sys
import threading
from pathlib import Path
from types import FunctionType
from typing import Any

import ray

import ray_snapshot as rs
from ray_snapshot.instrument import here
from ray_snapshot.instrument.hooks import attaching
from ray_snapshot.instrument.process import process

LONGEST_S = 90.0

MODULES = (
    *("instrument." + name for name in ("capacity", "frames", "here", "shape")),
    *("instrument.hooks." + name for name in ("attaching", "calls", "envelopes", "headers", "tracking")),
    *(f"instrument.process.{path.stem}" for path in sorted(Path(process.__file__).parent.glob("[a-z]*.py"))),
    *("protocol.calls", "protocol.acceptance", "runtime.here", "runtime.refs", "redaction", "encoding"),
)  # fmt: skip
"""What runs in an app's processes."""

EDGES = {
    # each gives the replacement, which is guarded; broken, nothing could be installed
    *("instrument.hooks.calls:" + name for name in ("calling", "executing", "take_headers", "_TakesHeaders.__reduce__")),
    *("instrument.hooks.headers:" + name for name in ("flattening", "recovering", "validating")),
    "instrument.hooks.calls:delegated",  # the generator that Ray runs in place of the app's
    *(f"instrument.hooks.calls:{kind}.{name}" for kind in ("Run", "_Call", "Unwatched") for name in (
        "__enter__", "__exit__", "followed", "generates", "item", "refuse_if_held", "resumed",
    )),
    *("instrument.hooks.envelopes:" + name for name in ("Enveloped.__reduce__", "Enveloped.__init__", "opened")),
    "instrument.process.control:Control._guarded_run",
}  # fmt: skip
"""The guarded edge itself: a line or two around `ours`, which the app calls directly."""


BY_RAYS_THREADS = {"instrument.process.control:Control._answered", "instrument.process.process:Process.heard"}
"""These run in threads that cannot be looked into."""

ALONE = {"instrument.process.process:Process.give_up"}
"""What ends the watching where something else is broken: not broken together with that."""


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
    name, _, path = target.partition(":")
    item: Any = importlib.import_module(f"ray_snapshot.{name}")
    for part in path.split("."):
        item = inspect.getattr_static(item, part)
    item = item.fget if isinstance(item, property) else getattr(item, "__func__", item)
    return inspect.unwrap(item)  # type: ignore[no-any-return]


def broken(target: str) -> dict[str, Any]:
    """Break it, for all who know it already; returns what it was."""
    found = {}
    for name in target.split("+"):
        function = function_of(name)
        found[name] = function.__code__
        space: dict[str, Any] = {}
        exec(f"def fail(*args, **kwargs):\n    raise RuntimeError({name!r} + ' is broken')\n", space)
        function.__code__ = space["fail"].__code__.replace(co_freevars=function.__code__.co_freevars)
    return found


def mended(codes: dict[str, Any]) -> None:
    for name, code in codes.items():
        function_of(name).__code__ = code


def begin_here() -> None:
    """The app's own setup hook: a worker that is told so breaks functions of ours, or notes which ones run."""
    if target := os.environ.get("BROKEN"):
        broken(target)
    if os.environ.get("NOTING"):
        note_here()


def note_here() -> None:
    """Note in `sys` which functions of ours run in this process."""
    names = {function_of(name).__code__: name for name in targets()}
    sys.ran = set()  # type: ignore[attr-defined]

    def note(frame: Any, event: str, _: Any) -> None:
        if event == "call" and frame.f_code in names:
            sys.ran.add(names[frame.f_code])  # type: ignore[attr-defined]

    threading.setprofile(note)
    sys.setprofile(note)


def ran() -> list[str]:
    found, sys.ran = sys.ran, set()  # type: ignore[attr-defined]
    return sorted(found)


# ---- the app -----------------------------------------------------------------------------------------------------------


class Base:
    def ran(self) -> list[str]:
        return ran()

    def break_(self, target: str) -> None:
        self.codes = broken(target)

    def mend(self) -> None:
        mended(self.codes)

    def is_watched(self) -> bool:
        return here.here() is not None


class Plain(Base):
    def start(self, value: int) -> None:
        self.value = value

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


class Loop(Base):
    async def double(self, n: int) -> int:
        return 2 * n

    async def ask(self, other: Any) -> Any:
        return await other.add.remote(1)

    async def count(self, n: int) -> Any:
        for item in range(n):
            yield item


def seven() -> int:
    return 7


Actors = tuple[Any, Any]


def made(environment: dict[str, str]) -> Actors:
    """The app's two actors, in processes of their own with these variables."""
    options: Any = {"runtime_env": {"env_vars": environment}} if environment else {}
    return ray.remote(Plain).options(**options).remote(), ray.remote(Loop).options(**options).remote()


def app(actors: Actors) -> list[Any]:
    plain, loop = actors
    plain.start.remote(5)
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


def main(side: str, when: str = "", *names: str) -> None:
    if side == "plain":
        ray.init()
        print(json.dumps(app(made({}))))
        return
    watches: list[Any] = []
    if side == "targets":
        note_here()  # before our own thread begins
    rs.install(f"broken-{os.getpid()}", on_watch=watches.append, every=0.2)
    ray.init(runtime_env={"worker_process_setup_hook": begin_here})
    if side == "targets":
        print(json.dumps(sorted_targets()))
        return
    actors = made({}) if when == "later" else None
    for name in names:
        faulthandler.dump_traceback_later(LONGEST_S, exit=True)
        try:
            found: Any = in_driver(name, actors) if side == "driver" else in_workers(name, actors)
        except BaseException as error:
            found = f"{type(error).__name__}: {error}"
        print(json.dumps([name, found]), flush=True)
        if here.here() is None:
            attaching.attach_driver(f"{watches[0].name}:{watches[0].run_id}", watches[0]._service)
        if actors is not None and not all(ray.get([actor.is_watched.remote() for actor in actors])):
            actors = made({})
    faulthandler.cancel_dump_traceback_later()


def in_driver(name: str, actors: Actors | None) -> list[Any]:
    """What the app returns while this is broken in the program."""
    codes = broken(name)
    try:
        return app(actors or made({}))
    finally:
        mended(codes)


def in_workers(name: str, actors: Actors | None) -> list[Any]:
    """What the app returns while this is broken in its actors."""
    if actors is None:
        return app(made({"BROKEN": name}))
    ray.get([actor.break_.remote(name) for actor in actors])
    try:
        return app(actors)
    finally:
        ray.get([actor.mend.remote() for actor in actors])


def sorted_targets() -> dict[str, dict[str, list[str]]]:
    """By side: what runs when actors are made and not in their calls, what runs in these, and the rest."""
    app(made({}))
    ran()
    actors = made({"NOTING": "1"})
    begun = ran_in(actors)
    app(actors)
    called = ran_in(actors)
    sys.setprofile(None)
    threading.setprofile(None)
    everything = set(targets())
    found = {}
    for side in ("driver", "worker"):
        born, later = begun[side] - called[side], called[side] | BY_RAYS_THREADS
        rest = sorted(everything - born - later)
        found[side] = {
            "born": [*sorted(born), "+".join(one for one in rest if one not in ALONE)],
            "later": sorted(later | ALONE),
        }
    return found


def ran_in(actors: Actors) -> dict[str, set[str]]:
    workers = ray.get([actor.ran.remote() for actor in actors])
    return {"driver": set(ran()), "worker": set().union(*workers)}


if __name__ == "__main__":
    main(*sys.argv[1:])
