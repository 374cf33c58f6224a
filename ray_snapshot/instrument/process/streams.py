"""Streaming generators of one process: those that run here, and those whose items it takes.

A generator that stands at a `yield` runs no code of the app until Ray resumes it, and that takes the lock of the process: so
what is recorded of it holds. While its item is being pickled the app's code may run: then its call counts as active.
`protocol.streams` says which of them Ray holds. Used under the lock of the process.
"""

from __future__ import annotations

import inspect
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any

from ray_snapshot.instrument import shape, task_shape
from ray_snapshot.instrument.process.coroutines import site_of
from ray_snapshot.instrument.process.signals import is_timer_set
from ray_snapshot.limits import LIMITS
from ray_snapshot.protocol.call_messages import NO_BOUND, Awaited, Stream, awaited
from ray_snapshot.protocol.calls import CallLedger
from ray_snapshot.runtime.here import frames_of_threads


@dataclass(slots=True)
class Generating:
    """A generator that runs here."""

    generator: Any
    since: float = 0.0
    """When it came to the `yield` where it is, if it is at one."""
    is_out: bool = False
    """Whether it is at a `yield`."""


@dataclass(frozen=True, slots=True)
class Taking:
    """A generator of refs that this process has."""

    refs: weakref.ref[Any]
    call_id: str
    at_most: int


class Streams:
    """Those of one process."""

    def __init__(self) -> None:
        self.running: dict[str, Generating] = {}
        """By call."""
        self.taken: dict[bytes, Taking] = {}
        """By Ray's id of the task."""
        self.dropped: dict[bytes, None] = {}
        """Ids of those that were taken and then dropped, the latest last."""
        self.blocking: str | None = None
        """A call that, when this was last recorded, stood at a `yield` for long, on the loop of an async actor."""

    # ---- those that run here ------------------------------------------------------------------------------------------

    def begin(self, call_id: str, generator: Any) -> None:
        """A call has made its generator."""
        self.running[call_id] = Generating(generator)

    def go_out(self, call_id: str) -> None:
        """It is about to hand an item to Ray."""
        one = self.running.get(call_id)
        if one is not None:
            one.is_out, one.since = True, time.time()

    def come_back(self, call_id: str) -> None:
        """Ray has resumed it, or closes it."""
        one = self.running.get(call_id)
        if one is not None:
            one.is_out = False

    def end(self, call_id: str) -> None:
        """The call is over."""
        self.running.pop(call_id, None)

    def sites(self) -> dict[str, str]:
        """Where ("file:line") those are that stand at a `yield`: Ray's thread is not there."""
        found = {call_id: site_of(one.generator) for call_id, one in self.running.items() if one.is_out}
        return {call_id: site for call_id, site in found.items() if site is not None}

    def park(self, ledger: CallLedger, threads: Mapping[str, int], now: float, *, has_loop: bool = False) -> list[int]:
        """Note as waits the calls that stand at a `yield` while nothing of the app's runs for them; returns the waits.

        `has_loop`: the actor is asynchronous. Ray runs a plain generator on its loop, which stands still then; but from here
        that looks as if the loop had nothing to do.
        """
        self.blocking = None
        at_yield = [call_id for call_id, one in self.running.items() if one.is_out]
        frames = frames_of_threads() if at_yield else {}
        found, sites = [], self.sites()
        for call_id in at_yield:
            one, running, thread = self.running[call_id], ledger.running.get(call_id), threads.get(call_id)
            if running is None or running.waits or thread is None or is_timer_set(thread):
                continue
            is_long, is_on_loop = (
                now - one.since > LIMITS.held_yield_s,
                has_loop and not inspect.isasyncgen(one.generator),
            )
            if is_on_loop and is_long and _idles(thread, frames, _LOOPS):
                self.blocking = call_id
            elif is_on_loop or not _runs_nothing(one.generator, thread, frames):
                continue
            about, site = (call_id, (), 1, one.since), sites.get(call_id, "")
            noted = ledger.wait(
                *about, call_site=site, at_yield=True, is_long=is_long, is_unsure=is_on_loop, keeps_cpu=True
            )
            found.append(noted)
        return found

    # ---- those whose items are taken here -----------------------------------------------------------------------------

    def take(self, refs: Any, call_id: str, at_most: int | None) -> None:
        """A call has given this generator of refs; `at_most`: so many items may lie there untaken."""
        place = task_shape.stream_of(refs)
        if place is not None:
            self._forget()
            self.taken[place[0]] = Taking(weakref.ref(refs), call_id, NO_BOUND if at_most is None else at_most)

    def _forget(self) -> None:
        """Of those that were dropped only the ids stay."""
        for task in [task for task, one in list(self.taken.items()) if one.refs() is None]:
            del self.taken[task]
            self.dropped[task] = None
        while len(self.dropped) > LIMITS.dropped_generators:
            del self.dropped[next(iter(self.dropped))]

    def report(self) -> Mapping[str, Stream]:
        """Those that this process has, with what it has taken of each."""
        self._forget()
        found = {}
        for one in list(self.taken.values()):
            refs = one.refs()
            read = None if refs is None else task_shape.items_taken(refs)
            if read is not None:
                found[one.call_id] = Stream(read, one.at_most)
        return found

    def asked(self, item: Any) -> Awaited | None:
        """What a ref, or a generator of refs, stands for; None: not known."""
        if not self.taken:
            return None
        place = task_shape.stream_of(item)
        one = None if place is None else self.taken.get(place[0])
        if place is None or one is None:
            return None
        item_number = task_shape.items_taken(item) if task_shape.is_stream(item) else place[1]
        return Awaited(one.call_id, None if item_number is None or item_number < 0 else item_number)

    def has_come(self, ref: Any) -> bool:
        """Whether a ref is that of an item that was taken here: Ray gives it only once its object is there."""
        place = task_shape.stream_of(ref) if self.taken or self.dropped else None
        return place is not None and place[1] >= 0 and (place[0] in self.taken or place[0] in self.dropped)

    def awaited(self, refs: Sequence[Any], replies: Sequence[str | None]) -> tuple[Awaited, ...]:
        """What a wait for `refs` is for; `replies`: by ref, the call whose reply it is."""
        found = awaited(replies)
        if None not in replies or not self.taken:
            return found
        pairs = zip(refs, found, strict=True)
        return tuple([one if one.call_id is not None else self.asked(ref) or one for ref, one in pairs])


def _runs_nothing(generator: Any, thread: int, frames: Mapping[int, FrameType]) -> bool:
    """Whether nothing in Python runs for a generator that is at a `yield`; Ray has threads for items of asynchronous ones."""
    if inspect.isasyncgen(generator):
        return all(_idles(one.ident or 0, frames, _EXECUTORS) for one in shape.rays_threads())
    frame = frames.get(thread)
    return thread != threading.get_ident() and (frame is None or shape.is_rays_loop(frame))


def _idles(thread: int, frames: Mapping[int, FrameType], modules: tuple[str, ...]) -> bool:
    """Whether a thread is in no function in Python, or in one of these modules; this one, whose frame is not there, is not."""
    frame = frames.get(thread)
    is_idle = frame is None or frame.f_globals.get("__name__") in modules
    return is_idle and thread != threading.get_ident()


_EXECUTORS = ("concurrent.futures.thread",)
_LOOPS = ("threading", "asyncio.events", "asyncio.base_events", "selectors")
"""Where a thread sits that runs a loop, uvloop's or asyncio's, and no coroutine in Python."""
