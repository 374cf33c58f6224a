"""Where the threads and coroutines of this process are, told by the process itself: for a person who asks why it hangs.

The lines of the user's, from the inside out, and the function of a library that the innermost is in; on request with local
variables, as a state is recorded: within bounds, by no code of the app's, and without what is redacted. Also without what
stands under a name that sounds like a secret, for nobody may have thought of redacting it.
"""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple

from ray_snapshot.encoding import to_json
from ray_snapshot.instrument.frames import cut_middle
from ray_snapshot.instrument.here import own_threads
from ray_snapshot.instrument.process.coroutines import frames_of
from ray_snapshot.limits import LIMITS
from ray_snapshot.names import DRIVER
from ray_snapshot.runtime.here import STANDARD, USERS, frames_of_threads, outward, place_in, rank_of

if TYPE_CHECKING:
    from ray_snapshot.instrument.process.process import Process


_SECRET = re.compile(r"passw|secret|token|api_?key|credential|private_?key|authori[sz]ation", re.IGNORECASE)


class StackFrame(NamedTuple):
    """A line of the app's."""

    function: str
    file: str
    line: int
    variables: str | None = None
    """JSON; None if they were not asked for."""
    inside: str = ""
    """Of the innermost: the function of a library that it is in, as in `here.Place`."""


class Stack(NamedTuple):
    """A thread or a coroutine."""

    of: str
    """For people: the method of the call that it runs, "(the program)", or what the thread or task is called."""
    call: str | None
    frames: tuple[StackFrame, ...]
    """From the inside out."""
    cut: int = 0
    """So many frames are left out in the middle."""


def stacks(process: Process, *, with_locals: bool) -> list[Stack]:
    """Of all threads and coroutines in which code of the app's is. Takes the lock of the process for a moment."""
    with process.lock:
        methods = {call: running.method for call, running in process.ledger.running.items()}
        calls = {thread: call for call, thread in process.threads.items()}
        coroutines = dict(process.actor_loop.coroutines)
        loop = process.actor_loop.loop or process.program_loop.loop
    found = [*_of_threads(process.machine, methods, calls), *_of_coroutines(methods, coroutines, loop)]
    told = [_stack(of, call, frames, with_locals=with_locals) for of, call, frames in found]
    return [one for one in told if one.frames][: LIMITS.process_stacks]


_Found = tuple[str, str | None, Sequence[FrameType]]


def _of_threads(machine: str, methods: Mapping[str, str], calls: Mapping[int, str]) -> Iterator[_Found]:
    frames, main = frames_of_threads(), threading.main_thread()
    threads = [main, *own_threads()]
    for thread in threads:
        call = calls.get(thread.ident or 0)
        name = "(the program)" if thread is main and machine == DRIVER else f"thread {thread.name}"
        yield methods.get(call or "", name), call, list(outward(frames.get(thread.ident or 0)))
    known = {thread.ident for thread in threads}
    for ident, call in calls.items():  # those that Ray has made for calls
        if ident not in known:
            yield methods.get(call, ""), call, list(outward(frames.get(ident)))


def _of_coroutines(
    methods: Mapping[str, str], coroutines: Mapping[str, tuple[Any, Any]], loop: Any
) -> Iterator[_Found]:
    known = {id(task) for task, _ in coroutines.values()}
    for call, (_, coroutine) in coroutines.items():
        yield methods.get(call, ""), call, frames_of(coroutine)[::-1]
    for task in [] if loop is None else asyncio.all_tasks(loop):
        if id(task) not in known and isinstance(task, asyncio.Task):
            yield f"task {task.get_name()}", None, frames_of(task.get_coro())[::-1]


def _stack(of: str, call: str | None, frames: Sequence[FrameType], *, with_locals: bool) -> Stack:
    own, inside = _own(frames)
    kept, cut = cut_middle(own)
    shown = [
        StackFrame(
            frame.f_code.co_qualname,
            frame.f_code.co_filename,
            frame.f_lineno,
            _variables(frame) if with_locals else None,
            inside if place == 0 else "",
        )
        for place, frame in enumerate(kept)
    ]
    return Stack(of, call, tuple(shown), cut)


def _own(frames: Sequence[FrameType]) -> tuple[list[FrameType], str]:
    """The user's, from the inside out, as far as ours, which runs the program or the call; and in which function of a library
    the innermost is. Of a stack without any of the user's: the innermost that says something."""
    own: list[FrameType] = []
    for frame in frames:
        if rank_of(frame.f_code.co_filename) == USERS:
            own.append(frame)
        elif own and str(frame.f_globals.get("__name__", "")).startswith("ray_snapshot."):
            break
    found = place_in(frames)
    if found is None or rank_of(found.frame.f_code.co_filename) > STANDARD:
        return [], ""
    return own or [found.frame], found.inside


def _variables(frame: FrameType) -> str:
    if frame.f_code.co_name == "<module>":
        return "{}"  # a module's are all its imports, classes and functions
    told = _without_secrets(json.loads(to_json(dict(frame.f_locals), LIMITS.locals_ms).text))
    text = json.dumps(told, ensure_ascii=False, separators=(",", ":"))
    return text if len(text) <= LIMITS.locals_characters else text[: LIMITS.locals_characters] + "…"


def _without_secrets(told: Any) -> Any:
    """`told` without what stands under a name that sounds like a secret, however deep; also in the head of what was cut off."""
    if isinstance(told, list):
        return [_without_secrets(one) for one in told]
    if not isinstance(told, dict):
        return told
    return {name: "[redacted]" if _SECRET.search(name) else _without_secrets(one) for name, one in told.items()}
