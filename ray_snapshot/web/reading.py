"""How pages read a history: what was committed is read once for all viewers, states only of the machines that are shown.

A snapshot does not change once a history lists it, so what is read of it is kept; a list is kept until the next commit.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ray_snapshot.addresses import StorePath
from ray_snapshot.errors import HistoryNotFoundError
from ray_snapshot.glances import Word
from ray_snapshot.history import objects
from ray_snapshot.history.tables import LOG
from ray_snapshot.names import CALLS, noun_of
from ray_snapshot.reports import gathering
from ray_snapshot.reports.course import answer_of
from ray_snapshot.schema import MESSAGES, SNAPSHOT_TABLES
from ray_snapshot.snapshot import Snapshot
from ray_snapshot.views.charts import GRAVEST
from ray_snapshot.web.served import Place, Served

HEAVY = {"machines": ("state",), "messages": ("args",)}
"""Columns that are read of single rows only: they may be of any size."""


def commits(place: Place, table: str) -> tuple[Any, int] | None:
    """Something that changes with each commit of a table, and costs no look into it; None if there is no such table."""
    log = place.history.path / table / LOG
    if isinstance(log, StorePath):
        return _commits_there(log)
    try:
        return os.stat(log).st_mtime_ns, len(os.listdir(log))
    except OSError:  # whoever reads the table says what is wrong
        return None


def _commits_there(log: StorePath) -> tuple[str, int] | None:
    try:
        names = [path.name for path, _, _ in objects.log_entries(log, log)]
    except OSError:
        return None
    return (max(names), len(names)) if names else None


def resolved(served: Served, place: Place, text: str) -> str:
    """The id of the snapshot that an address means; raises as `History.resolve`."""
    ids = snapshot_rows(served, place)["snapshot_id"]
    if text == "latest" and len(ids):
        return str(ids[-1])
    return text if pc.index(ids, text).as_py() >= 0 else place.history.resolve(text)


def snapshot_rows(served: Served, place: Place) -> pa.Table:
    """`snapshots` of a history, the earliest first, without what they cover."""
    key = ("snapshots", place.key, commits(place, "snapshots"))

    def read() -> pa.Table:
        return place.history.snapshot_table().drop_columns(["coverage"])

    return served.kept.get(key, read, lambda table: table.nbytes)


def noun_of_page(served: Served, names: Mapping[str, str]) -> str:
    """What a machine is called on a page of this address: "actor" if the app was watched."""
    if "place" not in names or not (rows := snapshot_rows(served, served.place(names["place"]))).num_rows:
        return noun_of(CALLS)
    at = pc.index(rows["snapshot_id"], names.get("snapshot", "")).as_py()  # -1, the last one, if it has no such name
    return noun_of(rows["protocol"][at].as_py())


def lean(served: Served, place: Place, snapshot_id: str) -> Snapshot:
    """A snapshot without states and arguments, which are null in it; raises as `History.load` does."""

    def read() -> Snapshot:
        parts = {}
        for name, schema in SNAPSHOT_TABLES.items():
            columns = [column for column in schema.names if column not in HEAVY.get(name, ())]
            rows = place.history.rows_of(name, [snapshot_id], columns)
            for column in HEAVY.get(name, ()):
                rows = rows.append_column(column, pa.nulls(rows.num_rows, pa.string()))
            parts[name] = rows.select(schema.names)
        return place.history.wholes.assembled(snapshot_id, parts)

    key = ("lean", place.key, snapshot_id, born(place))
    found = served.kept.get(key, read, lambda one: sum(table.nbytes for table in one.tables.values()))
    assert isinstance(found, Snapshot)
    return found


def born(place: Place) -> int:
    """Another number for another history in the same folder."""
    log = place.history.path / "snapshots" / LOG
    if isinstance(log, StorePath):
        return 0
    try:
        return os.stat(log).st_ino
    except OSError:
        return 0


def words(served: Served, place: Place, snapshot_id: str) -> tuple[Word, ...]:
    """What each detector said of a snapshot: the gravest that any evaluator said last."""

    def read() -> tuple[Word, ...]:
        found: dict[str, Word] = {}
        for said in map(Word.of, place.history.verdicts(snapshot_id=snapshot_id)):
            found[said.detector] = min(said, found.get(said.detector, said), key=_gravity)
        return tuple(found[name] for name in sorted(found))

    found: tuple[Word, ...] = served.kept.get(("words", place.key, snapshot_id, commits(place, "verdicts")), read)
    return found


def _gravity(said: Word) -> int:
    return GRAVEST.index(answer_of(said.holds, said.alarm))


def verdicts_on(served: Served, place: Place, snapshot: Snapshot) -> list[dict[str, Any]]:
    """The verdicts on a snapshot with their evidence, alarms first; on deadlock and termination they are found if need be."""
    key = ("verdicts", place.key, snapshot.snapshot_id, commits(place, "verdicts"))

    def read() -> list[dict[str, Any]]:
        return gathering.verdicts_on(place.history, snapshot)

    found: list[dict[str, Any]] = served.kept.get(key, read, lambda rows: 10_000 * (1 + len(rows)))
    return found


def machine_row(place: Place, snapshot_id: str, name: str) -> pa.Table:
    """The row of a machine with its state; raises `HistoryNotFoundError`."""
    found = place.history.machine_table(name, [snapshot_id])
    if not found.num_rows:
        raise HistoryNotFoundError(
            f"no machine {name!r} in snapshot {snapshot_id}", path=str(place.history.path), snapshot_id=snapshot_id
        )
    return found.slice(0, 1).select(SNAPSHOT_TABLES["machines"].names)


def messages_of(
    served: Served, place: Place, snapshot_id: str, wanted: Mapping[str, str], most: int
) -> tuple[list[dict[str, Any]], int]:
    """The first messages in flight that have these values, with their arguments; and how many there are."""
    light = lean(served, place, snapshot_id).tables["messages"]
    for column, value in wanted.items():
        light = light.filter(pc.equal(light[column], value))
    if not light.num_rows:
        return [], 0
    rows = place.history.rows_of("messages", [snapshot_id], MESSAGES.names, where=wanted)
    return rows.sort_by([("source", "ascending"), ("number", "ascending")]).slice(0, most).to_pylist(), light.num_rows
