"""How the driver turns red, and reports: between two sends, so without a guard and without threads."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from ray_snapshot.names import DRIVER
from ray_snapshot.protocol.host import Recording
from ray_snapshot.runtime.checkpointing import section_of
from ray_snapshot.runtime.collected import HostPayload
from ray_snapshot.runtime.faults import in_a_line
from ray_snapshot.runtime.report import Facts, host_payload, late_payload
from ray_snapshot.runtime.transport.carrier import Carrier
from ray_snapshot.runtime.transport.membership import Membership
from ray_snapshot.runtime.transport.trace_shipping import TraceShipping


class DriverRecorder:
    """Records and reports for one driver; everything here happens under the lock."""

    def __init__(self, member: Membership, carrier: Carrier, trace: TraceShipping, *, checkpoint: bool) -> None:
        self.member = member
        self.carrier = carrier
        self.trace = trace
        self.checkpoint = checkpoint
        self.turn: Callable[[bool], object] = lambda is_forced: self.boundary()  # noqa: ARG005 - a driver is always at one
        """Turns red what is due, with all that this process is; `is_forced`: now, whatever it is in the middle of."""
        self.reported: set[int] = set()
        self.reports: deque[Any] = deque(maxlen=100)
        """References to calls that report a part of the trace; some may not have been answered yet."""

    def record(self, *, is_forced: bool = False) -> None:
        """Turn red if that is due, and report what can be."""
        core = self.carrier.core
        if core.must_record or core.copying.uncopied:
            self.turn(is_forced)
        self._report_open()

    def boundary(self) -> tuple[int, ...]:
        """Turn red, copy, and report; returns the numbers recorded."""
        core = self.carrier.core
        numbers = core.boundary()
        while core.copy_next():
            pass
        self.carrier.flush()
        self._report_open()
        return numbers

    def _report_open(self) -> None:
        core = self.carrier.core
        for number, recording in core.open.items():
            if number not in self.reported and (recording.copies or recording.is_copied):
                self.reported.add(number)
                with self._if_it_can_be(number):
                    self._report(self._payload(recording))
        for number, recording in core.open.items():
            if recording.late:
                late, recording.late = recording.late, []
                with self._if_it_can_be(number):
                    self.member.service.report.remote(late_payload(DRIVER, recording, Facts(0.0, 0), late, ()))

    @contextmanager
    def _if_it_can_be(self, number: int) -> Iterator[None]:
        """If something cannot be reported, for whatever reason, its snapshot cannot be had: the system goes on."""
        try:
            yield
        except Exception as error:  # Arrow, or no memory
            self.member.service.give_up.remote(number, DRIVER, in_a_line(error))

    def _payload(self, recording: Recording) -> HostPayload:
        facts = Facts(time.time(), recording.marker_count)
        if not self.checkpoint:
            return host_payload(DRIVER, recording, facts)
        section = section_of(DRIVER, recording, facts.recorded_at, {}, (), ())
        facts = replace(facts, obstacles=section.obstacles)
        return replace(host_payload(DRIVER, recording, facts), checkpoint=section.dumps())

    def _report(self, payload: HostPayload) -> None:
        tracer = self.trace.tracer
        if tracer is None:
            self.member.service.report.remote(payload)
            return
        entries = tracer.take()
        try:
            payload = replace(payload, trace=tracer.shipped(entries))
            self.reports.append(self.member.service.report.remote(payload))
        except Exception:
            tracer.put_back(entries)
            raise

    def forget(self, number: int) -> None:
        """A snapshot is over."""
        self.reported.discard(number)
