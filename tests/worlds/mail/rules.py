"""What a world of pure functions is like, beside the rules of the simulator.."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from ray_snapshot.protocol.choosing import BARRIERS
from ray_snapshot.protocol.host import HostCore
from ray_snapshot.protocol.observer import LooseInbox, LooseInLink
from ray_snapshot.simulation.mail.rules import Rules


@dataclass(frozen=True, kw_only=True)
class WorldRules(Rules):
    """With `knows_places`, every host knows from the start where each machine lives, else it asks. With `is_atomic`, an action
    is one step."""

    knows_places: bool = True
    is_atomic: bool = False

    def red_for(self, last: int) -> Any:
        """The colour of what is born after the snapshot `last`; None: white."""
        colours = self.colours()
        return colours.recorded(colours.white, (last,)) if last else None

    def core(
        self, host: str, born: Any, open_at_birth: Iterable[int], barriers: dict[str, Any], **options: Any
    ) -> HostCore:
        """A host without its world; `barriers`: what it calls under a barrier protocol."""
        if not self.is_fifo:
            options["in_link"] = LooseInLink
            if self.protocol not in BARRIERS:
                options["inbox"] = LooseInbox
        return super().core(host, born, open_at_birth, barriers, **options)


@dataclass(slots=True)
class Declared:
    """What was said of channels before the machines run."""

    channels: list[tuple[str, str]] = field(default_factory=list)
    """By `connect`."""
    sources: dict[str, dict[str, tuple[str, ...]]] = field(default_factory=dict)
    """By machine and port: who is declared to send to it."""

    def declare(self, source: str, target: str, port: str) -> None:
        """`source` sends to that port; what is declared is all that the target is ever sent."""
        ports = self.sources.setdefault(target, {})
        ports[port] = tuple(dict.fromkeys((*ports.get(port, ()), source)))
