"""When are two worlds of acting machines the same? Hashable values, equal for worlds that will behave alike."""

from __future__ import annotations

from collections.abc import Hashable

from ray_snapshot.simulation.mail import fingerprints
from ray_snapshot.simulation.mail.fingerprints import carried_mark
from worlds.mail.actions import ActingHost
from worlds.mail.world import World


def fingerprint(world: World) -> Hashable:
    """Everything that the future of the world, and the oracle's opinion of its past, depend on."""
    return (
        fingerprints.fingerprint(world),
        tuple(_running(host) for _, host in sorted(world.hosts.items())),
        tuple(sorted(map(repr, map(carried_mark, world.network.lost)))),
        repr(sorted(world.waits.replies.items())),
    )


def _running(host: ActingHost) -> Hashable:
    return host.running and (host.running.machine.name, repr(host.running.outputs))
