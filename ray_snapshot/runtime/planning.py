"""What becomes of a checkpoint: which host carries which part of it.

What was in flight is given to its sender, which sends it again; machines go to the hosts where they were, or are dealt out.
Opens no state and no argument: only the host that loads them does.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from typing import TYPE_CHECKING, Any

from ray_snapshot.errors import NotRestorableError
from ray_snapshot.names import DRIVER, is_actor, life_of, run_of_machines

if TYPE_CHECKING:
    from ray_snapshot.runtime.checkpointing import SavedCreation, SavedMachine, SavedMessage


OpenedSection = tuple[str, "list[SavedMachine]", "list[SavedMessage]", "list[SavedCreation]", dict[str, bytes]]
"""(host, machines, messages, creations, pickled classes by their keys)."""


@dataclass(slots=True)
class Again:
    """What a host that goes back has to know of actors."""

    calls: list[tuple[str, str, str, str | None, bytes]] = field(default_factory=list)
    """(caller, target, method, concurrency group, arguments) of its machines' calls in flight, by their numbers."""
    actors: dict[str, tuple[str, list[Any]]] = field(default_factory=dict)
    """By the name that stands for an actor in what is kept: (machine, its handle, in a list)."""
    incarnations: dict[str, int] = field(default_factory=dict)
    """Of the actors."""


@dataclass(slots=True)
class Share:
    """What one host (or the driver) loads."""

    last: int = 0
    """The highest snapshot number that was given out: a restored host is red for all of them."""
    machines: list[SavedMachine] = field(default_factory=list)
    messages: list[SavedMessage] = field(default_factory=list)
    """Messages in flight that its machines have sent, in the order of their numbers."""
    creations: list[SavedCreation] = field(default_factory=list)
    """Creations in flight by its machines."""
    classes: dict[str, bytes] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)
    """The hosts of the machines to which its machines have sent something."""
    stopped: list[str] = field(default_factory=list)
    declared: list[tuple[str, str, str | None]] = field(default_factory=list)
    """(source, target, port) that concern its machines."""
    awaited: list[tuple[str, str]] = field(default_factory=list)
    """(target, source) that barriers align on."""
    aliases: list[str] = field(default_factory=list)
    """Runs whose machines are now this run's."""
    actors: dict[str, Any] = field(default_factory=dict)
    """For the driver: the hosts, each in a list of one."""
    snapshot_id: str = ""
    """For the driver: the snapshot that is restored."""
    number: int = 0
    """The number of that snapshot, if it is of this run; else 0."""
    again_from: int | None = None
    """For the driver, after a recovery: what it sent outside this snapshot is to be sent again."""
    abroad: Again | None = None
    """What it has to know of watched actors, if there are any."""


@dataclass(slots=True)
class Plan:
    """A snapshot, dealt out to hosts."""

    snapshot_id: str
    number: int
    is_same_run: bool
    places: dict[str, str]
    """Where each machine is to live; those included that are just being created."""
    shares: dict[str, bytes]
    mail: dict[str, list[SavedMessage]] = field(default_factory=dict)
    """By watched actor that has sent them: messages in flight, in the order of their numbers."""
    stopped: tuple[str, ...] = ()
    """Machines that have stopped."""
    aliases: tuple[str, ...] = ()
    """Runs whose machines are now this run's."""


def opened_share(blob: bytes | None) -> Share:
    """The share of a host; nothing, for one that was made after the snapshot."""
    share: Share = Share() if blob is None else pickle.loads(blob)
    return share


@dataclass(frozen=True, slots=True)
class Ground:
    """What a plan has to go by."""

    run_id: str
    hosts: Sequence[str]
    claimed: Mapping[str, str] = field(default_factory=dict)
    """Where machines are to live that the program has spawned; others stay where they were, or are dealt out."""
    classes: Mapping[str, tuple[str, bytes]] = field(default_factory=dict)
    """(key, pickled class) of those that the program has spawned: its own, which may be newer."""
    declared: Sequence[tuple[str, str, str | None]] = ()
    awaited: Sequence[tuple[str, str]] = ()
    last: int = 0


