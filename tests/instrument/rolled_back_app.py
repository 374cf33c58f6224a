"""An app on paper: real processes' machines and a real watcher, and a network that delivers in any order. No Ray in here.

Actors pass tokens. Whatever happens next is drawn: a call arrives, an action sends or ends, a command or a report travels, a
snapshot is asked for, an actor dies and is started again without its tokens, the app goes back.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pytest
from limited import limit

from ray_snapshot.errors import RolledBackError, SnapshotAbortedError
from ray_snapshot.history.checkpoints import Checkpoint
from ray_snapshot.instrument import shape
from ray_snapshot.instrument.process import blocked_threads, recording, reloading
from ray_snapshot.instrument.process import control as controls
from ray_snapshot.instrument.process.journal import Entry
from ray_snapshot.instrument.process.process import Process
from ray_snapshot.instrument.process.reloading import generation_of
from ray_snapshot.instrument.watcher import rolling, surroundings
from ray_snapshot.instrument.watcher.collected import CollectedCalls
from ray_snapshot.instrument.watcher.recovering import Limits
from ray_snapshot.instrument.watcher.watcher import Watcher
from ray_snapshot.names import CALLS, DRIVER
from ray_snapshot.protocol.calls import CallLedger, Header
from ray_snapshot.protocol.commands import ProcessCommand
from ray_snapshot.runtime.service.config import ServiceConfig

SYSTEM = "app:1"
ACTORS = ("A:a", "B:b", "C:c")
TOKENS = 100
MOST_MOVING = 5
BOUND_S = 60.0


class Body:
    def __init__(self) -> None:
        self.tokens = 0


class Answers:
    """What has a method `remote` that is awaited."""

    def __init__(self, work: Any) -> None:
        self.work = work

    def remote(self, *args: Any, **kwargs: Any) -> Any:
        done = asyncio.get_running_loop().create_future()
        done.set_result(self.work(*args, **kwargs))
        return done


class Analyst:
    def __init__(self) -> None:
        self.found: dict[str, CollectedCalls] = {}
        self.add = Answers(self._add)
        self.checkpoint_of = Answers(self._checkpoint_of)
        self.is_kept = Answers(lambda snapshot_id, is_listed: self.found[snapshot_id].snapshot().restorable)
        self.pin = Answers(lambda snapshot_id: None)

    def _add(self, found: Any, place: int) -> None:
        if isinstance(found, CollectedCalls):
            self.found[found.header.snapshot_id] = found

    def _checkpoint_of(self, snapshot_id: str) -> Checkpoint:
        found = self.found[snapshot_id]
        about = {"snapshot_id": snapshot_id, "run_id": found.header.run_id, "sections_of_actors": 1}
        return Checkpoint(about, found.checkpoints)


@dataclass
class Call:
    target: str
    stamp: str
    header: Header
    amount: int


@dataclass
class Action:
    process: Process
    call_id: str
    amount: int


@dataclass
class App:
    seed: int
    deaths: int = 0
    recovers: bool = False
    """Whether it goes back by itself; then the program gives an actor new tokens with each call."""
    given: int = 0
    """Tokens that the program has given."""
    machines: dict[str, Process] = field(default_factory=dict)
    network: list[Call] = field(default_factory=list)
    actions: list[Action] = field(default_factory=list)
    gone: str | None = None
    """The actor that has died, and that nobody but Ray knows to be dead."""
    states: dict[str, tuple[str, int]] = field(default_factory=dict)
    wanted: list[str] = field(default_factory=list)
    """Snapshots that can be gone back to."""
    acting: Process | None = None
    crashed: set[str] = field(default_factory=set)
    """Those of the dead that nobody meant to end."""
    killed: list[Handle] = field(default_factory=list)
    """Actors that the watcher has ended."""

    def __post_init__(self) -> None:
        self.draw = random.Random(self.seed)
        self.analyst = Analyst()
        self.weights = [self.draw.choice([1, 3, 9]) for _ in range(4)]

    @property
    def limits(self) -> Limits | None:
        """When it goes back by itself no more: not for as few deaths as here."""
        return Limits(most_failures=1_000) if self.recovers else None

    async def begin(self) -> None:
        self.watcher = Watcher(
            ServiceConfig("app", "1", CALLS, 8, BOUND_S), self.analyst, keeps=True, limits=self.limits
        )
        self.watcher.processes.looker.cancel()
        self.watcher.processes.surroundings.uncovered = []
        for machine in (DRIVER, *ACTORS):
            await self.join(machine)
        self.machines[ACTORS[0]].body.tokens = TOKENS
        if self.recovers:
            for machine in ACTORS:
                self.machines[machine].reloading.built()

    async def join(self, machine: str, **about: Any) -> None:
        key = None if machine == DRIVER else machine
        facts = {"class": machine[0], "key": key, "pid": 1, "maker": DRIVER, **about}
        stamp = self.machines[DRIVER].stamp if DRIVER in self.machines else SYSTEM
        welcome = await self.watcher.join(stamp, machine, facts, 0)
        assert welcome is not None
        ledger = CallLedger(
            machine,
            incarnation=welcome.incarnation,
            colour=welcome.colour,
            acts_unasked=machine == DRIVER,
            others=welcome.terms.incarnations,
        )
        ledger.welcome(welcome.pending, welcome.last, welcome.settled)
        process = Process(SYSTEM, self.watcher, ledger, {}, welcome.terms)
        if machine != DRIVER:
            process.body = Body()
            await self.watcher.handle_of(machine, [Handle(self, machine)])
        self.machines[machine] = process

    # ---- what may happen next -------------------------------------------------------------------------------------

    async def step(self) -> None:
        (kind,) = self.draw.choices([self.carry, self.deliver, self.act, self.end], self.weights)
        await kind()
        await asyncio.sleep(0)

    async def carry(self) -> None:
        """A command reaches a process, or what it says reaches the watcher."""
        machine = self.draw.choice([name for name in self.machines if name != self.gone])
        process = self.machines[machine]
        if self.draw.random() < 0.5 and not process.control.outbox.empty():
            await self._say(process, process.control.outbox.get())
        await self._hear(machine, process)

    async def carry_all(self, machine: str) -> None:
        """All that a process has to say, and one command that it has been given."""
        process = self.machines[machine]
        while not process.control.outbox.empty():
            await self._say(process, process.control.outbox.get())
        await self._hear(machine, process)

    async def _hear(self, machine: str, process: Process) -> None:
        box = self.watcher.processes.outboxes.boxes.get(machine)
        if box is not None and box.commands:
            box.first += 1
            self._obey(process, box.commands.pop(0))
        for recorded in process.control.ready:
            await self.watcher.recorded(recorded)
        process.control.ready.clear()

    async def _say(self, process: Process, item: tuple[Any, ...]) -> None:
        match item:
            case ("flush soon",):
                await self.watcher.acknowledge(process.take_acks())
            case ("report", recorded):
                await self.watcher.recorded(recorded)
            case ("tell", what, about):
                await getattr(self.watcher, what)(*about)

    def _obey(self, process: Process, command: ProcessCommand) -> None:
        self.acting, process.control.thread = process, threading.current_thread()
        process.obey(command)
        self.acting, process.control.thread = None, threading.Thread()

    async def deliver(self) -> None:
        """A call arrives; it may be of the past, or too early."""
        if not self.network:
            return
        call = self.network.pop(self.draw.randrange(len(self.network)))
        if call.target == self.gone:
            self.lose(call)
            return
        process = self.machines[call.target]
        generation = generation_of(call.stamp, SYSTEM)
        assert generation is not None
        is_busy = any(action.process is process for action in self.actions)
        if is_busy or (process.reloading.is_held and generation >= process.reloading.host.generation):
            self.network.append(call)  # it waits in Ray's queue, or would be held
            return
        try:
            call_id = process.enter(call.header, "move", None, call.stamp)
        except RolledBackError:
            return
        process.body.tokens += call.amount
        self.actions.append(Action(process, call_id, call.amount))

    def lose(self, call: Call) -> None:
        """Its sender reads an error in place of the reply, if its ledger is that of then."""
        sender = self.machines[call.header.source]
        if call.header.incarnation == sender.ledger.incarnation:
            sender.ledger.settle(call.target, call.header.number)

    async def act(self) -> None:
        """An action sends; so does the driver, which has no tokens."""
        action = self.draw.choice(self.actions) if self.actions and self.draw.random() < 0.7 else None
        process = self.machines[DRIVER] if action is None else action.process
        left = 0 if action is None else process.body.tokens
        amount = self.draw.randint(0, max(0, min(left, 20)))
        if action is None and len(self.network) > MOST_MOVING:
            return
        target = self.draw.choice(ACTORS)
        if action is None and self.recovers:
            self.give(process, target)
        else:
            self.send(process, target, amount)

    def give(self, program: Process, target: str) -> None:
        """The program gives an actor a token of its own; nothing while it is held."""
        if program.reloading.is_held or program.journal is None:
            return
        self.given += 1
        self.make(program, program.journal.entry(Handle(self, target), "move", (1,), {}, {}), target, 1)

    def make(self, program: Process, entry: Entry, target: str, amount: int) -> None:
        """A call of the program's, for the first time or again."""
        header, stamp = program.submit(target, "move", (amount,), False, (), entry=entry)
        self.network.append(Call(target, stamp, header, amount))
        program.made(entry, None)

    def make_again(self, handle: Handle, method: str, args: Any, kwargs: Any, options: Any) -> None:
        program = self.machines[DRIVER]
        assert program.journal is not None
        self.make(program, program.journal.entry(handle, method, args, kwargs, options), handle.machine, *args)

    def send(self, process: Process, target: str, amount: int) -> None:
        """Make a call; nothing is sent while that is refused."""
        try:
            process.reloading.check_sending()
        except RolledBackError:
            return
        if process.body is not None and self.acting is None:
            process.body.tokens -= amount
        header, stamp = process.submit(target, "move", (amount,), False, ())
        self.network.append(Call(target, stamp, header, amount))

    async def end(self) -> None:
        if self.actions:
            action = self.actions.pop(self.draw.randrange(len(self.actions)))
            action.process.leave(action.call_id)

    async def snapshot(self) -> None:
        with suppress(SnapshotAbortedError):  # it goes back just now
            await self.watcher.snapshot([], BOUND_S, wait=False)

    async def die(self) -> None:
        """An actor is gone with its tokens, and started again without."""
        machine = self.draw.choice(ACTORS)
        self.actions = [action for action in self.actions if action.process is not self.machines[machine]]
        if self.recovers:
            self.gone = machine
            for _ in range(self.draw.choice([0, 10, 60])):
                await self.step()
            self.gone = None
        self.states[machine] = "RESTARTING", self.states.get(machine, ("", 0))[1] + 1
        if self.draw.random() < 0.5:
            await self.watcher.processes._look_once(0.0)
        self.states[machine] = "ALIVE", self.states[machine][1]
        await self.join(machine)
        if self.recovers:
            self.machines[machine].body.tokens = TOKENS if machine == ACTORS[0] else 0
            for _ in range(self.draw.randrange(4)):
                await self.step()
            self.machines[machine].reloading.built()

    # ---- the whole ------------------------------------------------------------------------------------------------

    async def run(self, steps: int) -> None:
        for number in range(steps):
            if number % 15 == 0:
                await self.snapshot()
            await self.step()

    async def quiet(self) -> None:
        for _ in range(20_000):
            await self.draw.choice([self.carry, self.deliver, self.end])()
            await asyncio.sleep(0)
            if not (self.network or self.actions or self.watcher.collecting.collections or self._is_busy()):
                return
        raise AssertionError("it does not become quiet")

    def _is_busy(self) -> bool:
        return any(
            self.watcher.processes.outboxes.boxes[machine].commands or not process.control.outbox.empty()
            for machine, process in self.machines.items()
        )

    async def go_back(self, snapshot_id: str) -> None:
        """Restore, while whatever can happen happens; some of them die meanwhile."""
        for _ in range(50):  # some of them are inside an action
            await self.draw.choice([self.act, self.deliver])()
        task = asyncio.get_running_loop().create_task(self.watcher.go_back(snapshot_id, BOUND_S))
        deaths, rolling = self.deaths, self.watcher.processes.rolling
        before = rolling.loaded
        while not task.done():
            if (
                deaths and rolling.loaded == before and self.draw.random() < 0.05
            ):  # what dies later takes its tokens with it
                deaths -= 1
                await self.die()
            await self.step()
        task.result()

    def tokens(self) -> int:
        bodies = sum(process.body.tokens for process in self.machines.values() if process.body is not None)
        return bodies + sum(call.amount for call in self.network)


