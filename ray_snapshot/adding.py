"""Detectors that add up: what they say of a snapshot follows from what they make of parts of its rows.

Such a detector has `partial`, which makes a value of some rows of machines and of messages, and `merge`, which makes one value
of two. However the rows are split, and in whatever order the values are merged, the result is the same. So rows of machines at
rest may stay with their hosts: these send one value in place of a million rows.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    import pyarrow as pa

    from ray_snapshot.snapshot import Snapshot

_MOST_PICKLED = 100


@runtime_checkable
class AddsUp(Protocol):
    """What a detector has that adds up."""

    name: str

    def partial(self, part: Snapshot) -> Any:
        """What some rows come to, as what can be pickled: those of `machines` and `messages`. Each row is in one part."""
        ...

    def merge(self, one: Any, other: Any) -> Any:
        """What the rows of both come to."""
        ...


def total(item: AddsUp, snapshot: Snapshot) -> Any:
    """What all rows of a snapshot come to; it is remembered with the snapshot. Raises `SnapshotRowsLostError`."""
    known = snapshot.totals.get(id(item))
    if known is not None:
        return known[1]
    here, absent = snapshot.parted
    found = item.partial(snapshot if absent is None else snapshot.with_machines(here))
    for partial in () if absent is None else absent.partials(item):
        found = item.merge(found, partial)
    snapshot.totals[id(item)] = item, found
    return found


class Partials:
    """What detectors make of the rows that one host keeps: asked again for the same rows, nothing is computed.

    Used by one thread.
    """

    def __init__(self) -> None:
        self._items: dict[str, AddsUp] = {}
        self._last: dict[str, tuple[Any, Any]] = {}
        """By detector: rows, and what they come to."""

    def knows(self, key: str) -> bool:
        """Whether that detector has been learnt."""
        return key in self._items

    def learn(self, key: str, pickled: bytes) -> None:
        """Learn a detector."""
        from ray import cloudpickle

        if len(self._items) >= _MOST_PICKLED:
            self._items.clear()
            self._last.clear()
        self._items[key] = cloudpickle.loads(pickled)

    def of(self, key: str, table: pa.Table, snapshot_id: str) -> Any:
        """What the rows come to; raises what the detector raises."""
        known = self._last.get(key)
        if known is None or known[0] is not table:
            known = self._last[key] = table, self._items[key].partial(_part(table, snapshot_id))
        return known[1]


def _part(machines: pa.Table, snapshot_id: str) -> Snapshot:
    """Rows of machines as a snapshot that has nothing else."""
    from ray_snapshot.snapshot import Snapshot

    bare = Snapshot.from_rows(snapshot_id=snapshot_id, machine_count=machines.num_rows)
    return Snapshot({"snapshots": bare.tables["snapshots"], "machines": machines})


def pickled(item: AddsUp) -> tuple[str, bytes]:
    """A detector for other processes, and the key by which they know it."""
    known = _PICKLED.get(id(item))
    if known is None or known[0] is not item:
        from ray import cloudpickle

        blob = cloudpickle.dumps(item)
        if len(_PICKLED) >= _MOST_PICKLED:
            _PICKLED.clear()
        known = _PICKLED[id(item)] = item, hashlib.sha256(blob).hexdigest(), blob
    return known[1], known[2]


_PICKLED: dict[int, tuple[AddsUp, str, bytes]] = {}
