"""How the driver takes snapshots, and waits for verdicts on them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from ray_snapshot.errors import (
    DetectorError,
    HostDiedError,
    NeverHoldsError,
    RolledBackError,
    SettingError,
    SnapshotAbortedError,
    SnapshotTimeoutError,
)
from ray_snapshot.runtime.collected import Collected
from ray_snapshot.runtime.handles import MachineHandle
from ray_snapshot.runtime.keeping import not_restorable
from ray_snapshot.runtime.settings import portable, seconds_of, spec_of
from ray_snapshot.runtime.spawning import Spawning
from ray_snapshot.runtime.subscribers import Subscribers
from ray_snapshot.snapshot import Snapshot
from ray_snapshot.verdicts import Detector, Verdict, check_detector
from ray_snapshot.waits import machine_name


class Awaiting(Spawning):
    """A part of `system.System`: snapshots and verdicts."""

    _is_closed_world = True
    """Whether only the driver reaches in from outside. Actors of a watched app may be ended by a thread, or from outside."""

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
        seconds = self.settings.snapshot_timeout if timeout is None else seconds_of("snapshot", timeout)
        if not seconds > 0:
            raise SettingError(f"snapshot(timeout={timeout!r}): it must be more than 0 seconds")
        given: Any = [initiators] if isinstance(initiators, (str, MachineHandle)) else initiators
        names = [machine_name(item) for item in given]
        try:
            found: Collected = self._ask(
                self._service.snapshot.remote(names, seconds), "the snapshot", 2 * seconds + 10
            )
        except HostDiedError as error:
            if error.host is not None or self._memory is None:
                raise
            raise _aborted_with_service(error) from None
        return found.snapshot()

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

    def wait_for(self, detector: Any, *, timeout: float = 60.0) -> Verdict:
        """Block until `detector` (a name or a detector) holds on a snapshot begun from now on; returns that verdict.

        With `recover` also until the system does not go back behind that snapshot by itself, unless the verdict is an alarm:
        what that says has been seen. A snapshot that cannot be restored does not count: a later one must.

        While it waits the driver is passive. Without a clock snapshots are taken as often as they complete, at most every
        50 ms at first and every second later. Raises `SnapshotTimeoutError` (with the last verdicts), `NeverHoldsError` (one
        of these) at once if termination is waited for in a deadlock, and whatever stops the system.
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
                    if number > begun:
                        self._check_hope(item, last, seconds)
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

    def _check_hope(self, item: Detector, last: dict[str, Verdict], seconds: float) -> None:
        """Raise `NeverHoldsError` if the last verdicts say that termination, waited for, will never come.

        Not where the driver may yet go back to a snapshot, or hears of verdicts: its callbacks may act.
        """
        if not self._is_closed_world or self._is_checkpointing or self._subscribers is not None:
            return
        stuck = for_ever_stuck(item, last, self.detectors)
        if stuck is not None:
            raise NeverHoldsError(
                f"{item.name} can never hold any more, as snapshot {stuck.snapshot_id} shows: {stuck.sentence}",
                waited_for=item.name,
                seconds=seconds,
                verdict=stuck,
            )

    def _is_certain(self, verdict: Verdict, deadline: float) -> bool:
        """Whether what the verdict says of its snapshot stays true whoever dies."""
        if self._memory is None or verdict.alarm:
            return True
        left = max(0.1, deadline - time.monotonic())
        ask = partial(self._service.is_certain.remote, verdict.snapshot_id, left)
        return bool(self._again(ask, f"whether {verdict.snapshot_id} is kept", left + 10))

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

    def subscribe(self, callback: Callable[[Verdict], None]) -> None:
        """Call `callback` with every verdict from now on, in a thread of the driver; all before `close` returns.

        A callback that raises does not keep the others from hearing; `close` says so.
        """
        self._check()
        with self._lock:
            if self._subscribers is None:
                self._subscribers = Subscribers(self._analyst, is_again=self._memory is not None)
            self._subscribers.callbacks.append(callback)


def for_ever_stuck(item: Detector, last: Mapping[str, Verdict], known: Iterable[Detector]) -> Verdict | None:
    """The verdict of a deadlock because of which the system will never terminate; None if it may, or if `item` asks otherwise.

    On one snapshot some are deadlocked, and nothing is active that could do anything about it: no machine, and not the driver.
    """
    names = {str((spec_of(one) or {}).get("type")): one.name for one in known}
    verdict, stuck = last.get(item.name), last.get(names.get("deadlock", ""))
    if spec_of(item) != {"type": "termination", "name": item.name} or verdict is None or stuck is None:
        return None
    is_quiet = verdict.holds is False and verdict.evidence["active"] == 0
    return stuck if stuck.holds and is_quiet and verdict.snapshot_id == stuck.snapshot_id else None


def _last_verdicts(last: dict[str, Verdict], completed: int, unjudged: int) -> str:
    """What `wait_for` says in the end: verdicts, how many snapshots were completed, on how many no verdict has come yet."""
    parts = [f"{verdict.detector}: {verdict.sentence}" for verdict in last.values()]
    if unjudged or not parts:
        parts.append(f"{completed or 'no'} snapshot{'s' * (completed > 1)} completed meanwhile")
    if unjudged:
        parts.append(f"verdicts on {unjudged} snapshot{'s' * (unjudged > 1)} are still being computed")
    return "; ".join(parts)


def _aborted_with_service(error: HostDiedError) -> SnapshotAbortedError:
    return SnapshotAbortedError(
        f"the snapshot was given up: {error}; the system goes on: ask again",
        snapshot_id=None,
        reason="the system's service died",
        machine=None,
        call_site=None,
    )
