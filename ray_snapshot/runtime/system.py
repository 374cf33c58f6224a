"""`rs.System`: what users hold. It starts the service, the analyst and hosts, and stands for the driver.

Everything here waits with a bound, and says what it waited for. The work is done elsewhere: `driver` sends, `service`
coordinates, `analyst` judges and writes.
"""

from __future__ import annotations

import atexit
import difflib
import os
import sys
import tempfile
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import ray
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from ray import cloudpickle
from ray.exceptions import RayError

from ray_snapshot import redaction
from ray_snapshot.errors import (
    DetectorError,
    HistoryWriteError,
    RaySnapshotError,
    RolledBackError,
    SettingError,
    SnapshotTimeoutError,
    SystemNotRunningError,
    SystemRunningError,
    UnknownMachineError,
    UnknownMethodError,
)
from ray_snapshot.history.checkpoints import checkpoint_key
from ray_snapshot.names import DRIVER, NAMESPACE, PREFIX, check_machine_name, check_system_name, check_target_name
from ray_snapshot.runtime import waits
from ray_snapshot.runtime.analyst import AnalystActor
from ray_snapshot.runtime.assembly import Collected, warm_up
from ray_snapshot.runtime.classes import import_path, packed
from ray_snapshot.runtime.cluster import ask, connect
from ray_snapshot.runtime.driver import DriverPost
from ray_snapshot.runtime.faults import first_line
from ray_snapshot.runtime.handles import MachineHandle, forget_handles, handle_of
from ray_snapshot.runtime.here import call_site_here
from ray_snapshot.runtime.host import HostConfig
from ray_snapshot.runtime.host_actor import HostActor
from ray_snapshot.runtime.keeping import not_restorable
from ray_snapshot.runtime.mixin import may_have
from ray_snapshot.runtime.payload import isolate
from ray_snapshot.runtime.post import Created
from ray_snapshot.runtime.restoring import Share, Wanted, wanted
from ray_snapshot.runtime.service import ServiceActor, ServiceConfig
from ray_snapshot.runtime.subscribers import Subscribers
from ray_snapshot.runtime.tracing import main_module
from ray_snapshot.snapshot import Snapshot
from ray_snapshot.verdicts import Detector, Verdict, check_detector
from ray_snapshot.waits import machine_name

_Call = tuple[tuple[Any, ...], dict[str, Any]]

_CLAIMS = 20
"""How often a spawn is tried again because the system was rolled back meanwhile."""

_OPEN: list[System] = []
"""The systems that this process has open, the latest last."""


_ALIGNING = ("aligned-barrier", "unaligned-barrier")
"""Protocols to which `alignment_timeout` belongs."""


