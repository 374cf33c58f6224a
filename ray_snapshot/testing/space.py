"""The space of states of a system of the user's machines: which steps are enabled in a state, and what they lead to.

Between two atomic actions the state of the computation is the state of each machine plus the string of messages in each
channel (EWD864a); by the theorem, every consistent snapshot is such a state, and every such state a snapshot. So there are
no hosts, links, colours or markers here. A state is a tuple of small integers, one a *cell*: a machine, a channel, the
answer to a call. What an integer stands for is looked up (`Space.values`); it is the same integer for the same value. An
action is done once for each (state of its machine, message), whatever the rest of the system is like.

What is in the state and what is not: no counts, no clocks (unless a machine asks for the time), timers by what is left of
them. Timers race with messages, for a message may take any time; two timers of one channel come in the order of their due
times, and all others in any order, for the machine that is to accept one may be slow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from ray_snapshot.errors import HostDiedError, MachineFailedError, MachineStoppedError
from ray_snapshot.names import DRIVER
from ray_snapshot.protocol.joins import run_of
from ray_snapshot.testing.stage import (
    LOAD,
    Act,
    Answer,
    Around,
    AsksClock,
    Chooses,
    Done,
    Outcome,
    Raised,
    Ref,
    Sent,
    Stage,
    Waits,
)
from ray_snapshot.testing.values import encoded

State = tuple[int, ...]
"""By cell: what is in it; 0: nothing. Cells that nobody knew yet when the state was found are left out at the end."""

MACHINE, CHANNEL, TIMERS, ANSWER = range(4)
"""Kinds of cells, beside the first one, which holds what is `Here`."""

_CHANNELS = frozenset({CHANNEL, TIMERS})

MOST_CHANCES = 64
"""So many outcomes of one draw are all tried; of more, only `FEW_CHANCES` that are spread over them."""
FEW_CHANCES = 4


class NeedsClockError(Exception):
    """An action asks for the time: the search begins anew, with the clock in its states."""


@dataclass(frozen=True, slots=True)
class Here:
    """What the first cell holds."""

    around: Around
    clock: float | None
    """Seconds since the start; None: nobody has asked."""


@dataclass(frozen=True, slots=True)
class Mail:
    """A message in a channel."""

    method: str
    payload: bytes
    call: Ref | None = None
    refs: frozenset[Ref] = frozenset()


@dataclass(frozen=True, slots=True)
class Unborn:
    """A machine that is created, and not constructed."""

    creator: str
    kind: int
    payload: bytes
    refs: frozenset[Ref] = frozenset()
    method: str = "__init__"
    is_late: bool = False
    """Whether its creation was in flight when the system began (`moments`): it is constructed at any moment."""


@dataclass(frozen=True, slots=True)
class Rest:
    """A machine between two actions."""

    kind: int
    state: bytes
    refs: frozenset[Ref] = frozenset()
    is_stopped: bool = False


@dataclass(frozen=True, slots=True)
class Inside:
    """A machine that waits inside an action."""

    act: Act
    shown: bytes
    """Its state where it waits."""
    inputs: tuple[Any, ...]
    emitted: int
    """How many outputs of the action are out."""
    taken: tuple[tuple[str, str, Mail], ...]
    """(source, kind, message) of what it accepted."""
    wait: Waits
    left: float | None
    """Seconds until its timeout."""
    refs: frozenset[Ref] = frozenset()

    @property
    def kind(self) -> int:
        return self.act.kind


@dataclass(frozen=True, slots=True)
class Gone:
    """A machine that has crashed."""

    kind: int
    refs: frozenset[Ref] = frozenset()


Record = Unborn | Rest | Inside | Gone

Task = Any
"""What is done in a step: the cell of a channel (its head is accepted), or a tuple that begins with a word: `join`, `resume`,
`timeout`, `birth`, `crash`, `driver`."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step: a task, and how chance came out in it."""

    task: Task
    chances: tuple[int, ...] = ()


