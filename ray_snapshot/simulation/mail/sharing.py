"""Hosts that many worlds of one search have in common: a search makes a world for each step, and a step changes one host.

A host that is kept (`FrozenHost`) never changes any more. What comes of a step is another one, and a world is a handful of
references to them. Two hosts are the same here if their pickles are. Imports the standard library only.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

from ray_snapshot.protocol.barrier_host import BarrierCore
from ray_snapshot.simulation.mail.fingerprints import host_fingerprint
from ray_snapshot.simulation.mail.hosts import SimHost, Step

TO_A_HOST = ("request", "close", "abort")
"""Control messages that change the host they go to."""


@dataclass(slots=True, eq=False)
class FrozenHost:
    """A host that never changes any more, and what has come of the steps it has taken so far."""

    host: SimHost
    """To be read only."""
    pickled: bytes
    mark: int
    """Equal for hosts whose futures are alike (`fingerprints`)."""
    steps: list[Step] | None = None
    changes: dict[Hashable, Any] = field(default_factory=dict)
    """By the step, with all that reached the host in it: its `Change`; `testing.hosted_sharing` keeps others here."""


class Keeper:
    """The hosts that the worlds of one search are made of, each kept once."""

    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        """`clock`: what a kept host is told under barriers, if it asks for the time."""
        self.clock = clock or _no_time
        self.hosts: dict[bytes, FrozenHost] = {}
        self.marks: dict[Hashable, int] = {}

    def kept(self, host: SimHost) -> FrozenHost:
        """The host as it is now; its holder must not change it any more."""
        if isinstance(host.core, BarrierCore):
            host.core.on_record, host.core.clock = _too_late, self.clock
        pickled = pickle.dumps(host, pickle.HIGHEST_PROTOCOL)
        found = self.hosts.get(pickled)
        if found is None:
            mark = self.marks.setdefault(host_fingerprint(host), len(self.marks))
            found = self.hosts[pickled] = FrozenHost(host, pickled, mark)
        return found


def _too_late(*_: Any) -> None:
    raise AssertionError("a host that is kept, for other worlds have it too, was about to record")


def _no_time() -> float:
    return 0.0
