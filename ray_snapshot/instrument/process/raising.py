"""Waits that end in `DeadlockError` in place of never: those of this process that a snapshot has shown to be stuck for good.

An error is for a wait that was open when that snapshot was recorded, and is open yet; it gets one, once. A wait that blocks a
thread goes in slices, and looks between them (`hooks.tracking`); an `await` gets the error as the outcome of its future. A
reply that comes first wins. Used under the lock of the process where nothing else is said.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import ray

from ray_snapshot.errors import DeadlockError
from ray_snapshot.limits import LIMITS

if TYPE_CHECKING:
    from ray_snapshot.protocol.calls import CallLedger


class Told(NamedTuple):
    """What has become of the waits of a call."""

    ended: int
    """So many end in the error."""
    spared: int
    """So many do not, for what they are for has had enough."""


class Raising:
    """It stays empty unless `is_on`."""

    def __init__(self, *, is_on: bool) -> None:
        self.is_on = is_on
        self.last_wait: dict[int, int] = {}
        """By snapshot: the last wait that had begun when it was recorded here."""
        self.open: dict[int, Sequence[Any]] = {}
        """By wait that is open: the refs that it is for."""
        self.futures: dict[int, Future[Any]] = {}
        """By wait that is an `await`: what its outcome comes by."""
        self.errors: dict[int, DeadlockError] = {}
        """By wait that blocks a thread: what it is to end in."""
        self.told: set[int] = set()
        """Waits that are open yet, and are to end in an error."""
        self.raised: Counter[bytes] = Counter()
        """By ref: how many of its waits ended so."""

    def begin(self, wait_id: int, refs: Sequence[Any]) -> None:
        """A wait begins."""
        if self.is_on:
            self.open[wait_id] = refs

    def awaited(self, wait_id: int, future: Future[Any]) -> None:
        """It is an `await`."""
        if self.is_on:
            self.futures[wait_id] = future

    def spare(self, wait_id: int) -> None:
        """It gets no error: what is awaited would make another one of it."""
        self.open.pop(wait_id, None)

    def end(self, wait_id: int) -> None:
        """It is over."""
        for kept in (self.open, self.futures, self.errors):
            kept.pop(wait_id, None)
        self.told.discard(wait_id)

    def recorded(self, numbers: Iterable[int], ledger: CallLedger) -> None:
        """These snapshots have been recorded."""
        if self.is_on:
            for number in numbers:
                self.last_wait[number] = ledger.last_wait
            while len(self.last_wait) > LIMITS.open_waits_snapshots:
                del self.last_wait[min(self.last_wait)]

    def condemn(
        self, ledger: CallLedger, number: int, call_id: str | None, error: DeadlockError
    ) -> tuple[list[Future[Any]], Told]:
        """The waits of this call (None: of the machine itself) end in the error, as far as snapshot `number` has seen them.

        Returns the futures that are to get it, beside the lock (`ended_by`), too.
        """
        found: list[Future[Any]] = []
        had_enough = {key for key, count in self.raised.items() if count >= LIMITS.raised_waits}
        told: set[bytes] = set()
        ended = spared = 0
        last = self.last_wait.get(number, -1)
        for wait in ledger.waits.values():
            if wait.call_id != call_id or wait.wait_id > last or wait.timeout_at is not None:
                continue
            if wait.wait_id not in self.open or wait.wait_id in self.told:
                continue
            keys = [ref.binary() for ref in self.open[wait.wait_id] if isinstance(ref, ray.ObjectRef)]
            if not had_enough.isdisjoint(keys):
                spared += 1
                continue
            ended += 1
            told.update(keys)
            self.told.add(wait.wait_id)
            future = self.futures.get(wait.wait_id)
            if future is None:
                self.errors[wait.wait_id] = error
            else:
                found.append(future)
        self.raised.update(told)  # once, however many wait for the same
        return found, Told(ended, spared)

    def check(self, wait_id: int) -> None:
        """Raise what a wait is to end in, if anything. Without the lock."""
        error = self.errors.pop(wait_id, None)
        if error is not None:
            raise copy_of(error)


def ended_by(error: DeadlockError, futures: Iterable[Future[Any]]) -> None:
    """These get the error as their outcome, unless they have one already."""
    for future in futures:
        with suppress(InvalidStateError):
            future.set_exception(copy_of(error))


def copy_of(error: DeadlockError) -> DeadlockError:
    """The same again: each that is raised gets a traceback of its own."""
    return DeadlockError(*error.args, **error.__dict__)
