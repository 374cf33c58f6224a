"""Small histories with known answers, for questions that need no Spark."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from ray_snapshot import Detector, Snapshot, Verdict
from ray_snapshot.detectors import TokenConservation
from ray_snapshot.history import History, HistoryWriter
from ray_snapshot.verdicts import Standards

BEGIN = datetime(2026, 3, 1, 23, 59, 58, tzinfo=UTC)

MONEY = TokenConservation(total=30, state="$.balance", messages={"deposit": "$[0]"}, name="money")


def snapshot(run: str, sequence: int, balances: Sequence[Any] = (), **rows: Any) -> Snapshot:
    """Snapshot `sequence` of a run such as `bank-1`, with a machine `m0`, `m1`, ... for each balance."""
    started = BEGIN + timedelta(seconds=sequence)
    given = {
        "machines": [{"machine": f"m{n}", "state": {"balance": balance}} for n, balance in enumerate(balances)],
        "snapshot_id": f"{run}-{sequence:04d}",
        "system": run.rpartition("-")[0],
        "run_id": run,
        "sequence": sequence,
        "started_at": started,
        "completed_at": started + timedelta(milliseconds=100),
        "coverage": {"uncovered": []},
    }
    return Snapshot.from_rows(**(given | rows))


def judged(snapshots: Iterable[Snapshot], *detectors: Detector) -> list[Verdict]:
    """The live verdicts on completed snapshots, in their order."""
    standards = Standards()
    complete = [taken for taken in snapshots if taken.status == "complete"]
    return [standards.evaluate(detector, taken) for taken in complete for detector in detectors]


def write(path: Path, snapshots: Sequence[Snapshot], verdicts: Sequence[Verdict] = ()) -> History:
    with HistoryWriter(path) as writer:
        for taken in snapshots:
            writer.add(taken)
        writer.add_verdicts(list(verdicts))
    return History(path)


def bank(path: Path) -> History:
    """30 in two machines and on their way; 5 are lost between 2 and 4, for 3 was aborted. The ring has no ledger."""
    on_its_way = [{"source": "m0", "target": "m1", "method": "deposit", "args": [7]}]
    taken = [
        snapshot("bank-1", 0, [10, 20]),
        snapshot("bank-1", 1, [3, 20], messages=on_its_way, channels=[_channel(1, 0, 1)]),
        snapshot("bank-1", 2, [3, 27], channels=[_channel(1, 1, 0)]),
        snapshot("bank-1", 3, [3, 27], status="aborted", abort_reason="m0 did not answer"),
        snapshot("bank-1", 4, [3, 22], channels=[_channel(1, 1, 0)]),
        snapshot("bank-1", 5, [3, 22], channels=[_channel(2, 1, 0)]),
    ]
    ring = [snapshot("ring-1", n, [n]) for n in range(2)]
    return write(path, [*taken, *ring], judged(taken, MONEY))


def _channel(sent: int, accepted: int, in_flight: int) -> dict[str, Any]:
    counts = {"sent_count": sent, "accepted_count": accepted, "in_flight_count": in_flight}
    return {"source": "m0", "target": "m1", "kind": "mail", **counts}


def column(table: Any, name: str) -> list[Any]:
    values: list[Any] = table[name].to_pylist()
    return values
