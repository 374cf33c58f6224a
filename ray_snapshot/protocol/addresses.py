"""What one host knows of names: where machines live, which names it does not know yet, and which machines have stopped.

Imports the standard library only.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ray_snapshot.protocol.parts import OutChannel


@dataclass(slots=True)
class Addresses:
    """Those of one host."""

    places: dict[str, str] = field(default_factory=dict)
    """Which host each known name lives on, this one excepted."""
    unresolved: dict[str, list[OutChannel]] = field(default_factory=dict)
    """By name that is not known: the channels that wait for it."""
    asked: set[str] = field(default_factory=set)
    """Names that are being looked up."""
    stopped: set[str] = field(default_factory=set)
    """Machines, of this host and of others, that are known to have stopped."""

    def take_unresolved(self) -> list[str]:
        """Names to look up, each named once."""
        fresh = [name for name in self.unresolved if name not in self.asked]
        self.asked.update(fresh)
        return fresh

    def found(self, name: str) -> Iterable[OutChannel]:
        """A name is known now; returns the channels that waited for it."""
        self.asked.discard(name)
        return self.unresolved.pop(name, ())
