"""Small histories with known answers, made by hand."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from ray_snapshot import Detector, Snapshot, Verdict
from ray_snapshot.detectors import TokenConservation
from ray_snapshot.history import History, HistoryWriter
from ray_snapshot.verdicts import Standards

BEGIN = datetime(2026, 3, 1, 23, 59, 58, tzinfo=UTC)
"""Two seconds before midnight, so that a run spans two partitions."""

BANK = TokenConservation(total=300, state="$.balance", messages={"deposit": "$[0]"})


def snapshot(run: str, sequence: int, *, at_s: float | None = None, took_s: float = 0.1, **rows: Any) -> Snapshot:
    """Snapshot `sequence` of a run such as `bank-1`, started `at_s` (default: `sequence`) seconds after `BEGIN`."""
    started = BEGIN + timedelta(seconds=sequence if at_s is None else at_s)
    given = {
        "snapshot_id": f"{run}-{sequence:04d}",
        "system": run.rpartition("-")[0],
        "run_id": run,
        "sequence": sequence,
        "started_at": started,
        "completed_at": started + timedelta(seconds=took_s),
        "duration_ms": took_s * 1e3,
        "coverage": {"uncovered": []},
    }
    return Snapshot.from_rows(**(given | rows))


def live(snapshots: Iterable[Snapshot], *detectors: Detector) -> list[Verdict]:
    """The verdicts that the detector service would have written, in the order of the snapshots."""
    standards, complete = Standards(), (taken for taken in snapshots if taken.status == "complete")
    return [standards.evaluate(detector, taken) for taken in complete for detector in detectors]


def write(path: Path, snapshots: Sequence[Snapshot], verdicts: Sequence[Verdict] = ()) -> History:
    """A history of these snapshots and verdicts."""
    writer = HistoryWriter(path)
    for taken in snapshots:
        writer.add(taken)
    writer.add_verdicts(list(verdicts))
    writer.close()
    return History(path)


def rows(frame: Any, *key: str) -> dict[Any, dict[str, Any]]:
    """The rows of a Spark frame by the columns `key`; times are UTC."""
    listed = frame.toArrow().to_pylist()
    found = {tuple(row[name] for name in key) if len(key) > 1 else row[key[0]]: row for row in listed}
    assert len(found) == len(listed), f"{key} are not the key of these rows"
    return found


def bank() -> list[Snapshot]:
    """Three accounts of 300 in all; 10 are lost between snapshots 4 and 5; snapshot 3 was aborted.

    The channel a -> b carries the deposits 1, 2, ...; at snapshot n, 2n are sent, and 2n - n % 2 accepted.
    """
    taken = []
    for n in range(8):
        carried = n % 2
        lost = 10 if n >= 5 else 0
        taken.append(
            snapshot(
                "bank-1",
                n,
                machines=[
                    {"machine": "a", "status": "active", "state": {"balance": 100 - 7 * carried}},
                    {"machine": "b", "state": {"balance": 100 - lost}},
                    {"machine": "c", "state": {"balance": 100}},
                    {"machine": "driver", "status": "passive", "state": None},
                ],
                channels=[{"source": "a", "target": "b", "sent_count": 2 * n, "accepted_count": 2 * n - carried}],
                messages=[{"source": "a", "target": "b", "method": "deposit", "args": [7]}] * carried,
                **({"status": "aborted", "abort_reason": "a did not answer"} if n == 3 else {}),
            )
        )
    return taken


def table() -> list[Snapshot]:
    """Two philosophers who take their left forks between snapshots 3 and 4, and wait for each other from then on."""
    taken = []
    for n in range(7):
        stuck = n >= 4
        philosophers = [
            {"machine": one, "status": "blocked" if stuck else "active", **({"waits_for": [other]} if stuck else {})}
            for one, other in (("kant", "hume"), ("hume", "kant"))
        ]
        # The waiter asks kant for the bill once, before snapshot 1, and is never answered.
        bill = [{"source": "waiter", "target": "kant", "method": "pay", "args": []}] if n >= 1 else []
        channels = [{"source": "guest", "target": "hume", "sent_count": 3 * n, "accepted_count": min(3 * n, 9)}]
        taken.append(
            snapshot(
                "table-1",
                n,
                machines=[*philosophers, {"machine": "waiter"}, {"machine": "guest", "status": "active"}],
                channels=channels,
                messages=[*bill, *_orders(max(0, 3 * n - 9))],
            )
        )
    return taken


def _orders(count: int) -> list[dict[str, Any]]:
    return [{"source": "guest", "target": "hume", "method": "order", "args": []} for _ in range(count)]


def quiet(
    run: str,
    sequence: int,
    *,
    done: bool,
    driver: str = "passive",
    driver_sent: int = 1,
    incarnation: int = 1,
    **more: Any,
) -> Snapshot:
    """A snapshot on which termination holds iff `done` (and the driver is passive)."""
    return snapshot(
        run,
        sequence,
        machines=[
            {"machine": "worker", "status": "passive" if done else "active", "incarnation": incarnation},
            {
                "machine": "driver",
                "status": driver,
                "state": None,
                "sent_count": driver_sent,
                "incarnation": incarnation,
            },
        ],
        **more,
    )


def relapses() -> list[Snapshot]:
    """Runs on which termination was true and then false; only in `back-1` may that not be.

    `back-1`: false at 3 though true at 1 (at 2 already, but 2 began before 1 was completed).
    `sent-1`: the driver sent something in between. `woke-1`: the driver woke up, nothing else happened.
    `restored-1`: rolled back in between. `restarted-1`: a new incarnation.
    """
    return [
        quiet("back-1", 0, done=False),
        quiet("back-1", 1, done=True, took_s=1.5),
        quiet("back-1", 2, done=False),
        quiet("back-1", 3, done=False),
        quiet("sent-1", 0, done=True),
        quiet("sent-1", 1, done=False, driver_sent=2),
        quiet("woke-1", 0, done=True),
        quiet("woke-1", 1, done=True, driver="active"),
        quiet("restored-1", 0, done=False),
        quiet("restored-1", 1, done=True),
        quiet("restored-1", 2, done=False, restored_from="restored-1-0000"),
        quiet("restored-1", 3, done=False, restored_from="restored-1-0000"),
        quiet("restarted-1", 0, done=True),
        quiet("restarted-1", 1, done=False, incarnation=2),
    ]
