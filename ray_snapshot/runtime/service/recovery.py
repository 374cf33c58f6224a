"""The service's part in going back: generations, which process is asked for what, and hosts in place of those that
died.

What is decided, `protocol.rollback` decides; this file carries it out. The whole system has one generation; no process
loads before all have stopped, and none goes on before all have loaded. What each loads is planned before any process
loads. For a restore that the program asked for, it is planned even before any process stops, so that a damaged
checkpoint costs nothing.
"""

from __future__ import annotations

import asyncio
import pickle
import time
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from ray.exceptions import RayActorError, RayError

from ray_snapshot.errors import HostDiedError, NotRestorableError, RaySnapshotError, RolledBackError
from ray_snapshot.limits import LIMITS
from ray_snapshot.names import DRIVER
from ray_snapshot.protocol.commands import Replace, Roll, Secure, Seek
from ray_snapshot.protocol.recovery_line import Agreement, KeptSnapshot, ServiceLine
from ray_snapshot.protocol.rollback import (
    NO_GENERATION,
    Acknowledged,
    Ask,
    Asked,
    BeginGeneration,
    CoordinatorEffect,
    GiveUp,
    HostFailed,
    HostJoined,
    RollbackAsked,
    RollbackComplete,
    RollbackCoordinator,
    Step,
)
from ray_snapshot.runtime.driver.memory import GENERATIONS, Recollection
from ray_snapshot.runtime.faults import as_error, first_line
from ray_snapshot.runtime.planning import Ground, Plan, Share

if TYPE_CHECKING:
    from ray_snapshot.protocol.coordinator import Coordinator
    from ray_snapshot.runtime.collected import SnapshotHeader
    from ray_snapshot.runtime.host.config import HostConfig
    from ray_snapshot.runtime.planning import Again
    from ray_snapshot.runtime.service.config import ServiceConfig
    from ray_snapshot.runtime.service.course import Course
    from ray_snapshot.runtime.service.directory import Directory
    from ray_snapshot.runtime.service.handing_over import HandOver
    from ray_snapshot.runtime.service.orders import Orders


@dataclass(slots=True)
class Target:
    """What the system is being rolled back to."""

    snapshot_id: str
    claimed: dict[str, str] = field(default_factory=dict)
    classes: dict[str, tuple[str, bytes]] = field(default_factory=dict)


class Events(Protocol):
    """What a rollback does to the rest of the service; `Service` says what each does."""

    async def gone(self, host: str, reason: str, incarnation: int) -> None: ...
    async def fail(self, error: RaySnapshotError, generation: int | None = None) -> None: ...
    def give_up_all(self, reason: str) -> None: ...
    async def handed_over(self, snapshot_id: str) -> None: ...


class Wider(Protocol):
    """A rollback that processes of watched actors take part in, too: one coordinator for all (`watcher.rolling`)."""

    def carry_out(self, effects: Iterable[CoordinatorEffect]) -> None:
        """Do what the coordinator has decided; of hosts, `Recovery.ask` does it."""

    def failed(self, generation: int, error: RaySnapshotError) -> None:
        """A host could not do a step."""


def admit(coordinator: RollbackCoordinator, party: str, incarnation: int) -> None:
    """A party takes part that is there, and has nothing to load."""
    coordinator.step(HostJoined(party, incarnation, coordinator.generation))
    coordinator.step(Acknowledged(party, Step.START, coordinator.generation))


