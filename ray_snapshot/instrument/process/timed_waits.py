"""Waits with a timeout, outside of Ray's calls, of the calls of one process and of the program.

A loop that begins one after the other waits as one without a timeout does: for what only this process ends, or, on an event
loop, for replies too. Whether it is such a loop, and for how long, `polls` tells. Callers hold the lock of the process.
"""

from __future__ import annotations

import asyncio
import itertools
import re
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple

from ray_snapshot.instrument.here import own_threads
from ray_snapshot.instrument.process.answer_uses import AWAIT, SLEEP, WAIT, Chain, Place, chain_of
from ray_snapshot.instrument.process.awaited import main_tasks
from ray_snapshot.instrument.process.blocked_threads import awaited_child, timed_function
from ray_snapshot.instrument.process.coroutines import (
    awaited_within,
    frames_of,
    running_loop,
    timers_of,
    wait_of,
)
from ray_snapshot.instrument.process.other_loops import main_task
from ray_snapshot.instrument.process.primitives import Primitives
from ray_snapshot.instrument.process.signals import handled_signals
from ray_snapshot.names import DRIVER, EVENT_WAIT
from ray_snapshot.protocol.calls import Awaited, CallWait
from ray_snapshot.runtime.here import RAYS, STANDARD, WAITS, frames_of_threads, outward, place, place_in, rank_of

if TYPE_CHECKING:
    from ray_snapshot.instrument.process.process import Process

_RAISES = re.compile(r"\.(get|put|result|exception|communicate)$|Popen\.wait$")
"""Functions that raise when their time is over."""

_KINDS = {"time.sleep": SLEEP, "asyncio.sleep": SLEEP, "asyncio.wait": WAIT}


class TimedWait(NamedTuple):
    """One of them."""

    place: Place
    call_site: str
    what: str
    """ "queue.Queue.get"; behind a comma what that is of."""
    on: tuple[Awaited, ...] = ()
    """Any of these replies ends it."""
    is_local: bool = True
    """So may anything in this process."""

    @property
    def calls(self) -> list[str]:
        """The calls of which it awaits the replies."""
        return [one.call_id for one in self.on if one.call_id is not None]

    def noted(self, call_id: str | None, since: float) -> CallWait:
        """As a wait of a call, which may act."""
        about = (0, call_id, self.on, 1, since, self.call_site)
        return CallWait(*about, may_act=True, is_local=self.is_local, what=self.what)


