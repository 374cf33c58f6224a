"""Where the actors of an app stand: "Rank-[0-6] (7 of 8) in Rank.step (train.py:99) for 37 s"."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ray_snapshot.detectors.common import lasted, with_workers
from ray_snapshot.detectors.unexplained import unexplained
from ray_snapshot.limits import LIMITS
from ray_snapshot.names import DRIVER, name_ranges
from ray_snapshot.snapshot import Snapshot


def place_of(row: Mapping[str, Any], kind: str, primitives: Mapping[str, str]) -> str:
    """ "Rank.step (train.py:99, in queue.Queue.get)" of a row of `calls`; `kind`: the machine's class."""
    method = row["method"] if row["method"].startswith("(") or not kind else f"{kind}.{row['method']}"
    inside = primitives.get(row["call_id"] or row["machine"])
    about = [row["call_site"], inside and f"in {inside}"]
    return method + (f" ({', '.join(filter(None, about))})" if any(about) else "")


def places(snapshot: Snapshot) -> list[str]:
    """A line for each class, method and line of the user's, the smallest group first; then those that run nothing."""
    kinds = dict(
        zip(*(snapshot.tables["machines"][name].to_pylist() for name in ("machine", "class_name")), strict=True)
    )
    primitives = snapshot.coverage.get("primitives") or {}
    groups: dict[tuple[str, str], dict[str, float]] = {}
    for row in snapshot.calls:
        machine, kind = row["machine"], str(kinds.get(row["machine"]) or "")
        seconds = (snapshot.started_at - row["started_at"]).total_seconds() if row["started_at"] else 0.0
        there = groups.setdefault((kind, place_of(row, kind, primitives)), {})
        there[machine] = max(seconds, there.get(machine, 0.0))
    busy = {machine for there in groups.values() for machine in there}
    sizes = {kind: sum(1 for of in kinds.values() if of == kind) for kind in {*kinds.values()}}
    lines = []
    for (kind, place), there in sorted(groups.items(), key=lambda one: (len(one[1]), one[0])):
        of = f" ({len(there):,} of {sizes[kind]:,})" if kind and sizes.get(kind, 1) > 1 else ""
        lines.append(f"{name_ranges(there)}{of} in {place} for {lasted(max(there.values()))}")
    lines += [str(one) for one in unexplained(snapshot) if one.machine not in busy]
    idle = [name for name in kinds if name not in busy and name != DRIVER]
    lines += [f"{name_ranges(idle)}: no call"] if idle else []
    return [with_workers(snapshot, line) for line in lines][: LIMITS.listed]
