"""Watching an app: `rs.watch`, `rs.install` and what `ray-snapshot run` does before the script runs.

`Watch` is a session like a system's (`snapshot`, `wait_for`, `subscribe`, `close`), whose machines are the app's own actors.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any, Unpack

import ray

from ray_snapshot.errors import RaySnapshotError, SettingError, SystemRunningError
from ray_snapshot.instrument import cluster_shape, delivery, shape
from ray_snapshot.instrument.ending import Ending, end_program
from ray_snapshot.instrument.hooks import attaching, environments
from ray_snapshot.instrument.hooks.calls import watched_class
from ray_snapshot.instrument.process.process import Process
from ray_snapshot.instrument.process.reloading import Terms
from ray_snapshot.instrument.raising import Raiser
from ray_snapshot.instrument.watcher.recovering import Limits
from ray_snapshot.instrument.watcher.watcher import WatcherActor
from ray_snapshot.limits import LIMITS
from ray_snapshot.names import CALLS, NAMESPACE, PREFIX, check_system_name, listed
from ray_snapshot.pace import Every
from ray_snapshot.runtime import shutting_down
from ray_snapshot.runtime.analyst.inside import AnalystInside
from ray_snapshot.runtime.classes import import_path
from ray_snapshot.runtime.cluster import ask, check_shared, connect
from ray_snapshot.runtime.faults import first_line
from ray_snapshot.runtime.joining import WATCHES, say_apart
from ray_snapshot.runtime.restoring import Wanted, is_to_be_restored
from ray_snapshot.runtime.service.config import ServiceConfig
from ray_snapshot.runtime.session import Session
from ray_snapshot.runtime.settings import Settings, WatchSettingsGiven, detectors_of, seconds_of, settings_of
from ray_snapshot.stderr import LOGGER, say
from ray_snapshot.tested import say_if_untested
from ray_snapshot.verdicts import ReadyMade

if TYPE_CHECKING:
    from ray_snapshot.instrument.watcher.incidents import Summary
    from ray_snapshot.runtime.system import System
    from ray_snapshot.snapshot import Snapshot


class Watch(Session):
    """A session over an app that is watched; `watch` makes it."""

    _is_closed_world = False

    def __init__(
        self,
        name: str,
        *,
        history: str | os.PathLike[str] | None = None,
        detectors: Iterable[Any] | None = None,
        is_awaited: bool = True,
        on_watch: Callable[[Watch], None] | None = None,
        **settings: Unpack[WatchSettingsGiven],
    ) -> None:
        """`is_awaited`: whether it returns when the services have answered. It always does where they may refuse: a history
        is to be opened, a restore is possible, a detector is the program's own. `on_watch`: called then, in another
        thread if it is not awaited."""
        given = _checked(settings)
        is_acting = given.on_deadlock != "report"
        if (is_acting or given.on_alarm is not None) and given.every is None:
            given = given.model_copy(update={"every": LIMITS.alarmed_every_s})
        super().__init__(name, given, kind="watch", history=history, detectors=detectors)
        if is_acting and not Raiser.names_in(self.detectors):
            self.detectors.append(ReadyMade("deadlock"))
        self.is_asked_for = True
        """Whether the program itself has called `watch`."""
        self.raiser: Raiser | None = None
        """What acts on deadlocks that stand."""
        self.joined: System | None = None
        """The system of machines that has joined."""
        self.summary: Summary | None = None
        """What there was, when it is closed."""
        self._opening: threading.Thread | None = None
        """Waits for the services, while the program has begun already."""
        is_awaited |= self.is_checkpointing or self.history is not None
        is_awaited |= not all(isinstance(item, ReadyMade) for item in self.detectors)
        opened = self._made_services()
        try:
            if is_awaited:
                self._await_services(opened)
            self.process = attaching.attach_driver(f"{self.name}:{self.run_id}", self._service, self._terms())
        except BaseException:
            self._kill([self._service])
            raise
        self.process.raising.is_on |= given.on_deadlock == "raise"
        self._part = _Part(self.process)
        self._on_watch = on_watch
        if is_awaited and not self.restored:
            self.start()
        if not is_awaited:
            steps = [
                lambda: self._await_services(opened),
                self._tell_alarms,
                self._act_on_deadlocks,
                self.start,
                self._tell,
            ]
            self._opening = threading.Thread(
                target=open_beside, args=(steps, self.close), name="ray-snapshot-opening", daemon=True
            )

    def go_on(self) -> None:
        """It is known as the watch of this program; what waits for its services may begin."""
        if self._opening is not None:
            self._opening.start()
        else:
            self._tell_alarms()
            self._act_on_deadlocks()
            self._tell()

    def _terms(self) -> Terms | None:
        """The terms of the driver, where its watcher is made with its facts; None where it must ask."""
        return None if self.is_checkpointing else Terms(library_states=self.settings.library_states)

    def _act_on_deadlocks(self) -> None:
        if self.settings.on_deadlock != "report":
            has_reporter = self._on_watch is not None
            self.raiser = Raiser(self, has_reporter=has_reporter, end=lambda: end_program(close_quietly))
            self._hear_by(self.raiser)

    def set_clock(self, every: Every) -> None:
        """From now on a snapshot every `every` seconds, or as often as that share allows."""
        self.settings = self.settings.model_copy(update={"every": every})
        self._service.set_clock.remote(every)

    def _tell(self) -> None:
        if self._on_watch is not None:
            self._on_watch(self)

    def _made_services(self) -> list[Any]:
        """The watcher, with the analyst, which writes the history, on the driver's own node; what to wait for."""
        check_shared(self.history, is_shared=self.settings.history_is_shared)
        ready = delivery.check_nodes(needs_hook=bool(_plans))
        options = {
            "num_cpus": 0,
            "max_concurrency": 10_000,
            "scheduling_strategy": delivery.here_if_possible(),
            "enable_task_events": False,  # Ray keeps so many rows of tasks, and they are the app's
        }
        settings, keeps = self.settings, self.is_checkpointing
        config = ServiceConfig(self.name, self.run_id, CALLS, settings.most_open, settings.snapshot_timeout, keeps)
        try:
            self._service = WatcherActor.options(**options, name=PREFIX + self.name, namespace=NAMESPACE).remote(
                config,
                history=self.history,
                paths=import_path(),
                ready=ready,
                keeps=keeps,
                has_hook=bool(_plans),
                library_states=self.settings.library_states,
                limits=self._limits(),
                has_beginning=not self.restored,
                driver=None if self._terms() is None else attaching.driver_facts(),
                tells_callers=settings.on_deadlock != "report",
                raises_inside=settings.victim is not None,
            )
        except ValueError:
            raise SystemRunningError(
                f"a system {self.name!r} is already running on this cluster: close it, or choose another name",
                system=self.name,
            ) from None
        self._analyst = AnalystInside(self._service)
        return [self._open_analyst(), self._service.last_number.remote()]

    def _await_services(self, opened: list[Any]) -> None:
        ask(opened, f"the services of system {self.name}", self.settings.start_timeout)

    def _limits(self) -> Limits | None:
        found = self.settings
        return (
            None if found.recover is None else Limits(found.most_failures, found.failures_within, found.start_timeout)
        )

    def close(self) -> None:
        """As a session's; a system that has joined is closed first: it has no service of its own."""
        if self._opening is not None and self._opening is not threading.current_thread():
            self._opening.join(2 * self.settings.start_timeout)
        try:
            if self.joined is not None:
                self.joined.close()
        finally:
            super().close()

    def _last_steps(self) -> list[Callable[[], RaySnapshotError | None]]:
        *steps, close = super()._last_steps()
        return [*steps, self._sum_up, close]

    def _sum_up(self) -> None:
        self.summary = ask(self._service.summary.remote(), "the service", 10)

    def start(self) -> Watch:
        """Start the clock of `every`; done by `watch` itself.

        In a program that `ray-snapshot restore` runs, call it when the program has made its actors, and its machines: then
        they get the states that were recorded, and all go on.
        """
        if self._wanted is not None and self.is_to_be_restored:
            self._begin_restored(self._wanted)
        if self.settings.every is not None and not self._has_clock:
            self._has_clock = True
            ask(self._service.start_clock.remote(self.settings.every), "the clock")
        return self

    def snapshot(self, *, timeout: float | None = None) -> Snapshot:
        """Take a snapshot of the whole app, now: each actor as it was at one moment, and the calls that were in flight.

        Past half of `timeout` an actor that is inside a long method is recorded without its state. Raises
        `SnapshotAbortedError` (past `timeout`, naming what did not record), and `SystemNotRunningError`.
        """
        return self._taken([], timeout)

    def restore(self, snapshot: Snapshot | str, *, timeout: float | None = None) -> None:
        """Roll every actor of the app back to a snapshot (or its id) that was taken with `checkpoint=True`, and go on.

        All stop, then all load, then all go on; calls that were in flight are made again. What waits inside an actor
        ends with `RolledBackError`; actors that were made since are ended; what the program has called since is given
        up. Raises `NotRestorableError` (naming the obstacles, or actors that are no more) and `CheckpointError`, with
        nothing changed; `SnapshotTimeoutError` if an actor does not stop within `timeout` seconds (None:
        `start_timeout`), and then all go on as they were; `MachineFailedError` if an actor does not take its state
        back. Machines of a system that has joined go back with the actors.
        """
        snapshot_id = self._restorable_id(snapshot, "rs.watch(checkpoint=True)")
        seconds = self.settings.start_timeout if timeout is None else seconds_of("restore", timeout)
        self.roll_back(snapshot_id, seconds)

    @property
    def is_checkpointing(self) -> bool:
        """Whether what a restore needs is kept."""
        return self._is_checkpointing or self.restored

    @property
    def is_to_be_restored(self) -> bool:
        """Whether the program is started again, and `start` has not been called."""
        return self._wanted is not None and not self._wanted.is_done

    def roll_back(self, snapshot_id: str, seconds: float, *claims: Any) -> list[str]:
        """See `restore`; returns the actors that the snapshot has not. `claims`: as of `System.claims`."""
        ref = self._service.go_back.remote(snapshot_id, seconds, *claims)
        new: list[str] = self._ask(ref, f"snapshot {snapshot_id} to be restored", seconds + 10)
        return new

    def _begin_restored(self, found: Wanted) -> None:
        if found.hosts is not None:
            raise SettingError(
                f"restore --hosts {found.hosts}: the program watches its actors ({self.name}), and its machines live where it"
                " spawns them: leave --hosts out"
            )
        claims = () if self.joined is None else self.joined.claims
        new = self.roll_back(found.snapshot_id, self.settings.start_timeout, *claims)
        found.is_done = True
        if new:
            text = f"not in snapshot {found.snapshot_id}, so as the program made them: {listed(new)}"
            say(f"ray-snapshot: {text}")

    def _leave(self) -> None:
        try:
            attaching.detach()
            self._part.close()
            self._kill([self._service])
        finally:
            _watches.clear()
            WATCHES.clear()
            atexit.unregister(close_quietly)


