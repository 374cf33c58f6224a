"""The columns of machines that have been copied, made column by column: of most machines most columns are the same."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import chain, repeat
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ray_snapshot.columns import inner, nothing
from ray_snapshot.limits import LIMITS
from ray_snapshot.protocol.parts import GroupCopy, MachineCopy
from ray_snapshot.runtime.ends import texts
from ray_snapshot.schema import MACHINES

NO_WAIT: tuple[str | None, int | None, tuple[str, ...]] = (None, None, ())
"""The short form of no wait."""


def machine_columns(
    copies: Sequence[MachineCopy], host: str, recorded_at: int | None = None, *, one_by_one: bool = False
) -> pa.Table:
    """Rows of `machines` without the columns that a whole snapshot has once.

    `copies`: of machines that are born. `recorded_at`: when their host turned red, in microseconds since 1970; `one_by_one`:
    each copy says when its machine did.
    """
    if not copies:
        return nothing(MACHINES)
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
        columns["recorded_at"] = _same_in_all(recorded_at, MACHINES.field("recorded_at").type, count)
    return _table(columns, inner(MACHINES), count)


def group_columns(groups: Sequence[GroupCopy], host: str, recorded_at: int | None = None) -> pa.Table:
    """The same of machines that were copied together."""
    sizes, bodies = [len(group.machines) for group in groups], [group.extras for group in groups]
    count = sum(sizes)
    states = pa.array([*chain.from_iterable(body.texts for body in bodies)], pa.string())
    columns: dict[str, Any] = {
        "machine": [*chain.from_iterable(group.machines for group in groups)],
        "host": [host],
        "class_name": texts([*chain.from_iterable(map(repeat, (body.class_name for body in bodies), sizes))]),
        "status": ["passive"],
        "accepted_count": [*chain.from_iterable(group.accepted for group in groups)],
        "sent_count": [*chain.from_iterable(group.sent for group in groups)],
        "state": states,
        "state_truncated": [False],
        "state_bytes": pc.binary_length(states),  # they are ASCII
        "waits_for": _no_waits(count),
    }
    if recorded_at is not None:
        columns["recorded_at"] = _same_in_all(recorded_at, MACHINES.field("recorded_at").type, count)
    return _table(columns, inner(MACHINES), count)


def _table(columns: dict[str, Any], schema: pa.Schema, count: int) -> pa.Table:
    """These columns, of `count` values or of one that all rows have; of the others null, or 1."""
    columns |= {"incarnation": [1], "max_concurrency": [1]}
    return pa.table([_column(columns.get(item.name), item.type, count) for item in schema], schema=schema)


def _column(values: Any, kind: pa.DataType, count: int) -> pa.Array | pa.ChunkedArray:
    if values is None:
        return pa.nulls(count, kind)
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values if values.type == kind else values.cast(kind)
    if len(values) == 1 < count:
        return (_kept_column if count <= LIMITS.cached_column_rows else _same_in_all)(values[0], kind, count)
    return pa.array(values, kind)


def _same_in_all(value: Any, kind: pa.DataType, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, kind), count)


_kept_column = lru_cache(100)(_same_in_all)
"""From one snapshot to the next most of them are the same."""


def _of_states(states: list[Any]) -> dict[str, Any]:
    if None in states:  # machines that were recorded in the middle of an action
        states = [(None, False, None) if state is None else state for state in states]
    text, truncated, size = zip(*states, strict=True)
    return {"state": text, "state_truncated": truncated, "state_bytes": size}


def _of_waits(waits: list[tuple[str | None, int | None, tuple[str, ...]]]) -> dict[str, Any]:
    if waits.count(NO_WAIT) == len(waits):
        return {"waits_for": _no_waits(len(waits))}
    mode, k, machines = zip(*waits, strict=True)
    return {"wait_mode": mode, "wait_k": k, "waits_for": machines}


def _no_waits(count: int) -> pa.Array:
    kind = MACHINES.field("waits_for").type
    none = pa.ListArray.from_arrays(pa.array(np.zeros(count + 1, np.int32)), pa.array([], kind.value_type))
    return none.cast(kind)


def _of_instants(copies: Sequence[MachineCopy]) -> dict[str, Any]:
    return {
        "recorded_at": [int(copy.extra.recorded_at * 1e6) for copy in copies],
        "alignment_ms": [None if copy.alignment_s is None else copy.alignment_s * 1e3 for copy in copies],
        "blocked_count": [None if copy.alignment_s is None else copy.blocked_count for copy in copies],
    }
