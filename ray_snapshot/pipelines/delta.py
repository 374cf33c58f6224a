"""A Delta table as an output: parts are published together, by one commit to its log. Imports no Ray.

Each commit carries the sink's name and the number of its last part as a transaction of the application. So when this
sink, or a later life of it, repeats a commit, it sees that the commit is there already. A commit is made only on the
version of the table that was read; if another writer was faster, the sink reads the new version and tries again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ray_snapshot.errors import OutputChangedError
from ray_snapshot.pipelines.parts import REJECTED, STAGED, Ledger, Part, Place, part_of
from ray_snapshot.pipelines.two_phases import check_unused

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from deltalake.transaction import AddAction, RemoveAction

_ATTEMPTS = 1_000


@dataclass(frozen=True, slots=True)
class _Change:
    """What a commit does."""

    removed: Sequence[Part]
    added: Sequence[Part]
    last: int
    """The number of the last part that is shown then: the version of the transaction."""
    places: Sequence[str]
    """The places in which the added parts may wait."""


class DeltaOutput:
    """One table that a sink writes (`two_phases.Output`)."""

    def __init__(self, path: str, schema: pa.Schema) -> None:
        self.place = Place(path)
        self.schema = schema

    def open(self, ledger: Ledger) -> None:
        self.place.make()
        self._create()
        check_unused(self.place, ledger, (part.name for part in _shown(self._table()) if part.sink == ledger.sink))

    def publish(self, ledger: Ledger, numbers: Sequence[int]) -> None:
        def change(table: DeltaTable) -> _Change | None:
            behind = [number for number in numbers if number > _last(table, ledger)]
            parts = [ledger.part(number) for number in behind]
            return _Change([], parts, max(behind), ("", STAGED)) if parts else None

        self._commit(ledger, change)

    def go_back(self, ledger: Ledger) -> None:
        self._commit(ledger, lambda table: self._way_back(table, ledger))
        self.place.reject(ledger, STAGED)

    def _way_back(self, table: DeltaTable, ledger: Ledger) -> _Change | None:
        """From what the log shows to what the ledger holds: they agree up to some part, and differ behind it."""
        shown, last = [part for part in _shown(table) if ledger.is_mine(part)], _last(table, ledger)
        gone = [part for part in shown if not ledger.holds(part)]
        agreed = min([last, *(part.number - 1 for part in gone)])
        compacted = set(range(agreed + 1, last + 1)).difference(part.number for part in gone)
        if agreed > ledger.last or compacted:
            raise OutputChangedError(
                f"Delta table {self.place.path} has rows of {ledger.sink} up to part {last}, of a past behind the"
                f" snapshot's (part {ledger.last}), and they were compacted: they cannot be taken back; restore a later one",
                path=str(self.place.path),
            )
        missing = [ledger.part(number) for number in range(agreed + 1, ledger.last + 1)]
        return _Change(gone, missing, ledger.last, ("", STAGED, REJECTED)) if gone or missing else None

    # ---- the log --------------------------------------------------------------------------------------------------

    def _create(self) -> None:
        from deltalake import DeltaTable, Schema
        from deltalake.exceptions import DeltaError

        path = str(self.place.path)
        try:
            DeltaTable.create(path, Schema.from_arrow(self.schema), mode="ignore")
        except DeltaError:  # two sinks made it at once
            if not DeltaTable.is_deltatable(path):
                raise

    def _table(self) -> DeltaTable:
        from deltalake import DeltaTable

        return DeltaTable(str(self.place.path))

    def _commit(self, ledger: Ledger, change: Callable[[DeltaTable], _Change | None]) -> None:
        from deltalake import CommitProperties, Transaction
        from deltalake.exceptions import CommitFailedError

        for _ in range(_ATTEMPTS):
            table = self._table()
            found = change(table)
            if found is None:
                return
            removed = [_removal(table, part) for part in found.removed]
            actions = [*removed, *(self._addition(part, found.places) for part in found.added)]
            done = CommitProperties(app_transactions=[Transaction(_app(ledger), found.last)], max_commit_retries=0)
            try:
                table.create_write_transaction(actions, "append", table.schema(), [], commit_properties=done)
                return
            except CommitFailedError:  # another writer was faster: look again
                continue
        raise OutputChangedError(
            f"Delta table {self.place.path}: others commit to it all the time; try again later",
            path=str(self.place.path),
        )

    def _addition(self, part: Part, places: Sequence[str]) -> AddAction:
        """The part in its place, and what a commit says of it."""
        import pyarrow.parquet as pq
        from deltalake.transaction import AddAction

        where = self.place.where(part)
        if where not in places:
            raise self.place.lost(part)
        if where:  # it waits
            self.place.move(part, where, "")
        path = self.place.path_of(part)
        about = path.stat()
        statistics = json.dumps({"numRecords": pq.read_metadata(path).num_rows})
        return AddAction(part.name, about.st_size, {}, int(about.st_mtime * 1_000), True, statistics)


def _app(ledger: Ledger) -> str:
    return f"ray-snapshot/{ledger.sink}/{ledger.run}"


def _last(table: DeltaTable, ledger: Ledger) -> int:
    """The number of the last part that the log shows of this sink."""
    return int(table.transaction_version(_app(ledger)) or 0)


def _actions(table: DeltaTable) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pa.table(table.get_add_actions()).to_pylist()
    return rows


def _shown(table: DeltaTable) -> list[Part]:
    """The parts of all sinks that the log shows; not what was compacted."""
    found = (part_of(action["path"]) for action in _actions(table))
    return [part for part in found if part is not None]


def _removal(table: DeltaTable, part: Part) -> RemoveAction:
    from deltalake.transaction import RemoveAction

    about = next(action for action in _actions(table) if action["path"] == part.name)
    return RemoveAction(
        path=part.name,
        data_change=True,
        deletion_timestamp=int(time.time() * 1_000),
        size=about["size_bytes"],
        partition_values={},
    )