def _checked(settings: Mapping[str, Any]) -> Settings:
    """The settings of a watch; raises `SettingError`."""
    for setting in ("trace", "protocol", "alignment_timeout"):
        if setting in settings:
            raise SettingError(
                f"watch({setting}=...): that is for machines of one's own (rs.System), not for Ray actors"
            )
    return settings_of({**settings})


class _Part:
    """The driver's part in a watch; the app goes on whatever happens to us."""

    failure: RaySnapshotError | None = None

    def __init__(self, process: Process) -> None:
        self.process = process

    @contextmanager
    def rest(self) -> Iterator[None]:
        """The program waits for a verdict, and does nothing else."""
        mail: Any = self.process.mail
        with self.process.rest() if mail is None else mail.rest():
            yield

    def check(self) -> None:
        """A watched app is not stopped by us."""

    def raises(self, error: RaySnapshotError) -> None:
        """Remember nothing: no error of ours stops the app."""

    def has_raised(self, error: RaySnapshotError) -> bool:  # noqa: ARG002
        """False: no error is remembered."""
        return False

    def close(self) -> None:
        """Nothing to do: the driver's own part ends elsewhere."""


_watches: list[Watch] = []
_plans: list[dict[str, Any]] = []
"""What `install` was told, for the next `ray.init`."""


