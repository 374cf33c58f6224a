"""Rows of a history as they lie there, from the latest commit of their table: what the rest of a reader is built on."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pyarrow as pa

from ray_snapshot.addresses import AnyPath
from ray_snapshot.errors import HistoryFormatError, HistoryNotFoundError
from ray_snapshot.history import rows_alone, tables
from ray_snapshot.limits import LIMITS
from ray_snapshot.schema import ADDED_LATER, TABLES

_ID = re.compile(r"\d{8}T\d{12}Z-.+-\d{6}")
"""An id as snapshots get it, whole."""


class StoredRows:
    """Of the history in the folder `path`; may be pickled."""

    def __init__(self, path: AnyPath, *, is_as_stored: bool = False) -> None:
        """`is_as_stored`: times are handed out that are none, for who looks for what is wrong."""
        self.path = path
        self.is_as_stored = is_as_stored

    def read(
        self,
        name: str,
        *,
        snapshot_ids: Collection[str] | None = None,
        system: str | None = None,
        run_id: str | None = None,
        machine: str | None = None,
        columns: Sequence[str] | None = None,
        where: Mapping[str, str] | None = None,
    ) -> pa.Table:
        """Rows of the latest version; read again from a later one if a vacuum took a file away meanwhile.

        Raises `HistoryFormatError` if one has a time that Python cannot hold: whoever reads it would fall over it, anywhere.
        """
        for attempt in range(LIMITS.read_attempts):
            with tables.faults(self.path, name, "read", HistoryFormatError):
                files = self.data_files(name, snapshot_ids=snapshot_ids, system=system, machine=machine)
                try:
                    found = tables.scan(
                        name,
                        files,
                        snapshot_ids=snapshot_ids,
                        equal={**(where or {}), "run_id": run_id, "machine": machine},
                        columns=columns,
                    )
                    return found if self.is_as_stored else self.refused(name, found, rows_alone.untimely(name, found))
                except FileNotFoundError:
                    if attempt == LIMITS.read_attempts - 1:
                        raise
        raise AssertionError("the loop returns or raises")

    def data_files(self, name: str, **filters: Any) -> list[tables.DataFile]:
        """The files of one table that may hold what is asked for: see `tables.data_files`."""
        if self.lacks(name):
            return []
        table = tables.open_table(self.path, name)
        with tables.faults(self.path, name, "read", HistoryFormatError):
            return tables.data_files(self.path, name, table, **filters)

    def lacks(self, name: str) -> bool:
        """Whether the history is older than this table."""
        return name in ADDED_LATER and not tables.has_log(self.path / name)

    def check_table(self, name: str) -> None:
        """Raise `HistoryNotFoundError` for a table that no history has."""
        if name not in TABLES:
            known = ", ".join(TABLES)
            raise HistoryNotFoundError(f"a history has no table {name!r}; it has {known}", path=self.path)

    def known(self, snapshot_id: str) -> str:
        """The id itself; raises `HistoryNotFoundError` if it is of no snapshot that is there."""
        if not self.read("snapshots", snapshot_ids=[snapshot_id], columns=["snapshot_id"]).num_rows:
            raise self.unknown(snapshot_id)
        return snapshot_id

    def unknown(self, snapshot_id: str, system: str | None = None) -> HistoryNotFoundError:
        """That this snapshot is not there, and what is."""
        ids = StoredRows(self.path, is_as_stored=True).read(
            "snapshots", system=system, columns=["snapshot_id", "started_at"]
        )
        latest = tables.in_order(ids, ("started_at", "snapshot_id"))["snapshot_id"].to_pylist()[-1:]
        holds = f"it has {ids.num_rows}, the latest is {latest[0]}" if latest else "there are none yet"
        if _ID.fullmatch(snapshot_id):
            holds += "; it may have been removed (`--keep`, `--keep-every`)"
        elif latest:
            holds += "; say an id, the beginning of one, latest, or -2 for the one before"
        whose = "" if system is None else f" of system {system!r}"
        return HistoryNotFoundError(
            f"no snapshot {snapshot_id!r}{whose} in the history {self.path}: {holds}",
            path=self.path,
            snapshot_id=snapshot_id,
        )

    def complete(self, name: str, rows: pa.Table) -> pa.Table:
        """`rows`; raises `HistoryFormatError` if one lacks a value that every reader needs."""
        return self.refused(name, rows, rows_alone.without(name, rows))

    def refused(self, name: str, rows: pa.Table, problems: Sequence[str]) -> pa.Table:
        """`rows`; raises `HistoryFormatError` for the first problem, if there is one."""
        if problems:
            raise HistoryFormatError(
                f"history {self.path}: table {name} is damaged: {problems[0]}; put it back from a copy",
                path=self.path,
                table=name,
            )
        return rows

    def damaged(self, snapshot_id: str, name: str, problem: str) -> HistoryFormatError:
        """That the rows of a snapshot are not what they must be."""
        return HistoryFormatError(
            f"history {self.path}: snapshot {snapshot_id} is damaged: table {name} {problem}",
            path=self.path,
            table=name,
            snapshot_id=snapshot_id,
        )
