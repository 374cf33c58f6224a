"""What a simulated world is like: its protocol, and its bounds. Imports the standard library only."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from ray_snapshot.protocol.choosing import CHANDY_LAMPORT, core_for
from ray_snapshot.protocol.colours import Colours, Numbered
from ray_snapshot.protocol.host import BOUND, HostCore
from ray_snapshot.simulation.mail.hosts import state_of


@dataclass(frozen=True, kw_only=True)
class Rules:
    """What a world that is restored from another has in common with it. Unless `is_fifo`, channels and links reorder."""

    protocol: str = CHANDY_LAMPORT
    is_fifo: bool = True
    colours: Callable[[], Colours] = Numbered
    bound: int = BOUND
    window: int = 2
    most_open: int = 4

    def core(
        self, host: str, born: Any, open_at_birth: Iterable[int], barriers: dict[str, Any], **options: Any
    ) -> HostCore:
        """A host without its world; `barriers`: what it calls under a barrier protocol."""
        return core_for(
            self.protocol,
            host,
            colours=self.colours(),
            born=born,
            barriers=barriers,
            copy_body=state_of,
            bound=self.bound,
            open_at_birth=open_at_birth,
            **options,
        )
