"""How the driver makes machines and hosts, declares channels between machines, and stops them."""

from __future__ import annotations

import sys
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from ray_snapshot import redaction
from ray_snapshot.errors import (
    HostDiedError,
    RolledBackError,
    SettingError,
    UnknownMachineError,
    UnknownMethodError,
)
from ray_snapshot.names import DRIVER, check_machine_name, check_target_name
from ray_snapshot.protocol.commands import Stop
from ray_snapshot.runtime.classes import import_path, packed
from ray_snapshot.runtime.cluster import ask
from ray_snapshot.runtime.driver.memory import Memory
from ray_snapshot.runtime.driver.post import DriverPost
from ray_snapshot.runtime.fitting import check_fits
from ray_snapshot.runtime.handles import MachineHandle, handle_of
from ray_snapshot.runtime.here import call_site_here
from ray_snapshot.runtime.host.actor import HostActor
from ray_snapshot.runtime.host.config import HostConfig
from ray_snapshot.runtime.host.notices import check_listener
from ray_snapshot.runtime.mixin import SnapshotMixin, may_have
from ray_snapshot.runtime.payload import isolate
from ray_snapshot.runtime.restoring import Share, Wanted
from ray_snapshot.runtime.settings import Settings, arguments, host_options
from ray_snapshot.runtime.subscribers import Subscribers
from ray_snapshot.runtime.transport.post import Created
from ray_snapshot.verdicts import Detector
from ray_snapshot.waits import machine_name

if TYPE_CHECKING:
    from ray_snapshot.runtime.remote import MachineClass

M = TypeVar("M", bound=SnapshotMixin)

_Call = tuple[tuple[Any, ...], dict[str, Any]]

_CLAIMS = 20
"""How often a spawn is tried again because the system was rolled back meanwhile."""


