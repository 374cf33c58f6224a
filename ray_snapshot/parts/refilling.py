"""What was in flight in a snapshot is sent again by its senders: into a core that has its machines, before anything acts.

Numbering begins anew: sent again from 1, a refilled channel is an ordinary one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ray_snapshot.protocol.barrier_host import BarrierCore
from ray_snapshot.protocol.host import HostCore, OutChannel
from ray_snapshot.protocol.mailbox import MAIL, TIMER


class Created(NamedTuple):
    """A creation in flight, as its creator carries it out again."""

    creator: str
    child: str
    payload: Any
    sent_at: float


class Sent(NamedTuple):
    """A message in flight, as its source sends it again."""

    source: str
    target: str
    kind: str
    method: str
    args: Any
    sent_at: float
    due: float = 0.0
    """Of a timer: when it fires."""


def refill(
    core: HostCore,
    places: Mapping[str, str],
    creations: Iterable[Created],
    messages: Iterable[Sent],
    *,
    awaited: Iterable[tuple[str, str]] = (),
    declared: Iterable[tuple[str, str]] = (),
) -> list[tuple[OutChannel, int, float]]:
    """Open channels, carry out creations and send messages of this host's machines, channel by channel in their order.

    `places`: the host of each child, and of other names as far as they are known. `awaited`: (target, source) that barriers
    align on; `declared`: (source, target). Returns the timers that were set: channel, number, and when each fires.
    """
    for name, host in places.items():
        if host and host != core.host:
            core.resolve(name, host)
    if isinstance(core, BarrierCore):
        for target, source in awaited:
            core.await_input(target, source)
    for source, target in declared:
        if source in core.machines and core.machines[source].body is not None:
            core.channel(core.machines[source], target, MAIL)
    for creation in creations:
        core.create(creation.creator, creation.child, places[creation.child], creation.payload, creation.sent_at)
    timers = []
    for one in messages:
        machine = core.machines[one.source]
        if one.kind == TIMER:
            channel = core.set_timer(machine, one.target, one.method, one.args, one.sent_at, one.due)
            timers.append((channel, channel.sent, one.due))
        else:
            core.send(machine, one.target, one.kind, one.method, one.args, one.sent_at)
    return timers
