"""Hosts' payloads into one snapshot: Arrow tables, channels joined from their two ends."""

from __future__ import annotations

import pickle
import platform
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ray_snapshot import __version__
from ray_snapshot.adding import AddsUp
from ray_snapshot.columns import inner, labelled, nothing
from ray_snapshot.encoding import to_json
from ray_snapshot.large_columns import in_order, taken
from ray_snapshot.names import DRIVER
from ray_snapshot.protocol.choosing import AT_LEAST_ONCE, RECORDED_BY
from ray_snapshot.runtime.brought import BroughtRows, Label
from ray_snapshot.runtime.collected import CHECKPOINT_OFF, Collected, SnapshotHeader
from ray_snapshot.runtime.inputs import call_row, wait_rows, waits_by_inputs, with_waits
from ray_snapshot.runtime.joined_ends import joined_ends
from ray_snapshot.runtime.report import HostPart, Packed
from ray_snapshot.schema import CALLS, CHANNELS, MACHINES, MESSAGES, SNAPSHOTS, WAITS
from ray_snapshot.snapshot import Absent, Snapshot, satisfy_waits

_META = pa.struct([*SNAPSHOTS])


@dataclass(slots=True)
class Also:
    """Rows of a snapshot that are no hosts': of watched actors in the same system."""

    tables: Mapping[str, pa.Table] = field(default_factory=dict)
    """`machines`, `channels`, `messages` and `calls`; not all need be there."""
    waits: list[dict[str, Any]] = field(default_factory=list)
    coverage: dict[str, Any] = field(default_factory=dict)
    obstacles: list[str] = field(default_factory=list)

    def of(self, name: str) -> list[pa.Table]:
        """Its table of that name, if there is one."""
        return [self.tables[name]] if name in self.tables else []


def assemble(collected: Collected) -> Snapshot:
    """The snapshot of a collection; O(machines + channels + messages)."""
    if collected.header.abort_reason is not None:
        return aborted(collected.header)
    return assembled(collected.header, [pickle.loads(part) for part in collected.parts], Also())


def assembled(header: SnapshotHeader, parts: list[HostPart], also: Also) -> Snapshot:
    """The snapshot of these parts of hosts, and of what is no host's."""
    full = [part for part in parts if part.machines is not None]
    messages = _concat([*(part.messages for part in parts), *also.of("messages")], MESSAGES)
    if len(full) < len(parts):  # late reports come in any order
        messages = in_order(messages, ("source", "target", "kind", "number"))
    ends = joined_ends(chain.from_iterable(part.batches_of_ends for part in parts), RECORDED_BY[header.protocol])
    channels = _concat([ends, *also.of("channels")], CHANNELS)
    inputs = {name: found for part in full for name, found in part.inputs.items()}
    waiting, undeclared = waits_by_inputs(inputs, messages) if inputs else ({}, {})
    half = {name: found for name, found in waiting.items() if found.lacking}
    joining = [call_row(name, inputs[name], found) for name, found in half.items()]
    calls = _concat([_rows([row for part in full for row in part.calls] + joining, CALLS), *also.of("calls")], CALLS)
    machines = with_waits(_concat([part.machines for part in full], MACHINES), half)
    machines = _concat([with_delay(machines, header.started_at), *also.of("machines")], MACHINES)
    tables = {"machines": by_name(machines), "channels": channels, "messages": messages, "calls": by_name(calls)}
    derived = [row for name, found in waiting.items() for row in wait_rows(name, found.wait)]
    held = _held_or_not([row for part in full for row in part.waits], channels)
    waits = _rows(held + derived + also.waits, WAITS)
    tables["waits"] = satisfy_waits(waits, messages, calls, tables["machines"])
    coverage = {
        "hosts": len(full),
        "uncovered": header.uncovered,
        "without_state": [name for part in full for name in part.without_state if name != DRIVER],
    }
    if undeclared:
        coverage["undeclared"] = undeclared
    for name, told in also.coverage.items():
        coverage[name] = coverage[name] + told if name in ("hosts", "without_state") else told
    obstacles = list(dict.fromkeys([*(text for part in parts for text in part.obstacles), *also.obstacles]))
    if not header.is_kept and CHECKPOINT_OFF not in obstacles:
        obstacles.append(CHECKPOINT_OFF)
    packed = [part.packed for part in full if part.packed is not None]
    absent = _absent(header, packed) if packed else None
    found = checked(header, tables, coverage, obstacles, sum(part.markers for part in full), absent)
    found.shapes = tuple(dict.fromkeys(shape for part in full for shape in part.shapes))
    return found


def _held_or_not(rows: list[dict[str, Any]], channels: pa.Table) -> list[dict[str, Any]]:
    """Decide the waits for full mailboxes (rows with `bound`) by the cut's own counts.

    The sender is held until it hears that enough was accepted; where that has happened inside the cut, it is only the
    acknowledgement that is on its way, and the wait is satisfied.
    """
    if not any("bound" in row for row in rows):
        return rows
    columns = (channels[name].to_pylist() for name in ("source", "target", "sent_count", "accepted_count"))
    waiting: dict[tuple[str, str], int] = {}
    for source, target, sent, accepted in zip(*columns, strict=True):
        waiting[source, target] = max(sent - accepted, waiting.get((source, target), 0))
    for row in rows:
        if "bound" in row:
            row["satisfied"] = waiting.get((row["machine"], row["on_machine"]), 0) <= row["bound"]
    return rows


def aborted(header: SnapshotHeader) -> Snapshot:
    """The row that tells of a snapshot that was given up."""
    return Snapshot(
        {"snapshots": _meta(header, {}, {"hosts": 0, "uncovered": header.uncovered}, [], 0, consistent=False)}
    )


