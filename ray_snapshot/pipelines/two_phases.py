"""The two phases of a commit: stage with the recording, publish when the snapshot is kept. Imports no Ray.

    recording      `stage()`: what was written since the last one becomes a part on the disk; the ledger names it, and is the
                   state that the snapshot holds
    kept           `commit(state)`: exactly the parts that this state names are published; no restore goes back behind it
    going back     `Committer.restored(output, state)`: what the state names and is not published is published now; what came
                   behind it is rejected, be it staged or published

If a snapshot is given up, or cannot be restored, the sink never hears of it: the next one names its parts, too, and
they are published with that. Each step may be repeated, and the process may end between any two changes of the files
(`tests/pipelines/test_kill_between_steps.py` ends it at every one).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import pyarrow as pa

from ray_snapshot.errors import OutputChangedError, SettingError
from ray_snapshot.pipelines.parts import REJECTED, STAGED, Ledger, Part, Place

ROWS_PER_PART = 1_000_000
"""Past so many rows a part is staged between two snapshots."""


class Output(Protocol):
    """Where parts are published."""

    schema: pa.Schema
    place: Place

    def open(self, ledger: Ledger) -> None:
        """Make it if it is not there. Raises `OutputChangedError` if a sink of that name has published there already."""

    def publish(self, ledger: Ledger, numbers: Sequence[int]) -> None:
        """Show these parts, which are staged, if they are not shown already."""

    def go_back(self, ledger: Ledger) -> None:
        """Show all that the ledger holds, and nothing else of this sink."""


class Committer:
    """Collects what a machine wants to publish, and publishes it once the snapshot that holds it is kept."""

    def __init__(self, output: Output, ledger: Ledger) -> None:
        self.output = output
        self.ledger = ledger
        self.rows: list[pa.Table] = []
        self.row_count = 0

    @classmethod
    def begun(cls, output: Output, sink: str) -> Committer:
        """The committer of a sink that begins."""
        found = cls(output, Ledger.begun(sink))
        output.open(found.ledger)
        return found

    @classmethod
    def restored(cls, output: Output, state: dict[str, Any]) -> Committer:
        """The committer of a sink that goes on from a recorded state; its snapshot was kept, so the state can be relied
        on."""
        ledger = Ledger.restored(state)
        output.place.make()
        output.go_back(ledger)
        ledger.published(ledger.pending)
        return cls(output, ledger)

    def write(self, rows: Any) -> None:
        """Take rows in; see `as_table` for what they may be."""
        table = as_table(rows, self.output.schema)
        if table.num_rows:
            self.rows.append(table)
            self.row_count += table.num_rows
        if self.row_count >= ROWS_PER_PART:
            self.stage()

    def stage(self) -> dict[str, Any]:
        """Phase one; returns what the snapshot must hold. If it raises, nothing was lost."""
        if self.rows:
            self.output.place.stage(self.ledger.following(), pa.concat_tables(self.rows).combine_chunks())
            self.ledger.staged()
            self.rows, self.row_count = [], 0
        return self.ledger.state()

    def commit(self, state: dict[str, Any]) -> None:
        """Phase two, of what a state names."""
        numbers = [number for number in state["pending"] if number in self.ledger.pending]
        if numbers:
            self.output.publish(self.ledger, numbers)
            self.ledger.published(numbers)
            self.output.place.forget_rejected(self.ledger)


class Folder:
    """A folder of Parquet files: a part is published by renaming it. See `Output`."""

    def __init__(self, path: str, schema: pa.Schema) -> None:
        self.place = Place(path)
        self.schema = schema

    def open(self, ledger: Ledger) -> None:
        self.place.make()
        check_unused(self.place, ledger, self.place.path.glob(f"{ledger.sink}-*.parquet"))

    def publish(self, ledger: Ledger, numbers: Sequence[int]) -> None:
        marked, staged = self.place.marked(ledger), []
        for part in map(ledger.part, numbers):
            where = self.place.where(part)
            if where == STAGED:
                staged.append(part)
            elif where == REJECTED or (where is None and not marked.holds(part)):
                raise self.place.lost(part)
        self.place.mark(ledger, numbers)
        for part in staged:
            self.place.move(part, STAGED, "")

    def go_back(self, ledger: Ledger) -> None:
        missing = self._check(ledger)
        self.place.mark(ledger, ledger.pending)
        self.place.reject(ledger, STAGED, "")
        for part, where in missing:
            self.place.move(part, where, "")

    def _check(self, ledger: Ledger) -> list[tuple[Part, str]]:
        """Which parts are to be shown, and from where; raises if one is lost, before anything is changed.

        A part that was published and is nowhere counts as taken away by a reader, but not if another part was published
        in its place since. Such a part may still be pending here, if the sink had not heard yet that its snapshot was
        kept.
        """
        marked = self.place.marked(ledger)
        replaced = {part.number for part in self.place.parts(ledger, "") if not ledger.holds(part)}
        rejected = {part.number for part in self.place.parts(ledger, REJECTED) if ledger.holds(part)}
        needed = {number for number in (*ledger.pending, *replaced, *rejected) if number <= ledger.last}
        where = {part: self.place.where(part) for part in map(ledger.part, sorted(needed))}
        for part, place in where.items():
            if place is None and not (part.number in ledger.pending and marked.holds(part)):
                raise self.place.lost(part)
        return [(part, place) for part, place in where.items() if place]


def check_unused(place: Place, ledger: Ledger, found: Any) -> None:
    """Raise if a sink of that name has published there: its rows would be there twice."""
    earlier = next(iter(found), None)
    if earlier is not None:
        raise OutputChangedError(
            f"{place.path} has output of an earlier run of {ledger.sink} ({earlier}): go on with `ray-snapshot restore`, write"
            " elsewhere, or remove that output (with `_staged` and `_rejected`) first",
            path=str(place.path),
        )


def as_table(rows: Any, schema: pa.Schema) -> pa.Table:
    """Rows as a table of this schema: a table, a batch, a dictionary of columns, or a list of dictionaries."""
    if isinstance(rows, pa.RecordBatch):
        rows = pa.Table.from_batches([rows])
    if isinstance(rows, pa.Table):
        return rows.select(schema.names).cast(schema)
    if isinstance(rows, Mapping):
        return pa.table(dict(rows), schema=schema)
    if isinstance(rows, (list, tuple)):
        return pa.Table.from_pylist(list(rows), schema=schema)
    raise SettingError(
        f"a sink was sent {type(rows).__name__}: send a table, a dictionary of columns, or a list of dictionaries"
    )
