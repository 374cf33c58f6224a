"""Columns of channels as one of their ends sees them: a machine adds its lists of counts, not a row a channel.

What identifies a channel is read off its two ends when the columns are made, in the thread of reports: it does not change.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import repeat
from operator import attrgetter, eq
from typing import Any

import numpy as np
import pyarrow as pa

from ray_snapshot.limits import LIMITS
from ray_snapshot.protocol.mailbox import Mailbox, hosts_behind, names_and_kinds
from ray_snapshot.protocol.parts import GroupCopy, MachineCopy, hosts_ahead
from ray_snapshot.runtime.rows import END_ROW

NAMES = pa.dictionary(pa.int32(), pa.string())
"""Names that stand in many rows: each is there once, and rows have its place."""

ENDS = pa.schema([pa.field(name, NAMES if at < 3 else pa.int64()) for at, name in enumerate(END_ROW)])
"""Channels as one of their ends sees them: `held` messages wait at their sender, the others in flight at the receiver.

`duplicates` are among the accepted ones, and were sent outside the cut.
"""

OWNED = pa.schema([*ENDS, *(pa.field(name, pa.string()) for name in ("owner", "host_behind", "host_ahead"))])
"""Ends of channels; whose end each is; and where its link comes from, or leads to."""

_END = attrgetter("end")

Sparse = dict[int, int]
"""Counts that are mostly 0, by row."""


def compact(ends: pa.Table) -> pa.Table:
    """The same rows, with few names that are in none of them."""
    for place, item in enumerate(ends.schema):
        if item.type == NAMES:
            names = sum(len(chunk.dictionary) for chunk in ends[item.name].chunks)
            if names > 2 * ends.num_rows + LIMITS.spare_names:
                ends = ends.combine_chunks()
                ends = ends.set_column(place, item, ends[item.name].cast(pa.string()).dictionary_encode())
    return ends


class Ends:
    """The ends of the channels of some machines, receiving ones first."""

    def __init__(self) -> None:
        self.receiving = _Side()
        self.in_flight: Sparse = {}
        self.duplicates: Sparse = {}
        self.sending = _Side()
        self.held: Sparse = {}

    def add(self, copy: MachineCopy) -> None:
        """A machine's channels, as it counts them."""
        boxes, channels = copy.boxes, copy.channels
        if boxes:
            if copy.queued or copy.duplicates:
                self._note(copy)
            self.receiving.add(*names_and_kinds([*map(_END, boxes)]), hosts_behind(boxes), copy.accepted_of)
            self.receiving.owners.add(copy.machine, len(boxes))
        if channels:
            if copy.waiting:
                for row, channel in enumerate(channels, len(self.sending.counts)):
                    self.held[row] = len(copy.waiting.get(channel, ()))
            self.sending.add(*names_and_kinds([*map(_END, channels)]), hosts_ahead(channels), copy.sent_on)
            self.sending.owners.add(copy.machine, len(channels))

    def add_group(self, copy: GroupCopy) -> None:
        """The channels of machines that were copied together."""
        if copy.senders:
            first = len(self.receiving.counts)
            self.in_flight.update((first + row, len(messages)) for row, messages in copy.queued.items())
            self.receiving.add(*names_and_kinds(copy.senders), copy.behind, copy.accepted_of)
            self.receiving.owners.add_all(copy.machines, copy.box_counts)
        if copy.receivers:
            first = len(self.sending.counts)
            self.held.update((first + row, len(messages)) for row, messages in copy.waiting.items())
            self.sending.add(*names_and_kinds(copy.receivers), copy.ahead, copy.sent_on)
            self.sending.owners.add_all(copy.machines, copy.channel_counts)

    def add_late(self, box: Mailbox, machine: str, count: int) -> None:
        """So many messages more are in flight on the channel of a mailbox of this machine."""
        self.in_flight[len(self.receiving.counts)] = count
        self.receiving.add((box.source,), [box.kind], (box.link,), (0,))
        self.receiving.owners.add(machine, 1)

    def _note(self, copy: MachineCopy) -> None:
        for row, box in enumerate(copy.boxes, len(self.receiving.counts)):
            self.in_flight[row] = len(copy.queued.get(box, ()))
            self.duplicates[row] = copy.duplicates.get((box.source, box.kind), 0)

    def table(self, schema: pa.Schema = ENDS) -> pa.Table:
        """All of them, in the columns of `ENDS`, or of `OWNED`."""
        behind, ahead = len(self.receiving.counts), len(self.sending.counts)
        if not behind and not ahead:
            return schema.empty_table()
        receivers, senders = self.receiving.owners.column(), self.sending.owners.column()
        one = {
            "source": _names(self.receiving.others),
            "target": receivers,
            "kind": self.receiving.kinds.column(),
            "accepted": pa.array(self.receiving.counts, pa.int64()),
            "in_flight": _counts(self.in_flight, behind),
            "duplicates": _counts(self.duplicates, behind),
        }
        other = {
            "source": senders,
            "target": _names(self.sending.others),
            "kind": self.sending.kinds.column(),
            "sent": pa.array(self.sending.counts, pa.int64()),
            "held": _counts(self.held, ahead),
        }
        if "owner" in schema.names:
            one |= {"owner": receivers.dictionary_decode(), "host_behind": texts(self.receiving.hosts)}
            other |= {"owner": senders.dictionary_decode(), "host_ahead": texts(self.sending.hosts)}
        return pa.Table.from_batches([_batch(one, schema, behind), _batch(other, schema, ahead)])


class _Side:
    """Mailboxes, or sending ends: of each the machine at the other end and its host, the kind, the count, and whose it is."""

    def __init__(self) -> None:
        self.others: list[str] = []
        self.hosts: list[str | None] = []
        self.kinds = _Runs()
        self.counts: list[int] = []
        self.owners = _Runs()

    def add(
        self, others: Iterable[str], kinds: str | list[str], hosts: Iterable[str | None], counts: Collection[int]
    ) -> None:
        """Some, of the next owners; at least one. `kinds`: of each, or of all."""
        if isinstance(kinds, str):
            self.kinds.add(kinds, len(counts))
        elif _are_the_same(kinds):
            self.kinds.add(kinds[0], len(kinds))
        else:
            self.kinds.add_all(kinds, [1] * len(kinds))
        self.others += others
        self.hosts += hosts
        self.counts += counts


class _Runs:
    """A name for each of some rows, of which those of one name mostly stand together."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.counts: list[int] = []

    def add(self, name: str, count: int) -> None:
        self.names.append(name)
        self.counts.append(count)

    def add_all(self, names: Sequence[str], counts: Sequence[int]) -> None:
        self.names += names
        self.counts += counts

    def column(self) -> pa.DictionaryArray:
        known = _names(self.names)  # one may be there twice
        return _of_places(np.repeat(known.indices.to_numpy(), self.counts), known.dictionary)


def _names(values: Sequence[str]) -> pa.DictionaryArray:
    """A column of `NAMES`; made at once where all are the same."""
    if values and _are_the_same(values):
        return _of_places(np.zeros(len(values), np.int32), pa.array(values[:1], pa.string()))
    return pa.array(values, pa.string()).dictionary_encode()


def _of_places(places: Any, names: pa.Array) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(places, pa.int32()), names, safe=False)


def texts(values: Sequence[str | None]) -> pa.Array:
    """A column of these, made at once where all are the same."""
    if values and _are_the_same(values):
        return pa.repeat(pa.scalar(values[0], pa.string()), len(values))
    return pa.array(values, pa.string())


def _are_the_same(values: Sequence[str | None]) -> bool:
    return all(map(eq, values, repeat(values[0])))


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
