"""The analyst of a system: the detector service, and the writer of its history.

Off the snapshot's path: of a system it is a Ray actor of its own, of a watched app it lives in the watcher (`inside`).
Snapshots arrive as they are completed, a thread evaluates every detector on each; another writes snapshots and verdicts in
batches. Verdicts are kept for subscribers and `wait_for`, which poll.
Arrow and the like are imported where they are used: Ray imports this module in every process that gets a handle of an analyst.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import ray
from ray import cloudpickle

from ray_snapshot import redaction
from ray_snapshot.encoding import to_json
from ray_snapshot.errors import DetectorError, NotRestorableError, RaySnapshotError
from ray_snapshot.glances import Glances
from ray_snapshot.limits import LIMITS
from ray_snapshot.runtime import waits
from ray_snapshot.runtime.analyst.arrivals import Arrivals, Handed, InWork
from ray_snapshot.runtime.analyst.ray_metrics import RayMetrics
from ray_snapshot.runtime.analyst.verdict_queue import VerdictQueue
from ray_snapshot.runtime.classes import extend_import_path
from ray_snapshot.runtime.collected import CHECKPOINT_OFF, Collected
from ray_snapshot.runtime.faults import first_line, in_a_line, text_of

if TYPE_CHECKING:
    from ray_snapshot.history.checkpoints import Checkpoint
    from ray_snapshot.runtime.analyst.keeping import Keeper
    from ray_snapshot.runtime.planning import Ground, Plan
    from ray_snapshot.snapshot import Snapshot
    from ray_snapshot.verdicts import Detector, Standards, Verdict


LIFE = 10**9
"""The first verdict of an analyst has this number times its life: so no count of an earlier life is as high."""


class Analyst:
    """A thread puts snapshots together and judges them, another writes what came of it; the event loop answers calls."""

    def __init__(self, system: str, history: str | None, paths: tuple[str, ...]) -> None:
        extend_import_path(paths)
        waits.in_threads()
        self.system = system
        self.detectors: list[Detector] = []
        self.history = history
        self.arrivals = Arrivals()
        self.verdicts = VerdictQueue()
        self.glances = Glances()
        self.metrics = RayMetrics(system)
        self.wakes = 0
        """How often those who wait for verdicts were told to wait no longer."""
        self.warmed_for = LIMITS.warm_up_machines
        """Detectors have loaded what they need for so many machines."""
        self.evaluated = 0
        """Snapshots evaluated so far."""
        self.trouble: RaySnapshotError | None = None
        """Why the history is not written any more."""
        self.on_fault: Callable[[BaseException], None] | None = None
        """Called with faults of ours; None: they are troubles of the history."""
        self.lock = threading.Lock()
        self.loop = asyncio.get_event_loop()
        self.changed = asyncio.Condition()
        self.writer: Any = None
        self.keeper: Keeper | None = None
        """Keeps what a restore needs, if that is wanted."""
        self.opened = asyncio.Event()
        self.opening = asyncio.Lock()
        self.second = ThreadPoolExecutor(LIMITS.long_calls, "ray-snapshot-second", _come_second)
        """What takes its time, or runs code that is not ours, is done here, not on the event loop; threads that are begun here
        come second, too."""
        self.marks: dict[str, int] = {}
        """By snapshot, the latest last: the `committed` of the writer from which on the history lists it."""

    # ---- the thread -----------------------------------------------------------------------------------------------

    def _work(self) -> None:
        self.warming.join(LIMITS.warm_up_s)  # it loads what the first evaluation needs
        while True:
            self._analyse(self.arrivals.inbox.get())

    def _analyse(self, handed: Handed) -> None:
        collected = handed.collected
        try:
            self._keep_trace(collected.traces)
            self._take(self._assembled(collected), handed)
        except Exception as error:  # a fault of ours: the snapshots that follow must not wait for a thread that is gone
            self._fault(collected, f"it could not be analysed: {in_a_line(error)}", error)
            with self.lock:
                self.evaluated += 1
            self.loop.call_soon_threadsafe(self._tell)

    def _assembled(self, collected: Collected) -> Snapshot:
        try:
            return collected.snapshot()
        except Exception as error:  # a fault of ours: said at the end, and as the reason that there is no such snapshot
            reason = f"it could not be put together: {in_a_line(error)}"
            self._fault(collected, reason, error)
            from ray_snapshot.runtime.assembly import aborted

            return aborted(replace(collected.header, abort_reason=reason))

    def _fault(self, collected: Collected, reason: str, error: Exception) -> None:
        if self.on_fault is not None:
            self.loop.call_soon_threadsafe(self.on_fault, error)
        else:
            self.trouble = self.trouble or RaySnapshotError(f"snapshot {collected.header.snapshot_id}: {reason}")

    def _take(self, snapshot: Snapshot, handed: Handed) -> None:
        collected, mark = handed.collected, [0]
        with self.lock:
            detectors = list(self.detectors)
        if self.keeper is not None:
            snapshot = self.keeper.keep(snapshot, collected)
        found = [self._evaluate(item, snapshot) for item in detectors] if snapshot.status == "complete" else []
        if self.writer is not None and self.trouble is None:
            self._guarded(lambda: mark.append(self.writer.add_whole(snapshot, found, again=handed.again)))
        count = self.verdicts.extend((snapshot.sequence, verdict) for verdict in found)
        self._show(snapshot, found, collected.header.generation)
        if snapshot.machine_count >= 2 * self.warmed_for:
            self.warmed_for = snapshot.machine_count
            threading.Thread(target=_warm_up, args=(detectors, self.warmed_for), name="warm-up", daemon=True).start()
        self.arrivals.evaluated(handed, mark[-1], count)
        with self.lock:
            self.marks[snapshot.snapshot_id] = mark[-1]
            if len(self.marks) > LIMITS.listed_marks:
                del self.marks[next(iter(self.marks))]
            self.evaluated += 1
        self.loop.call_soon_threadsafe(self._tell)

    def _show(self, snapshot: Snapshot, found: list[Verdict], generation: int) -> None:
        """To those who look on; whatever goes wrong there, snapshots are written and verdicts handed out."""
        with suppress(Exception):
            self.glances.add(snapshot, found, generation)
        with suppress(Exception):
            self.metrics.take(self.glances.totals, self.glances.last)

    def _keep_trace(self, traces: Iterable[bytes]) -> None:
        from ray_snapshot.columns import unpacked

        for shipped in traces:
            if self.writer is not None and self.trouble is None:
                rows = unpacked(shipped)
                self._guarded(lambda rows=rows: self.writer.add_actions(rows, system=self.system))

    def _evaluate(self, item: Detector, snapshot: Snapshot) -> Verdict:
        try:
            return _portable(self.standards.evaluate(item, snapshot))
        except BaseException as error:  # sys.exit() in a detector is a detector's fault as well
            return _failed(item, snapshot, error)

    @cached_property
    def standards(self) -> Standards:
        from ray_snapshot.verdicts import Standards

        return Standards()

    def _commit(self) -> None:
        if self.trouble is None:
            self._guarded(self.writer.flush)

    def _guarded(self, work: Any) -> None:
        try:
            work()
        except RaySnapshotError as error:
            self.trouble = error
        except Exception as error:
            self.trouble = RaySnapshotError(
                f"the history cannot be written: {type(error).__name__}: {first_line(error)}"
            )

    def _tell(self) -> None:
        asyncio.ensure_future(self._notify())  # noqa: RUF006 - it ends within this turn of the loop

    async def _notify(self) -> None:
        async with self.changed:
            self.changed.notify_all()

    # ---- calls ----------------------------------------------------------------------------------------------------

    async def checkpoint(self, snapshot_id: str) -> Checkpoint | None:
        """What is kept in memory of a snapshot; None if it is not there any more."""
        return None if self.keeper is None else self.keeper.lend(snapshot_id)

    async def pin(self, snapshot_id: str) -> None:
        """The system goes back to this snapshot from now on: its checkpoint is kept until there is another."""
        await self.opened.wait()
        if self.keeper is not None:
            self.keeper.pin(snapshot_id)

    async def plan(self, snapshot_id: str, ground: Ground) -> Plan:
        """The checkpoint of a snapshot, dealt out; raises `NotRestorableError`, `CheckpointError`."""
        keeper = await self._keeper_of(snapshot_id)
        found: Plan = await self.loop.run_in_executor(self.second, keeper.plan, snapshot_id, ground)
        return found

    async def checkpoint_of(self, snapshot_id: str) -> Checkpoint:
        """The checkpoint of a snapshot, as it was kept; raises `NotRestorableError`, `CheckpointError`."""
        keeper = await self._keeper_of(snapshot_id)
        found: Checkpoint = await self.loop.run_in_executor(self.second, keeper.fetch, snapshot_id)
        return found

    async def _keeper_of(self, snapshot_id: str) -> Keeper:
        """The keeper, when it has seen to that snapshot."""
        await self.opened.wait()
        if self.keeper is None:
            raise NotRestorableError(
                f"snapshot {snapshot_id} cannot be restored: {CHECKPOINT_OFF}", obstacles=[CHECKPOINT_OFF]
            )
        while not self.keeper.has_seen(snapshot_id) and self.evaluated < self.arrivals.received:
            await asyncio.sleep(LIMITS.evaluated_look_s)
        return self.keeper

    async def is_kept(self, snapshot_id: str, *, is_listed: bool = False) -> bool:
        """Whether a snapshot that was given to `add` can be restored; answers when it has been seen to.

        `is_listed`: also by another program, which finds what the history lists; this costs a commit, if there is a history.
        """
        await self.opened.wait()
        while (
            self.keeper is not None
            and not self.keeper.has_seen(snapshot_id)
            and self.evaluated < self.arrivals.received
        ):
            await asyncio.sleep(LIMITS.evaluated_look_s)
        if self.keeper is None or not self.keeper.is_kept(snapshot_id):
            return False
        return not is_listed or self.writer is None or await self._listed(snapshot_id)

    async def _listed(self, snapshot_id: str) -> bool:
        """Answers when the history lists a snapshot that was given to `add`; False if it never will."""
        while snapshot_id not in self.marks and self.evaluated < self.arrivals.received:
            await asyncio.sleep(LIMITS.evaluated_look_s)
        mark = self.marks.get(snapshot_id, 0)
        while mark and self.trouble is None and self.writer.committed < mark:
            try:
                await self.loop.run_in_executor(self.second, self.writer.flush)
            except RaySnapshotError:  # the writer says so, and tries again
                await asyncio.sleep(LIMITS.commit_again_s)
        return bool(mark) and self.writer.committed >= mark

    async def open(
        self,
        detectors: bytes,
        redacted: tuple[str, ...] = (),
        keeper: Keeper | None = None,
        life: int = 0,
        *,
        has_subscribers: bool = False,
    ) -> None:
        """Open the history and begin to work; nothing happens if that has been done.

        `redacted`: names of fields that are not written; `keeper`: keeps what a restore needs; `life`: how many
        analysts of this system have died; `has_subscribers`: subscribers are to get every verdict. Raises
        `HistoryWriteError`, `HistoryFormatError`, `DetectorError`.
        """
        async with self.opening:
            if not self.opened.is_set():
                self.verdicts.begin(life * LIFE, has_subscribers=has_subscribers)
                begin = partial(self._open, detectors, redacted, keeper)
                await self.loop.run_in_executor(self.second, begin)
                self.opened.set()

    def _open(self, detectors: bytes, redacted: tuple[str, ...], keeper: Keeper | None) -> None:
        """Load what is needed, which takes its time, and begin to work."""
        redaction.redact(*redacted)
        from ray_snapshot.first_array import warm_up_without_pandas

        warm_up_without_pandas()
        loaded = _loaded(detectors)
        if self.history is not None:
            from ray_snapshot.history import BackgroundWriter, HistoryWriter

            self.writer = BackgroundWriter(HistoryWriter(self.history, system=self.system))
        self.keeper, self.detectors = keeper, loaded
        self.warming = threading.Thread(target=_warm_up, args=(loaded,), name="warm-up", daemon=True)
        self.warming.start()
        threading.Thread(target=self._work, name="analyst", daemon=True).start()

    async def begin_session(self) -> str:
        """The service begins a session, and counts places from 1 again; snapshots of an earlier session are refused."""
        return self.arrivals.begin_session()

    async def add(
        self,
        collected: Collected,
        place: int | None = None,
        session: str | None = None,
        *,
        again: bool = False,
    ) -> int | None:
        """A snapshot has been completed or aborted; answers when few others wait to be evaluated.

        `place`: its place in the line, from 1 on, by which snapshots are evaluated: Ray may swap calls. Snapshots
        behind a gap do not count as waiting: the one that fills the gap may come only once an earlier call is answered.
        Returns up to which place everything is done with for good; None if it was refused, for it is of another
        `session`.
        """
        if not self.arrivals.put(Handed(collected, place, session, again)):
            return None
        while self.arrivals.in_order - self.evaluated > LIMITS.waiting_snapshots:
            await asyncio.sleep(LIMITS.evaluated_look_s)
        return self.arrivals.finished(self._is_done)

    def _is_done(self, one: InWork) -> bool:
        """Whether it is written, if there is a history, and handed out, if there are subscribers."""
        is_written = self.writer is None or self.trouble is not None or self.writer.committed >= one.mark
        return is_written and self.verdicts.has_handed_out(one.verdicts)

    async def add_trace(self, traces: list[bytes]) -> None:
        """Rows of `actions` that came with no snapshot."""
        await self.opened.wait()
        self._keep_trace(traces)

    async def watch(self, detector: bytes) -> None:
        """Evaluate one more detector from now on; raises `DetectorError`."""
        await self.opened.wait()
        await self.loop.run_in_executor(self.second, self._add_detector, detector)

    def _add_detector(self, detector: bytes) -> None:
        item = _loaded(detector)
        threading.Thread(target=_warm_up, args=([item],), name="warm-up", daemon=True).start()
        with self.lock:
            if item.name not in {known.name for known in self.detectors}:  # else it was opened with it
                self.detectors.append(item)

    async def forget(self, names: list[str]) -> None:
        """Evaluate these detectors no more."""
        await self.opened.wait()
        with self.lock:
            self.detectors = [item for item in self.detectors if item.name not in names]

    async def subscribe(self) -> int:
        """From now on every verdict is kept until it has been handed out; returns how many there have been."""
        await self.opened.wait()
        return self.verdicts.subscribe()

    async def verdicts_after(
        self, seen: int, seconds: float, *, subscriber: bool = False
    ) -> tuple[int, list[tuple[int, Verdict]]]:
        """(how many there are now, (snapshot number, verdict) of those behind the first `seen`); waits up to `seconds`."""
        await self.opened.wait()
        deadline, wakes = time.monotonic() + seconds, self.wakes
        while self.verdicts.count <= seen and self.wakes == wakes and (left := deadline - time.monotonic()) > 0:
            async with self.changed:
                try:
                    async with asyncio.timeout(left):
                        await self.changed.wait()
                except TimeoutError:
                    break
        if subscriber:
            self.verdicts.handed_out(seen)
        return self.verdicts.after(seen)

    async def wake(self) -> None:
        """Answer now whoever waits for verdicts."""
        self.wakes += 1
        await self._notify()

    async def count(self) -> int:
        """How many verdicts there have been."""
        await self.opened.wait()
        return self.verdicts.count

    async def unjudged(self) -> int:
        """How many snapshots have come and are not evaluated yet."""
        return self.arrivals.received - self.evaluated

    async def glances_after(self, origin: str, place: int) -> dict[str, Any]:
        """The history, if there is one; of which origin glances are; what was counted; the glances behind that place."""
        found = self.glances
        return {
            "history": self.history,
            "origin": found.origin,
            "totals": found.totals,
            "last": found.last,
            "glances": found.after(origin, place),
        }

    async def drain(self, timeout: float) -> RaySnapshotError | None:
        """Wait until all that was received is evaluated, and commit it; returns what went wrong with the history."""
        deadline = time.monotonic() + timeout
        while self.evaluated < self.arrivals.received and time.monotonic() < deadline:
            await asyncio.sleep(0.01)
        if self.writer is not None:
            await self.loop.run_in_executor(self.second, self._commit)
        return self.trouble

    async def watched(self) -> None:
        """Never answers: a process that waits for it hears at once that this one is gone."""
        await asyncio.get_running_loop().create_future()


def _come_second() -> None:
    """In a thread, where each has a niceness of its own: elsewhere than with Linux the whole process would come second."""
    if sys.platform == "linux":
        os.nice(LIMITS.analyst_niceness)


def _warm_up(detectors: Iterable[Any], machines: int | None = None) -> None:
    """Load now, in the background, what the first evaluation would load: that may take seconds where all cores are busy.

    `machines`: what one of so many would load.
    """
    for item in detectors:
        with suppress(Exception):  # it will fail again when it evaluates, and is heard there
            if machines is None:
                getattr(item, "warm_up", lambda: None)()
            else:
                getattr(item, "warm_up_for", lambda _: None)(machines)


def _loaded(pickled: bytes) -> Any:
    try:
        return cloudpickle.loads(pickled)
    except BaseException as error:  # a module of the user's may end its process, sys.exit(), when it is imported
        raise DetectorError(
            f"a detector cannot be loaded where detectors are evaluated ({type(error).__name__}: {first_line(error)}):"
            " its module must be importable there",
            detector=None,
        ) from None


def _portable(verdict: Verdict) -> Verdict:
    """The verdict as it can travel: evidence that cannot be pickled becomes what a history would hold of it."""
    try:
        cloudpickle.dumps(verdict)
    except Exception:  # whatever a detector put into it
        return verdict.model_copy(update={"evidence": json.loads(to_json(verdict.evidence).text)})
    return verdict


def _failed(item: Detector, snapshot: Snapshot, error: BaseException) -> Verdict:
    from ray_snapshot.verdicts import Verdict

    text = f"{type(error).__name__}: {text_of(error)}"
    return Verdict(
        detector=item.name,
        evidence={"error": text},
        sentence=f"Detector {item.name} failed: {text}.",
        snapshot_id=snapshot.snapshot_id,
        run_id=snapshot.run_id,
        detector_spec=getattr(item, "spec", None),
    )


AnalystActor = ray.remote(Analyst)