def planned(about: Mapping[str, Any], sections: Iterable[bytes], ground: Ground) -> Plan:
    """Deal a checkpoint out to the hosts of `ground`; O(machines + messages). Raises `NotRestorableError`.

    The digest of the sections has been checked, or they never left this system.
    """
    whole = gathered(sections)
    places = _places(whole, ground)
    shares = {host: Share(last=ground.last, classes=whole.classes) for host in (DRIVER, *ground.hosts)}
    for machine in whole.machines:
        name = machine[0]
        shares[places[name]].machines.append((name, ground.classes.get(name, machine[1:2])[0], *machine[2:]))
    mail: dict[str, list[SavedMessage]] = {}
    for message in sorted(whole.messages, key=lambda message: message[3]):
        if is_actor(message[0]):
            mail.setdefault(life_of(message[0])[0], []).append(message)
            continue
        share = shares[places[message[0]]]
        share.messages.append(message)
        share.places[message[1]] = places.get(message[1], "")
    for creation in whole.creations:
        share = shares[places[creation[0]]]
        share.creations.append(creation)
        share.places[creation[1]] = places[creation[1]]
    stopped = [name for name, _, _, is_stopped in whole.machines if is_stopped]
    before = run_of_machines(about["run_id"], about.get("life", 0))
    aliases = [run for run in (*about.get("aliases", ()), before) if run != ground.run_id]
    _declare(shares, places, ground)
    for key, blob in ground.classes.values():
        whole.classes[key] = blob
    for share in shares.values():
        share.stopped, share.aliases = stopped, aliases
    del places[DRIVER]
    blobs = {host: pickle.dumps(share, protocol=5) for host, share in shares.items()}
    is_same_run = about["run_id"] == ground.run_id
    return Plan(about["snapshot_id"], about["number"], is_same_run, places, blobs, mail, tuple(stopped), tuple(aliases))


@dataclass(slots=True)
class Whole:
    """What the sections of a checkpoint hold."""

    machines: list[SavedMachine] = field(default_factory=list)
    messages: list[SavedMessage] = field(default_factory=list)
    creations: list[SavedCreation] = field(default_factory=list)
    classes: dict[str, bytes] = field(default_factory=dict)
    hosts: dict[str, str] = field(default_factory=dict)
    """Where each machine was."""


def opened_section(section: bytes) -> OpenedSection:
    """What a section of a host holds, machines at rest among the others; its digest has been checked."""
    host, machines, messages, creations, classes, *at_rest = pickle.loads(section)
    if at_rest:
        from ray_snapshot.runtime.saved_machines import machines_in

        machines = [*machines, *machines_in(at_rest[0])]
    return host, machines, messages, creations, classes


def gathered(sections: Iterable[bytes]) -> Whole:
    """The sections of a checkpoint, put together; their digest has been checked."""
    whole = Whole()
    for section in sections:
        host, machines, messages, creations, classes = opened_section(section)
        whole.machines += machines
        whole.messages += messages
        whole.creations += creations
        whole.classes.update(classes)
        whole.hosts.update((machine[0], host) for machine in machines)
        whole.hosts.update((creation[1], host) for creation in creations)
    return whole


def _places(whole: Whole, ground: Ground) -> dict[str, str]:
    if not ground.hosts:
        raise NotRestorableError(
            "there is no host to restore anything on: spawn machines before start()", obstacles=["there are no hosts"]
        )
    known, deal = set(ground.hosts), cycle(sorted(ground.hosts))
    found = {DRIVER: DRIVER}
    for name, host in sorted(whole.hosts.items()):
        found[name] = ground.claimed.get(name) or (host if host in known and not ground.claimed else next(deal))
    return found


def _declare(shares: dict[str, Share], places: Mapping[str, str], ground: Ground) -> None:
    for found in ground.declared:
        source, target, _ = found
        if source in places and target in places:
            for host in {places[source], places[target]}:
                shares[host].declared.append(found)
                shares[host].places[target] = places[target]
    for target, source in ground.awaited:
        if source in places and target in places:
            shares[places[target]].awaited.append((target, source))
