"""When are two worlds of a search the same? What no future depends on, nor the oracle, is made equal, or left out.

That is: in which order the parts of a snapshot came, what a host that is dead still holds, the cuts of snapshots that were
given up; and what is over and never asked for again. Everything else is in the `mark`.
Imports the standard library only.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable
from typing import Any

from ray_snapshot.simulation.mail.hosts import SimHost, Step
from worlds.mail.sharing import OnItsWay, SharedWorld
from worlds.mail.world import World


def mark(world: SharedWorld, dead: str | None = None) -> int:
    """Equal for worlds that will behave alike, and of which the oracle thinks alike; `dead`: as if this host had died."""
    alive = tuple((name, kept.mark) for name, kept in world.kept.items() if name != dead and not kept.host.is_down)
    parts = [
        (number, tuple(sorted([part.text for part in found]))) for number, found in sorted(world.central.parts.items())
    ]
    return hash(
        (
            alive,
            tuple(sorted(_on_links(world))),
            tuple(sorted([_told(message) for message in world.control])),
            tuple(sorted(world.central.coordinator.pending)),
            tuple(world.central.coordinator.hosts),
            tuple(parts),
            tuple(sorted([recorded.text for recorded in world.central.completed])),
            _histories(world),
        )
    )


def _on_links(world: SharedWorld) -> list[Any]:
    """What is on its way, link by link, in its order."""
    links: dict[tuple[str, str], list[Any]] = defaultdict(list)
    for carried in world.network.batches:
        assert isinstance(carried, OnItsWay)
        links[carried.source, carried.target].append((carried.batch[1], carried.text))
    return [
        (link, tuple(batches) if world.rules.is_fifo else tuple(sorted(batches))) for link, batches in links.items()
    ]


def _told(message: Step) -> Step:
    return (*message[:2], message[2].text) if message[0] == "part" else message


def _histories(world: World) -> Hashable:
    """What each machine did: how the actions of different machines interleave does not matter; and the cuts."""
    done: dict[str, list[Hashable]] = defaultdict(list)
    for action in world.log.actions:
        done[action.machine].append((action.accepted, action.choice, tuple(action.sent)))
    given_up = {aborted.number for aborted in world.central.aborted}
    cuts = [(number, sorted(cut.items())) for number, cut in sorted(world.log.cuts.items()) if number not in given_up]
    return tuple((name, tuple(actions)) for name, actions in sorted(done.items())), repr(cuts)


# ---- what is asked for no more ------------------------------------------------------------------------------------------


def forget(world: SharedWorld) -> None:
    """Forget what is asked for no more.

    That is what was reported of snapshots that are over; and which are over, of those that a host has recorded and that no
    control message is on its way for.
    """
    told = {message[1:3] for message in world.control}
    for name in world.hosts:
        _forget(world, name, told)


def _forget(world: SharedWorld, name: str, told: set[Step]) -> None:
    host = world.hosts[name]
    closed = [
        number for number in host.core.closed if (name, number) not in told and is_stale(world, ("abort", name, number))
    ]
    late_count = host.late_count if world.central.coordinator.pending else 0
    if closed or late_count != host.late_count or not host.reported <= host.core.open.keys():
        world.change(name, ("forgets", *closed, late_count), lambda host: _forget_on(host, closed, late_count))


def _forget_on(host: SimHost, closed: list[int], late_count: int) -> None:
    host.reported &= host.core.open.keys()
    host.late_count = late_count
    for number in closed:
        host.core.closed.remove(number)


def is_stale(world: World, message: Step) -> bool:
    """A control message to a host that is down, or has done what it asks."""
    kind, name, *rest = message
    core = world.hosts[name].core
    if world.hosts[name].is_down:
        return True
    if kind == "request":
        return rest[0] in core.closed or rest[0] in core.open
    return kind == "abort" and core.is_recorded(rest[0]) and not core.turning.is_white(core.colour, rest[0])
