"""Word to machines that a snapshot of theirs is kept: which want it, what they had recorded, and which is next.

A machine's class asks for it by defining `snapshot_kept`. What it gets is what the snapshot holds of it, unpickled: whatever
has become of the object since, and however many snapshots are open, it knows which of its states is meant.
"""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Mapping
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from ray_snapshot.errors import SettingError
from ray_snapshot.protocol.host import Machine, Recording
from ray_snapshot.runtime.mixin import SnapshotMixin

HOOK = "snapshot_kept"


@lru_cache(10_000)
def listens(kind: type) -> bool:
    """Whether machines of this class want to hear that a snapshot is kept."""
    return getattr(kind, HOOK, None) is not getattr(SnapshotMixin, HOOK)


def _listens(machine: Machine) -> bool:
    kind: type = type(machine.body)
    return listens(kind)


def check_listener(kind: type, *, is_checkpointing: bool) -> None:
    """Raise `SettingError` for a class that wants to hear of kept snapshots where none is ever kept."""
    if not is_checkpointing and listens(kind):
        raise SettingError(
            f"{kind.__name__}.{HOOK} would never be called, for no snapshot of this system is kept: open it with"
            ' System(checkpoint=True) or System(recover="rollback")'
        )


@dataclass(slots=True)
class Notice:
    """One machine is to be told of one snapshot."""

    machine: str
    snapshot_id: str
    state: bytes
    done: Future[None] = field(default_factory=Future)

    def call_hook(self, body: Any) -> None:
        """Call the hook."""
        getattr(body, HOOK)(self.snapshot_id, pickle.loads(self.state))

    def settle(self) -> None:
        """Note that the machine has been told, or never will be."""
        with suppress(InvalidStateError):
            self.done.set_result(None)


class Notices:
    """The notices of one host, in one generation."""

    def __init__(self) -> None:
        self.recorded: dict[int, list[tuple[str, bytes]]] = {}
        """By snapshot number: machines that want to hear of it, and their pickled states."""
        self.due: deque[Notice] = deque()

    def note(self, recording: Recording, machines: Mapping[str, Machine]) -> bool:
        """Remember what each machine recorded that wants to hear of this snapshot; returns whether there is one."""
        found = [
            (copy.machine, copy.extra.kept[1])
            for copy in recording.each_copy()
            if copy.is_born and copy.extra.kept is not None and _listens(machines[copy.machine])
        ]
        if found:
            self.recorded[recording.number] = found
        return bool(found)

    def forget(self, number: int) -> None:
        """The snapshot will never be kept."""
        self.recorded.pop(number, None)

    def add(self, number: int, snapshot_id: str) -> list[Notice]:
        """The snapshot is kept: the machines' turns come between two actions."""
        found = [Notice(machine, snapshot_id, state) for machine, state in self.recorded.pop(number, ())]
        self.due.extend(found)
        return found

    def next(self, machines: Mapping[str, Machine]) -> Notice | None:
        """The next notice whose machine does not wait inside an action; None if there is none."""
        for _ in range(len(self.due)):
            notice = self.due.popleft()
            if not machines[notice.machine].is_suspended:
                return notice
            self.due.append(notice)
        return None

    def give_up(self) -> None:
        """Tell no machine any more: a machine that is restored knows from its state."""
        while self.due:
            self.due.popleft().settle()