class Spawning(ABC):
    """A part of `system.System`: machines."""

    name: str
    settings: Settings
    run_id: str
    detectors: list[Detector]
    restored: bool
    _trace: str | None
    _wanted: Wanted | None
    _is_checkpointing: bool
    _claimed: dict[str, str]
    _claimed_classes: dict[str, tuple[str, bytes]]
    _born_later: list[Callable[[], None]]
    _hosts: dict[str, Any]
    _host_count: int
    _machine_counts: Counter[str]
    _shipped: set[tuple[str, str]]
    _subscribers: Subscribers | None
    _has_clock: bool
    _lock: threading.Lock
    _post: DriverPost
    _service: Any
    _analyst: Any

    @abstractmethod
    def _check(self) -> None:
        """Raise what stopped the system, or that it was closed."""

    @property
    @abstractmethod
    def _memory(self) -> Memory | None:
        """What the driver remembers for a service that is started anew; None where there will be none."""

    @abstractmethod
    def _again(self, make: Callable[[], Any], what: str, timeout: float = 60.0) -> Any:
        """As `_ask`, for what may be asked twice: of the next service, if the one that is asked dies."""

    @abstractmethod
    def _ask(self, refs: Any, what: str, timeout: float = 60.0) -> Any:
        """`ray.get` with a bound in seconds."""

    def spawn(
        self,
        kind: type[M] | MachineClass[M],
        *args: Any,
        name: str | None = None,
        resources: dict[str, float] | None = None,
        role: str | None = None,
        **kwargs: Any,
    ) -> MachineHandle[M]:
        """Create a machine on a host of its own; returns its handle at once.

        `resources`: what the host asks Ray for (`{"CPU": 1, ...}`; default nothing). `role`: under barriers a `"source"`
        records when it is asked, whatever is connected to it; so does who has no declared inputs, and `"operator"` and
        `"sink"` are notes for the reader. Raises `DuplicateMachineError`, `NameNotAllowedError`, `SettingError`,
        `UnpicklableMessageError`, `WrongArgumentsError` (of the constructor).
        """
        names = None if name is None else [check_machine_name(name)]
        (handle,) = self._spawn(kind, [(args, kwargs)], names, 1, resources, role)
        return handle

    def spawn_many(
        self,
        kind: type[M] | MachineClass[M],
        args: Sequence[Any] | None = None,
        *,
        count: int | None = None,
        names: Sequence[str] | None = None,
        per_host: int = 1_000,
        resources: dict[str, float] | None = None,
        role: str | None = None,
    ) -> list[MachineHandle[M]]:
        """Create many machines, `per_host` to a host; returns their handles in order.

        `args`: one tuple of constructor arguments per machine (else `count` machines without arguments). `names`: as many
        (default: "Account-0", "Account-1", ...). Errors as `spawn`.
        """
        if args is None:
            if count is None and names is None:
                raise SettingError("spawn_many: say how many, by args=[...], names=[...] or count=...")
            args = [()] * (count if count is not None else len(names or ()))
        many: list[_Call] = [(arguments(item), {}) for item in args]
        if names is not None and len(names) != len(many):
            raise SettingError(f"spawn_many: {len(names)} names for {len(many)} machines")
        if per_host < 1:
            raise SettingError(f"spawn_many: per_host is {per_host}; it must be at least 1")
        checked = None if names is None else [check_machine_name(name) for name in names]
        return self._spawn(kind, many, checked, per_host, resources, role)

    def _spawn(
        self,
        kind: Any,
        many: list[_Call],
        names: list[str] | None,
        per_host: int,
        resources: dict[str, float] | None,
        role: str | None,
    ) -> list[MachineHandle]:
        self._check()
        self._post.acting()
        if role not in (None, "source", "operator", "sink"):
            raise SettingError(f"role {role!r}: use 'source', 'operator' or 'sink'")
        key, blob = packed(kind)
        machine_class = getattr(kind, "machine_class", kind)
        class_name = machine_class.__name__
        check_listener(machine_class, is_checkpointing=self._is_checkpointing)
        for args, kwargs in many:
            check_fits(machine_class, class_name, "__init__", args, kwargs)
        payloads = [isolate(DRIVER, class_name, "__init__", args, kwargs) for args, kwargs in many]
        if not many:
            return []
        options = host_options(resources)
        places = self._places(len(many), per_host)
        names, generation = self._claim(class_name, names, places, role)
        found = self._restored_among(names)
        spawned = [item for item in zip(names, places, payloads, strict=True) if item[0] not in found]
        if self._post.is_dropping:  # not started: nobody has been restored yet
            self._claimed.update((name, host) for name, host in zip(names, places, strict=True))
            self._claimed_classes.update((name, (key, blob)) for name in found)
        for host in dict.fromkeys(places if self._post.is_dropping else [host for _, host, _ in spawned]):
            if host not in self._hosts:
                self._new_host(host, options)
        if self._post.is_dropping:
            self._born_later.append(lambda: self._create(kind, key, blob, spawned, role, generation))
        else:
            self._create(kind, key, blob, spawned, role, generation)
        lives = dict.fromkeys(names) if self._wanted else dict(zip(names, places, strict=True))
        handles = [handle_of(self.run_id, name, lives[name]) for name in names]
        for handle in handles:
            handle.__dict__["_kind"] = machine_class
        return handles

    def _places(self, count: int, per_host: int) -> list[str]:
        """The hosts of so many machines."""
        if self._wanted is not None and self._wanted.hosts is not None and self._post.is_dropping:
            most = self._wanted.hosts
            self._host_count += count
            return [f"host-{number % most}" for number in range(self._host_count - count, self._host_count)]
        with self._lock:
            first = self._host_count
            self._host_count += -(-count // per_host)
        return [f"host-{first + position // per_host}" for position in range(count)]

    def _restored_among(self, names: list[str]) -> set[str]:
        """Those that are restored, and need not be made; each once."""
        if self._wanted is None:
            return set()
        found = self._wanted.names & set(names)
        self._wanted.names -= found
        return found

    def _claim(
        self, class_name: str, names: list[str] | None, places: list[str], role: str | None
    ) -> tuple[list[str], int]:
        """Names, and the generation that they are good for; asks again if the system is rolled back meanwhile."""
        for _ in range(_CLAIMS):
            self._post.check()
            generation = self._post.member.generation
            claim = (class_name, len(places), names, places, role, generation, True)
            try:
                found = self._again(partial(self._service.claim.remote, *claim), "names")
            except RolledBackError:
                continue
            if role == "source" and self._memory is not None:
                self._memory.sources += found
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
        post = self._post
        while spawned:
            with post.member.lock:
                post.check()
                if post.member.generation == generation:
                    self._send_creations(kind, key, blob, spawned)
                    return
            names, places, _ = (list(column) for column in zip(*spawned, strict=True))
            _, generation = self._claim(kind.__name__, names, places, role)

    def _send_creations(self, kind: Any, key: str, blob: bytes, spawned: list[tuple[str, str, Any]]) -> None:
        post, now = self._post, time.time()
        self._machine_counts.update(host for _, host, _ in spawned)
        for name, host, payload in spawned:
            ship = None if (host, key) in self._shipped else blob
            self._shipped.add((host, key))
            post.core.create(DRIVER, name, host, (key, ship, payload), now)
            if post.journal is not None:
                found = Created(name, host, (key, blob, payload), kind.__name__)
                post.journal.append((post.core.colour_of(post.me), found))
            if post.trace.tracer is not None:
                machine_class = getattr(kind, "machine_class", kind)
                colour = post.core.colour_of(post.me)
                post.trace.tracer.created(DRIVER, name, machine_class, payload, colour)
        post.carrier.flush()

    def _rolled_back(self, share: Share) -> None:
        """In the thread of the driver's post: there are other hosts, and what was created since is gone."""
        self._hosts.update((host, wrapped[0]) for host, wrapped in share.actors.items())
        self._machine_counts.clear()
        self._shipped.clear()
        self.restored = True
        if share.again_from is not None:  # nobody has asked for it
            print(
                f"ray-snapshot: {self.name} has lost a process: it goes back to snapshot {share.snapshot_id}, and on",
                file=sys.stderr,
                flush=True,
            )

    def _new_host(self, host: str, options: dict[str, Any]) -> None:
        settings, post = self.settings, self._post
        with post.member.lock:
            config = HostConfig(
                self.run_id, host, post.core.colour, tuple(post.core.open), *self._alignment(),
                settings.mailbox_bound, settings.send_timeout, settings.spawn_timeout, import_path(),
                self._trace, redaction.names(),
                self._is_checkpointing, settings.recover is not None, post.member.generation, grace=settings.grace,
            )  # fmt: skip
            actor = HostActor.options(**options, max_concurrency=10_000).remote(config, self._service)
            post.carrier.actors[host] = actor
            self._hosts[host] = actor
            if self._memory is not None:
                self._memory.births[host], self._memory.actors[host] = (config, options), actor
            try:
                self._ask(self._service.register.remote(host, [actor], config, options), "the directory")
            except HostDiedError:
                if self._memory is None:
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

    def machine(self, name: str) -> MachineHandle:
        """A machine by name; valid before it is spawned."""
        return handle_of(self.run_id, check_target_name(name))

    def connect(
        self,
        source: MachineHandle | str,
        target: MachineHandle | str,
        port: str | None = None,
    ) -> None:
        """Declare the channel from `source` to `target` before anything is sent on it.

        `port`: a port of a join of `target`, or a method. What is declared so is all that a machine is ever sent: what it
        waits for follows from it. Raises `UnknownMachineError`, and `UnknownMethodError` for a port that `target` does not
        have; where a machine has spawned the target that is found later, and stops the system.
        """
        self._check()
        if port is not None and (not isinstance(port, str) or not port.isidentifier()):
            raise SettingError(f"connect(port={port!r}): it is the name of a port or a method")
        names = [machine_name(item) for item in (source, target)]
        if port is not None:
            self._check_port(names[1], port)
        site = call_site_here()
        self._again(partial(self._service.connect.remote, *names, port, site), f"the channel {names[0]} -> {names[1]}")
        if self._memory is not None:
            self._memory.declared.append((names[0], names[1], port))

    def _check_port(self, target: str, port: str) -> None:
        kind = None if target == DRIVER else handle_of(self.run_id, target)._kind
        if kind is not None and not may_have(kind, port):
            raise UnknownMethodError(
                f"connect(..., {target!r}, port={port!r}): {kind.__name__} has no port and no method {port!r}",
                machine=target,
                method=port,
            )

    def stop(self, machine: MachineHandle | str) -> None:
        """Stop a machine behind its current action: it accepts nothing any more, and sending to it is an error.

        Everybody is told, since anybody may send to it, and what they are told is red if the driver was: so under barriers
        a machine that has not recorded an open snapshot does so at once, unaligned. It is consistent all the same.

        Raises `UnknownMachineError` at once if it has not been spawned.
        """
        self._check()
        name = check_target_name(machine_name(machine))
        post = self._post
        post.acting()
        for most_s in (0.0, *[self.settings.spawn_timeout] * _CLAIMS):
            post.check()
            generation, colour = post.member.generation, post.core.colour
            if self._is_stopping(name, Stop(name, colour, 0), generation, most_s) and post.stopped(name, generation):
                return
            post.holding.await_next(generation)
        raise RolledBackError(f"the system was rolled back again and again while {name} was stopped", snapshot_id=None)

    def _is_stopping(self, name: str, command: Stop, generation: int, most_s: float) -> bool:
        """Tell the host of a machine, which may take `most_s` to be known; whether it was told, and was of this generation."""
        places = self._again(partial(self._service.locate.remote, [name], most_s), "the directory")
        if name not in places:
            raise UnknownMachineError(
                f"no machine {name!r} has been spawned in {self.name}, so it cannot be stopped: check the name",
                machine=name,
            )
        try:
            return bool(ask(self._hosts[places[name]].control.remote([command], generation), f"{name} to stop", 60.0))
        except HostDiedError as error:
            if self._memory is None:
                self._post.tell(error)
                raise
            return False  # it will be stopped where it lives next
