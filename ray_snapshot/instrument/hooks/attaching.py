"""How a process comes to be watched: its functions of Ray replaced, its ledger made, its name told to the watcher.

In the driver `install` does it before the program runs; in workers Ray's setup hook (`arriving`) does it before any
module of the app is imported, and the first constructor (or the first call with a header) makes the machine.
"""

from __future__ import annotations

import itertools
import math
import os
import threading
import time
from contextlib import suppress
from typing import Any

import ray
from ray.exceptions import ActorUnavailableError, RayActorError

from ray_snapshot import redaction
from ray_snapshot.errors import RolledBackError, SystemNotRunningError
from ray_snapshot.instrument import capacity, shape, task_shape
from ray_snapshot.instrument.connection import CONNECTION
from ray_snapshot.instrument.here import (
    forget_early_handles,
    heard_early,
    is_settled,
    name_here,
    process_here,
    settle_in,
    take_early_refs,
)
from ray_snapshot.instrument.hooks import calls, ends, headers, hiding, tasks, tracking
from ray_snapshot.instrument.process import callbacks, ended_threads, failures, unfollowed, worker_tasks
from ray_snapshot.instrument.process.process import ON_HOSTS_LEFT, Process
from ray_snapshot.instrument.process.reloading import Terms, Welcome, system_of
from ray_snapshot.instrument.process.until_heard import until_heard
from ray_snapshot.limits import LIMITS
from ray_snapshot.names import DRIVER, NAMESPACE, PREFIX, run_of_watch
from ray_snapshot.protocol.calls import CallLedger, MachineReport
from ray_snapshot.protocol.tasks import worker_name
from ray_snapshot.runtime.faults import named
from ray_snapshot.runtime.handles import ENTRANCES, forget_all_handles
from ray_snapshot.stderr import say


def replace_ray() -> None:
    """Replace Ray's functions in this process; once. Raises `UnsupportedRayError`."""
    shape.check()
    shape.replace(arrive=calls.arrive, task=tasks.start, state=tasks.state, create=calls.create, modify=calls.modify)
    shape.replace_made(call=calls.calling, flatten_args=headers.flattening, validate_args=headers.validating)
    calls.take_headers()
    shape.replace(get=tracking.get, wait=tracking.wait, get_actor=tracking.get_actor, put=unfollowed.put)
    shape.replace(kill=tracking.kill, unhandled=tracking.unhandled, thread_caller=ended_threads.caller_made)
    shape.replace_errors(failures.read)
    shape.replace_loop_errors(ended_threads.handled)
    shape.replace(actor_ends=ends.actor_ends, worker_exits=ends.exits, program_exits=ends.exits)
    shape.replace(pickled_handle=unfollowed.pickled_handle, pickled_ref=unfollowed.pickled_ref)
    shape.replace(named_actors=hiding.named_actors, group_made=capacity.made, group_ready=tasks.ready)
    shape.replace(arrived=tracking.arrived)
    shape.replace_wrapping(tracking.future_of)
    shape.replace_futures(callbacks.future_made)


class _Entrance:
    """How this actor comes to send to machines, if a system of them has joined the watch."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.run_id = process.system.rpartition(":")[2]

    def open(self, run_id: str) -> Any:
        """This process's part in the run of its watch."""
        if run_of_watch(run_id) != self.run_id or self.process.is_closed:
            return None
        from ray_snapshot.instrument.crossing.sending import open_post

        return open_post(self.process, run_id)

    def heard(self, run_id: str, colour: Any) -> None:
        """A reply of a machine is being read here."""
        if run_of_watch(run_id) == self.run_id and not self.process.is_closed:
            self.process.heard(colour)


def watcher_of(system: str) -> Any:
    """The watcher of a system (`name:run_id`, and what headers have behind it); None if there is none."""
    try:
        return ray.get_actor(PREFIX + system.partition(":")[0], namespace=NAMESPACE)
    except ValueError:
        return None


def driver_facts() -> dict[str, Any]:
    """What the watcher knows of this program's driver."""
    return {"class": DRIVER, "key": None, "pid": os.getpid()}


