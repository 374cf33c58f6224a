"""The ends of channels that a part tells of, as rows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ray_snapshot.runtime.ends import ENDS
from ray_snapshot.runtime.report import HostPart


def ends_of(part: HostPart) -> pa.Table:
    """A table of them, of a part that has come to where it is put together."""
    batches = []
    for rows, columns in part.batches_of_ends:
        whole = {name: one if len(one) == rows else one.take(np.zeros(rows, int)) for name, one in columns.items()}
        batches.append(pa.RecordBatch.from_pydict(whole))
    return pa.Table.from_batches(batches) if batches else ENDS.empty_table()
