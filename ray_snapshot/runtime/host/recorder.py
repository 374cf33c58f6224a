"""How a host turns red, and reports what it has recorded.

A snapshot is recorded by the thread that holds the floor, at the boundary between two actions, or for it by the event loop
where it has nothing to do; machines are copied between actions. A guard on the event loop steps in where an action is long: it
copies the other machines, and past half the snapshot's timeout it turns the host red in the middle of the action, without a
copy of that machine's state.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from ray.exceptions import RayActorError, RayTaskError

from ray_snapshot.parts.reporting import Late, taken
from ray_snapshot.protocol.barrier_host import BarrierCore
from ray_snapshot.protocol.host import Creation, HostCore, Recording
from ray_snapshot.runtime.checkpointing import late_section, section_of
from ray_snapshot.runtime.classes import ClassStore
from ray_snapshot.runtime.collected import HostPayload, MachineCalls
from ray_snapshot.runtime.faults import as_error, in_a_line
from ray_snapshot.runtime.host.abroad import Abroad
from ray_snapshot.runtime.host.at_rest import AtRest
from ray_snapshot.runtime.host.config import HostConfig
from ray_snapshot.runtime.host.floor import Floor
from ray_snapshot.runtime.host.meter import Meter
from ray_snapshot.runtime.host.notices import Notices
from ray_snapshot.runtime.host.one_thread import OneThread
from ray_snapshot.runtime.host.stage import Stage
from ray_snapshot.runtime.host.turns import TURNS
from ray_snapshot.runtime.host.unchanged import Unchanged
from ray_snapshot.runtime.pieces import PIECE, bytes_of
from ray_snapshot.runtime.report import Facts, Standing, host_payload, is_at_rest, late_payload
from ray_snapshot.runtime.transport.carrier import Carrier
from ray_snapshot.runtime.transport.membership import Membership
from ray_snapshot.runtime.transport.trace_shipping import TraceShipping

COPY_SLICE_S = 0.001
"""How long machines are copied in one go between two actions."""

BREATH_S = 0.00005
"""How long an idle host lets others have its lock between two slices: whoever waits for it gets it at once."""

BEHIND_S = 0.005
"""The same, while machines are copied faster than rows are written."""

COPIED_TOGETHER = 128
"""So many small states have their texts made at once, in some 0.2 ms."""


MARKERS_S = 0.005
"""How long a report waits for the last markers, so that it holds all white messages and is the only one."""

BUSY_S = 0.05
"""The same where messages go round: then some are on their way, and without these the snapshot is not complete."""


LATE_S = 0.02
"""How long white messages behind a report are gathered while markers are missing."""


LINK_BYTES = 100
"""What the counts of a link take in a report, or less."""


GUARD_S = 0.02
"""How often the guard looks, while a snapshot is open."""


class Recorder:
    """The recorder of one host, in one generation. Methods are called under the lock, but for coroutines, and where
    they say otherwise."""

    def __init__(
        self,
        config: HostConfig,
        member: Membership,
        core: HostCore,
        stage: Stage,
        floor: Floor,
        carrier: Carrier,
        trace: TraceShipping,
        classes: ClassStore,
        notices: Notices,
        unchanged: Unchanged,
        meter: Meter,
    ) -> None:
        self.config = config
        self.member = member
        self.core = core
        self.stage = stage
        self.floor = floor
        self.carrier = carrier
        self.trace = trace
        self.classes = classes
        self.notices = notices
        self.meter = meter
        """Of turning red and copying, since the last report."""
        self.recorded_at: dict[int, float] = {number: time.time() for number in config.open_at_birth}
        self.reported: set[int] = set()
        self.overdue: set[int] = set()
        """Snapshots that this host must record now, in the middle of an action if need be."""
        self.is_guarding = False
        self.abroad: Abroad | None = None
        self.pool = OneThread("ray-snapshot-report")
        """Reports are built here, one after the other."""
        self.standing = Standing()
        self.answers: dict[int, asyncio.Future[HostPayload | None]] = {}
        """By number: what the service is answered that has asked for a snapshot."""
        self.at_rest = AtRest(member, core, unchanged, self.pool, config.audit, config.keep_from, config.own_from)

    # ---- recording ------------------------------------------------------------------------------------------------

    def record(self) -> None:
        """Turn red, at a boundary."""
        with self.meter:
            self.at_rest.before_turning()
            numbers = self.core.boundary()
            if numbers:
                self.at_rest.turned(numbers[-1])
            if self.abroad is not None:
                self.abroad.recorded(number for number in numbers if number in self.core.open)
            now = time.time()
            for number in numbers:
                if number in self.core.open:
                    self.recorded_at[number] = now
            self.carrier.flush()
            self.guard_soon()
            if not self.core.copying.uncopied:
                self._report_what_is_copied()

    def record_if_idle(self) -> bool:
        """Turn red at once, if the thread that acts has nothing to do: that is a boundary, and to wake it takes longer.

        Returns whether all is done; machines that are awake that thread must copy.
        """
        if not (self.core.must_record and self.floor.is_idle) or self.at_rest.audit or self.abroad is not None:
            return False
        try:
            self.record()
        except Exception as error:  # a fault of ours; the system must not go on half
            self.member.fail(as_error(error))
            return False
        return not self.core.copying.uncopied

    def record_without_boundary(self) -> None:
        """Turn red in the middle of an action: that machine is recorded as active, without a state."""
        action = self.stage.performing
        self.stage.forced = None if action is None else action.machine
        self.record()
        if self.stage.forced is not None:
            self.core._copy_if_due(self.stage.forced)
        self.core.acting, self.stage.forced = self.stage.forced, None
        self.carrier.flush()  # its barriers must not wait for the end of the action
        if not self.core.copying.uncopied:
            self._report_what_is_copied()

    def copy_slice(self) -> None:
        """Copy machines for a moment; the rest when the next action is over."""
        if self.at_rest.is_behind:
            return
        until = time.perf_counter() + COPY_SLICE_S
        with self.meter:
            while self.core.copy_next(COPIED_TOGETHER):
                self.at_rest.stream()
                if time.perf_counter() > until:
                    return
            self._report_what_is_copied()

    @property
    def pause_s(self) -> float:
        """How long a host that has nothing else to do waits between two slices, so that others come in."""
        return BEHIND_S if self.at_rest.is_behind else BREATH_S

    def _report_what_is_copied(self) -> None:
        self.core.copy_next()
        self.at_rest.whole()
        for number, recording in self.core.open.items():
            if recording.is_copied and number not in self.reported:
                self.member.loop.call_soon_threadsafe(self._report_soon, recording)

    def _report_soon(self, recording: Recording) -> None:
        """Report what is copied; with what is late, if the markers come soon (a second report costs more than the wait)."""
        with self.member.lock:
            if recording.has_markers:
                self._report_now(recording)
            else:
                self.member.loop.call_later(MARKERS_S, self._report_unless_busy, recording)

    def _report_unless_busy(self, recording: Recording) -> None:
        with self.member.lock:
            if self.core.protocol.has_markers and (recording.late or self.core.runnable):
                self.member.loop.call_later(BUSY_S, self._report_now, recording)
            else:
                self._report_now(recording)

    def report_if_born_red(self, number: int) -> None:
        """A host that was born red has nothing to record: it says so at once."""
        recording = self.core.open.get(number)
        if recording is not None and recording.is_copied:
            self._report_now(recording)

    def _report_now(self, recording: Recording) -> None:
        with self.member.lock:
            if recording.number in self.reported or recording.number not in self.core.open:
                return
            self.reported.add(recording.number)
            calls = None if self.abroad is None else self.abroad.part(recording.number)
            self.member.start(self._send(host_payload, recording, *taken(recording), calls))

    def report_late(self) -> None:
        """Report what can be reported by now: a recording whose markers are there, or white messages that came after
        the report.

        On the event loop, under the lock."""
        for recording in self.core.open.values():
            if not recording.is_copied:
                continue
            if recording.number not in self.reported:
                if recording.has_markers:
                    self._report_now(recording)
            elif recording.late or recording.late_creations:
                if recording.has_markers:
                    self._report_rest(recording)
                else:
                    self.member.loop.call_later(LATE_S, self._report_rest, recording)

    def _report_rest(self, recording: Recording) -> None:
        with self.member.lock:
            late, creations = taken(recording)
            if late or creations:
                self.member.start(self._send(late_payload, recording, late, creations))

    async def _send(
        self,
        build: Any,
        recording: Recording,
        late: Sequence[Late],
        creations: Sequence[Creation],
        calls: MachineCalls | None = None,
    ) -> None:
        number, is_first = recording.number, build is host_payload
        try:
            payload = self._payload_at_once(build, recording, late, creations)
            if payload is None:
                payload = await self.member.loop.run_in_executor(
                    self.pool, self._timed_payload, build, recording, late, creations
                )
            if calls is not None:
                payload = replace(payload, calls=calls)
            with self.member.lock:
                if is_first and number not in self.core.open:  # given up meanwhile: none is complete without this
                    self._let_go(number)
                    return
            if self._is_over or (is_first and self._has_answered(payload)):
                return
            await self.trace.report(payload, self.pool)
        except (RayActorError, RayTaskError):  # the service is gone, or is wrong
            raise
        except Exception as error:  # Arrow, no memory, a full store: the snapshot cannot be had, and the system goes on
            if is_first:
                with self.member.lock:
                    self._let_go(number)
            if not self._is_over:
                self.member.service.give_up.remote(number, self.member.host, in_a_line(error))
        finally:
            if is_first:
                self._answer(number, None)

    async def answer(self, number: int) -> HostPayload | None:
        """The report of a snapshot that has just been asked for, if it is to be the answer; on the event loop."""
        with self.member.lock:
            self._answer(number, None)
            is_past = number in self.reported or number in self.core.closed
            if is_past or self._is_over or self.member.is_closing or self.member.failure is not None:
                return None
            found: asyncio.Future[HostPayload | None] = self.member.loop.create_future()
            self.answers[number] = found
        return await found

    def answer_nobody(self) -> None:
        """No report is an answer any more; on the event loop."""
        for number in [*self.answers]:
            self._answer(number, None)

    def _has_answered(self, payload: HostPayload) -> bool:
        """Whether a report could be the answer: an answer that is large goes through the object store."""
        counts: Any = payload.counts  # of a host's first report
        links = len(counts.sent) + len(counts.accepted) + len(counts.in_flight)
        is_small = bytes_of(payload) + LINK_BYTES * links <= PIECE
        return (
            is_small and self.trace.tracer is None and payload.calls is None and self._answer(payload.number, payload)
        )

    def _answer(self, number: int, payload: HostPayload | None) -> bool:
        found = self.answers.pop(number, None)
        if found is None or found.done():
            return False
        found.set_result(payload)
        return True

    @property
    def _is_over(self) -> bool:
        return self.stage.is_broken or self.member.is_retired

    def _let_go(self, number: int) -> None:
        """What was noted for a snapshot that will never be complete, by now or before."""
        self.notices.forget(number)
        self.at_rest.kept.own.release([number])

    def _payload_at_once(self, build: Any, recording: Recording, late: Any, creations: Any) -> HostPayload | None:
        """The payload, if the last one stands; None if it must be made. To hand it to the thread of reports takes longer."""
        with self.member.lock:
            stands = (
                build is host_payload
                and is_at_rest(recording)
                and not (late or creations or self.config.checkpoint)
                and self.at_rest.shows(recording.number, self.standing.resting)
                and self.pool.is_idle
            )
            return self._timed_payload(build, recording, late, creations) if stands else None

    def _timed_payload(self, *given: Any) -> HostPayload:
        """A payload, with the processor time of all that was done for it and not told yet; in the thread of reports, or while
        it is idle under the lock."""
        began = time.thread_time()
        with TURNS.brisk():
            found = self._payload(*given)
        with self.member.lock:
            copying_s = self.meter.take()
        building_s, self.at_rest.building_s = self.at_rest.building_s + self.at_rest.kept.spent(), 0.0
        return replace(found, cpu_s=copying_s + building_s + time.thread_time() - began)

    def _payload(
        self, build: Any, recording: Recording, late: Sequence[Late], creations: Sequence[Creation]
    ) -> HostPayload:
        at = self.recorded_at.get(recording.number, time.time())
        facts = Facts(at, recording.marker_count)
        found: HostPayload
        resting = self.at_rest.of(recording.number) if build is host_payload else None
        if resting is not None:
            build = partial(host_payload, resting=resting, keep=self.at_rest.kept.keep, standing=self.standing)
        if not self.config.checkpoint:
            found = build(self.member.host, recording, facts, late, creations)
            return found
        is_whole = build is not late_payload
        if is_whole:
            saved = None if resting is None or resting.saved is None else resting.saved.table()
            section = section_of(self.member.host, recording, at, self.classes.blobs, late, creations, saved)
        else:
            section = late_section(self.member.host, at, late, creations)
        facts = replace(facts, obstacles=section.obstacles)
        found = build(self.member.host, recording, facts, late, creations)
        listens = is_whole and self.notices.note(recording, self.core.machines)
        return replace(found, checkpoint=section.dumps(), listens=listens)

    # ---- the guard ------------------------------------------------------------------------------------------------

    def hurry(self, number: int) -> None:
        """Half of a snapshot's time is over: record it now."""
        self.overdue.add(number)
        if isinstance(self.core, BarrierCore) and number in self.core.open:
            self.core.force(number)
        self.guard_soon()

    def bound_alignment(self, number: int) -> None:
        """Bound the patience with inputs whose barriers do not come, from when this host has heard of the number."""
        if self.config.alignment_timeout is not None:
            self.member.later(self.config.alignment_timeout, self._turn_unaligned, number)

    def _turn_unaligned(self, number: int) -> None:
        with self.member.lock:
            if isinstance(self.core, BarrierCore) and number in self.core.open:
                self.core.force(number)
                self.guard_soon()
                self.floor.wake()

    def guard_soon(self) -> None:
        """See to it that the guard looks, as long as something is to be recorded or copied."""
        if not self.is_guarding:
            self.is_guarding = True
            self.member.start_soon(self._guard())

    async def _guard(self) -> None:
        """While a snapshot is open here: help where an action is long."""
        while not self.member.is_closing:
            await asyncio.sleep(GUARD_S)
            with self.member.lock:
                if not self.core.must_record and not self.core.copying.uncopied:
                    self.is_guarding = False
                    return
                is_making = self.abroad is not None and self.abroad.is_making
                if self.core.must_record and self._is_overdue() and not is_making:
                    self.record_without_boundary()
                if self.core.copying.uncopied and self.stage.performing is not None:
                    self.copy_slice()
                    self.carrier.flush()

    def _is_overdue(self) -> bool:
        return any(not self.core.is_recorded(number) for number in self.overdue)

    def shut_down(self) -> None:
        """No report is made any more, and no row asked for."""
        self.answer_nobody()
        self.pool.shutdown(wait=False)
        self.at_rest.kept.pool.shutdown(wait=False)
        self.at_rest.kept.own.pool.shutdown(wait=False)

    def forget(self, number: int) -> None:
        """A snapshot is over."""
        self._answer(number, None)
        self.recorded_at.pop(number, None)
        self.at_rest.forget(number)
        if self.abroad is not None:
            self.abroad.forget(number)
        self.reported.discard(number)
        self.overdue.discard(number)
