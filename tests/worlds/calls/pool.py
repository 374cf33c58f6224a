"""Workers that run plain tasks, and what Ray does with these: it chooses the worker, runs them again, says when they are over.

A worker is a machine of a world of calls that takes part from its first task on until it idles. Imports the standard library
only; read `world` next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from ray_snapshot.protocol.calls import CallLedger, Header
from ray_snapshot.protocol.tasks import call_of_task, is_task, is_worker, task_name, worker_name
from worlds.calls.actors import Alive, Run, Travelling
from worlds.calls.carrying import Carrying
from worlds.calls.central import CallCentral, Step
from worlds.calls.nodes import Nodes
from worlds.calls.oracle import Log
from worlds.calls.programs import Kind, Program, Start
from worlds.calls.reports import name_of

_T = TypeVar("_T")

MOST_RUNS = 2
"""How often a task is run that is run again."""


class TaskWorld(Protocol):
    """The world that workers live in."""

    alive: dict[str, Alive]
    log: Log
    ray: Carrying
    central: CallCentral
    control: list[Step]
    nodes: Nodes

    def be_born(self, name: str, kind: str, incarnation: int, colour: int, is_starting: bool) -> None: ...

    def record(self, name: str) -> str: ...

    def send_final(self, name: str) -> None: ...


@dataclass
class Pool:
    """The workers of one world; at most `size` that do not wait live at once."""

    world: TaskWorld
    functions: Mapping[str, Program]
    size: int = 2
    started: int = 0
    born: int = 0
    runs: dict[str, int] = field(default_factory=dict)
    """By task, how often it was begun."""
    asking: set[str] = field(default_factory=set)
    """Senders whose question is on its way."""

    @property
    def kind(self) -> Kind:
        """What workers are: one task at a time."""
        return Kind(self.functions)

    def workers(self) -> Iterator[tuple[str, Alive]]:
        """Those that live."""
        return ((name, one) for name, one in self.world.alive.items() if is_worker(name))

    # ---- which steps there are ------------------------------------------------------------------------------------

    def enabled(self) -> Iterator[Step]:
        """What Ray, or a worker's or sender's own thread, may do next."""
        world = self.world
        workers = dict(self.workers())
        idle = [name for name, one in workers.items() if not one.runs]
        busy = [one for one in workers.values() if all(run.wait_id is None for run in one.runs.values())]
        nodes, may_start = world.nodes, len(busy) < self.size  # one that waits gives its place back
        for index, call in enumerate(world.ray.network):
            if is_task(call.target) and world.ray.has_all(call.needs):
                places = [name for name in idle if nodes.fits(nodes.places[name], call.demand)]
                places += nodes.fitting(call.demand) if may_start else []
                yield from (("run", index, place) for place in places)
        for name in idle:
            if is_at_rest(workers[name].ledger):
                yield ("retire", name)
        for name, one in world.alive.items():
            if name not in self.asking and self._over(one.ledger):
                yield ("prune", name)

    def _over(self, ledger: CallLedger) -> tuple[str, ...]:
        """The tasks of which Ray says to their sender that they are over."""
        return tuple(task for task in ledger.tasks.older_than(1.0) if call_of_task(task) in self.world.ray.replies)

    # ---- what senders and workers do ------------------------------------------------------------------------------

    def start(self, name: str, machine: Alive, run: Run, step: Start) -> None:
        """A machine sends a task: with its colour only while others may be white."""
        needs = tuple(run.refs[index] for index in step.needs)
        gives = tuple(run.refs[index] for index in step.gives)
        ledger = machine.ledger
        self.started += 1
        task = task_name(step.function, str(self.started))
        header = Header(name, ledger.incarnation, 0, ledger.colour if ledger.is_ahead else 0, 0, step.is_retried)
        ledger.start_task(step.function, task, None, 0.0, is_retried=step.is_retried, needs=needs, demand=step.demand)
        call = Travelling(tuple(header), task, step.function, needs, gives, demand=step.demand)
        run.refs.append(call_of_task(task))
        self.world.log.add(name, "submit", name_of(call_of_task(task)), is_retried=step.is_retried)
        self.world.ray.network.append(call)

    def run(self, index: int, place: str) -> str:
        """A worker begins a task; a fresh one, if `place` is a node."""
        world = self.world
        call = world.ray.network.pop(index)
        colour = max([call.header[3], *(world.ray.replies[one] for one in call.needs)])
        if place in world.nodes.amounts:
            self.born += 1
            node, place = place, worker_name(f"w{self.born}", 1)
            world.be_born(place, "", 0, colour, False)
        else:
            node = world.nodes.places[place]
        world.nodes.take(place, node, call.demand)
        machine = world.alive[place]
        if machine.ledger.hear(colour):
            world.record(place)
        call_id = machine.ledger.accept_task(call.target, call.method, 0.0, colour=colour)
        self.runs[call.target] = self.runs.get(call.target, 0) + 1
        if self.runs[call.target] > 1:
            world.log.fault()
        world.log.add(place, "accept", name_of(call_id))
        for one in call.gives:
            machine.ledger.may_read(name_of(one)[2])
        machine.begin(call, call_id)
        return f"{place} begins {call.target}"

    def finish(self, name: str, machine: Alive, run: Run, *, is_error: bool) -> str:
        """A task ends; Ray may run it again."""
        world = self.world
        call = machine.travelled.pop(run.call_id)
        world.nodes.give_back(name)
        ledger = machine.ledger
        colour = ledger.finish_task(str(run.call_id), 0.0, is_error=is_error)
        if is_error and call.header[5] and self.runs[call.target] < MOST_RUNS:
            world.log.add(name, "again", name_of(str(run.call_id)))
            world.ray.network.append(call)
            return f"{call.target} raises, and is run again"
        world.log.add(name, "finish", name_of(str(run.call_id)))
        if is_error:
            world.log.raised.add(name_of(str(run.call_id)))
        carried = colour if ledger.is_ahead and colour > call.header[3] else 0
        world.ray.replies.setdefault(str(run.call_id), carried)
        return f"{call.target} ends"

    def retire(self, name: str) -> str:
        """An idle worker takes part no more; what it still owes is sent, and its final counts behind it."""
        self.world.send_final(name)
        return f"{name} idles"

    def prune(self, name: str) -> str:
        """A sender looks which tasks are over, and asks how red a worker could have been."""
        over = self._over(self.world.alive[name].ledger)
        self.asking.add(name)
        self.world.control.append(("ask", name, over))
        return f"{name}: {', '.join(over)}"

    def asked(self, name: str, over: tuple[str, ...]) -> None:
        """The coordinator tells the highest number that was given out."""
        self.world.control.append(("over", name, over, self.world.central.coordinator.last))

    def told(self, name: str, over: tuple[str, ...], colour: int) -> None:
        """The sender is told."""
        self.asking.discard(name)
        if name in self.world.alive:
            ledger = self.world.alive[name].ledger
            self.noting_drops(name, lambda: ledger.tasks_are_over(over, colour))

    def noting_drops(self, name: str, step: Callable[[], _T]) -> _T:
        """Take a step of a ledger, and note which tasks it drops from its log that have failed by no fault of their own."""
        before = self._logged(name)
        done = step()
        for task in before - self._logged(name):
            call = name_of(call_of_task(task))
            if call in self.world.log.failed:
                self.world.log.add(name, "settle", call)
        return done

    def _logged(self, name: str) -> set[str]:
        return {task for one in self.world.alive[name].ledger.tasks.report() for task in one.log}

    # ---- what goes wrong ------------------------------------------------------------------------------------------

    def can_lose(self, call: Travelling) -> bool:
        """Whether this is a task that was never begun."""
        return is_task(call.target) and not self.runs.get(call.target)

    def lose(self, index: int) -> str:
        """A task fails before a worker begins it: its argument failed, or it was cancelled."""
        call = self.world.ray.network.pop(index)
        self.world.log.fault()
        self.world.ray.orphan(call.call_id)
        return call.target

    def worker_died(self, machine: Alive) -> None:
        """What it ran fails, or runs again."""
        for call in machine.travelled.values():
            if call.header[5] and self.runs[call.target] < MOST_RUNS:
                self.world.ray.network.append(call)
            else:
                self.world.ray.orphan(call.call_id)


def is_at_rest(ledger: CallLedger) -> bool:
    """Whether a worker may take part no more: it has nothing to do, and all that it has sent has come."""
    return not (ledger.running or ledger.waits or ledger.tasks or any(one.log for one in ledger.outputs.values()))