def watch(
    name: str = "app",
    *,
    history: str | os.PathLike[str] | None = None,
    detectors: Iterable[Any] | None = None,
    **settings: Unpack[WatchSettingsGiven],
) -> Watch:
    """Watch the actors of this app from now on; returns a system that takes snapshots of them.

    `every`: seconds between snapshots; `history`: folder, or None; `detectors`: default termination and deadlock. Actors of
    classes made with `@rs.remote`, `rs.wrap`, or after `rs.install()`, are followed. `on_deadlock`: "report" (the default: only
    the verdict), "raise" (`DeadlockError` out of what the program waits for, or with `victim` inside one call of it) or
    "exit" (the program ends, with exit code 3), when it has stood for `deadlock_grace` seconds. Under `ray-snapshot run`, and
    behind `rs.install()`, it gives the watch that there is, and only `detectors` count. Raises `SystemRunningError`,
    `SettingError`, `UnsupportedRayError`.
    """
    connect()  # which begins the watch that `install` was asked for
    if _watches:
        return _installed_watch(_watches[0], name, detectors)
    for session in shutting_down.sessions():
        say_apart(session.name, "it was opened before rs.watch()")
    attaching.replace_ray()
    return _kept(Watch(name, history=history, detectors=detectors, **settings))


def _installed_watch(found: Watch, name: str, detectors: Iterable[Any] | None) -> Watch:
    """The watch that `install` has begun, for a program that calls `watch` itself."""
    if found.is_asked_for:
        raise SystemRunningError(f"this app is watched already, as {found.name!r}: close that first", system=name)
    found.is_asked_for = True
    LOGGER.warning(f"ray-snapshot: this app is watched already, as {found.name!r}, with the settings of that")
    for item in detectors_of(detectors):
        found._known(item)
    return found


