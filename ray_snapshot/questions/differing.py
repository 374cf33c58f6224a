"""What is otherwise in one snapshot than in another: machines that appeared, vanished or were replaced, fields that changed.

`diff` holds any two snapshots against each other; the Spark job `changes` has `changes` done by its tasks: each snapshot of a
run against the one before it. Only rows that are not the same become Python's, and their states are parsed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ray_snapshot.errors import HistoryNotFoundError, SettingError
from ray_snapshot.history import History
from ray_snapshot.json_text import parsed_json
from ray_snapshot.large_columns import taken
from ray_snapshot.questions.reading import TIME, Answers, chosen, faults, in_batches, rows_of, table_of

EXISTS, CLASS, HOST, INCARNATION, WHOLE = "(exists)", "(class)", "(host)", "(incarnation)", "(state)"
"""Fields that are no fields of a state; `WHOLE` stands for a state that has none, such as a list."""

_OWN = {CLASS: "class_name", HOST: "host", INCARNATION: "incarnation"}
_KEPT = ("class_name", "host", "incarnation", "state")
"""What is held against each other."""

_NAMED = ["machine", "class_name"]
_READ = ("snapshot_id", "machine", *_KEPT)
_TEXTS = ("system", "run_id", *_NAMED)
_RUN = [("system", pa.string()), ("run_id", pa.string())]
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
_JSON = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
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
    """`changes` (a row a machine and field), `machines`, `fields`: as the Spark job `changes`, between two snapshots.

    `one`, `other`: whatever `History.resolve` takes; the earlier is held against the later. Without `other` it is the latest
    that was completed (of `system`, of `run`, of the system of `one`), without `one` the one before it in its run. `machine`,
    `field`: leave the rest out. Raises `HistoryNotFoundError`, `SettingError`. Cost: the machines of two snapshots.
    """
    with faults(history):
        earlier, later = _ends(history, one, other, system, run)
        ids = [earlier["snapshot_id"], later["snapshot_id"]]
        rows = rows_of(history, "machines", ids, _READ)
        before, after = (rows.filter(pc.equal(rows["snapshot_id"], snapshot_id)) for snapshot_id in ids)
        if machine is not None:
            _check_machine(machine, rows)
        found = between(before, after, {**later, "run_id": earlier["run_id"]}, machine=machine, field=field)
        return {"changes": found, "machines": machines_in(found), "fields": fields_in(found)}


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
    named = None if one is None else _snapshot(history, one, system, rows)
    if other is not None:
        later = _snapshot(history, other, system, rows)
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


def _snapshot(history: History, text: str, system: str | None, rows: list[Row]) -> Row:
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


def _check_machine(machine: str, rows: pa.Table) -> None:
    known = set(rows["machine"].to_pylist())
    if machine not in known:
        some = ", ".join(sorted(known)[:_MOST_NAMED])
        raise SettingError(f"no machine {machine!r} in these snapshots; they have {some or 'none'}, ...")


# ---- what changed ------------------------------------------------------------------------------------------------------


def changes(
    history: History, snapshots: pa.Table, machine: str | None = None, field: str | None = None
) -> Iterator[pa.Table]:
    """Rows of `CHANGES`: each of these snapshots (rows of that table, by run and time) against the one before it in its run."""
    listed = {row["snapshot_id"]: row for row in snapshots.select([name for name, _ in (*_RUN, *_AT)]).to_pylist()}
    run, before = None, None
    for batch in in_batches(snapshots):
        rows = rows_of(history, "machines", batch, _READ, machine)
        for snapshot_id in batch:
            at, now = listed[snapshot_id], rows.filter(pc.equal(rows["snapshot_id"], snapshot_id))
            if before is not None and at["run_id"] == run:
                yield between(before, now, at, machine=machine, field=field)
            run, before = at["run_id"], now


def between(
    before: pa.Table, after: pa.Table, at: Mapping[str, Any], *, machine: str | None = None, field: str | None = None
) -> pa.Table:
    """Rows of `CHANGES`, by machine and field, of the machines of two snapshots; `at` has what is said of the later one."""
    found = [
        one
        for one in _changes(before, after)
        if one.before != one.after and machine in (None, one.machine) and field in (None, one.field)
    ]
    found.sort(key=attrgetter("machine", "field"))
    columns = (
        dict(zip(Change._fields, zip(*found, strict=True), strict=True)) if found else dict.fromkeys(Change._fields, ())
    )
    known = {name: pa.repeat(pa.scalar(at[name], kind), len(found)) for name, kind in (*_RUN, *_AT)}
    return pa.table([{**columns, **known}[name] for name in CHANGES.names], schema=CHANGES)


class Change(NamedTuple):
    """A field of a machine, before and after."""

    machine: str
    class_name: str | None
    field: str
    before: str | None
    after: str | None


def _changes(before: pa.Table, after: pa.Table) -> Iterator[Change]:
    """Each field of each machine that is not the same, and some that are: the caller leaves them out."""
    places = pc.index_in(after["machine"], value_set=before["machine"].combine_chunks()).combine_chunks()
    is_old = places.is_valid()
    gone = pc.invert(pc.is_in(before["machine"], value_set=after["machine"].combine_chunks()))
    for row in before.filter(gone).select(_NAMED).to_pylist():
        yield _change(row, EXISTS, "yes", "no")
    for row in after.filter(pc.invert(is_old)).select(_NAMED).to_pylist():
        yield _change(row, EXISTS, "no", "yes")
    old, new = taken(before, places.drop_null()), after.filter(is_old)
    differs = pa.chunked_array([np.zeros(new.num_rows, np.bool_)])
    for name in _KEPT:
        is_other = pc.fill_null(pc.not_equal(old[name], new[name]), True)
        differs = pc.or_(differs, pc.and_not(is_other, pc.and_(old[name].is_null(), new[name].is_null())))
    for was, now in zip(old.filter(differs).to_pylist(), new.filter(differs).to_pylist(), strict=True):
        yield from _of_both(was, now)


def _of_both(old: Row, new: Row) -> Iterator[Change]:
    for field, column in _OWN.items():
        yield _change(new, field, _text(old[column]), _text(new[column]))
    if old["state"] != new["state"]:
        was, now = fields_of(old["state"]), fields_of(new["state"])
        for field in {**was, **now}:
            yield _change(new, field, was.get(field), now.get(field))


def _change(row: Row, field: str, before: str | None, after: str | None) -> Change:
    return Change(row["machine"], row["class_name"], field, before, after)


def fields_of(state: str | None) -> dict[str, str | None]:
    """A state by field, as texts: a text stands for itself, all else as JSON. One that is no object is a field of its own."""
    if state is None:
        return {}
    try:
        found = parsed_json(state) if state.startswith("{") else None
    except ValueError:
        found = None
    return {WHOLE: state} if found is None else {name: _text(value) for name, value in found.items()}


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return _JSON.encode(value)


# ---- what is made of that ----------------------------------------------------------------------------------------------


def machines_in(changes: pa.Table) -> pa.Table:
    """Rows of `MACHINES`: the changes that are no changes of a state."""
    events = {HOST: "moved", INCARNATION: "restarted", CLASS: "replaced"}
    found = []
    for row in changes.filter(pc.is_in(changes["field"], value_set=pa.array([EXISTS, *events]))).to_pylist():
        if row["field"] == EXISTS:
            event = "appeared" if row["after"] == "yes" else "vanished"
            found.append({**row, "event": event, "before": None, "after": None})
        else:
            found.append({**row, "event": events[row["field"]]})
    return table_of(MACHINES, found)


def fields_in(changes: pa.Table) -> pa.Table:
    """Rows of `FIELDS`, the rarest first: how often each field of a class changed, in how many machines, first and last."""
    is_of_state = pc.invert(pc.is_in(changes["field"], value_set=pa.array([EXISTS, *_OWN])))
    key = ["system", "run_id", "class_name", "field"]
    by_time = changes.filter(is_of_state).sort_by("sequence")
    counts = [("machine", "count"), ("machine", "count_distinct"), ("snapshot_id", "first"), ("snapshot_id", "last")]
    found = by_time.group_by(key, use_threads=False).aggregate(counts).rename_columns(FIELDS.names)
    return found.cast(FIELDS).sort_by([(name, "ascending") for name in ("changes", "class_name", "field")])
