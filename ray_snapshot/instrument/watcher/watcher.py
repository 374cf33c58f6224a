"""The watcher of an app: one asynchronous Ray actor that numbers snapshots, collects reports and carries acknowledgements.

Which processes must report, and when a snapshot is complete, `protocol.coordinator` decides; this file carries it out.
Processes ask for their commands with long polls, for the watcher cannot call a thread of theirs. It can be asked the
same things as a system's service.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.exceptions import RayActorError

from ray_snapshot.errors import RaySnapshotError, RolledBackError, SnapshotAbortedError, SystemNotRunningError
from ray_snapshot.instrument import shape
from ray_snapshot.instrument.delivery import Nodes, living_nodes
from ray_snapshot.instrument.process.process import Recorded
from ray_snapshot.instrument.process.reloading import Welcome, generation_of
from ray_snapshot.instrument.watcher.collected import CollectedCalls
from ray_snapshot.instrument.watcher.outboxes import Outboxes
from ray_snapshot.instrument.watcher.rolling import Rolling
from ray_snapshot.instrument.watcher.roster import Roster
from ray_snapshot.protocol.calls import Acks, MachineReport
from ray_snapshot.protocol.commands import (
    Abort,
    Acknowledged,
    Close,
    Died,
    Leave,
    Overdue,
    ProcessCommand,
    Request,
    Restarted,
)
from ray_snapshot.protocol.coordinator import AbortedSnapshot, Coordinator
from ray_snapshot.runtime.collected import Collected, SnapshotHeader
from ray_snapshot.runtime.service.desk import Collection, Desk
from ray_snapshot.runtime.service.handing_over import HandOver
from ray_snapshot.runtime.service.line import Line

MOST_UNJUDGED = 100
"""A snapshot that the program asks for is taken however slow the detectors are, if fewer than so many wait for them: a
bound of memory."""

MOST_UNPRUNED = 1_000
"""So many calls may stay in a sender's log until it asks by itself."""

LIST_S = 5.0
"""How long a snapshot waits, before it begins, for Ray's lists of nodes and actors."""

UNHEARD_S = 1.0
"""How long a snapshot waits for machines that have never registered."""

LOOK_S = 0.25
"""How often deadlines and the cluster's own list of the dead are looked at, while a snapshot is pending."""


@dataclass(slots=True)
class CallCollection(Collection):
    """A snapshot that is being collected from processes."""

    recorded: dict[str, Recorded] = field(default_factory=dict)
    """What each machine has reported."""
    actors: Mapping[str, str] | None = None
    """The job's actors that lived, or were to, when it began: classes by key; None if Ray did not list them."""


