"""Runs of `ray-snapshot simulate` for the theorem: its machines as behaviours, and what each of its actions has chosen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ray_snapshot.simulation.tokens.system import TokenSystem
from worlds.mail.machines import Input, Output, Send
from worlds.mail.theorem import WorldLog


@dataclass(frozen=True, slots=True)
class Holder:
    """Holds tokens: takes what comes; unasked it sends `choice // n` tokens to its target number `choice % n` of n."""

    targets: tuple[str, ...]
    joins: tuple[tuple[str, ...], ...] = ()

    def react(self, _name: str, state: Any, inputs: tuple[Input, ...], choice: int) -> tuple[Any, tuple[Output, ...]]:
        """Take tokens, or send some."""
        if inputs:
            return state + inputs[0].args, ()
        tokens, index = divmod(choice, len(self.targets))
        return state - tokens, (Send(self.targets[index], "tokens", tokens),)


def log_of(system: TokenSystem) -> WorldLog:
    """The log of its run, in which each machine is a `Holder`; its actions are changed for that, so ask once."""
    targets = {name: tuple(target for _, target in channels) for name, channels in system.outputs.items()}
    start = {name: (Holder(targets[name]), tokens) for name, (_, tokens) in system.log.start.items()}
    for action in system.log.actions:
        if action.sent:
            ((source, target, _, _),) = action.sent
            action.choice = action.choice * len(targets[source]) + targets[source].index(target)
    return WorldLog(start, system.log.actions, system.log.lengths, system.log.cuts)
