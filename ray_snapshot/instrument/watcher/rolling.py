"""The watcher's part in going back: what each process loads, which process is asked for what, and which actors are to
end.

What is decided, `protocol.rollback` decides; this file carries it out: no process loads before all have stopped, and
none goes on before all have loaded. Actors are told apart by the names that people know, so a new run finds those of an
earlier one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import ray
from ray.exceptions import RayError

from ray_snapshot.errors import NotRestorableError, RaySnapshotError, SnapshotTimeoutError
from ray_snapshot.instrument import shape
from ray_snapshot.instrument.process.reloading import RELEASED, Terms
from ray_snapshot.instrument.watcher.dealing import Dealing, Way
from ray_snapshot.instrument.watcher.sections import Section, opened_section
from ray_snapshot.limits import LIMITS
from ray_snapshot.names import DRIVER
from ray_snapshot.protocol.commands import Release, Roll
from ray_snapshot.protocol.rollback import (
    NO_GENERATION,
    Acknowledged,
    Ask,
    Asked,
    BeginGeneration,
    CoordinatorEffect,
    HostFailed,
    HostJoined,
    RollbackAsked,
    RollbackComplete,
    RollbackCoordinator,
    Step,
)
from ray_snapshot.runtime.faults import as_error

if TYPE_CHECKING:
    from ray_snapshot.instrument.watcher.processes import Processes
    from ray_snapshot.instrument.watcher.recovering import Base
    from ray_snapshot.runtime.service.recovery import Target


class Rolling:
    """The restores of one watched app. Everything runs on the watcher's event loop."""

    def __init__(self, processes: Processes, *, keeps: bool) -> None:
        self.processes = processes
        self.keeps = keeps
        self.generation = 0
        """The generation that the app is in, or the last one that a restore has begun."""
        self.loaded = 0
        """The last generation that all processes have entered."""
        self.past = 0
        """A machine that was made before this generation, and has not registered, was made in a past that was given
        up."""
        self.restored_from: str | None = None
        self.handles: dict[str, Any] = {}
        self.lives: dict[str, int] = {}
        self.coordinator: RollbackCoordinator | None = None
        """The coordinator of the rollback, while the app is being rolled back; else None."""
        self.way = Way(is_same_run=False)
        """The one that is under way, or the last one."""
        self._dealing: Dealing | None = None
        self.is_torn = False
        """Whether some processes may have loaded and others have not: none can go on, and no snapshot can be taken."""
        self.turn = asyncio.Lock()
        """Held by the restore that runs: one after the other."""
        self.past_of_program = 0
        """What `past` is for machines that the program has made: they are given up where it restores a snapshot itself."""

    @property
    def is_rolling(self) -> bool:
        """Whether the app is being rolled back, or stands still since that failed."""
        return self.coordinator is not None or self.is_torn

    @property
    def is_recovering(self) -> bool:
        """Whether it is being rolled back because of a death."""
        return self.coordinator is not None and self.way.is_recovery

    # ---- processes ------------------------------------------------------------------------------------------------

    def is_past(self, machine: str, generation: int, *, is_of_program: bool) -> bool:
        """Whether a machine that has not registered was made in a past that has been given up."""
        past = self.past_of_program if is_of_program else self.past
        is_given_up = self.way.is_same_run and not (self.is_recovering and is_of_program)
        is_late = generation < past or (self.is_rolling and is_given_up)
        return is_late and machine not in self.processes.roster.facts

    def joined(self, machine: str, *, is_returning: bool = False) -> Terms:
        """A process has registered; the terms under which it takes part."""
        life = self.lives[machine] = self.lives.get(machine, -1) + 1
        if self.coordinator is not None:
            self.carry_out(self.coordinator.step(HostJoined(machine, life, NO_GENERATION)))
        facts = self.processes.roster.facts
        later = {name: one["incarnation"] for name, one in facts.items() if one["incarnation"]}
        return Terms(
            self.keeps,
            self.loaded,
            life,
            self.is_rolling,
            later,
            self.processes.library_states,
            raises=self.processes.raises_inside,
            recovers=self.processes.recovering.limits is not None,
            is_returning=is_returning,
        )

    # ---- a restore ------------------------------------------------------------------------------------------------

    async def restore(self, target: Target, timeout: float) -> list[str]:
        """Roll the app back; answers when all processes go on, with those actors that the snapshot has not.

        Raises, with nothing changed, `NotRestorableError`, `CheckpointError`; `SnapshotTimeoutError` naming the actors
        that did not stop: then all go on as they were. `MachineFailedError` if an actor does not take its state back.
        """
        deadline = time.monotonic() + timeout
        await _within(deadline, self.turn.acquire(), "another restore to end", timeout)
        try:
            return await self._restore(target, deadline, timeout)
        finally:
            self.way.section = Section()
            self.turn.release()

    async def _restore(self, target: Target, deadline: float, timeout: float) -> list[str]:
        snapshot_id = target.snapshot_id
        await self._handed_over(snapshot_id, deadline)
        try:
            asked = self.processes.analyst.checkpoint_of.remote(snapshot_id)
            checkpoint = await _within(deadline, asked, f"the checkpoint of {snapshot_id}", timeout)
        except SnapshotTimeoutError:
            raise
        except Exception as error:
            raise as_error(error) from None
        section = opened_section(checkpoint.of_actors)
        self.way = way = Way(snapshot_id, target, section, is_same_run=self.way.is_same_run)
        await self._all_there(deadline)
        way.is_same_run = is_same_run = checkpoint.about["run_id"] == self.processes.service.config.run_id
        await self._plan_hosts(int(checkpoint.about.get("life", 0)), deadline, timeout)
        way.who = self._living()
        others = sorted(set(way.who) - {*way.section.states, DRIVER})
        way.unneeded = {way.who[name] for name in others} if is_same_run else set()
        await self._roll(self._begin(), deadline, timeout)
        here = {name: way.who[name] for name in way.section.states}
        self.processes.recovering.restored(snapshot_id, here if is_same_run else None)
        return [] if is_same_run else others

    async def recover(self, base: Base | None, anew: set[str], timeout: float) -> None:
        """Roll the app back, for a process of it has died; `anew`: machines that are to begin anew, though the base has them.

        Raises what `restore` does, with nothing changed; actors that have ended by the app's own will since are left out.
        """
        if base is None:
            what = "there is no snapshot of this run yet that can be gone back to"
            raise NotRestorableError(what, obstacles=[what])
        deadline = time.monotonic() + timeout
        await _within(deadline, self.turn.acquire(), "a restore to end", timeout)
        try:
            section = Section()
            if base.snapshot_id is not None:
                asked = self.processes.analyst.checkpoint_of.remote(base.snapshot_id)
                section = opened_section((await _within(deadline, asked, "the checkpoint", timeout)).of_actors)
            self.way = way = Way(base.snapshot_id, section=section, is_recovery=True)
            await self._still_there(base, deadline)
            while not self.processes.recovering.are_built(others := self._others(base)) and time.monotonic() < deadline:
                await asyncio.sleep(LIMITS.rolling_look_s)
            own, way.unneeded = self.processes.recovering.check(others)
            living = set(self._living().values())
            way.who, way.anew = {**others, **base.machines, DRIVER: DRIVER}, own | (anew & living)
            await self._roll(self._begin(), deadline, timeout)
        finally:
            self.way.section = Section()
            self.turn.release()

    def _others(self, base: Base) -> dict[str, str]:
        """The machines that the base has not, by their names for people."""
        known = {DRIVER, *base.machines.values()}
        return {shown: machine for shown, machine in self._living().items() if machine not in known}

    async def _still_there(self, base: Base, deadline: float) -> None:
        """Wait until each actor of the base has come up, or has ended by the app's own will."""
        for shown, machine in base.machines.items():
            while machine not in self.processes.parties.machines:
                key = self.processes.roster.facts[machine]["key"]
                state, _ = await asyncio.get_running_loop().run_in_executor(None, shape.actor_state, key)
                is_crashed = state == "DEAD" and await _crashed(key)
                if is_crashed or (state != "DEAD" and time.monotonic() > deadline):
                    what = f"{shown} has died, and Ray does not start it again (max_restarts)"
                    raise NotRestorableError(what, obstacles=[what])
                if state == "DEAD":
                    break
                await asyncio.sleep(LIMITS.rolling_look_s)

    async def _plan_hosts(self, life: int, deadline: float, timeout: float) -> None:
        """Find out what becomes of machines of hosts; `life`: which of the systems that have joined the snapshot has."""
        here, way, hosts = self.processes.life(), self.way, self.processes.service.recovery
        obstacle = ""
        if life and not here:
            obstacle = "it has machines, and no system of them is open"
        elif here and not life:
            obstacle = "it has no machines, and a system of them is open"
        elif here != life and way.is_same_run:
            obstacle = "its machines are of a system that was closed"
        elif here:
            assert way.hosts_target is not None
            plan = await _within(deadline, hosts.planned_with(way.hosts_target), "the machines' part", timeout)
            places = self.processes.directory.places
            new = [] if way.is_same_run else sorted(places.keys() - plan.places.keys() - {DRIVER})
            obstacle = f"it has no machines of these names: {', '.join(new[:5])}" if new else ""
        if obstacle:
            raise NotRestorableError(f"snapshot {way.target} cannot be restored: {obstacle}", obstacles=[obstacle])

    async def _roll(self, coordinator: RollbackCoordinator, deadline: float, timeout: float) -> None:
        assert self.way.done is not None
        try:
            async with asyncio.timeout(max(0.1, deadline - time.monotonic())):
                await asyncio.shield(self.way.done)
        except TimeoutError:
            if not self.way.done.done():
                await self._look_at_hosts()
                raise self._given_up(coordinator, timeout) from None
        finally:
            self.coordinator = None  # what comes now is too late: no actor is ended for it, or told to stop again
            if self._has_hosts:
                self.processes.service.recovery.went_back_with(self.loaded)
            if self.loaded != self.generation and not self.is_torn:
                await self._release()

    async def _look_at_hosts(self) -> None:
        """A machine whose action an actor has cut short, for that had stopped already, cannot go on as it was."""
        asked = [actor.is_cut_short.remote() for actor in self.processes.directory.actors.values()]
        with suppress(TimeoutError, RayError):
            async with asyncio.timeout(LIMITS.release_s):
                self.is_torn |= any(await asyncio.gather(*asked))

    async def _release(self) -> None:
        """Give the restore up: no process has loaded anything, and all go on as they were."""
        self.way.released.clear()
        self.processes.tell_all(Release(self.generation))
        deadline = time.monotonic() + LIMITS.release_s
        while self.way.released < set(self.processes.parties.machines) and time.monotonic() < deadline:
            await asyncio.sleep(LIMITS.rolling_look_s)

    async def _handed_over(self, snapshot_id: str, deadline: float) -> None:
        """Answers when the analyst has a snapshot that was completed, or at the deadline."""
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
                await self.processes.collecting.handed_over(snapshot_id)

    def _living(self) -> dict[str, str]:
        """By the name that people know: the machine that lives."""
        return {str(self.processes.roster.facts[name]["shown"]): name for name in self.processes.parties.machines}

    async def _all_there(self, deadline: float) -> None:
        """Wait until every actor of the snapshot has begun: a program that was just started makes them now."""
        await self._notice_deaths()
        while missing := sorted(set(self.way.section.states) - set(self._living())):
            ended = await self._ended(missing)
            if ended or time.monotonic() > deadline:
                what = "not there any more" if ended else "not made by the program"
                text = (
                    f"snapshot {self.way.target} cannot be restored: actors {what}: {', '.join((ended or missing)[:5])}"
                )
                remedy = "make actors of these names, with .options(name=...): they are told apart by their names"
                raise NotRestorableError(f"{text}; {remedy}", obstacles=ended or missing)
            await asyncio.sleep(LIMITS.rolling_look_s)

    async def _ended(self, missing: list[str]) -> list[str]:
        """Those that are dead, and that the program has not made again: another of that name may begin just now."""
        ended = [name for name in missing if self._has_ended(name)]
        made = await asyncio.get_running_loop().run_in_executor(None, shape.names_of_actors) if ended else set()
        return [name for name in ended if name not in made]

    async def _notice_deaths(self) -> None:
        """Ask the cluster which actors of the snapshot are dead: nothing else may have told of it yet."""
        living, loop, facts = self._living(), asyncio.get_running_loop(), self.processes.roster.facts
        keys = {living[name]: facts[living[name]].get("key") for name in self.way.section.states if name in living}
        answers = {
            name: loop.run_in_executor(None, shape.actor_state, key) for name, key in keys.items() if key is not None
        }
        for machine, answer in answers.items():
            state, _ = await answer
            if state == "DEAD" and machine in self.processes.parties.machines:
                self.processes.ended(machine)

    def _has_ended(self, shown: str) -> bool:
        machines = [name for name, facts in self.processes.roster.facts.items() if facts["shown"] == shown]
        return bool(machines) and all(name in self.processes.parties.dead for name in machines)

    def _begin(self) -> RollbackCoordinator:
        coordinator = RollbackCoordinator(last=self.generation)
        for machine in self.processes.parties.machines:
            coordinator.step(HostJoined(machine, self.lives[machine], self.generation))
            coordinator.step(Acknowledged(machine, Step.START, self.generation))
        self.coordinator, self.way.done = coordinator, asyncio.get_running_loop().create_future()
        self.way.done.add_done_callback(lambda future: future.exception())
        if self._has_hosts and self.way.hosts_target is not None:
            self.processes.service.recovery.go_back_with(self, coordinator, self.way.hosts_target)
        self.carry_out(coordinator.step(RollbackAsked(f"rolled back to {self._where}")))
        return coordinator

    @property
    def _has_hosts(self) -> bool:
        """Whether machines of hosts go back with the actors."""
        return self.processes.life() > 0

    def _given_up(self, coordinator: RollbackCoordinator, timeout: float) -> RaySnapshotError:
        """The error that names the processes that did not do a step in time, and says what becomes of the app."""
        reached = coordinator.reached
        behind = coordinator.behind
        hosts, roster = self.processes.directory.actors, self.processes.roster
        told = [
            (name if name in hosts else roster.name_of(name))
            + (f" ({self.way.busy[name]})" if name in self.way.busy else "")
            for name in behind
        ]
        what = f"{', '.join(sorted(told)[:5])} to {Step(reached + 1).name.lower()}"
        text = f"the way back to {self._where} was given up after {timeout:g} s of waiting for {what}"
        return SnapshotTimeoutError(f"{text}; {self._outcome()}", waited_for=what, seconds=timeout)

    @property
    def _where(self) -> str:
        return "the beginning" if self.way.target is None else f"snapshot {self.way.target}"

    def _outcome(self) -> str:
        """What becomes of the app when a restore is given up now."""
        if self.is_torn:
            return "the app stands still: restore again, or end it"
        return "all go on as they were, and calls that were on their way meanwhile have failed with RolledBackError"

    # ---- what happens meanwhile -----------------------------------------------------------------------------------

    def acknowledged(self, machine: str, step: int, generation: int) -> None:
        """A process has done a step."""
        if step == RELEASED:
            self.way.released.add(machine)
        elif self.coordinator is not None:
            self.carry_out(self.coordinator.step(Acknowledged(machine, Step(step), generation)))

    def failed(self, generation: int, error: RaySnapshotError) -> None:
        """A process could not do a step."""
        if self.way.done is not None and not self.way.done.done() and generation == self.generation:
            self.way.done.set_exception(error)

    async def look(self) -> None:
        """Find out which actors have died meanwhile."""
        for machine in list(self.coordinator.done) if self.coordinator is not None else ():
            facts = self.processes.roster.facts.get(machine, {})
            if facts.get("key") is None or self.coordinator is None or machine not in self.coordinator.done:
                continue
            life = self.lives[machine]
            state, restarts = await asyncio.get_running_loop().run_in_executor(None, shape.actor_state, facts["key"])
            is_again = state == "RESTARTING" and restarts > facts["restarts"]
            is_meant = state == "DEAD" and self.way.is_recovery and not await _crashed(facts["key"])
            if (state == "DEAD" or is_again) and life == self.lives[machine] and self.coordinator is not None:
                self._gone(machine, life, is_replaced=is_again, is_meant=is_meant)

    def _gone(self, machine: str, life: int, *, is_replaced: bool, is_meant: bool) -> None:
        """A process has died; what the app ended by its own will (`is_meant`) is left out."""
        assert self.coordinator is not None
        if not is_replaced:
            self.processes.ended(machine)
        if not is_replaced and not is_meant and self.processes.roster.name_of(machine) in self.way.section.states:
            text = f"{self.processes.roster.name_of(machine)} has died; {self._outcome()}"
            self.failed(self.generation, NotRestorableError(text, obstacles=[text]))
            return
        self.carry_out(self.coordinator.step(HostFailed(machine, life, time.monotonic(), is_replaced)))

    # ---- what is done about it ------------------------------------------------------------------------------------

    def carry_out(self, effects: Iterable[CoordinatorEffect]) -> None:
        """Do what the coordinator has decided."""
        for effect in effects:
            match effect:
                case BeginGeneration(generation):
                    self.generation = generation
                    self.way.busy.clear()
                    self.processes.collecting.give_up_all(f"the app is rolled back to {self._where}")
                    if self._has_hosts:
                        self.processes.service.recovery.plan_again()
                        self.way.plan = None
                case Ask(host, step, generation, _) if host in self.processes.directory.actors:
                    is_over = self.loaded == self.generation
                    self.is_torn |= not is_over and step is not Step.START  # who has stopped cannot go on as it was
                    self.processes.service.recovery.ask(effect)
                case Ask(machine, step, generation, life):
                    if generation == self.generation:
                        self._ask(machine, step, life)
                case RollbackComplete():
                    self._complete()

    def _ask(self, machine: str, step: Step, life: int) -> None:
        if step is Step.LOAD and self.way.unneeded:
            generation = self.generation
            self._end_unneeded()
            if self.generation != generation:  # all stop once more, without those
                return
        self.is_torn |= step is Step.LOAD
        if step is Step.LOAD and self._has_hosts and self.way.plan is None:
            self.processes.service.course.background(self._ask_when_planned(machine, self.generation, life))
            return
        share = self.dealing().to_process(machine) if step is Step.LOAD else None
        self.processes.tell(machine, Roll(Asked(step, self.generation, life), share))

    async def _ask_when_planned(self, machine: str, generation: int, life: int) -> None:
        """Ask a process to load when the hosts' part is planned: it says what mail is sent again, and by whom."""
        try:
            plan, share = await self.processes.service.recovery.share_of_driver()
        except asyncio.CancelledError:
            if generation != self.generation:
                return  # another generation has begun, with a plan of its own
            raise
        except RaySnapshotError as error:
            self.failed(generation, error)
            return
        if generation == self.generation and self.coordinator is not None:
            self.way.plan, self.way.post = plan, share
            self.processes.went_back(plan.stopped)  # before any process may ask which machines have stopped
            self._ask(machine, Step.LOAD, life)

    def _end_unneeded(self) -> None:
        """End the actors that were made since the snapshot: all have stopped, and the others go back without them."""
        found, self.way.unneeded = self.way.unneeded, set()
        for machine in found:
            handle = self.handles.pop(machine, None)
            if handle is not None:
                ray.kill(handle)
            self._gone(machine, self.lives[machine], is_replaced=False, is_meant=True)

    def dealing(self) -> Dealing:
        """Deals out what is restored, in this generation."""
        if self._dealing is None or self._dealing.generation != self.generation:
            self._dealing = Dealing(self.processes, self.way, self.handles, self.generation)
        return self._dealing

    def _complete(self) -> None:
        self.loaded, self.restored_from, self.is_torn = self.generation, self.way.target, False
        if self.way.is_same_run:
            self.past = self.generation
        if self.way.is_same_run and not self.way.is_recovery:
            self.past_of_program = self.generation
        if self.way.done is not None and not self.way.done.done():
            self.way.done.set_result(None)


async def _crashed(key: str) -> bool:
    return await asyncio.get_running_loop().run_in_executor(None, shape.has_crashed, key)


async def _within(deadline: float, work: Any, what: str, timeout: float) -> Any:
    """What `work` gives; raises `SnapshotTimeoutError` past the deadline: then nothing is begun."""
    try:
        async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
            return await work
    except TimeoutError:
        text = f"waited {timeout:g} s for {what}"
        raise SnapshotTimeoutError(text, waited_for=what, seconds=timeout) from None
