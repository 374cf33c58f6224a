"""The space of states of a system of the user's machines: which steps are enabled in a state, and what they lead to.

Between two atomic actions the state of the computation is the state of each machine plus the string of messages in each
channel (EWD864a); by the theorem, every consistent snapshot is such a state, and every such state a snapshot. So there are
no hosts, links, colours or markers here. A state is a tuple of small integers, one a *cell*: a machine, a channel, the
answer to a call. What an integer stands for is looked up (`Space.values`); it is the same integer for the same value. An
action is done once for each (state of its machine, message), whatever the rest of the system is like.

What is in the state and what is not: no counts, no clocks (unless a machine asks for the time), of timers which may come
before which (`timing`). They race with messages, for a message may take any time. What may go wrong: `crashes`. Read `records`
first: it says what is in a cell.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

from ray_snapshot.errors import MachineFailedError, MachineStoppedError
from ray_snapshot.names import DRIVER
from ray_snapshot.testing.acts import LOAD, Act, Answer, Around, AsksClock, Chooses, Done, Outcome, Raised, Waits
from ray_snapshot.testing.calls import Calls, refs_of
from ray_snapshot.testing.covers import covers
from ray_snapshot.testing.crashes import Crashes
from ray_snapshot.testing.records import (
    ANSWER,
    CHANNEL,
    CHANNELS,
    MACHINE,
    TIMERS,
    Effect,
    Gone,
    Here,
    Inside,
    Mail,
    Move,
    Record,
    Rest,
    State,
    Step,
    Task,
    Unborn,
)
from ray_snapshot.testing.stage import Stage
from ray_snapshot.testing.table import Table, packed
from ray_snapshot.testing.timing import Timing
from ray_snapshot.testing.values import as_bytes

MOST_CHANCES = 64
"""So many outcomes of one draw are all tried; of more, only `FEW_CHANCES` that are spread over them."""
FEW_CHANCES = 4


class NeedsClockError(Exception):
    """An action asks for the time: the search begins anew, with the clock in its states."""


class Space:
    """States of one system; all methods but `start` take one of its states."""

    def __init__(
        self,
        stage: Stage,
        *,
        has_clock: bool = False,
        crashes: int = 0,
    ) -> None:
        self.stage = stage
        self.table = Table()
        self.cells, self.targets, self.values = self.table.cells, self.table.targets, self.table.values
        self.cell, self.id_of, self.at = self.table.cell, self.table.id_of, self.table.at
        self.calls = Calls(self.table)
        self.timing = Timing(self.table)
        self.crashes = Crashes(self.table, self.calls, self.timing, crashes)
        self.start_here = Here(Around(), 0.0 if has_clock else None)
        self.outcomes: dict[Any, Outcome | None] = {}
        self.effects: dict[Any, list[Effect]] = {}
        self.popped: dict[int, int] = {}
        self.appended: dict[tuple[int, int], int] = {}
        self.chooser: Callable[[int], int] | None = None
        """Decides how chance comes out, if not every outcome is to be tried."""
        self.partial: dict[str, None] = {}
        """Draws of which not every outcome was tried."""

    # ---- what is in a state ------------------------------------------------------------------------------------------

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

    def channels(self, state: State) -> list[tuple[tuple[str, str, str], list[Mail]]]:
        """(source, target, kind) of the channels that hold something, with it."""
        found = [
            (self.cells[cell][1], [self.values[mail] for mail in self.table.mails(cell, value)])
            for cell, value in enumerate(state)
            if value and self.cells[cell][0] in CHANNELS
        ]
        return sorted(found, key=lambda item: item[0])

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
            if kind in CHANNELS:
                target = targets[cell]
                record = values[state[target]] if target < size else None
                if type(record) is not Rest or record.is_stopped or not record.kind:
                    continue
                if self.stage.joins[record.kind]:
                    joining.setdefault(target, []).append(cell)
                elif kind == TIMERS:
                    found += [("timer", cell, place) if place else cell for place in self.timing.firsts(state, cell)]
                else:
                    found.append(cell)
            elif kind == MACHINE:
                self._tasks_of(state, cell, values[value], found)
        for target, channels in joining.items():
            found += self._joins(values[state[target]], state, channels)
        if self.crashes.most:
            found += self.crashes.tasks(state)
        return found

    def _tasks_of(self, state: State, cell: int, record: Record, found: list[Task]) -> None:
        if type(record) is Unborn:
            found.append(("birth", cell))
        elif type(record) is Inside:
            there = self._ready(state, record.wait)
            if there is not None:
                found.append(("resume", cell))
            if record.wait.timeout is not None:
                found.append(("timeout", cell))

    def _ready(self, state: State, wait: Waits) -> tuple[str, Any] | None:
        """The input with which a wait is over, (what, it); None while it is not."""
        return wait.given(self._answers(state, wait))

    def _answers(self, state: State, wait: Waits) -> list[Answer | None]:
        """By call that is waited for: its answer, if it is there."""
        return [self.at(state, self.cell(ANSWER, ref)) for ref in wait.refs]

    def _joins(self, record: Rest, state: State, channels: list[int]) -> list[Task]:
        """What a machine with joins may accept: the head of a channel that is no port, and every cover of a join."""
        patterns = self.stage.joins[record.kind]
        ports = {port for pattern in patterns for port in pattern}
        found: dict[Task, None] = {}
        most = max(map(len, patterns))
        for orders in product(*(self._orders(state, cell, most) for cell in channels)):
            runs = tuple(
                (cell, tuple(self.values[mail].method for mail in self._mails(state, cell, order)[:most]))
                for cell, order in zip(channels, orders, strict=True)
            )
            for (cell, methods), order in zip(runs, orders, strict=True):
                if methods[0] not in ports:
                    found[("timer", cell, order[0]) if order and order[0] else cell] = None
            for pattern in patterns:
                for cover in covers(pattern, pattern, runs):
                    found["join", tuple(self._place(channels, orders, *cover[port]) for port in pattern)] = None
        return [*found]

    def _orders(self, state: State, cell: int, most: int) -> tuple[tuple[int, ...], ...]:
        """The orders in which what is in a channel may come; (): as it is."""
        return self.timing.orders(state, cell, most) if self.cells[cell][0] == TIMERS else ((),)

    def _place(self, channels: list[int], orders: Any, cell: int, index: int) -> tuple[int, int]:
        order = orders[channels.index(cell)]
        return cell, order[index] if order else index

    def _mails(self, state: State, cell: int, order: tuple[int, ...]) -> Sequence[int]:
        mails = self.table.mails(cell, state[cell])
        return [mails[place] for place in order] if order else mails

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
        if word == "timer":
            source, target, kind = self.cells[where[0]][1]
            return word, target, (source, kind, *where[1:])
        return word, self.cells[where[0]][1], ()

    # ---- taking steps -----------------------------------------------------------------------------------------------

    def moves_of(self, state: State, task: Task) -> Iterator[Move]:
        """The edges of one task: one for each way that chance may come out."""
        if type(task) is int or task[0] == "timer":
            yield from self._coming(state, task)
            return
        word, *where = task
        if word == "join":
            yield from self._joining(state, where[0])
            return
        if word == "crash":
            yield self.crashes.move(state, task)
            return
        cell = where[0]
        name, record = self.cells[cell][1], self.at(state, cell)
        cells = [*state]
        if word == "birth":
            around = self.around(state)
            act = Act(
                name, record.kind, None, record.method, (record.payload,), False, self.calls.used(state, name), around
            )
            inputs: tuple[Any, ...] = ()
            taken = ((record.creator, "creation", 0),)
            yield from self._after(cells, cell, task, self._effects_of(act, inputs, state, taken, 0))
            return
        is_timeout, wait = word == "timeout", record.wait
        answer = wait.timed_out(self._answers(state, wait)) if is_timeout else self._ready(state, wait)
        assert answer is not None
        self.timing.end_wait(cells, cell, is_timeout=is_timeout)
        inputs = (*record.inputs, ("answer", *answer, self.around(state)))
        effects = self._effects_of(record.act, inputs, tuple(cells), record.taken, record.emitted, record)
        yield from self._after(cells, cell, task, effects)

    def _coming(self, state: State, task: Task) -> Iterator[Move]:
        """A message is accepted: the head of a channel, or another one of its timers."""
        cells = [*state]
        cell, index = (task, 0) if type(task) is int else task[1:]
        if self.cells[cell][0] == TIMERS:
            mail = self.timing.take(cells, cell, index)
        else:
            mail = self.values[cells[cell]][0]
            cells[cell] = self._without_head(cells[cell])
        yield from self._accepting(state, cells, self.targets[cell], task, ((cell, mail),))

    def _without_head(self, value: int) -> int:
        rest = self.popped.get(value)
        if rest is None:
            queue = self.values[value]
            rest = self.popped[value] = self.id_of(queue[1:]) if len(queue) > 1 else 0
        return rest

    def _accepting(
        self, state: State, cells: list[int], target: int, task: Task, mails: tuple[tuple[int, int], ...]
    ) -> Iterator[Move]:
        """A machine accepts messages: (cell of the channel, message) of each, which are not in `cells` any more."""
        value = state[target]
        used = self.calls.used(state, self.cells[target][1])
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
        for cell in dict.fromkeys(cell for cell, _ in places):
            taken.update(self._take(state, cells, cell, sorted(index for other, index in places if other == cell)))
        target = self.targets[places[0][0]]
        mails = tuple((place[0], taken[place]) for place in places)
        yield from self._accepting(state, cells, target, ("join", places), mails)

    def _take(
        self, state: State, cells: list[int], cell: int, places: list[int]
    ) -> Iterator[tuple[tuple[int, int], int]]:
        """Take messages out of a channel; ((its cell, place), message) of each."""
        if self.cells[cell][0] != TIMERS:
            queue = [*self.values[cells[cell]]]
            for place in reversed(places):
                yield (cell, place), queue.pop(place)
            cells[cell] = self.id_of(tuple(queue)) if queue else 0
            return
        orders = self.timing.orders(state, cell, len(places))
        order = next(order for order in orders if sorted(order) == places)
        for count, place in enumerate(order):
            gone = sum(earlier < place for earlier in order[:count])
            yield (cell, place), self.timing.take(cells, cell, place - gone)

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
            channel = source, sent.target, sent.what
            if sent.what in ("mail", "call"):
                appends.append((self.cell(CHANNEL, channel), self.id_of(Mail.of(sent, source))))
            elif sent.what == "timer":
                timers.append((self.cell(TIMERS, channel), sent.seconds, self.id_of(Mail.of(sent, source))))
            elif sent.what == "create":
                sets.append((self.cell(MACHINE, sent.target), self.id_of(Unborn.of(sent, source))))
                around = replace(around, names=tuple(sorted((*around.names, sent.target))))
            elif sent.what == "stop":
                stops.append(sent.target)
                around = replace(around, stopped=tuple(sorted({*around.stopped, sent.target})))
        effect.appends, effect.timers = tuple(appends), tuple(timers)
        effect.sets, effect.stops = tuple(sets), tuple(stops)
        effect.around = None if around == self.around(state) else self.id_of(around)
        calls = [mail.call for _, _, mail in taken if isinstance(mail, Mail) and mail.call is not None]
        end = outcome.end
        if isinstance(end, Waits):
            made = {(act.machine, sent.number) for sent in outcome.outputs if sent.number is not None}
            refs = frozenset({*made, *end.refs, *outcome.refs}).union(
                *(refs_of(item) for item in (*taken, *outcome.inputs))
            )
            shown = as_bytes(outcome.shown)
            inside = Inside(act, shown, outcome.inputs, len(outcome.outputs), taken, end, refs)
            effect.value = self.id_of(inside)
            effect.is_more = bool(timers or sets or stops or effect.around or end.timeout is not None)
            return effect
        assert isinstance(end, Done | Raised)
        effect.value = self.id_of(Rest(act.kind, outcome.shown, outcome.refs, act.machine in around.stopped))
        if isinstance(end, Raised) and not calls:
            effect.failure = end.text
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
                self.calls.answer(cells, self.values[mail].call, self.calls.lost(self.cells[place][1][1]))
                continue
            key = cells[place], mail
            value = self.appended.get(key)
            if value is None:
                value = self.appended[key] = self.id_of((*(self.values[key[0]] or ()), mail))
            cells[place] = value
        if effect.is_more:
            self._apply_more(cells, cell, effect)
        if self.table.answers:
            self.calls.forget(cells)
        return packed(cells)

    def _apply_more(self, cells: list[int], cell: int, effect: Effect) -> None:
        """What few actions do: timers, creations, answers, stops, waits with a timeout."""
        record = self.values[effect.value]
        is_timed = type(record) is Inside and record.wait.timeout is not None
        timers = [timer for timer in effect.timers if type(self.values[cells[self.targets[timer[0]]]]) is not Gone]
        if timers or is_timed:
            owners = dict.fromkeys(self.cells[place][1][0] for place, _, _ in timers)  # of a snapshot: several
            for owner in owners if not is_timed else dict.fromkeys([*owners, effect.act.machine]):
                own = [timer for timer in timers if self.cells[timer[0]][1][0] == owner]
                self.timing.set(cells, owner, own, cell if is_timed and owner == effect.act.machine else None)
        for place, value in effect.sets:
            cells[place] = value
        if effect.around is not None:
            cells[0] = self.id_of(Here(self.values[effect.around], self.values[cells[0]].clock))
        if effect.stops:
            self._stop(cells, effect.stops)
        alive = self.calls.alive(cells) if effect.answers else set()
        for ref, value in effect.answers:
            if ref in alive:
                self.calls.answer(cells, ref, value)

    def _stop(self, cells: list[int], names: tuple[str, ...]) -> None:
        for name in names:
            place = self.cell(MACHINE, name)
            record = self.values[cells[place]]
            if type(record) is Rest:
                cells[place] = self.id_of(replace(record, is_stopped=True))
            error = MachineStoppedError(f"{name} has stopped; it did not accept the call", machine=name)
            self.calls.refuse(cells, name, self.calls.error(error))


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
