"""All rows of a table that exist, as an Arrow dataset: nothing is read before it is scanned, and then only what is asked for.

For engines that read columns and rows themselves. Imports neither Ray nor Spark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from ray_snapshot.errors import HistoryFormatError
from ray_snapshot.history import bounds, tables
from ray_snapshot.limits import LIMITS

if TYPE_CHECKING:
    from ray_snapshot.history.reader import History

_OF_RUNS = ("actions", "classes")
"""Tables whose rows belong to no snapshot."""


def dataset(history: History, name: str, snapshot_ids: Any) -> Any:
    """The rows of one table that belong to these snapshots (an Arrow array of ids, as `snapshots` listed them before).

    The files stay open until the dataset is dropped: a vacuum in between takes nothing away. Raises `HistoryFormatError`.
    """
    with tables.faults(history.path, name, "read", HistoryFormatError):
        for attempt in range(LIMITS.read_attempts):
            try:
                return _opened(history, name, snapshot_ids)
            except FileNotFoundError:  # a vacuum was faster
                if attempt == LIMITS.read_attempts - 1:
                    raise
    raise AssertionError("the loop returns or raises")


def _opened(history: History, name: str, snapshot_ids: Any) -> Any:
    import pyarrow.dataset as ds

    files, schema = history.stored.data_files(name), tables.stored_schema(name)
    allowance = bounds.Allowance(sum(map(tables.check_file, files)))
    found = tables.dataset(name, files, allowance, None, schema.names)
    if not _is_as_declared(found, schema):  # rewritten by another writer, with text types that cannot be compared
        rows = found.to_table()
        return ds.dataset(rows if name in _OF_RUNS else rows.filter(pc.is_in(rows["snapshot_id"], snapshot_ids)))
    return found if name in _OF_RUNS else found.filter(ds.field("snapshot_id").isin(snapshot_ids))


def _is_as_declared(found: Any, schema: pa.Schema) -> bool:
    """Whether all columns have the types on the disk that they are read with."""
    return all(
        field.type.equals(schema.field(field.name).type)
        for fragment in found.get_fragments()
        for field in fragment.physical_schema
        if field.name in schema.names
    )
