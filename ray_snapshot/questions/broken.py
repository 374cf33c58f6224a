"""What changed where a ledger broke: machines and channels in the first wrong snapshot, held against the last right one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ray_snapshot.detectors import TokenConservation
from ray_snapshot.detectors.changes import changed_machines, traffic_of_both
from ray_snapshot.questions.reading import as_float
from ray_snapshot.snapshot import Snapshot

KEY = ("system", "run_id", "detector")
CHANNEL = ("source", "target", "kind")

CHANGED_MACHINES = pa.schema(
    [
        *((name, pa.string()) for name in (*KEY, "machine")),
        *((name, pa.float64()) for name in ("before", "after", "difference")),
        *((name, pa.int64()) for name in ("sent", "accepted")),
        ("unexplained", pa.bool_()),
        ("size", pa.float64()),
    ]
)

CHANGED_CHANNELS = pa.schema(
    [
        *((name, pa.string()) for name in (*KEY, *CHANNEL)),
        *((name, pa.float64()) for name in ("before", "after")),
        *((name, pa.int64()) for name in ("sent", "accepted", "missing")),
        ("size", pa.float64()),
    ]
)

_COUNTS = ("sent_count", "accepted_count")
_LOST = 1e9
"""A message that is lost weighs more than any amount."""

Row = dict[str, Any]
Changed = tuple[list[Row], list[Row]]
"""Rows of `CHANGED_MACHINES` and of `CHANGED_CHANNELS`, the most telling first."""


def changed(detector: TokenConservation, key: Mapping[str, str], before: Snapshot, now: Snapshot) -> Changed:
    """The machines and the channels that hold something else than `before`; `key` names the ledger in each row."""
    ledgers = detector.ledger(before), detector.ledger(now)
    found = [one for one in changed_machines(*ledgers) if one[1]]
    names = [name for name, *_ in found]
    counts = [_counts_of(one, names) for one in (before, now)]
    machines: list[Row] = [
        {
            **key,
            "machine": name,
            "before": None if old is None else as_float(old),
            "after": None if new is None else as_float(new),
            "difference": as_float(difference),
            "sent": (sent := _less(*(one.get(name, (None, None))[0] for one in counts))),
            "accepted": (accepted := _less(*(one.get(name, (None, None))[1] for one in counts))),
            "unexplained": not sent and not accepted,
            "size": as_float(abs(difference)),
        }
        for name, difference, old, new in found
    ]
    missing = _missing(now)
    channels: list[Row] = [
        {
            **key,
            **dict(zip(CHANNEL, channel, strict=True)),
            "before": as_float(old.amount),
            "after": as_float(new.amount),
            "sent": new.sent - old.sent,
            "accepted": new.accepted - old.accepted,
            "missing": (lost := missing.get(channel, 0)),
            "size": abs(lost) * _LOST + abs(as_float(new.amount - old.amount)),
        }
        for channel, old, new in traffic_of_both(*ledgers)
        if old.amount != new.amount or missing.get(channel)
    ]
    machines.sort(key=lambda row: (not row["unexplained"], -row["size"], row["machine"]))
    channels.sort(key=lambda row: (-row["size"], *(row[name] for name in CHANNEL)))
    return machines, channels


def _counts_of(snapshot: Snapshot, names: list[str]) -> dict[str, tuple[int | None, int | None]]:
    """What those machines have sent and accepted."""
    table = snapshot.tables["machines"]
    rows = table.filter(pc.is_in(table["machine"], value_set=pa.array(names, pa.string())))
    return {
        row["machine"]: tuple(row[name] for name in _COUNTS) for row in rows.select(["machine", *_COUNTS]).to_pylist()
    }


def _less(before: int | None, after: int | None) -> int | None:
    return None if after is None or before is None else after - before


def _missing(snapshot: Snapshot) -> dict[tuple[str, str, str], int]:
    """By channel: messages that were sent and are neither accepted, settled nor in flight, if there are any."""
    rows = snapshot.tables["channels"]
    left = pc.subtract(
        rows["sent_count"], pc.add(rows["accepted_count"], pc.add(rows["settled_count"], rows["in_flight_count"]))
    )
    lost = rows.select(CHANNEL).append_column("missing", left).filter(pc.not_equal(left, 0)).to_pylist()
    return {(row["source"], row["target"], row["kind"]): row["missing"] for row in lost}
