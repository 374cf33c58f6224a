"""`rs.System`: what users hold. It starts the service, the analyst and hosts, and stands for the driver.

Everything here waits with a bound, and says what it waited for. The work is done elsewhere: `driver` sends, `service`
coordinates, `analyst` judges and writes.
"""

from __future__ import annotations

import atexit
import os
import shlex
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Unpack

import ray
from ray import cloudpickle
from ray.exceptions import RayError

from ray_snapshot import redaction
from ray_snapshot.errors import (
    HostDiedError,
    RaySnapshotError,
    SettingError,
    SystemNotRunningError,
    SystemRunningError,
)
from ray_snapshot.history.checkpoints import checkpoint_key
from ray_snapshot.names import NAMESPACE, PREFIX, check_system_name
from ray_snapshot.runtime import waits
from ray_snapshot.runtime.analyst import AnalystActor
from ray_snapshot.runtime.assembly import warm_up
from ray_snapshot.runtime.awaiting import Awaiting
from ray_snapshot.runtime.classes import import_path
from ray_snapshot.runtime.cluster import ask, connect
from ray_snapshot.runtime.driver.attending import Attendant, Patience
from ray_snapshot.runtime.driver.memory import Memory
from ray_snapshot.runtime.driver.post import DriverPost
from ray_snapshot.runtime.faults import first_line
from ray_snapshot.runtime.handles import forget_handles
from ray_snapshot.runtime.keeping import Keeper, not_restorable
from ray_snapshot.runtime.leaving import Leaving
from ray_snapshot.runtime.restoring import Wanted, wanted
from ray_snapshot.runtime.service.actor import ServiceActor
from ray_snapshot.runtime.service.config import ServiceConfig
from ray_snapshot.runtime.service.directory import listed
from ray_snapshot.runtime.settings import (
    Settings,
    SettingsGiven,
    check_writable,
    detectors_of,
    refuse_redaction,
    settings_of,
)
from ray_snapshot.runtime.subscribers import Subscribers
from ray_snapshot.runtime.tracing import main_module
from ray_snapshot.snapshot import Snapshot

_AGAIN_S = 0.05
"""How often a service that has died is asked again."""

_OPEN: list[System] = []
"""The systems that this process has open, the latest last."""


