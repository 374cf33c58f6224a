"""Hosts with machines at rest, and the writer of their history, with real files and no Ray: so each step can be killed."""

from __future__ import annotations

import atexit
import random
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa

from ray_snapshot.addresses import AnyPath
from ray_snapshot.columns import inner
from ray_snapshot.history import HistoryWriter, host_files, tables, upkeep
from ray_snapshot.history.host_files import Given, Wanted
from ray_snapshot.parts.reporting import LinkCounts
from ray_snapshot.runtime.assembly import Also, assembled
from ray_snapshot.runtime.collected import SnapshotHeader
from ray_snapshot.runtime.host.kept import KeptTables
from ray_snapshot.runtime.host.own_parts import OwnParts
from ray_snapshot.runtime.host.resting import Rows
from ray_snapshot.runtime.kept_rows import KeptRows
from ray_snapshot.runtime.report import ENDS, HostPart, Resting, at
from ray_snapshot.schema import MACHINES, MESSAGES
from ray_snapshot.snapshot import Snapshot
from ray_snapshot.verdicts import Verdict

START = datetime(2026, 3, 1, 23, 59, 50, 250_001, tzinfo=UTC).timestamp()
"""Ten seconds before midnight."""

COLUMNS = inner(MACHINES)


def machines_of(host: str, names: Sequence[str], chance: random.Random) -> pa.Table:
    """Rows of machines at rest, as a host has them."""
    rows = [
        {
            "machine": name,
            "class_name": chance.choice(["Purse", "Vault", None]) or "Übung",
            "host": host,
            "incarnation": 1,
            "status": "passive",
            "max_concurrency": 1,
            "state": chance.choice([None, f'{{"tokens":{chance.randrange(9)}}}', '{"text":"é\\n","tokens":1}']),
            "state_truncated": False,
            "state_bytes": chance.choice([None, chance.randrange(99)]),
            "accepted_count": chance.randrange(9),
            "sent_count": 0,
        }
        for name in names
    ]
    return pa.Table.from_pylist(rows, schema=COLUMNS)


class HostOfATown:
    """A host: what it keeps and writes is the real thing."""

    def __init__(self, name: str, own_from: int | None, clock: Callable[[], float]) -> None:
        self.name = name
        self.own = OwnParts(own_from, clock)
        self.kept = KeptTables(name, None, self.own)
        self.is_dead = False
        self.packed = 0
        """How often it has sent rows packed."""
        self.before: Callable[[], None] = lambda: None
        self.after: Callable[[Given], Given] = lambda given: given
        self.rows = SimpleNamespace(
            remote=lambda number, names=None: None if self.is_dead else self.kept.packed(number, names)
        )
        self.partial = SimpleNamespace(remote=self.kept.partial)

    def part(self, number: int, resting: Rows, awake: pa.Table, recorded_at: int) -> HostPart:
        """Its report."""
        show = Resting(resting, ENDS.empty_table(), LinkCounts(self.name), {}, ())
        kept = self.kept.keep(number, show, recorded_at)
        self.packed += kept is not None and kept.rows is not None
        machines = at(awake if kept else pa.concat_tables([resting.table(), awake]), recorded_at)
        return HostPart(inner(MESSAGES).empty_table(), ENDS.empty_table(), machines, kept=kept)

    def give(self, wanted: Wanted) -> Given:
        """As the actor's method."""
        gone = Given(lost=f"{self.name} has died")
        if self.is_dead:
            return gone
        self.before()
        found = gone if self.is_dead else self.own.give(wanted)
        found = self.after(found)
        return gone if self.is_dead else found


class _Kept(KeptRows):
    def _asked(self, call: Any, hosts: Sequence[str], what: str, seconds: float = 0.0) -> list[Any]:
        return [call(self.hosts[host]) for host in hosts]


@cache
def _empty() -> Path:
    """A history without rows, made once: that takes longer than copying it."""
    path = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, path)
    HistoryWriter(path).close()
    return path


@dataclass
class Town:
    """`own_from`: see `OwnParts`; None: all rows go through the analyst."""

    path: AnyPath
    own_from: int | None
    names: Sequence[str] = ("h1", "h2")
    now: float = 0.0
    asked: list[Wanted] = field(default_factory=list)
    released: list[tuple[str, tuple[int, ...]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        if isinstance(self.path, Path) and not (self.path / "snapshots").exists():
            shutil.copytree(_empty(), self.path, dirs_exist_ok=True)
        self.hosts = {name: HostOfATown(name, self.own_from, lambda: self.now) for name in self.names}
        self.writer = HistoryWriter(self.path, system="bank", hosts=self)

    # ---- as `host_files.Hosts` -------------------------------------------------------------------------------------

    def ask(self, wanted: Sequence[Wanted], seconds: float) -> list[Given]:
        self.asked += wanted
        return [self.hosts[one.host].give(one) for one in wanted]

    def release(self, settled: Mapping[str, Sequence[int]]) -> None:
        for host, numbers in settled.items():
            self.released.append((host, tuple(numbers)))
            self.hosts[host].own.release(numbers)

    # ---- snapshots -------------------------------------------------------------------------------------------------

    def taken(self, number: int, shown: Mapping[str, tuple[Rows, pa.Table]], started_at: float = START) -> Snapshot:
        """A snapshot, as the analyst puts it together."""
        header = SnapshotHeader(number, "bank", "run-1", "chandy-lamport", [], started_at, started_at + 0.5)
        recorded_at = int((started_at + 0.1) * 1e6)
        parts = [self.hosts[host].part(number, *rows, recorded_at) for host, rows in shown.items()]
        keeping: dict[str, Any] = {
            kept.host: self.hosts[kept.host] for part in parts if (kept := part.kept) is not None and kept.rows is None
        }
        kept = _Kept(header.snapshot_id, number, keeping, str(self.path)) if keeping else None
        return assembled(header, parts, Also(), kept)

    def add(self, snapshot: Snapshot) -> None:
        """It has been judged, and goes to the writer."""
        verdict = Verdict(
            detector="termination", snapshot_id=snapshot.snapshot_id, holds=True, evidence={}, sentence="All is done."
        )
        self.writer.add_both(snapshot, [verdict])

    def die(self) -> None:
        """The analyst's process ends: the lock on its record goes with it."""
        if (file := getattr(self.writer._owner, "file", None)) is not None:
            file.close()


def plain(town: Town, number: int, count: int = 20, started_at: float | None = None) -> Snapshot:
    """A snapshot of machines at rest only, so many on each host, always the same."""
    chance = random.Random(number)
    shown = {
        host: (Rows(machines_of(host, [f"{host}-{at}" for at in range(count)], chance)), COLUMNS.empty_table())
        for host in town.hosts
    }
    return town.taken(number, shown, START + number * 0.01 if started_at is None else started_at)


def strays(path: Path) -> list[str]:
    """Files of a history that no commit names."""
    named = {str(file) for name in upkeep.there(path) for file in upkeep._named(path, name)}
    return sorted({str(file) for file in path.glob("*/system=*/**/*.parquet")} - named)


def files_of(path: AnyPath, name: str = host_files.TABLE) -> list[tables.DataFile]:
    """The files of a table, as the log has them."""
    return tables.data_files(path, name, tables.open_table(path, name))
