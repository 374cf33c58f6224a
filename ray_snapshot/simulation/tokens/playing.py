"""The runs of `ray-snapshot simulate`: an events file by seed, a schedule to the letter, or every order there is.

Imports the standard library only.
"""

from __future__ import annotations

import pickle
import random
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from operator import methodcaller

from ray_snapshot.errors import SettingError
from ray_snapshot.protocol.choosing import CHANDY_LAMPORT
from ray_snapshot.simulation.tokens.scripts import (
    Ask,
    Deliver,
    Operation,
    Script,
    SendTokens,
    StartSnapshot,
    Tick,
    Topology,
    fail,
)
from ray_snapshot.simulation.tokens.system import Result, TokenSystem, amount, message_number

LONGEST_DELAY = 5
"""In ticks; the shortest is 1."""

MOST_STATES = 20_000


@dataclass(slots=True)
class Row:
    """One line of the listing: when, what, and how many tokens each machine has after it."""

    tick: int
    text: str
    tokens: tuple[int, ...]


@dataclass(slots=True)
class Play:
    """One run over a topology."""

    system: TokenSystem
    script: Script
    unit: str = "tick"
    """What `now` counts."""
    now: int = 0
    rows: list[Row] = field(default_factory=list)

    def tell(self, text: str) -> None:
        """Add a line to the listing."""
        self.rows.append(Row(self.now, text, tuple(self.system.tokens.values())))

    def send(self, operation: SendTokens) -> None:
        """A machine sends; raises `ScriptError` if it has too few tokens."""
        try:
            self.system.send(operation.source, operation.target, operation.tokens)
        except ValueError as error:
            fail(self.script.path, operation.line, str(error))
        self.tell(f"{operation.source} sends {amount(operation.tokens)} to {operation.target}")

    def start(self, operation: StartSnapshot) -> None:
        """A snapshot begins."""
        number = self.system.snapshot(*operation.machines)
        one = len(operation.machines) == 1
        verbs = "starts and records" if one else "start and record"
        self.tell(f"{', '.join(operation.machines)} {verbs} snapshot {number}")

    def deliver(self, source: str, target: str) -> None:
        """The head of a channel is delivered."""
        told = self.system.deliver(source, target)
        self.tell(f"{source} -> {target} delivers {told}")

    def ask(self, observer: str, machine: str) -> None:
        """A request of the observer arrives."""
        told = self.system.ask(observer, machine)
        self.tell(f"{observer} asks {machine}: {told}")


def play_events(topology: Topology, script: Script, seed: int, protocol: str = CHANDY_LAMPORT) -> Play:
    """An events file: each message and marker waits 1 to 5 ticks, by `seed`, and never overtakes on its channel.

    Behind the last line time goes on until every channel is empty; by then every snapshot is complete.
    """
    play = Play(TokenSystem(topology, protocol), script)
    delays = _Delays(play, seed)
    for operation in script.operations:
        match operation:
            case SendTokens(_, source):
                play.send(operation)
                delays.draw(source)
            case StartSnapshot(_, machines):
                play.start(operation)
                for machine in machines:
                    delays.draw(machine)
            case Tick(_, count):
                delays.wait(count)
    while not play.system.is_quiet:  # ends: a snapshot puts one marker on each channel, and nobody sends any more
        delays.wait(1)
    return play


class _Delays:
    """When the items of each channel may be delivered.

    The delay of a message follows from the seed, its channel and its number there, so that it is the same under every protocol.
    Markers, barriers and requests have a random stream of their own.
    """

    def __init__(self, play: Play, seed: int) -> None:
        self.play = play
        self.seed = seed
        self.control = random.Random(f"{seed} control")
        self.due: dict[tuple[str, str], dict[int, int]] = {channel: {} for channel in play.system.channels}
        """Per channel: the item by its number on the link, for a barrier may come in front of others, to its tick."""
        self.asked: dict[tuple[str, str], deque[int]] = {}

    def draw(self, source: str) -> None:
        """Give every new message, marker and request of a machine its delay."""
        for channel in self.play.system.outputs[source]:
            due, queue = self.due[channel], self.play.system.channels[channel]
            new = (batch for batch in reversed(queue) if batch[1] not in due)
            for batch in islice(new, len(queue) - len(due)):  # mostly the last one: no need to look at all
                due[batch[1]] = self.play.now + self._delay(channel, message_number(batch))
        for key, numbers in self.play.system.asks.items():
            asked = self.asked.setdefault(key, deque())
            while len(asked) < len(numbers):
                asked.append(self.play.now + self._delay(key, None))

    def _delay(self, channel: tuple[str, str], number: int | None) -> int:
        """That of message `number`, or of a control message."""
        own = None if number is None else random.Random(" ".join((str(self.seed), *channel, str(number))))
        return (own or self.control).randint(1, LONGEST_DELAY)

    def wait(self, count: int) -> None:
        """Ticks pass; those in which nothing is due are skipped."""
        end = self.play.now + count
        while self.play.now < end:
            self.play.now = min(end, max(self.play.now + 1, self._next(end)))
            self._tick()

    def _next(self, end: int) -> int:
        """When the next item is due; `end` if nothing is."""
        heads = [when for channel in self.due if (when := self._head(channel)) is not None]
        asked = [due[0] for due in self.asked.values() if due]
        return min([end, *heads, *asked])

    def _tick(self) -> None:
        """What is due now is delivered, if it is at the head of its channel."""
        for channel, due in self.due.items():
            while (when := self._head(channel)) is not None and when <= self.play.now:
                del due[self.play.system.channels[channel][0][1]]
                self.play.deliver(*channel)
                self.draw(channel[1])
        for key, asked in self.asked.items():
            while asked and asked[0] <= self.play.now:
                asked.popleft()
                self.play.ask(*key)
                self.draw(key[1])

    def _head(self, channel: tuple[str, str]) -> int | None:
        """When the wait of a channel's head is over; None if the channel is empty."""
        queue = self.play.system.channels[channel]
        return self.due[channel][queue[0][1]] if queue else None


