"""A history with a checkpoint, written without Ray, as a system on Ray writes them."""

import hashlib
import pickle
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import ray_snapshot as rs
from ray_snapshot.encoding import to_json
from ray_snapshot.history import HistoryWriter, checkpoints
from ray_snapshot.history.checkpoints import Checkpoint
from ray_snapshot.json_text import parsed_json
from ray_snapshot.runtime.handles import handle_of
from ray_snapshot.runtime.saved_machines import saved_bytes, saved_table
from ray_snapshot.testing.moments import Flying

RUN_ID = "0123456789abcdef"
STARTED_AT = 1_700_000_000.0


def handle(name: str) -> Any:
    """A machine of the run that is recorded."""
    return handle_of(RUN_ID, name, "host-0")


def plain(value: Any) -> Any:
    return parsed_json(to_json(value).text)


def flying(source: str, target: str, method: str, args: tuple[Any, ...], left: float | None = None) -> Flying:
    """A message, or a timer with what is left of it."""
    return Flying(source, target, method, args, {}, "mail" if left is None else "timer", left or 0.0)


def record(
    history: Path,
    machines: Mapping[str, tuple[type, Any]],
    messages: Iterable[Flying | tuple[Any, ...]] = (),
    creations: Iterable[tuple[str, str, type, tuple[Any, ...]]] = (),
    *,
    stopped: Iterable[str] = (),
    at_rest: Iterable[str] = (),
    snapshot_id: str = "20231114T221320000000Z-abcdef-000001",
    **meta: Any,
) -> str:
    """Machines are (class, recorded state) by name; messages (source, target, method, args[, seconds left]), or `Flying`;
    creations
    (creator, name, class, args)."""
    classes: dict[str, bytes] = {}

    def key(kind: type) -> str:
        blob = pickle.dumps(kind)
        found = hashlib.sha256(blob).hexdigest()
        classes[found] = blob
        return found

    gone = set(stopped)
    saved_machines = [(name, key(kind), pickle.dumps(state), name in gone) for name, (kind, state) in machines.items()]
    numbers: dict[Any, int] = {}
    saved_messages, rows = [], []
    for given_message in messages:
        one = given_message if isinstance(given_message, Flying) else flying(*given_message)
        source, target, kind, method, args = one.source, one.target, one.kind, one.method, one.args
        number = numbers[source, target, kind] = numbers.get((source, target, kind), 0) + 1
        saved = (False, pickle.dumps((args, one.kwargs)))
        saved_messages.append((source, target, kind, number, method, saved, one.left, STARTED_AT))
        rows.append(
            {"source": source, "target": target, "kind": kind, "number": number, "method": method, "args": list(args)}
        )
    saved_creations = []
    for creator, name, kind, args in creations:
        saved_creations.append((creator, name, key(kind), (False, pickle.dumps((args, {}))), STARTED_AT))
        rows.append({"source": creator, "target": name, "number": 0, "method": "__init__", "args": list(args)})
    half = len(saved_machines) // 2  # two reports, as of two hosts
    resting = [[one for one in part if one[0] in at_rest] for part in (saved_machines[:half], saved_machines[half:])]
    moving = [[one for one in part if one[0] not in at_rest] for part in (saved_machines[:half], saved_machines[half:])]
    tables = [(saved_bytes(saved_table(part)),) if part else () for part in resting]
    sections = [
        pickle.dumps(("host-0", moving[0], saved_messages[::2], [], classes, *tables[0])),
        pickle.dumps(("host-1", moving[1], saved_messages[1::2], saved_creations, classes, *tables[1])),
    ]
    at = datetime.fromtimestamp(STARTED_AT, UTC)
    about = {"snapshot_id": snapshot_id, "system": "tills", "run_id": RUN_ID}
    shown = [
        {"machine": name, "class_name": kind.__name__, "state": plain(state), "recorded_at": at,
         "status": "stopped" if name in gone else "passive"}
        for name, (kind, state) in machines.items()
    ]  # fmt: skip
    given = {"restorable": True, "started_at": at, "completed_at": at, "sequence": 1, **meta}
    snapshot = rs.Snapshot.from_rows(machines=shown, messages=rows, **about, **given)
    header = {**about, "number": 1, "protocol": "chandy-lamport", "aliases": [], "sections_of_actors": 0, "life": 0}
    if given["restorable"]:
        checkpoints.write(history, Checkpoint(header, sections), checkpoints.checkpoint_key())
    with HistoryWriter(history) as writer:
        writer.add(snapshot)
    return snapshot_id
