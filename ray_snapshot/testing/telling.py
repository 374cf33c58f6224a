"""Steps of a space in words, as public steps of a schedule, and as events of a space-time diagram. Never imports Ray."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from ray_snapshot.names import DRIVER, listed
from ray_snapshot.testing.acts import LOAD, Sent, Waits
from ray_snapshot.testing.records import MACHINE, Effect, Inside, Mail, Move, Rest, State
from ray_snapshot.testing.rows import Shown
from ray_snapshot.testing.space import Space
from ray_snapshot.testing.values import Loose
from ray_snapshot.views.space_time import Event, MessageId
from ray_snapshot.witness.log import short


def public(space: Space, move: Move) -> tuple[Any, ...]:
    """(word, machine, detail, chances, births) of a step: names alone, so that it means the same in every process."""
    births = tuple((space.cells[step.task[1]][1], step.chances) for step, _ in move.births)
    return (*space.named(move.step.task), move.step.chances, births)


class Teller:
    """Goes along with a run, step by step."""

    def __init__(self, space: Space, shown: Shown) -> None:
        self.space, self.shown = space, shown
        self.events: list[Event] = []
        self.steps: list[str] = []
        self._actions: Counter[str] = Counter()
        self._sent: Counter[tuple[str, str, str]] = Counter()
        self._waiting: dict[tuple[str, str, str], list[int]] = {}
        """By channel: the numbers of what is in it, as it is in the space."""
        self._replies: dict[Any, MessageId] = {}

    def note(self, before: State, move: Move) -> None:
        """One more step has been taken."""
        words = []
        effects = [(self.machine_of(move), move.effect, move.step.task)]
        effects += [(self.space.cells[step.task[1]][1], effect, step.task) for step, effect in move.births]
        before_all: dict[str, list[MessageId]] = {}
        for place, (machine, effect, task) in enumerate(effects):
            if effect is None:
                words.append(f"{machine} crashes")
                continue
            accepted = self._accept(before, task) if not place else self._accept(move.after, task)
            sent = self._send(effect, before_all)
            sent += before_all.pop(machine, [])
            self._actions[machine] += 1
            told = self._told(before, move, machine, effect, task)
            method = "" if type(task) is tuple and task[0] in ("birth", "driver") else effect.act.method
            number, mark = self._actions[machine], str(len(self.steps) + 1)
            self.events.append(Event(machine, number, tuple(accepted), tuple(sent), told, mark, method))
            if not place or effect.fresh or effect.failure:
                words.append(told)
        self.steps.append("; ".join(words))

    def machine_of(self, move: Move) -> str:
        """Who acts in a step."""
        return str(public(self.space, move)[1])

    # ---- words ------------------------------------------------------------------------------------------------------

    def _told(self, before: State, move: Move, machine: str, effect: Effect, task: Any) -> str:
        parts = [self.begun(before, machine, effect, task)]
        parts += [self._sending(sent) for sent in effect.fresh if not _is_begun_with(machine, sent)]
        end = effect.outcome.end
        if isinstance(end, Waits):
            parts.append(f"waits for {', '.join(dict.fromkeys(self._owners(effect, end)))}")
        if effect.failure:
            parts.append(effect.failure)
        changes = self._changes(before, move.after, machine)
        return "; ".join([*parts, *([changes] if changes else [])])

    def begun(self, before: State, machine: str, effect: Effect, task: Any) -> str:
        """What a step begins with: who acts, and on what."""
        places = _places(task)
        if places:
            is_join = type(task) is tuple and task[0] == "join"
            method, acts = effect.act.method, []
            for (cell, index), payload in zip(places, effect.act.payloads, strict=True):
                mail: Mail = self.space.values[self.space.table.mails(cell, before[cell])[index]]
                source, _, kind = self.space.cells[cell][1]
                word = {"mail": "", "call": "call ", "timer": "timer "}[kind]
                acts.append(f"{word}{mail.method}({self._args(payload)}) from {source}")
            told = " and ".join(acts)
            return f"{machine} accepts {told}" + (f" as {method}" if is_join else "")
        word = task[0]
        if word == "birth":
            if effect.act.is_loading:
                return f"{machine} goes on from the snapshot"
            return f"{machine} is constructed ({self._args(effect.act.payloads[0])})"
        if word == "driver":
            return self._program(effect.fresh)
        return (
            f"{machine} waits no longer: timeout" if word == "timeout" else f"{machine} goes on in {effect.act.method}"
        )

    def _program(self, fresh: tuple[Sent, ...]) -> str:
        again = [sent.target for sent in fresh if sent.what == "create" and sent.method == LOAD]
        created = [sent.target for sent in fresh if sent.what == "create" and sent.method != LOAD and not sent.source]
        flying = sum(bool(sent.source) and sent.what != "stop" for sent in fresh)
        told = [f"goes on from the snapshot with {listed(again, most=10)}"] if again else []
        told += [f"{flying} in flight"] if flying else []
        told += [f"creates {', '.join(created)}"] if created else []
        return f"the program {', '.join(told) or 'begins'}"

    def _sending(self, sent: Sent) -> str:
        if sent.what == "create":
            return f"creates {sent.target}"
        if sent.what == "stop":
            return f"stops {sent.target}"
        if sent.what == "snapshot":
            return "asks for a snapshot"
        told = f"{sent.method}({self._args(sent.payload)})"
        if sent.what == "timer":
            return f"sets a timer of {sent.seconds:g} s: {told} to {sent.target}"
        return f"{'sends' if sent.what == 'mail' else 'calls'} {told} {'to' if sent.what == 'mail' else 'of'} {sent.target}"

    def _owners(self, effect: Effect, wait: Waits) -> Iterator[str]:
        targets = {sent.number: sent.target for sent in effect.outcome.outputs if sent.what == "call"}
        for caller, number in wait.refs:
            own = targets.get(number) if caller == effect.act.machine else None
            yield f"the result of {own}" if own else f"call {number} of {caller}"

    def _args(self, payload: Loose) -> str:
        return ", ".join(short(item) for item in self.shown.arguments(payload))

    def _changes(self, before: State, after: State, machine: str) -> str:
        was, now = self._recorded(before, machine), self._recorded(after, machine)
        if not isinstance(was, dict) or not isinstance(now, dict) or was == now:
            return ""
        names = [name for name in dict.fromkeys([*was, *now]) if was.get(name) != now.get(name)]
        return ", ".join(f"{name} {short(was.get(name))} -> {short(now.get(name))}" for name in names)

    def _recorded(self, state: State, machine: str) -> Any:
        cell = self.space.cell(MACHINE, machine)
        if machine == DRIVER or not isinstance(self.space.at(state, cell), Rest | Inside):
            return None
        return self.shown.state(cell, state[cell])

    # ---- numbers ----------------------------------------------------------------------------------------------------

    def _accept(self, before: State, task: Any) -> list[MessageId]:
        places = _places(task)
        if places:
            found = [self._waiting[self.space.cells[cell][1]][index] for cell, index in places]
            for cell, index in sorted(places, reverse=True):
                queue = self._waiting[self.space.cells[cell][1]]
                queue.pop(index)
            return [(*self.space.cells[cell][1], number) for (cell, _), number in zip(places, found, strict=True)]
        word, *where = task
        machine = self.space.cells[where[0]][1] if where else DRIVER
        if word == "birth":
            record = self.space.at(before, where[0])
            return [
                (record.creator if record is not None and hasattr(record, "creator") else DRIVER, machine, "mail", 0)
            ]
        record = self.space.machine(before, machine)
        if word in ("resume", "timeout") and isinstance(record, Inside):
            return [self._replies[ref] for ref in record.wait.refs if ref in self._replies]
        return []

    def _send(self, effect: Effect, before_all: dict[str, list[MessageId]]) -> list[MessageId]:
        """What goes out; what was in flight before the run began is put into `before_all`, by its sender."""
        found: list[MessageId] = []
        timers: list[tuple[float, tuple[str, str, str], int]] = []
        for sent in effect.fresh:
            source = sent.source or effect.act.machine
            channel = source, sent.target, sent.what
            out = found if source == effect.act.machine else before_all.setdefault(source, [])
            if sent.what == "create":
                out.append((source, sent.target, "mail", 0))
            elif sent.what in ("mail", "call", "timer"):
                self._sent[channel] += 1
                out.append((*channel, self._sent[channel]))
                if sent.what == "timer":
                    timers.append((sent.seconds, channel, self._sent[channel]))
                else:
                    self._waiting.setdefault(channel, []).append(self._sent[channel])
        for _, channel, number in sorted(timers, key=lambda timer: timer[0]):  # as `timing` has them
            self._waiting.setdefault(channel, []).append(number)
        for ref, _ in effect.answers:
            channel = effect.act.machine, ref[0], "reply"
            self._sent[channel] += 1
            self._replies[ref] = (*channel, self._sent[channel])
            found.append(self._replies[ref])
        return found


def _places(task: Any) -> tuple[tuple[int, int], ...]:
    """(cell of the channel, place in it) of each message that a task accepts."""
    if type(task) is int:
        return ((task, 0),)
    if task[0] == "join":
        found: tuple[tuple[int, int], ...] = task[1]
        return found
    return ((task[1], task[2]),) if task[0] == "timer" else ()


def _is_begun_with(machine: str, sent: Sent) -> bool:
    """Whether it is told with what the program begins with."""
    return machine == DRIVER and (sent.what == "create" or bool(sent.source))
