"""Child processes that have ended while the app has not asked how: what waits for their work waits in vain.

The kernel keeps how a child has ended until its parent asks; it is read here without asking for it.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple

from ray_snapshot.instrument.process.kernel_waits import program_of
from ray_snapshot.limits import LIMITS

WELL = "exit code 0"


class EndedChild(NamedTuple):
    """A child process."""

    pid: int
    program: str
    """Its name, as the kernel has it."""
    how: str
    """ "exit code 1", "signal 9 (Killed)"; "" if the app has asked, so that it is not known."""
    seen_at: float = 0.0
    """Of that one: when it was seen last."""


def ended_children(pids: Iterable[int]) -> tuple[EndedChild, ...]:
    """Those of these children of this process; at most `raised_errors`."""
    found: list[EndedChild] = []
    for pid in pids:
        with suppress(OSError):  # the app has asked meanwhile
            told = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
            if told is not None:
                found.append(EndedChild(pid, program_of(pid), _in_words(told)))
    return tuple(sorted(found, key=lambda one: one.how == WELL)[: LIMITS.raised_errors])


def _in_words(told: os.waitid_result) -> str:
    if told.si_code == os.CLD_EXITED:
        return f"exit code {told.si_status}"
    return f"signal {told.si_status} ({signal.strsignal(told.si_status)})"
