"""Calls whose refs other processes have passed on to this one: their replies may wake what is parked here."""

from __future__ import annotations

from ray_snapshot.limits import LIMITS
from ray_snapshot.protocol.calls import parsed


class PassedRefs:
    """Used under the lock of the process."""

    def __init__(self) -> None:
        self._calls: dict[str, None] = {}
        self._machines: dict[str, None] = {}

    def add(self, call_id: str) -> None:
        """A ref to the reply of this call has come."""
        self._calls[call_id] = None
        if len(self._calls) > LIMITS.passed_refs:
            oldest = next(iter(self._calls))
            del self._calls[oldest]
            self._machines[parsed(oldest).target] = None

    def known(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The latest calls, in the order in which they came; and the machines that answer older ones."""
        return tuple(self._calls), tuple(self._machines)
