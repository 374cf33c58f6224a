"""What is served: histories, each under a short name of its own, and the systems that run."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from ray_snapshot.errors import HistoryNotFoundError
from ray_snapshot.glances import Glance
from ray_snapshot.history import History
from ray_snapshot.web.kept import Kept

DRAW_S = 10.0


@dataclass(frozen=True, slots=True)
class Place:
    """A history, as its addresses name it."""

    key: str
    history: History


@dataclass(frozen=True, slots=True)
class Running:
    """A system that runs, as it said last."""

    name: str
    about: dict[str, Any]
    """What `Service.glance` answers."""
    glances: Sequence[Glance]
    """Of its last snapshots, the latest last."""
    place: str | None = None
    """The key of its history, where that can be read from here."""
    trouble: str = ""
    """Why it could not be asked."""


class Live(Protocol):
    """Who asks running systems."""

    def systems(self) -> list[Running]:
        """Those that run, by name."""

    def not_asked(self) -> list[str]:
        """What could not be asked, and why."""


@dataclass
class Served:
    """Everything that pages read from."""

    live: Live | None = None
    root: str = ""
    """What stands before every path, where a proxy puts the pages into a folder."""
    places: dict[str, Place] = field(default_factory=dict)
    kept: Kept = field(default_factory=Kept)
    _drawn: dict[str, tuple[str, float]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, path: str | Path) -> Place:
        """Serve this history, too; raises as `History` does."""
        history = History(path)
        with self._lock:
            for place in self.places.values():
                if place.history.path == history.path:
                    return place
            found = Place(_free_key(history.path.name, self.places), history)
            self.places[found.key] = found
        return found

    def place(self, key: str) -> Place:
        """The history of this name; raises `HistoryNotFoundError`."""
        if key not in self.places:
            known = ", ".join(self.places) or "none"
            raise HistoryNotFoundError(f"no history {key!r} is served here; there are: {known}", path=key)
        return self.places[key]

    def drawn(self, system: str, snapshot_id: str) -> str:
        """Up to which snapshot the charts of a running system are drawn: they are drawn anew every `DRAW_S` at most."""
        with self._lock:
            last, at = self._drawn.get(system, ("", float("-inf")))
            if time.monotonic() - at > DRAW_S:
                last = snapshot_id
                self._drawn[system] = last, time.monotonic()
            return last

    def running(self) -> list[Running]:
        """The systems that run."""
        return [] if self.live is None else self.live.systems()


def _free_key(name: str, taken: Iterable[str]) -> str:
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.")[:60] or "history"
    key, number = plain, 1
    while key in taken:
        number += 1
        key = f"{plain}-{number}"
    return key
