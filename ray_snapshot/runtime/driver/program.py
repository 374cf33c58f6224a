"""The threads of the driver's program: which of them act for the driver, and which rest.

The driver is active as long as one that has sent something does not rest: in `wait_for` (then it is passive), or in `ray.get`
or at a full mailbox (then it is blocked).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ray_snapshot.protocol.host import Machine
from ray_snapshot.runtime.here import HERE
from ray_snapshot.runtime.report import BodyCopy
from ray_snapshot.runtime.waits import TrackedWait
from ray_snapshot.waits import SEE_WAITS


@dataclass(slots=True)
class Held:
    """A thread of the driver is held at full mailboxes."""

    targets: tuple[str, ...]
    since: float
    bound: int

    @property
    def short_form(self) -> tuple[str, int, tuple[str, ...]]:
        return "all", len(self.targets), self.targets

    def rows(self, alternative: int) -> list[dict[str, Any]]:
        common = {
            "alternative": alternative,
            "k": len(self.targets),
            "bound": self.bound,
            "waiting_since": int(self.since * 1e6),
        }
        return [{"on_machine": name, **common} for name in self.targets]


class Program:
    """The threads of one driver's program; `lock` is its process's."""

    def __init__(self, lock: Any, *, checkpoint: bool) -> None:
        self.lock = lock
        self.checkpoint = checkpoint
        self.senders = {threading.get_ident()}
        """Threads that act for the driver: the one that opened the system, and each that has sent something."""
        self.resting: dict[int, TrackedWait | Held | None] = {}
        """Threads that wait; None: in `wait_for`."""

    def acts(self) -> None:
        """This thread sends."""
        thread = threading.get_ident()
        if thread not in self.senders:
            with self.lock:
                self.senders.add(thread)

    def begin_wait(self, wait: TrackedWait) -> int | None:
        """This thread begins to wait; with a timeout, or for something foreign, it stays active."""
        if wait.may_act:
            return None
        thread = threading.get_ident()
        with self.lock:
            self.resting[thread] = wait
        HERE.is_waiting = True
        return thread

    def end_wait(self, thread: int | None) -> None:
        """The wait is over."""
        if thread is not None:
            HERE.is_waiting = False
            with self.lock:
                self.resting.pop(thread, None)

    @contextmanager
    def rest(self) -> Iterator[None]:
        """Inside `wait_for`: this thread sends nothing until something holds."""
        thread = threading.get_ident()
        with self.lock:
            self.resting[thread] = None
        try:
            yield
        finally:
            with self.lock:
                self.resting.pop(thread, None)

    def copy(self, machine: Machine) -> BodyCopy:  # noqa: ARG002 - there is only one
        """What a snapshot holds of the driver: no state of its own; under the lock."""
        found = BodyCopy("driver", "active", None)
        alive = {thread.ident for thread in threading.enumerate()}
        acting = [thread for thread in self.senders if thread in alive]
        if any(thread not in self.resting for thread in acting):
            return found
        blocking = [rest for rest in map(self.resting.get, acting) if rest is not None]
        found.status = "blocked" if blocking else "passive"
        found.waits = [row for alternative, rest in enumerate(blocking) for row in rest.rows(alternative)]
        found.calls = [
            {"method": "(the driver's program)", "holds_slot": True, "call_site": getattr(rest, "call_site", None)}
            for rest in blocking
        ]
        if len(blocking) == 1:
            found.short_wait = blocking[0].short_form
        elif blocking:
            found.short_wait = SEE_WAITS, None, tuple(dict.fromkeys(row["on_machine"] for row in found.waits))
        calls = [rest.call_site for rest in blocking if isinstance(rest, TrackedWait)]
        if calls and self.checkpoint:
            found.obstacle = f"it waits inside its script, at {calls[0]}"
        return found
