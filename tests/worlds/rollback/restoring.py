"""Restore in the simulator: a completed snapshot becomes a new `World`, whatever protocol took it.

What is done: every state is loaded; what was in flight is sent again by its sender, channel by channel in its order (mail;
timers are set again; creations are carried out); a source goes on from the position in its state. The machines may be spread
over other hosts, and those born after the cut do not exist.

Two decisions.

- *Numbering begins anew.* Where channels reorder, or where alignment was skipped, what was accepted is no prefix of what was
  sent, so that no pair of counts could say where to go on. Sent again from 1, a refilled channel is an ordinary one.
- *One generation for the whole system*, in everything that travels. What was on its way bears an older one, and is refused
  wherever it arrives, so that equal numbers of two generations never meet. Snapshot numbers are not begun anew: one
  coordinator gives them out, and none twice; who is restored is born red for all that were given out before.

`prepared` makes the next world beside the old one, on the same network. Each host leaves the old one, loads, and enters the new
one as `protocol/rollback.py` says (design, trap 12); `storms` runs that with everything that can go wrong. `restored` is for
who wants no such thing: the instant at which all have stopped and all have loaded, and none has started.

Not restorable: a machine that waited for a reply inside an action, for where it was is not in its state; and, where
alignment was skipped, a call or its answer on one side of the cut only. `obstacles` names them.

Imports the standard library only.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from ray_snapshot.errors import NotRestorableError
from ray_snapshot.parts.refilling import Created, Sent, refill
from ray_snapshot.protocol.rollback import NO_GENERATION, Asked, LoadFinished, Phase, RollbackHost, Step
from ray_snapshot.simulation.mail.oracle import ChannelId, Log, Message, MessageId, OracleError, RecordedSnapshot
from worlds.mail.actions import isolated
from worlds.mail.generations import Lineage
from worlds.mail.theorem import Replay
from worlds.mail.world import World


def obstacles(recorded: RecordedSnapshot) -> list[str]:
    """Why the snapshot cannot be restored; empty if it can."""
    found = [f"{name} waits for a reply, inside an action" for name in sorted(recorded.waiting)]
    for (source, target, kind), messages in sorted(recorded.channels.items()):
        if kind == "call" and messages and source not in recorded.waiting:
            found.append(f"a call of {source} to {target} is in flight, and nobody waits for its reply any more")
    for source, target, kind in sorted(recorded.duplicates):
        if kind == "call":
            found.append(f"{target} has answered a call that {source} has not made yet, and would lose the answer")
    return found


def beginning(world: World) -> RecordedSnapshot:
    """S0 of a world, as a snapshot: what to restore if none has been completed since."""
    recorded = RecordedSnapshot(0, {name: state for name, (_, state) in world.log.start.items()})
    for (source, target, kind), messages in world.log.channels.items():
        if kind == "creation":
            recorded.creations.add((source, target))
            recorded.payloads[source, target] = messages[0][2]
        else:
            recorded.channels[source, target, kind] = list(messages)
    return recorded


def latest(world: World) -> RecordedSnapshot:
    """The last completed snapshot that can be restored; S0 if there is none."""
    return next((found for found in reversed(world.central.completed) if not obstacles(found)), None) or beginning(
        world
    )


def prepared(recorded: RecordedSnapshot, old: World, hosts: Sequence[str] = ()) -> World:
    """The next generation of `old`, rolled back to `recorded`; on the hosts of old, or dealt out to `hosts`.

    No host is in it yet: the hosts of old are still there. Raises `NotRestorableError`.
    """
    if found := obstacles(recorded):
        raise NotRestorableError(
            f"snapshot {recorded.number} cannot be restored: {'; '.join(found[:3])}; take one while nobody waits",
            obstacles=found,
        )
    places = _places(recorded, old, hosts)
    world = World(
        {name: (places[name], old.programs[name], state) for name, state in sorted(recorded.states.items())},
        **vars(old.rules),
        trace=old.trace,
        generation=old.generation + 1,
        last=old.central.coordinator.last,
    )
    for source, target in old.declared.channels:
        if source in recorded.states and target in recorded.states:
            world.connect(source, target)
    _send_again(world, recorded, places)
    _share(world, old)
    return world


def restored(recorded: RecordedSnapshot, old: World, hosts: Sequence[str] = ()) -> World:
    """`prepared`, and all have stopped and loaded; each starts when it is told to. Raises `NotRestorableError`."""
    world = prepared(recorded, old, hosts)
    for name in old.hosts:
        old.stop(name)
    for name in dict.fromkeys([*old.hosts, *world.hosts]):
        gate = world.lineage.gates[name]
        for event in (Asked(Step.STOP, world.generation), Asked(Step.LOAD, world.generation)):
            gate.step(event)
        gate.step(LoadFinished(world.generation))
        world.control.append(("start", name))
    return world


def _share(world: World, old: World) -> None:
    """Both worlds are over the same hosts and the same network."""
    if not old.lineage.generations or world.generation in old.lineage.generations:
        begin_lineage(old)
    for name in world.hosts:
        old.lineage.gates.setdefault(name, RollbackHost(NO_GENERATION, Phase.STOPPED))
    world.lineage, world.network = old.lineage, old.network
    world.lineage.generations[world.generation] = world


def begin_lineage(world: World) -> None:
    """From now on the world can be rolled back; what else has been made of it goes its own way."""
    gates = {name: RollbackHost(world.generation) for name in world.hosts}
    world.lineage = Lineage({world.generation: world}, gates)
    world.network = world.network.copy()


def _places(recorded: RecordedSnapshot, old: World, hosts: Sequence[str]) -> dict[str, str]:
    names = sorted({*recorded.states, *(child for _, child in recorded.creations)})
    return {name: hosts[index % len(hosts)] if hosts else old.places[name] for index, name in enumerate(names)}


def _send_again(world: World, recorded: RecordedSnapshot, places: dict[str, str]) -> None:
    """As on Ray, host by host; the log has what is in flight under its new numbers."""
    creations, messages = defaultdict[str, list[Created]](list), defaultdict[str, list[Sent]](list)
    for creator, child in sorted(recorded.creations):
        payload, place = recorded.payloads[creator, child], world.places[creator]
        world.log.channels[creator, child, "creation"] = [(1, "creation", payload)]
        world.make_room(world.hosts[place], child, places[child])
        creations[place].append(Created(creator, child, payload, 0.0))
    for (source, target, kind), found in recorded.channels.items():
        again = world.log.channels.setdefault((source, target, kind), [])
        again += [(number, method, args) for number, (_, method, args) in enumerate(found, 1)]
        messages[world.places[source]] += [
            Sent(source, target, kind, method, isolated(args), 0.0) for _, method, args in found
        ]
    for name in {**creations, **messages}:
        host = world.hosts[name]
        children = {creation.child: places[creation.child] for creation in creations[name]}
        timers = refill(host.core, children, creations[name], messages[name])
        host.timers += [(channel, number) for channel, number, _ in timers]
        host.ask()


def repeated(log: Log, recorded: RecordedSnapshot) -> list[tuple[MessageId, Message]]:
    """The messages that a restore of `recorded` accepts a second time: empty, unless alignment was skipped.

    They were accepted inside the cut, and will be sent again: by an action outside the cut, or because they were recorded in
    flight too (a timer that was pending at its sender, and came before the barrier was met). From the log and the cut alone;
    raises `OracleError` if `recorded.duplicates` foretells other ones.
    """
    cut = log.cuts.get(recorded.number, {})
    sent_white = _ids(log.channels)
    for action in log.actions:
        if action.index <= cut.get(action.machine, 0):
            sent_white.update(action.sent)
    in_flight = _ids(recorded.channels)
    replay, found = Replay(log), []
    for action in log.actions:
        if action.index <= cut.get(action.machine, 0):
            for one in action.accepted:
                if (one not in sent_white or one in in_flight) and one[2] in ("mail", "call", "timer"):
                    found.append((one, _content(replay, one)))
        replay.perform(action)
    counts: Counter[ChannelId] = Counter(one[:3] for one, _ in found)
    if dict(counts) != recorded.duplicates:
        raise OracleError(
            f"snapshot {recorded.number} foretells the duplicates {recorded.duplicates}; there are {dict(counts)}"
        )
    return found


def _ids(channels: Mapping[ChannelId, list[Message]]) -> set[MessageId]:
    return {(*key, message[0]) for key, messages in channels.items() for message in messages}


def _content(replay: Replay, message: MessageId) -> Message:
    return next(one for one in replay.channels[message[:3]] if one[0] == message[3])
