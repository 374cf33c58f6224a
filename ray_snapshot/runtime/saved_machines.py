"""Machines at rest in a checkpoint: a table of a few large buffers, in place of a tuple and two texts for each machine.

Written by hosts (`host.resting`), which patch it from snapshot to snapshot; read by who opens a section (`planning`), and not
imported where sections only pass by. Imports no Ray.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import pyarrow as pa

from ray_snapshot.columns import packed, unpacked

if TYPE_CHECKING:
    from ray_snapshot.runtime.checkpointing import SavedMachine

SAVED = pa.schema(
    [
        ("machine", pa.string()),
        ("class_key", pa.dictionary(pa.int32(), pa.string())),
        ("state", pa.large_binary()),
        ("is_stopped", pa.bool_()),
    ]
)
"""A `SavedMachine` a row; large, for all states of a host together may be longer than 2 GB."""


def saved_table(machines: Iterable[SavedMachine]) -> pa.Table:
    """Machines as rows of `SAVED`."""
    columns = [*zip(*machines, strict=True)] or [()] * len(SAVED)
    return pa.table([pa.array(values, kind) for values, kind in zip(columns, SAVED.types, strict=True)], schema=SAVED)


def saved_bytes(table: pa.Table) -> pa.Buffer:
    """The table as it stands in a section."""
    return packed(table)


def machines_in(buffer: bytes | pa.Buffer) -> list[SavedMachine]:
    """The machines of `saved_bytes`."""
    table = unpacked(buffer)
    keys = table["class_key"].cast(pa.string())
    columns = (table["machine"], keys, table["state"], table["is_stopped"])
    return [*zip(*(column.to_pylist() for column in columns), strict=True)]
