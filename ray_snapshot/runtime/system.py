"""`rs.System`: what users hold. It starts the service, the analyst and hosts, and stands for the driver.

Everything here waits with a bound, and says what it waited for. The work is done elsewhere: `driver` sends, `service`
coordinates, `analyst` judges and writes.
"""

from __future__ import annotations

import atexit
import os
import shlex
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

import ray

from ray_snapshot.errors import (
    HostDiedError,
    RaySnapshotError,
    RolledBackError,
    SettingError,
    SnapshotAbortedError,
    SystemNotRunningError,
    SystemRunningError,
)
from ray_snapshot.first_array import warm_up
from ray_snapshot.history.restorable import not_restorable
from ray_snapshot.names import NAMESPACE, PREFIX, check_machine_name, check_system_name, check_target_name, listed
from ray_snapshot.runtime import shutting_down, waits
from ray_snapshot.runtime.analyst.actor import AnalystActor
from ray_snapshot.runtime.classes import import_path
from ray_snapshot.runtime.cluster import ask, check_shared, connect
from ray_snapshot.runtime.driver.attending import Attendant, Patience
from ray_snapshot.runtime.driver.memory import Memory
from ray_snapshot.runtime.driver.post import DriverPost
from ray_snapshot.runtime.faults import first_line
from ray_snapshot.runtime.handles import MachineHandle, forget_handles, handle_of
from ray_snapshot.runtime.here import call_site_here
from ray_snapshot.runtime.joining import names_to_try, to_join
from ray_snapshot.runtime.leaving import Leaving
from ray_snapshot.runtime.mixin import SnapshotMixin
from ray_snapshot.runtime.planning import Share
from ray_snapshot.runtime.restoring import Wanted
from ray_snapshot.runtime.service.actor import ServiceActor
from ray_snapshot.runtime.service.config import ServiceConfig
from ray_snapshot.runtime.session import Session
from ray_snapshot.runtime.settings import (
    OF_WATCHES,
    Settings,
    SettingsGiven,
    arguments,
    check_writable,
    seconds_of,
    settings_of,
)
from ray_snapshot.runtime.spawning import Call, Spawner
from ray_snapshot.runtime.subscribers import AlarmLog
from ray_snapshot.runtime.tracing import main_module
from ray_snapshot.snapshot import Snapshot
from ray_snapshot.stderr import say
from ray_snapshot.verdicts import Verdict
from ray_snapshot.waits import machine_name

if TYPE_CHECKING:
    from ray_snapshot.runtime.remote import MachineClass

M = TypeVar("M", bound=SnapshotMixin)

_OPEN: list[System] = []
"""The systems that this process has open, the latest last."""


