"""What the calls of an async actor await, told from their suspended coroutines.

A coroutine that awaits a lock, a queue, an event or a condition of its own loop waits for a later call to the same actor.
One that sleeps, or waits for a thread or for anything that we do not know, may go on by itself. Reads coroutines between
two steps of their loop (`loops`: what else the loop has to run; `reach`: which tasks that may wake); changes nothing.
Imports the protocol's plain data only.
"""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from pathlib import PurePath
from types import FunctionType, MethodType
from typing import Any
from weakref import WeakKeyDictionary

from ray_snapshot.instrument.here import own_threads
from ray_snapshot.instrument.process import loops
from ray_snapshot.instrument.process.reach import Reach
from ray_snapshot.protocol.calls import Awaited, CallWait, MachineReport
from ray_snapshot.runtime.here import PACKAGES, USERS, frames_of_threads, outward, place_in, rank_of

_WAITS: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
"""By the future that an `await` of a ref waits for: the tracked wait."""

REPLIES: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
"""By the future that an `await` of a ref waits for, on a loop that a thread of the app's own runs: what that waits for."""

_FIRST_SEEN: WeakKeyDictionary[Any, float] = WeakKeyDictionary()
"""By the future that a task awaits: when that was first seen. Each `await` of a lock, a queue or an event makes one."""

_LOCAL = {"queues.py": {"get", "put", "join"}, "locks.py": {"acquire", "wait"}}
"""Functions of asyncio that wait for another task of the same loop."""


def parked_at(task: Any, coroutine: Any) -> str | None:
    """Where ("file:line") a call's coroutine, run by `task`, awaits something of its own loop.

    None if it may go on by itself, as far as can be told.
    """
    frames = frames_of(coroutine)
    if not frames or not _is_local(frames[-1]) or _goes_on(task):
        return None
    return site_of(coroutine)


def first_seen(task: Any, now: float) -> float:
    """Since when a task that does not go on has been known to await what it awaits now."""
    waiter = task._fut_waiter  # on the loop of another thread it may have come meanwhile
    return now if waiter is None else _FIRST_SEEN.setdefault(waiter, now)


def site_of(coroutine: Any) -> str | None:
    """Where a suspended coroutine is: "file:line, in function", as `here.Place` has it."""
    found = place_in(reversed(frames_of(coroutine)))
    return None if found is None else str(found)


def background(loop: asyncio.AbstractEventLoop, calls: Iterable[Any], asking: Iterable[Any] = ()) -> str:
    """What may act on the loop besides new calls and the tasks of `calls`, for the coverage; "" if nothing can.

    `asking`: tasks that do nothing but ask, or wait with a timeout, whose own sleep is no timer.
    """
    found = loops.pending(loop)
    if found is None:
        kind = type(loop)
        return f"the event loop ({kind.__module__}.{kind.__qualname__}, whose timers cannot be seen)"
    known = {*calls, *(asking := [*asking]), asyncio.current_task(loop)}
    has_tasks = not all(_is_waiting(task) for task in asyncio.all_tasks(loop) if task not in known)
    acting = {
        "tasks": has_tasks,
        "timers": has_timers(found, asking),
        "callbacks": found.has_callbacks,
        "sockets": found.has_sockets,
    }
    names = [name for name, acts in acting.items() if acts]
    return f"{' and '.join(names)} on the loop" if names else ""


def has_timers(found: loops.Pending, asking: Iterable[Any]) -> bool:
    """Whether a loop has timers, but for the sleep and the timeouts of these tasks."""
    own = {id(one) for task in asking for one in (task, getattr(task, "_fut_waiter", None) or task)}
    parts = (_parts(gc.get_referents(timer)) for timer in found.timers)
    return any(own.isdisjoint(id(_under_timeout(part)) for part in each) for each in parts)


