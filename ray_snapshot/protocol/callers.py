"""Who may call a machine, drop it, kill it, or cancel what it runs: who has a handle of it or a ref to its reply, or gets one.

A handle travels in calls and in replies: so to each machine that a holder has calls in flight to, and to each that may read a
holder's replies. More than there are is safe: one of them that can move is enough. Imports the standard library only; read
`call_messages` first. `call_collector` asks it of the reports of one cut.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from ray_snapshot.protocol.call_messages import MachineReport
from ray_snapshot.protocol.demands import NOTHING
from ray_snapshot.protocol.task_collector import TasksOfCut
from ray_snapshot.protocol.tasks import is_task, is_worker

if TYPE_CHECKING:
    from ray_snapshot.protocol.call_collector import CallsOf

EVERY = "*"
"""Among the machines of which a worker may have had a handle: all of them."""


class CallersOfCut:
    """The handles and refs of one cut. `idle_holds`: what workers have, or had, that idle: any task may come to use it."""

    def __init__(
        self,
        reports: Mapping[str, MachineReport],
        channels: Collection[CallsOf],
        tasks: TasksOfCut,
        idle_holds: Collection[str],
    ) -> None:
        self.reports = reports
        self.channels = channels
        self.tasks = tasks
        self.idle_holds = idle_holds
        self.holders: dict[str, set[str]] = {}
        """By machine: who has a handle of it."""
        self.getters: dict[str, set[str]] = {}
        """By machine: who may get a handle that it has, by a call that is on its way, or a reply."""
        for channel in channels:
            if channel.in_flight and not is_task(channel.target):
                self.getters.setdefault(channel.source, set()).add(channel.target)
        for name, report in reports.items():
            for other in report.holds:
                self.holders.setdefault(other, set()).add(name)
            for other in report.reads:
                self.getters.setdefault(other, set()).add(name)
        self._gotten: dict[frozenset[str], frozenset[str]] = {}

    def may_call(self, machine: str) -> tuple[str, ...]:
        """The machine itself (a call that runs there, or is on its way), and who has a handle of it, or may yet get one."""
        found = set(self.holders.get(machine, ()))
        if machine in self.idle_holds or EVERY in self.idle_holds:  # whoever starts a task may have it called
            found |= self.reports.keys()
        return tuple(sorted(self._getters_of(frozenset(found)) | {machine, *self._tasks_to_begin()}))

    def of_holders(self) -> dict[str, tuple[str, ...]]:
        """While something waits for room on a node: who may call each actor that holds some of one."""
        demands = {sent.demand for channel in self.channels for sent in channel.in_flight.values()}
        if not demands - {None, NOTHING}:
            return {}
        holders = (name for name, one in self.reports.items() if one.held is not None and one.held.amounts)
        actors = [name for name in holders if not (is_task(name) or is_worker(name))]
        return {name: self.may_call(name) for name in actors}

    def of_blocked(self) -> dict[str, tuple[str, ...]]:
        """Who may end each machine that is blocked: who has a ref to what it runs, or has started that task, may cancel it."""
        blocked = [name for name, report in self.reports.items() if report.status == "blocked"]
        readers: dict[str, set[str]] = {}
        for name, report in self.reports.items():
            for other in (*report.reads, *(task for one in report.tasks for task in one.log)):
                readers.setdefault(other, set()).add(name)
        refs = {name: self._getters_of(frozenset(readers.get(name, ()))) for name in blocked}
        return {name: tuple(sorted({*self.may_call(name), *refs[name]} - {name})) for name in blocked}

    def _getters_of(self, holders: frozenset[str]) -> frozenset[str]:
        """These, and who may get from them what they have. Kept: most machines are held by the same ones."""
        known = self._gotten.get(holders)
        if known is None:
            found, stack = set(holders), list(holders)
            while stack:
                fresh = self.getters.get(stack.pop(), set()) - found
                found |= fresh
                stack += fresh
            # what workers run, and may run, is among them
            known = self._gotten[holders] = frozenset(name for name in found if not is_worker(name))
        return known

    def _tasks_to_begin(self) -> Iterable[str]:
        """Tasks on their way, which may hold whatever their senders do.

        One that waits for no argument stands for all that demand the same of a node; one that demands nothing, for all.
        """
        ready = {one.sent.demand: task for task, one in self.tasks.on_the_way.items() if not one.sent.needs}
        for free in (None, NOTHING):
            if free in ready:
                return (ready[free],)
        rest = (task for task, one in self.tasks.on_the_way.items() if one.sent.demand not in ready)
        return (*ready.values(), *rest)
