"""Child processes that have ended badly while the app has not asked how: what waits for their work waits in vain.

The kernel keeps how a child has ended until its parent asks; it is read here without asking for it.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ray_snapshot.instrument.process.kernel_waits import children
from ray_snapshot.limits import LIMITS


class EndedChild(NamedTuple):
    """A child process."""

    pid: int
    program: str
    """Its name, as the kernel has it."""
    how: str
    """ "exit code 1", "signal 9 (Killed)"."""


def ended_children() -> tuple[EndedChild, ...]:
    """Those of this process; none of the other kind, and none where there is no `/proc`."""
    if _ended(os.P_ALL, 0) is None:
        return ()
    found: list[EndedChild] = []
    for pid in children():
        with suppress(OSError):  # its parent has asked meanwhile
            if (how := _ended(os.P_PID, pid)) and len(found) < LIMITS.raised_errors:
                found.append(EndedChild(pid, Path(f"/proc/{pid}/comm").read_text().strip(), how))
    return tuple(found)


def _ended(kind: int, pid: int) -> str | None:
    """How a child, or any, has ended, in words; "" if well, None if none has."""
    try:
        told = os.waitid(kind, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
    except OSError:
        return None
    if told is None:
        return None
    if told.si_code == os.CLD_EXITED:
        return f"exit code {told.si_status}" if told.si_status else ""
    return f"signal {told.si_status} ({signal.strsignal(told.si_status)})"
