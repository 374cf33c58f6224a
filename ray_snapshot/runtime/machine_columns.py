"""The columns of machines that have been copied, made column by column: of most machines most columns are the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from ray_snapshot.columns import inner
from ray_snapshot.protocol.host import MachineCopy
from ray_snapshot.runtime.ends import texts
from ray_snapshot.schema import MACHINES

NO_WAIT: tuple[str | None, int | None, tuple[str, ...]] = (None, None, ())
"""The short form of no wait."""


def machine_columns(
    copies: Sequence[MachineCopy], host: str, recorded_at: int | None = None, *, one_by_one: bool = False
) -> pa.RecordBatch:
    """Rows of `machines` without the columns that a whole snapshot has once.

    `copies`: of machines that are born. `recorded_at`: when their host turned red, in microseconds since 1970; `one_by_one`:
    each copy says when its machine did.
    """
    schema = inner(MACHINES)
    if not copies:
        return pa.RecordBatch.from_pylist([], schema=schema)
    count = len(copies)
    bodies = [copy.extra for copy in copies]
    states = [body.state for body in bodies]
    columns: dict[str, Any] = {
        "machine": pa.array([copy.machine for copy in copies], pa.string()),
        "host": texts([host] * count),
        "class_name": texts([body.class_name for body in bodies]),
        "status": texts([body.status for body in bodies]),
        "accepted_count": [copy.accepted for copy in copies],
        "sent_count": [copy.sent for copy in copies],
        **_of_states(states),
        **_of_waits([body.short_wait for body in bodies]),
    }
    if one_by_one:
        columns |= _of_instants(copies)
    elif recorded_at is not None:
        columns["recorded_at"] = pa.repeat(pa.scalar(recorded_at, schema.field("recorded_at").type), count)
    for name in ("incarnation", "max_concurrency"):
        columns[name] = pa.repeat(pa.scalar(1, schema.field(name).type), count)
    return pa.RecordBatch.from_arrays(
        [_column(columns.get(item.name), item.type, count) for item in schema], schema=schema
    )


def _column(values: Any, kind: pa.DataType, count: int) -> pa.Array:
    if values is None:
        return pa.nulls(count, kind)
    return values if isinstance(values, pa.Array) else pa.array(values, kind)


def _of_states(states: list[Any]) -> dict[str, Any]:
    if None in states:  # machines that were recorded in the middle of an action
        states = [(None, False, None) if state is None else state for state in states]
    text, truncated, size = zip(*states, strict=True)
    return {"state": text, "state_truncated": truncated, "state_bytes": size}


def _of_waits(waits: list[tuple[str | None, int | None, tuple[str, ...]]]) -> dict[str, Any]:
    if waits.count(NO_WAIT) == len(waits):
        kind = MACHINES.field("waits_for").type
        none = pa.ListArray.from_arrays(pa.array([0] * (len(waits) + 1), pa.int32()), pa.array([], kind.value_type))
        return {"waits_for": none.cast(kind)}
    mode, k, machines = zip(*waits, strict=True)
    return {"wait_mode": mode, "wait_k": k, "waits_for": machines}


def _of_instants(copies: Sequence[MachineCopy]) -> dict[str, Any]:
    return {
        "recorded_at": [int(copy.extra.recorded_at * 1e6) for copy in copies],
        "alignment_ms": [None if copy.alignment_s is None else copy.alignment_s * 1e3 for copy in copies],
        "blocked_count": [None if copy.alignment_s is None else copy.blocked_count for copy in copies],
    }
