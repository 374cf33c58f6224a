"""When are two worlds the same? Hashable values, equal for worlds that will behave alike, for searches of every order.

They also hold what each machine has done so far and what the snapshots have recorded, because that is what the oracle
judges: two orders that differ only in how they interleave are one. Imports the standard library only.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from ray_snapshot.protocol.host import HostCore, Machine, OutChannel, Recording
from ray_snapshot.protocol.links import InLink, OutLink
from ray_snapshot.simulation.mail.hosts import SimHost
from ray_snapshot.simulation.mail.network import Carried
from ray_snapshot.simulation.mail.oracle import Log
from ray_snapshot.simulation.mail.simulated import SimulatedHosts


def fingerprint(world: SimulatedHosts) -> Hashable:
    """Everything that the future of the world, and the oracle's opinion of its past, depend on."""
    return (
        tuple(host_fingerprint(host) for _, host in sorted(world.hosts.items())),
        tuple(sorted(map(repr, map(carried_mark, world.network.batches)))),
        tuple(name for name, host in sorted(world.hosts.items()) if host.is_down),
        tuple(sorted(map(repr, world.control))),
        tuple(sorted(world.central.coordinator.pending)),
        tuple(sorted(map(repr, world.central.completed))),
        repr(sorted(world.central.parts.items())),
        _histories(world.log),
    )


def _histories(log: Log) -> Hashable:
    """What each machine did, machine by machine: how the actions of different machines interleave does not matter."""
    actions = sorted(log.actions, key=lambda action: (action.machine, action.index))
    cuts = tuple((number, tuple(sorted(cut.items()))) for number, cut in sorted(log.cuts.items()))
    return tuple((one.machine, one.accepted, one.choice, tuple(one.sent)) for one in actions), cuts


def host_fingerprint(host: SimHost) -> Hashable:
    """Everything that the future of one host depends on, beside what reaches it."""
    return (
        _core(host.core),
        tuple(sorted((channel.owner.name, channel.target, number) for channel, number in host.timers)),
        tuple(sorted(host.asked)),
        tuple(sorted(host.reported)),
        host.late_count,
    )


def _core(core: HostCore) -> Hashable:
    return (
        core.protocol.fingerprint(),
        tuple(_machine(machine) for _, machine in sorted(core.machines.items())),
        tuple(machine.name for machine in core.runnable),
        tuple(sorted(machine.name for machine in core.copying.uncopied)),
        tuple(_output(link) for _, link in sorted(core.outputs.items())),
        tuple(_input(link) for _, link in sorted(core.inputs.items())),
        tuple(_recording(recording) for _, recording in sorted(core.open.items())),
        tuple(sorted(core.closed)),
        tuple((birth.creator, birth.child, birth.colour) for birth in core.births),
        tuple(sorted(core.addresses.unresolved)),
        core.fingerprint(),
    )


def _machine(machine: Machine) -> Hashable:
    inbox = machine.inbox
    boxes = sorted((box.source, box.kind, tuple(box.queue), box.accepted) for box in inbox.mailboxes.values())
    parked = tuple((port, tuple(box.source for box in boxes)) for port, boxes in sorted(inbox.parked.items()))
    return (
        machine.name,
        repr(machine.body and machine.body.state),
        machine.copied,
        (machine.is_held, machine.is_suspended, machine.is_stopped),
        tuple(boxes),
        tuple((box.source, box.kind) for box in inbox.ready),
        parked,
        tuple(sorted(map(_channel, machine.outputs.values()))),
    )


def _channel(channel: OutChannel) -> tuple[Any, ...]:
    return channel.target, channel.kind, channel.sent, channel.acknowledged, tuple(channel.waiting())


def _output(link: OutLink) -> Hashable:
    segments = tuple((colour, tuple(messages)) for colour, messages in link.segments)
    waiting = tuple(link.messages), tuple(sorted(link.acknowledgements.items())), link.dirty
    return link.target, link.colour, segments, waiting, link.in_flight, link.sequence


def _input(link: InLink) -> Hashable:
    return link.source, link.colour, link.next, tuple(sorted(link.early))


def _recording(recording: Recording) -> Hashable:
    copies = tuple((copy.machine, repr(copy.extra), _counts(copy)) for copy in recording.each_copy())
    late = tuple((box.source, machine.name, message) for box, machine, message in recording.late)
    seen = recording.is_copied, recording.has_markers, tuple(sorted(recording.created.items()))
    return recording.number, copies, late, *seen, len(recording.creations)


def _counts(copy: Any) -> Hashable:
    inputs = tuple((box.source, count, tuple(messages)) for box, count, messages in copy.inputs)
    return inputs, tuple((channel.target, count, tuple(waiting)) for channel, count, waiting in copy.outputs)


def carried_mark(carried: Carried) -> Hashable:
    """Equal for batches that are the same."""
    return carried.source, carried.target, repr(carried.batch), carried.was_delivered
