"""What the actions of a run did: put in words only when they are asked for. Never imports Ray."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ray_snapshot.simulation.mail.oracle import Action
from ray_snapshot.testing.acts import Sent
from ray_snapshot.testing.records import Mail
from ray_snapshot.testing.values import Loose, opened
from ray_snapshot.views.space_time import Event


class Performed(NamedTuple):
    """One action, or what is done of it until it waits."""

    action: Action
    method: str
    taken: tuple[tuple[str, str, Any], ...]
    """(source, kind, message) of what it accepted."""
    fresh: Sequence[Sent]
    """What it sent."""

    def label(self) -> str:
        """What a person reads of it."""
        got = [
            f"{mail.method}({_args(mail.payload)}) from {source}"
            for source, _, mail in self.taken
            if isinstance(mail, Mail)
        ]
        out = [
            f"{sent.method}({_args(sent.payload)}) to {sent.target}"
            if sent.what != "create"
            else f"creation of {sent.target}"
            for sent in self.fresh
            if sent.what in ("mail", "call", "timer", "create") and not sent.source
        ]
        begun = " and ".join(got) or self.method
        return f"{self.action.machine}: {begun}" + (f"; sends {', '.join(out)}" if out else "")


def _args(payload: Loose) -> str:
    args, kwargs = opened(payload)
    return ", ".join([*map(repr, args), *(f"{name}={value!r}" for name, value in kwargs.items())])


@dataclass(frozen=True)
class Told:
    """The actions of a run, in their order."""

    done: Sequence[Performed]

    def lines(self) -> list[str]:
        """A line for each."""
        return [one.label() for one in self.done]

    def events(self) -> list[Event]:
        """The same, as `views.space_time` draws them."""
        return [
            Event(one.action.machine, one.action.index, one.action.accepted, tuple(one.action.sent), one.label(), str(at),
                  one.method)
            for at, one in enumerate(self.done, 1)
        ]  # fmt: skip


@dataclass(frozen=True)
class Written:
    """The same, of a run that was put in words as it went."""

    steps: list[str]
    drawn: list[Event]

    def lines(self) -> list[str]:
        """A line for each step."""
        return self.steps

    def events(self) -> list[Event]:
        """Its actions."""
        return self.drawn