class TimedWaits:
    """Of one process."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.tasks: dict[str | None, list[Any]] = {}
        """By call: its own task, and those that it awaits, as far as they are in such waits."""
        self.may_end = False
        """Whether a thread of the app's own acts beside them."""

    def look(self, now: float) -> None:
        """Note those that are found, and of threads of the app's own."""
        process, frames, found = self.process, frames_of_threads(), []
        self.tasks.clear()
        with suppress(Exception):  # of a loop that is not as we know it nothing is said
            found += [(call_id, thread, waits) for call_id, thread, waits in self._found(frames) if waits]
        sent = sum(output.sent_count for output in process.ledger.outputs.values()) if found else 0
        for own in own_threads() if found else ():
            frame = frames.get(own.ident or 0)
            if frame is not None and (wait := _of_thread(own.native_id or 0, frame)) is not None:
                alone = wait._replace(place=wait.place._replace(is_idle=True))
                process.polls.wait("", own.ident or 0, [alone], sent, now)
        for call_id, thread, waits in found:
            process.polls.wait(call_id, thread, waits, sent, now)
        idle = process.polls.idle_threads(now)
        self.may_end = bool(found) and process.blocked.waits_beside(frames, now, idle) is None

    def _found(self, frames: Mapping[int, FrameType]) -> Iterator[tuple[str | None, int, list[TimedWait]]]:
        process, loop = self.process, self.process.actor_loop
        if loop.is_async and loop.is_between_steps() and not loop.is_blocked:
            for call_id, waits in self._of_tasks(loop.loop, loop.coroutines):
                yield call_id, loop.thread or 0, waits
        calls = [one for one in process.blocked.calls() if one[0] is not None]
        main = threading.main_thread().ident or 0
        if process.machine == DRIVER and main not in process.program_threads.thread_of.values():
            calls.append((None, main))
        for call_id, thread in calls:
            frame = frames.get(thread)  # none of the one that records, which may run a loop
            mains = [*main_tasks([running_loop()])] if frame is None else [(main_task(frame), None)]
            task = mains[0][0] if mains else None
            if task is not None:
                of_task = self._of_tasks(task.get_loop(), {call_id: (task, task.get_coro())})
                yield from ((call_id, thread, waits) for _, waits in of_task)
            elif frame is not None:
                wait = _of_thread(process.blocked.native_of(thread) or 0, frame)
                is_told = wait is not None and not (call_id is None and self._is_at_rest(wait))
                yield call_id, thread, [wait] if wait is not None and is_told else []

    def _is_at_rest(self, wait: TimedWait) -> bool:
        """Whether a program that waits so looks like one that is parked."""
        return not self.process.ledger.waits and (wait.what == EVENT_WAIT or bool(handled_signals()))

    def _of_tasks(self, loop: Any, calls: Mapping[Any, tuple[Any, Any]]) -> Iterator[tuple[Any, list[TimedWait]]]:
        """Those of the tasks of calls, each with the call's own coroutine, and of the tasks that these await; none of a call of
        which one of these goes on by itself, whatever is awaited."""
        timers = timers_of(loop)
        primitives = Primitives(one.get_coro() for one in asyncio.all_tasks(loop))
        for call_id, (task, coroutine) in calls.items() if timers else ():
            timed, on, is_local = list[tuple[Any, list[Any]]](), list[Awaited](), False
            seen, to_look = set[Any](), [task]
            while to_look:
                one = to_look.pop()
                if one in seen:
                    continue
                seen.add(one)
                wait = self.process.ledger.waits.get(wait_of(one) or 0)
                if wait is not None and not wait.is_ready:
                    on += wait.on
                    continue
                is_task = isinstance(one, asyncio.Task)
                frames = frames_of(coroutine if one is task else one.get_coro()) if is_task else []
                times = timers[id(one)] + timers[id(getattr(one, "_fut_waiter", timers))]
                awaited = awaited_within(one, frames)
                is_timed = times == 1 and _chain(reversed(frames))
                if awaited is None or (times and not is_timed) or wait_of(one) is not None:
                    timed.clear()
                    break
                timed += [(one, frames)] if is_timed else []
                is_local |= not awaited
                to_look += awaited
            self.tasks[call_id] = [one for one, _ in timed]
            yield call_id, [_of_frames(frames, on, is_local, primitives) for _, frames in timed]


def _chain(frames: Iterable[FrameType]) -> Chain:
    """What has led to a wait; nothing of one in Ray's own code, whose loops are its own affair."""
    own = list(itertools.dropwhile(lambda one: rank_of(one.f_code.co_filename) in (STANDARD, WAITS), frames))
    return chain_of(own) if own and rank_of(own[0].f_code.co_filename) != RAYS else ()


def _of_thread(native: int, frame: FrameType) -> TimedWait | None:
    name, at, chain = timed_function(native, frame), place(frame), _chain(outward(frame))
    if name is None or at is None or not chain:
        return None
    child = awaited_child(frame)
    where = Place(chain, AWAIT if _RAISES.search(name) else _KINDS.get(name, WAIT))
    return TimedWait(where, str(at), f"{name}, for {child}" if child else name)


def _of_frames(frames: list[Any], on: list[Awaited], is_local: bool, primitives: Primitives) -> TimedWait:
    at = place_in(reversed(frames))
    name = at.inside if at is not None else ""
    inner = frames[-1].f_locals.get("fut") if name == "asyncio.wait_for" else None
    about = primitives.of(frames_of(inner.get_coro()) if isinstance(inner, asyncio.Task) else frames)
    what = f"{name}, for {about}" if about and name == "asyncio.wait_for" else about or name
    where = Place(_chain(reversed(frames)), _KINDS.get(name, AWAIT))
    return TimedWait(where, str(at or ""), what, tuple(on), is_local)
