"""The rows of many snapshots at once, without those of machines at rest and of channels with nothing in flight.

Who asks which machine waits for which looks at few of a million rows. So texts are read as numbers (Parquet stores each of
them once), rows are chosen by these, and only what is chosen becomes text. What is not as a history is written is not for
here (`UnusualError`): it is loaded whole, and said there. Pure; imports no Ray.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ray_snapshot.history.rows_alone import NEEDED
from ray_snapshot.names import DRIVER
from ray_snapshot.snapshot import Absent, Snapshot

Integers = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]


class UnusualError(Exception):
    """These rows must be loaded whole."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """What is read of some snapshots."""

    machines: pa.Table
    """By snapshot and name."""
    channels: pa.Table
    """By snapshot."""
    absent: list[Absent]
    """By snapshot."""
    channel_counts: list[int]
    """By snapshot, also of those that are left out."""
    machines_of: Integers
    """Of each row that was read of machines: the place of its snapshot; -1: of another."""


def chosen(machines: pa.Table, channels: pa.Table, snapshot_ids: Sequence[str]) -> Chosen:
    """What is read of some snapshots, from tables with dictionaries in place of texts.

    Left out are machines that are passive, wait for nothing in short form, and are not the driver; but for one of the greatest
    incarnation. Raises `UnusualError`.
    """
    actors, channels_ = _Rows("machines", machines, snapshot_ids), _Rows("channels", channels, snapshot_ids)
    name, name_count = actors.codes("machine")
    if (actors.counts_of(name, name_count) > 1).any():
        raise UnusualError
    at_rest = _at_rest(actors)
    at_rest[_greatest(actors)] = False
    here, away = actors.chosen(~at_rest, name), actors.chosen(at_rest)
    busy = channels_.chosen(_with_something_in_flight(channels_))
    return Chosen(
        actors.plain(here),
        channels_.plain(busy),
        [_absent(actors, rest) for rest in np.split(away, np.cumsum(actors.counts(away))[:-1])],
        channels_.counts().tolist(),
        actors.snapshot,
    )


class _Rows:
    """A table with dictionaries in place of texts, and which snapshot each row is of."""

    def __init__(self, name: str, table: pa.Table, snapshot_ids: Sequence[str]) -> None:
        self.table = table
        self.count = len(snapshot_ids)
        self._codes: dict[str, tuple[Integers, int]] = {}
        if any(table[column].null_count for column in NEEDED[name] if column in table.column_names):
            raise UnusualError
        codes, _ = self.codes("snapshot_id")
        place = pc.index_in(self.texts("snapshot_id"), value_set=pa.array(snapshot_ids, pa.string()))
        self.snapshot: Integers = np.append(integers(place, -1), -1)[codes]
        """By row, as a place in the ids; -1: of another."""

    def texts(self, column: str) -> Any:
        """The different texts of a column."""
        chunks = self.table[column].chunks
        if len(chunks) > 1:
            raise UnusualError
        return chunks[0].dictionary if chunks else pa.array([], pa.string())

    def codes(self, column: str) -> tuple[Integers, int]:
        """By row which of `texts` a column has (null: the number of all); and that number."""
        if column not in self._codes:
            texts, chunks = self.texts(column), self.table[column].chunks
            if len(texts) != len(texts.unique()):
                raise UnusualError
            codes = integers(chunks[0].indices, len(texts)) if chunks else np.zeros(0, np.int64)
            self._codes[column] = codes, len(texts)
        return self._codes[column]

    def counts_of(self, code: Integers, most: int) -> Integers:
        """How often each code is there in one snapshot."""
        keys = (self.snapshot * (most + 1) + code)[self.snapshot >= 0]
        if self.count * (most + 1) <= 16 * len(keys):
            return np.bincount(keys).astype(np.int64)
        times: Integers = np.unique(keys, return_counts=True)[1]
        return times

    def counts(self, rows: Integers | slice = slice(None)) -> Integers:
        """How many rows each snapshot has, of `rows`."""
        found: Integers = np.bincount(self.snapshot[rows] + 1, minlength=self.count + 1)[1:]
        return found

    def chosen(self, kept: Booleans, code: Integers | None = None) -> Integers:
        """The rows that are kept, by snapshot, in the order of the texts that `code` stands for."""
        rows = np.flatnonzero(kept & (self.snapshot >= 0))
        key = self.snapshot[rows]
        if code is not None:
            texts = self.texts("machine")
            rank = np.empty(len(texts), np.int64)
            rank[pc.sort_indices(texts).to_numpy()] = np.arange(len(texts))
            key = key * (len(texts) + 1) + rank[code[rows]]
        return rows if (key[1:] >= key[:-1]).all() else rows[np.argsort(key, kind="stable")]

    def plain(self, rows: Integers) -> pa.Table:
        """Some rows, with texts; states stay dictionaries, so that equal ones are read once for all snapshots."""
        found = self.table.take(pa.array(rows))
        return found.cast(pa.schema(map(_plain, found.schema)))


def _plain(field: pa.Field) -> pa.Field:
    is_encoded = pa.types.is_dictionary(field.type) and field.name != "state"
    return field.with_type(pa.string()) if is_encoded else field


def _with_something_in_flight(channels_: _Rows) -> Booleans:
    """Which channels have something in flight, by their counts."""
    found: Booleans = pc.not_equal(channels_.table["in_flight_count"], 0).to_numpy()
    return found


def integers(column: Any, null: int) -> Integers:
    """A column of integers in numpy."""
    column = pc.fill_null(column, null) if column.null_count else column
    found: Integers = column.to_numpy(zero_copy_only=False).astype(np.int64)
    return found


def _at_rest(machines: _Rows) -> Booleans:
    (name, _), (status, _) = machines.codes("machine"), machines.codes("status")
    is_passive = np.append(_is(machines.texts("status"), "passive"), False)
    is_driver = np.append(_is(machines.texts("machine"), DRIVER), False)
    waits_for = pc.fill_null(pc.list_value_length(machines.table["waits_for"]), 0).to_numpy() > 0
    found: Booleans = is_passive[status] & ~waits_for & ~is_driver[name]
    return found


def _is(texts: Any, word: str) -> Booleans:
    found: Booleans = pc.equal(texts, word).to_numpy(zero_copy_only=False)
    return found


def _greatest(machines: _Rows) -> Integers:
    """A row of each snapshot that has the greatest incarnation in it."""
    least = np.iinfo(np.int64).min
    incarnation = integers(machines.table["incarnation"].combine_chunks(), least)
    greatest = np.full(machines.count + 1, least)
    np.maximum.at(greatest, machines.snapshot, incarnation)
    rows = np.flatnonzero((incarnation == greatest[machines.snapshot]) & (machines.snapshot >= 0))
    first = np.full(machines.count, -1)
    first[machines.snapshot[rows]] = rows
    return first[first >= 0]


def _absent(machines: _Rows, rows: Integers) -> Absent:
    name, _ = machines.codes("machine")
    mine = name[rows]

    @cache
    def plain() -> pa.Table:
        return machines.plain(rows)

    def fetch(names: Sequence[str] | None) -> pa.Table:
        if names is None:
            return plain()
        is_asked = pc.is_in(machines.texts("machine"), value_set=pa.array(names, pa.string()))
        return machines.plain(rows[is_asked.to_numpy(zero_copy_only=False)[mine]])

    def partials(item: Any, snapshot: Snapshot) -> list[Any]:
        return [item.partial(_alone(snapshot, plain()))]

    return Absent({"": len(rows)}, {"": len(rows)}, {}, 0, fetch, partials)  # nobody asks of which class they are


def _alone(snapshot: Snapshot, machines: pa.Table) -> Snapshot:
    """Some rows of machines, as a snapshot that has nothing else."""
    return Snapshot({"snapshots": snapshot.tables["snapshots"]}).with_machines(machines)
