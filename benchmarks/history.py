"""What the history costs: writing a snapshot, reading one machine over time, and a running system with it and without."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

import ray_snapshot as rs
from benchmarks.measure import Result, alternate
from benchmarks.snapshots import Runner
from ray_snapshot.history import History, HistoryWriter
from ray_snapshot.schema import CHANNELS, MACHINES, SNAPSHOTS
from ray_snapshot.snapshot import Snapshot

START = datetime(2026, 3, 1, tzinfo=UTC)
OVER_TIME_SNAPSHOTS = 1_000
OVER_TIME_MACHINES = 10_000
EVERY_S = 0.5
WINDOW_S = 6.0


def run(names: set[str]) -> Iterator[Result]:
    """Yield the figures `history-write-100000`, `history-machine-over-time`, `history-export`, `history-export-cpu`."""
    if "history-write-100000" in names:
        yield _write()
    if "history-machine-over-time" in names:
        yield _over_time()
    if names & {"history-export", "history-export-cpu"}:
        yield from _export(names)


# Writing


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
            return _timed(lambda: (writer.add(snapshot), writer.flush()))

        def bare() -> float:
            return _timed(lambda: _append_bare(Path(folder) / "bare", stored))

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


# Reading


def _over_time() -> Result:
    """A machine's states over many snapshots: compacted, over a file per snapshot."""
    with tempfile.TemporaryDirectory() as folder:
        path, plain = Path(folder) / "history", Path(folder) / "plain"
        plain.mkdir()
        _many(path, plain)
        history = History(path)
        history.compact()
        files = sorted(str(file) for file in plain.iterdir())
        wanted = iter(range(10_000))

        def compacted() -> float:
            machine = f"Account-{next(wanted) * 37 % OVER_TIME_MACHINES:06d}"
            return _timed(lambda: _expect(history.machines(machine=machine).table))

        def one_by_one() -> float:
            machine = f"Account-{next(wanted) * 37 % OVER_TIME_MACHINES:06d}"
            return _timed(
                lambda: _expect(ds.dataset(files, schema=MACHINES).to_table(filter=ds.field("machine") == machine))
            )

        return alternate(
            "history-machine-over-time",
            "<= 0.05",
            ("compacted_ms", compacted),
            ("file_per_snapshot_ms", one_by_one),
            pairs=6,
        )


def _many(path: Path, plain: Path) -> None:
    """The snapshots in a history, and each in a file of its own."""
    import pyarrow.parquet as pq

    with HistoryWriter(path) as writer:
        for number in range(OVER_TIME_SNAPSHOTS):
            snapshot = synthetic(number, OVER_TIME_MACHINES)
            writer.add(snapshot)
            pq.write_table(snapshot.tables["machines"], plain / f"{number:06d}.parquet", compression="zstd")
            if number % 50 == 49:
                writer.flush()


def _expect(table: pa.Table) -> None:
    if table.num_rows != OVER_TIME_SNAPSHOTS:
        raise ValueError(f"{table.num_rows} rows of one machine, {OVER_TIME_SNAPSHOTS} expected")


# A running system


def _export(names: set[str]) -> Iterator[Result]:
    """Throughput, and processor time a message, with snapshots all the time: with a history and without."""
    with tempfile.TemporaryDirectory() as folder:
        rates: dict[str, list[tuple[float, float]]] = {"on": [], "off": []}

        def window(key: str, history: str | None) -> float:
            found = _window(f"benchmark-export-{key}", history)
            rates[key].append(found)
            return found[0]

        pairs = 6
        rate = alternate(
            "history-export",
            ">= 0.95",
            ("messages_per_s_with", lambda: window("on", folder)),
            ("messages_per_s_without", lambda: window("off", None)),
            pairs=pairs,
        )
        if "history-export" in names:
            yield rate
        if "history-export-cpu" in names:
            on, off = ([cpu for _, cpu in rates[key][1:]] for key in ("on", "off"))
            ratios = sorted(a / b for a, b in zip(on, off, strict=True))
            arms = {
                "cpu_us_per_message_with": float(np.median(on)),
                "cpu_us_per_message_without": float(np.median(off)),
            }
            yield Result("history-export-cpu", float(np.median(ratios)), ratios[0], ratios[-1], "<= 1.05", arms)


def _window(name: str, history: str | None) -> tuple[float, float]:
    """(messages accepted a second, processor time in us a message) of a system of its own."""
    with rs.System(name, history=history) as system:
        machines = system.spawn_many(Runner, args=[(n, 1_000) for n in range(1_000)], per_host=500)
        system.start()
        for machine in machines:
            machine.pass_on.send(1)
        system.snapshot()
        first, before = system.snapshot(), _cpu_s()
        machines[0].beat.send(EVERY_S, int(WINDOW_S / EVERY_S) - 1)
        time.sleep(WINDOW_S)
        last, after = system.snapshot(), _cpu_s()
        accepted = [pc.sum(found.tables["machines"]["accepted_count"]).as_py() for found in (first, last)]
        count = accepted[1] - accepted[0]
        return count / (last.started_at - first.started_at).total_seconds(), 1e6 * (after - before) / count


def _cpu_s() -> float:
    """Processor time of this process and all that descend from the same parent of ours: Ray's workers are among them."""
    ticks = 0
    children: dict[int, list[int]] = {}
    used: dict[int, int] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                fields = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
            except OSError:  # it has just ended
                continue
            children.setdefault(int(fields[1]), []).append(int(entry))
            used[int(entry)] = int(fields[11]) + int(fields[12])
    waiting = [os.getpid()]
    while waiting:
        process = waiting.pop()
        ticks += used.get(process, 0)
        waiting += children.get(process, [])
    return ticks / os.sysconf("SC_CLK_TCK")


def _timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return 1e3 * (time.perf_counter() - began)
