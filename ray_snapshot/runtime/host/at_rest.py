"""What a host's snapshots show of its machines at rest: it sees to their rows as recordings become whole.

The core says which machines rest, under the lock; their rows are patched in the thread that makes reports (`resting`).
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

from ray_snapshot import redaction
from ray_snapshot.errors import RaySnapshotError
from ray_snapshot.protocol.host import HostCore, Machine, Recording
from ray_snapshot.protocol.parts import RESTING, GroupCopy, MachineCopy
from ray_snapshot.runtime.faults import as_error
from ray_snapshot.runtime.host.resting import Packing, RestingRows
from ray_snapshot.runtime.host.unchanged import Unchanged
from ray_snapshot.runtime.report import BodyCopy, Resting
from ray_snapshot.runtime.transport.membership import Membership

STREAMED = 20_000
"""So many copies of machines that were put to rest are written together: they take ten times the room of their rows."""


class AtRest:
    """Of one host, in one generation. Methods are called under the lock, but where they say otherwise."""

    def __init__(
        self,
        member: Membership,
        core: HostCore,
        unchanged: Unchanged,
        reports: ThreadPoolExecutor,
    ) -> None:
        """`reports`: the thread that makes them."""
        self.member = member
        self.core = core
        self.copying = core.copying
        self.unchanged = unchanged
        self.reports = reports
        self.rows = RestingRows(member.host)
        self.packing = Packing(member.host)
        self.shown: dict[int, Future[dict[int, Resting]]] = {}
        """By snapshot of which all machines have been copied."""
        self.writes: deque[Future[None]] = deque()
        """What `stream` has begun, and may not be over."""
        self.version = redaction.version
        """The version of `redaction` when the rows were written."""
        self.building_s = 0.0
        """Processor time that the thread of reports has taken for this, not told yet."""

    def may_rest(self, machine: Machine, copy: BodyCopy) -> bool:
        """Whether a machine that has just been copied, and that nothing waits for, is to be put to rest."""
        return self.rows.has_room and self.unchanged.rests(machine, copy)

    def before_turning(self) -> None:
        """The host turns red next: what was written before more names were redacted holds no more."""
        if self._is_more_redacted():
            if self.copying.uncopied:  # a recording that is not whole yet will show these
                self._copy_again()
            self.copying.wake_all()

    def stream(self) -> None:
        """Some machines have been copied: write the rows of those that were put to rest, if they are many, and drop the copies.

        Each belongs to all recordings that are not whole yet, and to none that is.
        """
        if self.copying.rested_count >= STREAMED and not self.member.is_retired:
            self.writes.append(self.reports.submit(self._write, self.copying.take_rested()))

    @property
    def is_behind(self) -> bool:
        """Whether copies stand in line to be written: no machine is copied meanwhile but for its own next action."""
        while self.writes and self.writes[0].done():
            self.writes.popleft()
        return len(self.writes) > 1

    def whole(self) -> None:
        """All machines that were awake have been copied: see to the rows of the others, of each recording."""
        if self.copying.is_lasting is None or self.member.is_retired:
            return
        whole = {
            number: recording
            for number, recording in self.core.open.items()
            if recording.is_copied and recording.has_resting and number not in self.shown
        }
        if self._is_more_redacted():  # since others were copied
            self._copy_again()
        rested = self.copying.take_rested()
        if whole or rested:
            found = self.reports.submit(self._show, whole, rested, [*self.copying.awake])
            self.shown.update(dict.fromkeys(whole, found))

    def of(self, number: int) -> Resting | None:
        """What a report shows of machines at rest; None where there can be none. For whoever makes the report."""
        found = self.shown.get(number)
        return None if found is None else found.result()[number]

    def forget(self, number: int) -> None:
        """A snapshot is over."""
        self.shown.pop(number, None)

    def _fail(self, error: RaySnapshotError) -> None:
        with self.member.lock:
            self.member.fail(error)

    def _is_more_redacted(self) -> bool:
        """Whether more is redacted than when this was last asked."""
        before, self.version = self.version, redaction.version
        return self.version != before

    def _copy_again(self) -> None:
        """Write the rows of machines at rest anew: what they are, they were at each instant since they rest.

        In the order of all that are put to rest: if one of them is again before the rows are written, its last copy is shown.
        """
        resting = [machine for machine in self.core.machines.values() if machine.copied is RESTING]
        again = [self.copying.copy_again(machine, 0) for machine in resting]
        self.copying.rested += again
        self.copying.rested_count += len(again)

    def _show(
        self,
        whole: Mapping[int, Recording],
        rested: Sequence[MachineCopy | GroupCopy],
        awake: Sequence[str],
    ) -> dict[int, Resting]:
        """What was at rest in each recording, beside the machines that were copied for it; in the thread of reports."""
        with self._writing():
            self.rows.take(rested)
            found = {number: self.rows.beside(recording.names) for number, recording in whole.items()}
            self.rows.forget(awake)
            return found

    def _write(self, rested: Sequence[MachineCopy | GroupCopy]) -> None:
        with self._writing():
            self.rows.take(rested)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        began = time.thread_time()
        try:
            yield
        except Exception as error:  # the core believes that there are rows: nobody may go on without them
            self._fail(as_error(error))
            raise
        self.building_s += time.thread_time() - began
