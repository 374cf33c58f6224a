"""A history of snapshots some of whose rows came packed: what it holds is what it would hold of plain rows."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from limited import limit
from unread_rows import COLUMNS

from ray_snapshot import Snapshot, redaction
from ray_snapshot.columns import inner
from ray_snapshot.history import History, HistoryWriter
from ray_snapshot.parts.reporting import LinkCounts
from ray_snapshot.runtime.assembly import Also, assembled
from ray_snapshot.runtime.brought import BroughtRows
from ray_snapshot.runtime.collected import SnapshotHeader
from ray_snapshot.runtime.host.resting import Packing, Rows
from ray_snapshot.runtime.report import ENDS, HostPart, Resting, at
from ray_snapshot.schema import MESSAGES, SNAPSHOT_TABLES, TABLES

START = datetime(2026, 3, 1, 23, 59, 50, 250_001, tzinfo=UTC).timestamp()
"""Ten seconds before midnight."""

HOSTS = ("h1", "h2")


def machines_of(host: str, names: Sequence[str], chance: random.Random) -> pa.Table:
    rows = [
        {
            "machine": name,
            "class_name": chance.choice(["Purse", "Vault", "Übung"]),
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


@dataclass
class Town:
    path: Path
    packings: dict[str, Packing] = field(default_factory=lambda: {host: Packing(host) for host in HOSTS})
    packed_count: int = 0
    """How often a host's rows came packed."""

    def __post_init__(self) -> None:
        self.writer = HistoryWriter(self.path, system="bank")

    def take(self, number: int, shown: Mapping[str, tuple[Rows, pa.Table]], started_at: float) -> Snapshot:
        """A snapshot, as the analyst puts it together, goes to the writer; `shown`: by host, at rest and awake."""
        header = SnapshotHeader(number, "bank", "run-1", "chandy-lamport", [], started_at, started_at + 0.5)
        found = assembled(header, [self._part(host, *rows, started_at) for host, rows in shown.items()], Also())
        self.writer.add(found)
        return found

    def _part(self, host: str, at_rest: Rows, awake: pa.Table, started_at: float) -> HostPart:
        recorded_at = int((started_at + 0.1) * 1e6)
        show = Resting(at_rest, ENDS.empty_table(), LinkCounts(host), {}, ())
        packed = self.packings[host].packed(show, recorded_at)
        self.packed_count += packed is not None
        machines = at(awake if packed else pa.concat_tables([at_rest.table(), awake]), recorded_at)
        return HostPart(inner(MESSAGES).empty_table(), ENDS.empty_table(), machines, packed=packed)


def lived(path: Path, seed: int) -> Town:
    """Some snapshots of machines that rest, act and change, over midnight, flushed now and then."""
    town, chance, now = Town(path), random.Random(seed), START
    bases = {host: machines_of(host, [f"{host}-{n}" for n in range(chance.randrange(3, 40))], chance) for host in HOSTS}
    shown: dict[str, Any] = {}
    for number in range(1, chance.randrange(3, 9)):
        for host in HOSTS:
            if chance.random() < 0.3 and number > 1:  # nothing has changed there
                continue
            if chance.random() < 0.3:
                bases[host] = machines_of(host, bases[host]["machine"].to_pylist(), chance)
            awake = [name for name in bases[host]["machine"].to_pylist() if chance.random() < 0.2]
            rows = Rows(bases[host]).without("machine", awake)
            shown[host] = rows, machines_of(host, [f"{name}-awake" for name in awake], chance)
        now += chance.random() * 4
        town.take(number, shown, now)
        if chance.random() < 0.4:
            town.writer.flush()
    town.writer.close()
    return town


def seen(path: Path) -> dict[str, Any]:
    """All that a history has, but for when it was written."""
    history = History(path)
    found: dict[str, Any] = {name: history.table(name).sort_by(_order(name)).to_pylist() for name in SNAPSHOT_TABLES}
    loaded = [history.load(row["snapshot_id"]) for row in found["snapshots"]]
    found["loaded"] = [{name: one.tables[name].to_pylist() for name in SNAPSHOT_TABLES} for one in loaded]
    found["over time"] = [history.machines(machine=name).table.to_pylist() for name in ("h1-0", "h2-7", "h1-0-awake")]
    return found


def _order(name: str) -> list[tuple[str, str]]:
    return [(column, "ascending") for column in ("snapshot_id", *(("machine",) if name == "machines" else ()))]


def wrong_with(path: Path) -> list[str]:
    return [problem for _, problems in History(path).verify() for problem in problems]


def test_a_history_of_rows_that_came_packed_is_that_of_plain_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = 0
    for seed in range(3):
        plain = lived(tmp_path / f"{seed}-plain", seed)
        assert plain.packed_count == 0
        assert wrong_with(plain.path) == []
        with monkeypatch.context() as patch:
            limit(patch, packed_rows=1)
            town = lived(tmp_path / f"{seed}-packed", seed)
        assert seen(town.path) == seen(plain.path), f"seed {seed}"
        packed += town.packed_count
    assert packed > 0


def test_rows_that_came_packed_are_committed_without_what_is_secret_by_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(monkeypatch, packed_rows=1)
    town = Town(tmp_path)
    rest = Rows(machines_of("h1", [f"m{at}" for at in range(20)], random.Random(1)))
    for number in (1, 2):
        last = town.take(number, {"h1": (rest, COLUMNS.empty_table())}, START + number)
    assert town.packed_count == 1
    redaction.redact("tokens")
    town.writer.close()
    rows = History(tmp_path).table("machines").to_pylist()
    states = [row["state"] for row in rows if row["snapshot_id"] == last.snapshot_id and row["state"]]
    assert states
    assert all('"tokens":{"$redacted":"tokens"}' in state for state in states)


def no_memory(_: BroughtRows) -> pa.Table:
    raise MemoryError


def test_what_stands_before_rows_that_cannot_be_unpacked_is_committed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(monkeypatch, packed_rows=1)
    town = Town(tmp_path)
    shown = {host: (Rows(machines_of(host, ["a" + host], random.Random(1))), COLUMNS.empty_table()) for host in HOSTS}
    for number in (1, 2):
        last = town.take(number, shown, START + number)
    row = {"run_id": last.run_id, "machine": "ah1", "number": 1, "method": "put", "colour": 0, "acted_at": 1}
    row |= {"accepted": "[]", "sent": "[]"}
    town.writer.add_actions(pa.Table.from_pylist([row], schema=TABLES["actions"]), system="bank")
    with monkeypatch.context() as patch:
        patch.setattr(BroughtRows, "rows", no_memory)
        with pytest.raises(MemoryError):
            town.writer.flush()
    assert town.writer.buffered_bytes > 0
    town.writer.close()
    assert (History(tmp_path).action_count(last.run_id), town.writer.buffered_bytes) == (1, 0)
    assert wrong_with(tmp_path) == []
