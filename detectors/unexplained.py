"""Waits that have lasted for long, and of which it cannot be told what ends them.

The watcher lists them in the coverage (`unexplained`): `machine`, `call_site`, `since` (ISO 8601) and `what` of each: "in
queue.Queue.get", "in subprocess.Popen.wait, for child process 17 (sleep), which is alive".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple, Protocol

from ray_snapshot.detectors.common import lasted
from ray_snapshot.names import NO_CALL
from ray_snapshot.snapshot import Snapshot

_REMEDIES = {
    NO_CALL: "No watched call gives what was made before watching began, what a process makes that is not watched, ready() of a"
    " placement group, and what ray.put has made. Ray keeps that for the refs that it has counted: give the ref itself along"
    " (as an argument, a reply, or inside one), not its bytes or its id, and let the process live that has made it.",
    "the opening of ": "Open its other end, too, if that is a named pipe: open() waits for that (not with os.O_NONBLOCK).",
    "has ended": "Wait with a timeout, and look meanwhile whether the child process lives (`poll()`, `exitcode`).",
}
"""By part of what a wait is for: what a person can do."""


class Unexplained(NamedTuple):
    """One such wait."""

    machine: str
    call_site: str
    """ "file:line"; "" if that is not known."""
    seconds: float
    what: str = NO_CALL

    def __str__(self) -> str:
        """ "driver (app.py:7) has waited for 42 s in queue.Queue.get"."""
        place = f" ({self.call_site})" if self.call_site else ""
        return f"{self.machine}{place} has waited for {lasted(self.seconds)} {self.what}"

    @property
    def in_a_tree(self) -> str:
        """Below the line of its machine: "waits in queue.Queue.get (app.py:7) for 42 s"."""
        what, comma, about = self.what.partition(", ")
        place = f" ({self.call_site})" if self.call_site else ""
        return f"waits {what}{place}{comma}{about}{comma and ','} for {lasted(self.seconds)}"

    @property
    def depends_on(self) -> str:
        """What would decide it, for the evidence of a verdict."""
        return f"what ends the wait of {self.machine} {self.what}"

    @property
    def remedies(self) -> list[str]:
        """What a person can do about it."""
        return [text for part, text in _REMEDIES.items() if part in self.what]


def unexplained(snapshot: Snapshot) -> list[Unexplained]:
    """Those of the coverage; none in most snapshots. What is of another form is left out."""
    told = snapshot.coverage.get("unexplained")
    return list(_read(snapshot.started_at, told)) if isinstance(told, list) else []


def seconds_still(snapshot: Snapshot) -> float | None:
    """For how long nothing had moved; None if the snapshot does not say that."""
    return seconds_since(snapshot.coverage.get("still_since"), snapshot.started_at)


def seconds_since(began: object, now: datetime) -> float | None:
    """From a time in ISO 8601 (without a zone: UTC) until `now`; None if it is none."""
    try:
        found = datetime.fromisoformat(began)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None
    return (now - found.replace(tzinfo=found.tzinfo or UTC)).total_seconds()


class Undecided(Protocol):
    """What makes an answer "cannot be told"."""

    @property
    def depends_on(self) -> str:
        """What would decide it."""
        ...


def remedies(waits: Iterable[Undecided]) -> list[str]:
    """What a person can do about these, as far as they say it, each once."""
    return list(dict.fromkeys(remedy for one in waits for remedy in getattr(one, "remedies", ())))


def _read(now: datetime, told: list[Any]) -> Iterator[Unexplained]:
    for one in told:
        match one:
            case {"machine": str(machine), "call_site": str(site), "since": str(since)}:
                if (seconds := seconds_since(since, now)) is None:
                    continue
                what = one.get("what")
                yield Unexplained(machine, site, seconds, what if isinstance(what, str) else NO_CALL)
