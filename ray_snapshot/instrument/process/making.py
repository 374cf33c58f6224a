"""What a process is starting: tasks and actors that are not in its ledger yet, and actors whose constructors may not have
begun."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

from ray_snapshot.limits import LIMITS
from ray_snapshot.protocol.calls import CONSTRUCTOR, MachineReport


def _given_up(lock: Any) -> int:
    """Release a re-entrant lock as often as this thread holds it; returns how often that was."""
    depth = 0
    while lock._is_owned():
        lock.release()
        depth += 1
    return depth


class Making:
    """Used under the lock of the process."""

    def __init__(self) -> None:
        self.under_way: list[int] = []
        """The threads that start an actor or a task that is not yet in the ledger, so this is no boundary."""
        self.is_less = threading.Event()
        """Set when one of them was started."""
        self.is_awaited = False
        self.births: dict[str, Mapping[str, Any]] = {}
        """By machine, what names it (`class`, `name`, `ordinal`), and its `key` in Ray."""
        self._made: Counter[str] = Counter()

    def begin(self) -> None:
        """This thread starts one."""
        self.under_way.append(threading.get_ident())

    def end(self) -> None:
        """It was started."""
        self.under_way.remove(threading.get_ident())
        if self.is_awaited:
            self.is_less.set()

    def wait_for_others(self, lock: Any) -> None:
        """Wait until other threads have started theirs, up to `starting_threads_s`; `lock` is given up for the time."""
        deadline = time.monotonic() + LIMITS.starting_threads_s
        self.is_awaited = True
        while {*self.under_way} - {threading.get_ident()} and time.monotonic() < deadline:
            self.is_less.clear()
            depth = _given_up(lock)
            try:
                self.is_less.wait(max(0.0, deadline - time.monotonic()))
            finally:
                for _ in range(depth):
                    lock.acquire()

    def ordinal(self, class_name: str) -> int:
        """Which of the actors of its class that this process makes the next one is, from 0."""
        self._made[class_name] += 1
        return self._made[class_name] - 1

    def made(self, machine: str, birth: Mapping[str, Any]) -> None:
        """`birth`: what the maker knows of it (`shape.options_of`, its ordinal, and its key)."""
        about = {"name": birth["name"], "ordinal": birth["ordinal"], "key": birth["key"]}
        self.births[machine] = {"class": birth["kind"], **about}

    def unborn(self, report: MachineReport) -> dict[str, Mapping[str, Any]]:
        """Those whose constructors are in the sender's log; the others are forgotten."""
        logged = [output.target for output in report.outputs if CONSTRUCTOR in output.log]
        self.births = {name: self.births[name] for name in logged if name in self.births}
        return dict(self.births)
