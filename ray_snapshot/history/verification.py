"""Checking a history: is each snapshot all there, is its cut consistent, and can every command read it?

What a row must be by itself is in `rows_alone`; here is what rows must be to each other, and to their checkpoint.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from math import ceil
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from ray_snapshot.errors import HistoryFormatError, NotRestorableError, RaySnapshotError
from ray_snapshot.history import checkpoints, rows_alone, tables
from ray_snapshot.limits import LIMITS
from ray_snapshot.names import DRIVER
from ray_snapshot.snapshot import Snapshot

if TYPE_CHECKING:
    from ray_snapshot.history.reader import History

COUNTS = (("machines", "machine_count"), ("channels", "channel_count"), ("messages", "in_flight_count"))
"""Which column of `snapshots` says how many rows a snapshot has in which table."""


def verify(history: History, system: str | None, unchecked: list[str]) -> Iterator[tuple[str, list[str]]]:
    """(snapshot_id, problems) of every snapshot, those that are listed more than once last; then of tables without any."""
    listed = history.table("snapshots", system=system)
    if nameless := listed["snapshot_id"].null_count:
        yield "table snapshots", [f"snapshots has {nameless} rows without snapshot_id"]
        listed = listed.filter(pc.is_valid(listed["snapshot_id"]))
    times = Counter(listed["snapshot_id"].to_pylist())
    sizes = {
        listed["snapshot_id"][row].as_py(): row_count(listed.slice(row, 1))
        for row in range(listed.num_rows)
        if times[listed["snapshot_id"][row].as_py()] == 1
    }
    seals = Seals()
    for batch in row_batches(dict(sorted(sizes.items(), key=lambda item: str(item[0])))):
        yield from _verify_batch(history, batch, seals)
    for snapshot_id, count in sorted(times.items(), key=lambda item: str(item[0])):
        if count > 1:
            yield snapshot_id, [f"the table snapshots lists it {count} times"]
    for name in ("actions", "classes"):
        if problems := rows_alone.problems(history, name, system):
            yield f"table {name}", problems
    unchecked += seals.unchecked()


def row_count(row: pa.Table) -> int:
    """How many rows the snapshot of one row of `snapshots` has elsewhere, as far as it says."""
    return sum(max(0, row[count][0].as_py() or 0) for _, count in COUNTS)


def row_batches(sizes: Mapping[str, int], most_rows: int = LIMITS.verified_rows) -> Iterator[list[str]]:
    """Runs of snapshots, given with their sizes, that can be read at once within a bounded number of rows.

    All of about one size: a small one at the end would read whole groups of rows for few snapshots.
    """
    total = sum(sizes.values())
    enough = max(1, total / max(1, ceil(total / most_rows)))
    batch: list[str] = []
    rows = 0
    for snapshot_id, size in sizes.items():
        if batch and (rows + size > most_rows or rows >= enough or len(batch) == LIMITS.verified_snapshots):
            yield batch
            batch, rows = [], 0
        batch.append(snapshot_id)
        rows += size
    if batch:
        yield batch


def _verify_batch(history: History, batch: list[str], seals: Seals) -> Iterator[tuple[str, list[str]]]:
    try:
        verdicts = _verdicts(history, batch)
        found = [
            (snapshot_id, _problems(history, snapshot_id, {**parts, "verdicts": verdicts[snapshot_id]}, seals))
            for snapshot_id, parts in history.wholes.parts(batch)
        ]
    except RaySnapshotError as error:  # which of them is it?
        found = [(batch[0], [str(error)])] if len(batch) == 1 else []
        for snapshot_id in batch if len(batch) > 1 else ():
            found += _verify_batch(history, [snapshot_id], seals)
    yield from found


def _verdicts(history: History, batch: list[str]) -> dict[str, pa.Table]:
    rows = history.rows_of("verdicts", batch, tables.stored_schema("verdicts").names)
    return {snapshot_id: rows.filter(pc.equal(rows["snapshot_id"], snapshot_id)) for snapshot_id in batch}


def _problems(history: History, snapshot_id: str, parts: Mapping[str, pa.Table], seals: Seals) -> list[str]:
    found = [problem for name, part in parts.items() for problem in rows_alone.unreadable(name, part)]
    if found:  # what reads on could not
        return found[: LIMITS.told_problems]
    (row,) = parts["snapshots"].select(["run_id", "system", "status", "restorable"]).to_pylist()
    for name, part in parts.items():
        found += rows_alone.wrong(name, part) + _strangers(name, part, row)
    try:
        snapshot = history.wholes.assembled(
            snapshot_id, {name: part for name, part in parts.items() if name != "verdicts"}
        )
    except HistoryFormatError as error:
        return [str(error), *found]
    if snapshot.status != "complete":
        return found
    found += snapshot.faults()
    found += _absent(snapshot)
    if not snapshot.consistent and not snapshot.repeats_by_design:
        found.append("it is recorded as not consistent")
    if snapshot.restorable and not snapshot.obstacles:
        found += seals.problems(history, snapshot)
    return found


def _strangers(name: str, part: pa.Table, row: Mapping[str, Any]) -> list[str]:
    """Rows of another run or system than their snapshot's."""
    return [
        f"{count} rows of {name} are of another {column} than their snapshot"
        for column in ("run_id", "system")
        if (count := part.num_rows - (pc.sum(pc.equal(part[column], pa.scalar(row[column]))).as_py() or 0))
    ]


