"""One process that goes back, without Ray: its actor's own hooks, its threads, and what it is told meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from test_a_process_alone import BOUND_S, Silent

from ray_snapshot.instrument.calls import watched_class
from ray_snapshot.instrument.here import settle_in
from ray_snapshot.instrument.process import Process
from ray_snapshot.instrument.reloading import Terms
from ray_snapshot.protocol.calls import CallLedger


@pytest.fixture
def process() -> Iterator[Process]:
    found = Process("app:1", Silent(), CallLedger("A"), {}, Terms(keeps=True))
    settle_in(found)
    yield found
    found.is_closed = True
    found.control.end()
    found.control.thread.join(BOUND_S)
    settle_in(None)


class Hooked:
    """Says itself what its state is."""

    def __init__(self) -> None:
        self.count = 5

    def add(self) -> None:
        """Count."""
        self.count += 1

    def read(self) -> int:
        """What it has counted."""
        return self.count

    def snapshot_state(self) -> int:
        """The state."""
        return self.read()

    def restore_state(self, state: int) -> None:
        """Take it back."""
        self.count = state


class Asking:
    """Asks itself for its state."""

    def __init__(self) -> None:
        self.count = 5

    def add(self) -> None:
        """Count."""
        self.count += 1

    def read(self) -> int:
        """What it has counted."""
        return self.count

    def __getstate__(self) -> dict[str, Any]:
        return {"count": self.read()}


@pytest.mark.parametrize("kind", [Hooked, Asking])
def test_an_actors_own_hooks_are_no_calls_that_begin(process: Process, kind: Any) -> None:
    """They run where calls do, between two of them; one that began there would record again, and again."""
    body = process.body = watched_class(kind)()
    process.ledger.request(1)
    body.add(_ray_snapshot_header=b"app:1 1 driver 0 0 1 0 1")
    recorded = process.reports[1]
    assert recorded.kept is not None
    assert (recorded.kept.obstacle, recorded.report.calls) == (None, ())
    assert (body.count, process.is_closed) == (6, False)
