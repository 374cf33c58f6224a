"""Dataflows whose result does not depend on any order: what a restore is judged by.

Sources emit their items unasked until these are exhausted; their state is the position. Operators turn an item into others,
one at a time, whatever they have seen before; some keep sums by key, some delay items by timers, some send items round a
loop (the item says how often), some hire a helper. Sinks sum by key. As each item is treated for itself, what it adds to the
sums is a property of the item alone (`effects`), and so is the result of a run: the effects of all items of all sources.

Linear like that, the sums also tell what happened twice: under `at-least-once-barrier` a run that was restored ends with the
result plus the effects of exactly those messages that the snapshot foretells, on any graph, cycles included. (With an
operator whose output depends on what it has seen, a running total say, a duplicate would change later items too, and the
surplus would depend on the order.)

Imports the standard library only. `storms` runs them.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from worlds.mail.machines import Behaviour, Create, Input, Later, Output, Send

Item = tuple[int, int, int]
"""(key, value, how often it still goes round a loop)."""

Sums = tuple[tuple[int, int], ...]
"""(key, sum) by key."""

KEYS = 4


@dataclass(frozen=True)
class Source:
    """Emits its items in order; the state is how many it has emitted."""

    items: tuple[Item, ...]
    targets: tuple[str, ...]
    joins: tuple[tuple[str, ...], ...] = ()

    def has_more(self, state: int) -> bool:
        """Whether it will act unasked."""
        return state < len(self.items)

    def react(self, _name: str, state: Any, _inputs: tuple[Input, ...], _choice: int) -> tuple[Any, tuple[Output, ...]]:
        """Emit the next item."""
        return state + 1, (Send(self.targets[state % len(self.targets)], "item", self.items[state]),)


@dataclass(frozen=True)
class Operator:
    """Turns (key, value) into (key + `shift`, value * `factor`), for one of its targets by key, or for all of them."""

    targets: tuple[str, ...] = ()
    """None: it is a sink."""
    factor: int = 1
    shift: int = 0
    is_summing: bool = False
    is_broadcasting: bool = False
    delays: bool = False
    """Items of even values go through a timer."""
    back: str | None = None
    """Where an item goes that has rounds left."""
    joins: tuple[tuple[str, ...], ...] = ()

    def react(self, _name: str, state: Any, inputs: tuple[Input, ...], _choice: int) -> tuple[Any, tuple[Output, ...]]:
        """Take one item."""
        key, value, rounds = inputs[0].args
        if self.is_summing:
            state = added(state, {key: value})
        if self.back is not None and rounds:
            return state, (Send(self.back, "item", (key, value + 1, rounds - 1)),)
        made = ((key + self.shift) % KEYS, value * self.factor, rounds)
        targets = self.targets if self.is_broadcasting else self.targets[key % max(1, len(self.targets)) :][:1]
        return state, tuple(self._sent(target, made) for target in targets)

    def _sent(self, target: str, item: Item) -> Output:
        return Later(target, "item", item) if self.delays and item[1] % 2 == 0 else Send(target, "item", item)


@dataclass(frozen=True)
class Hirer:
    """Sends every item to a helper, which it creates at its first one; the state is whether it has."""

    place: str
    helper: Operator
    joins: tuple[tuple[str, ...], ...] = ()

    def react(self, name: str, state: Any, inputs: tuple[Input, ...], _choice: int) -> tuple[Any, tuple[Output, ...]]:
        """Pass one item on."""
        send = Send(f"{name}.0", "item", inputs[0].args)
        return True, (send,) if state else (Create(f"{name}.0", self.place, self.helper, ()), send)


@dataclass(frozen=True)
class Flow:
    """A dataflow: machines with their states of the beginning, and the channels that close no cycle."""

    machines: Mapping[str, tuple[Behaviour, Any]] = field(default_factory=dict)
    edges: tuple[tuple[str, str], ...] = ()

    @property
    def has_loops(self) -> bool:
        """Whether any item goes back."""
        behaviours = [behaviour for behaviour, _ in self.machines.values()]
        operators = [one.helper if isinstance(one, Hirer) else one for one in behaviours]
        return any(isinstance(one, Operator) and one.back is not None for one in operators)

    def result(self) -> Counter[tuple[str, int]]:
        """What every run ends with: by machine and key."""
        found: Counter[tuple[str, int]] = Counter()
        for behaviour, _ in self.machines.values():
            if isinstance(behaviour, Source):
                for position in range(len(behaviour.items)):
                    (output,) = behaviour.react("", position, (), 0)[1]
                    assert isinstance(output, Send)
                    found.update(effects(self, output.target, output.args))
        return found


def added(sums: Sums, more: Mapping[int, int]) -> Sums:
    """The sums with more in them."""
    found = dict(sums)
    for key, value in more.items():
        found[key] = found.get(key, 0) + value
    return tuple(sorted(found.items()))


def effects(flow: Flow, target: str, item: Item) -> Counter[tuple[str, int]]:
    """What one item that `target` accepts adds to all sums in the end: followed through the graph, alone."""
    behaviours = {name: behaviour for name, (behaviour, _) in flow.machines.items()}
    behaviours |= {f"{name}.0": one.helper for name, one in behaviours.items() if isinstance(one, Hirer)}
    found: Counter[tuple[str, int]] = Counter()
    waiting = [(target, item)]
    while waiting:
        name, one = waiting.pop()
        blank: Any = False if isinstance(behaviours[name], Hirer) else ()
        state, outputs = behaviours[name].react(name, blank, (Input("", "mail", "item", one),), 0)
        if not isinstance(state, bool):
            found.update({(name, key): value for key, value in state})
        waiting += [(output.target, output.args) for output in outputs if isinstance(output, Send | Later)]
    return found


def sums_of(states: Mapping[str, Any]) -> Counter[tuple[str, int]]:
    """The sums that machines hold, by machine and key."""
    sums = {name: state for name, state in states.items() if isinstance(state, tuple)}
    return Counter({(name, key): value for name, found in sums.items() for key, value in found})


def random_flow(chance: random.Random) -> Flow:
    """One to three sources, up to four operators in a row of layers, one or two sinks; sometimes with back edges."""
    sources = [f"source{index}" for index in range(chance.randint(1, 3))]
    operators = [f"operator{index}" for index in range(chance.randint(1, 4))]
    sinks = [f"sink{index}" for index in range(chance.randint(1, 2))]
    machines: dict[str, tuple[Behaviour, Any]] = {sink: (Operator(is_summing=True), ()) for sink in sinks}
    edges: set[tuple[str, str]] = set()
    for index, name in reversed([*enumerate(operators)]):
        targets = _some(chance, operators[index + 1 :] + sinks)
        machines[name] = _operator(chance, targets, operators[: index + 1]), ()
        if isinstance(machines[name][0], Hirer):
            machines[name] = machines[name][0], False
        else:
            edges.update((name, target) for target in targets)
    for name in sources:
        targets = _some(chance, operators)
        edges.update((name, target) for target in targets)
        machines[name] = Source(_items(chance), targets), 0
    return Flow(machines, tuple(sorted(edges)))


def _operator(chance: random.Random, targets: tuple[str, ...], backs: Iterable[str]) -> Behaviour:
    operator = Operator(
        targets,
        factor=chance.randint(1, 3),
        shift=chance.randrange(KEYS),
        is_summing=chance.random() < 0.5,
        is_broadcasting=chance.random() < 0.2,
        delays=chance.random() < 0.3,
        back=chance.choice([*backs]) if chance.random() < 0.4 else None,
    )
    return Hirer(f"h{chance.randrange(3)}", operator) if chance.random() < 0.2 else operator


def _some(chance: random.Random, names: list[str]) -> tuple[str, ...]:
    return tuple(sorted(chance.sample(names, chance.randint(1, len(names)))))


def _items(chance: random.Random) -> tuple[Item, ...]:
    count = chance.randint(4, 12)
    return tuple((chance.randrange(KEYS), chance.randint(1, 9), chance.choice((0, 0, 1, 2))) for _ in range(count))
