"""When a host reports what it has recorded, in which thread the report is made, and how it is sent.

One complete report is wanted, so it waits a moment for the last markers. It is made in a thread of its own, and is the
answer to the service, if that has asked, or a call.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from ray.exceptions import RayActorError, RayTaskError

from ray_snapshot.limits import LIMITS
from ray_snapshot.parts.reporting import Late, taken
from ray_snapshot.protocol.host import Creation, HostCore, Recording
from ray_snapshot.runtime.checkpointing import late_section, section_of
from ray_snapshot.runtime.classes import ClassStore
from ray_snapshot.runtime.collected import HostPayload, MachineCalls
from ray_snapshot.runtime.faults import in_a_line
from ray_snapshot.runtime.host.abroad import Abroad
from ray_snapshot.runtime.host.at_rest import AtRest
from ray_snapshot.runtime.host.config import HostConfig
from ray_snapshot.runtime.host.meter import Meter
from ray_snapshot.runtime.host.notices import Notices
from ray_snapshot.runtime.host.stage import Stage
from ray_snapshot.runtime.host.turns import TURNS
from ray_snapshot.runtime.report import Facts, host_payload, late_payload
from ray_snapshot.runtime.transport.membership import Membership
from ray_snapshot.runtime.transport.trace_shipping import TraceShipping

LINK_BYTES = 100
"""What the counts of a link take in a report, or less."""


class Answers:
    """Who waits for the report of which snapshot; on the event loop.

    An answer spares a call of Ray's; a large one would go through the object store, so it goes by a call (`_is_small`).
    """

    def __init__(self) -> None:
        self.awaited: dict[int, asyncio.Future[HostPayload | None]] = {}

    def asked(self, number: int) -> asyncio.Future[HostPayload | None]:
        """The service asks for this snapshot; whoever has asked before is answered nothing."""
        self.give(number, None)
        found = self.awaited[number] = asyncio.get_running_loop().create_future()
        return found

    def give(self, number: int, payload: HostPayload | None) -> bool:
        """Answer with this, or with nothing; returns whether somebody waits for it."""
        found = self.awaited.pop(number, None)
        if found is None or found.done():
            return False
        found.set_result(payload)
        return True

    def nothing(self) -> None:
        """No report is an answer any more."""
        for number in [*self.awaited]:
            self.give(number, None)


@dataclass(eq=False)
class Reporter:
    """Of one host, in one generation. Methods are called under the lock, but for coroutines, and where they say otherwise."""

    config: HostConfig
    member: Membership
    core: HostCore
    stage: Stage
    trace: TraceShipping
    classes: ClassStore
    notices: Notices
    at_rest: AtRest
    meter: Meter
    pool: ThreadPoolExecutor
    """The thread that makes reports, one after the other."""
    abroad: Abroad | None = None
    answers: Answers = field(default_factory=Answers)
    reported: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.recorded_at: dict[int, float] = {number: time.time() for number in self.config.open_at_birth}

    # ---- when -----------------------------------------------------------------------------------------------------

    def recorded(self, numbers: Iterable[int]) -> None:
        """The host has turned red for these, now."""
        now = time.time()
        for number in numbers:
            if number in self.core.open:
                self.recorded_at[number] = now

    def copied(self) -> None:
        """All machines have been copied, for whatever is open."""
        for number, recording in self.core.open.items():
            if recording.is_copied and number not in self.reported:
                self.member.loop.call_soon_threadsafe(self._soon, recording)

    def _soon(self, recording: Recording) -> None:
        """Report what is copied; with what is late, if the markers come soon (a second report costs more than the wait)."""
        with self.member.lock:
            if recording.has_markers:
                self._now(recording)
            else:
                self.member.loop.call_later(LIMITS.markers_s, self._unless_busy, recording)

    def _unless_busy(self, recording: Recording) -> None:
        with self.member.lock:
            if self.core.protocol.has_markers and (recording.late or self.core.runnable):
                self.member.loop.call_later(LIMITS.busy_markers_s, self._now, recording)
            else:
                self._now(recording)

    def born_red(self, number: int) -> None:
        """A host that was born red has nothing to record: it says so at once."""
        recording = self.core.open.get(number)
        if recording is not None and recording.is_copied:
            self._now(recording)

    def _now(self, recording: Recording) -> None:
        with self.member.lock:
            if recording.number in self.reported or recording.number not in self.core.open:
                return
            self.reported.add(recording.number)
            calls = None if self.abroad is None else self.abroad.part(recording.number)
            self.member.start(self._send(host_payload, recording, *taken(recording), calls))

    def arrived(self) -> None:
        """Report what can be reported by now: a recording whose markers are there, or white messages that came after
        the report.

        On the event loop."""
        for recording in self.core.open.values():
            if not recording.is_copied:
                continue
            if recording.number not in self.reported:
                if recording.has_markers:
                    self._now(recording)
            elif recording.late or recording.late_creations:
                if recording.has_markers:
                    self._rest(recording)
                else:
                    self.member.loop.call_later(LIMITS.late_messages_s, self._rest, recording)

    def _rest(self, recording: Recording) -> None:
        with self.member.lock:
            late, creations = taken(recording)
            if late or creations:
                self.member.start(self._send(late_payload, recording, late, creations))

    # ---- how it is sent -------------------------------------------------------------------------------------------

    async def answer(self, number: int) -> HostPayload | None:
        """The report of a snapshot that has just been asked for, if it is to be the answer; on the event loop."""
        with self.member.lock:
            self.answers.give(number, None)
            is_past = number in self.reported or number in self.core.closed
            if is_past or self._is_over or self.member.is_closing or self.member.failure is not None:
                return None
            found = self.answers.asked(number)
        return await found

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
            payload = await self.member.loop.run_in_executor(
                self.pool, self._timed_payload, build, recording, late, creations
            )
            if calls is not None:
                payload = replace(payload, calls=calls)
            with self.member.lock:
                if is_first and number not in self.core.open:  # given up meanwhile: none is complete without this
                    self.notices.forget(number)
                    return
            if self._is_over or (is_first and self._has_answered(payload)):
                return
            await self.trace.report(payload, self.pool)
        except (RayActorError, RayTaskError):  # the service is gone, or is wrong
            raise
        except Exception as error:  # Arrow, no memory, a full store: the snapshot cannot be had, and the system goes on
            if is_first:
                with self.member.lock:
                    self.notices.forget(number)
            if not self._is_over:
                self.member.service.give_up.remote(number, self.member.host, in_a_line(error))
        finally:
            if is_first:
                self.answers.give(number, None)

    def _has_answered(self, payload: HostPayload) -> bool:
        is_plain = self.trace.tracer is None and payload.calls is None
        return is_plain and _is_small(payload) and self.answers.give(payload.number, payload)

    @property
    def _is_over(self) -> bool:
        return self.stage.is_broken or self.member.is_retired

    # ---- how it is made -------------------------------------------------------------------------------------------

    def _timed_payload(self, *given: Any) -> HostPayload:
        """A payload, with the processor time of all that was done for it and not told yet; in the thread of reports."""
        began = time.thread_time()
        with TURNS.brisk():
            found = self._payload(*given)
        with self.member.lock:
            copying_s = self.meter.take()
        building_s, self.at_rest.building_s = self.at_rest.building_s, 0.0
        return replace(found, cpu_s=copying_s + building_s + time.thread_time() - began)

    def _payload(
        self, build: Any, recording: Recording, late: Sequence[Late], creations: Sequence[Creation]
    ) -> HostPayload:
        at = self.recorded_at.get(recording.number, time.time())
        facts = Facts(at, recording.marker_count)
        found: HostPayload
        resting = self.at_rest.of(recording.number) if build is host_payload else None
        if resting is not None:
            build = partial(host_payload, resting=resting, pack=self.at_rest.packing.packed)
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

    # ---- the end --------------------------------------------------------------------------------------------------

    def forget(self, number: int) -> None:
        """A snapshot is over."""
        self.answers.give(number, None)
        self.recorded_at.pop(number, None)
        self.reported.discard(number)

    def shut_down(self) -> None:
        """No report is made any more."""
        self.answers.nothing()
        self.pool.shutdown(wait=False)


def _is_small(payload: HostPayload) -> bool:
    """Whether Ray would send a host's first report with the reply, not through the object store."""
    counts: Any = payload.counts
    links = len(counts.sent) + len(counts.accepted) + len(counts.in_flight)
    size = len(payload.part) + len(payload.checkpoint or b"")
    return size + LINK_BYTES * links <= LIMITS.piece_bytes
