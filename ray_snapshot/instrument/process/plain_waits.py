"""Waits of the common kind: a thread in a `ray.get` of the one ref of a call, without a timeout.

Most are over within a millisecond, and no snapshot has seen them. So such a wait is a note, and becomes a wait of the ledger
only when something is recorded while it lasts, as those of `handed` and `streams` do; where the thread is, its stack tells.
Used under the lock of the process.
"""

from __future__ import annotations

from types import FrameType
from typing import NamedTuple

from ray_snapshot.instrument.process.threads import is_timer_set
from ray_snapshot.protocol.calls import CallLedger
from ray_snapshot.runtime.here import call_site, call_site_here, frames_of_threads


class PlainWait(NamedTuple):
    """One of them."""

    thread: int
    caller: str | None
    """The call that waits; None: the program itself."""
    on: str
    """The call that it waits for."""
    since: float


class PlainWaits:
    """Those of one process."""

    def __init__(self) -> None:
        self.of_thread: dict[int, PlainWait] = {}

    def park(self, ledger: CallLedger) -> dict[int, int]:
        """Note all as waits, to be woken when that is recorded; returns their threads, by wait."""
        frames = frames_of_threads() if self.of_thread else {}
        return {note(ledger, wait, frames.get(thread)): thread for thread, wait in self.of_thread.items()}

    def end_call(self, call_id: str) -> None:
        """A call is over, and with it a wait of its that an interruption has left behind."""
        for thread in [thread for thread, wait in self.of_thread.items() if wait.caller == call_id]:
            del self.of_thread[thread]


def note(ledger: CallLedger, wait: PlainWait, frame: FrameType | None = None) -> int:
    """Note it as a wait of the ledger; returns what `wake` takes. `frame`: where its thread is; None: it is this one."""
    site = call_site_here() if frame is None else call_site(frame)
    about = (wait.caller, (wait.on,), 1, wait.since)
    return ledger.wait(*about, call_site=site or "", may_act=is_timer_set(wait.thread), raises=True)