class Settings(BaseModel):
    """What a system can be told, beside `history`, `detectors` and `address`; seconds everywhere."""

    model_config = ConfigDict(extra="forbid")

    protocol: Literal["chandy-lamport", "observer", "aligned-barrier", "unaligned-barrier", "at-least-once-barrier"] = (
        "chandy-lamport"
    )
    """How snapshots are taken; see docs/protocols.md for what each assumes and costs."""
    alignment_timeout: float | None = Field(None, gt=0)
    """After which machines turn unaligned for a snapshot under `aligned-barrier` (default: half of its timeout); with
    `unaligned-barrier`, begin aligned and turn unaligned after it (default: unaligned at once). At most a quarter of
    `send_timeout`: inputs that are blocked must not hold a sender that long."""
    every: float | None = Field(None, gt=0)
    """Seconds between snapshots, from `start()` on; None: only those that are asked for."""
    mailbox_bound: int = Field(10_000, ge=1)
    """Messages that a channel may have sent and not seen accepted before its sender is held back."""
    send_timeout: float = Field(60.0, gt=0)
    """How long a sender is held at a full mailbox before that is an error."""
    spawn_timeout: float = Field(30.0, gt=0)
    """How long a message to a name waits for the machine of that name to be spawned."""
    start_timeout: float = Field(120.0, gt=0)
    """How long hosts and services may take to start."""
    snapshot_timeout: float = Field(30.0, gt=0)
    """After which a snapshot is given up; at half of it, machines in a long action are recorded without their state."""
    most_open: int = Field(8, ge=1)
    """Snapshots that may be pending at once; past it the clock skips."""
    trace: bool = False
    """Whether every action is logged in the history, for `ray-snapshot witness`."""
    checkpoint: bool = False
    """Whether to keep with every snapshot what a restore needs: states, messages and classes, in binary."""
    recover: Literal["rollback"] | None = None
    """What to do when a host dies: roll everything back to the last snapshot that can be restored and go on
    (with `checkpoint`), or stop with `HostDiedError`."""
    most_failures: int = Field(5, ge=0)
    """So many hosts may die within `failures_within` seconds; then the system gives up."""
    failures_within: float = Field(60.0, gt=0)


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
        if self.settings.trace and self.history is None:
            raise SettingError("System(trace=True): the trace is kept in a history: give history=..., too")
        if self.history is not None and address is None and _starts_ray():
            _check_writable(Path(self.history))
        self.run_id = uuid.uuid4().hex[:16]
        self._trace = main_module() if self.settings.trace else None
        self._wanted = wanted(self.name)
        self.restored = self._wanted is not None
        """Whether the system goes on from a snapshot."""
        self._is_checkpointing = self.settings.checkpoint or self.settings.recover is not None
        if self._is_checkpointing and redaction.names():
            raise SettingError(
                f"System(checkpoint=True) after rs.redact({redaction.names()[0]!r}): a checkpoint holds states whole, so"
                " what is redacted would be stored: leave one of the two out"
            )
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
            recover=self.settings.recover is not None,
        )
        self._post.on_rollback = self._rolled_back
        self._post.is_dropping = self._wanted is not None
        waits.install()
        if not _OPEN:
            atexit.register(_close_forgotten)
        _OPEN.append(self)

    def _open_services(self) -> None:
        options = {"num_cpus": 0, "max_concurrency": 10_000}
        analyst = AnalystActor.options(**options).remote(self.name, self.history, import_path())
        settings = self.settings
        config = ServiceConfig(
            self.name, self.run_id, settings.protocol, settings.most_open, settings.snapshot_timeout,
            self._is_checkpointing, settings.recover is not None, settings.most_failures, settings.failures_within,
            settings.start_timeout,
        )  # fmt: skip
        try:
            self._service = ServiceActor.options(**options, name=PREFIX + self.name, namespace=NAMESPACE).remote(
                config, analyst
            )
        except ValueError:
            ray.kill(analyst)
            raise SystemRunningError(
                f"a system {self.name!r} is already running on this cluster: close it, or choose another name",
                system=self.name,
            ) from None
        self._analyst = analyst
        try:
            opened = [
                analyst.open.remote(cloudpickle.dumps(self.detectors), redaction.names()),
                self._service.last_number.remote(),
            ]
            if self._is_checkpointing or self._wanted:
                source = self._wanted and self._wanted.history
                opened.append(analyst.keep_checkpoints.remote(self.run_id, self._key, source))
            if self._wanted:
                opened.append(self._service.may_be_claimed_again.remote(list(self._wanted.names)))
            ask(opened, f"the services of system {self.name}", self.settings.start_timeout)
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

        `resources`: what the host asks Ray for (`{"CPU": 1, ...}`; default nothing). `role`: under barriers a `"source"`
        records when it is asked, whatever is connected to it; so does who has no declared inputs, and `"operator"` and
        `"sink"` are notes for the reader. Raises `DuplicateMachineError`, `NameNotAllowedError`, `SettingError`,
        `UnpicklableMessageError`.
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

        `args`: one tuple of constructor arguments per machine (else `count` machines without arguments). `names`: as many
        (default: "Account-0", "Account-1", ...). Errors as `spawn`.
        """
        if args is None:
            if count is None and names is None:
                raise SettingError("spawn_many: say how many, by args=[...], names=[...] or count=...")
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
        self._post.acting()
        if role not in (None, "source", "operator", "sink"):
            raise SettingError(f"role {role!r}: use 'source', 'operator' or 'sink'")
        key, blob = packed(kind)
        class_name = getattr(kind, "machine_class", kind).__name__
        payloads = [isolate(DRIVER, class_name, "__init__", args, kwargs) for args, kwargs in many]
        if not many:
            return []
        options = _host_options(resources)
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
            handle.__dict__["_kind"] = getattr(kind, "machine_class", kind)
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
            generation = self._post.generation
            try:
                ref = self._service.claim.remote(class_name, len(places), names, places, role, generation, True)
                return self._ask(ref, "names"), generation
            except RolledBackError:
                continue
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
            with post.lock:
                post.check()
                if post.generation == generation:
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
            if post.tracer is not None:
                machine_class = getattr(kind, "machine_class", kind)
                colour = post.core.colour_of(post.me)
                post.tracer.created(DRIVER, name, machine_class, payload, colour)
        post.flush()

    def _rolled_back(self, share: Share) -> None:
        """In the thread of the driver's post: there are other hosts, and what was created since is gone."""
        self._hosts.update((host, wrapped[0]) for host, wrapped in share.actors.items())
        self._machine_counts.clear()
        self._shipped.clear()
        self.restored = True

    def _new_host(self, host: str, options: dict[str, Any]) -> None:
        settings, post = self.settings, self._post
        with post.lock:
            config = HostConfig(
                self.run_id, host, post.core.colour, tuple(post.core.open), *self._alignment(),
                settings.mailbox_bound, settings.send_timeout, settings.spawn_timeout, import_path(),
                self._trace, redaction.names(),
                self._is_checkpointing, settings.recover is not None, post.generation,
            )  # fmt: skip
            actor = HostActor.options(**options, max_concurrency=10_000).remote(config, self._service)
            post.handles[host] = actor
            self._hosts[host] = actor
            self._ask(self._service.register.remote(host, [actor], config, options), "the directory")

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
        self._ask(self._service.connect.remote(*names, port, call_site_here()), f"the channel {names[0]} -> {names[1]}")

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
        whoever has not recorded an open snapshot does so at once, unaligned. It is consistent all the same.

        Raises `UnknownMachineError` at once if it has not been spawned.
        """
        self._check()
        name = check_target_name(machine_name(machine))
        post = self._post
        post.acting()
        places = self._ask(self._service.locate.remote([name], 0.0), "the directory")
        if name not in places:
            raise UnknownMachineError(
                f"no machine {name!r} has been spawned in {self.name}, so it cannot be stopped: check the name",
                machine=name,
            )
        command = ("stop", name, post.core.colour)
        generation = post.generation
        self._ask(self._hosts[places[name]].control.remote([command], generation), f"{name} to stop")
        with post.lock:
            post.core.learn_stopped([name])

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
            self._ask(self._service.start_clock.remote(self.settings.every), "the clock")
        return self

    def _take_first(self) -> None:
        """What to go back to when a host dies before there is another snapshot."""
        first = self.snapshot()
        if not first.restorable:
            raise not_restorable(first.snapshot_id, first.obstacles)
        seconds = self.settings.start_timeout
        self._ask(self._service.recoverable.remote(first.snapshot_id, seconds), "the first snapshot", seconds + 10)

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

        Past half of `timeout` who is inside a long action is recorded without its state, and nobody aligns any more. Raises
        `SnapshotAbortedError` (past `timeout`, naming who did not record; or when a host dies), `UnreachableMachineError`
        (from `initiators` no channels lead to some machine), `UnknownMachineError`, and whatever stopped the system.
        """
        self._check()
        seconds = self.settings.snapshot_timeout if timeout is None else _seconds("snapshot", timeout)
        if not seconds > 0:
            raise SettingError(f"snapshot(timeout={timeout!r}): it must be more than 0 seconds")
        given: Any = [initiators] if isinstance(initiators, (str, MachineHandle)) else initiators
        names = [machine_name(item) for item in given]
        found: Collected = self._ask(self._service.snapshot.remote(names, seconds), "the snapshot", 2 * seconds + 10)
        return found.snapshot()

    def wait_for(self, detector: Any, *, timeout: float = 60.0) -> Verdict:
        """Block until `detector` (a name or a detector) holds on a snapshot begun from now on; returns that verdict.

        While it waits the driver is passive. Without a clock snapshots are taken as often as they complete, at most every
        50 ms at first and every second later. Raises `SnapshotTimeoutError` (with the last verdicts), and whatever stops
        the system.
        """
        self._check()
        seconds = _seconds("wait_for", timeout)
        item = self._known(detector)
        deadline = time.monotonic() + seconds
        begun = self._ask(self._service.last_number.remote(), "the service")
        seen = self._ask(self._analyst.count.remote(), "the analyst")
        last: dict[str, Verdict] = {}
        pause, due = 0.05, 0.0
        with self._post.rest():
            while (now := time.monotonic()) < deadline:
                self._check()
                until = deadline
                if not self._has_clock:
                    if now >= due:
                        self._service.begin_snapshot.remote()
                        due, pause = now + pause, min(1.0, pause * 1.2)
                    until = min(until, due)
                seen, fresh = self._poll(seen, min(1.0, until - now))
                for number, verdict in fresh:
                    last[verdict.detector] = verdict
                    if number > begun and verdict.detector == item.name and verdict.holds:
                        return verdict
        completed = self._ask(self._service.completed_after.remote(begun), "the service")
        said = _last_verdicts(last, completed, self._ask(self._analyst.unjudged.remote(), "the analyst"))
        raise SnapshotTimeoutError(
            f"{item.name} did not hold within {timeout:g} s; last verdicts: {said}",
            waited_for=item.name,
            seconds=timeout,
        )

    def _known(self, detector: Any) -> Detector:
        """The detector of this name that is evaluated, or this one, from now on."""
        known = {item.name: item for item in self.detectors}
        if isinstance(detector, str) and detector in known:
            return known[detector]
        item = check_detector(detector)
        found = known.get(item.name)
        if found is None:
            self._ask(self._analyst.watch.remote(_portable(item)), "the analyst")
            self.detectors.append(item)
            return item
        if found is not item and (_spec(found) is None or _spec(found) != _spec(item)):
            raise DetectorError(
                f"another detector named {item.name!r} is evaluated already: give this one a name of its own",
                detector=item.name,
            )
        return found

    def _poll(self, seen: int, seconds: float) -> tuple[int, list[tuple[int, Verdict]]]:
        ref = self._analyst.verdicts_after.remote(seen, max(0.01, seconds))
        found: tuple[int, list[tuple[int, Verdict]]] = self._ask(ref, "the analyst")
        return found

    def subscribe(self, callback: Callable[[Verdict], None]) -> None:
        """Call `callback` with every verdict from now on, in a thread of the driver; all before `close` returns.

        A callback that raises does not keep the others from hearing; `close` says so.
        """
        self._check()
        with self._lock:
            if self._subscribers is None:
                self._subscribers = Subscribers(self._analyst)
            self._subscribers.callbacks.append(callback)

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
        ref = self._service.restore.remote(snapshot_id, claimed, classes)
        self._ask(ref, f"snapshot {snapshot_id} to be restored", self.settings.start_timeout + 60)

    def _begin_restored(self, found: Wanted) -> None:
        """Where a program starts its system anew: what was recorded takes the place of what it has set up."""
        self._restore(found.snapshot_id, self._claimed, self._claimed_classes)
        found.is_done = True
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

    def _ship_trace(self) -> RaySnapshotError | None:
        """What of the trace no report has taken; a host that is gone takes its own with it, and is the trouble told of."""
        if self._trace is None:
            return None
        ask(list(self._post.reports), "the driver's trace", 10)
        found, trouble = [self._post.rest_of_trace()], None
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


