"""A small app's last minute in a history: two accounts that pay each other, healthy at first, deadlocked in the end."""

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from once import content, once

from ray_snapshot import Snapshot, Verdict
from ray_snapshot.detectors import Deadlock, Termination
from ray_snapshot.history import HistoryWriter

START = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
SITE = "/srv/app/bank.py:41"
OF_MACHINES = re.compile(r"\b(machines?|mail|channels?|settled|passive|red|white)\b")
"""Words that do not occur where an app is watched."""
CROWD = tuple(f"account-{at}" for at in range(1_000))


def deadlocked(number: int, names: tuple[str, ...] = ("a", "b"), **row: Any) -> Snapshot:
    """Each account is in a transfer, and waits for the deposit of the first one (that one: of the second), which cannot begin;
    the driver waits for the first."""
    return _snapshot(number, names, is_stuck=True, **row)


def healthy(number: int, names: tuple[str, ...] = ("a", "b"), **row: Any) -> Snapshot:
    """Nobody waits."""
    return _snapshot(number, names, is_stuck=False, **row)


def _snapshot(number: int, names: tuple[str, ...], *, is_stuck: bool, state: Any = None, **row: Any) -> Snapshot:
    started = START + timedelta(seconds=number)
    pairs = [(one, names[one == names[0]]) for one in names]
    status = "blocked" if is_stuck else "passive"
    held = state or {"balance": 90 if is_stuck else 100}
    machines: list[dict[str, Any]] = [
        {"machine": name, "class_name": "Account", "status": status, "state": {**held, "owner": name}, "host": "pid-7"}
        for name in names
    ]
    machines.append({"machine": "driver", "class_name": "driver", "status": "blocked" if is_stuck else "active"})
    stuck: dict[str, list[dict[str, Any]]] = {"messages": [], "calls": [], "waits": []}
    if is_stuck:
        since = START + timedelta(seconds=3)
        stuck["messages"] = [
            {"source": one, "target": other, "kind": "call", "method": "deposit", "args": [10],
             "call_id": f"{one}/0/{other}/1"}
            for one, other in pairs
        ]  # fmt: skip
        stuck["calls"] = [
            {
                "machine": name,
                "call_id": f"driver/0/{name}/1",
                "caller": "driver",
                "method": "transfer",
                "call_site": SITE,
            }
            for name in names
        ]
        stuck["waits"] = [
            {"machine": one, "call_id": f"driver/0/{one}/1", "on_machine": other, "on_call_id": f"{one}/0/{other}/1"}
            for one, other in pairs
        ]
        stuck["waits"].append({"machine": "driver", "on_machine": names[0], "on_call_id": f"driver/0/{names[0]}/1"})
        stuck["waits"] = [{**wait, "waiting_since": since} for wait in stuck["waits"]]
    whole = {
        "snapshot_id": f"bank-{number:05d}",
        "system": "bank",
        "run_id": "run-1",
        "started_at": started,
        "sequence": number,
        "coverage": {"uncovered": [], "versions": {"Ray": "2.60.0"}},
    }
    return Snapshot.from_rows(machines=machines, **stuck, **{**whole, **row})


def judged(snapshot: Snapshot) -> list[Verdict]:
    """What would have been said live."""
    return [item.evaluate(snapshot) for item in (Deadlock(), Termination())]


def written(path: Path, snapshots: Iterable[Snapshot], verdicts: Mapping[str, list[Verdict]] | None = None) -> Path:
    """A history of these; `verdicts` by snapshot, else what would have been said live."""
    snapshots = [*snapshots]

    def make(path: Path) -> None:
        with HistoryWriter(path) as writer:
            for one in snapshots:
                writer.add(one)
                writer.add_verdicts(judged(one) if verdicts is None else verdicts.get(one.snapshot_id, []))

    return once(path, (content(snapshots), repr(verdicts)), make)


def incident(path: Path, names: tuple[str, ...] = ("a", "b")) -> Path:
    """Four healthy snapshots, one second apart, and two deadlocked ones."""
    return written(path, [*(healthy(n, names) for n in range(4)), *(deadlocked(n, names) for n in (4, 5))])
