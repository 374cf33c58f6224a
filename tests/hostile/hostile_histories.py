"""Histories that a stranger has crafted: at every place where a reader could import, construct or unpickle, a trap."""

import json
import os
import pickle
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from ray_snapshot import Snapshot, Verdict
from ray_snapshot.history import History, HistoryWriter
from ray_snapshot.schema import ACTIONS

MODULE = "named_by_history"
"""Importing it makes the sentinel; it stands where the commands are run."""

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
RUNS = ("run-a", "run-b")


class Sentinel:
    """A file that is there if anything has been executed that a history names."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "EXECUTED"
        self.program = folder / "program"
        """Where commands are run: what is imported by name is found here."""
        self.program.mkdir(parents=True)
        (self.program / f"{MODULE}.py").write_text(
            f"open({str(self.file)!r}, 'a').write('imported ')\n"
            "import ray_snapshot as rs\nfrom dataclasses import dataclass\n\n"
            "@rs.detector\ndef detector(snapshot):\n    return True\n\n"
            "class Machine(rs.SnapshotMixin):\n    def __init__(self, *args):\n        pass\n\n"
            "@dataclass\nclass Thing:\n    x: int\n"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """Unpickled, it makes itself."""
        return os.system, (self.command,)

    @property
    def command(self) -> str:
        return f"echo ran >> {self.file}"

    @property
    def executed(self) -> str:
        return self.file.read_text() if self.file.exists() else ""


def crafted(path: Path, sentinel: Sentinel, class_name: str = f"{MODULE}:Machine") -> History:
    """Two runs of a bank, each of two snapshots with a trace, and a trap wherever a name or a pickle could stand."""
    with HistoryWriter(path) as writer:
        for run in RUNS:
            for number in (1, 2):
                writer.add(_snapshot(run, number, class_name, sentinel))
                writer.add_verdicts(_verdicts(f"bank-{run}-{number}"))
            writer.add_actions(_trace(run, class_name, sentinel), system="bank")
        writer.add_classes(
            [{"class_name": "Machine", "version": "1", "run_id": "run-a", "module": MODULE, "fields": "[]",
              "json_schema": json.dumps(_TRAP), "first_seen_at": NOON}],
            system="bank",
        )  # fmt: skip
    folder = path / "checkpoints"
    folder.mkdir(exist_ok=True)
    for run in RUNS:
        for number in (1, 2):
            (folder / f"bank-{run}-{number}.checkpoint").write_bytes(b"RSCHECK1" + pickle.dumps(sentinel))
    return History(path)


_TRAP = [
    {"$type": f"{MODULE}.Thing", "x": 1},
    {"$type": f"{MODULE}:Thing", "x": 1},
    {"$name": f"{MODULE}.detector"},
    {"$name": f"{MODULE}:detector"},
]


def _snapshot(run: str, number: int, class_name: str, sentinel: Sentinel) -> Snapshot:
    kind = class_name.rpartition(":")[2]
    at = NOON + timedelta(seconds=number)
    state = {"balance": 10, "trap": _TRAP, "pickled": {"$pickle": pickle.dumps(sentinel).hex()}}
    return Snapshot.from_rows(
        machines=[
            {"machine": "a", "class_name": kind, "state": state},
            {"machine": "b", "class_name": f"{MODULE}:Machine", "state": state},
        ],
        messages=[{"source": "a", "target": "b", "method": "deposit", "args": [7, *_TRAP]}],
        snapshot_id=f"bank-{run}-{number}",
        system="bank",
        run_id=run,
        sequence=number,
        started_at=at,
        completed_at=at,
        restorable=True,
        coverage={"uncovered": [], "detector": f"{MODULE}:detector"},
    )


def _verdicts(snapshot_id: str) -> list[Verdict]:
    specs: list[dict[str, Any]] = [
        {"type": "callable", "name": f"{MODULE}:detector"},
        {"type": f"{MODULE}:detector"},
        {"type": "deadlock", "name": f"{MODULE}:detector"},
        {"type": "callable", "name": "subprocess:Popen"},
    ]
    return [
        Verdict(
            detector=f"d{number}",
            snapshot_id=snapshot_id,
            holds=True,
            evidence={"trap": _TRAP, "error": f"{MODULE}:detector"},
            sentence="It holds.",
            detector_spec=spec,
            alarm=True,
        )
        for number, spec in enumerate(specs)
    ]


def _trace(run: str, class_name: str, sentinel: Sentinel) -> pa.Table:
    given = [sentinel.command, *_TRAP, {"$kwargs": {"shell": True}}]
    creation = {"kind": "mail", "number": 0, "method": "__init__", "class": class_name, "args": given}
    rows: list[dict[str, Any]] = []
    for machine, number, accepted, sent in (
        ("driver", 1, [], [{"target": "a", **creation}]),
        ("a", 1, [{"source": "driver", **creation}], []),
    ):
        method = "send" if machine == "driver" else "__init__"
        rows.append(
            {"run_id": run, "machine": machine, "number": number, "host": "host-0", "method": method,
             "accepted": json.dumps(accepted), "sent": json.dumps(sent), "colour": 0,
             "acted_at": NOON + timedelta(milliseconds=len(rows)), "is_over": True}
        )  # fmt: skip
    return pa.Table.from_pylist(rows, schema=ACTIONS)
