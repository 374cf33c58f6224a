"""Columns of channels as one of their ends sees them: a machine adds its lists of counts, not a row a channel.

What identifies a channel is read off its two ends when the columns are made, in the thread of reports: it does not change.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from ray_snapshot.protocol.host import OutChannel
from ray_snapshot.protocol.mailbox import Mailbox
from ray_snapshot.protocol.parts import GroupCopy, MachineCopy
from ray_snapshot.runtime.rows import END_ROW

ENDS = pa.schema([pa.field(name, pa.string() if at < 3 else pa.int64()) for at, name in enumerate(END_ROW)])
"""Channels as one of their ends sees them: `held` messages wait at their sender, the others in flight at the receiver.

`duplicates` are among the accepted ones, and were sent outside the cut.
"""

OWNED = pa.schema([*ENDS, *(pa.field(name, pa.string()) for name in ("owner", "host_behind", "host_ahead"))])
"""Ends of channels; whose end each is; and where its link comes from, or leads to."""

Sparse = dict[int, int]
"""Counts that are mostly 0, by row."""


class Ends:
    """The ends of the channels of some machines, receiving ones first."""

    def __init__(self) -> None:
        self.boxes: list[Mailbox] = []
        self.accepted: list[int] = []
        self.in_flight: Sparse = {}
        self.duplicates: Sparse = {}
        self.channels: list[OutChannel] = []
        self.sent: list[int] = []
        self.held: Sparse = {}
        self.receivers = _Owners()
        self.senders = _Owners()

    def add(self, copy: MachineCopy) -> None:
        """A machine's channels, as it counts them."""
        if copy.boxes:
            if copy.queued or copy.duplicates:
                self._note(copy)
            self.boxes += copy.boxes
            self.accepted += copy.accepted_of
            self.receivers.add(copy.machine, len(copy.boxes))
        if copy.channels:
            if copy.waiting:
                for row, channel in enumerate(copy.channels, len(self.channels)):
                    self.held[row] = len(copy.waiting.get(channel, ()))
            self.channels += copy.channels
            self.sent += copy.sent_on
            self.senders.add(copy.machine, len(copy.channels))

    def add_group(self, copy: GroupCopy) -> None:
        """The channels of machines that were copied together."""
        if copy.boxes:
            first = len(self.boxes)
            self.in_flight.update((first + row, len(messages)) for row, messages in copy.queued.items())
            self.boxes += copy.boxes
            self.accepted += copy.accepted_of
            self.receivers.add_all(copy.machines, copy.box_counts)
        if copy.channels:
            first = len(self.channels)
            self.held.update((first + row, len(messages)) for row, messages in copy.waiting.items())
            self.channels += copy.channels
            self.sent += copy.sent_on
            self.senders.add_all(copy.machines, copy.channel_counts)

    def add_late(self, box: Mailbox, machine: str, count: int) -> None:
        """So many messages more are in flight on the channel of a mailbox of this machine."""
        self.in_flight[len(self.boxes)] = count
        self.boxes.append(box)
        self.accepted.append(0)
        self.receivers.add(machine, 1)

    def _note(self, copy: MachineCopy) -> None:
        for row, box in enumerate(copy.boxes, len(self.boxes)):
            self.in_flight[row] = len(copy.queued.get(box, ()))
            self.duplicates[row] = copy.duplicates.get((box.source, box.kind), 0)

    def table(self, schema: pa.Schema = ENDS) -> pa.Table:
        """All of them, in the columns of `ENDS`, or of `OWNED`."""
        boxes, channels = self.boxes, self.channels
        if not boxes and not channels:
            return schema.empty_table()
        receivers, senders = self.receivers.column(), self.senders.column()
        behind, ahead = len(boxes), len(channels)
        one = {
            "source": texts([box.source for box in boxes]),
            "target": receivers,
            "kind": texts([box.kind for box in boxes]),
            "accepted": pa.array(self.accepted, pa.int64()),
            "in_flight": _counts(self.in_flight, behind),
            "duplicates": _counts(self.duplicates, behind),
            "owner": receivers,
        }
        other = {
            "source": senders,
            "target": texts([channel.target for channel in channels]),
            "kind": texts([channel.kind for channel in channels]),
            "sent": pa.array(self.sent, pa.int64()),
            "held": _counts(self.held, ahead),
            "owner": senders,
        }
        if "owner" in schema.names:
            one["host_behind"] = texts([box.link for box in boxes])
            other["host_ahead"] = texts([None if one.link is None else one.link.target for one in channels])
        return pa.Table.from_batches([_batch(one, schema, behind), _batch(other, schema, ahead)])


class _Owners:
    """A name for each of some rows, of which those of one machine stand together."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.counts: list[int] = []

    def add(self, name: str, count: int) -> None:
        self.names.append(name)
        self.counts.append(count)

    def add_all(self, names: Sequence[str], counts: Sequence[int]) -> None:
        self.names += names
        self.counts += counts

    def column(self) -> pa.Array:
        at = np.repeat(np.arange(len(self.names)), self.counts)
        return pa.array(self.names, pa.string()).take(pa.array(at))


def texts(values: Sequence[str | None]) -> pa.Array:
    """A column of these, made at once where all are the same."""
    if len(set(values)) == 1:
        return pa.repeat(pa.scalar(values[0], pa.string()), len(values))
    return pa.array(values, pa.string())


def _counts(sparse: Sparse, rows: int) -> pa.Array:
    found = np.zeros(rows, np.int64)
    if sparse:
        found[[*sparse]] = [*sparse.values()]
    return pa.array(found)


def _batch(columns: dict[str, Any], schema: pa.Schema, rows: int) -> pa.RecordBatch:
    """These columns; others are 0, or null where they are of texts."""
    none = {item.name: pa.nulls(rows, item.type) for item in schema if pa.types.is_string(item.type)}
    zero = pa.array(np.zeros(rows, np.int64))
    return pa.RecordBatch.from_arrays(
        [columns.get(item.name, none.get(item.name, zero)) for item in schema], schema=schema
    )
