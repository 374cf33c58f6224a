"""How the driver makes machines and hosts, declares channels between machines, and stops them."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from ray_snapshot import redaction
from ray_snapshot.errors import (
    HostDiedError,
    RolledBackError,
    SettingError,
    UnknownMachineError,
    UnknownMethodError,
)
from ray_snapshot.limits import LIMITS
from ray_snapshot.names import DRIVER, check_target_name
from ray_snapshot.protocol.commands import Stop
from ray_snapshot.runtime.classes import import_path, packed
from ray_snapshot.runtime.cluster import ask
from ray_snapshot.runtime.driver.memory import Memory
from ray_snapshot.runtime.driver.post import DriverPost
from ray_snapshot.runtime.fitting import check_fits
from ray_snapshot.runtime.handles import MachineHandle, handle_of, note_kinds
from ray_snapshot.runtime.host.actor import HostActor
from ray_snapshot.runtime.host.config import HostConfig
from ray_snapshot.runtime.host.notices import check_listener
from ray_snapshot.runtime.mixin import may_have
from ray_snapshot.runtime.payload import isolate
from ray_snapshot.runtime.planning import Share
from ray_snapshot.runtime.restoring import Wanted
from ray_snapshot.runtime.settings import host_options
from ray_snapshot.runtime.spawned import Handles
from ray_snapshot.runtime.transport.post import Created
from ray_snapshot.stderr import say
from ray_snapshot.waits import machine_name

if TYPE_CHECKING:
    from ray_snapshot.runtime.session import Session

Call = tuple[tuple[Any, ...], dict[str, Any]]
"""Arguments of a constructor."""


@dataclass(eq=False)
class Spawner:
    """The machines and hosts of one system; `session` knows whether it goes on, and how to ask for what may be asked twice."""

    session: Session
    post: DriverPost
    service: Any
    _: KW_ONLY
    trace: str | None
    wanted: Wanted | None
    is_checkpointing: bool
    stamp: str | None = None
    life: int = 0
    """Like `stamp` of the watch that the system has joined, as in `HostConfig`."""
    is_claiming: bool = False
    """Whether what is spawned takes the place of what was recorded, though it begins now (`Watch.start`)."""
    claimed: dict[str, str] = field(default_factory=dict)
    """Machines that are to be restored, by name: the hosts that the program wants them on."""
    claimed_classes: dict[str, tuple[str, bytes]] = field(default_factory=dict)
    born_later: list[Callable[[], None]] = field(default_factory=list)
    """Machines that the program has spawned and no checkpoint has: made when the others have been restored."""
    hosts: dict[str, Any] = field(default_factory=dict)
    host_count: int = 0
    machine_counts: Counter[str] = field(default_factory=Counter)
    """Machines that the driver has spawned, per host."""
    shipped: set[tuple[str, str]] = field(default_factory=set)
    """(host, key of a class) of what each host has been sent."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.name, self.run_id, self.settings = self.session.name, self.session.run_id, self.session.settings

    @property
    def memory(self) -> Memory | None:
        """What the driver remembers for a service that is started anew; None where there will be none."""
        return None if self.post.attendant is None else self.post.attendant.memory

    def ready(self) -> list[Any]:
        """Answers to wait for: every host, once all machines spawned so far have been constructed there."""
        return [actor.ready.remote(self.machine_counts[host]) for host, actor in self.hosts.items()]

    def spawn_later(self) -> None:
        """The system has been restored: the machines that it has not are made now."""
        for create in self.born_later:
            create()
        self.born_later.clear()

    def spawn(
        self,
        kind: Any,
        many: list[Call],
        names: list[str] | None,
        per_host: int,
        resources: dict[str, float] | None,
        role: str | None,
    ) -> Handles[Any]:
        """Create machines on hosts that are made for them, and return their handles."""
        self.session._check()
        self.post.acting()
        if role not in (None, "source", "operator", "sink"):
            raise SettingError(f"role {role!r}: use 'source', 'operator' or 'sink'")
        key, blob = packed(kind)
        machine_class = getattr(kind, "machine_class", kind)
        class_name = machine_class.__name__
        check_listener(machine_class, is_checkpointing=self.is_checkpointing)
        for args, kwargs in many:
            check_fits(machine_class, class_name, "__init__", args, kwargs)
        payloads = [isolate(DRIVER, class_name, "__init__", args, kwargs) for args, kwargs in many]
        if not many:
            return Handles(self.run_id, [], [])
        options = host_options(resources)
        places = self._places(len(many), per_host)
        claimed, generation = self._claim(class_name, names, places, role)
        found = self._restored_among(claimed)
        spawned = [item for item in zip(claimed, places, payloads, strict=True) if item[0] not in found]
        if self.post.is_dropping or self.is_claiming:  # not started: no machine has been restored yet
            self.claimed.update((name, host) for name, host in zip(claimed, places, strict=True))
            self.claimed_classes.update((name, (key, blob)) for name in (claimed if self.is_claiming else found))
        for host in dict.fromkeys(places if self.post.is_dropping else [host for _, host, _ in spawned]):
            if host not in self.hosts:
                self._new_host(host, options)
        if self.post.is_dropping:
            self.born_later.append(lambda: self._create(kind, key, blob, spawned, role, generation))
        else:
            self._create(kind, key, blob, spawned, role, generation)
        note_kinds(self.run_id, claimed, machine_class)
        return Handles(self.run_id, claimed, [None] * len(claimed) if self.wanted else places)

    def _places(self, count: int, per_host: int) -> list[str]:
        """The hosts of so many machines."""
        if self.wanted is not None and self.wanted.hosts is not None and self.post.is_dropping:
            most = self.wanted.hosts
            self.host_count += count
            return [f"host-{number % most}" for number in range(self.host_count - count, self.host_count)]
        with self.lock:
            first = self.host_count
            self.host_count = last = first - (-count // per_host)
        behind = f".{self.life}" if self.life > 1 else ""  # hosts of another system had the others' names
        names = [f"host-{number}{behind}" for number in range(first, last)]
        return [names[position // per_host] for position in range(count)]  # each name once in memory

    def _restored_among(self, names: list[str]) -> set[str]:
        """The names among these that are restored, and need not be made; each is returned once."""
        if self.wanted is None:
            return set()
        found = self.wanted.names & set(names)
        self.wanted.names -= found
        return found

    def _claim(
        self, class_name: str, names: list[str] | None, places: list[str], role: str | None
    ) -> tuple[list[str], int]:
        """Names, and the generation that they are good for; asks again if the system is rolled back meanwhile."""
        for _ in range(LIMITS.spawn_attempts):
            self.post.check()
            generation = self.post.member.generation
            claim = (class_name, len(places), names, places, role, generation, True)
            try:
                found = self.session._again(partial(self.service.claim.remote, *claim), "names")
            except RolledBackError:
                continue
            if role == "source" and self.memory is not None:
                self.memory.sources += found
            return found, generation
        raise RolledBackError("the system was rolled back again and again while this was spawned", snapshot_id=None)

    def _create(
        self,
        kind: Any,
        key: str,
        blob: bytes,
        spawned: list[tuple[str, str, Any]],
        role: str | None,
        generation: int,
    ) -> None:
        """Send the creations of machines whose names and hosts are known; their names may have to be claimed again."""
        post = self.post
        while spawned:
            with post.member.lock:
                post.check()
                if post.member.generation == generation:
                    self._send_creations(kind, key, blob, spawned)
                    return
            names, places, _ = (list(column) for column in zip(*spawned, strict=True))
            _, generation = self._claim(kind.__name__, names, places, role)

    def _send_creations(self, kind: Any, key: str, blob: bytes, spawned: list[tuple[str, str, Any]]) -> None:
        post, now = self.post, time.time()
        self.machine_counts.update(host for _, host, _ in spawned)
        for name, host, payload in spawned:
            ship = None if (host, key) in self.shipped else blob
            self.shipped.add((host, key))
            post.core.create(DRIVER, name, host, (key, ship, payload), now)
            if post.journal is not None:
                found = Created(name, host, (key, blob, payload), kind.__name__)
                post.journal.append((post.core.colour_of(post.me), found))
            if post.trace.tracer is not None:
                machine_class = getattr(kind, "machine_class", kind)
                colour = post.core.colour_of(post.me)
                post.trace.tracer.created(DRIVER, name, machine_class, payload, colour)
        post.carrier.flush()

    def rolled_back(self, share: Share) -> None:
        """The system went back: there are other hosts, and machines created since are gone.

        Called in the thread of the driver's post."""
        self.hosts.update((host, wrapped[0]) for host, wrapped in share.actors.items())
        self.machine_counts.clear()
        self.shipped.clear()
        if share.again_from is not None:  # a recovery: the program has not asked for it
            say(f"ray-snapshot: {self.name} has lost a process: it goes back to snapshot {share.snapshot_id}, and on")

    def _new_host(self, host: str, options: dict[str, Any]) -> None:
        settings, post = self.settings, self.post
        with post.member.lock:
            config = HostConfig(
                self.run_id, host, post.core.colour, tuple(post.core.open), *self._alignment(),
                settings.mailbox_bound, settings.send_timeout, settings.spawn_timeout, import_path(),
                self.trace, redaction.names(),
                self.is_checkpointing, settings.recover is not None, post.member.generation, grace=settings.grace,
                stamp=self.stamp, life=self.life,
            )  # fmt: skip
            actor = HostActor.options(**options, max_concurrency=10_000).remote(config, self.service)
            post.carrier.actors[host] = actor
            self.hosts[host] = actor
            if self.memory is not None:
                self.memory.births[host], self.memory.actors[host] = (config, options), actor
            registered = self.service.register.remote(host, [actor], config, options)
        try:
            self.session._ask(registered, "the directory")  # not under the lock: what comes meanwhile must be heard
        except HostDiedError:
            if self.memory is None:
                raise  # else the next service hears of it from the driver

    def _alignment(self) -> tuple[str, float | None]:
        """How hosts turn red: the protocol, and how long they align.

        Never so long that a sender held at a blocked input would be held for `send_timeout`: a snapshot stops no program.
        """
        found, timeout = self.settings.protocol, self.settings.alignment_timeout
        most = self.settings.send_timeout / 4
        if found == "aligned-barrier" or (found == "unaligned-barrier" and timeout is not None):
            return "aligned-barrier", most if timeout is None else min(timeout, most)
        return found, timeout

    def connect(
        self, source: MachineHandle | str, target: MachineHandle | str, port: str | None, site: str | None
    ) -> None:
        """Declare a channel; `site`: the place in the program that says so."""
        self.session._check()
        if port is not None and (not isinstance(port, str) or not port.isidentifier()):
            raise SettingError(f"connect(port={port!r}): it is the name of a port or a method")
        names = [machine_name(item) for item in (source, target)]
        if port is not None:
            self._check_port(names[1], port)
        self.session._again(
            partial(self.service.connect.remote, *names, port, site), f"the channel {names[0]} -> {names[1]}"
        )
        if self.memory is not None:
            self.memory.declared.append((names[0], names[1], port))

    def _check_port(self, target: str, port: str) -> None:
        kind = None if target == DRIVER else handle_of(self.run_id, target)._kind
        if kind is not None and not may_have(kind, port):
            raise UnknownMethodError(
                f"connect(..., {target!r}, port={port!r}): {kind.__name__} has no port and no method {port!r}",
                machine=target,
                method=port,
            )

    def stop(self, machine: MachineHandle | str) -> None:
        """Stop a machine behind its current action, however often the system is rolled back meanwhile."""
        self.session._check()
        name = check_target_name(machine_name(machine))
        post = self.post
        post.acting()
        for most_s in (0.0, *[self.settings.spawn_timeout] * LIMITS.spawn_attempts):
            post.check()
            with post.member.lock:
                generation, colour = post.member.generation, post.core.colour
            if self._is_stopping(name, Stop(name, colour, 0), generation, most_s) and post.stopped(name, generation):
                return
            post.holding.await_next(generation)
        raise RolledBackError(f"the system was rolled back again and again while {name} was stopped", snapshot_id=None)

    def _is_stopping(self, name: str, command: Stop, generation: int, most_s: float) -> bool:
        """Tell the host of a machine, which may take `most_s` to be known; whether it was told, and was of this generation."""
        places = self.session._again(partial(self.service.locate.remote, [name], most_s), "the directory")
        if name not in places:
            raise UnknownMachineError(
                f"no machine {name!r} has been spawned in {self.name}, so it cannot be stopped: check the name",
                machine=name,
            )
        try:
            return bool(ask(self.hosts[places[name]].control.remote([command], generation), f"{name} to stop", 60.0))
        except HostDiedError as error:
            if self.memory is None:
                self.post.raises(error)
                raise
            return False  # it will be stopped where it lives next