class System(Awaiting):
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
        **settings: Unpack[SettingsGiven],
    ) -> None:
        self.name = check_system_name(name)
        self.settings = settings_of({**settings})
        self.detectors = detectors_of(detectors)
        self.history = None if history is None else str(Path(history).absolute())
        if self.settings.trace and self.history is None:
            raise SettingError("System(trace=True): the trace is kept in a history: give history=..., too")
        if self.history is not None and address is None and _starts_ray():
            check_writable(Path(self.history))
        self.run_id = uuid.uuid4().hex[:16]
        self._trace = main_module() if self.settings.trace else None
        self._wanted = wanted(self.name)
        self.restored = self._wanted is not None
        """Whether the system goes on from a snapshot."""
        self._is_checkpointing = self.settings.checkpoint or self.settings.recover is not None
        if self._is_checkpointing:
            refuse_redaction("System")
        if self.settings.trace and (self._wanted or self._is_checkpointing):
            raise SettingError("System(trace=True, checkpoint=True): a trace has one past only; leave one of them out")
        keeps_files = self._is_checkpointing and self.history is not None
        self._key = checkpoint_key() if keeps_files or self._wanted else None
        self._claimed: dict[str, str] = {}
        """Machines that are to be restored, by name: the hosts that the program wants them on."""
        self._claimed_classes: dict[str, tuple[str, bytes]] = {}
        self._born_later: list[Callable[[], None]] = []
        """Machines that the program has spawned and no checkpoint has: made when the others have been restored."""
        self._hosts: dict[str, Any] = {}
        self._host_count = 0
        self._machine_counts: Counter[str] = Counter()
        """Machines that the driver has spawned, per host."""
        self._shipped: set[tuple[str, str]] = set()
        self._subscribers: Subscribers | None = None
        self._is_closed = False
        self._has_clock = False
        self._lock = threading.Lock()
        """Around what several threads of the driver may change at once."""
        self._started_ray = connect(address)
        threading.Thread(target=warm_up, name="ray-snapshot-warm-up", daemon=True).start()
        try:
            self._open_services()
        except BaseException:
            self._leave_ray()
            raise
        self._post = DriverPost(
            self.run_id,
            self._service,
            protocol=self.settings.protocol,
            mailbox_bound=self.settings.mailbox_bound,
            send_timeout=self.settings.send_timeout,
            spawn_timeout=self.settings.spawn_timeout,
            trace=self._trace,
            checkpoint=self._is_checkpointing,
            attendant=self._attendant(),
        )
        self._post.on_rollback = self._rolled_back
        self._post.on_replaced = self._hosts.__setitem__
        self._post.is_dropping = self._wanted is not None
        self._enlist()

    def _enlist(self) -> None:
        """The process has one more system."""
        waits.install()
        if not _OPEN:
            atexit.register(_close_forgotten)
        _OPEN.append(self)
        if self.settings.grace and (self.history is not None or self._is_checkpointing):
            _LEAVING.install()

    def _attendant(self) -> Attendant | None:
        """Who sees to it that the system goes on when its service or its analyst dies."""
        settings = self.settings
        if settings.recover is None:
            return None
        patience = Patience(settings.most_failures, settings.failures_within, settings.start_timeout)
        found = Attendant(self.name, self._service, self._analyst, self._open_analyst, patience)
        found.memory.keeps_copy = self.history is None
        if self._wanted is not None:
            found.memory.wanted, found.memory.unclaimed = self._wanted.snapshot_id, self._wanted.names
            found.memory.claimed, found.memory.classes = self._claimed, self._claimed_classes
        return found

    def _open_analyst(self, life: int = 0) -> Any:
        """Tell an analyst what to do; the reference to wait for."""
        keeper = None
        if self._is_checkpointing or self._wanted:
            keeper = Keeper(
                self.run_id, self.history, self._key, None if self._wanted is None else self._wanted.history
            )
            memory = None if life == 0 else self._memory
            if memory is not None:
                keeper.aliases += memory.aliases
                for checkpoint in memory.copies():
                    keeper.recall(checkpoint)
        detectors, has_subscribers = cloudpickle.dumps(self.detectors), self._subscribers is not None
        return self._analyst.open.remote(detectors, redaction.names(), keeper, life, has_subscribers=has_subscribers)

    def _open_services(self) -> None:
        options: dict[str, Any] = {"num_cpus": 0, "max_concurrency": 10_000}
        if self.settings.recover is not None:
            options["max_restarts"] = -1  # see `attending`
        analyst = AnalystActor.options(**options).remote(self.name, self.history, import_path())
        settings = self.settings
        config = ServiceConfig(
            self.name, self.run_id, settings.protocol, settings.most_open, settings.snapshot_timeout,
            self._is_checkpointing, settings.recover is not None, settings.most_failures, settings.failures_within,
            settings.start_timeout,
        )  # fmt: skip
        try:
            self._service = ServiceActor.options(**options, name=PREFIX + self.name, namespace=NAMESPACE).remote(
                config, None if settings.recover else analyst
            )
        except ValueError:
            ray.kill(analyst)
            raise SystemRunningError(
                f"a system {self.name!r} is already running on this cluster: close it, or choose another name",
                system=self.name,
            ) from None
        self._analyst = analyst
        try:
            opened = [self._open_analyst(), self._service.open.remote([analyst])]
            if self._wanted:
                opened.append(self._service.may_be_claimed_again.remote(list(self._wanted.names)))
            ask(opened, f"the services of system {self.name}", self.settings.start_timeout)
        except BaseException:
            self._kill([analyst, self._service])
            raise

    # ---- life -----------------------------------------------------------------------------------------------------

    def start(self) -> System:
        """Wait until every machine spawned so far has been constructed, and start the clock of `every`.

        Raises `SnapshotTimeoutError` past `start_timeout` (does the cluster have the `resources` that hosts ask for?).
        """
        self._check()
        if self._wanted is not None and self._post.is_dropping:
            self._begin_restored(self._wanted)
        waiting = [actor.ready.remote(self._machine_counts[host]) for host, actor in self._hosts.items()]
        self._ask(waiting, f"{len(waiting)} hosts to start", self.settings.start_timeout)
        self._check()
        if self.settings.recover is not None and not self.restored:
            self._take_first()
        if self.settings.every is not None:
            self._has_clock = True
            if self._memory is not None:
                self._memory.every = self.settings.every
            self._again(partial(self._service.start_clock.remote, self.settings.every), "the clock")
        return self

    def _take_first(self) -> None:
        """What to go back to when a host dies before there is another snapshot."""
        first = self.snapshot()
        if not first.restorable:
            raise not_restorable(first.snapshot_id, first.obstacles)
        seconds = self.settings.start_timeout
        self._ask(self._service.recoverable.remote(first.snapshot_id, seconds), "the first snapshot", seconds + 10)

    def restore(self, snapshot: Snapshot | str) -> None:
        """Roll every machine and channel back to a snapshot (or its id) that was taken with `checkpoint=True`, and go on.

        All stop, then all load, then all go on: nothing from before is accepted afterwards. Machines that were created since
        are gone; what the driver has sent since, too. Raises, with nothing changed, `NotRestorableError` (naming the
        obstacles), `CheckpointError`; `MachineFailedError` if a machine does not take its state back.
        """
        self._check()
        if isinstance(snapshot, Snapshot) and not snapshot.restorable:
            raise not_restorable(snapshot.snapshot_id, snapshot.obstacles)
        if not self._is_checkpointing and self._wanted is None:
            raise SettingError("restore: there is nothing to restore from without System(checkpoint=True)")
        snapshot_id = snapshot.snapshot_id if isinstance(snapshot, Snapshot) else snapshot
        self._restore(snapshot_id, {}, {})

    def _restore(self, snapshot_id: str, claimed: dict[str, str], classes: dict[str, tuple[str, bytes]]) -> None:
        restore = partial(self._service.restore.remote, snapshot_id, claimed, classes)
        self._again(restore, f"snapshot {snapshot_id} to be restored", self.settings.start_timeout + 60)

    def _begin_restored(self, found: Wanted) -> None:
        """Where a program starts its system anew: what was recorded takes the place of what it has set up."""
        self._restore(found.snapshot_id, self._claimed, self._claimed_classes)
        found.is_done = True
        self._say_who_is_new(found)
        dropped, self._post.is_dropping = self._post.dropped, False
        for create in self._born_later:
            create()
        self._born_later.clear()
        if dropped:
            print(
                f"ray-snapshot: {self.name} goes on from {found.snapshot_id}; {dropped} messages that the program sent before"
                " start() were dropped",
                file=sys.stderr,
            )

    def _say_who_is_new(self, found: Wanted) -> None:
        """A name that the snapshot has not is a new machine, or a name that has changed: only the program's author can tell."""
        new = sorted(set(self._claimed) - set(self._claimed_classes))
        if new:
            left = f"; in it, and not spawned by the program: {listed(sorted(found.names))}" if found.names else ""
            print(
                f"ray-snapshot: not in snapshot {found.snapshot_id}, so made anew: {listed(new)}{left}", file=sys.stderr
            )

    def close(self) -> None:
        """Finish pending snapshots and verdicts, write them, and end all processes of the system.

        Raises what stopped the system, unless the program has met that already, `HistoryWriteError`, and what a subscriber
        raised. A second call does nothing.
        """
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
        troubles: list[RaySnapshotError | None] = []
        try:
            if ray.is_initialized():
                self._finish(troubles)
        finally:
            self._leave()
        for trouble in [self._post.failure, *troubles]:
            if trouble is not None and not self._post.was_told(trouble):
                raise trouble

    def _finish(self, troubles: list[RaySnapshotError | None]) -> None:
        """Let pending snapshots complete, evaluate and write everything; notes what went wrong, the worst first."""
        steps: list[Callable[[], RaySnapshotError | None]] = [
            lambda: ask(self._service.settle.remote(5.0), "pending snapshots", 10),
            self._ship_trace,
            lambda: ask(self._analyst.drain.remote(60.0), "the history to be written", 90),
            self._close_subscribers,
            lambda: ask(self._service.close.remote(), "the service", 10),
        ]
        for step in steps:
            try:
                troubles.append(step())
            except RaySnapshotError as error:  # the next step may still save something
                troubles.append(error)

    def _take_last(self) -> None:
        """The program has been told to end: a last snapshot, and all that was recorded is written."""
        grace = self.settings.grace
        if not grace or self._is_closed:
            return
        try:
            saved = ask(self._service.last_snapshot.remote(grace), "the last snapshot", grace + 1)
            ask(self._analyst.drain.remote(grace), "the history to be written", grace + 1)
        except RaySnapshotError as error:
            print(f"system {self.name}: {first_line(error)}", file=sys.stderr)
            return
        if self._is_checkpointing and self.history is not None:
            found = f"saved in snapshot {saved}" if saved else f"not restorable within {grace:g} s"
            how = f"go on with `ray-snapshot restore {shlex.quote(self.history)} latest SCRIPT`"
            print(f"ray-snapshot: SIGTERM: {self.name} is {found}; {how}", file=sys.stderr, flush=True)

    def _ship_trace(self) -> RaySnapshotError | None:
        """What of the trace no report has taken; a host that is gone takes its own with it, and is the trouble told of."""
        if self._trace is None:
            return None
        ask(list(self._post.recorder.reports), "the driver's trace", 10)
        found, trouble = [self._post.trace.rest()], None
        for host, actor in self._hosts.items():
            try:
                found.append(ask(actor.rest_of_trace.remote(), f"the trace of {host}", 30))
            except RaySnapshotError as error:
                trouble = trouble or error
        found += ask(self._service.rest_of_trace.remote(), "the trace", 10)
        ask(self._analyst.add_trace.remote([part for part in found if part is not None]), "the trace to be kept", 30)
        return trouble

    def _close_subscribers(self) -> RaySnapshotError | None:
        if self._subscribers is None:
            return None
        self._subscribers.close(timeout=60.0)
        return self._subscribers.trouble

    def _leave(self) -> None:
        """End every process of the system; returns when they are gone."""
        self._post.close()
        self._kill([*self._hosts.values(), self._service, self._analyst])
        forget_handles(self.run_id)
        if self in _OPEN:
            _OPEN.remove(self)
        if not _OPEN:
            _LEAVING.uninstall()
            waits.uninstall()
            atexit.unregister(_close_forgotten)
        self._leave_ray()

    def _leave_ray(self) -> None:
        if self._started_ray and not _OPEN:
            ray.shutdown()

    def __enter__(self) -> System:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except RaySnapshotError:
            if kind is None:  # else what the block raised says more
                raise

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
        try:
            return ask(refs, f"{what} of system {self.name}", timeout)
        except RaySnapshotError as error:
            self._post.tell(error)
            raise

    @property
    def _memory(self) -> Memory | None:
        """What the driver remembers for a service or an analyst that is started anew."""
        attendant = self._post.attendant
        return None if attendant is None else attendant.memory

    def _again(self, make: Callable[[], Any], what: str, timeout: float = 60.0) -> Any:
        """Ask a service that may die; if the system goes on by itself, ask the next one: for what may be asked twice."""
        deadline = time.monotonic() + timeout
        while True:
            try:
                return ask(make(), f"{what} of system {self.name}", timeout)
            except RaySnapshotError as error:
                if self._is_closed:  # by another thread, meanwhile
                    self._check()
                is_gone = isinstance(error, HostDiedError) and error.host is None
                if not is_gone or self.settings.recover is None or time.monotonic() > deadline:
                    self._post.tell(error)
                    raise
            time.sleep(_AGAIN_S)
            self._check()

    def _kill(self, actors: list[Any]) -> None:
        """Kill actors, and wait until Ray says that they are gone."""
        if not ray.is_initialized():
            return
        gone = [actor.watched.remote() for actor in actors]
        for actor in actors:
            try:
                ray.kill(actor)
            except (RayError, ValueError):  # already gone, which is what was asked for
                continue
        ray.wait(gone, num_returns=len(gone), timeout=5.0)


def current_system() -> System:
    """The system that was opened last in this process and is still open."""
    if not _OPEN:
        raise SystemNotRunningError("no system is open in this process: use `with rs.System(...)` first")
    return _OPEN[-1]


def _take_last_of_all() -> None:
    for system in reversed(_OPEN.copy()):
        system._take_last()


_LEAVING = Leaving(_take_last_of_all)


def _close_forgotten() -> None:
    """At the program's end: systems that nobody closed."""
    for system in reversed(_OPEN.copy()):
        try:
            system.close()
        except RaySnapshotError as error:
            print(f"system {system.name}: {first_line(error)}", file=sys.stderr)


def _starts_ray() -> bool:
    """Whether Ray will be started here; what runs already may write its files on another computer."""
    return not ray.is_initialized() and not os.environ.get("RAY_ADDRESS")


__all__ = ["Settings", "System", "current_system"]
