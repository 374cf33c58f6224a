"""What the reports of one snapshot say of plain tasks: which run, which are on their way, which are over.

A worker reports the tasks that it runs as calls of its own; here each becomes a machine. Imports the standard library only;
read `tasks` first. `call_collector` joins the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from ray_snapshot.protocol.call_messages import MachineReport, parsed
from ray_snapshot.protocol.tasks import Ended, Task, is_task, is_worker, task_name

ANOTHER_RUN = "~"
"""Behind a task's name: it runs twice, and this is not the first of its machines."""


class TasksOfCut:
    """The tasks of one cut."""

    def __init__(self, reports: Iterable[MachineReport]) -> None:
        every = list(reports)
        self.logged: dict[str, Task] = {}
        self.running: dict[str, int] = {}
        """How many runs of a task last."""
        self.ended: dict[str, bool] = {}
        """Whether the end that a worker tells of is an error."""
        self.outcomes: dict[str, bool] = {}
        for report in every:
            for one in report.tasks:
                self.logged |= one.log
            self._end(report.ended)
            self.outcomes |= report.outcomes
            for call in report.calls:
                if is_task(task := parsed_target(call.call_id)):
                    self.running[task] = self.running.get(task, 0) + 1
        self.on_the_way = {task: one for task, one in self.logged.items() if self._is_on_the_way(task, one)}

    def _end(self, ended: Mapping[str, Ended]) -> None:
        for task, one in ended.items():
            self.ended[task] = one.is_error and self.ended.get(task, True)

    def _is_on_the_way(self, task: str, one: Task) -> bool:
        if task in self.running:
            return False
        return task not in self.ended or (self.ended[task] and one.sent.is_retried)

    @property
    def held(self) -> frozenset[str]:
        """Tasks that are over, and in a log yet."""
        return frozenset(task for task in self.ended if task in self.logged and self.is_answered(task))

    @property
    def unsettled(self) -> frozenset[str]:
        """Tasks that are in a log yet, and that have ended in an error behind which Ray may have run them again, or not."""
        return frozenset(task for task in self.ended if task in self.logged and not self.is_answered(task))

    def is_answered(self, task: str) -> bool:
        """Whether a task that was sent inside the cut has ended there."""
        return not (task in self.running or task in self.on_the_way)

    def is_unsure(self, task: str) -> bool:
        """Whether another run of a task may have answered it already, or its error was that of its last run."""
        return self.running.get(task, 0) > 1 or (task in self.ended and not self.is_answered(task))

    def is_error(self, task: str) -> bool | None:
        """Whether a task that is over ended in an error; None: not known any more."""
        known = self.outcomes.get(task)
        return self.ended.get(task) if known is None else known


def parsed_target(call_id: str) -> str:
    """The machine that runs a call; "" for a call that came without a header."""
    return "" if call_id.startswith("?/") else parsed(call_id).target


def apart(reports: Iterable[MachineReport]) -> dict[str, MachineReport]:
    """The reports by machine: of a worker without the tasks that it runs, and each of these as a machine.

    What the worker has handles of, each of its tasks may use. A task that runs twice is two machines.
    """
    found: dict[str, MachineReport] = {}
    for report in reports:
        for one in _parts(report) if is_worker(report.machine) else (report,):
            name, run = one.machine, 2
            while name in found:
                name, run = f"{one.machine}{ANOTHER_RUN}{run}", run + 1
            found[name] = one if name == one.machine else replace(one, machine=name)
    return found


def _parts(report: MachineReport) -> Iterator[MachineReport]:
    calls = [call for call in report.calls if is_task(parsed_target(call.call_id))]
    of_tasks = {call.call_id for call in calls}
    own = tuple(wait for wait in report.waits if wait.call_id not in of_tasks)
    rest = tuple(call for call in report.calls if call.call_id not in of_tasks)
    status = "stopped" if report.has_left else "active" if own or rest else "passive"
    yield replace(report, calls=rest, waits=own, status=status)
    for call in calls:
        waits = tuple(wait for wait in report.waits if wait.call_id == call.call_id)
        is_blocked = waits and not any(wait.may_act or wait.is_ready for wait in waits)
        yield MachineReport(
            machine=parsed_target(call.call_id),
            incarnation=0,
            number=report.number,
            colour=report.colour,
            was_inside=False,
            status="blocked" if is_blocked else "active",
            calls=(call,),
            waits=waits,
            holds=report.holds,
            reads=report.reads,
            held=report.held,
        )


def group_of(function: str) -> str:
    """The target of a function's tasks that no worker has accepted: Ray chooses one."""
    return task_name(function, "")
