"""The same run and the same cut under every protocol: a run is recorded once, and then followed, action by action.

A run (seeded, under markers) says which action came after which, what each accepted, and where each machine recorded. To
follow it under another protocol, every machine performs the same actions in the same order and records behind the same one.
Each host has one machine and nothing is delivered before it is needed, so that what is accepted next is never in doubt. What
the protocols find in the channels must then be equal: it is the cut that decides, not who looked.

Imports the standard library only.
"""

from __future__ import annotations

import random

from ray_snapshot.protocol.choosing import CHANDY_LAMPORT, OBSERVER, PROTOCOLS
from ray_snapshot.simulation.mail.oracle import Action, Log, OracleError, RecordedSnapshot
from worlds import replay
from worlds.mail.behaviours import Purse, Wanderer
from worlds.mail.every_order import calm
from worlds.mail.schedules import check_all, check_quiet
from worlds.mail.world import World
from worlds.rollback.storms import Run, weather

LOOSE = f"{OBSERVER} over channels that reorder"
FOLLOWED = (*PROTOCOLS, LOOSE)
"""Every protocol, and the observer variant once more where nothing keeps its order."""


def recorded_run(seed: int, trace: list[str] | None = None) -> tuple[Log, list[RecordedSnapshot]]:
    """A run under markers, one machine to a host, with snapshots."""
    chance = random.Random(seed)
    names = [f"m{index}" for index in range(chance.randint(2, 5))]
    peers = {name: tuple(peer for peer in names if peer != name) for name in names}
    world = World({name: (f"host-of-{name}", Wanderer(peers[name]), Purse(10)) for name in names}, trace=trace)
    weather(Run(CHANDY_LAMPORT, chance, world, has_crashes=False), 250)
    calm(world)
    return world.log, world.central.completed


def follow(log: Log, number: int, protocol: str) -> RecordedSnapshot:
    """The snapshot that `protocol` takes of the run, at the cut of its snapshot `number`."""
    world = World(
        {name: (f"host-of-{name}", behaviour, state) for name, (behaviour, state) in log.start.items()},
        protocol=OBSERVER if protocol == LOOSE else protocol,
        is_fifo=protocol != LOOSE,
        window=1_000_000,
    )
    world.perform(("snapshot",))
    cut = log.cuts[number]
    for machine in sorted(cut):
        _record_if_due(world, machine, cut)
    for action in log.actions:
        _perform(world, action)
        _record_if_due(world, action.machine, cut)
    calm(world)
    check_all(world)
    check_quiet(world)
    (found,) = world.central.completed
    if world.log.cuts[found.number] != cut:
        raise OracleError(f"{protocol} did not record at the cut {cut}, but at {world.log.cuts[found.number]}")
    return found


def _record_if_due(world: World, machine: str, cut: dict[str, int]) -> None:
    """The request comes now, and the machine records at once."""
    if world.log.lengths[machine] == cut[machine]:
        host = f"host-of-{machine}"
        requests = [index for index, one in enumerate(world.control) if one[:2] == ("request", host)]
        for index in requests[:1]:
            world.perform(("control", index))
        world.perform(("record", host))
        world.perform(("copy", host))


def _perform(world: World, action: Action) -> None:
    host = f"host-of-{action.machine}"
    if not action.accepted:
        world.perform(("act", action.machine), action.choice)
    else:
        ((source, _, _, _),) = action.accepted
        while not world.hosts[host].core.runnable:
            _deliver_next(world, f"host-of-{source}", host)
        world.perform(("accept", host), action.choice)
    while world.hosts[host].running is not None:
        world.perform(("continue", host))
        world.perform(("flush", host))  # each message travels alone
    if world.log.actions[-1].accepted != action.accepted:
        raise OracleError(f"{action.machine} accepted {world.log.actions[-1].accepted} instead of {action.accepted}")


def _deliver_next(world: World, source: str, target: str) -> None:
    index = next(
        index for index, one in enumerate(world.network.batches) if (one.source, one.target) == (source, target)
    )
    world.perform(("deliver", index))


def check_agreement(seed: int, trace: list[str] | None = None) -> int:
    """Every protocol must find what markers found, at each cut of a seeded run; returns how many messages were in flight.

    Raises `OracleError` with the command that replays it.
    """
    count = 0
    try:
        log, snapshots = recorded_run(seed, trace)
        for marked in snapshots:
            for protocol in FOLLOWED:
                _compare(marked, follow(log, marked.number, protocol), protocol)
            count += sum(map(len, marked.channels.values()))
    except Exception as error:
        raise OracleError(
            f"seed {seed} of agreement: {type(error).__name__}: {error}\n{replay('agreement', seed)}"
        ) from error
    return count


def _compare(marked: RecordedSnapshot, found: RecordedSnapshot, protocol: str) -> None:
    for what in ("states", "channels", "duplicates"):
        one, other = getattr(marked, what), getattr(found, what)
        if one != other:
            raise OracleError(f"markers recorded the {what} {one}, {protocol} {other}, at the same cut")
    for what in ("sent", "accepted"):
        one, other = ({key: n for key, n in getattr(side, what).items() if n} for side in (marked, found))
        if one != other:
            raise OracleError(f"markers counted as {what} {one}, {protocol} {other}, at the same cut")