def attach_driver(system: str, watcher: Any, terms: Terms | None = None) -> Process:
    """Make this program's driver take part from now on. `terms`: those of a watcher that was made with its facts, and is
    not asked."""
    CONNECTION.begin()
    if terms is not None:
        welcome: Welcome | None = Welcome(0, 0, [], 0, terms)
    else:
        welcome = register(watcher, system, DRIVER, driver_facts(), 0)
    if welcome is None:
        raise SystemNotRunningError(f"{system} is not the system that runs here", system=system)
    ledger = CallLedger(DRIVER, incarnation=welcome.incarnation, colour=welcome.colour, acts_unasked=True)
    ledger.welcome(welcome.pending, welcome.last, welcome.settled)
    process = Process(system, watcher, ledger, {}, welcome.terms)
    settle_in(process)
    return process


def attach_actor(stamp: str, key: str, *, colour: int, about: dict[str, Any], body: Any) -> Process | None:
    """Make this process's actor take part from now on; None if its system is watched no more, or did not answer once.

    Raises `RolledBackError` if it was made in a past that was given up.
    """
    with _attaching:  # two first calls at once
        if (worker := process_here()) is not None and worker.is_worker:  # Ray makes an actor of a worker
            worker.worker_tasks.retire()
        if process_here() is None and system_of(stamp) not in _given_up:
            joining = None
            try:
                replace_ray()
                if (watcher := watcher_of(stamp)) is not None:
                    joining = _asked(watcher, stamp, name_here(), _facts(key, about, body), max(colour, heard_early()))
                    if (welcome := _answered(stamp, joining)) is not None:
                        settle_in(_attached(stamp, watcher, welcome, about=about, body=body))
            except RolledBackError:
                raise
            except Exception as error:  # the app's actor must not fail for it
                _given_up.add(system_of(stamp))
                who = f"an actor of {type(body).__name__}"
                _say_unwatched(who, error)
                with suppress(Exception):  # there may be no thread left
                    _own_up(stamp, joining, then=who if isinstance(error, ActorUnavailableError) else "")
        return process_here()


def _own_up(stamp: str, joining: Any, *, then: str) -> None:
    """The watcher hears that this actor is not watched, also where it takes it in later; `then` is named as cut off."""
    name, said = name_here(), f"{then} is not watched: its watcher could not be reached" if then else ""
    until_heard(lambda: watcher_of(stamp), lambda watcher: watcher.unwatched.remote(name), behind=joining, then=said)


def _facts(key: str, about: dict[str, Any], body: Any) -> dict[str, Any]:
    """What the watcher knows of this actor."""
    return {"class": type(body).__name__, "key": key, "pid": os.getpid(), "name": shape.own_name(), **about}


def attach_worker(stamp: str, colour: int) -> Process | None:
    """Make this worker take part, until it idles; None if its system is watched no more, or does not answer."""
    with _attaching:
        if process_here() is None and time.monotonic() >= _refused.get(stamp, 0.0):
            found = _attached_worker(stamp, colour)
            settle_in(found)
            if found is not None:
                forget_early_handles()
        return process_here()


def _attached_worker(stamp: str, colour: int) -> Process | None:
    replace_ray()
    try:
        watcher = _watchers.get(stamp) or watcher_of(stamp)
    except Exception as error:  # the app's task must not fail for it
        _go_unwatched(stamp, error)
        return None
    if watcher is None:
        _refused[stamp] = math.inf
        return None
    _watchers[stamp] = watcher
    name = worker_name(task_shape.worker_key(), next(_sessions))
    pid, key = os.getpid(), task_shape.worker_key()
    facts = {"class": "ray-worker", "ordinal": pid, "key": None, "pid": pid, "worker": key}
    try:
        welcome = register(watcher, stamp, name, facts, max(colour, heard_early()))
    except Exception as error:  # what it may still hear of us, it is to forget
        gone = MachineReport(name, 0, 0, 0, has_left=True, status="stopped")
        until_heard(lambda: watcher, lambda found: found.left.remote(gone))
        _go_unwatched(stamp, error)
        return None
    if welcome is None:
        _refused[stamp] = math.inf
        return None
    ledger = CallLedger(name, colour=welcome.colour, others=welcome.terms.incarnations)
    ledger.welcome(welcome.pending, welcome.last, welcome.settled)
    for machine in take_early_refs():
        ledger.may_read(machine)
    worker_tasks.ON_RETIRED[:] = [_retired]
    return Process(system_of(stamp), watcher, ledger, {}, welcome.terms)