def _absent(snapshot: Snapshot) -> list[str]:
    """Channels whose counts need a machine that is not there.

    It is no problem that a message is on its way to a machine that is not born yet, or that an actor that has died is
    not recorded any more: then its channels have only the counts of the other machines.
    """
    known = set(snapshot.tables["machines"]["machine"].to_pylist()) | {DRIVER}
    columns = (snapshot.tables["channels"][name].to_pylist() for name in ("source", "target", "kind", *_SUMS))
    found = []
    for source, target, kind, sent, accepted, in_flight in zip(*columns, strict=True):
        if source in known and target in known:
            continue
        lone = kind == "call" and sent == accepted and not in_flight
        if source not in known and (sent or in_flight) and not lone:
            found.append(
                f"the channel {source} -> {target} ({kind}) says what {source} sent, and there is no such machine"
            )
        elif target not in known and accepted and kind != "call":
            found.append(
                f"the channel {source} -> {target} ({kind}) says what {target} accepted, and there is no such machine"
            )
    return found[: LIMITS.told_problems]


_SUMS = ("sent_count", "accepted_count", "in_flight_count")


class Seals:
    """What the checkpoints of a history are checked by, and how many could not be."""

    def __init__(self) -> None:
        try:
            self.key: bytes | None = checkpoints.checkpoint_key(is_made=False)
        except RaySnapshotError:
            self.key = None
        self.without_key = self.without_digest = 0

    def problems(self, history: History, snapshot: Snapshot) -> list[str]:
        """What is wrong with the checkpoint of a snapshot that has one."""
        try:
            has_digest = checkpoints.check(history.path, snapshot, self.key)
        except NotRestorableError:
            is_dropped = not history.listed([snapshot.snapshot_id])  # by retention, this moment
            return [] if is_dropped else ["it is recorded as restorable, and its checkpoint is gone"]
        except RaySnapshotError as error:
            return [str(error)]
        self.without_key += self.key is None
        self.without_digest += self.key is None and not has_digest
        return []

    def unchecked(self) -> list[str]:
        """What was not checked, a sentence each."""
        found = []
        if self.without_key:
            found.append(
                f"{self.without_key} checkpoints were not checked against their key, which is not here"
                f" ({checkpoints.KEY_VARIABLE})"
            )
        if self.without_digest:
            found.append(f"{self.without_digest} of them are of an older version: not checked but for their length")
        return found