def open_beside(steps: Iterable[Callable[[], object]], give_up: Callable[[], object]) -> None:
    """Begin a watch by these steps; if one fails, the program runs unwatched, and a line says why."""
    try:
        for step in steps:
            step()
    except Exception as error:
        say(f"ray-snapshot: nothing is watched: {first_line(error)}")
        with suppress(Exception):
            give_up()


def _kept(found: Watch) -> Watch:
    _watches.append(found)
    shutting_down.opened(found, close_quietly)
    WATCHES[:] = [found]
    atexit.register(close_quietly)
    found.go_on()
    return found


def install(
    name: str = "app",
    on_watch: Callable[[Watch], None] | None = None,
    *,
    ending: Ending | None = None,
    history: str | os.PathLike[str] | None = None,
    detectors: Iterable[Any] | None = None,
    **settings: Unpack[WatchSettingsGiven],
) -> None:
    """Watch whatever this program does with Ray, from its `ray.init()` on; call it before the program's own imports.

    Options as of `watch`; `on_watch` is called with the system when it watches, before `ray.init()` returns. Raises
    `UnsupportedRayError`, `SettingError`. Where the watching cannot start, `ray.init()` returns all the same, the program
    runs unwatched, and one line on stderr says why. Called again while the app is watched, as by a notebook's
    cell that runs again, it gives `on_watch` the system that there is: what subscribes there hears everything twice.
    """
    check_system_name(name)
    _checked(settings)
    attaching.replace_ray()
    environments.keep_hook(delivery.KEY)
    say_if_untested(ray.__version__)
    plan = {
        "name": name,
        "on_watch": on_watch,
        "ending": ending,
        "history": history,
        "detectors": detectors,
        **settings,
    }
    earlier, _plans[:] = _plans[:], [plan]
    shape.replace(init=_init, shutdown=_shutdown)
    if not ray.is_initialized():
        return
    if not (earlier and _watches):
        raise SettingError("rs.install() comes before ray.init(): workers that run already cannot be followed")
    if _settings_in(plan) != _settings_in(earlier[0]):
        LOGGER.warning(
            f"ray-snapshot: this app is watched already, as {_watches[0].name!r}: other settings count from the next"
            " ray.init() on"
        )
    if on_watch is not None:
        on_watch(_watches[0])


def _settings_in(plan: Mapping[str, Any]) -> dict[str, str]:
    """What a watch is like, without who is to hear of it."""
    return {name: _told(value) for name, value in plan.items() if name not in ("on_watch", "ending")}


def _told(value: Any) -> str:
    """A setting as text, the same for what a cell that runs again makes again: no two functions or detectors are equal."""
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_told, value))
    kind = value if hasattr(value, "__qualname__") else type(value)
    named = f"{kind.__module__}.{kind.__qualname__}"
    if kind is value:
        return named
    try:
        return f"{named} {getattr(value, 'name', '')}" if kind.__repr__ is object.__repr__ else repr(value)
    except Exception:  # one of the user's own
        return named


