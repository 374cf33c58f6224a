"""`rs.System`: what users hold. It starts the service, the analyst and hosts, and stands for the driver.

Everything here waits with a bound, and says what it waited for. The work is done elsewhere: `driver` sends, `service`
coordinates, `analyst` judges and writes.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import ray
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from ray.exceptions import GetTimeoutError, RayError

from ray_snapshot.errors import (
    RaySnapshotError,
    SettingError,
    SnapshotTimeoutError,
    SystemNotRunningError,
    SystemRunningError,
)
from ray_snapshot.names import DRIVER, check_machine_name, check_system_name
from ray_snapshot.runtime import waits
from ray_snapshot.runtime.analyst import AnalystActor
from ray_snapshot.runtime.classes import packed
from ray_snapshot.runtime.cluster import ask, connect
from ray_snapshot.runtime.driver import DriverPost
from ray_snapshot.runtime.handles import MachineHandle, forget_handles, handle_of
from ray_snapshot.runtime.host import HostActor, HostConfig
from ray_snapshot.runtime.payload import isolate
from ray_snapshot.runtime.service import NAMESPACE, PREFIX, ServiceActor, ServiceConfig
from ray_snapshot.snapshot import Snapshot
from ray_snapshot.verdicts import Detector, Verdict, check_detector

PROTOCOLS = ("chandy-lamport",)

_Call = tuple[tuple[Any, ...], dict[str, Any]]

_OPEN: list[System] = []
"""The systems that this process has open, the latest last."""


class Settings(BaseModel):
    """What a system can be told; seconds everywhere."""

    model_config = ConfigDict(extra="forbid")

    protocol: Literal["chandy-lamport"] = "chandy-lamport"
    every: float | None = Field(None, gt=0)
    mailbox_bound: int = Field(10_000, ge=1)
    """Messages that a channel may have sent and not seen accepted before its sender is held back."""
    send_timeout: float = Field(60.0, gt=0)
    """How long a sender is held at a full mailbox before that is an error."""
    spawn_timeout: float = Field(30.0, gt=0)
    """How long a message to a name waits for the machine of that name to be spawned."""
    start_timeout: float = Field(120.0, gt=0)
    """How long hosts and services may take to start."""
    snapshot_timeout: float = Field(30.0, gt=0)
    most_open: int = Field(8, ge=1)
    """Snapshots that may be pending at once; past it the clock skips."""


class System:
    """A system of machines on Ray; use it in a `with` block.

    `history`: folder of the history, or None. `every`: seconds between snapshots, from `start()` on. `detectors`: what is
    evaluated on every snapshot (default: termination and deadlock). Further settings: `Settings`. Raises `SettingError`,
    `NameNotAllowedError`, `SystemRunningError`, `ClusterError`, `HistoryWriteError`.
    """

    def __init__(
        self,
        name: str = "system",
        *,
        history: str | os.PathLike[str] | None = None,
        detectors: Iterable[Any] | None = None,
        address: str | None = None,
        **settings: Any,
    ) -> None:
        self.name = check_system_name(name)
        self.settings = _settings(settings)
        self.detectors = _detectors(detectors)
        self.history = None if history is None else str(Path(history).absolute())
        self.run_id = uuid.uuid4().hex[:16]
        self.restored = False
        self._hosts: dict[str, Any] = {}
        self._shipped: set[tuple[str, str]] = set()
        self._subscribers: list[Callable[[Verdict], None]] = []
        self._is_closed = False
        self._seen = 0
        self._started_ray = connect(address)
        self._open_services()
        self._post = DriverPost(
            self.run_id,
            self._service,
            mailbox_bound=self.settings.mailbox_bound,
            send_timeout=self.settings.send_timeout,
            spawn_timeout=self.settings.spawn_timeout,
        )
        waits.install()
        _OPEN.append(self)

    def _open_services(self) -> None:
        options = {"num_cpus": 0, "max_concurrency": 10_000}
        analyst = AnalystActor.options(**options).remote(self.name, self.detectors, self.history)
        config = ServiceConfig(
            self.name, self.run_id, self.settings.protocol, self.settings.most_open, self.settings.snapshot_timeout
        )
        try:
            self._service = ServiceActor.options(**options, name=PREFIX + self.name, namespace=NAMESPACE).remote(config, analyst)
        except ValueError:
            ray.kill(analyst)
            raise SystemRunningError(
                f"a system {self.name!r} is already running on this cluster: close it, or choose another name", system=self.name
            ) from None
        self._analyst = analyst
        try:
            self._ask([analyst.ready.remote(), self._service.last_number.remote()], "its services", self.settings.start_timeout)
        except BaseException:
            self._kill([analyst, self._service])
            raise

    # ---- machines -------------------------------------------------------------------------------------------------

    def spawn(
        self,
        kind: type,
        *args: Any,
        name: str | None = None,
        resources: dict[str, float] | None = None,
        role: str | None = None,
        **kwargs: Any,
    ) -> MachineHandle:
        """Create a machine on a host of its own; returns its handle at once.

        `resources`: what the host asks Ray for (`{"CPU": 1, ...}`; default nothing). Raises `DuplicateMachineError`,
        `NameNotAllowedError`, `SettingError`, `UnpicklableMessageError`.
        """
        names = None if name is None else [check_machine_name(name)]
        (handle,) = self._spawn(kind, [(args, kwargs)], names, 1, resources, role)
        return handle

    def spawn_many(
        self,
        kind: type,
        args: Sequence[Any] | None = None,
        *,
        count: int | None = None,
        names: Sequence[str] | None = None,
        per_host: int = 1_000,
        resources: dict[str, float] | None = None,
        role: str | None = None,
    ) -> list[MachineHandle]:
        """Create many machines, `per_host` to a host; returns their handles in order.

        `args`: one tuple of constructor arguments per machine (or `count` machines without arguments). `names`: as many
        (default: "Account-0", "Account-1", ...). Errors as `spawn`.
        """
        if args is None:
            args = [()] * (count if count is not None else len(names or ()))
        many: list[_Call] = [(_arguments(item), {}) for item in args]
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
        if role not in (None, "source", "operator", "sink"):
            raise SettingError(f"role {role!r}: use 'source', 'operator' or 'sink'")
        key, blob = packed(kind)
        class_name = getattr(kind, "machine_class", kind).__name__
        payloads = [isolate(DRIVER, class_name, "__init__", args, kwargs) for args, kwargs in many]
        if not many:
            return []
        first = len(self._hosts)
        places = [f"host-{first + position // per_host}" for position in range(len(many))]
        names = self._ask(self._service.claim.remote(class_name, len(many), names, places), "names")
        for host in dict.fromkeys(places):
            self._new_host(host, resources)
        post, now = self._post, time.time()
        with post.lock:
            for name, host, payload in zip(names, places, payloads, strict=True):
                ship = None if (host, key) in self._shipped else blob
                self._shipped.add((host, key))
                post.core.create(DRIVER, name, host, (key, ship, payload), now)
            post.flush()
        return [handle_of(self.run_id, name, host) for name, host in zip(names, places, strict=True)]

    def _new_host(self, host: str, resources: dict[str, float] | None) -> None:
        settings, post = self.settings, self._post
        asked = dict(resources or {})
        options = {"num_cpus": asked.pop("CPU", 0), "num_gpus": asked.pop("GPU", 0), "resources": asked}
        with post.lock:
            config = HostConfig(
                self.run_id, host, post.core.colour, tuple(post.core.open),
                settings.mailbox_bound, settings.send_timeout, settings.spawn_timeout,
            )  # fmt: skip
            actor = HostActor.options(**options, max_concurrency=10_000).remote(config, self._service)
            post.handles[host] = actor
            self._hosts[host] = actor
            self._ask(self._service.register.remote(host, [actor]), "the directory")

    def machine(self, name: str) -> MachineHandle:
        """A machine by name; valid before it is spawned."""
        return handle_of(self.run_id, check_machine_name(name))

    def connect(self, source: MachineHandle | str, target: MachineHandle | str, port: str | None = None) -> None:
        """Declare the channel from `source` to `target` before anything is sent on it."""
        names = [item if isinstance(item, str) else item._name for item in (source, target)]
        self._ask(self._service.connect.remote(*names), f"the channel {names[0]} -> {names[1]}")

    def stop(self, machine: MachineHandle | str) -> None:
        """Stop a machine behind its current action: it accepts nothing any more, and sending to it is an error."""
        handle = machine if isinstance(machine, MachineHandle) else self.machine(machine)
        self._ask(self._hosts[self._post._place_of(handle)].control.remote([("stop", handle._name)]), f"{handle._name} to stop")
        with self._post.lock:
            self._post.core.stopped.add(handle._name)

    # ---- life -----------------------------------------------------------------------------------------------------

    def start(self) -> System:
        """Wait until every host is up, and start the clock of `every`."""
        self._check()
        waiting = [actor.ready.remote() for actor in self._hosts.values()]
        self._ask(waiting, f"{len(waiting)} hosts to start", self.settings.start_timeout)
        self._check()
        if self.settings.every is not None:
            self._ask(self._service.start_clock.remote(self.settings.every), "the clock")
        return self

    def snapshot(self, *, timeout: float | None = None, initiators: Iterable[MachineHandle | str] = ()) -> Snapshot:
        """Take a consistent snapshot of the whole system, now.

        By default every host is asked at once; with `initiators` those record first and markers alone spread it. Raises
        `SnapshotAbortedError` (past `timeout`, naming who did not record), `UnreachableMachineError`, `UnknownMachineError`.
        """
        self._check()
        seconds = self.settings.snapshot_timeout if timeout is None else timeout
        names = [item if isinstance(item, str) else item._name for item in initiators]
        found: Snapshot = self._ask(self._service.snapshot.remote(names, seconds), "the snapshot", seconds + 10)
        return found

    def wait_for(self, detector: Any, *, timeout: float = 60.0) -> Verdict:
        """Block until `detector` (a name or a detector) holds on a snapshot begun from now on; returns that verdict.

        While it waits the driver is passive. Without a clock snapshots are taken as often as they complete, at most every
        50 ms at first and every second later. Raises `SnapshotTimeoutError` (with the last verdicts), and whatever stops
        the system.
        """
        self._check()
        item = self._known(detector)
        deadline = time.monotonic() + timeout
        begun = self._ask(self._service.last_number.remote(), "the service")
        seen = self._ask(self._analyst.count.remote(), "the analyst")
        self._post.set_status("passive")
        last: dict[str, Verdict] = {}
        pause, due = 0.05, 0.0
        try:
            while (now := time.monotonic()) < deadline:
                self._check()
                if self.settings.every is None and now >= due:
                    self._service.snapshot.remote([], None, False)
                    due, pause = now + pause, min(1.0, pause * 1.2)
                fresh = self._poll(seen, min(deadline, max(due, now + 0.02) if due else deadline) - now)
                seen += len(fresh)
                for number, verdict in fresh:
                    last[verdict.detector] = verdict
                    if number > begun and verdict.detector == item.name and verdict.holds:
                        return verdict
        finally:
            self._post.set_status("active")
        said = "; ".join(f"{verdict.detector}: {verdict.sentence}" for verdict in last.values()) or "no snapshot completed"
        raise SnapshotTimeoutError(
            f"{item.name} did not hold within {timeout:g} s; last verdicts: {said}", waited_for=item.name, seconds=timeout
        )

    def _known(self, detector: Any) -> Detector:
        if isinstance(detector, str):
            for item in self.detectors:
                if item.name == detector:
                    return item
        item = check_detector(detector)
        if item.name not in {known.name for known in self.detectors}:
            self._ask(self._analyst.watch.remote(item), "the analyst")
            self.detectors.append(item)
        return item

    def _poll(self, seen: int, timeout: float) -> list[tuple[int, Verdict]]:
        ref = self._analyst.verdicts_after.remote(seen)
        try:
            found: list[tuple[int, Verdict]] = waits.raw_get(ref, timeout=min(1.0, max(0.01, timeout)))
        except GetTimeoutError:
            return []
        return found

    def subscribe(self, callback: Callable[[Verdict], None]) -> None:
        """Call `callback` with every verdict from now on, in a thread of the driver; all before `close` returns."""
        self._subscribers.append(callback)
        if len(self._subscribers) == 1:
            self._feed = self._post.run(self._feed_subscribers())

    async def _feed_subscribers(self) -> None:
        while True:
            for _, verdict in await self._analyst.verdicts_after.remote(self._seen):
                self._seen += 1
                self._hand_out(verdict)

    def _hand_out(self, verdict: Verdict) -> None:
        for callback in list(self._subscribers):
            callback(verdict)

    def restore(self, snapshot: Snapshot | str) -> None:
        """Roll every machine and channel back to a snapshot: not in this version."""
        raise SettingError("this version does not restore: snapshots are recorded for detection and analysis")

    def close(self) -> None:
        """Finish pending snapshots and verdicts, write them, and end all processes of the system; a second call does nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            trouble = self._finish()
        finally:
            self._post.close()
            self._kill([*self._hosts.values(), self._service, self._analyst])
            forget_handles(self.run_id)
            if self in _OPEN:
                _OPEN.remove(self)
            if not _OPEN:
                waits.uninstall()
            if self._started_ray and not _OPEN:
                ray.shutdown()
        if trouble is not None:
            raise trouble

    def _finish(self) -> RaySnapshotError | None:
        """Let pending snapshots complete, evaluate and write everything; returns what went wrong with the history."""
        try:
            self._ask(self._service.settle.remote(5.0), "pending snapshots", 10)
            trouble: RaySnapshotError | None = self._ask(self._analyst.drain.remote(60.0), "the history to be written", 90)
            if self._subscribers:
                self._feed.cancel()
                for _, verdict in self._poll(self._seen, 1.0) if self._ask(self._analyst.count.remote(), "verdicts") > self._seen else ():
                    self._seen += 1
                    self._hand_out(verdict)
            self._ask(self._service.close.remote(), "the service")
        except RaySnapshotError as error:
            return error
        return trouble

    def __enter__(self) -> System:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        failure = self._post.failure
        try:
            self.close()
        except RaySnapshotError:
            if kind is None and failure is None:
                raise
        if kind is None and failure is not None:
            raise failure

    @property
    def failure(self) -> RaySnapshotError | None:
        """What stopped the system, if anything did."""
        return self._post.failure

    # ---- asking ---------------------------------------------------------------------------------------------------

    def _check(self) -> None:
        if self._is_closed:
            raise SystemNotRunningError(f"system {self.name} was closed", system=self.name)
        self._post.check()

    def _ask(self, refs: Any, what: str, timeout: float = 60.0) -> Any:
        """`ray.get` with a bound in seconds."""
        return ask(refs, f"{what} of system {self.name}", timeout)

    def _kill(self, actors: Iterable[Any]) -> None:
        for actor in actors:
            try:
                ray.kill(actor)
            except (RayError, ValueError):  # already gone, which is what was asked for
                continue


def current_system() -> System:
    """The system that was opened last in this process and is still open."""
    if not _OPEN:
        raise SystemNotRunningError("no system is open in this process: use `with rs.System(...)` first")
    return _OPEN[-1]


def _arguments(item: Any) -> tuple[Any, ...]:
    return item if isinstance(item, tuple) else tuple(item) if isinstance(item, list) else (item,)


def _settings(given: dict[str, Any]) -> Settings:
    try:
        return Settings(**given)
    except ValidationError as error:
        first = error.errors()[0]
        raise SettingError(f"System(): {'.'.join(map(str, first['loc']))}: {first['msg']} (got {first['input']!r})") from None


def _detectors(given: Iterable[Any] | None) -> list[Detector]:
    if given is None:
        from ray_snapshot import detectors

        return [detectors.Termination(), detectors.Deadlock()]
    return [check_detector(item) for item in given]


__all__ = ["Settings", "System", "current_system"]
