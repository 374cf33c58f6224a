"""Channels, each joined from its two ends, which come from two hosts in no order.

By sorting: numpy sorts twenty million numbers in a second, and a hash table of them takes four times that.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ray_snapshot.columns import Columns, alike, inner, nothing
from ray_snapshot.schema import CHANNELS


def joined_ends(batches: Iterable[Columns], recorded_by: str) -> pa.Table:
    """Rows of `channels` from the columns `ends.ENDS`, those of one source together; O(ends log ends)."""
    batches = [batch for batch in batches if batch[0]]
    if not batches:
        return nothing(CHANNELS)
    source, target, kind = (_Names([columns[name] for _, columns in batches]) for name in ("source", "target", "kind"))
    spans, rows = [], 0
    for count, _ in batches:
        spans.append(slice(rows, rows + count))
        rows += count
    keys = np.empty(rows, np.int64)
    for span, *places in zip(spans, source.places, target.places, kind.places, strict=True):
        part = keys[span]
        part[:] = places[0]
        for names, others in ((target, places[1]), (kind, places[2])):
            part *= len(names.names)
            part += others
    channel, keys = _numbered(keys)

    def total(name: str) -> npt.NDArray[np.int64]:
        found = np.zeros(len(keys), np.int64)
        for span, (_, columns) in zip(spans, batches, strict=True):
            values = columns[name].to_numpy()
            if values.any():
                np.add.at(found, channel[span], values)
        return found

    held, count = total("held"), len(keys)
    is_held = pa.array(held > 0) if held.any() else None
    found = {
        "source": source.of(keys // (len(target.names) * len(kind.names))),
        "target": target.of(keys // len(kind.names) % len(target.names)),
        "kind": alike(kind.names[0], count) if len(kind.names) == 1 else kind.of(keys % len(kind.names)),
        "sent_count": total("sent"),
        "accepted_count": total("accepted"),
        "in_flight_count": total("in_flight") + held,
        "duplicate_count": total("duplicates"),
        "recorded_by": alike(pa.scalar(recorded_by), count)
        if is_held is None
        else pc.if_else(is_held, "sender", recorded_by),
    }
    none = alike(pa.scalar(0, pa.int64()), count)
    schema = inner(CHANNELS)
    return pa.table([found.get(item.name, none) for item in schema], schema=schema)


def _numbered(keys: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
    """Of each key, the place that it has among the different ones in ascending order; and these."""
    order = np.argsort(keys)
    rising = keys[order]
    is_first = np.append(True, rising[1:] != rising[:-1])
    found = np.empty(len(keys), np.int32)
    found[order] = np.cumsum(is_first, dtype=np.int32) - 1
    return found, rising[is_first]


class _Names:
    """A column of `ends.NAMES` in pieces, all with the places of one list of names."""

    def __init__(self, pieces: Sequence[pa.DictionaryArray]) -> None:
        chunks = pa.chunked_array(pieces).unify_dictionaries().chunks
        self.names: pa.Array = chunks[0].dictionary
        self.places = [chunk.indices.to_numpy() for chunk in chunks]

    def of(self, places: npt.NDArray[np.int64]) -> pa.Array:
        """The names at these places.

        In memory of C's: what is large goes back to the machine as soon as it is let go of, in whatever thread that is.
        """
        return pc.take(self.names, pa.array(places), memory_pool=pa.system_memory_pool())
