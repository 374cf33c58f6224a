"""What a program holds, with a service or a watcher that takes snapshots: a system (`rs.System`) or a watched app
(`rs.watch`).

It takes snapshots, waits for verdicts on them, hears of verdicts, and closes. Everything waits with a bound, and says what it
waited for.
"""

from __future__ import annotations

import os
import threading
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, suppress
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

import ray
from ray import cloudpickle
from ray.exceptions import RayError

from ray_snapshot import redaction
from ray_snapshot.addresses import absolute
from ray_snapshot.alarms import Notifier
from ray_snapshot.errors import (
    DetectorError,
    HistoryWriteError,
    HostDiedError,
    NeverHoldsError,
    RaySnapshotError,
    SettingError,
    SnapshotTimeoutError,
    SystemNotRunningError,
)
from ray_snapshot.limits import LIMITS
from ray_snapshot.names import check_system_name
from ray_snapshot.news import News
from ray_snapshot.runtime import shutting_down
from ray_snapshot.runtime.cluster import ask
from ray_snapshot.runtime.collected import Collected
from ray_snapshot.runtime.driver.memory import Memory
from ray_snapshot.runtime.restoring import wanted
from ray_snapshot.runtime.settings import Settings, detectors_of, portable, refuse_redaction, seconds_of, spec_of
from ray_snapshot.runtime.subscribers import AlarmTeller, Hears, Subscriber, Subscribers
from ray_snapshot.stderr import say
from ray_snapshot.tested import say_if_untested
from ray_snapshot.verdicts import Detector, Verdict, check_detector

if TYPE_CHECKING:  # Arrow comes with them: loaded where a program asks for a snapshot, and not at its start
    from ray_snapshot.runtime.analyst.keeping import Keeper
    from ray_snapshot.snapshot import Snapshot


class Part(Protocol):
    """This process's own part, as far as a session needs it; `driver.post` says what each does."""

    @property
    def failure(self) -> RaySnapshotError | None: ...
    def check(self) -> None: ...
    def raises(self, error: RaySnapshotError) -> None: ...
    def has_raised(self, error: RaySnapshotError) -> bool: ...
    def rest(self) -> AbstractContextManager[None]: ...
    def close(self) -> None: ...