def _close_forgotten() -> None:
    """At the program's end: systems that nobody closed."""
    for system in reversed(_OPEN.copy()):
        try:
            system.close()
        except RaySnapshotError as error:
            print(f"system {system.name}: {first_line(error)}", file=sys.stderr)


def _check_writable(folder: Path) -> None:
    """Raise `HistoryWriteError` if a history cannot be kept there; nothing is left behind.

    If the folder is not there yet, the one that it will be made in is looked at.
    """
    there = next(place for place in (folder, *folder.parents) if place.exists())
    try:
        tempfile.TemporaryFile(dir=there).close()
    except OSError as error:
        raise HistoryWriteError(
            f"a history cannot be kept in {folder}: nothing can be written to {there} ({error.strerror}); choose another"
            " folder",
            path=str(folder),
        ) from None


def _starts_ray() -> bool:
    """Whether Ray will be started here; what runs already may write its files on another computer."""
    return not ray.is_initialized() and not os.environ.get("RAY_ADDRESS")


def _host_options(resources: dict[str, float] | None) -> dict[str, Any]:
    """What Ray is asked for a host; raises `SettingError`."""
    asked = dict(resources or {})
    options = {"num_cpus": asked.pop("CPU", 0), "num_gpus": asked.pop("GPU", 0), "resources": asked}
    try:
        HostActor.options(**options)
    except (ValueError, TypeError) as error:
        raise SettingError(f"resources={resources!r}: {first_line(error)}") from None
    return options


