"""How much a process has worked: its processor time and what it has read, with its children, less what recording takes.

Children that were there before the watching (Ray's own processes, in the driver) are left out. Reads `/proc`; where there is
none, only the process's own time counts.
"""

from __future__ import annotations

import math
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ray_snapshot.instrument.process.kernel_waits import children
from ray_snapshot.limits import LIMITS

_TICKS = os.sysconf("SC_CLK_TCK")


class Usage(NamedTuple):
    """So far."""

    at: float
    cpu_s: float = 0.0
    read_bytes: int = 0


class Meter:
    """Of this process."""

    def __init__(self) -> None:
        self.recording_s = 0.0
        """Processor time that recording has taken."""
        self.before = frozenset(children())
        self.latest = Usage(-math.inf)

    def usage(self, now: float) -> Usage:
        """As it was at most `usage_look_s` ago."""
        if now - self.latest.at >= LIMITS.usage_look_s:
            cpu_s, read_bytes = time.process_time() - self.recording_s, _read_bytes("self")
            for pid in self._descendants():
                cpu_s += _cpu_s(pid)
                read_bytes += _read_bytes(pid)
            self.latest = Usage(now, cpu_s, read_bytes)
        return self.latest

    def _descendants(self) -> list[int]:
        """Its children and theirs, about `measured_children` at most."""
        found = [pid for pid in children() if pid not in self.before]
        for pid in found:
            if len(found) < LIMITS.measured_children:
                found += children(pid)
        return found


def _cpu_s(pid: int) -> float:
    with suppress(OSError):
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
        return sum(map(int, words[11:15])) / _TICKS  # its own, and that of its children that have ended
    return 0.0


def _read_bytes(pid: int | str) -> int:
    with suppress(OSError):
        return int(Path(f"/proc/{pid}/io").read_text().split()[1])
    return 0
