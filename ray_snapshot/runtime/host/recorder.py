"""How a host turns red and copies its machines.

A snapshot is recorded by the thread that holds the floor, at the boundary between two actions, or for it by the event loop
where it has nothing to do; machines are copied between actions. A guard on the event loop steps in where an action is long: it
copies the other machines, and past half the snapshot's timeout it turns the host red in the middle of the action, without a
copy of that machine's state.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

from ray_snapshot.limits import LIMITS
from ray_snapshot.protocol.barrier_host import BarrierCore
from ray_snapshot.protocol.host import HostCore
from ray_snapshot.runtime.faults import as_error
from ray_snapshot.runtime.host.abroad import Abroad
from ray_snapshot.runtime.host.at_rest import AtRest
from ray_snapshot.runtime.host.floor import Floor
from ray_snapshot.runtime.host.meter import Meter
from ray_snapshot.runtime.host.reporter import Reporter
from ray_snapshot.runtime.host.stage import Stage
from ray_snapshot.runtime.transport.carrier import Carrier
from ray_snapshot.runtime.transport.membership import Membership


@dataclass(eq=False)
class Recorder:
    """The recorder of one host, in one generation. Methods are called under the lock, but for coroutines."""

    member: Membership
    core: HostCore
    stage: Stage
    floor: Floor
    carrier: Carrier
    at_rest: AtRest
    reporter: Reporter
    meter: Meter
    """Of turning red and copying, since the last report."""
    alignment_timeout: float | None
    overdue: set[int] = field(default_factory=set)
    """Snapshots that this host must record now, in the middle of an action if need be."""
    is_guarding: bool = False
    abroad: Abroad | None = None

    # ---- recording ------------------------------------------------------------------------------------------------

    def record(self) -> None:
        """Turn red, at a boundary."""
        with self.meter:
            self.at_rest.before_turning()
            numbers = self.core.boundary()
            if self.abroad is not None:
                self.abroad.recorded(number for number in numbers if number in self.core.open)
            self.reporter.recorded(numbers)
            self.carrier.flush()
            self.guard_soon()
            if not self.core.copying.uncopied:
                self._all_copied()

    def record_if_idle(self) -> bool:
        """Turn red at once, if the thread that acts has nothing to do: that is a boundary, and to wake it takes longer.

        Returns whether all is done; machines that are awake that thread must copy.
        """
        if not (self.core.must_record and self.floor.is_idle) or self.abroad is not None:
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
            self._all_copied()

    def copy_slice(self) -> None:
        """Copy machines for a moment; the rest when the next action is over."""
        if self.at_rest.is_behind:
            return
        until = time.perf_counter() + LIMITS.copy_slice_s
        with self.meter:
            while self.core.copy_next(LIMITS.copied_states):
                self.at_rest.stream()
                if time.perf_counter() > until:
                    return
            self._all_copied()

    @property
    def pause_s(self) -> float:
        """How long a host that has nothing else to do waits between two slices, so that others come in."""
        return LIMITS.copy_ahead_pause_s if self.at_rest.is_behind else LIMITS.copy_pause_s

    def _all_copied(self) -> None:
        self.core.copy_next()
        self.at_rest.whole()
        self.reporter.copied()

    # ---- the guard ------------------------------------------------------------------------------------------------

    def hurry(self, number: int) -> None:
        """Half of a snapshot's time is over: record it now."""
        self.overdue.add(number)
        if isinstance(self.core, BarrierCore) and number in self.core.open:
            self.core.force(number)
        self.guard_soon()

    def bound_alignment(self, number: int) -> None:
        """Bound the patience with inputs whose barriers do not come, from when this host has heard of the number."""
        if self.alignment_timeout is not None:
            self.member.later(self.alignment_timeout, self._turn_unaligned, number)

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
            await asyncio.sleep(LIMITS.guard_look_s)
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

    # ---- the end --------------------------------------------------------------------------------------------------

    def forget(self, number: int) -> None:
        """A snapshot is over."""
        self.reporter.forget(number)
        self.at_rest.forget(number)
        if self.abroad is not None:
            self.abroad.forget(number)
        self.overdue.discard(number)
