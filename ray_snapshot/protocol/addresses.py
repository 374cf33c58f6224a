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
    to_ask: list[str] = field(default_factory=list)
    """Those names that nobody has been asked for yet."""
    stopped: set[str] = field(default_factory=set)
    """Machines, of this host and of others, that are known to have stopped."""

    def await_place(self, channel: OutChannel) -> None:
        """A channel leads to a name that is not known."""
        waiting = self.unresolved.get(channel.target)
        if waiting is None:
            self.unresolved[channel.target] = [channel]
            self.to_ask.append(channel.target)
        else:
            waiting.append(channel)

    def take_unresolved(self) -> list[str]:
        """Names to look up, each named once."""
        taken, self.to_ask = self.to_ask, []
        return [name for name in taken if name in self.unresolved]

    def found(self, name: str) -> Iterable[OutChannel]:
        """A name is known now; returns the channels that waited for it."""
        return self.unresolved.pop(name, ())
