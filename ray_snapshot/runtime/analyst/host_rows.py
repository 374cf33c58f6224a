"""The hosts of a system that keep rows: an analyst talks to them, and so does the writer of its history (`host_files.Hosts`).

Imports no Arrow: Ray imports the analyst's module in every process that gets a handle of it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import ray

from ray_snapshot.runtime import waits
from ray_snapshot.runtime.faults import first_line
from ray_snapshot.runtime.kept_rows import KeptRows

if TYPE_CHECKING:
    from ray_snapshot.history.host_files import Given, Wanted

TELL_S = 0.25
"""So long a host may keep rows of snapshots that are judged; it keeps them for seconds more in any case."""


class HostsWithRows:
    """Those that have kept rows of a snapshot; used by several threads.

    Which snapshots are judged is told in one call a host, of all that have come within `TELL_S`.
    """

    def __init__(self, later: Callable[[Callable[[], None]], object]) -> None:
        """`later`: calls what it is given, `TELL_S` from now."""
        self.actors: dict[str, Any] = {}
        self._later = later
        self._lock = threading.Lock()
        self._judged: dict[str, list[int]] = {}
        """By host: the numbers of judged snapshots that it has not been told yet."""

    def know(self, kept: KeptRows) -> None:
        """A snapshot has come of which these hosts have rows."""
        self.actors.update(kept.hosts)

    def ask(self, wanted: Sequence[Wanted], seconds: float) -> list[Given]:
        """What they answer, all at the same time; one that is gone has lost its rows."""
        from ray_snapshot.history.host_files import Given

        refs = [self.actors[one.host].own_part.remote(one) for one in wanted]
        ready, _ = ray.wait(refs, num_returns=len(refs), timeout=seconds)
        there = set(ready)
        return [
            _answer(ref, one.host) if ref in there else Given(is_late=True)
            for ref, one in zip(refs, wanted, strict=True)
        ]

    def judged(self, kept: KeptRows) -> None:
        """All verdicts on a snapshot are there: nobody but the program may ask for its rows any more."""
        with self._lock:
            is_first = not self._judged
            for host in kept.hosts:
                self._judged.setdefault(host, []).append(kept.number)
        if is_first:
            self._later(lambda: self.release({}))

    def release(self, settled: Mapping[str, Sequence[int]]) -> None:
        """By host: the numbers of snapshots whose rows need not be kept for the history any more. They hear it at once: an
        analyst that takes this one's place would not tell them."""
        with self._lock:
            judged, self._judged = self._judged, {}
        for host in {**judged, **settled}:
            with suppress(Exception):  # Ray raises of many kinds where a host is gone
                self.actors[host].through_with.remote(judged.get(host, []), list(settled.get(host, [])))


def _answer(ref: Any, host: str) -> Given:
    from ray_snapshot.history.host_files import Given

    try:
        found: Given = waits.raw_get(ref)
        return found
    except Exception as error:  # of many kinds, where an actor is gone
        return Given(lost=f"{host} could not give its rows to the history: {first_line(error)}")
