"""An action of a machine as a value: what it is done with, and what comes of it. Never imports Ray.

Nothing changes what is made here. Those of which each action makes one are not frozen: a frozen one takes three times as long.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ray_snapshot.testing.values import Loose, as_bytes, encoded

LOAD = "restore_state"
"""The hook by which a machine goes on from a snapshot, in place of its constructor."""

Ref = tuple[str, int]
"""(caller, number)."""


@dataclass(slots=True, unsafe_hash=True)
class Sent:
    """One thing that an action does to the world: `mail`, `call`, `timer`, `create`, `stop` or `snapshot`."""

    what: str
    target: str = ""
    method: str = ""
    payload: Loose = b""
    number: int | None = None
    """Of a call: its number among those of its caller."""
    seconds: float = 0.0
    kind: int = 0
    """Of a creation: the class."""
    refs: frozenset[Ref] = frozenset()
    """Calls that the payload refers to."""
    source: str = ""
    """Who has sent it, where it was in flight already when the system began (`moments`); else the machine that acts."""


@dataclass(slots=True, unsafe_hash=True)
class Answer:
    """What a call came to: a value, or an error, as bytes."""

    data: bytes
    is_error: bool = False
    refs: frozenset[Ref] = frozenset()
    trace: str = ""
    """Of an error that the called action raised: where. It comes as a `RayTaskError`."""

    @classmethod
    def of(cls, error: Exception) -> Answer:
        """What a call came to that no action has answered."""
        return cls(encoded(error).data, is_error=True)


@dataclass(slots=True, unsafe_hash=True)
class Done:
    """The action is over."""

    answer: Answer


@dataclass(frozen=True, slots=True)
class Raised:
    """The action raised: a call's error goes to its caller, all others stop the system."""

    text: str
    answer: Answer
    traceback: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Waits:
    """The action waits for `k` of these calls; `is_get`: for their values."""

    refs: tuple[Ref, ...]
    k: int
    is_get: bool
    timeout: float | None
    site: str | None

    def given(self, answers: Sequence[Answer | None]) -> tuple[str, Any] | None:
        """The input with which it is over, (what, it), if these are the answers so far; None while it is not."""
        there = [place for place, answer in enumerate(answers) if answer is not None]
        if not self.is_get:
            return ("places", tuple(there[: self.k])) if len(there) >= self.k else None
        wrong = next((answer for answer in answers if answer is not None and answer.is_error), None)
        if wrong is not None:
            return "raises", wrong
        return ("values", tuple(answers)) if len(there) == len(answers) else None

    def timed_out(self, answers: Sequence[Answer | None]) -> tuple[str, Any]:
        """The input with which it is over if its time is."""
        if not self.is_get:
            return "places", tuple(place for place, answer in enumerate(answers) if answer is not None)[: self.k]
        from ray.exceptions import GetTimeoutError

        return "raises", Answer.of(
            GetTimeoutError(f"Get timed out: the results are not there after {self.timeout:g} s")
        )


@dataclass(frozen=True, slots=True)
class Chooses:
    """Chance has to decide: one of `options`."""

    options: int
    site: str | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class AsksClock:
    """The action asks for the time, which nobody follows yet."""


End = Done | Raised | Waits | Chooses | AsksClock


@dataclass(frozen=True, slots=True)
class Around:
    """What an action may learn of the rest of the system, when it begins and where a wait of it is over."""

    names: tuple[str, ...] = ()
    """Of all machines that were ever created, sorted."""
    stopped: tuple[str, ...] = ()


@dataclass(slots=True, unsafe_hash=True)
class Act:
    """An action that may be done, again and again."""

    machine: str
    kind: int
    before: Loose | None
    """The machine's state; None: it is to be constructed."""
    method: str
    payloads: tuple[Loose, ...]
    """(args, kwargs) of the message, or of the messages of a join."""
    is_join: bool = False
    used: tuple[int, ...] = ()
    """Numbers of this machine's calls that are taken."""
    around: Around = Around()

    @property
    def is_loading(self) -> bool:
        """Whether the machine takes back what a snapshot holds of it."""
        return self.before is None and self.method == LOAD


@dataclass(slots=True, unsafe_hash=True)
class Outcome:
    """What came of an action, as far as its inputs went."""

    shown: Loose
    """The machine's state now."""
    outputs: tuple[Sent, ...]
    end: End
    inputs: tuple[Any, ...]
    """Those that it was given, with what the clock said."""
    refs: frozenset[Ref] = frozenset()
    """Calls that the state refers to."""
    asked_clock: bool = field(default=False, compare=False)
    sites: tuple[Any, ...] = field(default=(), compare=False)
    """Where each output was sent (`guards.told_site`)."""
    is_opaque: bool = field(default=False, compare=False)
    """Whether the state holds what cannot be pickled, and so cannot be compared."""

    def exact(self) -> Outcome:
        """The same with all values as bytes, to be compared."""
        outputs = tuple(replace(sent, payload=as_bytes(sent.payload)) for sent in self.outputs)
        return replace(self, shown=as_bytes(self.shown), outputs=outputs)