class Session(ABC):
    """The base of `System` and `Watch`; use it in a `with` block."""

    _is_closed_world = True
    """Whether only the driver reaches in from outside. Actors of a watched app may be ended by a thread, or from outside."""

    _service: Any
    """The actor that takes snapshots."""
    _analyst: Any
    _part: Part

    def __init__(
        self,
        name: str,
        settings: Settings,
        *,
        kind: str,
        history: str | os.PathLike[str] | None,
        detectors: Iterable[Any] | None,
    ) -> None:
        """`kind`: what the program has called, for errors."""
        self.name = check_system_name(name)
        say_if_untested(ray.__version__)
        self.settings = settings
        self.detectors = detectors_of(detectors)
        self.history = None if history is None else absolute(history, HistoryWriteError)
        self.run_id = uuid.uuid4().hex[:16]
        self._wanted = wanted(self.name)
        self.restored = self._wanted is not None
        """Whether the system goes on from a snapshot."""
        self._is_checkpointing = settings.checkpoint or settings.recover is not None
        if self._is_checkpointing or (self.restored and not self._is_closed_world):
            refuse_redaction(kind)
        keeps_files = self._is_checkpointing and self.history is not None
        self._key = _checkpoint_key() if keeps_files or self._wanted else None
        self._subscribers: Subscribers | None = None
        self._all_news: list[News] = []
        self._notifier = None if settings.on_alarm is None else Notifier(settings.on_alarm)
        self._is_closed = False
        self._closing: threading.Thread | None = None
        """The thread that closes it."""
        self._has_closed = threading.Event()
        self._has_clock = False
        self._lock = threading.Lock()
        """Held around what several threads of the program may change at once."""

    def __repr__(self) -> str:
        watched = ", ".join(item.name for item in self.detectors) or "no detectors"
        kept = f"history {self.history}" if self.history is not None else "no history"
        closed = ", closed" if self._is_closed else ""
        return f"<{type(self).__name__} {self.name}: run {self.run_id}, {watched}, {kept}{closed}>"

    def _keeper(self) -> Keeper | None:
        """What keeps the checkpoints of this run, and has those of the run that it goes on from; None without any."""
        if not self._is_checkpointing and self._wanted is None:
            return None
        from ray_snapshot.runtime.analyst.keeping import Keeper

        source = None if self._wanted is None else self._wanted.history
        return Keeper(self.run_id, self.history, self._key, source)

    def _open_analyst(self, life: int = 0) -> Any:
        """Tell an analyst what to do; the reference to wait for. `life`: which of this run it is, the first being 0."""
        keeper, memory = self._keeper(), None if life == 0 else self._memory
        if keeper is not None and memory is not None:
            keeper.aliases += memory.aliases
            for checkpoint in memory.copies():
                keeper.recall(checkpoint)
        return self._analyst.open.remote(
            cloudpickle.dumps(self.detectors),
            redaction.names(),
            keeper,
            life,
            has_subscribers=self._subscribers is not None,
        )

    # ---- snapshots and verdicts -----------------------------------------------------------------------------------

    def _taken(self, initiators: list[str], timeout: float | None) -> Snapshot:
        """A snapshot that is taken now."""
        self._check()
        seconds = self.settings.snapshot_timeout if timeout is None else seconds_of("snapshot", timeout)
        if not seconds > 0:
            raise SettingError(f"snapshot(timeout={timeout!r}): it must be more than 0 seconds")
        asked = self._service.snapshot.remote(initiators, seconds)
        found: Collected = self._ask(asked, "the snapshot", 2 * seconds + 10)
        return found.snapshot()

    @abstractmethod
    def snapshot(self, *, timeout: float | None = None) -> Snapshot:
        """Take a snapshot now."""

    def wait_for(self, detector: Any, *, timeout: float = 60.0, stop_on_alarm: bool | None = None) -> Verdict:
        """Block until `detector` (a name or a detector) holds on a snapshot begun from now on; returns that verdict.

        With `recover` also until the system does not go back behind that snapshot by itself, unless the verdict is an alarm:
        what that says has been seen. A snapshot that cannot be restored does not count: a later one must.

        While it waits the driver is passive. Without a clock snapshots are taken as often as they complete, at most every
        50 ms at first and every second later. Raises `SnapshotTimeoutError` (with the last verdicts), and whatever stops the
        system; and `NeverHoldsError` (a `SnapshotTimeoutError`) at once if termination is waited for in a deadlock and nothing
        is left that could break it. `stop_on_alarm`: True: also where something might (a subscriber, a thread, a kill from
        outside); False: never before the timeout.
        """
        self._check()
        seconds = seconds_of("wait_for", timeout)
        item = self._known(detector)
        deadline = time.monotonic() + seconds
        begun = self._again(self._service.last_number.remote, "the service")
        seen = self._again(self._analyst.count.remote, "the analyst")
        last: dict[str, Verdict] = {}
        uncertain = ""
        pause, due = 0.05, 0.0
        with self.at_rest():
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
                    if number > begun and stop_on_alarm is not False:
                        self._check_hope(item, last, seconds, is_any=bool(stop_on_alarm))
                    if number > begun and verdict.detector == item.name and verdict.holds:
                        if self._is_certain(verdict, deadline):
                            return verdict
                        uncertain = verdict.snapshot_id
        completed = self._again(partial(self._service.completed_after.remote, begun), "the service")
        unjudged = self._again(self._analyst.unjudged.remote, "the analyst")
        said = _last_verdicts(last, completed, unjudged)
        if uncertain:
            said += f"; on {uncertain} it held, but the system may go back behind that (is it restorable?)"
        raise SnapshotTimeoutError(
            f"{item.name} did not hold within {timeout:g} s; last verdicts: {said}",
            waited_for=item.name,
            seconds=timeout,
        )

    def _check_hope(self, item: Detector, last: dict[str, Verdict], seconds: float, *, is_any: bool) -> None:
        """Raise `NeverHoldsError` if the last verdicts say that termination, waited for, will never come.

        Not where the driver may yet go back to a snapshot, or hears of verdicts: its callbacks may act. `is_any`: any deadlock
        is enough.
        """
        has_hearers = self._subscribers is not None and self._subscribers.may_act
        may_be_broken = not self._is_closed_world or self._is_checkpointing or has_hearers
        if may_be_broken and not is_any:
            return
        stuck = for_ever_stuck(item, last, self.detectors, is_any=is_any)
        if stuck is not None and (is_any or self._is_of_ours(stuck)):
            raise NeverHoldsError(
                f"{item.name} can never hold any more, as snapshot {stuck.snapshot_id} shows: {stuck.sentence}",
                waited_for=item.name,
                seconds=seconds,
                verdict=stuck,
            )

    def _is_of_ours(self, stuck: Verdict) -> bool:  # noqa: ARG002 - else there are no others
        """Whether only machines of hosts are deadlocked: nothing from outside ends them."""
        return True

    def _is_certain(self, verdict: Verdict, deadline: float) -> bool:
        """Whether what the verdict says of its snapshot stays true whichever process dies."""
        if self._memory is None or verdict.alarm:
            return True
        left = max(0.1, deadline - time.monotonic())
        ask = partial(self._service.is_certain.remote, verdict.snapshot_id, left)
        return bool(self._again(ask, f"whether {verdict.snapshot_id} is kept", left + 10))

    def at_rest(self) -> AbstractContextManager[None]:
        """For the time of the block the program waits for a verdict, and does nothing else."""
        return self._part.rest()

    def _known(self, detector: Any) -> Detector:
        """The detector of this name that is evaluated, or this one, from now on."""
        known = {item.name: item for item in self.detectors}
        if isinstance(detector, str) and detector in known:
            return known[detector]
        item = check_detector(detector)
        found = known.get(item.name)
        if found is None:
            blob = portable(item)
            self.detectors.append(item)  # first: an analyst that is started anew meanwhile is opened with it
            self._again(partial(self._analyst.watch.remote, blob), "the analyst")
            return item
        if found is not item and (spec_of(found) is None or spec_of(found) != spec_of(item)):
            raise DetectorError(
                f"another detector named {item.name!r} is evaluated already: give this one a name of its own",
                detector=item.name,
            )
        return found

    def _poll(self, seen: int, seconds: float) -> tuple[int, list[tuple[int, Verdict]]]:
        ask = partial(self._analyst.verdicts_after.remote, seen, max(0.01, seconds))
        found: tuple[int, list[tuple[int, Verdict]]] = self._again(ask, "the analyst")
        return found

    def subscribe(self, callback: Callable[[Verdict], None], *, repeat: bool = False) -> None:
        """Call `callback` with verdicts from now on, in a thread of the driver; all before `close` returns.

        With each that begins an alarm, and with the one that ends it (`.alarm` tells which); of a detector without an alarm,
        when it begins to hold and when it does no more. `repeat`: with every verdict on every snapshot. A callback that raises
        does not keep the others from hearing; `close` says so.
        """
        self._hear_by(Subscriber(callback, None if repeat else self._news()))

    def _news(self) -> News:
        """Tells which verdicts begin or end something, from now on."""
        found = News(self.alarm_when)
        self._all_news.append(found)
        return found

    def alarm_when(self, name: str) -> bool | None:
        """Which answer of this detector is an alarm; None: neither."""
        return next((one.alarm_when for one in self.detectors if one.name == name), None)

    def write_history(self, *, timeout: float = 60.0) -> None:
        """Write what was evaluated so far: the history then lists it. Raises what keeps the history from being written."""
        seconds = seconds_of("write_history", timeout)
        trouble = self._ask(self._analyst.drain.remote(seconds), "the history to be written", seconds + 10)
        if trouble is not None:
            raise trouble

    def _tell_alarms(self) -> None:
        """From now on alarms are told as `on_alarm` says."""
        if self._notifier is not None:
            self._hear_by(AlarmTeller(self._notifier, self.name, self.history, self._news()))

    def _hear_by(self, hearing: Hears) -> None:
        """This hears of every verdict from now on."""
        self._check()
        with self._lock:
            if self._subscribers is None:
                self._subscribers = Subscribers(self._analyst, is_again=self._memory is not None)
            self._subscribers.hearing.append(hearing)

    def _restorable_id(self, snapshot: Snapshot | str, how: str) -> str:
        """The id of what the program wants to go back to; `how` snapshots that can be restored are taken."""
        self._check()
        if not isinstance(snapshot, str) and not snapshot.restorable:
            from ray_snapshot.history.restorable import not_restorable

            raise not_restorable(snapshot.snapshot_id, snapshot.obstacles)
        if not self._is_checkpointing and self._wanted is None:
            raise SettingError(f"restore: there is nothing to restore from without {how}")
        return snapshot if isinstance(snapshot, str) else snapshot.snapshot_id

    # ---- life -----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Finish pending snapshots and verdicts, write them, and end all processes of the system.

        Raises what stopped the system, unless the program has met that already, `HistoryWriteError`, and what a subscriber
        raised. A second call does nothing.
        """
        with self._lock:
            closing, self._closing = self._closing, self._closing or threading.current_thread()
            self._is_closed = True
        if closing is not None:
            self._wait_until_closed(closing)
            return
        troubles: list[RaySnapshotError | None] = []
        try:
            if shutting_down.has_ray(self):
                self._finish(troubles)
            elif self.history is not None:
                lost = f"what was not written yet is not in {self.history}; close it before ray.shutdown()"
                say(f"system {self.name}: Ray is gone: {lost}")
        finally:
            if self._notifier is not None:
                self._notifier.close()
            try:
                self._leave()
            finally:
                shutting_down.closed(self)
                self._has_closed.set()
        for trouble in [self._part.failure, *troubles]:
            if trouble is not None and not self._part.has_raised(trouble):
                raise trouble

    def _wait_until_closed(self, closing: threading.Thread) -> None:
        """Who ends the program meanwhile would cut off the one that closes; which itself waits for nobody."""
        own = self._subscribers and self._subscribers.thread
        if threading.current_thread() not in (closing, own):
            self._has_closed.wait(LIMITS.second_close_s)

    def _finish(self, troubles: list[RaySnapshotError | None]) -> None:
        """Let pending snapshots complete, evaluate and write everything; notes what went wrong, the worst first."""
        for step in self._last_steps():
            try:
                troubles.append(step())
            except RaySnapshotError as error:  # the next step may still save something
                troubles.append(error)

    def _last_steps(self) -> list[Callable[[], RaySnapshotError | None]]:
        """What `close` does, one after the other."""
        return [
            lambda: ask(self._service.settle.remote(5.0), "pending snapshots", 10),
            lambda: ask(self._analyst.drain.remote(60.0), "the history to be written", 90),
            self._close_subscribers,
            lambda: ask(self._service.close.remote(), "the service", 10),
        ]

    def _close_subscribers(self) -> RaySnapshotError | None:
        if self._subscribers is None:
            return None
        self._subscribers.close(timeout=60.0)
        return self._subscribers.trouble

    @abstractmethod
    def _leave(self) -> None:
        """End what was started for this session; returns when it is gone."""

    def __enter__(self) -> Self:
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
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._is_closed

    @property
    def failure(self) -> RaySnapshotError | None:
        """What stopped the system, if anything did."""
        return self._part.failure

    # ---- asking ---------------------------------------------------------------------------------------------------

    def _check(self) -> None:
        if self._is_closed:
            raise SystemNotRunningError(f"system {self.name} was closed", system=self.name)
        if not shutting_down.has_ray(self):
            text = f"system {self.name} has ended: this program has left the Ray that it ran on; close it before ray.shutdown()"
            raise SystemNotRunningError(text, system=self.name)
        self._part.check()

    def _ask(self, refs: Any, what: str, timeout: float = 60.0) -> Any:
        """`ray.get` with a bound in seconds."""
        try:
            return ask(refs, f"{what} of system {self.name}", timeout)
        except RaySnapshotError as error:
            self._part.raises(error)
            raise

    @property
    def _memory(self) -> Memory | None:
        """What is remembered for a service or an analyst that is started anew; None where none will be."""
        return None

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
                if not is_gone or self._memory is None or time.monotonic() > deadline:
                    self._part.raises(error)
                    raise
            time.sleep(LIMITS.again_s)
            self._check()

    def _kill(self, actors: list[Any]) -> None:
        """Kill actors, and wait until Ray says that they are gone."""
        if not shutting_down.has_ray(self):
            return
        gone = [actor.watched.remote() for actor in actors]
        arrived = [actor.__ray_ready__.remote() for actor in actors]
        try:  # not while calls come: Ray may crash in the actor that it ends
            ray.wait(arrived, num_returns=len(arrived), timeout=LIMITS.last_arrival_s)
        finally:  # a Ctrl-C must leave none behind
            for actor in actors:
                with suppress(RayError, ValueError):  # already gone, which is what was asked for
                    ray.kill(actor)
        ray.wait(gone, num_returns=len(gone), timeout=5.0)


def _checkpoint_key() -> bytes:
    from ray_snapshot.history.checkpoints import checkpoint_key

    return checkpoint_key()


def for_ever_stuck(
    item: Detector, last: Mapping[str, Verdict], known: Iterable[Detector], *, is_any: bool = False
) -> Verdict | None:
    """The verdict of a deadlock because of which the system will never terminate; None if it may, or if `item` asks otherwise.

    On one snapshot some are deadlocked, and nothing is active that could do anything about it: no machine, and not the driver.
    `is_any`: whatever is active.
    """
    names = {str((spec_of(one) or {}).get("type")): one.name for one in known}
    verdict, stuck = last.get(item.name), last.get(names.get("deadlock", ""))
    if spec_of(item) != {"type": "termination", "name": item.name} or verdict is None or stuck is None:
        return None
    is_quiet = verdict.holds is False and (is_any or verdict.evidence["active"] == 0)
    return stuck if stuck.holds and is_quiet and verdict.snapshot_id == stuck.snapshot_id else None


def _last_verdicts(last: dict[str, Verdict], completed: int, unjudged: int) -> str:
    """What `wait_for` says in the end: verdicts, how many snapshots were completed, on how many no verdict has come yet."""
    parts = [f"{verdict.detector}: {verdict.sentence}" for verdict in last.values()]
    if unjudged or not parts:
        parts.append(f"{completed or 'no'} snapshot{'s' * (completed > 1)} completed meanwhile")
    if unjudged:
        parts.append(f"verdicts on {unjudged} snapshot{'s' * (unjudged > 1)} are still being computed")
    return "; ".join(parts)