@dataclass
class Handle:
    """What stands for an actor where a call is made again."""

    app: App
    machine: str

    @property
    def move(self) -> Any:
        return self

    def remote(self, amount: int) -> None:
        assert self.app.acting is not None
        self.app.send(self.app.acting, self.machine, amount)


def played(app: App, story: Callable[..., Awaitable[Any]], *given: Any, patch: pytest.MonkeyPatch | None = None) -> Any:
    with pytest.MonkeyPatch.context() as own:
        on_paper(patch or own, app)
        return asyncio.run(asyncio.wait_for(story(app, *given), 2 * BOUND_S))


def on_paper(patch: pytest.MonkeyPatch, app: App) -> None:
    """Nothing here starts a thread, asks Ray, or waits for the time."""
    patch.setattr(controls.Control, "start", lambda _: None)
    patch.setattr(shape, "actor_state", lambda key: app.states.get(key, ("ALIVE", 0)))
    patch.setattr(shape, "names_of_actors", set)
    patch.setattr(shape, "actors_of_job", lambda: ({}, {}))
    patch.setattr(shape, "ended_actors_of_job", set)
    patch.setattr(shape, "current_actor_key", lambda: "the watcher's")
    patch.setattr(shape, "actor_key", lambda handle: "a host's")
    patch.setattr(surroundings, "living_nodes", dict)
    looks = ("deaths_look_s", "heard_s", "heard_look_s", "rolling_look_s", "recovering_look_s")
    limit(patch, **dict.fromkeys(looks, 0.0))
    patch.setattr(rolling.ray, "kill", app.killed.append)
    patch.setattr(shape, "has_crashed", app.crashed.__contains__)
    patch.setattr(shape, "ids_in_use", set)
    patch.setattr(shape, "call_again", app.make_again)
    patch.setattr(recording, "own_threads", tuple)
    patch.setattr(blocked_threads, "unlisted", lambda _: [])  # those of whatever runs the tests are not the app's
    patch.setattr(reloading, "own_threads", tuple)
    patch.setattr(reloading.Reloading, "_look", lambda *_: None)
    patch.setattr(reloading.Reloading, "_begin_load", reloading.Reloading.load)