@dataclass(eq=False)
class Recovery:
    """The rollbacks of one system. Everything runs on the service's event loop."""

    config: ServiceConfig
    course: Course
    directory: Directory
    orders: Orders
    snapshots: Coordinator
    handing: HandOver
    events: Events
    births: dict[str, tuple[HostConfig, dict[str, Any]]] = field(default_factory=dict)
    target: Target | None = None
    """What is being restored because the program asked for it."""
    base: Target | None = None
    """What to go back to when a host dies: the driver has made sure that it is kept, whichever process dies."""
    line: ServiceLine = field(default_factory=ServiceLine)
    """Decides when `base` moves on to a later snapshot, and knows its number."""
    target_number: int = 0
    held: dict[str, bool] = field(default_factory=dict)
    """By snapshot that is to be restored: whether the driver holds a copy, if it needs one."""
    plan: asyncio.Task[Plan] | None = None
    restored_from: str | None = None
    done: asyncio.Future[None] | None = None
    cause: HostDiedError | None = None
    """The last host that was lost."""
    wider: Wider | None = None
    """The rollback that is under way, if others than hosts take part; the driver is one of these."""
    given_up: int = 0
    """The last generation in which others took part; a later one than that of all, if it was given up."""
    abroad: Callable[[str, Plan], Again | None] = lambda host, plan: None  # noqa: ARG005
    """What a host has to know of watched actors, for its share."""

    def __post_init__(self) -> None:
        self.begin()

    def begin(self, generation: int = 0) -> None:
        """There are no hosts yet, or no more; the driver goes."""
        config, self.wider, self.target = self.config, None, None
        self.coordinator = RollbackCoordinator(
            last=generation, most_failures=config.most_failures, within_s=config.failures_within
        )
        admit(self.coordinator, DRIVER, 0)

    # ---- beside watched actors ------------------------------------------------------------------------------------

    def go_back_with(self, wider: Wider, coordinator: RollbackCoordinator, target: Target) -> None:
        """Hosts take part in a rollback of others; what they are to load is planned when its generation begins."""
        coordinator.last_to_stop.update(self.directory.actors)
        for host in self.directory.actors:
            admit(coordinator, host, self.incarnation(host))
        self.coordinator, self.wider, self.target = coordinator, wider, target

    def went_back_with(self, generation: int) -> None:
        """That has ended, or was given up; `generation`: that all are in now."""
        incarnations = {host: self.incarnation(host) for host in self.directory.actors}
        self.given_up = self.generation
        if generation == self.generation and self.target is not None:
            self.restored_from = self.target.snapshot_id
        self.begin(generation)
        for host, incarnation in incarnations.items():
            admit(self.coordinator, host, incarnation)
        self.course.background(self.course.notify())

    def plan_again(self) -> None:
        """A generation has begun: deal out what is restored."""
        self._plan(self.target)

    async def share_of_driver(self) -> tuple[Plan, bytes]:
        """The plan, and what the driver's part loads."""
        share = await self._share(Ask(DRIVER, Step.LOAD, self.generation, 0))
        assert self.plan is not None
        return await self.plan, share

    def ask(self, effect: Ask) -> None:
        """Ask a host for a step."""
        self.course.background(self._ask(effect))

    @property
    def generation(self) -> int:
        """The generation of the whole system."""
        return self.coordinator.generation

    @property
    def is_rolling(self) -> bool:
        """Whether a rollback is under way."""
        return not self.coordinator.is_running

    def incarnation(self, host: str) -> int:
        """Which life of a host this is."""
        return self.coordinator.incarnations.get(host, 0)

    def check(self, generation: int) -> None:
        """Raise `RolledBackError` if the process that asks is of an older generation."""
        if generation != self.generation:
            raise RolledBackError(
                "the system was rolled back while this was asked for: ask again", snapshot_id=self.restored_from
            )

    def resume(self, found: Recollection) -> None:
        """The service before this one has died: the whole system goes back to the last snapshot that the driver knows
        of."""
        config = self.config
        self.coordinator = RollbackCoordinator(
            last=found.life * GENERATIONS, most_failures=config.most_failures, within_s=config.failures_within
        )
        for host in (DRIVER, *found.actors):  # none is asked for anything as it joins here: all will be, in a moment
            self.coordinator.step(HostJoined(host, found.incarnations.get(host, 0), self.generation))
        self.births = dict(found.births)
        self.base = Target(found.base.snapshot_id, found.claimed, found.classes)
        self.line.went_back(found.base.snapshot_id, found.base.number)
        text = f"the service of system {config.system} has died"
        self.cause = HostDiedError(text, host="service", machines=[])
        self._carry_out(self.coordinator.step(RollbackAsked(text)))

    # ---- what happens ---------------------------------------------------------------------------------------------

    def joined(self, host: str, config: HostConfig | None, options: dict[str, Any]) -> None:
        """The driver has made a host."""
        if config is not None:
            self.births[host] = config, options
        generation = self.generation if config is None else config.generation
        if self.wider is not None:
            self.coordinator.last_to_stop.add(host)
        self._carry_out(self.coordinator.step(HostJoined(host, 0, generation)))

    def acknowledged(self, host: str, step: int, generation: int) -> None:
        """A host has done a step; what it was asked for before all was given up counts for nothing."""
        if not self.generation < generation <= self.given_up:
            self._carry_out(self.coordinator.step(Acknowledged(host, Step(step), generation)))

    def lost(self, host: str, incarnation: int, error: HostDiedError) -> bool:
        """A host is gone; whether the system goes back by itself."""
        if not self.config.recover or host not in self.births:
            return False
        if self.base is None and self.target is None:
            return False
        self.cause = error
        effects = self.coordinator.step(HostFailed(host, incarnation, time.monotonic()))
        if any(isinstance(effect, BeginGeneration) for effect in effects):
            self._replace(host)
        self._carry_out(effects)
        return True

    async def note(self, header: SnapshotHeader, is_kept: bool) -> bool:
        """A snapshot has been completed; returns whether it is kept, and the system will not go back behind it by
        itself.

        With `recover` that is so as soon as the driver says so: then the snapshot survives the death of any process.
        One that is overtaken by the next counts as kept, too.
        """
        if not is_kept or header.generation != self.generation or self.is_rolling:
            return False
        if not self.config.recover:
            return True
        if (outcome := self._outcome(header)) is None:
            self.orders.to_driver(Secure(header.number, header.snapshot_id))
            await self.course.notify()
        while outcome is None and self.course.failure is None and not self.course.is_closing:
            await self.course.change(LIMITS.recovery_look_s)
            outcome = self._outcome(header)
        return outcome is True

    def _outcome(self, header: SnapshotHeader) -> bool | None:
        return self.line.outcome(header.number, header.generation, self.generation, is_rolling=self.is_rolling)

    def secured(self, snapshot_id: str, number: int, generation: int, *, is_safe: bool) -> bool:
        """The driver has secured a kept snapshot, or has lost it; returns whether the system will not go back behind it
        now.

        False if a rollback has begun: then the driver must not forget what it has sent before the snapshot.
        """
        found = KeptSnapshot(number, snapshot_id, generation)
        agreement = self.line.secured(found, self.generation, is_rolling=self.is_rolling, is_safe=is_safe)
        if agreement is Agreement.MOVED:
            self.base = Target(snapshot_id)
            self.coordinator.kept()
            self._pin(snapshot_id)
        return agreement.is_agreed

    def _pin(self, snapshot_id: str) -> None:
        """The analyst must not let go of what is gone back to, however much comes after it."""
        self.handing.analyst.pin.remote(snapshot_id)

    async def recoverable(self, snapshot_id: str, timeout: float) -> None:
        """Answers when the system can go back to this snapshot."""
        deadline = time.monotonic() + timeout
        while self.base is None:
            if not await self.course.change(deadline - time.monotonic()):
                raise NotRestorableError(f"snapshot {snapshot_id} was not kept within {timeout:g} s", obstacles=[])

    async def restore(self, snapshot_id: str, claimed: dict[str, str], classes: dict[str, tuple[str, bytes]]) -> None:
        """Roll back to a snapshot; answers when all processes go on. If it cannot be restored, raises before any
        stops."""
        while self.is_rolling:
            await self.course.change(1.0)
            self.course.check()
        target = Target(snapshot_id, claimed, classes)
        await self.events.handed_over(snapshot_id)
        plan = await self.planned_with(target)
        if self.config.recover and not await self._held(plan):
            await self.planned_with(target)  # raises if it was lost with an analyst; else another history has it
        self.target = target
        self.done = asyncio.get_running_loop().create_future()
        self._carry_out(self.coordinator.step(RollbackAsked(f"rolled back to snapshot {snapshot_id}")))
        await self.done

    async def _held(self, plan: Plan) -> bool:
        """Answers once the driver has tried to make sure that the snapshot survives any death; returns whether it
        could."""
        self.held.pop(plan.snapshot_id, None)
        self.orders.to_driver(Seek(plan.number if plan.is_same_run else 0, plan.snapshot_id))
        await self.course.notify()
        while plan.snapshot_id not in self.held:
            await self.course.change(LIMITS.recovery_look_s)
            self.course.check()
        return self.held[plan.snapshot_id]  # it stays: another call may want the same one restored

    def failed(self, error: RaySnapshotError) -> None:
        """The system has failed: the call that waits for the rollback gets the error."""
        if self.wider is not None:
            self.wider.failed(self.generation, error)
        if self.done is not None and not self.done.done():
            self.done.set_exception(error)
            self.done.exception()

    # ---- what is done about it ------------------------------------------------------------------------------------

    def _carry_out(self, effects: Iterable[CoordinatorEffect]) -> None:
        if self.wider is not None:
            self.wider.carry_out(effects)
            return
        for effect in effects:
            match effect:
                case BeginGeneration(generation, reason):
                    self._begin(generation, reason)
                case Ask():
                    self.course.background(self._ask(effect))
                case RollbackComplete():
                    self._complete()
                case GiveUp(reason):
                    self.course.background(self._give_up(reason))

    def _begin(self, generation: int, reason: str) -> None:
        self.events.give_up_all(f"the system is rolled back: {reason}")
        self._plan(self.target or self.base)
        self.course.background(self._bounded(generation))

    def _plan(self, target: Target | None) -> None:
        assert target is not None
        if self.plan is not None:
            self.plan.cancel()
        self.plan = asyncio.get_running_loop().create_task(self.planned_with(target))

    async def planned_with(self, target: Target) -> Plan:
        """The plan for a snapshot; raises what there is against it."""
        directory, handing = self.directory, self.handing
        ground = Ground(
            self.config.run_id,
            tuple(directory.actors),
            target.claimed,
            target.classes,
            tuple(directory.declared),
            tuple(directory.awaited),
            self.snapshots.last,
        )
        while True:
            session = handing.session
            try:
                found: Plan = await handing.analyst.plan.remote(target.snapshot_id, ground)
                return found
            except RayActorError as error:
                if not self.config.recover:
                    raise as_error(error) from None
                await handing.another(session)
            except RayError as error:
                raise as_error(error) from None

    async def _bounded(self, generation: int) -> None:
        """No rollback may take for ever."""
        seconds = self.config.start_timeout
        await asyncio.sleep(seconds)
        if self.is_rolling and self.generation == generation:
            behind = self.coordinator.behind
            step = Step(self.coordinator.reached + 1).name.lower()
            await self._give_up(f"{', '.join(behind[:3])} did not {step} within {seconds:g} s")

    async def _ask(self, ask: Ask) -> None:
        try:
            share = await self._share(ask) if ask.step is Step.LOAD else None
        except asyncio.CancelledError:
            if ask.generation != self.generation:
                return  # another generation has begun, with a plan of its own
            raise
        except RaySnapshotError as error:
            await self._could_not(error, ask.generation, self._give_up(str(error)))
            return
        if ask.generation != self.generation:
            return
        if ask.host == DRIVER:
            self.orders.to_driver(Roll(Asked(ask.step, ask.generation), share))
            await self.course.notify()
            return
        actor = self.directory.actors[ask.host]
        try:
            done = await actor.roll.remote(int(ask.step), ask.generation, ask.incarnation, share)
        except RayActorError as error:
            await self.events.gone(ask.host, first_line(error), ask.incarnation)
            return
        except Exception as error:  # a state that is not taken back, most likely
            await self._could_not(as_error(error), ask.generation, self.events.fail(as_error(error), ask.generation))
            return
        for step in done:
            self.acknowledged(ask.host, step, ask.generation)

    async def _could_not(self, error: RaySnapshotError, generation: int, otherwise: Coroutine[Any, Any, None]) -> None:
        """A host could not do a step: `otherwise` the whole system fails, or gives up."""
        if self.wider is None and generation == self.generation:
            await otherwise
            return
        otherwise.close()
        if self.wider is not None:
            self.wider.failed(generation, error)

    async def _share(self, ask: Ask) -> bytes:
        """What a host is to load: its part of the plan, or nothing, if it was made when the plan had been made already."""
        assert self.plan is not None
        plan = await self.plan
        if ask.generation == self.generation and self.is_rolling:
            self.directory.places = {DRIVER: DRIVER, **plan.places}
        share = plan.shares.get(ask.host) or pickle.dumps(Share(last=self.snapshots.last), protocol=5)
        if ask.host != DRIVER and (abroad := self.abroad(ask.host, plan)) is not None:
            with_abroad: Share = pickle.loads(share)
            with_abroad.abroad = abroad
            return pickle.dumps(with_abroad, protocol=5)
        if ask.host == DRIVER:
            opened: Share = pickle.loads(share)
            opened.actors = {host: [actor] for host, actor in self.directory.actors.items()}
            opened.snapshot_id, opened.number = plan.snapshot_id, plan.number if plan.is_same_run else 0
            self.target_number = opened.number
            if self.target is None:
                opened.again_from = opened.number
            return pickle.dumps(opened, protocol=5)
        return share

    def _complete(self) -> None:
        target = self.target or self.base
        assert target is not None
        if self.target is not None:
            self.line.went_back(target.snapshot_id, self.target_number)
        self.base, self.target = target, None
        self.restored_from = target.snapshot_id
        self._pin(target.snapshot_id)
        if self.done is not None and not self.done.done():
            self.done.set_result(None)
        self.course.background(self.course.notify())

    def _replace(self, host: str) -> None:
        """Another process is to take the place of one that is gone: the driver makes it, or it would die with this service."""
        self.orders.to_driver(Replace(host, self.coordinator.incarnations[host] + 1))
        self.course.background(self.course.notify())

    def replaced(self, host: str, incarnation: int) -> None:
        """The driver has started a process in the place of a host that is gone."""
        self._carry_out(self.coordinator.step(HostJoined(host, incarnation, NO_GENERATION)))

    async def _give_up(self, reason: str) -> None:
        told = self.cause
        if told is None:
            await self.events.fail(
                NotRestorableError(f"the system could not be rolled back: {reason}", obstacles=[reason])
            )
        else:
            text = f"{told}; the system was not rolled back again: {reason}"
            await self.events.fail(HostDiedError(text, host=told.host, machines=told.machines))
