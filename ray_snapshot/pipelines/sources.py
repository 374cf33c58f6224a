"""The machine that reads: a batch per action, from a position that is in its state. Imports no Ray.

A position is rolled back with everything else, so what came behind it is read and sent again; the machines that get it
were rolled back, too. The source goes on by a message to itself, which is in the snapshot like any other; it is held
back at full mailboxes like any sender, between two batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ray_snapshot.errors import SettingError
from ray_snapshot.pipelines.readers import Reader, Reading
from ray_snapshot.runtime.mixin import SnapshotMixin


class Source(SnapshotMixin):
    """Reads `reader` and sends it on: `method.send(rows)` to one target after the other; spawn it with `role="source"`.

    It begins at `begin.send()`, and is passive for good when all is read. `batch`: rows at a time, at most. `pause_s`: seconds
    between two batches. A reader that follows is looked at every `poll_s` seconds until `finish.send()` says that nothing
    more comes. A subclass may send otherwise: `emit(rows)` is an action's part, `ended()` is called behind the last rows.
    """

    def __init__(
        self,
        reader: Reader,
        targets: Sequence[Any],
        method: str = "take",
        *,
        batch: int = 10_000,
        pause_s: float = 0.0,
        poll_s: float = 0.1,
    ) -> None:
        if batch < 1:
            raise SettingError(f"Source(batch={batch}): it must be at least 1")
        self.reader = reader
        self.targets = list(targets)
        self.method = method
        self.batch, self.pause_s, self.poll_s = batch, pause_s, poll_s
        self.position: Any = None
        self.batch_count = 0
        self.is_begun = self.is_over = False
        self.is_final = not reader.follow
        self._reading: Reading | None = None

    def begin(self) -> None:
        """Begin to read; a second time changes nothing."""
        if not self.is_begun:
            self.is_begun = True
            self._again(0.0)

    def finish(self) -> None:
        """Nothing more will be added to what is read: its end is the end."""
        self.is_final = True

    def read(self) -> None:
        """One batch."""
        if self._reading is None:
            self._reading = self.reader.open(self.position)
        rows = self._reading.read(self.batch, self.is_final)
        self.position = self._reading.position
        if rows:
            self.emit(rows)
            self.batch_count += 1
        elif self.is_final:
            self.is_over = True
            self.ended()
            return
        self._again(self.pause_s if rows else self.poll_s)

    def emit(self, rows: list[Any]) -> None:
        """Send a batch on."""
        target = self.targets[self.batch_count % len(self.targets)]
        getattr(target, self.method).send(rows)

    def ended(self) -> None:
        """Called when all is read; for a subclass that wants to do something then."""

    def _again(self, seconds: float) -> None:
        if seconds:
            self.handle.read.send_after(seconds)
        else:
            self.handle.read.send()

    def snapshot_state(self) -> Any:
        """The attributes, but for the open file."""
        return {name: value for name, value in self.__dict__.items() if name != "_reading"}

    def restore_state(self, state: Any) -> None:
        """Read on from the recorded position."""
        super().restore_state(state)
        self._reading = None
