"""How much a process has worked: its processor time and what it has read, with its children, less what recording takes.

Ray's own processes, which are children of the driver, are left out.
"""

from __future__ import annotations

import math
import os
import time
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ray_snapshot.instrument import shape
from ray_snapshot.instrument.process.ended_children import EndedChild, ended_children
from ray_snapshot.instrument.process.kernel_waits import children, lists_children, program_of
from ray_snapshot.limits import LIMITS


class Usage(NamedTuple):
    """So far."""

    at: float
    cpu_s: float
    read_bytes: int


class Meter:
    """Of this process. It looks at children every `usage_look_s`."""

    def __init__(self) -> None:
        self.recording_s = 0.0
        """Processor time that recording has taken."""
        self.looked_at = -math.inf
        self.usage: Usage | None = None
        """None where the kernel does not list children: what they do is not known."""
        self.ended: tuple[EndedChild, ...] = ()
        self.living: dict[int, EndedChild] = {}
        """The children of the latest look, as what is told of those that are gone by the next one."""
        self.gone: deque[EndedChild] = deque(maxlen=LIMITS.raised_errors)

    def look(self, now: float) -> None:
        """Look again if it is time."""
        if now - self.looked_at < LIMITS.usage_look_s or not lists_children():
            return
        self.looked_at, rays = now, shape.processes_of_node()
        own = [pid for pid in children() if pid not in rays][: LIMITS.measured_children]
        found, times, ticks = list(own), os.times(), os.sysconf("SC_CLK_TCK")
        cpu_s = time.process_time() - self.recording_s + times.children_user + times.children_system
        read_bytes = _read_bytes("self")
        for pid in found:
            cpu_s += _ticks(pid) / ticks
            read_bytes += _read_bytes(pid)
            if len(found) < LIMITS.measured_children:
                found += children(pid)
        self.usage = Usage(now, cpu_s, read_bytes)
        self.gone += (one for pid, one in self.living.items() if pid not in own)
        self.ended = ended_children(own)
        self.living = {pid: EndedChild(pid, name, "", now) for pid in own if (name := _program(pid))}


def _program(pid: int) -> str:
    with suppress(OSError):
        return program_of(pid)
    return ""


def _ticks(pid: int) -> int:
    """Of its own, and of its children that have ended."""
    with suppress(OSError):
        words = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b") ")[2].split()
        return sum(map(int, words[11:15]))
    return 0


def _read_bytes(pid: int | str) -> int:
    with suppress(OSError):
        return int(Path(f"/proc/{pid}/io").read_bytes().split()[1])
    return 0
