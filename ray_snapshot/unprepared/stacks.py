"""What the stacks of a process say of a call that runs there: that it waits in Ray for ever, is on its way, or cannot be seen.

Pure. Frames come from the inside out, as `evidence` has cut them down. Read `evidence` first.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

WAITS, ACTS, PARKED, UNSEEN = "waits", "acts", "parked", "unseen"
"""In a wait of Ray's without a time-out; on its way, or ends by itself; in a wait that is not Ray's; nothing is known."""

_RAY = re.compile(r"/(?:site|dist)-packages/ray/|(?:^|/)python/ray/|^ray/")
_STANDARD = re.compile(r"^<|[/\\]lib(?:64)?[/\\]python\d[^/\\]*[/\\](?!site-packages|dist-packages)")
_INSTALLED = re.compile(
    rf"[/\\](?:site|dist)-packages[/\\]|^{re.escape(str(Path(__file__).parents[1]))}|[/\\]ray-snapshot$"
)
"""Libraries, and what runs a program for us."""
_BEFORE_MODULE = re.compile(r"^.*/(?:(?:site|dist)-packages|lib(?:64)?/python\d[^/]*)/")
_ONLY_WAIT = ("/threading.py", "/selectors.py")
_LOOPS = ("main_loop", "actor_method_executor", "_function_executor")
"""Functions of Ray's under which a worker runs what users wrote; a plain task stands on `main_loop` alone."""

_LONGEST_S = 1e6
"""`ray.wait` turns no time-out into this many seconds."""

_PYTHON_WAITS = ("threading.py", "queue.py", "_base.py", "thread.py", "selectors.py", "synchronize.py")
_LOCKING = re.compile(r"\.(?:acquire|join|wait|result)\(\s*\)|^\s*with\b.*\block\b|\.get\(\s*\)")


@dataclass(frozen=True, slots=True)
class Frame:
    """A line of the user's."""

    function: str
    file: str
    line: int
    inside: str = ""
    """Of the innermost: the function of a library that it is in: "subprocess.communicate"."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What the stacks say of one call."""

    state: str
    why: str
    frames: tuple[Frame, ...] = ()
    """The user's, from the inside out."""


def reading(threads: Sequence[Mapping[str, Any]], method: str | None) -> Reading:
    """Of the call of that method, or of the program itself if that is None."""
    chosen = _running(threads, method)
    if not chosen:
        if any(_is_loops(thread) for thread in threads):
            return Reading(UNSEEN, "what its coroutines await cannot be seen from outside")
        return Reading(UNSEEN, "no stack shows it")
    read = [_read(thread["frames"]) for thread in chosen]
    order = (ACTS, UNSEEN, PARKED, WAITS)
    return min(read, key=lambda one: order.index(one.state))


def _running(threads: Sequence[Mapping[str, Any]], method: str | None) -> list[Mapping[str, Any]]:
    """The threads in which the call may run; where a coroutine blocks the loop, every call of the loop stands there."""
    own = [thread for thread in threads if any(_is_apps(frame) for frame in thread["frames"])]
    if method is None:
        return [thread for thread in own if thread["name"] == "MainThread"]
    inside = [thread for thread in own if any(frame[0] in _LOOPS for frame in thread["frames"] if _is_rays(frame))]
    name = method.rpartition(".")[2]
    named = [thread for thread in inside if any(frame[0] == name for frame in thread["frames"] if _is_apps(frame))]
    return named or inside or [thread for thread in own if _is_loops(thread)]


def _is_loops(thread: Mapping[str, Any]) -> bool:
    """Whether an event loop of an async actor runs there."""
    return str(thread["name"]).startswith("AsyncIO Thread")


def _read(frames: Sequence[Sequence[Any]]) -> Reading:
    place = next(place for place, frame in enumerate(frames) if _is_apps(frame))
    inner, own = frames[:place], own_frames(frames)
    waits = [frame for frame in inner if _is_rays(frame) and frame[0] in ("get_objects", "wait", "get")]
    if waits:
        told = [frame[4] for frame in waits if frame[4] is not None and _seconds(frame[4]) is not None]
        where = "ray.wait" if waits[0][0] == "wait" else "ray.get"
        if not told:
            return Reading(UNSEEN, f"is in {where}, and its time-out cannot be read", own)
        if any(seconds < _LONGEST_S for seconds in map(_seconds, told) if seconds is not None):
            return Reading(ACTS, f"is in {where} with a time-out", own)
        return Reading(WAITS, f"is in {where} without a time-out", own)
    if any(_is_rays(frame) for frame in inner):
        return Reading(UNSEEN, f"is inside Ray in {inner[0][0]}", own)
    return _elsewhere(inner, frames[place], own)


def _elsewhere(inner: Sequence[Sequence[Any]], line: Sequence[Any], own: tuple[Frame, ...]) -> Reading:
    """A stack that does not end in Ray."""
    if any(str(frame[1]).replace("\\", "/").rpartition("/")[2] in _PYTHON_WAITS for frame in inner):
        timeouts = [frame[4] for frame in inner if frame[4] is not None]
        if any(_seconds(one) not in (None, float("inf")) for one in timeouts):
            return Reading(ACTS, "waits in Python with a time-out", own)
        return Reading(PARKED, "waits in Python, not in Ray", own)
    text = str(line[3])
    if not text or _LOCKING.search(text):
        return Reading(PARKED, "waits for something that is not Ray's", own)
    return Reading(ACTS, "sleeps" if "sleep(" in text else "is in its own code", own)


def _seconds(told: str) -> float | None:
    """A time-out as a number; infinite if there is none, None if it cannot be read."""
    if told == "None":
        return float("inf")
    try:
        return float(told)
    except ValueError:
        return None


def _is_rays(frame: Sequence[Any]) -> bool:
    return _RAY.search(str(frame[1])) is not None


def _is_apps(frame: Sequence[Any]) -> bool:
    """Whether it is the user's, or of a library that is not Ray's."""
    return not _is_rays(frame) and not _STANDARD.search(str(frame[1]))


def own_frames(frames: Sequence[Sequence[Any]]) -> tuple[Frame, ...]:
    """The user's, with the function of a library that the innermost is in; those of libraries where there are no others."""
    apps = [frame for frame in frames if _is_apps(frame)] or list(frames)
    first, *rest = [frame for frame in apps if not _INSTALLED.search(str(frame[1]))] or apps
    inner = frames[: frames.index(first)]
    public = [
        frame for frame in inner if not _is_rays(frame) and str(frame[0]).isidentifier() and str(frame[0])[0] != "_"
    ]
    works = [frame for frame in public if not str(frame[1]).replace("\\", "/").endswith(_ONLY_WAIT)]
    said = [*works[:1], *public[-1:]]
    inside = f"{_module(str(said[0][1]))}.{said[0][0]}" if said else ""
    return (Frame(first[0], first[1], first[2], inside), *(Frame(*frame[:3]) for frame in rest))


def _module(file: str) -> str:
    path = _BEFORE_MODULE.sub("", file.replace("\\", "/")).removesuffix(".py").removesuffix("/__init__")
    return ".".join(part for part in path.split("/") if not part.startswith("_"))