class Watcher(Desk):
    """The watcher's Ray actor; asynchronous, so that any number of processes can wait for their commands at once."""

    def __init__(
        self,
        system: str,
        run_id: str,
        analyst: Any,
        *,
        most_open: int,
        snapshot_timeout: float,
        ready: Iterable[str] = (),
        keeps: bool = False,
        has_hook: bool = False,
        library_states: bool = False,
    ) -> None:
        self.system = system
        self.run_id = run_id
        self.analyst = analyst
        self.snapshot_timeout = snapshot_timeout
        self.library_states = library_states
        self.coordinator = Coordinator(most_open=most_open)
        self.parties = self.coordinator.calls
        self.roster = Roster(lambda machine: machine in self.parties.dead)
        self.outboxes = Outboxes()
        self.blind: dict[str, None] = {}
        """Machines that live, but are not watched, so that nothing is seen of them."""
        self.handing = HandOver(analyst, is_again=False)
        self.collections: dict[int, CallCollection] = {}
        super().__init__(Line(self._tell_analyst), self.collections)
        self.is_closing = False
        self.uncovered: list[str] = ["nodes that have not been looked at"]
        """Nodes of which nothing is seen; this one item until Ray has listed them."""
        self.unborn: dict[str, str] = {}
        """Machines whose constructors had not begun in the latest snapshot, with their keys in Ray."""
        self.covered_at = -1
        self.nodes = Nodes(ready)
        self.has_hook = has_hook
        """Whether our functions are in every worker of the job."""
        self.node_count = 0
        self.rolling = Rolling(self, keeps=keeps)
        self.looker = asyncio.get_event_loop().create_task(self._look())

    # ---- processes ------------------------------------------------------------------------------------------------

    async def register(self, stamp: str, machine: str, facts: dict[str, Any], colour: int) -> Welcome | None:
        """A process joins.

        None if its run (`name:run_id`, in `stamp`) is another: the header that it heard of us by is from an earlier
        watching. Raises `RolledBackError` if it was made in a past that was given up.
        """
        generation = generation_of(stamp, f"{self.system}:{self.run_id}")
        if generation is None:
            return None
        restarts = 0
        if facts.get("key") is not None:
            _, restarts = await asyncio.get_running_loop().run_in_executor(None, shape.actor_state, facts["key"])
        await self._find_namesakes(facts.get("name"))
        if self.rolling.is_past(machine, generation):  # asked last: a restore may have begun meanwhile
            raise RolledBackError("the app was rolled back before this actor had begun", snapshot_id=None)
        incarnation = self.roster.enter(machine, facts, restarts)
        born = self.coordinator.join(machine, incarnation, colour)
        self.blind.pop(machine, None)
        self.outboxes.open(machine)
        if incarnation:
            self.tell_all(Restarted(machine, incarnation))
            self._look_at_all()
            await self.outboxes.heard_by_others(machine, self.parties.machines)
        terms = self.rolling.joined(machine)
        wanted = [number for number, one in self.parties.pending.items() if machine in one.awaited]
        return Welcome(incarnation, born, wanted, self.coordinator.last, terms)

    async def _find_namesakes(self, name: str | None) -> None:
        """Note the end of actors that had this name in Ray and are dead, though no process may have said so yet."""
        for machine in self.roster.namesakes(name):
            key = self.roster.facts[machine].get("key")
            if machine in self.parties.machines and key is not None:
                state, _ = await asyncio.get_running_loop().run_in_executor(None, shape.actor_state, key)
                if state == "DEAD" and machine in self.parties.machines and not self.rolling.is_rolling:
                    self.ended(machine)

    async def commands(self, machine: str, seen: int, recorded: list[Recorded]) -> tuple[int, list[ProcessCommand]]:
        """What a process must do, behind the first `seen`, which are forgotten; waits for it. Takes its reports first."""
        for one in recorded:
            await self.report(one)
        return (seen, [Leave()]) if self.is_closing else await self.outboxes.after(machine, seen)

    async def acknowledge(self, acks: list[Acks]) -> None:
        """Carry acknowledgements to the senders."""
        for one in acks:
            count = sum(last - first + 1 for first, last in one.numbers)
            is_urgent = (
                self.rolling.keeps or count > MOST_UNPRUNED
            )  # a log that is kept for a restore holds arguments whole
            self.tell(one.source, Acknowledged(one), is_urgent=is_urgent)

    async def unwatched(self, machine: str) -> None:
        """A process takes part no more; it goes on, and the watcher does not see what it does."""
        self.blind[machine] = None
        self.parties.died(machine, "is not watched any more")
        self._look_at_all()

    async def left(self, report: MachineReport) -> None:
        """A process ends, with its final counts."""
        self.parties.left(report)
        self._look_at_all()

    def tell(self, machine: str, command: ProcessCommand, *, is_urgent: bool = True) -> None:
        """Tell a process; what only frees its memory is told with the next command, or when its poll ends."""
        self.outboxes.tell(machine, command, is_urgent=is_urgent)

    def tell_all(self, command: ProcessCommand, *, is_urgent: bool = True) -> None:
        """Tell every process that lives."""
        self.outboxes.tell_each(self.parties.machines, command, is_urgent=is_urgent)

    def ended(self, machine: str) -> None:
        """A machine is gone for good."""
        self.parties.died(machine, "died")
        self.tell_all(Died(machine))
        self.outboxes.drop(machine)

    # ---- snapshots ------------------------------------------------------------------------------------------------

    async def snapshot(self, initiators: list[str], timeout: float | None, wait: bool = True) -> Any:  # noqa: ARG002 - as a service's
        """Take a snapshot; returns it (its number if not waited for). Raises `SnapshotAbortedError`."""
        actors = await self._listed()  # before anything is asked to record: what was made before the cut is among them
        if self.is_closing:
            raise SystemNotRunningError(f"system {self.system} was closed", system=self.system)
        if self.rolling.is_rolling:
            torn = ", and stands still, for that failed: restore again, or end it" if self.rolling.is_torn else ""
            return self._refuse(f"it is being rolled back{torn}", wait=wait)
        timeout = self.snapshot_timeout if timeout is None else timeout
        most = MOST_UNJUDGED if wait else self.coordinator.most_open  # a program that asks does not wait for verdicts
        number = None if len(self.line.under_way) >= most else self.coordinator.start(time.time(), timeout)
        if number is None:
            text = f"{len(self.collections)} snapshots are pending, the most there may be; take them less often"
            return self._refuse(text, wait=wait)
        header = SnapshotHeader(number, self.system, self.run_id, "calls", [], time.time())
        header.is_kept, header.generation = self.rolling.keeps, self.rolling.loaded
        header.restored_from = self.rolling.restored_from
        done = asyncio.get_running_loop().create_future()
        self.collections[number] = CallCollection(header, timeout, done, actors=actors)
        awaited = list(self.parties.pending[number].awaited)
        header.control_messages += len(awaited)
        for machine in awaited:
            self.tell(machine, Request(number))
        self._look_at(number)
        if wait:
            return await done
        done.add_done_callback(lambda future: future.exception())
        return number

    def _refuse(self, reason: str, *, wait: bool) -> None:
        """There can be no snapshot now: raise if the caller waits for it."""
        if wait:
            text = f"there can be no snapshot of {self.system} now: {reason}"
            raise SnapshotAbortedError(text, snapshot_id=None, reason=reason, machine=None, call_site=None)

    async def report(self, recorded: Recorded) -> None:
        """A machine's part."""
        number = recorded.report.number
        self.coordinator.report_calls(recorded.report)
        collection = self.collections.get(number)
        if collection is not None:
            collection.recorded.setdefault(recorded.report.machine, recorded)
            collection.header.control_messages += 1
            self._look_at(number)

    def _look_at_all(self) -> None:
        for number in list(self.collections):
            self._look_at(number)

    def _look_at(self, number: int) -> None:
        """Complete the snapshot if nothing of it is missing."""
        snapshot = self.coordinator.completed(number)
        if snapshot is None:
            return
        completed = snapshot.calls
        collection = self.collections.pop(number)
        header = collection.header
        header.completed_at = time.time()
        births = {name: birth for one in collection.recorded.values() for name, birth in one.births.items()}
        self.roster.reserve(completed, births)
        self.unborn = {name: birth["key"] for name, birth in births.items() if name not in self.roster.facts}
        unseen = [*self.blind, *self.parties.restarting]
        header.uncovered = [
            *self._strangers(collection.actors, births),
            *self.uncovered,
            *(f"{self.roster.name_of(machine)}, which does not report" for machine in unseen),
        ]
        self.tell_all(Close(number), is_urgent=False)
        found = CollectedCalls(
            header,
            completed,
            collection.recorded,
            dict(self.roster.facts),
            apart=self._apart(collection.recorded.values()),
            reserved=dict(self.roster.reserved),
        )
        collection.complete(found)
        self._hand_over(number, found, is_complete=True)

    def _strangers(self, actors: Mapping[str, str] | None, births: Mapping[str, Mapping[str, Any]]) -> list[str]:
        """Those of the job's `actors` that have not registered and of whose making no report tells: nothing is seen of them."""
        if actors is None:
            return ["actors and nodes that Ray did not list"]
        known = {birth["key"] for birth in births.values()}
        known |= {facts.get("key") for facts in self.roster.facts.values()}
        known |= {shape.current_actor_key(), shape.actor_key(self.analyst)}  # an app may have a Watcher of its own
        return [f"actor {kind} ({key[:8]})" for key, kind in actors.items() if key not in known]

    def _apart(self, recorded: Iterable[Recorded]) -> tuple[str, ...]:
        """For the coverage: plain tasks that may still run, or what they have begun; those with handles come
        elsewhere."""
        loose = [one.loose for one in recorded]
        if not any(one.started for one in loose):
            return ()
        if any(one.pending for one in loose):
            return ("plain tasks",)
        if not self.has_hook or shape.tasks_begin_more():
            return ("what plain tasks have begun",)
        return ("plain tasks that Ray runs again if a node is lost",) if self.node_count != 1 else ()

    def _hand_over(self, number: int, found: Any, *, is_complete: bool) -> None:
        self.line.put(number, found, is_complete=is_complete)
        self.line.advance(min(self.collections, default=None))

    async def _tell_analyst(self, found: Any) -> None:
        try:
            await self.handing.give(found)
        except RayActorError:
            self.is_closing = True

    async def _look(self) -> None:
        """While snapshots are pending: hurry them, give them up, and find out which machines have died."""
        while True:
            try:
                await self._look_once(time.time())
            except Exception as error:  # the cluster does not answer: the next look may
                print(f"ray-snapshot: the watcher could not look: {type(error).__name__}: {error}", file=sys.stderr)
            await asyncio.sleep(LOOK_S)

    async def _look_once(self, now: float) -> None:
        if self.rolling.is_rolling:
            await self.rolling.look()
        for given_up in self.coordinator.expire(now):
            self._given_up(given_up)
        for number, collection in list(self.collections.items()):
            if number not in self.collections:  # completed while we looked for the dead
                continue
            age = now - collection.header.started_at
            if now > collection.half_time and not collection.is_hurried:
                collection.is_hurried = True
                for machine in self.parties.pending[number].awaited:
                    self.tell(machine, Overdue(number))
            elif age > LOOK_S:
                if age > UNHEARD_S:
                    self._go_without(number)
                await self._find_dead(number)
        if self.collections or self.coordinator.last != self.covered_at:
            self.covered_at = self.coordinator.last
            await self._find_stillborn()

    def _go_without(self, number: int) -> None:
        """Complete a snapshot without machines that were called and never reported: actors made by an unwatched
        process, and busy ever since."""
        pending = self.parties.pending.get(number)
        for machine in pending.unheard() if pending is not None else ():
            self.blind[machine] = None
            self.parties.died(machine, "is not watched")
        self._look_at_all()

    async def _listed(self) -> Mapping[str, str] | None:
        """Compare the cluster's nodes with those that are ready; returns the job's actors that live or are to, classes by key.

        None if Ray does not list them in time.
        """
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(LIST_S):
                nodes = await loop.run_in_executor(None, living_nodes)
                actors = await loop.run_in_executor(None, shape.actors_of_job)
        except Exception:  # whatever Ray raises: the coverage of the snapshot says what is missing
            return None
        self.node_count = len(nodes)
        self.uncovered = self.nodes.uncovered(nodes)
        return actors

    async def _find_stillborn(self) -> None:
        """Note the end of actors that died before their constructors began: nobody else says of them that they are gone."""
        if not self.unborn:
            return
        ended = await asyncio.get_running_loop().run_in_executor(None, shape.ended_actors_of_job)
        for machine, key in self.unborn.items():
            if key in ended and machine not in self.roster.facts and not self.roster.is_dead(machine):
                self.ended(machine)

    async def _find_dead(self, number: int) -> None:
        pending = self.parties.pending.get(number)
        for machine in list(pending.awaited) if pending is not None else ():
            facts = self.roster.facts.get(machine, {})
            if facts.get("key") is None:
                continue
            state, restarts = await asyncio.get_running_loop().run_in_executor(None, shape.actor_state, facts["key"])
            if self.roster.facts.get(machine, {}).get("incarnation") != facts["incarnation"]:
                continue  # it has started again meanwhile
            if state == "RESTARTING" and restarts <= facts["restarts"]:
                continue  # it is this incarnation whose constructor runs
            if state in ("DEAD", "RESTARTING"):
                if state == "DEAD":
                    self.ended(machine)
                else:
                    self.parties.died(machine, "died", is_restarting=True)
        self._look_at_all()

    def give_up_all(self, reason: str) -> None:
        """Give up every pending snapshot."""
        for number in list(self.collections):
            self._given_up(self.coordinator.abort(number, reason))

    def _given_up(self, aborted: AbortedSnapshot) -> None:
        number = aborted.number
        collection = self.collections.pop(number)
        self.tell_all(Abort(number))
        header = collection.header
        header.completed_at, header.abort_reason = time.time(), self.roster.in_words(aborted.reason)
        collection.give_up()
        self._hand_over(number, Collected(header, []), is_complete=False)

    # ---- going back (see `rolling`) -------------------------------------------------------------------------------

    async def restore(self, snapshot_id: str, timeout: float) -> list[str]:
        """Roll the app back; see `Rolling.restore`."""
        return await self.rolling.restore(snapshot_id, timeout)

    async def rolled(self, machine: str, step: int, generation: int) -> None:
        """A process has done a step."""
        self.rolling.acknowledged(machine, step, generation)

    async def not_rolled(self, machine: str, generation: int, error: RaySnapshotError) -> None:  # noqa: ARG002 - it says so
        """A process could not do a step."""
        self.rolling.failed(generation, error)

    async def busy(self, machine: str, call_site: str) -> None:
        """A process has not stopped yet."""
        self.rolling.busy[machine] = call_site

    async def handle_of(self, machine: str, handle: list[Any]) -> None:
        """A handle of an actor, in a list, which does not keep it alive."""
        self.rolling.handles[machine] = handle[0]

    async def handed_over(self, snapshot_id: str, deadline: float) -> None:
        """Answers when the analyst has a snapshot that was completed."""
        while self.line.under_way or self.line.holds(snapshot_id):
            if time.monotonic() > deadline:
                return
            await asyncio.sleep(LOOK_S / 10)

    # ---- as a service ---------------------------------------------------------------------------------------------

    async def last_number(self) -> int:
        """The highest number given out."""
        return self.coordinator.last

    async def about(self) -> dict[str, Any]:
        """What `ray-snapshot systems` shows."""
        return {
            "system": self.system,
            "run_id": self.run_id,
            "hosts": len(self.parties.machines),
            "machines": len(self.roster.facts) - 1,
            "snapshots": self.coordinator.last,
            "pending": len(self.collections),
            "skipped": self.clock.skipped,
            "failed": None,
        }

    async def close(self) -> None:
        """No more snapshots and no more long polls."""
        self.is_closing = True
        self.outboxes.wake_all()


WatcherActor = ray.remote(Watcher)