def _arguments(item: Any) -> tuple[Any, ...]:
    return item if isinstance(item, tuple) else tuple(item) if isinstance(item, list) else (item,)


def _seconds(where: str, timeout: Any) -> float:
    """A timeout that somebody gave; raises `SettingError` if it is no number."""
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)):
        raise SettingError(f"{where}(timeout={timeout!r}): it is a number of seconds")
    return timeout


def _last_verdicts(last: dict[str, Verdict], completed: int, unjudged: int) -> str:
    """What `wait_for` says in the end: verdicts, how many snapshots were completed, on how many no verdict has come yet."""
    parts = [f"{verdict.detector}: {verdict.sentence}" for verdict in last.values()]
    if unjudged or not parts:
        parts.append(f"{completed or 'no'} snapshot{'s' * (completed > 1)} completed meanwhile")
    if unjudged:
        parts.append(f"verdicts on {unjudged} snapshot{'s' * (unjudged > 1)} are still being computed")
    return "; ".join(parts)


def _unknown_setting(name: str, value: Any) -> SettingError:
    known = sorted([*Settings.model_fields, "history", "detectors", "address"])
    close = difflib.get_close_matches(name, known, 1)
    hint = f"did you mean {close[0]}? " if close else ""
    return SettingError(f"System(): {name}: no such setting (got {value!r}); {hint}there are {', '.join(known)}")


