"""A sink that needs no phases: the latest row of each key, in an SQLite file. Imports no Ray.

What was written behind the cut is written again when the system has gone back, under the same keys: the last write counts, so
in the end it is as if nothing had happened. In between a reader may see what has been rolled back, and older values for a
moment. SQLite is a keyed store with transactions in the standard library; any other that can upsert would do.

The last write counts, and not the one with the highest number: going back may group what is written otherwise, and a
number that was never reached again would keep a value of the past that was given up. So no earlier life of the sink may
write any more: each life announces itself with its first write, and an earlier one is refused.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from typing import Any

from ray_snapshot.errors import OutputChangedError, SettingError
from ray_snapshot.pipelines.parts import new_life
from ray_snapshot.runtime.mixin import SnapshotMixin

PATIENCE_S = 60.0
"""How long a write waits for other writers of the file."""


class UpsertSink(SnapshotMixin):
    """Keeps the latest row of each key in table `table` of the SQLite file `path`; `write.send([{"word": "a", "count": 3}])`.

    `keys`: the columns that a row is known by; `columns`: the others. Raises `SettingError`, `OutputChangedError`.
    """

    def __init__(
        self, path: str | os.PathLike[str], keys: Sequence[str], columns: Sequence[str], *, table: str = "rows"
    ) -> None:
        self.path = os.path.abspath(path)
        self.table, self.keys, self.columns = table, tuple(keys), tuple(columns)
        for name in (table, *self.keys, *self.columns):
            if not name.isidentifier():
                raise SettingError(f"UpsertSink: {name!r} cannot be the name of a table or column")
        if not self.keys:
            raise SettingError("UpsertSink: name at least one column that rows are known by, keys=[...]")
        os.makedirs(os.path.dirname(self.path), exist_ok=True)
        self.life: str | None = None

    def write(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Rows, as dictionaries; in one transaction."""
        names = (*self.keys, *self.columns)
        values = [tuple(row[name] for name in names) for row in rows]
        with closing(self._connection()) as connection, connection:
            connection.execute("BEGIN IMMEDIATE")
            self._live(connection)
            connection.executemany(self._statement(), values)

    def restore_state(self, state: Any) -> None:
        """Another life, which begins with its first write: from there on, earlier ones may not write."""
        super().restore_state(state)
        self.life = None

    def _statement(self) -> str:
        names = (*self.keys, *self.columns)
        marks = ", ".join("?" for _ in names)
        changes = ", ".join(f'"{name}" = excluded."{name}"' for name in self.columns)
        keys = _listed(self.keys)
        what = f"UPDATE SET {changes}" if changes else "NOTHING"
        return f'INSERT INTO "{self.table}" ({_listed(names)}) VALUES ({marks}) ON CONFLICT ({keys}) DO {what}'

    def _connection(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, timeout=PATIENCE_S, isolation_level=None)
        connection.execute("PRAGMA synchronous = FULL")  # a snapshot that is kept relies on what was written before it
        return connection

    def _live(self, connection: sqlite3.Connection) -> None:
        """Announce this life, with its first write; later, see that no other has been."""
        if self.life is None:
            names, keys = _listed((*self.keys, *self.columns)), _listed(self.keys)
            connection.execute(f'CREATE TABLE IF NOT EXISTS "{self.table}" ({names}, PRIMARY KEY ({keys}))')
            connection.execute("CREATE TABLE IF NOT EXISTS _lives (sink TEXT PRIMARY KEY, life TEXT)")
            self.life = new_life()
            connection.execute("INSERT OR REPLACE INTO _lives VALUES (?, ?)", (self.machine_name, self.life))
            return
        now = connection.execute("SELECT life FROM _lives WHERE sink = ?", (self.machine_name,)).fetchone()
        if now != (self.life,):
            raise OutputChangedError(
                f"{self.path}: another {self.machine_name} has taken over; this one belongs to the past, or two programs"
                " write with the same name",
                path=self.path,
            )


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)
