"""The processes of a watched app, as the actor that takes its snapshots sees them: they join, report, and are gone.

Which processes must report, and when a snapshot is complete, `protocol.coordinator` decides; this file carries it out.
Processes ask for their commands with long polls, for the watcher cannot call a thread of theirs.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from ray.exceptions import RayError

from ray_snapshot.errors import DeadlockError, RolledBackError, SnapshotAbortedError
from ray_snapshot.instrument import shape, task_shape
from ray_snapshot.instrument.capacity import Cluster
from ray_snapshot.instrument.process.reloading import Welcome, generation_of
from ray_snapshot.instrument.process.reports import ProcessReport
from ray_snapshot.instrument.watcher.collected import CollectedCalls
from ray_snapshot.instrument.watcher.delayed_calls import DelayedCalls
from ray_snapshot.instrument.watcher.incidents import Incidents
from ray_snapshot.instrument.watcher.movement import Movement
from ray_snapshot.instrument.watcher.outboxes import Outboxes
from ray_snapshot.instrument.watcher.polls import Polls
from ray_snapshot.instrument.watcher.rank_groups import RankGroups
from ray_snapshot.instrument.watcher.recovering import Limits, Recovering
from ray_snapshot.instrument.watcher.resources import Looks, concerns, garbage
from ray_snapshot.instrument.watcher.rolling import Rolling
from ray_snapshot.instrument.watcher.roster import Roster
from ray_snapshot.instrument.watcher.stores import short_stores
from ray_snapshot.instrument.watcher.surroundings import Seen, Surroundings, strangers
from ray_snapshot.limits import LIMITS
from ray_snapshot.names import DRIVER, life_of
from ray_snapshot.protocol.calls import Acks, MachineReport
from ray_snapshot.protocol.commands import (
    Abort,
    Acknowledged,
    Close,
    Collect,
    Condemn,
    Died,
    HostsLeft,
    Overdue,
    ProcessCommand,
    Request,
    Restarted,
    Stopped,
)
from ray_snapshot.protocol.coordinator import CompletedSnapshot
from ray_snapshot.protocol.senders import Senders
from ray_snapshot.protocol.tasks import is_worker, worker_name
from ray_snapshot.runtime.collected import HostPayload, JoinedSystem, MachineCalls, SnapshotHeader
from ray_snapshot.runtime.service.actor import Service
from ray_snapshot.runtime.service.collecting import sections_of
from ray_snapshot.stderr import LOGGER


@dataclass(slots=True)
class Pending:
    """What the processes have told for a snapshot that is being collected."""

    header: SnapshotHeader
    seen: Seen
    """What Ray listed when it began."""
    losses: int
    """How many processes had died by then (`Recovering.losses`)."""
    recorded: dict[str, ProcessReport] = field(default_factory=dict)
    """What each machine has reported."""


class Processes:
    """The processes of one watched app; `begin` says which service takes its snapshots."""

    def __init__(
        self,
        *,
        ready: Iterable[str],
        keeps: bool,
        has_hook: bool,
        library_states: bool,
        limits: Limits | None = None,
        has_beginning: bool = True,
        tells_callers: bool = False,
        raises_inside: bool = False,
    ) -> None:
        """`tells_callers`: deadlocks are to be broken; `raises_inside`: by errors inside their members."""
        self.library_states = library_states
        self.roster = Roster(lambda machine: machine in self.parties.dead, lambda: self.directory.places)
        self.outboxes = Outboxes()
        self.happened = Incidents()
        self.delayed = DelayedCalls()
        self.movement = Movement()
        self.groups = RankGroups()
        self.polls = Polls()
        self.blind: dict[str, None] = {}
        """Machines that live, but are not watched, so that nothing is seen of them."""
        self.surroundings = Surroundings(ready, has_hook=has_hook)
        self.rooms: dict[int, asyncio.Task[Cluster | None]] = {}
        """By snapshot: what Ray tells of nodes behind it."""
        self.stopped_names: list[str] = []
        """Machines of hosts that have stopped."""
        self.unborn: dict[str, str] = {}
        """Machines whose constructors had not begun in the latest snapshot, with their keys in Ray."""
        self.covered_at = -1
        self.pending: dict[int, Pending] = {}
        self.held: frozenset[str] = frozenset()
        """Plain tasks that were over in the latest snapshot, and in a log yet."""
        self.unsettled: frozenset[str] = frozenset()
        """Those in a log of which that was not known."""
        self.is_store_short = False
        """Whether some node's object store was short of room in the latest snapshot."""
        self.starters: set[str] = set()
        """Machines that start plain tasks."""
        self.begun_with: dict[int, int] = {}
        """Deaths before each snapshot that is on its way to the analyst, where they are undone."""
        self.tells_callers = tells_callers
        self.raises_inside = raises_inside
        self.latest: dict[int, CollectedCalls] = {}
        """The latest snapshots, where their calls may be told to end."""
        self.rolling = Rolling(self, keeps=keeps)
        self.recovering = Recovering(self, limits, has_beginning=has_beginning)

    def begin(self, service: Service, joined: Callable[[], JoinedSystem | None]) -> None:
        """Take part in the snapshots of this service, and look after the dead; `joined`: the system that has joined."""
        self.service = service
        self.analyst = service.handing.analyst
        self.directory = service.directory
        self.orders = service.orders
        self.joined = joined
        self.collecting = service.collecting
        self.coordinator = service.coordinator
        self.parties = service.coordinator.calls
        self.parties.tells_callers = self.tells_callers
        self.senders = Senders(self.coordinator)
        self.looker = asyncio.get_event_loop().create_task(self._look())

    def life(self) -> int:
        """Which of the systems that have joined is here; 0: none."""
        joined = self.joined()
        return 0 if joined is None else joined.life

    # ---- processes ------------------------------------------------------------------------------------------------

    async def join(self, stamp: str, machine: str, facts: dict[str, Any], colour: int) -> Welcome | None:
        """A process joins.

        None if its run (`name:run_id`, in `stamp`) is another: the header that it heard of us by is from an earlier
        watching. Raises `RolledBackError` if it was made in a past that was given up.
        """
        config = self.service.config
        generation = generation_of(stamp, f"{config.system}:{config.run_id}")
        if generation is None:
            return None
        restarts = 0
        if facts.get("key") is not None:
            _, restarts = await asyncio.get_running_loop().run_in_executor(None, shape.actor_state, facts["key"])
        await self._find_namesakes(facts.get("name"))
        is_of_program = facts.get("maker") == DRIVER
        if self.rolling.is_past(
            machine, generation, is_of_program=is_of_program
        ):  # asked last: a restore may have begun meanwhile
            raise RolledBackError("the app was rolled back before this actor had begun", snapshot_id=None)
        self.happened.joined(machine, self.roster.facts.get(machine), time.time())
        incarnation = self.roster.enter(machine, facts, restarts)
        born = self.coordinator.join(
            machine, incarnation, min(colour, self.coordinator.last)
        )  # not of an earlier watch
        self.blind.pop(machine, None)
        self.outboxes.open(machine)
        if incarnation:
            self.senders.gone(machine, incarnation)
            again = Restarted(machine, incarnation)
            self.tell_all(again)
            self._look_at_all()
            await asyncio.gather(
                self.outboxes.heard_by_others(machine, self.parties.machines),
                self.orders.heard_by_hosts(again, LIMITS.heard_s),
            )
        is_returning = incarnation > 0 and self.recovering.comes_back(machine)
        terms = self.rolling.joined(machine, is_returning=is_returning)
        wanted = [number for number, one in self.parties.pending.items() if machine in one.awaited]
        return Welcome(incarnation, born, wanted, self.coordinator.last, terms, self.coordinator.settled)

    def admit(self, machine: str, facts: dict[str, Any]) -> None:
        """Before any process can join: this one takes part, under the terms of a run that begins, and need not ask."""
        self.roster.enter(machine, facts, 0)
        self.coordinator.join(machine, 0, 0)
        self.outboxes.open(machine)
        self.rolling.joined(machine)

    async def _find_namesakes(self, name: str | None) -> None:
        """Note the end of actors that had this name in Ray and are dead, though no process may have said so yet."""
        for machine in self.roster.namesakes(name):
            key = self.roster.facts[machine].get("key")
            if machine in self.parties.machines and key is not None:
                state, _ = await asyncio.get_running_loop().run_in_executor(None, shape.actor_state, key)
                if state == "DEAD" and machine in self.parties.machines and not self.rolling.is_rolling:
                    self.ended(machine)

    def acknowledge(self, acks: list[Acks]) -> None:
        """Carry acknowledgements to the senders."""
        for one in acks:
            count = sum(last - first + 1 for first, last in one.numbers)
            is_urgent = (
                self.rolling.keeps or count > LIMITS.unpruned_calls
            )  # a log that is kept for a restore holds arguments whole
            host = None if one.source in self.parties.machines else self.directory.places.get(one.source)
            if host is None:
                self.tell(one.source, Acknowledged(one), is_urgent=is_urgent)
            else:
                self.orders.to_host_lazily(host, Acknowledged(one))

    def unwatched(self, machine: str) -> None:
        """A process takes part no more; it goes on, and the watcher does not see what it does."""
        self.blind[machine] = None
        self.parties.died(machine, "is not watched any more")
        self.outboxes.drop(machine)
        self._look_at_all()

    def left(self, report: MachineReport) -> None:
        """A process ends, with its final counts."""
        self.parties.left(report)
        self.outboxes.drop(report.machine)
        if is_worker(report.machine):
            self.roster.forget_workers(self.parties.known_workers())
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
        self._no_more_mail_of(machine)
        self.tell_all(Died(machine))
        for host in self.directory.actors:
            self.orders.to_host(host, Died(machine))
        self.outboxes.drop(machine)

    # ---- machines of hosts beside them -----------------------------------------------------------------------------

    def _no_more_mail_of(self, machine: str) -> None:
        self.senders.gone(machine, self.roster.facts.get(machine, {}).get("incarnation", 0) + 1)

    def stopped(self, names: tuple[str, ...], colour: int) -> None:
        """Machines of hosts have stopped: sending to them is an error."""
        self.stopped_names += names
        self.tell_all(Stopped(names, colour))

    def went_back(self, stopped: tuple[str, ...]) -> None:
        """Machines go back, to where these had stopped; mail of the past is refused, so none of it is missing."""
        self.senders.lost.clear()
        self.stopped_names = list(stopped)

    def hosts_left(self) -> None:
        """The hosts have ended, and with them whatever their machines had called."""
        for machine in self.directory.places:  # any of them may have called an actor, seen or not
            if machine not in self.parties.machines:
                self.parties.died(machine, "ended with its system")
        self.senders.clear()
        self.stopped_names = []
        self.tell_all(HostsLeft())

    # ---- snapshots ------------------------------------------------------------------------------------------------

    async def prepare(self) -> Seen:
        """What Ray lists, before anything is asked to record: what was made before the cut is among it."""
        seen = await self.surroundings.look()
        if unknown := self.happened.unknown:
            details = dict.fromkeys(unknown, "")
            with suppress(Exception):  # whatever Ray raises: then it is not said why they have ended
                async with asyncio.timeout(LIMITS.ray_lists_s):
                    details |= await asyncio.get_running_loop().run_in_executor(None, shape.exit_details, unknown)
            self.happened.causes |= details
        torn = ", and stands still, for that failed: restore again, or end it" if self.rolling.is_torn else ""
        is_going_back = self.rolling.is_rolling or self.recovering.is_under_way
        reason = f"it is being rolled back{torn}" if is_going_back else ""
        if not self.roster.facts:
            reason = "its program has not begun"
        if reason:
            text = f"there can be no snapshot of {self.service.config.system} now: {reason}"
            raise SnapshotAbortedError(text, snapshot_id=None, reason=reason, machine=None, call_site=None)
        return seen

    def begun(self, header: SnapshotHeader, prepared: Seen | None) -> None:
        """Ask every process to record."""
        header.is_kept, header.generation = self.rolling.keeps, self.rolling.loaded
        header.restored_from = self.rolling.restored_from
        self.pending[header.number] = Pending(header, prepared or Seen(None, None), self.recovering.losses)
        awaited = list(self.parties.pending[header.number].awaited)
        header.control_messages += len(awaited)
        for machine in awaited:
            self.tell(machine, Request(header.number))

    def report(self, recorded: ProcessReport) -> None:
        """A machine's part."""
        number = recorded.report.number
        mail = recorded.mail
        if mail is not None and mail.life != self.life():
            recorded = replace(recorded, mail=None)  # of a system that has ended
        elif mail is not None and mail.counts is not None:
            self.coordinator.report(number, mail.counts, (recorded.report,))
        self.coordinator.report_calls(recorded.report)
        if recorded.cells:
            self.roster.facts[recorded.report.machine]["cells"] = recorded.cells
        pending = self.pending.get(number)
        if pending is not None:
            pending.recorded.setdefault(recorded.report.machine, recorded)
            pending.header.control_messages += 1
            pending.header.spent(recorded.report.machine, recorded.cpu_s)
            self.collecting.look(number)

    def _look_at_all(self) -> None:
        for number in list(self.pending):
            self.collecting.look(number)

    def hurry(self, number: int, awaited: set[str]) -> None:
        """These are to record in the middle of an action."""
        for machine in awaited:
            self.tell(machine, Overdue(number))

    def over(self, number: int, *, is_complete: bool) -> None:
        """A snapshot is complete, or given up: what the processes hold of it is not needed any more."""
        self.pending.pop(number, None)
        if not is_complete:
            self.tell_all(Abort(number))
            return
        ended, self.parties.ended_workers = frozenset(self.parties.ended_workers), set()
        close = Close(number, self.held, ended, self.unsettled, self.is_store_short)
        for machine in [*self.parties.machines]:  # who starts or runs tasks sends colours until it has heard
            self.tell(machine, close, is_urgent=machine in self.starters or is_worker(machine))

    async def given(self, collected: Any) -> None:
        """The analyst has a snapshot; if it can be restored, the app goes back to it from now on, should a process die."""
        losses = self.begun_with.pop(collected.header.number, None)
        if losses is not None and await self.service.handing.is_kept(collected.header.snapshot_id):
            await self.recovering.kept(collected, losses)

    def in_words(self, text: str) -> str:
        """A text with machines' names for people in place of their own."""
        return self.roster.in_words(text)

    def found(
        self, header: SnapshotHeader, completed: CompletedSnapshot, payloads: list[HostPayload]
    ) -> CollectedCalls:
        """All that a complete snapshot is put together from."""
        pending, calls = self.pending[header.number], completed.calls
        self.held, self.unsettled = calls.held, calls.unsettled
        self.is_store_short = bool(short_stores(calls))
        self.starters = {report.machine for report in calls.machines.values() if report.tasks}
        if self.recovering.limits is not None:
            header.is_journaled = True
            self.begun_with[header.number] = pending.losses
        hosted = [payload.calls for payload in payloads if payload.calls is not None]
        told: list[ProcessReport | MachineCalls] = [*pending.recorded.values(), *hosted]
        births = {name: birth for one in told for name, birth in one.births.items()}
        self.roster.reserve(calls, births)
        self.roster.forget_workers(self.parties.known_workers())
        self.unborn = {name: birth["key"] for name, birth in births.items() if name not in self.roster.facts}
        unseen = [*self.blind, *self.parties.restarting]
        header.uncovered += [
            *strangers(pending.seen.actors, self._known_actors(births)),
            *self.surroundings.uncovered,
            *map(self._unseen, unseen),
            *self._mail_of_the_dead(header.number),
        ]
        needs_room = concerns(calls, header.started_at)
        self.surroundings.is_room_wanted = needs_room
        for machine in garbage(calls, header.started_at):
            self.tell(machine, Collect())
        keys = {one["key"]: name for name, one in self.roster.facts.items() if one.get("key")}
        keys = {**{birth["key"]: name for name, birth in births.items()}, **keys}
        happened = self.happened.told(
            calls,
            pending.recorded,
            {} if self.rolling.loaded else pending.seen.lives,  # who goes back is started again
            keys,
            header.started_at,
            is_covered=not header.uncovered,
        )
        delayed = self.delayed.update(calls, pending.recorded, self.roster.facts, header.started_at)
        still_since = self.movement.still_since(
            calls, pending.recorded, header.started_at, is_covered=not (header.uncovered or hosted)
        )
        happened += tuple(self.polls.rows(calls, pending.recorded, self.movement.worked, header.started_at))
        collected = CollectedCalls(
            header,
            calls,
            pending.recorded,
            dict(self.roster.facts),
            looks=Looks(pending.seen.cluster, None) if needs_room else None,
            happened=happened,
            groups=self.groups.rows(pending.recorded, pending.seen.lives, keys, header.started_at),
            delayed_replies=delayed[0],
            delayed_calls=delayed[1],
            just_answered=self.delayed.just_answered(calls, pending.recorded, header.started_at),
            still_since=still_since,
            apart=self.surroundings.apart((one.loose for one in told), is_followed=self.parties.has_tasks),
            tells_callers=self.parties.tells_callers,
            reserved=dict(self.roster.reserved),
            parts=[payload.part for payload in payloads],
            hosted=tuple(hosted),
            sections=sections_of(payloads),
            life=self.life(),
        )
        if self.raises_inside:
            self.latest[header.number] = collected
            while len(self.latest) > LIMITS.whole_snapshots:
                del self.latest[min(self.latest)]
        return collected

    def condemn(self, number: int, call_id: str, error: DeadlockError) -> str | None:
        """End what this call (its id in snapshot `number`) waits for, in its process; returns why that is not done, or None."""
        from ray_snapshot.instrument.watcher.condemned import condemned

        found = condemned(self.latest[number], call_id)
        if isinstance(found, str):
            return found
        self.tell(found.process, Condemn(number, found.call_id, error))
        return None

    async def settled(self, collected: Any) -> Any:
        """With what Ray tells of nodes behind the cut, if something waits for room on one: asked once for each snapshot."""
        if not isinstance(collected, CollectedCalls) or collected.looks is None:
            return collected
        number = collected.header.number
        if number not in self.rooms:
            self.rooms[number] = asyncio.get_running_loop().create_task(self.surroundings.room())
            while len(self.rooms) > LIMITS.node_looks:
                del self.rooms[min(self.rooms)]
        return replace(collected, looks=Looks(collected.looks.before, await asyncio.shield(self.rooms[number])))

    def _unseen(self, machine: str) -> str:
        """A machine that does not report, for the coverage."""
        return f"{self.roster.name_of(machine)}, which does not report"

    def _mail_of_the_dead(self, number: int) -> list[str]:
        """Processes that may have sent to machines, and were gone only just before this snapshot began."""
        names = self.senders.uncertain(number)
        return [f"mail of {self.roster.name_of(name)}, which is gone" for name in names]

    def _known_actors(self, births: Mapping[str, Mapping[str, Any]]) -> Iterator[str | None]:
        """The keys of actors that have registered, or of whose making a report tells; and ours."""
        yield from (birth["key"] for birth in births.values())
        yield from (facts.get("key") for facts in self.roster.facts.values())
        yield shape.current_actor_key()  # an app may have a Watcher of its own
        yield from map(shape.actor_key, self.directory.actors.values())

    async def _look(self) -> None:
        """While snapshots are pending: hurry them, give them up, and find out which machines have died."""
        while True:
            try:
                await self._look_once(time.time())
            except (RayError, OSError) as error:  # the cluster does not answer: the next look may
                LOGGER.warning(f"ray-snapshot: the watcher could not look: {type(error).__name__}: {error}")
            except Exception as error:
                self.service.course.fault(error)
            await asyncio.sleep(LIMITS.deaths_look_s)

    async def _look_once(self, now: float) -> None:
        if self.rolling.is_rolling:
            await self.rolling.look()
        await self.recovering.look()
        for number, pending in list(self.pending.items()):
            age = now - pending.header.started_at
            if (
                number in self.pending and age > LIMITS.deaths_look_s
            ):  # else it was completed while we looked for the dead
                if age > LIMITS.unheard_s:
                    self._go_without(number)
                await self._find_dead(number)
        await self._forget_blind_workers()
        if self.pending or self.coordinator.last != self.covered_at:
            self.covered_at = self.coordinator.last
            await self._find_stillborn()

    async def _forget_blind_workers(self) -> None:
        """A worker that was not watched, and has ended, acts no more."""
        blind = [machine for machine in self.blind if is_worker(machine)]
        if blind and self.pending:
            living = await asyncio.get_running_loop().run_in_executor(None, task_shape.living_workers)
            for machine in blind:
                if not any(machine.startswith(worker_name(key, 0)[:-1]) for key in living):
                    del self.blind[machine]

    def _go_without(self, number: int) -> None:
        """Complete a snapshot without machines that were called and never reported: actors made by an unwatched
        process, and busy ever since."""
        pending = self.parties.pending.get(number)
        unheard = pending.unheard() - self.directory.places.keys() if pending is not None else ()
        for machine in unheard:
            self.blind[machine] = None
            self.parties.died(machine, "is not watched")
        self._look_at_all()

    async def _find_stillborn(self) -> None:
        """Note the end of actors that died before their constructors began: no process says of them that they are gone."""
        if not self.unborn:
            return
        ended = await asyncio.get_running_loop().run_in_executor(None, shape.ended_actors_of_job)
        for machine, key in self.unborn.items():
            if key in ended and machine not in self.roster.facts and not self.roster.is_dead(machine):
                self.ended(machine)

    async def _find_dead_workers(self, awaited: Iterable[str]) -> None:
        """Note the end of workers that Ray has ended, or that have crashed: no actor's state tells of them."""
        workers = [machine for machine in awaited if is_worker(machine)]
        if not workers:
            return
        living = await asyncio.get_running_loop().run_in_executor(None, task_shape.living_workers)
        for machine in workers:
            if self.roster.facts.get(machine, {}).get("worker") not in living and machine in self.parties.machines:
                self.ended(machine)

    async def _find_dead(self, number: int) -> None:
        pending = self.coordinator.pending.get(number)
        awaited = [] if pending is None else [*pending.calls.awaited]
        await self._find_dead_workers(awaited)
        missing = {} if pending is None else pending.counts.missing
        awaited += [life_of(key[0])[0] for key, left in missing.items() if left > 0]
        for machine in dict.fromkeys(awaited):
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
                    self._no_more_mail_of(machine)
        self._look_at_all()
