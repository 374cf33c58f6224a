"""The watcher of an app: a service whose parties are processes of the app's own; one asynchronous Ray actor.

What it makes of what processes say, `processes` knows. It can be asked the same things as a system's service.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import ray

from ray_snapshot.errors import DeadlockError, RaySnapshotError
from ray_snapshot.instrument.process.reloading import Welcome
from ray_snapshot.instrument.process.reports import ProcessReport
from ray_snapshot.instrument.process.stacks import Stack
from ray_snapshot.instrument.watcher.incidents import Summary
from ray_snapshot.instrument.watcher.processes import Processes
from ray_snapshot.instrument.watcher.questions import Questions
from ray_snapshot.instrument.watcher.recovering import Limits
from ray_snapshot.limits import LIMITS
from ray_snapshot.names import DRIVER, run_of_machines
from ray_snapshot.protocol.calls import Acks, MachineReport
from ray_snapshot.protocol.commands import ProcessCommand, Request
from ray_snapshot.runtime.analyst.inside import AnalystInside
from ray_snapshot.runtime.collected import JoinedSystem
from ray_snapshot.runtime.faults import named, with_place
from ray_snapshot.runtime.service.actor import Service
from ray_snapshot.runtime.service.config import ServiceConfig
from ray_snapshot.runtime.service.course import notice
from ray_snapshot.runtime.service.recovery import Target
from ray_snapshot.stderr import say

NOTHING: Mapping[str, Any] = {}


class Watcher(Service):
    """The watcher's Ray actor; asynchronous, so that any number of processes can wait for their commands at once."""

    def __init__(
        self,
        config: ServiceConfig,
        analyst: Any = None,
        *,
        history: str | None = None,
        paths: tuple[str, ...] = (),
        ready: Iterable[str] = (),
        keeps: bool = False,
        has_hook: bool = False,
        library_states: bool = False,
        limits: Limits | None = None,
        has_beginning: bool = True,
        driver: dict[str, Any] | None = None,
        tells_callers: bool = False,
        raises_inside: bool = False,
    ) -> None:
        """`analyst`: the handle of one; None: it lives in this process, writes `history`, and imports from `paths`, too.
        `limits`: where the app goes back by itself. `driver`: facts of the driver, which then takes part from the start.

        For the others see `Processes`.
        """
        self.processes = Processes(
            ready=ready,
            keeps=keeps,
            has_hook=has_hook,
            library_states=library_states,
            limits=limits,
            has_beginning=has_beginning,
            tells_callers=tells_callers,
            raises_inside=raises_inside,
        )
        self.questions = Questions(self.processes.roster, self.processes.outboxes)
        self.joined: JoinedSystem | None = None
        self.lives = 0
        self.fault: RaySnapshotError | None = None
        """The fault of ours that has ended the watching."""
        self.inside: Any = None
        """The analyst, where it lives in this process."""
        if analyst is None:
            from ray_snapshot.runtime.analyst.actor import Analyst

            self.inside = Analyst(config.system, history, paths)
            sys.setswitchinterval(LIMITS.switch_s)
            analyst = AnalystInside(ray.get_runtime_context().current_actor)
        super().__init__(config, analyst, self.processes)
        if self.inside is not None:
            self.inside.on_fault = self.course.fault
        self.processes.begin(self, lambda: self.joined)
        if driver is not None:
            self.processes.admit(DRIVER, driver)
        self.recovery.abroad = lambda host, plan: self.processes.rolling.dealing().to_host(host, plan)

    # ---- what processes say ---------------------------------------------------------------------------------------

    @notice
    async def join(self, stamp: str, machine: str, facts: dict[str, Any], colour: int) -> Welcome | None:
        """A process joins; see `Processes.join`."""
        if self.fault is not None:
            return None
        return await self.processes.join(stamp, machine, facts, colour)

    async def commands_for(
        self, machine: str, seen: int, recorded: list[ProcessReport]
    ) -> tuple[int, list[ProcessCommand]]:
        """What a process must do, behind the first `seen`, which are forgotten; waits for it. Takes its reports first."""
        for one in recorded:
            await self.recorded(one)
        return await self.processes.outboxes.after(machine, seen)

    @notice
    async def recorded(self, one: ProcessReport) -> None:
        """A machine's part of a snapshot."""
        self.processes.report(one)

    @notice
    async def acknowledge(self, acks: list[Acks]) -> None:
        """Carry acknowledgements to the senders."""
        self.processes.acknowledge(acks)

    @notice
    async def unwatched(self, machine: str) -> None:
        """A process takes part no more."""
        self.processes.unwatched(machine)

    async def condemn(self, number: int, call_id: str, error: DeadlockError) -> tuple[str | None, int] | None:
        """What this call waits for is to end in an error; see `Processes.condemn`.

        And the number of the last snapshot that may show the call as it was. None: snapshot `number` is not at hand any more.
        """
        if number not in self.processes.latest:
            return None
        return self.processes.condemn(number, call_id, error), self.processes.coordinator.last

    async def stacks(self, shown: list[str], with_locals: bool) -> dict[str, list[Stack]]:
        """Where the machines of these names are, as their processes say; see `Questions`."""
        return await self.questions.stacks(shown, with_locals=with_locals)

    @notice
    async def stacks_told(self, question: int, machine: str, told: list[Stack]) -> None:
        """A process says where it is."""
        self.questions.told(question, machine, told)

    @notice
    async def was_at(self, machine: str, method: str, call_site: str) -> None:
        """Where an actor is that is started again and again."""
        self.processes.happened.at[machine] = method, call_site

    @notice
    async def left(self, report: MachineReport) -> None:
        """A process ends, with its final counts."""
        self.processes.left(report)

    # ---- machines of hosts, if a system of them has joined -----------------------------------------------------------

    async def admit_system(self, protocol: str, spawn_timeout: float) -> JoinedSystem:
        """A system of machines joins; there is one at a time."""
        self.course.check()
        rolling = self.processes.rolling
        while rolling.coordinator is not None:
            await asyncio.sleep(LIMITS.recovering_look_s)
        self.lives += 1
        run_id = run_of_machines(self.config.run_id, self.lives)
        self.joined = JoinedSystem(protocol, spawn_timeout, run_id, self.lives, generation=rolling.loaded)
        self.recovery.begin(rolling.loaded)
        self.collecting.protocol = self.directory.protocol = protocol
        for number in self.admit_hosts():
            self.orders.to_driver(Request(number))
        return self.joined

    async def joined_system(self, machine: str) -> JoinedSystem | None:
        """What a process must know to send to machines; None if there are none."""
        self.processes.senders.known.add(machine)
        return None if self.joined is None else replace(self.joined, stopped=tuple(self.processes.stopped_names))

    async def claim(self, *claimed: Any) -> list[str]:
        """Take names for machines; actors that are called so in snapshots get others."""
        names = await super().claim(*claimed)
        self.processes.roster.give_way(names)
        return names

    @notice
    async def stopped(self, names: list[str], colour: int, generation: int) -> None:
        """Machines have stopped; processes that send to machines are told, too."""
        if generation != self.recovery.generation:
            return
        self.processes.stopped(tuple(names), colour)
        await super().stopped(names, colour, generation)

    async def dismiss_system(self, timeout: float) -> RaySnapshotError | None:
        """The system of machines ends: what is pending is finished, up to `timeout` seconds. Returns what has stopped it."""
        collections = self.collecting.collections
        if collections and self.course.failure is None:
            await asyncio.wait([one.done for one in collections.values()], timeout=timeout)
        self.collecting.abort_all("the system of machines has ended", is_blamed=False)
        await asyncio.sleep(0)  # all are told that before anything else
        failure, self.course.failure, self.joined = self.course.failure, self.fault, None
        self.processes.hosts_left()
        self.dismiss_hosts()
        self.collecting.protocol = self.config.protocol
        await self.course.notify()
        return failure

    # ---- going back (see `rolling`) -------------------------------------------------------------------------------

    async def go_back(
        self,
        snapshot_id: str,
        timeout: float,
        claimed: Mapping[str, str] = NOTHING,
        classes: Mapping[str, tuple[str, bytes]] = NOTHING,
    ) -> list[str]:
        """Roll the app back; see `Rolling.restore`. `claimed` and `classes`: of machines, as in `planning.Ground`."""
        return await self.processes.rolling.restore(Target(snapshot_id, dict(claimed), dict(classes)), timeout)

    async def roll_back(self, snapshot_id: str, seconds: float) -> None:
        """Roll the app back, for somebody who is not the program."""
        await self.go_back(snapshot_id, seconds)

    @notice
    async def stepped(self, machine: str, step: int, generation: int) -> None:
        """A process has done a step of a restore."""
        self.processes.rolling.acknowledged(machine, step, generation)

    @notice
    async def not_rolled(self, machine: str, generation: int, error: RaySnapshotError) -> None:  # noqa: ARG002 - it says so
        """A process could not do a step."""
        self.processes.rolling.failed(generation, error)

    @notice
    async def busy(self, machine: str, call_site: str) -> None:
        """A process has not stopped yet."""
        self.processes.rolling.way.busy[machine] = call_site

    @notice
    async def handle_of(self, machine: str, handle: list[Any]) -> None:
        """A handle of an actor, in a list, which does not keep it alive."""
        self.processes.rolling.handles[machine] = handle[0]

    @notice
    async def built(self, machine: str, obstacle: str | None) -> None:
        """An actor's constructor has ended; `obstacle`: why it cannot begin anew from there."""
        self.processes.recovering.built(machine, obstacle)

    @notice
    async def intended(self, machine: str) -> None:
        """The app kills an actor, and wants Ray to start it again."""
        self.processes.recovering.intended(machine)

    async def is_coming_back(self, key: str | None, generation: int) -> bool:
        """Whether what a process has met will be undone; see `Recovering`."""
        return await self.processes.recovering.is_coming_back(key, generation)

    async def ask_analyst(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """What the analyst in this process answers; see `AnalystInside`."""
        try:
            return await getattr(self.inside, method)(*args, **kwargs)
        except (SystemExit, KeyboardInterrupt) as error:  # the event loop would end, and nobody would hear of it
            raise RaySnapshotError(f"the analyst was to end ({named(error)}) when it was asked to {method}") from None

    # ---- as a service ---------------------------------------------------------------------------------------------

    async def about(self) -> dict[str, Any]:
        """What `ray-snapshot systems` shows."""
        found = await super().about()
        found["hosts"] += len(self.processes.parties.machines)
        found["machines"] += len(self.processes.roster.facts) - 1
        return found

    async def summary(self) -> Summary:
        """What a program is told of its watching at the end."""
        completed = self.coordinator.last if self.inside is None else self.inside.glances.totals.completed
        return self.processes.happened.summary(completed, self.processes.in_words)

    async def fail(self, error: RaySnapshotError, generation: int | None = None) -> None:
        """Something stops the system of machines; without one the watching goes on."""
        if self.joined is None:
            say(f"ray-snapshot: {error}")
        else:
            await super().fail(error, generation)

    def _on_fault(self, error: BaseException) -> None:
        """The watching ends with its reason, which the driver says; the app goes on."""
        if self.fault is None:
            text = f"{self.config.system} is not watched any more, by a fault of ours: {with_place(error)}"
            self.fault, self.processes.outboxes.fault = RaySnapshotError(text), text
            self.clock.stop()
            self.processes.looker.cancel()
            self.collecting.line.begin(self._end_watching(self.fault))

    async def _end_watching(self, fault: RaySnapshotError) -> None:
        await super().fail(fault)
        self.course.failure = fault
        await self.processes.outboxes.close()

    async def settle(self, timeout: float) -> RaySnapshotError | None:
        """See `Service.settle`. Of the fault that has ended the watching the program has heard."""
        failure = await super().settle(timeout)
        return None if failure is self.fault else failure

    async def close(self) -> None:
        """No more snapshots and no more long polls."""
        await super().close()
        await self.processes.outboxes.close()


WatcherActor = ray.remote(Watcher)