def _go_unwatched(stamp: str, error: Exception) -> None:
    _say_unwatched("a worker", error)
    _refused[stamp] = time.monotonic() + LIMITS.unwatched_s


def _say_unwatched(who: str, error: Exception) -> None:
    """Not where the watcher has ended, as at the end of every program that has begun more than it waits for."""
    if not isinstance(error, RayActorError):
        say(f"ray-snapshot: {who} is not watched: {named(error)}")


def _retired(process: Process) -> None:
    """This worker takes part no more; what it has handles of, the watcher knows that any task may use."""
    with _attaching:
        if is_settled(process):
            settle_in(None)


_refused: dict[str, float] = {}
"""By watch that this worker is no part of: until when."""

_given_up: set[str] = set()
"""Watches that this actor is no part of. For good: what it began unseen may still go on when it would be taken in, and then
nobody could say that all is done."""

_mute: set[str] = set()
"""Watches whose watchers did not answer when they were asked last."""

_watchers: dict[str, Any] = {}
"""The watcher of each watch that this worker was a part of."""

_sessions = itertools.count(1)
"""How often this worker has begun to take part."""

_attaching = threading.RLock()


def _attached(stamp: str, watcher: Any, welcome: Welcome, *, about: dict[str, Any], body: Any) -> Process:
    """An actor that the watcher has taken in."""
    name = name_here()
    ledger = CallLedger(
        name,
        incarnation=welcome.incarnation,
        colour=welcome.colour,
        is_starting=bool(about),
        others=welcome.terms.incarnations,
    )
    ledger.welcome(welcome.pending, welcome.last, welcome.settled)
    process = Process(system_of(stamp), watcher, ledger, about, welcome.terms)
    ENTRANCES[:] = [_Entrance(process)]
    ON_HOSTS_LEFT[:] = [forget_all_handles]
    process.body = body
    if welcome.incarnation:
        process.tell_where(LIMITS.restarted_look_s)
    for machine in take_early_refs():
        ledger.may_read(machine)
    if welcome.terms.keeps:
        process.control.tell("handle_of", name, [shape.own_handle()])
    redaction.redact(*about.get("redacted", ()))
    redaction.know(type(body))
    process.actor_loop.is_async = shape.is_async(type(body))
    if welcome.terms.recovers and not about:
        process.reloading.built("its constructor ran before it was watched")
    return process


def register(watcher: Any, stamp: str, name: str, facts: dict[str, Any], colour: int) -> Welcome | None:
    """Tell the watcher of this machine; None if another app is watched under that name now. Raises `TimeoutError`."""
    return _answered(stamp, _asked(watcher, stamp, name, facts, colour))


def _asked(watcher: Any, stamp: str, name: str, facts: dict[str, Any], colour: int) -> Any:
    """The future of the answer; None where Ray ends this process."""
    return CONNECTION.use(lambda: watcher.join.remote(stamp, name, facts, colour).future())


def _answered(stamp: str, joining: Any) -> Welcome | None:
    if joining is None:
        return None
    seconds = LIMITS.register_again_s if system_of(stamp) in _mute else LIMITS.register_s
    try:
        found: Welcome | None = joining.result(seconds)
    except TimeoutError:
        _mute.add(system_of(stamp))
        raise TimeoutError(f"its watcher has not answered for {seconds:g} s") from None
    _mute.discard(system_of(stamp))
    return found


def detach() -> None:
    """Make this process take part no more, and put Ray's own functions back, but for the one that takes headers off: calls
    may be on their way to here."""
    process = process_here()
    if process is not None:
        process.leave_system()
        CONNECTION.end()
    settle_in(None)
    shape.restore(keep=("init", "shutdown", shape.RECOVERY))
