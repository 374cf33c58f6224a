"""What simulated machines do: pure functions of a state, what was accepted, and a choice.

A behaviour never sees the protocol, and the oracle runs the same behaviour again on fresh states. The choice is a number
that the schedule draws and the log keeps, so that chance is an input; 0 means "do nothing unasked".
Imports the standard library only. Read `oracle` next.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True)
class Input:
    """One accepted message; `kind` is `mail`, `call`, `timer` or `reply`."""

    source: str
    kind: str
    method: str
    args: Any


@dataclass(frozen=True)
class _Sent:
    target: str
    method: str
    args: Any = None


class Send(_Sent):
    """A one-way message."""


class Later(_Sent):
    """A timer: a message that goes its way at some later moment."""


class Call(_Sent):
    """A call whose reply the machine waits for, inside its action; always the last output of a reaction."""


class Tell(_Sent):
    """A call of a watched actor (`parties`); nobody waits for its reply."""


class Ask(_Sent):
    """A call of a watched actor whose reply the machine waits for, inside its action; always the last output of a reaction."""


@dataclass(frozen=True)
class Create:
    """A new machine on `host`, which is born too if it does not exist."""

    child: str
    host: str
    behaviour: Behaviour
    state: Any


@dataclass(frozen=True)
class Reply:
    """The answer to the call that was accepted."""

    target: str
    args: Any


Output = Send | Later | Create | Call | Tell | Ask | Reply


class Behaviour(Protocol):
    """What a machine does when it acts."""

    @property
    def joins(self) -> tuple[tuple[str, ...], ...]:
        """Methods that one action takes together, each from another channel."""

    def react(self, name: str, state: Any, inputs: tuple[Input, ...], choice: int, /) -> tuple[Any, tuple[Output, ...]]:
        """The new state, and what is sent, in this order; without side effects."""
