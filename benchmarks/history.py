"""What writing a snapshot into a history costs, over `deltalake` with the same rows."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.measure import Result, alternate, timed_ms
from ray_snapshot.history import HistoryWriter
from ray_snapshot.schema import CHANNELS, MACHINES, SNAPSHOTS
from ray_snapshot.snapshot import Snapshot

START = datetime(2026, 3, 1, tzinfo=UTC)


def run(names: set[str]) -> Iterator[Result]:
    """Yield the figure `history-write-100000`."""
    if "history-write-100000" in names:
        yield _write()


def synthetic(number: int, machines: int, *, channels: int = 0) -> Snapshot:
    """A snapshot of so many machines with small states, made of columns."""
    snapshot_id = f"bench-{number:06d}"
    started = START + timedelta(seconds=number)
    states = [f'{{"balance":{(index * 7919 + number) % 1_000},"name":"account {index}"}}' for index in range(machines)]
    found = {
        "machines": _table(
            MACHINES,
            machines,
            snapshot_id=snapshot_id,
            run_id="bench",
            machine=_names(machines),
            class_name="Account",
            host="host-0",
            incarnation=1,
            status="passive",
            max_concurrency=1,
            state=states,
            state_truncated=False,
            state_bytes=40,
            accepted_count=np.arange(machines) + number,
            sent_count=np.arange(machines),
            recorded_at=started,
            record_delay_ms=np.linspace(0, 5, machines),
        ),
        "channels": _table(
            CHANNELS,
            channels,
            snapshot_id=snapshot_id,
            run_id="bench",
            source=_names(channels),
            target=_names(channels),
            kind="mail",
            sent_count=np.arange(channels),
            accepted_count=np.arange(channels),
            settled_count=0,
            in_flight_count=0,
            duplicate_count=0,
            recorded_by="marker",
        ),
        "snapshots": _table(
            SNAPSHOTS,
            1,
            snapshot_id=snapshot_id,
            system="bench",
            run_id="bench",
            sequence=number,
            protocol="chandy-lamport",
            status="complete",
            started_at=started,
            machine_count=machines,
            channel_count=channels,
            in_flight_count=0,
            consistent=True,
            coverage='{"uncovered":[]}',
        ),
    }
    return Snapshot(found)


def _names(count: int) -> list[str]:
    return [f"Account-{index:06d}" for index in range(count)]


def _table(schema: pa.Schema, length: int, **columns: Any) -> pa.Table:
    arrays = []
    for field in schema:
        value = columns.get(field.name)
        if isinstance(value, (list, np.ndarray)):
            arrays.append(pa.array(value, field.type))
        else:
            arrays.append(pa.repeat(pa.scalar(value, field.type), length))
    return pa.table(arrays, schema=schema)


def _write() -> Result:
    given = synthetic(0, 100_000, channels=100_000)
    stored = {
        name: _with_partitions(table)
        for name, table in given.tables.items()
        if name in ("snapshots", "machines", "channels")
    }
    with tempfile.TemporaryDirectory() as folder:
        counter = iter(range(1_000))
        ready = {number: _renumbered(given, number) for number in range(40)}
        writer = HistoryWriter(Path(folder) / "history")

        def ours() -> float:
            snapshot = ready.pop(next(counter))
            return timed_ms(lambda: (writer.add(snapshot), writer.flush()))

        def bare() -> float:
            return timed_ms(lambda: _append_bare(Path(folder) / "bare", stored))

        return alternate("history-write-100000", "<= 1.3", ("history_ms", ours), ("deltalake_ms", bare), pairs=10)


def _renumbered(snapshot: Snapshot, number: int) -> Snapshot:
    name = pa.scalar(f"bench-{number:06d}")
    parts = {
        key: table.set_column(0, "snapshot_id", pa.repeat(name, table.num_rows))
        for key, table in snapshot.tables.items()
    }
    return Snapshot(parts)


def _with_partitions(table: pa.Table) -> pa.Table:
    if "system" not in table.column_names:
        table = table.append_column("system", pa.repeat(pa.scalar("bench"), table.num_rows))
    return table.append_column("date", pa.repeat(pa.scalar(START.date()), table.num_rows))


def _append_bare(folder: Path, stored: dict[str, pa.Table]) -> None:
    """The same tables as `deltalake` writes them by itself, zstd as well."""
    from deltalake import WriterProperties, write_deltalake

    for name, table in stored.items():
        write_deltalake(
            str(folder / name),
            table,
            mode="append",
            partition_by=["system", "date"],
            writer_properties=WriterProperties(compression="ZSTD"),
        )
