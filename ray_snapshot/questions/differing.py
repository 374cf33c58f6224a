"""What is otherwise in one snapshot than in another: machines that appeared, vanished or were replaced, fields that changed.

The results, columns and rules are those of the Spark job `changes`, of two snapshots alone. Values are written as Spark writes
them, so that both say the same; a test holds the two together. Read `state_fields` for that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ray_snapshot.errors import HistoryNotFoundError, SettingError
from ray_snapshot.history import History
from ray_snapshot.questions.reading import TIME, Answers, chosen, faults, rows_of, table_of
from ray_snapshot.questions.state_fields import fields_of

EXISTS, CLASS, HOST, INCARNATION = "(exists)", "(class)", "(host)", "(incarnation)"
"""Fields that are no fields of a state."""

_OWN = {CLASS: "class_name", HOST: "host", INCARNATION: "incarnation"}
_KEPT = ("class_name", "host", "incarnation", "state")
"""What is held against each other."""

_TEXTS = ("system", "run_id", "machine", "class_name")
_AT = [("snapshot_id", pa.string()), ("sequence", pa.int64()), ("started_at", TIME)]
_ENDS = [("before", pa.string()), ("after", pa.string())]

CHANGES = pa.schema([*((name, pa.string()) for name in (*_TEXTS, "field")), *_AT, *_ENDS])
MACHINES = pa.schema([*((name, pa.string()) for name in (*_TEXTS, "event")), *_AT, *_ENDS])
FIELDS = pa.schema(
    [
        *((name, pa.string()) for name in ("system", "run_id", "class_name", "field")),
        *((name, pa.int64()) for name in ("changes", "machines")),
        *((name, pa.string()) for name in ("first_id", "last_id")),
    ]
)

_MOST_NAMED = 3
Row = dict[str, Any]


def diff(
    history: History,
    one: str | None = None,
    other: str | None = None,
    *,
    system: str | None = None,
    run: str | None = None,
    machine: str | None = None,
    field: str | None = None,
) -> Answers:
    """`changes` (a row a machine and field), `machines`, `fields`: as the Spark job `changes` between two snapshots.

    `one`, `other`: whatever `History.resolve` takes; the earlier is held against the later. Without `other` it is the latest
    that was completed (of `system`, of `run`, of the system of `one`), without `one` the one before it in its run. `machine`,
    `field`: leave the rest out. Raises `HistoryNotFoundError`, `SettingError`. Cost: the machines of two snapshots.
    """
    with faults(history):
        earlier, later = _ends(history, one, other, system, run)
        ids = [earlier["snapshot_id"], later["snapshot_id"]]
        rows = rows_of(history, "machines", ids, ("snapshot_id", "machine", *_KEPT))
        before, after = (_by_name(rows, snapshot_id) for snapshot_id in ids)
        if machine is not None:
            _check_machine(machine, {*before, *after})
            before, after = ({name: row for name, row in end.items() if name == machine} for end in (before, after))
        at = {
            **{name: later[name] for name in ("system", "snapshot_id", "sequence", "started_at")},
            "run_id": earlier["run_id"],
        }
        found = [
            {**at, **change}
            for change in _changes(before, after)
            if change["before"] != change["after"] and field in (None, change["field"])
        ]
        return {
            "changes": table_of(CHANGES, sorted(found, key=lambda row: (row["machine"], row["field"]))),
            "machines": table_of(MACHINES, list(_events(found))),
            "fields": table_of(FIELDS, _counted(found)),
        }


def two_snapshots(
    history: History,
    one: str | None = None,
    other: str | None = None,
    *,
    system: str | None = None,
    run: str | None = None,
) -> tuple[str, str]:
    """The ids of the two snapshots that `diff` means by these words, the earlier first."""
    with faults(history):
        earlier, later = _ends(history, one, other, system, run)
        return earlier["snapshot_id"], later["snapshot_id"]


# ---- which two ---------------------------------------------------------------------------------------------------------


def _ends(history: History, one: str | None, other: str | None, system: str | None, run: str | None) -> tuple[Row, Row]:
    completed = chosen(history, system, run)
    rows = completed.select(["snapshot_id", "system", "run_id", "sequence", "started_at"]).to_pylist()
    if not rows:
        raise HistoryNotFoundError(
            f"no completed snapshot in the history {history.path}: there is nothing to compare", path=str(history.path)
        )
    named = None if one is None else _named(history, one, system, rows)
    if other is not None:
        later = _named(history, other, system, rows)
    else:
        later = [row for row in rows if named is None or row["system"] == named["system"]][-1]
    earlier = named or _before(later, rows)
    if earlier["snapshot_id"] == later["snapshot_id"]:
        raise SettingError(f"both are the snapshot {later['snapshot_id']}")
    if earlier["system"] != later["system"]:
        raise SettingError(
            f"{earlier['snapshot_id']} is of the system {earlier['system']}, and {later['snapshot_id']} of"
            f" {later['system']}: name two of one system"
        )
    first, second = sorted((earlier, later), key=lambda row: (row["started_at"], row["snapshot_id"]))
    return first, second


def _named(history: History, text: str, system: str | None, rows: list[Row]) -> Row:
    snapshot_id = history.resolve(text, system=system)
    for row in rows:
        if row["snapshot_id"] == snapshot_id:
            return row
    raise SettingError(f"snapshot {snapshot_id} was aborted, or is of another run: it is not compared")


def _before(later: Row, rows: list[Row]) -> Row:
    """The one before a snapshot in its run."""
    earlier = [row for row in rows if row["run_id"] == later["run_id"] and row["sequence"] < later["sequence"]]
    if not earlier:
        raise SettingError(
            f"{later['snapshot_id']} is the first completed snapshot of its run: name the one to compare it with"
        )
    return max(earlier, key=lambda row: row["sequence"])


def _by_name(rows: pa.Table, snapshot_id: str) -> dict[str, Row]:
    """The machines of one snapshot."""
    return {row["machine"]: row for row in rows.filter(pc.equal(rows["snapshot_id"], snapshot_id)).to_pylist()}


def _check_machine(machine: str, known: set[str]) -> None:
    if machine not in known:
        some = ", ".join(sorted(known)[:_MOST_NAMED])
        raise SettingError(f"no machine {machine!r} in these snapshots; they have {some or 'none'}, ...")


# ---- what changed ------------------------------------------------------------------------------------------------------


def _changes(before: dict[str, Row], after: dict[str, Row]) -> Iterator[Row]:
    """Each field of each machine that is not the same, and some that are: the caller leaves them out."""
    for name, old in before.items():
        if name not in after:
            yield _change(old, EXISTS, "yes", "no")
    for name, new in after.items():
        if name not in before:
            yield _change(new, EXISTS, "no", "yes")
        elif any(before[name][column] != new[column] for column in _KEPT):
            yield from _of_both(before[name], new)


def _of_both(old: Row, new: Row) -> Iterator[Row]:
    for field, column in _OWN.items():
        yield _change(new, field, _text(old[column]), _text(new[column]))
    if old["state"] != new["state"]:
        was, now = fields_of(old["state"]), fields_of(new["state"])
        for field in {**was, **now}:
            yield _change(new, field, was.get(field), now.get(field))


def _change(row: Row, field: str, before: str | None, after: str | None) -> Row:
    return {
        "machine": row["machine"],
        "class_name": row["class_name"],
        "field": field,
        "before": before,
        "after": after,
    }


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _events(changes: Iterable[Row]) -> Iterator[Row]:
    """The changes that are no changes of a state."""
    words = {HOST: "moved", INCARNATION: "restarted", CLASS: "replaced"}
    found = []
    for row in changes:
        if row["field"] == EXISTS:
            event = "appeared" if row["after"] == "yes" else "vanished"
            found.append({**row, "event": event, "before": None, "after": None})
        elif row["field"] in words:
            found.append({**row, "event": words[row["field"]]})
    yield from sorted(found, key=lambda row: (row["machine"], row["event"]))


def _counted(changes: Iterable[Row]) -> list[Row]:
    """One row a field of a class: in how many machines it changed."""
    found: dict[tuple[str, str], Row] = {}
    for row in changes:
        if row["field"] in (EXISTS, *_OWN):
            continue
        key = row["class_name"] or "", row["field"]
        known = found.setdefault(
            key, {**row, "changes": 0, "first_id": row["snapshot_id"], "last_id": row["snapshot_id"]}
        )
        known["changes"] += 1
        known["machines"] = known["changes"]
    return sorted(found.values(), key=lambda row: (row["changes"], row["class_name"] or "", row["field"]))
