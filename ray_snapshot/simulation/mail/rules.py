"""What a simulated world is like: its protocol, its channels, and what was declared of them before the machines run.

Imports the standard library only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from ray_snapshot.protocol.choosing import BARRIERS, CHANDY_LAMPORT, core_for
from ray_snapshot.protocol.colours import Colours, Numbered
from ray_snapshot.protocol.host import BOUND, HostCore
from ray_snapshot.protocol.links import InLink
from ray_snapshot.protocol.mailbox import Inbox
from ray_snapshot.protocol.observer import LooseInbox, LooseInLink
from ray_snapshot.simulation.mail.hosts import state_of


@dataclass(frozen=True, kw_only=True)
class Rules:
    """What a world that is restored from another has in common with it.

    With `knows_places`, every host knows from the start where each machine lives, else it asks. With `is_atomic`, an action is
    one step. Unless `is_fifo`, channels and links reorder.
    """

    protocol: str = CHANDY_LAMPORT
    is_fifo: bool = True
    colours: Callable[[], Colours] = Numbered
    bound: int = BOUND
    window: int = 2
    most_open: int = 4
    knows_places: bool = True
    is_atomic: bool = False

    def red_for(self, last: int) -> Any:
        """The colour of what is born after the snapshot `last`; None: white."""
        colours = self.colours()
        return colours.recorded(colours.white, (last,)) if last else None

    def core(self, host: str, born: Any, open_at_birth: Iterable[int], barriers: dict[str, Any]) -> HostCore:
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
            in_link=InLink if self.is_fifo else LooseInLink,
            turning=None,
            life=0,
            **({} if self.protocol in BARRIERS else {"inbox": Inbox if self.is_fifo else LooseInbox}),
        )


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