class System(Session):
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
        check_system_name(name)
        for setting in OF_WATCHES:
            if setting in settings:
                raise SettingError(
                    f"System({setting}=...): that is for an app that is watched (rs.watch, ray-snapshot run)"
                )
        given = settings_of({**settings})
        if given.trace and history is None:
            raise SettingError("System(trace=True): the trace is kept in a history: give history=..., too")
        if history is not None and address is None and _starts_ray():
            check_writable(history)
        super().__init__(name, given, kind="System", history=history, detectors=detectors)
        if given.trace and (self._wanted or self._is_checkpointing):
            raise SettingError("System(trace=True, checkpoint=True): a trace has one past only; leave one of them out")
        self._trace = main_module() if given.trace else None
        self._started_ray = connect(address)  # which begins the watch of a program that is to be watched
        threading.Thread(target=warm_up, name="ray-snapshot-warm-up", daemon=True).start()
        self._watch: Any = None
        """The watch that this system has joined."""
        try:
            self._watch = None if self._wanted else to_join(name, given, self.history)
            if self._watch is None:
                check_shared(self.history, is_shared=given.history_is_shared)
            else:
                self._is_checkpointing = self._watch.is_checkpointing
            self._open_services()
        except BaseException:
            self._leave_ray()
            raise
        self._post = self._part = DriverPost(
            self.run_id,
            self._service,
            protocol=given.protocol,
            mailbox_bound=given.mailbox_bound,
            send_timeout=given.send_timeout,
            spawn_timeout=given.spawn_timeout,
            trace=self._trace,
            checkpoint=self._is_checkpointing,
            attendant=self._attendant(),
            beside=None if self._watch is None else self._watch.process,
            generation=0 if self._watch is None else self._joined.generation,
        )
        self._spawner = Spawner(
            self,
            self._post,
            self._service,
            trace=self._trace,
            wanted=self._wanted,
            is_checkpointing=self._is_checkpointing,
            stamp=None if self._watch is None else self._watch.process.stamp,
            life=0 if self._watch is None else self._joined.life,
        )
        self._spawner.is_claiming = self._watch is not None and self._watch.is_to_be_restored
        if self._wanted is not None and self._memory is not None:
            self._memory.claimed, self._memory.classes = self._spawner.claimed, self._spawner.claimed_classes
        self._post.on_rollback = self._rolled_back
        self._post.on_replaced = self._spawner.hosts.__setitem__
        self._post.is_dropping = self._wanted is not None
        self._enlist()
        self._tell_alarms()
        if self._watch is None or self._watch._on_watch is None:  # else who watches says it
            self._hear_by(AlarmLog(self.name, self._news()))

    def _rolled_back(self, share: Share) -> None:
        self.restored = True
        self._spawner.rolled_back(share)

    @property
    def _memory(self) -> Memory | None:
        attendant = self._post.attendant
        return None if attendant is None else attendant.memory

    def _enlist(self) -> None:
        """Note that this process has one more system open."""
        waits.install()
        if not _OPEN:
            atexit.register(_close_forgotten)
        _OPEN.append(self)
        shutting_down.opened(self, self.close)
        if self.settings.grace and (self.history is not None or self._is_checkpointing):
            _LEAVING.install()

    def _attendant(self) -> Attendant | None:
        """The driver's part that makes the system go on when its service or its analyst dies; None without
        `recover`."""
        settings = self.settings
        if settings.recover is None:
            return None
        patience = Patience(settings.most_failures, settings.failures_within, settings.start_timeout)
        found = Attendant(self.name, self._service, self._analyst, self._open_analyst, patience)
        found.memory.keeps_copy = self.history is None
        if self._wanted is not None:
            found.memory.wanted, found.memory.unclaimed = self._wanted.snapshot_id, self._wanted.names
        return found

    def _join(self, watch: Any) -> None:
        """Take part in what watches the program's actors: its service, its analyst, its history."""
        self.history = watch.history
        self._service, self._analyst = watch._service, watch._analyst
        known = {item.name for item in watch.detectors}
        for item in self.detectors:
            watch._known(item)
        self._added = {item.name for item in self.detectors} - known
        """Detectors that are evaluated for this system only."""
        self.detectors = watch.detectors
        terms = (self.settings.protocol, self.settings.spawn_timeout)
        self._joined = ask(self._service.admit_system.remote(*terms), "the watch to take the machines in", 60.0)
        self.run_id = self._joined.run_id
        watch.joined = self

    def _forget_detectors(self) -> None:
        """What was evaluated for this system only is evaluated no more."""
        self.detectors[:] = [item for item in self.detectors if item.name not in self._added]
        for news in () if self._watch is None else self._watch._all_news:
            news.forget(self._added)
        ask(self._analyst.forget.remote(list(self._added)), "the analyst", 30)

    @property
    def claims(self) -> tuple[dict[str, str], dict[str, tuple[str, bytes]]]:
        """Of the machines that the program has spawned, and that are to be restored: hosts, and classes, by name."""
        return self._spawner.claimed, self._spawner.claimed_classes

    def _is_of_ours(self, stuck: Verdict) -> bool:
        if self._watch is None:
            return True
        members = stuck.evidence["members"]
        names = {record["machine"] for record in members}
        known = self._ask(self._service.locate.remote(list(names), 0.0), "the directory")
        return len(members) == stuck.evidence["member_count"] and names <= set(known)

    def _open_services(self) -> None:
        if self._watch is not None:
            self._join(self._watch)
            return
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
        for called in names_to_try(self.name):
            named = ServiceActor.options(**options, name=PREFIX + called, namespace=NAMESPACE)
            try:
                self._service = named.remote(config, None if settings.recover else analyst)
                break
            except ValueError:
                continue
        else:
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

    # ---- machines -------------------------------------------------------------------------------------------------

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

        `resources`: what the host asks Ray for (`{"CPU": 1, ...}`; default nothing). `role`: under barriers a
        `"source"` records when it is asked, whatever is connected to it; so does a machine without declared inputs.
        `"operator"` and `"sink"` are notes for the reader. Raises `DuplicateMachineError`, `NameNotAllowedError`,
        `SettingError`, `UnpicklableMessageError`, `WrongArgumentsError` (of the constructor).
        """
        names = None if name is None else [check_machine_name(name)]
        (handle,) = self._spawner.spawn(kind, [(args, kwargs)], names, 1, resources, role)
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
    ) -> Sequence[MachineHandle[M]]:
        """Create many machines, `per_host` to a host; returns their handles in order, each made when it is asked for.

        `args`: one tuple of constructor arguments per machine (else `count` machines without arguments). `names`: as many
        (default: "Account-0", "Account-1", ...). Errors as `spawn`.
        """
        if args is None:
            if count is None and names is None:
                raise SettingError("spawn_many: say how many, by args=[...], names=[...] or count=...")
            args = [()] * (count if count is not None else len(names or ()))
        many: list[Call] = [(arguments(item), {}) for item in args]
        if names is not None and len(names) != len(many):
            raise SettingError(f"spawn_many: {len(names)} names for {len(many)} machines")
        if per_host < 1:
            raise SettingError(f"spawn_many: per_host is {per_host}; it must be at least 1")
        checked = None if names is None else [check_machine_name(name) for name in names]
        return self._spawner.spawn(kind, many, checked, per_host, resources, role)

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
        self._spawner.connect(source, target, port, call_site_here())

    def stop(self, machine: MachineHandle | str) -> None:
        """Stop a machine behind its current action: it accepts nothing any more, and sending to it is an error.

        All hosts are told, since any machine may send to it, and this word is red if the driver was: so under barriers
        a machine that has not recorded an open snapshot does so at once, unaligned. It is consistent all the same.

        Raises `UnknownMachineError` at once if it has not been spawned.
        """
        self._spawner.stop(machine)

    # ---- snapshots ------------------------------------------------------------------------------------------------

    def snapshot(
        self, *, timeout: float | None = None, initiators: Iterable[MachineHandle | str] | MachineHandle | str = ()
    ) -> Snapshot:
        """Take a snapshot of the whole system, now: each machine as it was at one moment, and what was in flight between them.

        The cut is a beginning of each machine's actions; in flight is what was sent inside it and not accepted inside it.

        - `chandy-lamport`: hosts record as a whole. By default every host is asked at once; with `initiators` their hosts
          are, and markers alone bring it to the others.
        - `observer`: the same, without markers; with `initiators`, all other hosts are asked when theirs have recorded.
        - barriers: machines record one by one. Hosts are asked as under markers, and the driver always; of what hears of
          it, machines that await no input (none was declared that closes no cycle, or `role="source"`) record at once.
          `aligned-barrier`: the others when each awaited input has delivered its barrier: on these nothing is in flight, on
          undeclared channels and back edges it may be. `unaligned-barrier`: at the first barrier; what it overtook is in
          flight. `at-least-once-barrier`: as aligned, but what comes behind a barrier is accepted meanwhile: then the
          snapshot is not `consistent`, and `duplicate_count` of a channel says how much of it is in the state.

        Past half of `timeout` a machine inside a long action is recorded without its state, and no machine aligns any
        more. Raises `SnapshotAbortedError` (past `timeout`, naming what did not record; or when a host dies),
        `UnreachableMachineError` (from `initiators` no channels lead to some machine), `UnknownMachineError`, and
        whatever stopped the system.
        """
        given: Any = [initiators] if isinstance(initiators, (str, MachineHandle)) else initiators
        names = [machine_name(item) for item in given]
        try:
            return self._taken(names, timeout)
        except HostDiedError as error:
            if error.host is not None or self._memory is None:
                raise
            raise SnapshotAbortedError(
                f"the snapshot was given up: {error}; the system goes on: ask again",
                snapshot_id=None,
                reason="the system's service died",
                machine=None,
                call_site=None,
            ) from None

    def commit(self, *, timeout: float = 60.0) -> Snapshot:
        """Take a snapshot, and return it when it can be restored and every sink has published what it holds.

        Call it when all is done: what came behind the last snapshot has not been published. If the system is rolled back
        meanwhile, that is done again. Raises `NotRestorableError` with the obstacles, `SnapshotTimeoutError`, and whatever
        stopped the system.
        """
        deadline = time.monotonic() + seconds_of("commit", timeout)
        while True:
            left = max(0.1, deadline - time.monotonic())
            try:
                found = self.snapshot(timeout=left)
                if not found.restorable:
                    raise not_restorable(found.snapshot_id, found.obstacles)
                self._again(partial(self._service.committed.remote, found.snapshot_id), "the sinks to publish", left)
                return found
            except (RolledBackError, SnapshotAbortedError):
                if time.monotonic() >= deadline:
                    raise
            except HostDiedError as error:  # the service, which the next one takes for a rollback
                if error.host is not None or self._memory is None or time.monotonic() >= deadline:
                    raise

    # ---- life -----------------------------------------------------------------------------------------------------

    def start(self) -> System:
        """Wait until every machine spawned so far has been constructed, and start the clock of `every`.

        Raises `SnapshotTimeoutError` past `start_timeout` (does the cluster have the `resources` that hosts ask for?).
        """
        self._check()
        if self._wanted is not None and self._post.is_dropping:
            self._begin_restored(self._wanted)
        waiting = self._spawner.ready()
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

        In a program whose actors are watched they go back, too: see `Watch.restore`.
        """
        if self._watch is None:
            self._restore(self._restorable_id(snapshot, "System(checkpoint=True)"), {}, {})
        else:
            self._watch.restore(snapshot, timeout=self.settings.start_timeout)

    def _restore(self, snapshot_id: str, claimed: dict[str, str], classes: dict[str, tuple[str, bytes]]) -> None:
        restore = partial(self._service.restore.remote, snapshot_id, claimed, classes)
        self._again(restore, f"snapshot {snapshot_id} to be restored", self.settings.start_timeout + 60)

    def _begin_restored(self, found: Wanted) -> None:
        """Where a program starts its system anew: what was recorded takes the place of what it has set up."""
        self._restore(found.snapshot_id, self._spawner.claimed, self._spawner.claimed_classes)
        found.is_done = True
        self._say_who_is_new(found)
        dropped, self._post.is_dropping = self._post.dropped, False
        self._spawner.spawn_later()
        if dropped:
            say(
                f"ray-snapshot: {self.name} goes on from {found.snapshot_id}; {dropped} messages that the program sent before"
                " start() were dropped"
            )

    def _say_who_is_new(self, found: Wanted) -> None:
        """Print the spawned names that the snapshot does not have: new machines, or machines whose names have
        changed."""
        new = sorted(set(self._spawner.claimed) - set(self._spawner.claimed_classes))
        if new:
            left = f"; in it, and not spawned by the program: {listed(sorted(found.names))}" if found.names else ""
            say(f"ray-snapshot: not in snapshot {found.snapshot_id}, so made anew: {listed(new)}{left}")

    def _last_steps(self) -> list[Callable[[], RaySnapshotError | None]]:
        if self._watch is not None:
            return [
                lambda: ask(self._service.dismiss_system.remote(5.0), "pending snapshots", 10),
                lambda: ask(self._analyst.drain.remote(60.0), "the verdicts", 90),
                self._close_subscribers,
                self._forget_detectors,
            ]
        settled, *others = super()._last_steps()
        return [settled, self._ship_trace, *others]

    def _take_last(self) -> None:
        """The program has been told to end: a last snapshot, and all that was recorded is written."""
        grace = self.settings.grace
        if not grace or self._is_closed:
            return
        try:
            saved = ask(self._service.last_snapshot.remote(grace), "the last snapshot", grace + 1)
            ask(self._analyst.drain.remote(grace), "the history to be written", grace + 1)
        except RaySnapshotError as error:
            say(f"system {self.name}: {first_line(error)}")
            return
        if self._is_checkpointing and self.history is not None:
            found = f"saved in snapshot {saved}" if saved else f"not restorable within {grace:g} s"
            how = f"go on with `ray-snapshot restore {shlex.quote(self.history)} latest SCRIPT`"
            say(f"ray-snapshot: SIGTERM: {self.name} is {found}; {how}")

    def _ship_trace(self) -> RaySnapshotError | None:
        """Write the rest of the trace, which no report has taken. Returns the error of a host that is gone with its
        part."""
        if self._trace is None:
            return None
        ask(list(self._post.recorder.reports), "the driver's trace", 10)
        found, trouble = [self._post.trace.rest()], None
        for host, actor in self._spawner.hosts.items():
            try:
                found.append(ask(actor.rest_of_trace.remote(), f"the trace of {host}", 30))
            except RaySnapshotError as error:
                trouble = trouble or error
        found += ask(self._service.rest_of_trace.remote(), "the trace", 10)
        ask(self._analyst.add_trace.remote([part for part in found if part is not None]), "the trace to be kept", 30)
        return trouble

    def _leave(self) -> None:
        """End every process of the system; returns when they are gone."""
        if self._watch is not None:
            self._watch.joined = None
        self._post.close()
        self._kill([*self._spawner.hosts.values(), *([] if self._watch else (self._service, self._analyst))])
        forget_handles(self.run_id)
        if self in _OPEN:
            _OPEN.remove(self)
        if not _OPEN:
            _LEAVING.uninstall()
            waits.uninstall()
            atexit.unregister(_close_forgotten)
        self._leave_ray()

    def _leave_ray(self) -> None:
        if self._started_ray and not _OPEN and shutting_down.has_ray(self):  # else it would be the program's next one
            ray.shutdown()


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
    """At the program's end: close the systems that the program has not closed."""
    for system in reversed(_OPEN.copy()):
        try:
            system.close()
        except RaySnapshotError as error:
            say(f"system {system.name}: {first_line(error)}")


def _starts_ray() -> bool:
    """Whether Ray will be started here; what runs already may write its files on another computer."""
    return not ray.is_initialized() and not os.environ.get("RAY_ADDRESS")


__all__ = ["Settings", "System", "current_system"]
