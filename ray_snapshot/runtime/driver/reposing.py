"""The driver's side of its repose (`protocol.repose`): whatever it does, it does inside `with acting:`, under the lock.

There the service has heard that the driver acts again, if it was in repose: one question, and its answer, before the first act.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from ray_snapshot.errors import HostDiedError, RaySnapshotError
from ray_snapshot.protocol.host import HostCore
from ray_snapshot.protocol.repose import Missed, Repose
from ray_snapshot.runtime import waits
from ray_snapshot.runtime.faults import first_line
from ray_snapshot.runtime.transport.membership import Membership

AGAIN_S = 0.05
"""How often a service that is gone, or has not begun again, is asked: another may take its place."""


class Acting:
    """The lock of one driver, for acts of its program: `with acting:`."""

    def __init__(self, member: Membership, repose: Repose, catch_up: Callable[[Missed], None], most_s: float) -> None:
        """`catch_up`: turns red for what was missed, under the lock; `most_s`: how long a service may be gone."""
        self.member = member
        self.repose = repose
        self.catch_up = catch_up
        self.most_s = most_s
        self.inside = 0
        """How many threads are inside; one that waits there (for a rollback) has given the lock away."""
        self.one_by_one = threading.Lock()

    def __enter__(self) -> None:
        lock, repose = self.member.lock, self.repose
        lock.acquire()
        while repose.is_on:
            lock.release()
            self._rouse()
            lock.acquire()
        repose.acts += 1
        self.inside += 1

    def __exit__(self, *_: object) -> None:
        self.inside -= 1
        self.member.lock.release()

    def _rouse(self) -> None:
        """Tell the service, and wait for its answer; without the lock."""
        with self.one_by_one:
            with self.member.lock:
                if not self.repose.is_on:
                    return
                turn = self.repose.begin_rousing()
            missed = self._answer(turn)
            with self.member.lock:
                if missed is not None and self.repose.is_on:
                    self.catch_up(missed)
                self.repose.roused()

    def _answer(self, turn: int) -> Missed | None:
        """What the service says; None if there is none any more, or the driver is in repose no more."""
        member, deadline = self.member, time.monotonic() + self.most_s
        while True:
            try:
                found: Missed | None = waits.answer_of(member.service.roused.remote(turn))
                if found is not None:
                    return found
                text = f"the system's service has not begun again within {self.most_s:g} s"
            except RaySnapshotError as error:
                text = f"the system's service is gone: {first_line(error)}"
            if member.is_closing or member.failure is not None or not self.repose.is_on:
                return None
            if time.monotonic() > deadline:
                member.fail(HostDiedError(text, host="service", machines=[]))
                return None
            time.sleep(AGAIN_S)


def turn_red(core: HostCore, reported: set[int], turn: Callable[[], object], missed: Missed) -> None:
    """By `turn`, for all that was missed; what was reported for the driver counts as `reported`, what is over is forgotten."""
    core.note(missed.last)  # no request: the last may have been given up, and those before not
    reported.update(set(missed.pending) - set(missed.owed))
    turn()
    for number in [number for number in core.open if number <= missed.last and number not in missed.pending]:
        core.close(number)
        reported.discard(number)


def is_still(core: HostCore) -> bool:
    """Whether all has arrived that was sent here, and nothing will be sent by itself; to be asked before a boundary."""
    for link in core.outputs.values():
        if link.in_flight or link.messages or link.dirty or any(behind for _, behind in link.segments):
            return False
    for machine in core.machines.values():
        if machine.over or any(one.held or one.timers for one in machine.outputs.values()):
            return False
    return True