def _under_timeout(callback: Any) -> Any:
    """The task that a callback of `asyncio.timeout` cancels; any other callback itself."""
    timeout = callback.__self__ if type(callback) is MethodType else None
    return timeout._task if type(timeout) is asyncio.Timeout else callback  # type: ignore[attr-defined]


def timers_of(loop: Any) -> Counter[int]:
    """How many timers of a loop wake or cancel each future or task, by its id; nothing of a loop that is not known."""
    found = loops.pending(loop)
    if found is None:
        return Counter()
    return Counter(id(_under_timeout(part)) for timer in found.timers for part in _parts(gc.get_referents(timer)))


def _is_waiting(task: Any) -> bool:
    """Whether a task that runs no call waits for a tracked reply, or for something of its own loop."""
    if wait_of(task) is not None or (reply_of(getattr(task, "_fut_waiter", None)) is not None and not _goes_on(task)):
        return True
    frames = frames_of(task.get_coro()) if isinstance(task, asyncio.Task) else []
    return bool(frames) and _is_local(frames[-1]) and not _goes_on(task)


def current_task() -> Any:
    """The asyncio task of this thread, if one runs."""
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None


def running_loop() -> asyncio.AbstractEventLoop | None:
    """The loop that this thread is running, if any."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def resolved(
    report: MachineReport, coroutines: Mapping[str, tuple[Any, Any]], tasks: Mapping[int, Any], loop: Any
) -> MachineReport:
    """The report with each call's waits as its own coroutine has them.

    Waits that a call has begun side by side are all needed in a `gather`, and each alone may end it, for what goes on may
    raise; in `asyncio.wait` it is any of them, or all. Those of tasks that the call does not wait for are no waits of it. A
    call that may go on by itself, or is under a timeout, may act.
    """
    waits: list[CallWait] = [wait for wait in report.waits if wait.call_id not in coroutines]
    found = {
        call_id: _own_waits(own, task, coroutine, tasks)
        for call_id, (task, coroutine) in coroutines.items()
        if (own := [wait for wait in report.waits if wait.call_id == call_id])
    }
    inside = {wait.wait_id for _, waits_inside in found.values() for wait in waits_inside}
    beside = [task for wait_id, task in tasks.items() if wait_id not in inside]
    """Tasks that await a reply and that no call waits for: what they do when the reply is there is not known."""
    free = [coroutines[call_id][1] for call_id, (own, _) in found.items() if any(wait.may_act for wait in own)]
    bound = {call_id: coroutines[call_id][0] for call_id, (own, _) in found.items() if _may_be_cancelled(own, tasks)}
    judged = {coroutines[call_id][0] for call_id in found}
    reach, named = _reach(loop, coroutines.values(), bound.values(), [*beside, *free], judged)
    for call_id, (own, _) in found.items():
        waits += _unless_cancelled(own, bound[call_id], reach, named) if call_id in bound else own
    waiting = {wait.call_id for wait in waits}
    is_active = any(call.call_id not in waiting for call in report.calls) or any(
        wait.may_act or wait.is_ready for wait in waits
    )
    status = "active" if beside or (report.calls and is_active) else report.status
    return replace(report, waits=tuple(waits), status=status)


def _may_be_cancelled(own: list[CallWait], tasks: Mapping[int, Any]) -> bool:
    """Whether being cancelled would make a difference to a call: it awaits replies, and does not block its loop."""
    return not any(wait.may_act for wait in own) and any(wait.on and wait.wait_id in tasks for wait in own)


def _unless_cancelled(own: list[CallWait], task: Any, reach: Reach, named: Iterable[Reach]) -> list[CallWait]:
    """A call whose task is within reach may go on; where it may be by names, or the search found no end, it cannot be told."""
    if task in reach:
        return _free(own)[0]
    is_known = reach.is_all and not any(task in one for one in named)
    return own if is_known else [*own, replace(own[0], on=(Awaited(None),), k=1, raises=False)]


def _own_waits(
    own: list[CallWait], task: Any, coroutine: Any, tasks: Mapping[int, Any]
) -> tuple[list[CallWait], list[CallWait]]:
    """(what a call waits for, which of its tasks' waits are in that)."""
    if any(wait.is_local or wait.wait_id not in tasks for wait in own):  # parked, or in a blocking `ray.get`
        return own, own
    frames = frames_of(coroutine)
    if not frames or _goes_on(task):
        return _free(own)
    if (wait_id := wait_of(task)) is not None:
        alone = [wait for wait in own if wait.wait_id == wait_id]
        return (alone, alone) if alone else _free(own)
    children, needs_all, raises = _children(task, frames)
    pending = [child for child in children if not child.done()]
    awaited = {wait_of(child) for child in pending}
    found = [wait for wait in own if wait.wait_id in awaited]
    is_stuck = all(_is_waiting(child) for child in pending)
    if not (found and is_stuck) or len(awaited - {None}) > len(found) or (not needs_all and len(found) < len(children)):
        return _free(own)
    if not raises:
        return [_joined(found)] if needs_all else found, found
    if any(child.done() and (child.cancelled() or child._exception is not None) for child in children):
        return _free(own)  # the wait ends with the loop's next step
    parked = [replace(own[0], on=(), k=1, is_local=True)] if None in awaited else []
    return [_joined(found), *found, *parked] if len(pending) > 1 else found, found


def _free(own: list[CallWait]) -> tuple[list[CallWait], list[CallWait]]:
    """The waits of a call that may act, whatever its tasks wait for: so its machine is active."""
    return [replace(own[0], may_act=True)], own


def _children(task: Any, frames: list[Any]) -> tuple[list[Any], bool, bool]:
    """(what a coroutine waits for side by side, whether it needs all of that, whether the first error ends the wait).

    `frames`: of the coroutine, none where it is compiled.
    """
    if (gathered := _gathered(task)) is not None or not frames:
        return gathered or ([], False, False)
    inner = frames[-1]
    if _is_asyncio(inner) and inner.f_code.co_name in ("__aexit__", "_aexit"):
        group = inner.f_locals.get("self")  # a TaskGroup: the first error ends it, and the others with it
        return ([], False, False) if group is None or group._aborting else (list(group._tasks), True, True)
    if _is_asyncio(inner) and inner.f_code.co_name == "_wait" and inner.f_locals.get("timeout") is None:
        return list(inner.f_locals.get("fs", ())), inner.f_locals.get("return_when") == asyncio.ALL_COMPLETED, False
    return [], False, False


def _gathered(task: Any, within: tuple[Any, ...] = ()) -> tuple[list[Any], bool, bool] | None:
    """What `_children` says of a task in a `gather`, or that awaits another task, with what these await; None of any other.

    `within`: tasks that await this one.
    """
    waiter = getattr(task, "_fut_waiter", task)
    if isinstance(waiter, asyncio.Task) and waiter is not task and waiter not in within:
        return _gathered(waiter, (*within, task)) or ([waiter], True, True)
    if type(waiter).__name__ != "_GatheringFuture":
        return None
    found: list[Any] = []
    raises = not _returns_exceptions(waiter)
    for child in waiter._children:
        inside = _gathered(child, within)
        found += [child] if inside is None else inside[0]
        raises |= inside is not None and inside[2]
    return found, True, raises


def _returns_exceptions(gathering: Any) -> bool:
    """Whether a `gather` was told `return_exceptions`: its own callback on what it waits for knows."""
    for child in gathering._children:
        for callback, _ in getattr(child, "_callbacks", None) or ():
            names = getattr(getattr(callback, "__code__", None), "co_freevars", ())
            if "outer" in names and "return_exceptions" in names:
                return bool(callback.__closure__[names.index("return_exceptions")].cell_contents)
    return False


def _reach(
    loop: Any, calls: Iterable[tuple[Any, Any]], wanted: Collection[Any], others: Iterable[Any], judged: Set[Any]
) -> tuple[Reach, list[Reach]]:
    """What the loop's timers, the tasks that go on by themselves, and these others may cancel or wake; and what they, and the
    app's threads, may have hold of by names. `judged`: tasks of calls of which those that go on are among the others."""
    calls, reach, found = [*calls], Reach(calls, wanted), loops.pending(loop) if wanted else None
    if found is None:
        reach.is_all = not wanted
        return reach, []
    running = asyncio.current_task(loop)
    acting = (one for one in asyncio.all_tasks(loop) - judged if one is not running and _may_go_on(one, set()))
    roots = [*found.timers, *others, *acting]
    reach.add(roots)
    left = [one for one in wanted if one not in reach] if reach.is_all else []
    named, of_threads = Reach(calls, left, by_names=True), Reach(calls, left, by_names=True, needs=_ON_THE_LOOP)
    named.add(roots)
    frames = frames_of_threads() if left else {}
    for thread in own_threads() if left else ():
        of_threads.add_thread(thread, outward(frames.get(thread.ident or 0)))
    return reach, [named, of_threads]


_ON_THE_LOOP = ("call_soon_threadsafe", "run_coroutine_threadsafe")
"""By one of these a thread has code run on a loop, for a task is no thread's to touch."""


def may_go_on(task: Any) -> bool:
    """Whether a task may go on by itself, whatever replies and other tasks do."""
    return _may_go_on(task, set())


def awaiting(loop: Any) -> dict[int, str]:
    """By tracked wait of a task that the app has not written (of a ref in a `gather`): where ("file:line") that is awaited."""
    found = {}
    for task in asyncio.all_tasks(loop):
        frames = frames_of(task.get_coro())
        for child in _children(task, frames)[0]:
            if (wait_id := wait_of(child)) is not None:
                found[wait_id] = site_of(task.get_coro()) or ""
    return found


def held_up_by(task: Any, coroutine: Any, inside: frozenset[Any] = frozenset()) -> set[Any]:
    """All futures that must come before a task goes on, as far as can be told; none where one of several is enough, or the task
    goes on. What tasks on the loops of other threads must do first is among it. `inside`: tasks that wait for this one."""
    frames = frames_of(coroutine)
    if _goes_on(task) or task in inside:
        return set()
    parts, needs_all, _ = _children(task, frames)
    waiter = getattr(task, "_fut_waiter", None)
    pending = [one for one in parts or [waiter] if one is not None and not one.done()]
    if parts and not needs_all:
        return set()
    return set().union(*(_must_come(one, inside | {task}) for one in pending))


def _must_come(item: Any, inside: frozenset[Any]) -> set[Any]:
    task = item if isinstance(item, asyncio.Task) else task_behind(item)
    return {item} if task is None else held_up_by(task, task.get_coro(), inside)


def awaited_within(item: Any, frames: Sequence[Any]) -> list[Any] | None:
    """What a task with these frames, or a future, waits for on its loop, through `asyncio.wait_for` and the like, too; nothing
    where that is anything of the process. None if it goes on by itself, or on a thread or another loop, or is not known."""
    if not isinstance(item, asyncio.Future):
        return None
    if not isinstance(item, asyncio.Task):
        names = [loops.name_of(one) for one, _ in item._callbacks or ()]
        if item.done() or _CHAINED in names or reply_of(item) is not None:
            return None
        gathered = _gathered(item)
        return _shielded(item) if gathered is None else [one for one in gathered[0] if not one.done()]
    if not frames or _goes_on(item):
        return None
    inner = frames[-1]
    name = inner.f_code.co_name if _is_asyncio(inner) else ""
    if name == "sleep" or _is_local(inner):
        return []
    if name == "wait_for":
        found = [inner.f_locals["fut"]]
    else:
        found = [*inner.f_locals["fs"]] if name == "_wait" else _children(item, [*frames])[0]
    return [one for one in found if isinstance(one, asyncio.Future) and not one.done()] or [item._fut_waiter]  # type: ignore[attr-defined]


def _shielded(future: Any) -> list[Any]:
    """What `asyncio.shield` has given this future for."""
    for one, _ in future._callbacks or ():
        if loops.name_of(one) == "shield.<locals>._outer_done_callback":
            return [one.__closure__[one.__code__.co_freevars.index("inner")].cell_contents]
    return []


def tasks_before(task: Any) -> set[Any]:
    """A task, and those that must end before it goes on; on the loops of other threads, too."""
    found: set[Any] = set()
    to_look = [task]
    while to_look:
        one = to_look.pop()
        one = one if isinstance(one, asyncio.Task) else task_behind(one)
        if one is not None and one not in found:
            found.add(one)
            frames, waiter = frames_of(one.get_coro()), getattr(one, "_fut_waiter", None)
            to_look += _children(one, frames)[0] or ([] if waiter is None else [waiter])
    return found


def tasks_awaiting(task: Any, call: Sequence[Any] = (None, None)) -> Iterator[tuple[Any, list[Any]]]:
    """A task, and a few that only wait for it: by `await`, by `asyncio.wait_for`, or, for the task of a ref, in a `gather`.

    Each with its frames, the innermost first. `call`: a task, and its coroutine, to which its own does not lead.
    """
    for _ in range(5):
        frames = frames_of(call[1] if task is call[0] else task.get_coro())[::-1]
        yield task, frames
        is_apps = any(rank_of(one.f_code.co_filename) in (USERS, PACKAGES) for one in frames)
        if (task := _woken([task], is_alone=is_apps)) is None:
            return


def _woken(way: list[Any], *, is_alone: bool) -> Any:
    """The task that goes on when the last of these futures has come; None: not one, or `is_alone`, and it waits for others."""
    for callback, _ in getattr(way[-1], "_callbacks", None) or ():
        if is_alone and loops.name_of(callback) in _OF_SEVERAL:
            return None
        held = (callback.__closure__ or ()) if type(callback) is FunctionType else (callback,)
        for one in _parts(part for each in held for part in gc.get_referents(each)):
            if isinstance(one, asyncio.Future) and one not in way:
                return one if isinstance(one, asyncio.Task) else _woken([*way, one], is_alone=is_alone)
    return None


def _parts(items: Iterable[Any]) -> list[Any]:
    """These, and in the place of tuples what is in them."""
    return [part for one in items for part in (one if type(one) is tuple else (one,))]


_OF_SEVERAL = ("gather.<locals>._done_callback", "_wait.<locals>._on_completion")
"""What asyncio leaves on each of several futures that a task waits for."""


def parked_sites(loop: Any) -> list[str]:
    """Where tasks of the loop await a lock, a queue, an event: something that another task, or a callback, must bring."""
    tasks = [task for task in asyncio.all_tasks(loop) if wait_of(task) is None and _is_waiting(task)]
    return [site_of(task.get_coro()) or "" for task in tasks]


def _may_go_on(item: Any, seen: set[Any]) -> bool:
    """Whether what a task or a future waits for may come by itself, whatever replies and later calls do."""
    if not isinstance(item, asyncio.Task):
        inside = _gathered(item)
        parts = [] if inside is None else [one for one in inside[0] if not one.done()]
        parts = parts or [one for one in (task_behind(item),) if one is not None]
        return any(_may_go_on(one, seen) for one in parts) if parts else item not in _WAITS and item not in REPLIES
    if item in seen or _is_waiting(item):
        return False
    seen.add(item)
    frames, waiter = frames_of(item.get_coro()), item._fut_waiter  # type: ignore[attr-defined]
    inner = _children(item, frames)[0]
    inner = inner or [one for one in (waiter,) if isinstance(one, asyncio.Task) or task_behind(one) is not None]
    return _goes_on(item) or not inner or any(_may_go_on(one, seen) for one in inner if not one.done())


def _joined(waits: list[CallWait]) -> CallWait:
    return replace(
        waits[0],
        on=tuple(item for wait in waits for item in wait.on),
        owed=tuple(item for wait in waits for item in wait.owed),
        k=sum(wait.k for wait in waits),
        may_act=all(wait.may_act for wait in waits),
        is_ready=all(wait.is_ready for wait in waits),
    )


def frames_of(coroutine: Any) -> list[Any]:
    """The frames of a suspended coroutine, the innermost last."""
    found = []
    item = coroutine
    while item is not None:
        frame = _first(item, "cr_frame", "ag_frame", "gi_frame")
        if frame is not None:
            found.append(frame)
        item = _first(item, "cr_await", "ag_await", "gi_yieldfrom")
    return found


def _first(item: Any, *names: str) -> Any:
    return next((value for name in names if (value := getattr(item, name, None)) is not None), None)


def task_behind(future: Any) -> Any:
    """The task on another loop that sets this future (`run_coroutine_threadsafe`), of either kind; None if none is known."""
    for one in getattr(future, "_callbacks", None) or getattr(future, "_done_callbacks", None) or ():
        called = one[0] if isinstance(one, tuple) else one
        if loops.name_of(called) == _CHAINED:
            source = called.__closure__[called.__code__.co_freevars.index("source")].cell_contents
            return source if isinstance(source, asyncio.Task) else task_behind(source)
    return None


_CHAINED = "_chain_future.<locals>._call_check_cancel"
"""What asyncio leaves at a future that another one will set."""


def note_reply(future: Any, wait: Any) -> None:
    """Note what a task that awaits this future waits for, on the loop of a thread of the app's own."""
    REPLIES[future] = wait


def reply_of(future: Any) -> Any:
    """What was noted of it; None: nothing."""
    return None if future is None else REPLIES.get(future)


def note_wait(future: Any, wait_id: int) -> None:
    """Note that a task that awaits this future is in that tracked wait."""
    _WAITS[future] = wait_id


def awaited_itself(task: Any) -> Iterator[Any]:
    """The futures that a task awaits itself, or in a `gather`; none of those that have come."""
    gathered = _gathered(task)
    for part in [task] if gathered is None else gathered[0]:
        future = getattr(part, "_fut_waiter", None) if isinstance(part, asyncio.Task) else part
        if future is not None and not future.done():
            yield future


def last_before(task: Any) -> Any:
    """The task that must end first, of those of which each awaits the next one alone; on loops of other threads, too."""
    seen = set()
    while task not in seen:
        seen.add(task)
        waiter = task._fut_waiter
        task = waiter if isinstance(waiter, asyncio.Task) else task_behind(waiter) or task
    return task


def forget_wait(future: Any) -> None:
    """What was noted of it is over, whether or not the future is."""
    _WAITS.pop(future, None)
    REPLIES.pop(future, None)


def is_tracked(future: Any) -> bool:
    """Whether this is the future of an `await` that is a tracked wait."""
    return isinstance(future, asyncio.Future) and future in _WAITS


def wait_of(item: Any) -> int | None:
    """The tracked wait that a task is in, if it awaits a ref itself, or that a future is of."""
    waiter = getattr(item, "_fut_waiter", None) if isinstance(item, asyncio.Task) else item
    return None if waiter is None else _WAITS.get(waiter)


def _goes_on(task: Any) -> bool:
    """Whether what it awaits has come, and it will run as soon as the loop has time."""
    waiter = getattr(task, "_fut_waiter", None)
    return waiter is None or bool(waiter.done())


def _is_asyncio(frame: Any) -> bool:
    return PurePath(frame.f_code.co_filename).parent.name == "asyncio"


def _is_local(frame: Any) -> bool:
    names = _LOCAL.get(PurePath(frame.f_code.co_filename).name, set())
    return _is_asyncio(frame) and frame.f_code.co_name in names