def _settings(given: dict[str, Any]) -> Settings:
    try:
        return _fitting(Settings(**given))
    except ValidationError as error:
        first = error.errors()[0]
        if first["type"] == "extra_forbidden":
            raise _unknown_setting(str(first["loc"][0]), first["input"]) from None
        raise SettingError(
            f"System(): {'.'.join(map(str, first['loc']))}: {first['msg']} (got {first['input']!r})"
        ) from None


def _fitting(found: Settings) -> Settings:
    """These settings; raises `SettingError` for one that the protocol has no use for."""
    if found.alignment_timeout is not None and found.protocol not in _ALIGNING:
        raise SettingError(
            f"System(): alignment_timeout: it belongs to protocol {' and '.join(_ALIGNING)}; {found.protocol} does not align"
            f" so (got {found.alignment_timeout!r}): leave it out, or choose one of these"
        )
    return found


def _detectors(given: Any) -> list[Detector]:
    if given is None:
        from ray_snapshot import detectors

        return [detectors.Termination(), detectors.Deadlock()]
    if isinstance(given, str) or hasattr(given, "evaluate") or not isinstance(given, Iterable):
        text = repr(given) if isinstance(given, str) or not hasattr(given, "name") else str(given.name)
        raise DetectorError(f"detectors= takes a list: detectors=[...] around {text}", detector=text)
    found = [check_detector(item) for item in given]
    for item in found:
        _portable(item)
    names = [item.name for item in found]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise DetectorError(f"two detectors are named {twice!r}: give them different names", detector=twice)
    return found


def _portable(item: Detector) -> bytes:
    """The detector, pickled: it is evaluated in another process; raises `DetectorError`."""
    try:
        pickled: bytes = cloudpickle.dumps(item)
    except Exception as error:
        raise DetectorError(
            f"detector {item.name!r} cannot be pickled ({type(error).__name__}: {first_line(error)}), but it runs in a process"
            " of its own: keep locks, files and connections out of it",
            detector=item.name,
        ) from error
    return pickled


def _spec(item: Detector) -> Any:
    return getattr(item, "spec", None)


__all__ = ["Settings", "System", "current_system"]
