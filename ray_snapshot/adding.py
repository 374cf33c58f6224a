"""Detectors that add up: what they say of a snapshot follows from what they make of parts of its rows.

Such a detector has `partial`, which makes a value of some rows of machines and of messages, and `merge`, which makes one value
of two. However the rows are split, and in whatever order the values are merged, the result is the same. So what the rows
of machines at rest come to is made once, host by host, and remembered while they stay as they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from ray_snapshot.snapshot import Snapshot


@runtime_checkable
class AddsUp(Protocol):
    """What a detector has that adds up.

    One that also has `is_timeless` (true) makes its values of states, arguments and names alone, and of no moment; they are
    never changed: so they are remembered.
    """

    name: str

    def partial(self, part: Snapshot) -> Any:
        """What some rows come to, as what can be pickled: those of `machines` and `messages`. Each row is in one part."""
        ...

    def merge(self, one: Any, other: Any) -> Any:
        """What the rows of both come to."""
        ...


def remembered_as(item: object) -> str:
    """The data of a timeless detector, under which its values are remembered; "" for one whose are not.

    Two detectors without data may make different values of the same rows.
    """
    spec = getattr(item, "spec", None)
    return repr(spec) if spec is not None and getattr(item, "is_timeless", False) is True else ""


def total(item: AddsUp, snapshot: Snapshot) -> Any:
    """What all rows of a snapshot come to."""
    key = remembered_as(item)
    if key in snapshot.totals:
        return snapshot.totals[key]
    here, absent = snapshot.parted
    found = item.partial(snapshot if absent is None else snapshot.with_machines(here))
    for partial in () if absent is None else absent.partials(item, snapshot):
        found = item.merge(found, partial)
    if key:
        snapshot.totals[key] = found
    return found
