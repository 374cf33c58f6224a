"""Asks for all checks, one after the other, each in bounded time: what hangs is told, and the others come all the same."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ray_snapshot.doctor.checks import WARNING, Finding


@dataclass(frozen=True, slots=True)
class Check:
    """A name, what to look at, and within how many seconds."""

    name: str
    look: Callable[[], Finding | Sequence[Finding]]
    seconds: float
    is_begun_early: bool = False
    """Whether it mostly waits for another program, and may do so while the others are asked; it must import nothing."""


class Asking:
    """One run through the checks."""

    def __init__(self, checks: Sequence[Check]) -> None:
        self.answers = {check.name: _Answer(check) for check in checks}

    def findings(self) -> Iterator[Finding]:
        """What they find, in their order, as soon as it is known."""
        for answer in self.answers.values():
            if answer.check.is_begun_early:
                answer.begin()
        for answer in self.answers.values():
            yield from answer.findings()

    @property
    def is_hanging(self) -> bool:
        """Whether one of them has not come back: the end of this process would wait for it."""
        return any(answer.thread.is_alive() for answer in self.answers.values())


class _Answer:
    def __init__(self, check: Check) -> None:
        self.check = check
        self.found: list[Finding] = []
        self.began_at = 0.0
        self.thread = threading.Thread(target=self._look, name=f"doctor-{check.name}", daemon=True)

    def begin(self) -> None:
        self.began_at = time.monotonic()
        self.thread.start()

    def _look(self) -> None:
        try:
            told = self.check.look()
        except Exception as error:  # whatever this machine is like, the other checks are asked
            text = f"it cannot be told: {type(error).__name__}: {error}"
            told = Finding(
                self.check.name, WARNING, " ".join(text.split()), "please report this: it is a fault of ours"
            )
        self.found = [told] if isinstance(told, Finding) else [*told]

    def findings(self) -> Sequence[Finding]:
        if not self.began_at:
            self.begin()
        self.thread.join(max(0.0, self.began_at + self.check.seconds - time.monotonic()))
        if self.thread.is_alive():
            text = f"no answer within {self.check.seconds:g} s"
            return [Finding(self.check.name, WARNING, text, "ask again when the machine is less busy")]
        return self.found
