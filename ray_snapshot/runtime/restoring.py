"""From a checkpoint to hosts: who carries what, and how a host takes its share in.

What becomes of what (the decisions are `simulation.restoring`'s): states are loaded; what was in flight its sender sends
again, channel by channel in its order; timers get what was left of their time; creations are carried out. Numbering begins
anew. Nothing acts meanwhile: what is loaded here waits for the host to start.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from typing import TYPE_CHECKING, Any

from ray_snapshot.errors import MachineFailedError, NotRestorableError, SettingError
from ray_snapshot.names import DRIVER
from ray_snapshot.protocol.barrier_host import BarrierCore
from ray_snapshot.protocol.mailbox import MAIL, TIMER
from ray_snapshot.runtime import handles
from ray_snapshot.runtime.checkpointing import SavedCreation, SavedMachine, SavedMessage, payload_of
from ray_snapshot.runtime.context import Context, attach
from ray_snapshot.runtime.faults import safe_text_of

if TYPE_CHECKING:
    from ray_snapshot.protocol.host import HostCore
    from ray_snapshot.runtime.host.post import HostPost


@dataclass(slots=True)
class Share:
    """What one host (or the driver) loads."""

    last: int = 0
    """The highest snapshot number that was given out: who is restored is red for all of them."""
    machines: list[SavedMachine] = field(default_factory=list)
    messages: list[SavedMessage] = field(default_factory=list)
    """Of its machines, as senders; in the order of their numbers."""
    creations: list[SavedCreation] = field(default_factory=list)
    """By its machines, as creators."""
    classes: dict[str, bytes] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)
    """The hosts of those to whom its machines have sent something."""
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
    """For the driver: what is restored."""
    number: int = 0
    """Its number, if it is of this run; else 0."""
    again_from: int | None = None
    """For the driver, after a recovery: what it sent outside this snapshot is to be sent again."""


@dataclass(slots=True)
class Plan:
    """A snapshot, dealt out to hosts."""

    snapshot_id: str
    number: int
    is_same_run: bool
    places: dict[str, str]
    """Where each machine is to live; those included that are just being created."""
    shares: dict[str, bytes]


def opened_share(blob: bytes | None) -> Share:
    """The share of a host; nothing, for one that was made after the snapshot."""
    share: Share = Share() if blob is None else pickle.loads(blob)
    return share


# ---- a program that is started again --------------------------------------------------------------------------------------


@dataclass(slots=True)
class Wanted:
    """What `ray-snapshot restore` wants of the program that it runs: that its system goes on from this snapshot."""

    system: str
    snapshot_id: str
    history: str
    names: set[str]
    """The machines that the snapshot holds, those included that were just being created, as long as nobody spawns them."""
    hosts: int | None = None
    """On how many hosts; None: as the program says."""
    is_taken: bool = False
    is_done: bool = False


_WANTED: list[Wanted] = []


def want(found: Wanted) -> None:
    """The next system of that name in this process is to go on from that snapshot."""
    _WANTED[:] = [found]


def wanted(system: str) -> Wanted | None:
    """What the system of this name, which is being opened, is to go on from; None if it begins.

    Raises `SettingError` if another one is to be restored first: the program would do all its work anew.
    """
    found = next((item for item in _WANTED if not item.is_taken), None)
    if found is None:
        return None
    if found.system != system:
        raise SettingError(
            f"the program opens system {system!r}, and snapshot {found.snapshot_id} is of system {found.system!r}: nothing was"
            f" begun. Name a snapshot of {system!r} (`ray-snapshot list HISTORY --system {system}`); a program that opens"
            f" several systems must open {found.system!r} first"
        )
    found.is_taken = True
    return found


# ---- planning -----------------------------------------------------------------------------------------------------------


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
    whole = _gathered(sections)
    places = _places(whole, ground)
    shares = {host: Share(last=ground.last, classes=whole.classes) for host in (DRIVER, *ground.hosts)}
    for machine in whole.machines:
        name = machine[0]
        shares[places[name]].machines.append((name, ground.classes.get(name, machine[1:2])[0], *machine[2:]))
    for message in sorted(whole.messages, key=lambda message: message[3]):
        share = shares[places[message[0]]]
        share.messages.append(message)
        share.places[message[1]] = places.get(message[1], "")
    for creation in whole.creations:
        share = shares[places[creation[0]]]
        share.creations.append(creation)
        share.places[creation[1]] = places[creation[1]]
    stopped = [name for name, _, _, is_stopped in whole.machines if is_stopped]
    aliases = [run for run in (*about.get("aliases", ()), about["run_id"]) if run != ground.run_id]
    _declare(shares, places, ground)
    for key, blob in ground.classes.values():
        whole.classes[key] = blob
    for share in shares.values():
        share.stopped, share.aliases = stopped, aliases
    del places[DRIVER]
    blobs = {host: pickle.dumps(share, protocol=5) for host, share in shares.items()}
    return Plan(about["snapshot_id"], about["number"], about["run_id"] == ground.run_id, places, blobs)


@dataclass(slots=True)
class _Whole:
    machines: list[SavedMachine] = field(default_factory=list)
    messages: list[SavedMessage] = field(default_factory=list)
    creations: list[SavedCreation] = field(default_factory=list)
    classes: dict[str, bytes] = field(default_factory=dict)
    hosts: dict[str, str] = field(default_factory=dict)
    """Where each machine was."""


def _gathered(sections: Iterable[bytes]) -> _Whole:
    whole = _Whole()
    for section in sections:
        host, machines, messages, creations, classes = pickle.loads(section)
        whole.machines += machines
        whole.messages += messages
        whole.creations += creations
        whole.classes.update(classes)
        whole.hosts.update((machine[0], host) for machine in machines)
        whole.hosts.update((creation[1], host) for creation in creations)
    return whole


def _places(whole: _Whole, ground: Ground) -> dict[str, str]:
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


# ---- loading ------------------------------------------------------------------------------------------------------------


def load(post: HostPost, share: Share) -> None:
    """Take a host's share in, in a thread that is no machine: hooks cannot send or call.

    Raises `MachineFailedError` if a machine does not take its state back.
    """
    handles.forget_places(post.member.run_id, share.aliases)
    for key, blob in share.classes.items():
        post.classes.add(key, blob)
    for name, key, blob, _ in share.machines:
        _load_machine(post, name, key, blob)
    with post.member.lock:
        core = post.core
        if isinstance(core, BarrierCore):
            core.acting = None
        for target, source, port in [(target, source, port) for source, target, port in share.declared]:
            if port is not None and target in core.machines:
                post.declare(target, port, source)
        refill(core, share)
        post.timers = set_timers(core, share)
        for machine in [*core.machines.values()]:
            if machine.over:
                core.end_action(machine)
                post.held.add(machine)
        for name, _, _, is_stopped in share.machines:
            if is_stopped:
                core.machine(name).is_stopped = True
        core.learn_stopped(share.stopped)


def _load_machine(post: HostPost, name: str, key: str, blob: bytes) -> None:
    try:
        kind: Any = post.classes.get(key)
        body = kind.__new__(kind)
        with post.member.lock:
            machine = post.core.machine(name)
            post.core.born(name, body, tuple(post.classes.joins[kind]))
            attach(body, Context(post, machine))
        body.restore_state(pickle.loads(blob))
    except Exception as error:
        raise MachineFailedError(
            f"{name} does not take its state back: {type(error).__name__}: {safe_text_of(error)}",
            machine=name,
            method="restore_state",
            message=None,
            source=None,
            traceback="",
        ) from error


def refill(core: HostCore, share: Share) -> None:
    """Declare channels, send again what was in flight, and carry out creations; under the lock, before anything acts."""
    for name, host in share.places.items():
        if host and host != core.host:
            core.resolve(name, host)
    if isinstance(core, BarrierCore):
        for target, source in share.awaited:
            core.await_input(target, source)
    for source, target, _ in share.declared:
        if source in core.machines and core.machines[source].body is not None:
            core.channel(core.machines[source], target, MAIL)
    for creator, child, key, payload, sent_at in share.creations:
        host = share.places[child]
        core.create(creator, child, host, (key, share.classes.get(key), payload_of(payload)), sent_at)
    for source, target, kind, _, method, payload, _, sent_at in share.messages:
        if kind != TIMER:
            core.send(core.machines[source], target, kind, method, payload_of(payload), sent_at)


def set_timers(core: HostCore, share: Share) -> list[tuple[Any, int, float]]:
    """Set the timers again, with what was left of their time; (channel, number, seconds left) of each."""
    now, found = time.time(), []
    for source, target, kind, _, method, payload, left, sent_at in share.messages:
        if kind == TIMER:
            what = now + left, payload_of(payload)
            channel = core.set_timer(core.machines[source], target, method, what, sent_at, now + left)
            found.append((channel, channel.sent, left))
    return found
