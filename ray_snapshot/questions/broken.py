"""What changed where a ledger broke: machines and channels in the first wrong snapshot, held against the last right one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from ray_snapshot.history import History
from ray_snapshot.questions.counting import MACHINES, MESSAGES, Paths, in_machines, in_messages
from ray_snapshot.questions.reading import rows_of

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


def changed(
    history: History, breaks: Sequence[Row], paths: Mapping[tuple[str, str], Paths]
) -> tuple[list[Row], list[Row]]:
    """The machines and the channels that are otherwise in `first_broken` than in `last_right`, break by break."""
    machines, channels = [], []
    for row in breaks:
        ends = row["last_right"], row["first_broken"]
        key, where = {name: row[name] for name in KEY}, paths[row["run_id"], row["detector"]]
        found = sorted(
            _machines(history, ends, where), key=lambda one: (not one["unexplained"], -one["size"], one["machine"])
        )
        machines += [{**key, **one} for one in found]
        found = sorted(
            _channels(history, ends, where), key=lambda one: (-one["size"], *(one[name] for name in CHANNEL))
        )
        channels += [{**key, **one} for one in found]
    return machines, channels


def _machines(history: History, ends: tuple[str, str], paths: Paths) -> Iterator[Row]:
    """A machine is unexplained if it neither sent nor accepted anything in between, or is not there at one end."""
    rows = rows_of(history, "machines", ends, (*MACHINES, *_COUNTS))
    known = rows.select(["snapshot_id", "machine", *_COUNTS]).to_pylist()
    at: tuple[dict[str, Row], dict[str, Row]] = {}, {}
    for held in in_machines(rows, paths.states):
        for place, amount in zip(held.rows.tolist(), held.amounts.as_floats().tolist(), strict=True):
            row = known[place]
            at[row["snapshot_id"] == ends[1]][row["machine"]] = {**row, "amount": amount}
    for name in {*at[0], *at[1]}:
        before, after = (one.get(name, {}) for one in at)
        difference = after.get("amount", 0.0) - before.get("amount", 0.0)
        if difference != 0:
            sent, accepted = (_less(after.get(column), before.get(column)) for column in _COUNTS)
            yield {
                "machine": name,
                "before": before.get("amount"),
                "after": after.get("amount"),
                "difference": difference,
                "sent": sent,
                "accepted": accepted,
                "unexplained": not sent and not accepted,
                "size": abs(difference),
            }


def _less(after: int | None, before: int | None) -> int | None:
    return None if after is None or before is None else after - before


def _channels(history: History, ends: tuple[str, str], paths: Paths) -> Iterator[Row]:
    """Channels with other amounts in flight than before, and those whose counts do not add up."""
    messages = rows_of(history, "messages", ends, (*MESSAGES, *CHANNEL))
    names = messages.select(["snapshot_id", *CHANNEL]).to_pylist()
    carried: dict[tuple[Any, ...], float] = {}
    for held in in_messages(messages, paths.messages):
        for place, amount in zip(held.rows.tolist(), held.amounts.as_floats().tolist(), strict=True):
            key = tuple(names[place].values())
            carried[key] = carried.get(key, 0.0) + amount
    columns = ("snapshot_id", *CHANNEL, *_COUNTS, "settled_count", "in_flight_count")
    at: tuple[dict[Any, Row], dict[Any, Row]] = {}, {}
    for row in rows_of(history, "channels", ends, columns).to_pylist():
        amount = carried.get(tuple(row[name] for name in ("snapshot_id", *CHANNEL)), 0.0)
        missing = row["sent_count"] - row["accepted_count"] - row["settled_count"] - row["in_flight_count"]
        key = tuple(row[name] for name in CHANNEL)
        at[row["snapshot_id"] == ends[1]][key] = {**row, "amount": amount, "missing": missing}
    for key in {*at[0], *at[1]}:
        before, after = (one.get(key, {}) for one in at)
        old, new = before.get("amount", 0.0), after.get("amount", 0.0)
        missing = after.get("missing", 0)
        if old != new or missing:
            yield {
                **dict(zip(CHANNEL, key, strict=True)),
                "before": old,
                "after": new,
                **{name.removesuffix("_count"): _less(after.get(name), before.get(name, 0)) for name in _COUNTS},
                "missing": missing,
                "size": abs(missing) * _LOST + abs(new - old),
            }