def play_schedule(topology: Topology, script: Script, protocol: str = CHANDY_LAMPORT) -> Play:
    """A schedule, to the letter; behind its last line nothing more is delivered."""
    play = Play(TokenSystem(topology, protocol), script, unit="step")
    for play.now, operation in enumerate(script.operations, 1):
        match operation:
            case SendTokens():
                play.send(operation)
            case StartSnapshot():
                play.start(operation)
            case Deliver(line, source, target):
                if not play.system.channels[source, target]:
                    fail(script.path, line, f"nothing to deliver: the channel from {source} to {target} is empty")
                play.deliver(source, target)
            case Ask(line, source, target):
                if not play.system.asks.get((source, target)):
                    fail(script.path, line, f"nothing to deliver: no request of {source} is on its way to {target}")
                play.ask(source, target)
    return play


@dataclass(slots=True)
class Exhausted:
    """What came of every order of deliveries."""

    states: int = 0
    ends: int = 0
    results: dict[Hashable, Result] = field(default_factory=dict)
    """Every distinct snapshot."""

    @property
    def is_consistent(self) -> bool:
        """Whether the oracle found every one to be a consistent cut, and as the run was."""
        return all(result.is_consistent for result in self.results.values())


def play_every_order(
    topology: Topology,
    script: Script,
    protocol: str = CHANDY_LAMPORT,
    *,
    most: int = MOST_STATES,
    tell: Callable[[int], None] = lambda _: None,
) -> Exhausted:
    """The script's sends and snapshots in their order, and between them every order of deliveries; ticks mean nothing.

    A send waits until its machine has the tokens. `tell` hears of the number of each state.
    Raises `SettingError` if there are more than `most` distinct states,
    `ScriptError` if in some order a send never has its tokens.
    """
    found = Exhausted()
    operations: list[Operation] = [operation for operation in script.operations if not isinstance(operation, Tick)]
    stack = [(0, TokenSystem(topology, protocol))]
    seen: set[Hashable] = {(0, stack[0][1].fingerprint())}
    while stack:
        place, system = stack.pop()
        found.states += 1
        if found.states > most:
            raise SettingError(
                f"{script.path}: more than {most:,} states: --exhaustive is for small scripts;"
                " shorten it, try seeds instead, or give --most-states"
            )
        tell(found.states)
        following = list(_following(place, system, operations))
        for after in following:
            mark = after[0], after[1].fingerprint()
            if mark not in seen:
                seen.add(mark)
                stack.append(after)
        if not following:
            _end(found, script, operations[place:], system)
    return found


def _following(place: int, system: TokenSystem, operations: list[Operation]) -> Iterator[tuple[int, TokenSystem]]:
    steps = list(_steps(place, system, operations))
    saved = pickle.dumps(system, pickle.HIGHEST_PROTOCOL) if len(steps) > 1 else b""
    for index, (next_place, step) in enumerate(steps):
        is_last = index == len(steps) - 1  # nobody needs the system itself any more
        after: TokenSystem = system if is_last else pickle.loads(saved)
        step(after)
        yield next_place, after


def _steps(
    place: int, system: TokenSystem, operations: list[Operation]
) -> Iterator[tuple[int, Callable[[TokenSystem], object]]]:
    """What may happen next: the place in the script behind it, and what it does to a system."""
    if place < len(operations):
        operation = operations[place]
        if isinstance(operation, StartSnapshot):
            yield place + 1, methodcaller("snapshot", *operation.machines)
        elif isinstance(operation, SendTokens) and operation.tokens <= system.tokens[operation.source]:
            yield place + 1, methodcaller("send", operation.source, operation.target, operation.tokens)
    for channel, queue in system.channels.items():
        if queue:
            yield place, methodcaller("deliver", *channel)
    for key, numbers in system.asks.items():
        if numbers:
            yield place, methodcaller("ask", *key)


def _end(found: Exhausted, script: Script, left: list[Operation], system: TokenSystem) -> None:
    if left:
        operation = left[0]
        assert isinstance(operation, SendTokens)
        has = amount(system.tokens[operation.source])
        fail(script.path, operation.line, f"{operation.source} has {has} and cannot send {operation.tokens}")
    found.ends += 1
    for result in system.results():
        recorded = tuple(result.machines.items()), tuple(result.messages), tuple(result.duplicates)
        key = result.number, *recorded, result.is_consistent
        found.results.setdefault(key, result)
