"""One execution of an action: it gets its inputs in their order, and is unwound where one is still to come."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NoReturn

from ray_snapshot.errors import NotAMachineError, NotDeterministicError, UnwindingCaughtError
from ray_snapshot.runtime.unwinding import Unwound, handler_around, told_caught
from ray_snapshot.testing.acts import Act, Around, AsksClock, Chooses, End, Sent, Waits
from ray_snapshot.testing.guards import Guards, Site
from ray_snapshot.testing.values import Encoded, encoded, state_of


@dataclass(slots=True)
class Execution:
    """An action that is being done, from its beginning."""

    act: Act
    inputs: list[Any]
    clock: float | None
    around: Around
    sites: list[Site] | None
    """Where each output was sent; None: nobody asks."""
    guards: Guards
    differs: Callable[[Act, str, str | None], NotDeterministicError]
    """Makes the error of an action that does something else than before: (it, what, where)."""
    body: Any = None
    place: int = 0
    """How many inputs it has asked for."""
    outputs: list[Sent] = field(default_factory=list)
    end: End | None = None
    """Where it was unwound."""
    handler: str | None = None
    """The line of the handler that would catch that, as far as it can be seen."""
    halted: Encoded | None = None
    """What the machine was there: a `finally` on the way out may change it."""
    asked_clock: bool = False
    is_to_begin_anew: bool = False

    def gather(self, sent: Sent) -> None:
        """It does something to the world."""
        if self.act.is_loading:
            raise NotAMachineError("sent in restore_state: only a machine's own actions send, not hooks or predicates")
        self.outputs.append(sent)
        if self.sites is not None:
            self.sites.append(self.guards.place())

    def _next(self, kind: str) -> Any:
        """The next input, which must be of this kind; None if it is still to come."""
        if self.place == len(self.inputs):
            return None
        found = self.inputs[self.place]
        self.place += 1
        if found[0] != kind:
            raise self.differs(self.act, f"asks for {kind} where it asked for {found[0]} before", self.guards.site())
        return found

    def time(self) -> float:
        """Virtual time."""
        found = self._next("now")
        if found is None:
            self.asked_clock = True
            if self.clock is None:
                self.unwind(AsksClock())
            found = ("now", self.clock)
            self.inputs.append(found)
            self.place += 1
        seconds: float = found[1]
        return seconds

    def choice(self, options: int) -> int:
        """An outcome of chance, 0 to options - 1."""
        found = self._next("chance")
        if found is None:
            self.unwind(Chooses(options, self.guards.site()))
        chosen: int = found[1]
        return chosen

    def answer(self, wait: Waits) -> tuple[str, Any]:
        """What comes of a wait, (what, it)."""
        found = self._next("answer")
        if found is None:
            self.unwind(wait)
        _, what, came, self.around = found
        return what, came

    def unwind(self, end: End) -> NoReturn:
        """End it here."""
        if self.body is not None:
            self.halted = encoded(state_of(self.body))
        self.end, self.handler = end, handler_around(sys._getframe(1), self.guards.is_library)
        raise Unwound

    def check_unwound(self, told: str, error: BaseException | None) -> None:
        """It must not go on where it was unwound; `error`: what it has raised."""
        if self.end is not None and not isinstance(error, Unwound):
            waited = getattr(self.end, "site", None)
            raise UnwindingCaughtError(
                told_caught(told, waited, self.handler),
                machine=self.act.machine,
                method=self.act.method,
                call_site=self.handler or waited,
            )
