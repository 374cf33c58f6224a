"""What this thread is doing: on which host, for which machine, and whether it is in a tracked wait."""

from __future__ import annotations

import gc
import os
import re
import sys
import sysconfig
import threading
from collections.abc import Iterable, Iterator
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from ray_snapshot.protocol.host import Machine
    from ray_snapshot.runtime.host.post import HostPost


class Here(threading.local):
    """Thread-local; None outside the action threads of a host."""

    post: HostPost | None = None
    machine: Machine | None = None
    is_waiting: bool = False
    heard: Any = None
    """The reddest colour that arrived with a reply during the current tracked wait."""


HERE = Here()

BEHIND: dict[str, Any] = {}
"""Ray's own functions, by name, in whose place `instrument.shape` has put others."""

USERS, PACKAGES, STANDARD, RAYS, WAITS, OURS = range(6)
"""Whose a line is: the lower, the more it says to a user. WAITS: of the standard library, and only waits for others."""

_ONLY_WAIT = ("threading.py", "selectors.py", "concurrent/", "asyncio/")
_PACKAGES = re.compile(r"[/\\](?:site|dist)-packages[/\\]")


def _folders(*names: str) -> tuple[str, ...]:
    return tuple({os.path.join(path, "") for name in names if (path := sysconfig.get_path(name))})


_STANDARD = (*_folders("stdlib", "platstdlib"), os.path.join(os.path.dirname(os.__file__), ""))
_INSTALLED = _folders("purelib", "platlib", "scripts")
_OURS = (os.path.join(Path(__file__).parents[1], ""), "<frozen ")
_RAYS = os.path.join(os.path.dirname(getattr(find_spec("ray"), "origin", None) or "ray"), "")


@lru_cache(4096)
def rank_of(file: str) -> int:
    """Whose a source file is. What is neither installed nor Python's own is the user's: also a library that is vendored, or
    installed in place."""
    if file.startswith(_OURS):
        return OURS
    if file.startswith(_RAYS):
        return RAYS
    if file.startswith(_INSTALLED) or _PACKAGES.search(file):
        return PACKAGES
    folder = next((folder for folder in _STANDARD if file.startswith(folder)), None)
    if folder is None:
        return USERS
    return WAITS if file[len(folder) :].replace(os.sep, "/").startswith(_ONLY_WAIT) else STANDARD


def _rank(frame: FrameType) -> int:
    return rank_of(frame.f_code.co_filename)


class Place(NamedTuple):
    """Where a thread or a coroutine is."""

    frame: FrameType
    """The innermost of the user's; if there is none, the innermost of what says most."""
    inside: str = ""
    """The function of a library that it is in: "subprocess.Popen.communicate"; "" if it is in none."""

    @property
    def call_site(self) -> str:
        """ "file:line"."""
        return f"{self.frame.f_code.co_filename}:{self.frame.f_lineno}"

    def __str__(self) -> str:
        """ "file:line, in subprocess.Popen.communicate"."""
        return f"{self.call_site}, in {self.inside}" if self.inside else self.call_site


def split_place(text: str) -> tuple[str, str]:
    """("file:line", "subprocess.Popen.communicate") of a place as text."""
    found = _TEXT.fullmatch(text)
    return (found[1], found[2]) if found else (text, "")


_TEXT = re.compile(r"(.*:\d+), in (\S+)", re.DOTALL)


def place_in(frames: Iterable[FrameType]) -> Place | None:
    """The place that frames, from the inside out, show; None if there are none."""
    inner: list[FrameType] = []
    for frame in frames:
        if _rank(frame) == USERS:
            return Place(frame, _name(inner))
        inner.append(frame)
    if not inner:
        return None
    frame = min(inner, key=_rank)
    return Place(frame, _name(inner[: inner.index(frame)]))


def _name(inner: list[FrameType]) -> str:
    """Of a library's frames inside the user's line: the innermost public function; of what only waits, the outermost.

    What Ray's functions, or ours, do inside is not named.
    """
    first = max((at + 1 for at, frame in enumerate(inner) if _rank(frame) in (RAYS, OURS)), default=0)
    public = [frame for frame in inner[first:] if _is_public(frame.f_code.co_qualname)]
    works = [frame for frame in public if _rank(frame) != WAITS]
    if not public:
        return ""
    frame = works[0] if works else public[-1]
    named = str(frame.f_globals.get("__name__", "")).split(".")
    module = [part for part in named if not part.startswith("_") and part != "distributed_c10d"]
    return ".".join([*(module[:1] if module[:1] == ["asyncio"] else module), frame.f_code.co_qualname])


def _is_public(name: str) -> bool:
    return all(part.isidentifier() and not part.startswith("_") for part in name.split("."))


def outward(frame: FrameType | None) -> Iterator[FrameType]:
    """A frame and those that have called it, from the inside out."""
    while frame is not None:
        yield frame
        frame = frame.f_back


def place(frame: FrameType | None) -> Place | None:
    """Where a thread with this innermost frame is; None if all its frames are Ray's, ours, or only wait."""
    found = place_in(outward(frame))
    return None if found is None or _rank(found.frame) > STANDARD else found


def _short_way(frame: FrameType | None) -> str | None:
    """The place, as text, where no library stands inside the user's line; None if another way must be gone. Of every wait."""
    while frame is not None:
        file = frame.f_code.co_filename
        if (rank := rank_of(file)) not in (RAYS, OURS):
            return f"{file}:{frame.f_lineno}" if rank == USERS else None
        frame = frame.f_back
    return None


def call_site(frame: FrameType | None) -> str | None:
    """ "file:line" of that place."""
    if (text := _short_way(frame)) is not None:
        return text
    found = place(frame)
    return None if found is None else found.call_site


def call_site_here() -> str | None:
    """ "file:line" of where the program is that called us."""
    return call_site(sys._getframe(1))


def place_here() -> str:
    """Where the program is that called us, as text; "" if that is not known."""
    frame = sys._getframe(1)
    return _short_way(frame) or str(place(frame) or "")


_STOPS_IF_COLLECTED = sys.version_info < (3, 11, 9)
_LOOKING = threading.RLock()


def frames_of_threads() -> dict[int, FrameType]:
    """The innermost frame of each thread of this process but the one that asks.

    Who held its own frame would leave a cycle, and with it whatever the frames of the app hold. Up to Python 3.11.8 the whole
    process stops for good if garbage is collected meanwhile: it holds the interpreter's list of threads (cpython issue 106883).
    There collection waits the microseconds that this takes.
    """
    if not _STOPS_IF_COLLECTED:
        return _of_others(sys._current_frames())
    with _LOOKING:
        if not gc.isenabled():
            return _of_others(sys._current_frames())
        gc.disable()
        try:
            return _of_others(sys._current_frames())
        finally:
            gc.enable()


def _of_others(frames: dict[int, FrameType]) -> dict[int, FrameType]:
    del frames[threading.get_ident()]
    return frames


def place_of(thread: int) -> Place | None:
    """Where a thread of this process is."""
    return place(sys._getframe(1) if thread == threading.get_ident() else frames_of_threads().get(thread))


def call_site_of(thread: int) -> str | None:
    """ "file:line" of that place."""
    found = place_of(thread)
    return None if found is None else found.call_site
