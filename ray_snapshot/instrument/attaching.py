"""How a process comes to be watched: its functions of Ray replaced, its ledger made, its name told to the watcher.

In the driver `install` does it before the program runs; in workers Ray's setup hook (`arriving`) does it before any
module of the app is imported, and the first constructor (or the first call with a header) makes the machine.
"""

from __future__ import annotations

import os
import sys
import threading
from typing import Any

import ray

from ray_snapshot import redaction
from ray_snapshot.errors import SystemNotRunningError
from ray_snapshot.instrument import calls, shape, tracking
from ray_snapshot.instrument.process import DRIVER, Process, here, settle_in
from ray_snapshot.names import NAMESPACE, PREFIX
from ray_snapshot.protocol.calls import CallLedger

REGISTER_S = 10.0


def replace_ray() -> None:
    """Replace Ray's functions in this process; once. Raises `UnsupportedRayError`."""
    shape.check()
    shape.replace_calls(calls.calling, calls.create, calls.make, calls.arrive, calls.task)
    shape.replace_waits(tracking.get, tracking.wait, tracking.put)


def watcher_of(system: str) -> Any:
    """The watcher of a system (`name:run_id`, as headers have it); None if there is none."""
    try:
        return ray.get_actor(PREFIX + system.partition(":")[0], namespace=NAMESPACE)
    except ValueError:
        return None


def attach_driver(system: str, watcher: Any) -> Process:
    """This program's driver takes part from now on."""
    welcome = register(watcher, system, DRIVER, {"class": DRIVER, "key": None, "pid": os.getpid()}, 0)
    if welcome is None:
        raise SystemNotRunningError(f"{system} is not the system that runs here", system=system)
    ledger = CallLedger(DRIVER, incarnation=welcome[0], colour=welcome[1], acts_unasked=True)
    ledger.welcome(*welcome[2:])
    process = Process(system, watcher, ledger, {})
    settle_in(process)
    return process


def attach_actor(system: str, name: str, key: str, *, colour: int, about: dict[str, Any], body: Any) -> Process | None:
    """This process's actor takes part from now on; None if its system is watched no more, or does not answer."""
    with _attaching:  # two first calls at once
        if here() is None:
            try:
                settle_in(_attached(system, name, key, colour=colour, about=about, body=body))
            except Exception as error:  # the app's actor must not fail for it
                print(f"ray-snapshot: {name} is not watched: {type(error).__name__}: {error}", file=sys.stderr)
        return here()


_attaching = threading.Lock()


def _attached(system: str, name: str, key: str, *, colour: int, about: dict[str, Any], body: Any) -> Process | None:
    replace_ray()
    watcher = watcher_of(system)
    if watcher is None:
        return None
    facts = {"class": type(body).__name__, "key": key, "pid": os.getpid(), **about}
    welcome = register(watcher, system, name, facts, colour)
    if welcome is None:
        return None
    incarnation, born, pending, last = welcome
    ledger = CallLedger(name, incarnation=incarnation, colour=born, is_starting=bool(about))
    ledger.welcome(pending, last)
    process = Process(system, watcher, ledger, about)
    process.body = body
    redaction.redact(*about.get("redacted", ()))
    redaction.know(type(body))
    process.is_async = shape.is_async(type(body))
    return process


def register(
    watcher: Any, system: str, name: str, facts: dict[str, Any], colour: int
) -> tuple[int, int, list[int], int] | None:
    """Tell the watcher of this machine; returns (incarnation, the colour to be born with, what is pending, the last number)."""
    found: tuple[int, int, list[int], int] | None = (
        watcher.register.remote(system, name, facts, colour).future().result(REGISTER_S)
    )
    return found


def detach() -> None:
    """This process takes part no more; Ray's own functions are put back."""
    process = here()
    if process is not None:
        process.leave_system()
    settle_in(None)
    shape.restore(keep=("init", "shutdown"))
