"""A watched process without Ray: its watcher never answers, and nothing of it is left behind."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ray_snapshot.instrument import calls
from ray_snapshot.instrument.here import CURRENT, settle_in
from ray_snapshot.instrument.process import Process
from ray_snapshot.instrument.reloading import Terms
from ray_snapshot.protocol.calls import CallLedger, Header

BOUND_S = 10.0


class Silent:
    """A watcher that never answers."""

    def __getattr__(self, name: str) -> Any:
        return self

    def remote(self, *_: Any) -> Any:
        return self

    def future(self) -> Any:
        return self

    def add_done_callback(self, _: Any) -> None:
        """It never comes."""


@contextmanager
def lone_process(ledger: CallLedger | None = None, terms: Terms | None = None) -> Iterator[Process]:
    """The process that this one takes itself for meanwhile; by default of a machine `A`."""
    found = Process("app:1", Silent(), ledger or CallLedger("A"), {}, *([terms] if terms else []))
    settle_in(found)
    try:
        yield found
    finally:
        found.is_closed = True
        found.control.end()
        found.control.thread.join(BOUND_S)
        settle_in(None)
        CURRENT.set(None)  # a call whose end a test has broken is never left


def wire(process: Process, number: int) -> bytes:
    """The header of the driver's call of that number, as it travels."""
    return calls._packed(process.system, None, Header("driver", 0, number, 0, 1))