def _init(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """In place of `ray.init`: workers get our hook, and the watching begins."""
    if ray.is_initialized() or not _plans:
        return original(*args, **kwargs)
    if _is_client(args[0] if args else kwargs.get("address")):
        say("ray-snapshot: nothing is watched: over Ray Client the calls are made by another process")
        shape.restore()
        shape.send_plainly()
        return original(*args, **kwargs)
    environments.keep_hook(delivery.KEY)
    attaching.replace_ray()  # the end of an earlier session has put Ray's own functions back
    plan = dict(_plans[0])
    on_watch, ending = plan.pop("on_watch"), plan.pop("ending")
    keeps = nullcontext() if ending is None else ending.kept()
    steps: list[Callable[[], object]] = []
    if _starts_cluster(args[0] if args else kwargs.get("address"), kwargs):
        with delivery.inherited_hook(), keeps:
            found = original(*args, **kwargs)
        steps.append(lambda: delivery.put_hook(None, delivery.KEY))
    else:
        with delivery.hook_of_the_job(kwargs.get("runtime_env")) as own, keeps:
            found = original(*args, **{**kwargs, "runtime_env": _runtime_env(kwargs.get("runtime_env"), own)})
        if environments.joined():
            steps.append(lambda: delivery.put_hook(own))
    if shape.is_driver() and not _watches:
        is_run = ending is not None  # what calls `install` itself has its watch when `ray.init` returns
        steps.append(lambda: _watch_as(plan.pop("name"), {**plan, "is_awaited": not is_run, "on_watch": on_watch}))
    if is_to_be_restored():  # a program that began anew, unseen, would do all its work again
        for step in steps:
            step()
    else:
        open_beside(steps, _go_unwatched)
    return found


def _go_unwatched() -> None:
    """What has begun of the watching ends, and Ray's own functions are back."""
    try:
        for found in [*_watches]:
            found.close()
    finally:
        attaching.detach()


def _starts_cluster(address: str | None, options: Mapping[str, Any]) -> bool:
    """Whether `ray.init` is to start a cluster whose workers need nothing but this program's own environment."""
    if options.get("runtime_env") or os.environ.get(delivery.JOB):
        return False
    try:
        return cluster_shape.address_to_join(address, options.get("_temp_dir")) is None
    except Exception:  # a wrong address: Ray says so itself
        return False


def name_next(name: str) -> None:
    """What the next `ray.init` begins is watched under this name."""
    for plan in _plans:
        plan["name"] = check_system_name(name)


def _is_client(address: str | None) -> bool:
    """Whether `ray.init(address)` connects by Ray Client, to a process that makes the calls in the program's place."""
    if address in (None, "auto"):
        address = os.environ.get("RAY_ADDRESS")
    return "://" in (address or "")


def _watch_as(name: str, plan: dict[str, Any]) -> None:
    """Watch under that name, or with a number behind it where another program on the cluster has it."""
    for attempt in range(1, LIMITS.namesakes + 1):
        try:
            shown = name if attempt == 1 else f"{name}-{attempt}"
            found = _kept(Watch(shown, **plan))
            found.is_asked_for = False
            return
        except SystemRunningError:
            if attempt == LIMITS.namesakes:
                raise


def _shutdown(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """In place of `ray.shutdown`: what was seen is written before Ray is gone."""
    close_quietly()
    return original(*args, **kwargs)


def _runtime_env(given: Any, own: Callable[[], Any] | str | None) -> dict[str, Any]:
    """The app's own runtime environment, with our setup hook, which calls the app's."""
    return {**(given or {}), delivery.HOOK: delivery.hook(own)}


WHEN_CLOSED: list[Callable[[], None]] = []
"""What is to be done with a history that is whole; each once."""


def close_quietly() -> None:
    """At the program's end: finish what is pending, and write it; the program's own end is not disturbed."""
    steps: list[Callable[[], None]] = [found.close for found in _watches]
    if steps:  # who comes second, while the first still writes, has nothing to do behind it
        steps += WHEN_CLOSED
        WHEN_CLOSED.clear()
    for step in steps:
        try:
            step()
        except Exception as error:
            say(f"ray-snapshot: {error}")


def wrap(cls: type) -> type:
    """A class whose actors can be watched: `ray.remote(rs.wrap(Account))`; the class itself is not changed."""
    return watched_class(cls)
