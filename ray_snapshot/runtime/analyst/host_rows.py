"""The hosts of a system, as the writer of its history asks them for rows (`history.host_files.Hosts`).

Imports no Arrow: Ray imports the analyst's module in every process that gets a handle of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import ray

from ray_snapshot.runtime import waits
from ray_snapshot.runtime.faults import first_line
from ray_snapshot.runtime.kept_rows import KeptRows

if TYPE_CHECKING:
    from ray_snapshot.history.host_files import Given, Wanted


class HostsThatWrite:
    """Those that have kept rows of a snapshot; used by several threads."""

    def __init__(self) -> None:
        self.actors: dict[str, Any] = {}

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

    def release(self, settled: Mapping[str, Sequence[int]]) -> None:
        """By host: the numbers of snapshots whose rows need not be kept for the history any more."""
        for host, numbers in settled.items():
            self.actors[host].settled.remote(list(numbers))


def _answer(ref: Any, host: str) -> Given:
    from ray_snapshot.history.host_files import Given

    try:
        found: Given = waits.raw_get(ref)
        return found
    except Exception as error:  # of many kinds, where an actor is gone
        return Given(lost=f"{host} could not give its rows to the history: {first_line(error)}")
