"""Streaming generators: which of them Ray holds at a `yield`, and who alone can let them go on.

With a bound (`Stream.at_most`) Ray resumes a generator only when fewer of its items lie untaken. Who takes them is the machine
that has made the call, for Ray lets nobody pass the generator of refs on. So, in a cut,

- it is held if it stands at a `yield`, its caller has the generator, and *yielded - taken >= at most*, each count as of its
  machine's own instant. What it waits for is an action of its caller: to take an item, or to drop the generator;
- it goes on by itself if its caller has dropped it, or fewer lie there;
- where the caller, its count or the bound is not known, one that has stood there for long may be held.

A count that is redder than the cut on one side does no harm: whoever took an item in red was able to act, and then nothing
here counts as held for good. A generator that the caller has dropped may lie in its garbage: unless that was collected while
nothing acted there, it may go on. Imports the standard library only; read `call_messages` first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from ray_snapshot.names import DRIVER
from ray_snapshot.protocol.call_messages import NO_BOUND, NOT_KNOWN, CallWait, MachineReport, RunningCall
from ray_snapshot.protocol.task_collector import TasksOfCut, parsed_target
from ray_snapshot.protocol.tasks import is_task, is_worker


@dataclass(frozen=True, slots=True)
class Readers:
    """Who can let a generator go on that stands at a `yield`."""

    machines: tuple[str, ...]
    """Any action of one of them may do it."""
    is_certain: bool
    """Whether nothing else can."""
    unclean: str | None = None
    """The process in whose garbage the generator may lie, if that is to be collected."""


_UNTOLD = Readers((), is_certain=False)


class StreamsOfCut:
    """The generators of one cut that stand at a `yield`."""

    def __init__(self, told: Iterable[MachineReport], tasks: TasksOfCut) -> None:
        """`told`: the reports as they came, of workers with the tasks that they run."""
        self.told = {report.machine: report for report in told}
        self.runs = tasks.running
        self.starter_of = {
            task: report.machine for report in self.told.values() for one in report.tasks for task in one.log
        }
        self.is_still = True
        """Whether no machine acts but, perhaps, those that stand at a `yield`."""
        self.readers: dict[tuple[str, int], Readers] = {}
        """Of those that may be held, by machine and wait."""

    def told_apart(self, reports: Mapping[str, MachineReport]) -> dict[str, MachineReport]:
        """The reports by machine, with generators that go on by themselves as active."""
        self.is_still = all(report.status != "active" for report in reports.values())
        return {name: self._told_apart(report) for name, report in reports.items()}

    def _told_apart(self, report: MachineReport) -> MachineReport:
        at_yield = [wait for wait in report.waits if wait.at_yield]
        if not at_yield:
            return report
        calls = {call.call_id: call for call in report.calls}
        free = set[int]()
        for wait in at_yield:
            readers = self._who_reads(calls[str(wait.call_id)], wait)
            if readers is None:
                free.add(wait.wait_id)
            else:
                self.readers[report.machine, wait.wait_id] = readers
        if not free:
            return report
        return replace(report, status="active", waits=tuple(wait for wait in report.waits if wait.wait_id not in free))

    def _who_reads(self, call: RunningCall, wait: CallWait) -> Readers | None:
        """None: nobody has to act, it goes on by itself."""
        name = call.caller if call.caller is not None else self.starter_of.get(parsed_target(call.call_id))
        reader = None if name is None else self.told.get(name)
        machines = () if reader is None else self._machines(reader)
        if name is None or reader is None or reader.has_left or reader.streams is None or not machines:
            return _UNTOLD if wait.is_long else None
        stream = reader.streams.get(call.call_id.partition("#")[0])
        if stream is None or stream.at_most == NO_BOUND:
            return None
        if stream.at_most == NOT_KNOWN:
            return Readers(machines, is_certain=False) if wait.is_long else None
        if call.yielded - stream.read < stream.at_most:
            return None
        is_clean = reader.held is not None and reader.held.is_clean
        is_sure = not (call.is_repeated or "#" in call.call_id or wait.is_unsure or self._driver_rests())
        may_wait = self.is_still or reader.status == "blocked"
        is_to_collect = wait.is_long and not is_clean and reader.status != "active" and may_wait
        return Readers(machines, is_certain=is_clean and is_sure, unclean=name if is_to_collect else None)

    def _driver_rests(self) -> bool:
        """Whether the program waits for a verdict: whatever that is, it goes on then."""
        driver = self.told.get(DRIVER)
        return driver is not None and driver.status == "passive"

    def _machines(self, reader: MachineReport) -> tuple[str, ...]:
        """The machines that act in a process: of a worker the task that runs there; none where that is not certain."""
        if not is_worker(reader.machine):
            return (reader.machine,)
        found = [task for call in reader.calls if is_task(task := parsed_target(call.call_id))]
        return () if any(self.runs.get(task, 0) > 1 for task in found) else tuple(found)
