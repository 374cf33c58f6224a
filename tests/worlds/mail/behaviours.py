"""Behaviours of simulated machines: a script, and one that passes tokens about by chance.

Imports the standard library and `ray_snapshot`.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from worlds.mail.machines import Call, Create, Input, Later, Output, Reply, Send


@dataclass(frozen=True)
class Script:
    """A machine that follows a script: its state is the events so far, `sends[event]` says what each of them sends.

    An event is named after the method that was accepted (a join: after its first port); unasked, the machine has the event
    whose index in `unasked` is `choice` - 1.
    """

    sends: tuple[tuple[str, tuple[Output, ...]], ...] = ()
    unasked: tuple[str, ...] = ()
    joins: tuple[tuple[str, ...], ...] = ()

    def react(
        self, _name: str, state: Any, inputs: tuple[Input, ...], choice: int, /
    ) -> tuple[Any, tuple[Output, ...]]:
        """Append the event; send what the script says."""
        event = inputs[0].method if inputs else self.unasked[choice - 1]
        outputs = next((outputs for key, outputs in self.sends if key == event), ())
        replies = tuple(Reply(one.source, one.args) for one in inputs if one.kind == "call")
        return (*state, event), (*replies, *outputs)


@dataclass(frozen=True)
class Purse:
    """The state of a `Wanderer`."""

    tokens: int
    children: int = 0
    waits_for: str | None = None


@dataclass(frozen=True)
class Wanderer:
    """A machine that passes tokens about: in messages, timers, calls and to children; all of it as `choice` has it.

    Tokens are conserved: what a machine sends, it has no more.
    """

    peers: tuple[str, ...]
    """Whom it may send to; names that nobody bears yet are allowed."""
    hosts: tuple[str, ...] = ()
    """Where it may create machines; empty: it creates none."""
    habits: frozenset[str] = field(default=frozenset())
    """Any of `timer`, `call`, `join`."""

    @property
    def joins(self) -> tuple[tuple[str, ...], ...]:
        """`left` and `right` are taken together, if it has the habit."""
        return (("left", "right"),) if "join" in self.habits else ()

    def react(self, name: str, state: Any, inputs: tuple[Input, ...], choice: int, /) -> tuple[Any, tuple[Output, ...]]:
        """Take the tokens that came, then send some on."""
        tokens = state.tokens + sum(one.args for one in inputs)
        outputs: list[Output] = []
        for one in inputs:
            if one.kind == "call":
                outputs.append(Reply(one.source, tokens % 3))
                tokens -= tokens % 3
        if choice == 0:
            return Purse(tokens, state.children), tuple(outputs)
        return self._spend(name, tokens, state.children, outputs, random.Random(choice))

    def _spend(
        self, name: str, tokens: int, children: int, outputs: list[Output], chance: random.Random
    ) -> tuple[Purse, tuple[Output, ...]]:
        for _ in range(chance.choice((0, 1, 1, 2))):
            amount = chance.randint(0, min(tokens, 4))
            tokens -= amount
            outputs.append(self._parcel(amount, chance))
        if self.hosts and children < 2 and chance.random() < 0.15:
            amount, tokens = tokens // 2, tokens - tokens // 2
            host = chance.choice((*self.hosts, f"host-of-{name}.{children}"))
            heirs = Wanderer((*self.peers, name), self.hosts if len(name) < 4 else (), self.habits)
            outputs.append(Create(f"{name}.{children}", host, heirs, Purse(amount)))
            children += 1
        if "call" in self.habits and chance.random() < 0.15:
            target = chance.choice([peer for peer in self.peers if peer != name])
            amount = min(tokens, 1)
            outputs.append(Call(target, "ask", amount))
            return Purse(tokens - amount, children, target), tuple(outputs)
        return Purse(tokens, children), tuple(outputs)

    def _parcel(self, amount: int, chance: random.Random) -> Output:
        target = chance.choice(self.peers)
        if "timer" in self.habits and chance.random() < 0.25:
            return Later(target, "tokens", amount)
        methods = ("tokens", "left", "right") if "join" in self.habits else ("tokens",)
        return Send(target, chance.choice(methods), amount)
