"""Object stores that are short of room, for a person who asks: a hint why tasks, `ray.put` and `ray.get` wait, or are slow.

`instrument.watcher.stores` writes what is read here. No verdict rests on it: Ray spills, and room may come.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from ray_snapshot.detectors.common import at_most
from ray_snapshot.errors import DetectorError
from ray_snapshot.limits import LIMITS
from ray_snapshot.snapshot import Snapshot

_STRICT = ConfigDict(strict=True, extra="ignore")
_Number = Annotated[int, Field(ge=0, lt=2**62)]


class _OwnerRow(TypedDict):
    __pydantic_config__ = _STRICT  # type: ignore[misc]
    machine: str
    objects: _Number
    size: _Number
    spilled_objects: _Number
    spilled_size: _Number


class _StoreRow(TypedDict):
    __pydantic_config__ = _STRICT  # type: ignore[misc]
    node: str
    capacity: _Number
    in_use: _Number
    spilled: _Number
    arguments: _Number
    waiting: _Number
    told_at: Annotated[float, Field(allow_inf_nan=False)]
    owners: list[_OwnerRow]
    not_looked_at: _Number


_SHAPE = TypeAdapter(list[_StoreRow])


def short_of_room(snapshot: Snapshot) -> list[str]:
    """A line for each such store; raises `DetectorError` if the form of the coverage is not known."""
    return [_line(row, snapshot.started_at.timestamp()) for row in _rows(snapshot)]


def may_hold_back_tasks(snapshot: Snapshot) -> bool:
    """Whether plain tasks for which there is all else wait until their arguments find room in a store."""
    return any(row["waiting"] for row in _rows(snapshot))


def _rows(snapshot: Snapshot) -> list[_StoreRow]:
    try:
        return _SHAPE.validate_python(snapshot.coverage.get("stores", []))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, ("coverage", "stores", *first["loc"])))
        text = f"snapshot {snapshot.snapshot_id}: {place}: {first['msg']}: this ray-snapshot has not written it"
        raise DetectorError(text, detector="the hint of object stores") from None


def _line(row: _StoreRow, now: float) -> str:
    spilled = f", {_bytes(row['spilled'])} spilled to disk" if row["spilled"] else ""
    found = (
        f"the object store of node {row['node'][:8]} is short of room: {_bytes(row['in_use'])} of"
        f" {_bytes(row['capacity'])} in use{spilled}, as Ray told {max(0.0, now - row['told_at']):.0f} s before"
    )
    if row["waiting"]:
        tasks, their = ("task", "its") if row["waiting"] == 1 else ("tasks", "their")
        found += f"; {row['waiting']:,} {tasks} cannot begin, for there is no room for {their} arguments"
    if row["arguments"]:
        found += f"; tasks that run keep {_bytes(row['arguments'])} of arguments there until they end"
    owners = sorted(row["owners"], key=lambda one: (-one["size"], -one["spilled_size"], one["machine"]))
    if owners:
        found += f"; the largest owners: {'; '.join(at_most([*map(_owner, owners)], LIMITS.store_owners, ''))}"
    return found + (f"; {row['not_looked_at']:,} refs were not looked at" if row["not_looked_at"] else "")


def _owner(row: _OwnerRow) -> str:
    parts = [
        f"{_bytes(size)} in {objects:,} {'object' if objects == 1 else 'objects'}{suffix}"
        for objects, size, suffix in (
            (row["objects"], row["size"], ""),
            (
                row["spilled_objects"],
                row["spilled_size"],
                " that was spilled" if row["spilled_objects"] == 1 else " that were spilled",
            ),
        )
        if objects
    ]
    return f"{row['machine']} {' and '.join(parts)}"


def _bytes(size: int) -> str:
    """ "1.5 GiB"."""
    unit, name = next(
        ((2**power, name) for power, name in ((30, "GiB"), (20, "MiB")) if size >= 2**power), (2**10, "KiB")
    )
    return f"{size / unit:.1f} {name}"