def checked(
    header: SnapshotHeader,
    tables: dict[str, pa.Table],
    coverage: dict[str, Any],
    obstacles: list[str],
    markers: int = 0,
    absent: Absent | None = None,
) -> Snapshot:
    """The snapshot of these tables (without `snapshot_id` and `run_id`), marked as inconsistent if it is."""
    tables = {name: labelled(rows, header.snapshot_id, header.run_id) for name, rows in tables.items() if rows.num_rows}
    facts = (coverage, obstacles, markers, absent)
    found = Snapshot({**tables, "snapshots": _meta(header, tables, *facts, consistent=True)}, absent)
    if found.problems():
        found = Snapshot({**tables, "snapshots": _meta(header, tables, *facts, consistent=False)}, absent)
    return found


def _absent(header: SnapshotHeader, packed: list[Packed]) -> Absent:
    """What a snapshot says of the machines at rest whose rows have come packed, and are not read yet."""
    label = Label(header.snapshot_id, header.run_id, int(header.started_at * 1e6))
    brought = BroughtRows(label, packed)

    def partials(item: AddsUp, snapshot: Snapshot) -> list[Any]:
        return [*brought.partials(item, snapshot.tables["snapshots"])]

    classes = Counter[str]()
    for one in packed:
        classes.update(one.classes)
    delays = {one.host: (one.recorded_at - label.started_us) / 1e3 for one in packed}
    size = sum(one.state_bytes for one in packed)
    return Absent(dict(classes), brought.hosts, delays, size, brought.of, partials, brought)


def _meta(
    header: SnapshotHeader,
    tables: Mapping[str, pa.Table],
    coverage: dict[str, Any],
    obstacles: list[str],
    markers: int,
    absent: Absent | None = None,
    *,
    consistent: bool,
) -> pa.Table:
    row = {
        "snapshot_id": header.snapshot_id,
        "system": header.system,
        "run_id": header.run_id,
        "restored_from": header.restored_from,
        "sequence": header.number,
        "protocol": header.protocol,
        "status": "complete" if header.abort_reason is None else "aborted",
        "abort_reason": header.abort_reason,
        "abort_machine": header.abort_machine,
        "abort_call_site": header.abort_call_site,
        "initiators": header.initiators,
        "started_at": int(header.started_at * 1e6),
        "completed_at": int(header.completed_at * 1e6),
        "duration_ms": (header.completed_at - header.started_at) * 1e3,
        "machine_count": _count(tables, "machines") + (0 if absent is None else absent.count),
        "channel_count": _count(tables, "channels"),
        "in_flight_count": _count(tables, "messages"),
        "control_message_count": header.control_messages,
        "channel_marker_count": markers,
        "bytes": ((pc.sum(tables["machines"]["state_bytes"]).as_py() or 0) if "machines" in tables else 0)
        + (0 if absent is None else absent.state_bytes),
        "consistent": consistent,
        "restorable": _is_restorable(header, obstacles, consistent=consistent),
        "obstacles": obstacles,
        "coverage": to_json({**coverage, "versions": versions()}).text,
    }
    return pa.Table.from_struct_array(pa.array([row], _META))


def _count(tables: Mapping[str, pa.Table], name: str) -> int:
    return tables[name].num_rows if name in tables else 0


@cache
def versions() -> dict[str, str]:
    """Of what took the snapshot: whoever reads it later asks."""
    import ray

    return {"ray-snapshot": __version__, "Ray": ray.__version__, "Python": platform.python_version()}


def _is_restorable(header: SnapshotHeader, obstacles: list[str], *, consistent: bool) -> bool:
    """Whether a restore can use this snapshot: complete, without obstacles, and consistent (or `AT_LEAST_ONCE`, which
    need not be)."""
    is_whole = header.is_kept and header.abort_reason is None and not header.uncovered
    return is_whole and not obstacles and (consistent or header.protocol == AT_LEAST_ONCE)


def _as_table(part: Any) -> pa.Table:
    return pa.Table.from_batches([part]) if isinstance(part, pa.RecordBatch) else part


def _concat(parts: list[Any], schema: pa.Schema) -> pa.Table:
    """One table of the parts (tables or batches), each column in one piece, but for columns of one value (`columns.alike`)."""
    tables = [_as_table(part) for part in parts if part.num_rows]
    if not tables:
        return nothing(schema)
    if len(tables) == 1 and tables[0].column(0).num_chunks == 1:
        return tables[0]
    return pa.concat_tables(tables).combine_chunks()


def _rows(rows: list[dict[str, Any]], schema: pa.Schema) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=inner(schema)) if rows else nothing(schema)


def by_name(rows: pa.Table) -> pa.Table:
    """Rows in the order of their machines' names, whichever host reported first: what is said of them is said in one order.

    Calls of one machine stay in the order of its host.
    """
    if rows.num_rows < 2:
        return rows
    names = rows["machine"]
    is_rising = pc.all(pc.less_equal(names[:-1], names[1:])).as_py()
    return rows if is_rising is not False else taken(rows, pc.sort_indices(names))


def with_delay(machines: pa.Table, started_at: float) -> pa.Table:
    """Fill `record_delay_ms`: from the start of the snapshot to the instant at which the machine's host turned red."""
    recorded = machines["recorded_at"].cast(pa.int64())
    delay = pc.divide(pc.cast(pc.subtract(recorded, int(started_at * 1e6)), pa.float64()), 1e3)
    return machines.set_column(machines.schema.get_field_index("record_delay_ms"), "record_delay_ms", delay)
