"""Which snapshots a question is about, and their rows: a bounded number at a time, checked so that nothing has to be doubted.

What a question cannot do without is there when it gets the rows: else `HistoryFormatError` names the table. Read `ledger` next.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ray_snapshot.detectors.ledger import Amount
from ray_snapshot.errors import HistoryFormatError
from ray_snapshot.history import History, rows_alone, tables
from ray_snapshot.json_text import parsed_json

TIME = pa.timestamp("us", tz="UTC")
"""Times in answers are those of the tables."""

Answers = dict[str, pa.Table]
"""The results of a question by name, as the Spark job of the same question names them."""

BYTES_AT_ONCE = 256_000_000
"""What the machines and messages of snapshots that are looked at together take about, in memory."""

_SIZES = ("machine_count", "in_flight_count")
_ROW_BYTES = 200
"""What a machine or message takes beside its JSON."""


def faults(history: History, table: str = "snapshots") -> AbstractContextManager[None]:
    """Whatever a damaged history raises while a question is answered is an error that names it."""
    return tables.faults(history.path, table, "read", HistoryFormatError)


def chosen(history: History, system: str | None, run: str | None) -> pa.Table:
    """The completed snapshots asked about, the earliest first; of a run the beginning of its id will do.

    Raises `HistoryNotFoundError`, naming what there is, for a system or run that the history has not.
    """
    for what, wanted in (("system", system), ("run", run)):
        if wanted is not None:
            history.check_known(what, wanted)
    with faults(history):
        rows = _sound(history, "snapshots", history.snapshot_table(system))
        rows = rows.filter(pc.equal(rows["status"], "complete"))
        if (distinct := len(rows["snapshot_id"].unique())) < rows.num_rows:
            raise _damage(history, "snapshots", f"it lists {rows.num_rows - distinct} snapshots twice")
        return rows if run is None else rows.filter(pc.starts_with(rows["run_id"], run))


def in_batches(snapshots: pa.Table) -> Iterator[list[str]]:
    """The ids of snapshots in their order, as many at a time as take a bounded amount of memory together."""
    batch: list[str] = []
    size = 0
    for row in snapshots.select(["snapshot_id", *_SIZES, "bytes"]).to_pylist():
        own = max(0, row["bytes"] or 0) + _ROW_BYTES * sum(max(0, row[name]) for name in _SIZES)
        if batch and size + own > BYTES_AT_ONCE:
            yield batch
            batch, size = [], 0
        batch.append(row["snapshot_id"])
        size += own
    if batch:
        yield batch


def rows_of(
    history: History, table: str, snapshot_ids: Sequence[str], columns: Sequence[str], machine: str | None = None
) -> pa.Table:
    """Some columns of one table for some snapshots, in no order; `machine`: only the rows of that one."""
    where = None if machine is None else {"machine": machine}
    return _sound(history, table, history.rows_of(table, snapshot_ids, columns, where=where))


def _sound(history: History, table: str, rows: pa.Table) -> pa.Table:
    """The rows, if they have all that every reader needs, and their texts are texts."""
    lacks = [name for name in rows_alone.NEEDED[table] if name in rows.column_names and rows[name].null_count]
    problems = [f"it has {rows[name].null_count} rows without {name}" for name in lacks]
    if not problems:
        try:
            rows.validate(full=True)
        except pa.ArrowInvalid as fault:
            problems = [f"it has texts that are none: {str(fault)[:200]}"]
    if problems:
        raise _damage(history, table, problems[0])
    return rows


def _damage(history: History, table: str, problem: str) -> HistoryFormatError:
    return HistoryFormatError(
        f"history {history.path}: table {table} is damaged: {problem}; put it back from a copy",
        path=history.path,
        table=table,
    )


def table_of(schema: pa.Schema, rows: Sequence[dict[str, Any]]) -> pa.Table:
    """Rows as an Arrow table of exactly these columns."""
    return pa.Table.from_pylist(list(rows), schema=schema)


def latest_specs(history: History, system: str | None) -> dict[tuple[str, str], dict[str, Any]]:
    """By run and detector: the data of the detector as it was stored last; nothing where it is no JSON object.

    Nothing that it names is imported.
    """
    ids = history.snapshot_table(system)["snapshot_id"].to_pylist()
    rows = rows_of(history, "verdicts", ids, ("snapshot_id", "run_id", "detector", "detector_spec", "evaluated_at"))
    rows = rows.filter(pc.and_(rows["detector_spec"].is_valid(), rows["evaluated_at"].is_valid()))
    keys = ["run_id", "detector", "detector_spec"]
    last = rows.group_by(keys).aggregate([("evaluated_at", "max")]).sort_by("evaluated_at_max")
    found = {(row["run_id"], row["detector"]): row["detector_spec"] for row in last.select(keys).to_pylist()}
    return {key: data for key, spec in found.items() if (data := data_of(spec)) is not None}


def data_of(spec: str) -> dict[str, Any] | None:
    """The data of a detector as it is stored; None where it is no JSON object."""
    try:
        found = parsed_json(spec)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def as_float(value: Amount) -> float:
    """The nearest float, which may be infinite."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