@dataclass(slots=True)
class Effect:
    """What an action does to a state, once its messages have been taken."""

    chances: tuple[int, ...]
    act: Act
    outcome: Outcome
    fresh: tuple[Sent, ...]
    """What it sends in this step."""
    value: int = 0
    """What its machine's cell holds then."""
    appends: tuple[tuple[int, int], ...] = ()
    timers: tuple[tuple[int, float, int], ...] = ()
    sets: tuple[tuple[int, int], ...] = ()
    answers: tuple[tuple[Ref, int], ...] = ()
    stops: tuple[str, ...] = ()
    around: int | None = None
    failure: str | None = None
    traceback: str = ""
    is_more: bool = False
    """Whether it does more than to send mail and to call."""


@dataclass(slots=True)
class Move:
    """An edge of the space."""

    step: Step
    after: State
    effect: Effect | None = None
    """None: a crash."""
    births: tuple[tuple[Step, Effect], ...] = ()
    """Machines that the driver created are constructed in the same breath."""

    @property
    def failure(self) -> str | None:
        """What an action raised in it."""
        effects = [self.effect, *(effect for _, effect in self.births)]
        return next((one.failure for one in effects if one is not None and one.failure), None)


class Space:
    """States of one system; all methods but `start` take one of its states."""

    def __init__(self, stage: Stage, *, has_clock: bool = False, bound: int | None = None, crashes: int = 0) -> None:
        self.stage = stage
        self.bound = bound
        """How many messages of a machine may be in a channel before it is held."""
        self.crashes = crashes
        self.cells: list[tuple[int, Any]] = [(-1, None)]
        """(kind, name) of each cell; a name is a machine, (source, target, kind), or (caller, number)."""
        self.places: dict[tuple[int, Any], int] = {}
        self.targets: list[int] = [0]
        """By cell of a channel: the cell of its target."""
        self.answers: list[int] = []
        """The cells of answers."""
        self.has_calls = False
        """Whether any machine has called another."""
        self.timers: list[int] = []
        self.clocked: list[int] = []
        """Cells of machines that have waited with a timeout."""
        self.values: list[Any] = [None]
        self.ids: dict[Any, int] = {}
        self.start_here = Here(Around(), 0.0 if has_clock else None)
        self.outcomes: dict[Any, Outcome | None] = {}
        self.effects: dict[Any, list[Effect]] = {}
        self.popped: dict[int, int] = {}
        self.appended: dict[tuple[int, int], int] = {}
        self.chooser: Callable[[int], int] | None = None
        """Decides how chance comes out, if not every outcome is to be tried."""
        self.partial: dict[str, None] = {}
        """Draws of which not every outcome was tried."""

    # ---- cells and values -------------------------------------------------------------------------------------------

    def cell(self, kind: int, name: Any) -> int:
        """The cell of a machine, a channel or an answer."""
        found = self.places.get((kind, name))
        if found is None:
            target = self.cell(MACHINE, name[1]) if kind in (CHANNEL, TIMERS) else 0
            found = self.places[kind, name] = len(self.cells)
            self.cells.append((kind, name))
            self.targets.append(target)
            if kind == ANSWER:
                self.answers.append(found)
            elif kind == TIMERS:
                self.timers.append(found)
            elif kind == CHANNEL and name[2] == "call":
                self.has_calls = True
        return found

    def id_of(self, value: Any) -> int:
        """The integer that stands for a value."""
        found = self.ids.get(value)
        if found is None:
            found = self.ids[value] = len(self.values)
            self.values.append(value)
        return found

    def at(self, state: State, cell: int) -> Any:
        """What is in a cell."""
        return self.values[state[cell]] if cell < len(state) else None

    def machine(self, state: State, name: str) -> Record | None:
        """What is known of a machine; None if it is not created."""
        found: Record | None = self.at(state, self.cell(MACHINE, name))
        return found

    def around(self, state: State) -> Around:
        """What an action may learn of the rest."""
        found: Around = self.values[state[0]].around
        return found

    def machines(self, state: State) -> Iterator[tuple[str, Record]]:
        """The machines of a state, by name; without the driver."""
        found = [
            (self.cells[cell][1], self.values[value])
            for cell, value in enumerate(state)
            if value and self.cells[cell][0] == MACHINE and self.cells[cell][1] != DRIVER
        ]
        return iter(sorted(found, key=lambda item: item[0]))

    def channels(self, state: State) -> Iterator[tuple[tuple[str, str, str], list[tuple[Mail, float | None]]]]:
        """(source, target, kind) of the channels that hold something, with it; of timers with the seconds that are left."""
        found: list[tuple[tuple[str, str, str], list[tuple[Mail, float | None]]]] = []
        for cell, value in enumerate(state):
            kind, name = self.cells[cell]
            if value and kind == CHANNEL:
                found.append((name, [(self.values[mail], None) for mail in self.values[value]]))
            elif value and kind == TIMERS:
                found.append((name, [(self.values[mail], left) for left, mail in self.values[value]]))
        return iter(sorted(found, key=lambda item: item[0]))

    # ---- which steps there are --------------------------------------------------------------------------------------

    def start(self) -> list[Move]:
        """What the program that builds the system comes to, at its end or at its first wait."""
        nothing = (self.id_of(self.start_here),)
        act = Act(DRIVER, 0, None, "build", ())
        moves = []
        for effect in self._effects_of(act, (), nothing, (), 0):
            after = self._apply([*nothing], self.cell(MACHINE, DRIVER), effect)
            moves += self._settled(Move(Step(("driver",), effect.chances), after, effect))
        return moves

    def tasks(self, state: State) -> list[Task]:
        """What may be done in a state, in an order that is the same in every process."""
        found: list[Task] = []
        values, cells, targets, size = self.values, self.cells, self.targets, len(state)
        joining: dict[int, list[int]] = {}
        for cell, value in enumerate(state):
            if not value or not cell:
                continue
            kind = cells[cell][0]
            if kind in _CHANNELS:
                target = targets[cell]
                record = values[state[target]] if target < size else None
                if type(record) is not Rest or record.is_stopped or not record.kind:
                    continue
                if self.bound is not None and self._is_held(state, cells[target][1]):
                    continue
                if self.stage.joins[record.kind]:
                    joining.setdefault(target, []).append(cell)
                else:
                    found.append(cell)
            elif kind == MACHINE:
                self._tasks_of(state, cell, values[value], found)
        for target, channels in joining.items():
            found += self._joins(values[state[target]], state, channels)
        return found

    def _tasks_of(self, state: State, cell: int, record: Record, found: list[Task]) -> None:
        if type(record) is Unborn:
            found.append(("birth", cell))
        elif type(record) is Inside:
            there = self._ready(state, record.wait)
            if there is not None:
                found.append(("resume", cell))
            if record.left is not None:
                found.append(("timeout", cell))
        if self.crashes and type(record) in (Rest, Inside) and record.kind:
            gone = sum(type(self.values[value]) is Gone for value in state)
            if gone < self.crashes:
                found.append(("crash", cell))

    def _is_held(self, state: State, name: str) -> bool:
        return bool(self.full(state, name))

    def full(self, state: State, name: str) -> list[str]:
        """The machines at whose full mailboxes this one is held."""
        if self.bound is None:
            return []
        found = []
        for cell, value in enumerate(state):
            kind, channel = self.cells[cell]
            if kind == CHANNEL and value and channel[0] == name and channel[1] != name:
                target = self.at(state, self.targets[cell])
                is_lost = type(target) is Gone or (type(target) is Rest and target.is_stopped)
                if len(self.values[value]) > self.bound and not is_lost:
                    found.append(channel[1])
        return list(dict.fromkeys(found))

    def _ready(self, state: State, wait: Waits) -> tuple[str, Any] | None:
        """The input with which a wait is over, (what, it); None while it is not."""
        answers = [self.at(state, self.cell(ANSWER, ref)) for ref in wait.refs]
        there = [place for place, answer in enumerate(answers) if answer is not None]
        if wait.is_get:
            wrong = next((answers[place] for place in there if answers[place].is_error), None)
            if wrong is not None:
                return "raises", wrong
            return ("values", tuple(answers)) if len(there) == len(answers) else None
        return ("places", tuple(there[: wait.k])) if len(there) >= wait.k else None

    def _joins(self, record: Rest, state: State, channels: list[int]) -> list[Task]:
        """What a machine with joins may accept: the head of a channel that is no port, and every cover of a join."""
        patterns = self.stage.joins[record.kind]
        ports = {port for pattern in patterns for port in pattern}
        runs = [(cell, [mail.method for mail in self._mails(state, cell)]) for cell in channels]
        found: list[Task] = [cell for cell, methods in runs if methods[0] not in ports]
        for pattern in patterns:
            found += [
                ("join", tuple(cover[port] for port in pattern)) for cover in _covers(pattern, pattern, tuple(runs))
            ]
        return found

    def _mails(self, state: State, cell: int) -> list[Mail]:
        if self.cells[cell][0] == TIMERS:
            return [self.values[mail] for _, mail in self.values[state[cell]]]
        return [self.values[mail] for mail in self.values[state[cell]]]

    def named(self, task: Task) -> tuple[str, str, tuple[Any, ...]]:
        """(word, machine, detail) of a task: names alone, so that it means the same in every process."""
        if type(task) is int:
            source, target, kind = self.cells[task][1]
            return "accept", target, (source, kind)
        word, *where = task
        if word == "driver":
            return "driver", DRIVER, ()
        if word == "join":
            detail = tuple((*self.cells[cell][1][::2], index) for cell, index in where[0])
            return "join", self.cells[where[0][0][0]][1][1], detail
        return word, self.cells[where[0]][1], ()

    # ---- taking steps -----------------------------------------------------------------------------------------------

    def moves(self, state: State) -> Iterator[Move]:
        """Every edge that leads out of a state."""
        for task in self.tasks(state):
            yield from self.moves_of(state, task)

    def moves_of(self, state: State, task: Task) -> Iterator[Move]:
        """The edges of one task: one for each way that chance may come out."""
        if type(task) is int:
            target = self.targets[task]
            cells = [*state]
            if self.cells[task][0] == CHANNEL:
                value = cells[task]
                rest = self.popped.get(value)
                if rest is None:
                    queue = self.values[value]
                    rest = self.popped[value] = self.id_of(queue[1:]) if len(queue) > 1 else 0
                cells[task] = rest
                mail = self.values[value][0]
            else:
                mail = self._take_timer(cells, task, 0)
            yield from self._accepting(state, cells, target, task, ((task, mail),))
            return
        word, *where = task
        if word == "join":
            yield from self._joining(state, where[0])
            return
        cell = where[0]
        name, record = self.cells[cell][1], self.at(state, cell)
        cells = [*state]
        if word == "crash":
            yield Move(Step(task), self._crashed(cells, cell, name, record))
            return
        if word == "birth":
            around = self.around(state)
            act = Act(name, record.kind, None, record.method, (record.payload,), False, self._used(state, name), around)
            inputs: tuple[Any, ...] = ()
            taken = ((record.creator, "creation", 0),)
            yield from self._after(cells, cell, task, self._effects_of(act, inputs, state, taken, 0))
            return
        answer: tuple[str, Any] | None
        if word == "timeout":
            answer = self._timed_out(state, record.wait)
            self._advance(cells, record.left or 0.0)
        else:
            answer = self._ready(state, record.wait)
        assert answer is not None
        inputs = (*record.inputs, ("answer", *answer, self.around(state)))
        effects = self._effects_of(record.act, inputs, tuple(cells), record.taken, record.emitted, record)
        yield from self._after(cells, cell, task, effects)

    def _timed_out(self, state: State, wait: Waits) -> tuple[str, Any]:
        if wait.is_get:
            from ray.exceptions import GetTimeoutError

            error = GetTimeoutError(f"Get timed out: the results are not there after {wait.timeout:g} s")
            return "raises", Answer(encoded(error).data, is_error=True)
        there = [place for place, ref in enumerate(wait.refs) if self.at(state, self.cell(ANSWER, ref)) is not None]
        return "places", tuple(there[: wait.k])

    def _accepting(
        self, state: State, cells: list[int], target: int, task: Task, mails: tuple[tuple[int, int], ...]
    ) -> Iterator[Move]:
        """A machine accepts messages: (cell of the channel, message) of each, which are not in `cells` any more."""
        value = state[target]
        used = self._used(state, self.cells[target][1])
        key = value, mails, cells[0], used
        effects = self.effects.get(key) if self.chooser is None else None
        if effects is None:
            record, name = self.values[value], self.cells[target][1]
            taken = tuple((*self.cells[cell][1][::2], self.values[mail]) for cell, mail in mails)
            method = taken[0][2].method
            if len(taken) > 1:
                method = self.stage.joins[record.kind][tuple(mail.method for _, _, mail in taken)]
            payloads = tuple(mail.payload for _, _, mail in taken)
            act = Act(name, record.kind, record.state, method, payloads, len(taken) > 1, used, self.around(state))
            effects = self.effects[key] = self._effects_of(act, (), tuple(cells), taken, 0)
        yield from self._after(cells, target, task, effects)

    def _joining(self, state: State, places: tuple[tuple[int, int], ...]) -> Iterator[Move]:
        cells = [*state]
        taken: dict[tuple[int, int], int] = {}
        for cell, index in sorted(places, reverse=True):
            if self.cells[cell][0] == TIMERS:
                taken[cell, index] = self._take_timer(cells, cell, index)
                continue
            queue = [*self.values[cells[cell]]]
            taken[cell, index] = queue.pop(index)
            cells[cell] = self.id_of(tuple(queue)) if queue else 0
        target = self.targets[places[0][0]]
        mails = tuple((place[0], taken[place]) for place in places)
        yield from self._accepting(state, cells, target, ("join", places), mails)

    def _after(self, cells: list[int], cell: int, task: Task, effects: list[Effect]) -> Iterator[Move]:
        for effect in effects:
            after = self._apply([*cells], cell, effect)
            move = Move(Step(task, effect.chances), after, effect)
            if self.cells[cell][1] == DRIVER:
                yield from self._settled(move)
            else:
                yield move

    def _settled(self, move: Move) -> list[Move]:
        """The same, with the machines constructed that the driver has created."""
        if move.failure is not None:
            return [move]
        state = move.after
        for cell, value in enumerate(state):
            record = self.values[value]
            if type(record) is Unborn and record.creator == DRIVER and not record.is_late:
                found = []
                for birth in self.moves_of(state, ("birth", cell)):
                    assert birth.effect is not None
                    births = (*move.births, (birth.step, birth.effect))
                    found += self._settled(Move(move.step, birth.after, move.effect, births))
                return found
        return [move]

    # ---- what an action does to a state -----------------------------------------------------------------------------

    def _effects_of(
        self,
        act: Act,
        inputs: tuple[Any, ...],
        state: State,
        taken: tuple[tuple[str, str, Any], ...],
        emitted: int,
        before: Inside | None = None,
    ) -> list[Effect]:
        found = []
        for outcome in self._outcomes_of(act, inputs, state):
            if before is not None:
                self.stage.check_prefix(act, self._outcome(act, before.inputs, state), outcome)
            chances = tuple(item[1] for item in outcome.inputs[len(inputs) :] if item[0] == "chance")
            found.append(self._effect(Effect(chances, act, outcome, outcome.outputs[emitted:]), state, taken))
        return found

    def _outcomes_of(self, act: Act, inputs: tuple[Any, ...], state: State) -> Iterator[Outcome]:
        outcome = self._outcome(act, inputs, state)
        if isinstance(outcome.end, AsksClock):
            raise NeedsClockError
        if not isinstance(outcome.end, Chooses):
            yield outcome
            return
        count = outcome.end.options
        if self.chooser is not None:
            yield from self._outcomes_of(act, (*outcome.inputs, ("chance", self.chooser(count))), state)
            return
        places: Any = range(count)
        if count > MOST_CHANCES:
            places = [place * (count - 1) // (FEW_CHANCES - 1) for place in range(FEW_CHANCES)]
            told = f"{count:,}" if count < 2**53 else "countless"
            self.partial[f"{FEW_CHANCES} of {told} outcomes of self.random were tried at {outcome.end.site}"] = None
        for place in places:
            yield from self._outcomes_of(act, (*outcome.inputs, ("chance", place)), state)

    def _outcome(self, act: Act, inputs: tuple[Any, ...], state: State) -> Outcome:
        key, clock = (act, inputs), self.values[state[0]].clock
        found = self.outcomes.get(key)
        if found is None and key in self.outcomes:  # it asks for the time
            found = self.outcomes.get((key, clock))
        if found is None:
            found = self.stage.perform(act, inputs, clock)
            if found.asked_clock:
                self.outcomes[key], self.outcomes[key, clock] = None, found
            else:
                self.outcomes[key] = found
        return found

    def _effect(self, effect: Effect, state: State, taken: tuple[tuple[str, str, Any], ...]) -> Effect:
        act, outcome = effect.act, effect.outcome
        appends: list[tuple[int, int]] = []
        timers: list[tuple[int, float, int]] = []
        sets: list[tuple[int, int]] = []
        around, stops = self.around(state), list[str]()
        for sent in effect.fresh:
            source = sent.source or act.machine
            if sent.what in ("mail", "call"):
                call = (act.machine, int(sent.number or 0)) if sent.what == "call" else None
                mail = self.id_of(Mail(sent.method, sent.payload, call, sent.refs))
                appends.append((self.cell(CHANNEL, (source, sent.target, sent.what)), mail))
            elif sent.what == "timer":
                mail = self.id_of(Mail(sent.method, sent.payload, None, sent.refs))
                timers.append((self.cell(TIMERS, (source, sent.target, "timer")), sent.seconds, mail))
            elif sent.what == "create":
                born = Unborn(source, sent.kind, sent.payload, sent.refs, sent.method, bool(sent.source))
                unborn = self.id_of(born)
                sets.append((self.cell(MACHINE, sent.target), unborn))
                around = replace(around, names=tuple(sorted((*around.names, sent.target))))
            elif sent.what == "stop":
                stops.append(sent.target)
                around = replace(around, stopped=tuple(sorted({*around.stopped, sent.target})))
        effect.appends, effect.timers, effect.sets, effect.stops = (
            tuple(appends),
            tuple(timers),
            tuple(sets),
            tuple(stops),
        )
        effect.around = None if around == self.around(state) else self.id_of(around)
        calls = [mail.call for _, _, mail in taken if isinstance(mail, Mail) and mail.call is not None]
        end = outcome.end
        if isinstance(end, Waits):
            made = {(act.machine, sent.number) for sent in outcome.outputs if sent.number is not None}
            refs = frozenset({*made, *end.refs, *outcome.refs}).union(
                *(_refs_of(item) for item in (*taken, *outcome.inputs))
            )
            inside = Inside(act, outcome.shown, outcome.inputs, len(outcome.outputs), taken, end, end.timeout, refs)
            effect.value = self.id_of(inside)
            effect.is_more = bool(timers or sets or stops or effect.around or end.timeout is not None)
            return effect
        assert isinstance(end, Done | Raised)
        effect.value = self.id_of(Rest(act.kind, outcome.shown, outcome.refs, act.machine in around.stopped))
        if isinstance(end, Raised) and not calls:
            effect.failure, effect.traceback = end.text, end.traceback
            raise_if_begun_wrong(act, end)
        effect.answers = tuple((call, self.id_of(end.answer)) for call in calls)
        effect.is_more = bool(timers or sets or stops or effect.around or calls)
        return effect

    def _apply(self, cells: list[int], cell: int, effect: Effect) -> State:
        missing = len(self.cells) - len(cells)
        if missing:
            cells += [0] * missing
        cells[cell] = effect.value
        for place, mail in effect.appends:
            if type(self.values[cells[self.targets[place]]]) is Gone:
                self._answer(cells, self.values[mail].call, self._lost(self.cells[place][1][1]))
                continue
            key = cells[place], mail
            value = self.appended.get(key)
            if value is None:
                value = self.appended[key] = self.id_of((*(self.values[key[0]] or ()), mail))
            cells[place] = value
        if effect.is_more:
            self._apply_more(cells, cell, effect)
        if self.answers:
            self._forget_answers(cells)
        while not cells[-1]:
            cells.pop()
        return tuple(cells)

    def _apply_more(self, cells: list[int], cell: int, effect: Effect) -> None:
        """What few actions do: timers, creations, answers, stops, waits with a timeout."""
        for place, left, mail in effect.timers:
            if type(self.values[cells[self.targets[place]]]) is not Gone:
                cells[place] = self._with_timer(cells[place], left, mail)
        for place, value in effect.sets:
            cells[place] = value
        if effect.around is not None:
            cells[0] = self.id_of(Here(self.values[effect.around], self.values[cells[0]].clock))
        if effect.stops:
            self._stop(cells, effect.stops)
        alive = self._alive(cells) if effect.answers else set()
        for ref, value in effect.answers:
            if ref in alive:
                self._answer(cells, ref, value)
        record = self.values[effect.value]
        if type(record) is Inside and record.left is not None and cell not in self.clocked:
            self.clocked.append(cell)

    def _stop(self, cells: list[int], names: tuple[str, ...]) -> None:
        for name in names:
            place = self.cell(MACHINE, name)
            record = self.values[cells[place]]
            if type(record) is Rest:
                cells[place] = self.id_of(replace(record, is_stopped=True))
            error = MachineStoppedError(f"{name} has stopped; it did not accept the call", machine=name)
            self._refuse(cells, name, self.id_of(Answer(encoded(error).data, is_error=True)))

    def _lost(self, name: str) -> int:
        """What a call to a machine that has crashed is answered with."""
        error = HostDiedError(f"the host of {name} died", host=name, machines=[name])
        return self.id_of(Answer(encoded(error).data, is_error=True))

    def _refuse(self, cells: list[int], name: str, wrong: int) -> None:
        """Calls to a machine that it has not accepted are answered with an error."""
        for cell in range(len(cells)):
            kind, channel = self.cells[cell]
            if kind == CHANNEL and cells[cell] and channel[1] == name and channel[2] == "call":
                for mail in self.values[cells[cell]]:
                    self._answer(cells, self.values[mail].call, wrong)

    def _answer(self, cells: list[int], ref: Ref | None, value: int) -> None:
        if ref is None:
            return
        place = self.cell(ANSWER, ref)
        cells += [0] * (len(self.cells) - len(cells))
        cells[place] = value

    def _crashed(self, cells: list[int], cell: int, name: str, record: Record) -> State:
        """A machine is gone, with its timers and what was in its mailboxes; who waits for it hears so."""
        wrong = self._lost(name)
        self._refuse(cells, name, wrong)
        if type(record) is Inside:
            for _, _, mail in record.taken:
                self._answer(cells, mail.call if isinstance(mail, Mail) else None, wrong)
        cells[cell] = self.id_of(Gone(record.kind))
        for place in range(len(cells)):
            kind, channel = self.cells[place]
            if kind in (CHANNEL, TIMERS) and (channel[1] == name or (kind == TIMERS and channel[0] == name)):
                cells[place] = 0
        self._forget_answers(cells)
        while not cells[-1]:
            cells.pop()
        return tuple(cells)

    # ---- calls ------------------------------------------------------------------------------------------------------

    def _alive(self, cells: list[int]) -> set[Ref]:
        """The calls whose results some machine, message or answer refers to."""
        found: set[Ref] = set()
        for cell, value in enumerate(cells):
            kind = self.cells[cell][0]
            if not value or not cell:
                continue
            if kind in (MACHINE, ANSWER):
                found |= self.values[value].refs
            elif kind == CHANNEL:
                found.update(*(self.values[mail].refs for mail in self.values[value]))
            else:
                found.update(*(self.values[mail].refs for _, mail in self.values[value]))
        return found

    def _forget_answers(self, cells: list[int]) -> None:
        if any(cell < len(cells) and cells[cell] for cell in self.answers):
            alive = self._alive(cells)
            for cell in self.answers:
                if cell < len(cells) and cells[cell] and self.cells[cell][1] not in alive:
                    cells[cell] = 0

    def _used(self, state: State, name: str) -> tuple[int, ...]:
        """The numbers of calls of a machine that something still refers to, or answers."""
        if not self.has_calls:
            return ()
        found = {number for caller, number in self._alive([*state]) if caller == name}
        for cell, value in enumerate(state):
            kind, channel = self.cells[cell]
            if kind == CHANNEL and value and channel[0] == name and channel[2] == "call":
                found.update(self.values[mail].call[1] for mail in self.values[value])
            elif kind == MACHINE and type(self.values[value]) is Inside:
                calls = [mail.call for _, _, mail in self.values[value].taken if isinstance(mail, Mail)]
                found.update(call[1] for call in calls if call is not None and call[0] == name)
        return tuple(sorted(found))

    # ---- time -------------------------------------------------------------------------------------------------------

    def _take_timer(self, cells: list[int], cell: int, index: int) -> int:
        queue = [*self.values[cells[cell]]]
        left, mail = queue.pop(index)
        cells[cell] = self.id_of(tuple(queue)) if queue else 0
        if left > 0:
            self._advance(cells, left)
        found: int = mail
        return found

    def _with_timer(self, value: int, left: float, mail: int) -> int:
        queue = [*(self.values[value] or ())]
        place = next((place for place, (other, _) in enumerate(queue) if other > left), len(queue))
        queue.insert(place, (left, mail))
        return self.id_of(tuple(queue))

    def _advance(self, cells: list[int], seconds: float) -> None:
        """Time passes: what is left of every timer and timeout is less."""
        for cell in self.timers:
            if cell < len(cells) and cells[cell]:
                queue = tuple((_less(left, seconds), mail) for left, mail in self.values[cells[cell]])
                cells[cell] = self.id_of(queue)
        for cell in self.clocked:
            record = self.values[cells[cell]] if cell < len(cells) else None
            if type(record) is Inside and record.left:
                cells[cell] = self.id_of(replace(record, left=_less(record.left, seconds)))
        here = self.values[cells[0]]
        if here.clock is not None:
            cells[0] = self.id_of(replace(here, clock=round(here.clock + seconds, 9)))


def raise_if_begun_wrong(act: Act, end: Raised) -> None:
    """What the program raises, or a machine that does not take its state back, is no run: raise `MachineFailedError`."""
    if act.machine != DRIVER and not act.is_loading:
        return
    raise MachineFailedError(
        f"{act.machine} does not take its state back: {end.text}" if act.is_loading else f"{end.text}\n{end.traceback}",
        machine=act.machine,
        method=LOAD if act.is_loading else "build",
        message=None,
        source=None,
        traceback=end.traceback,
    )


def _less(left: float, seconds: float) -> float:
    return max(0.0, round(left - seconds, 9))


def _refs_of(item: Any) -> frozenset[Ref]:
    """The calls that an accepted message, or an input, refers to."""
    found: frozenset[Ref] = frozenset()
    for part in item if isinstance(item, tuple) else ():
        found |= part.refs if isinstance(part, Mail | Answer) else _refs_of(part)
    return found


@lru_cache(10_000)
def _covers_cached(
    ports: tuple[str, ...], pattern: tuple[str, ...], runs: tuple[tuple[int, tuple[str, ...]], ...]
) -> tuple[dict[str, tuple[int, int]], ...]:
    if not ports:
        return ({},)
    found = []
    for cell, methods in runs:
        run = run_of(methods, pattern)
        for size in range(1, len(run) + 1):
            part = run[:size]
            if ports[0] in part and all(port in ports for port in part):
                rest = tuple(port for port in ports if port not in part)
                others = tuple(one for one in runs if one[0] != cell)
                here = {port: (cell, index) for index, port in enumerate(part)}
                found += [{**here, **more} for more in _covers_cached(rest, pattern, others)]
    return tuple(found)


def _covers(
    ports: tuple[str, ...], pattern: tuple[str, ...], runs: tuple[tuple[int, list[str]], ...]
) -> tuple[dict[str, tuple[int, int]], ...]:
    """Every way to take one message for each port: (cell, place in its queue) by port."""
    most = len(pattern)
    return _covers_cached(ports, pattern, tuple((cell, tuple(methods[:most])) for cell, methods in runs))
