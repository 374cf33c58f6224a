"""A history of three runs of two systems: the same names of machines in all, snapshots that lie between each other in time.

The answers are worked out here, in plain Python, of the rows as they are.
"""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

from ray_snapshot.history import History
from ray_snapshot.synth import Settings, synthesise

Row = dict[str, Any]
Run = tuple[str, str]

RUNS = (
    ("left", 112, "deadlock,leak,backlog,appear,slow,abort"),
    ("left", 120, "deaf,stuck,vanish,deadlock"),
    ("right", 104, "leak,abort,slow,vanish,stuck"),
)
"""Of each: its system, how many machines, and what is planted."""


def write(path: Path) -> History:
    """The history, its runs a third of a second apart."""
    for seed, (system, machines, anomalies) in enumerate(RUNS):
        begin = datetime(2026, 3, 1, tzinfo=UTC) + timedelta(seconds=seed / 3)
        synthesise(path, Settings(machines, 24, anomalies.split(","), seed, system, started_at=begin))
    return History(path)


class Plain:
    """The rows of a history as lists of dictionaries, those of completed snapshots by their run."""

    def __init__(self, history: History) -> None:
        names = ("snapshots", "machines", "channels", "messages", "waits", "verdicts")
        self.tables: dict[str, list[Row]] = {name: history.table(name).to_pylist() for name in names}
        self.complete = [row for row in self.tables["snapshots"] if row["status"] == "complete"]
        self.ids = by(self.complete, run_of, lambda row: row["snapshot_id"])
        self.rows = {name: by(rows, lambda row: row["snapshot_id"]) for name, rows in self.tables.items()}

    def at(self, table: str, snapshot_id: str, *key: str) -> dict[Any, Row]:
        """The rows of one snapshot by their key."""
        rows = self.rows[table].get(snapshot_id, [])
        return {tuple(row[name] for name in key) if len(key) > 1 else row[key[0]]: row for row in rows}

    def since_before(self, run: Run, count: str) -> dict[str, int | None]:
        """By snapshot of a run: how much a count of its machines grew since the one before, a new one's from nought."""
        grown: dict[str, int | None] = {self.ids[run][0]: None}
        for before, now in pairwise(self.ids[run]):
            old, new = (self.at("machines", one, "machine") for one in (before, now))
            grown[now] = sum(row[count] - old.get(name, {count: 0})[count] for name, row in new.items())
        return grown


def run_of(row: Row) -> Run:
    """Its system and run."""
    return row["system"], row["run_id"]


def by(rows: Iterable[Row], key: Callable[[Row], Any], value: Callable[[Row], Any] = dict) -> dict[Any, list[Any]]:
    """The rows in the order of their ids, by a key."""
    ordered = sorted(rows, key=lambda row: (key(row), row["snapshot_id"]))
    return {name: [value(row) for row in of] for name, of in groupby(ordered, key)}
