"""A snapshot with a machine's state changed, or a message dropped or added: what would have happened?

The history gets it as a snapshot of its own, with a checkpoint, so that it can be explored, stepped through and restored like
any other. It is no moment of the run: its id and its run say so, `restored_from` names the snapshot that it was made
from, and what was changed is in its `coverage` and in the header of its checkpoint. Detectors on the stored rows answer None
rather than True, as `coverage` has the edit under `uncovered`. Imports Ray, whose pickler checkpoints are written
with, when something is changed.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ray_snapshot.encoding import to_json
from ray_snapshot.errors import NotRestorableError, SettingError, UnknownMachineError
from ray_snapshot.names import DRIVER, EDITED, check_target_name
from ray_snapshot.runtime.planning import gathered, opened_section
from ray_snapshot.schema import SNAPSHOT_TABLES
from ray_snapshot.snapshot import Snapshot, satisfy_waits
from ray_snapshot.testing.moments import MAIL, TIMER, Reader, refuse_actors
from ray_snapshot.testing.stage import RUN

if TYPE_CHECKING:
    from ray_snapshot.history import History
    from ray_snapshot.history.checkpoints import Checkpoint

Change = Any
"""A new state, or a function of the old one that returns it, or changes it and returns None."""

_DROPPED = {"source", "target", "number", "kind"}
_ADDED = {"source", "target", "method", "args", "kwargs", "kind", "seconds"}


def edit(
    history: str | os.PathLike[str],
    snapshot_id: str,
    *,
    states: Mapping[str, Change] | None = None,
    drop: Iterable[Any] = (),
    add: Iterable[Mapping[str, Any]] = (),
    note: str = "",
) -> str:
    """`testing.edit`."""
    from ray_snapshot.history import History, HistoryWriter, checkpoints, restorable
    from ray_snapshot.history.checkpoints import Checkpoint

    opened = History(history)
    found = opened.load(opened.resolve(snapshot_id))
    restorable.check(opened, found)
    key = checkpoints.checkpoint_key(is_made=False)
    checkpoint = checkpoints.read(opened.path, found.snapshot_id, key)
    refuse_actors(checkpoint)
    one = _Edit(found, checkpoint)
    for name, change in (states or {}).items():
        one.change_state(name, change)
    for message in drop:
        one.drop(message)
    for row in add:
        one.add(row)
    if not one.changes:
        raise SettingError("edit: nothing to do: give states=, drop= or add=")
    number = _free_number(opened, found.snapshot_id)
    base = found.snapshot_id.partition(EDITED)[0]
    record = {"from": found.snapshot_id, "changes": one.changes, **({"note": note} if note else {})}
    edited = one.snapshot(f"{base}{EDITED}{number}", f"{found.run_id.partition(EDITED)[0]}{EDITED}{number}", record)
    about = {
        **checkpoint.about,
        "snapshot_id": edited.snapshot_id,
        "run_id": edited.run_id,
        "aliases": sorted(one.reader.runs),
        "edited": record,
    }
    checkpoints.write(opened.path, Checkpoint(about, one.sections()), key)
    with HistoryWriter(opened.path) as writer:
        writer.add(edited)
    return edited.snapshot_id


def _free_number(history: History, snapshot_id: str) -> int:
    """The number of the next edit of a snapshot."""
    begin = snapshot_id.partition(EDITED)[0] + EDITED
    taken = [row.snapshot_id for row in history.snapshots() if row.snapshot_id.startswith(begin)]
    return 1 + max((int(taken_id[len(begin) :]) for taken_id in taken), default=0)


@dataclass
class _Edit:
    """One edit, as far as it has come."""

    found: Snapshot
    checkpoint: Checkpoint
    changes: list[str] = field(default_factory=list)
    """What was done, a sentence each."""

    def __post_init__(self) -> None:
        self.reader = Reader(self.checkpoint, self.found)
        self.parts = [opened_section(section) for section in self.checkpoint.of_hosts]
        """(host, machines, messages, creations, classes) of each section."""
        self.whole = gathered(self.checkpoint.of_hosts)
        self.rows = {
            name: self.found.tables[name].to_pylist() for name in ("machines", "channels", "messages", "waits")
        }

    # ---- changes ----------------------------------------------------------------------------------------------------

    def change_state(self, name: str, change: Change) -> None:
        """Another state for a machine."""
        for _, machines, *_ in self.parts:
            for place, (machine, key, blob, is_stopped) in enumerate(machines):
                if machine == name:
                    state = self._changed(name, blob, change)
                    machines[place] = (machine, key, self._pickled(state, f"the state of {name}"), is_stopped)
                    self._note_state(name, state)
                    return
        names = [machine for machine, *_ in self.whole.machines]
        raise UnknownMachineError(
            f"edit: no machine {name!r} in snapshot {self.found.snapshot_id}; it has {', '.join(sorted(names)[:10])}",
            machine=name,
        )

    def _changed(self, name: str, blob: bytes, change: Change) -> Any:
        if not callable(change):
            return change
        state = self.reader.value(blob, f"the state of {name}")
        try:
            given = change(state)
        except Exception as error:
            raise SettingError(
                f"edit: the function for the state of {name} raised {type(error).__name__}: {error}; the state is"
                f" {to_json(state).text[:200]}"
            ) from error
        return state if given is None else given

    def _note_state(self, name: str, state: Any) -> None:
        (row,) = [row for row in self.rows["machines"] if row["machine"] == name]
        found = to_json(state)
        if found.text == row["state"]:
            return
        self.changes.append(f"state of {name}: {_short(row['state'])} -> {_short(found.text)}")
        row.update(state=found.text, state_truncated=found.text.startswith('{"$truncated":'))
        row["state_bytes"] = len(found.text.encode())

    def drop(self, given: Any) -> None:
        """A message is not in flight any more."""
        row = given if isinstance(given, Mapping) else {name: getattr(given, name, None) for name in _DROPPED}
        _check_names(row, _DROPPED, {"source", "target", "number"}, "drop", ignored=not isinstance(given, Mapping))
        key = row["source"], row["target"], row.get("kind") or MAIL, row["number"]
        for _, _, messages, *_ in self.parts:
            for place, message in enumerate(messages):
                if message[:4] == key:
                    del messages[place]
                    self._note_dropped(key)
                    return
        there = [message[:4] for message in self.whole.messages if message[:2] == key[:2]]
        numbers = ", ".join(f"{kind} {number}" for _, _, kind, number in sorted(there)[:10])
        raise SettingError(
            f"edit: {key[2]} {key[3]} from {key[0]} to {key[1]} is not in flight in snapshot {self.found.snapshot_id}; from"
            f" {key[0]} to {key[1]} there is {numbers or 'nothing'}"
        )

    def _note_dropped(self, key: tuple[Any, ...]) -> None:
        rows = self.rows["messages"]
        place = next(
            place for place, row in enumerate(rows) if (row["source"], row["target"], row["kind"], row["number"]) == key
        )
        row = rows.pop(place)
        channel = self._channel(*key[:3])
        channel["in_flight_count"] -= 1
        channel["settled_count"] += 1
        self.changes.append(
            f"dropped: {row['method']}({row['args'][1:-1]}) from {key[0]} to {key[1]} ({key[2]} {key[3]})"
        )

    def add(self, row: Mapping[str, Any]) -> None:
        """One more message is in flight."""
        _check_names(row, _ADDED, {"source", "target", "method"}, "add")
        source, target, method, kind = (
            row["source"],
            check_target_name(row["target"]),
            row["method"],
            row.get("kind") or MAIL,
        )
        seconds = row.get("seconds", 0.0)
        if kind not in (MAIL, TIMER) or (seconds and kind != TIMER):
            raise SettingError(f'edit: add {dict(row)!r}: it is mail, or a timer: "kind": "timer" with "seconds"')
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds <= 1e8:
            raise SettingError(f"edit: add {dict(row)!r}: seconds are 0 to 1e8")
        names = {machine for machine, *_ in self.whole.machines}
        if source != DRIVER and source not in names:
            raise UnknownMachineError(
                f"edit: no machine {source!r} sends in snapshot {self.found.snapshot_id}; it has {DRIVER},"
                f" {', '.join(sorted(names)[:10])}",
                machine=source,
            )
        if not isinstance(method, str) or not method or method.startswith("__"):
            raise SettingError(f"edit: add: {method!r} is no method of a machine")
        args, kwargs = tuple(row.get("args", ())), dict(row.get("kwargs") or {})
        saved = (False, self._pickled((args, kwargs), f"the message {source} -> {target}.{method}"))
        channel = self._channel(source, target, kind)
        channel["sent_count"] += 1
        channel["in_flight_count"] += 1
        number, sent_at = channel["sent_count"], self.found.started_at
        self.parts[0][2].append((source, target, kind, number, method, saved, float(seconds), sent_at.timestamp()))
        self._note_added(source, target, kind, number, method, args, kwargs, float(seconds))

    def _note_added(
        self, source: str, target: str, kind: str, number: int, method: str, args: Any, kwargs: Any, seconds: float
    ) -> None:
        text = to_json([*args, {"$kwargs": kwargs}] if kwargs else list(args)).text
        due = None
        if kind == TIMER:
            due = self.found.started_at.fromtimestamp(
                self.found.started_at.timestamp() + seconds, self.found.started_at.tzinfo
            )
        for machine in self.rows["machines"]:
            if machine["machine"] == source and machine["sent_count"] is not None:
                machine["sent_count"] += 1
        self.rows["messages"].append(
            {"source": source, "target": target, "kind": kind, "number": number, "method": method, "args": text,
             "args_truncated": text.startswith('{"$truncated":'), "payload_bytes": len(text),
             "sent_at": self.found.started_at, "due_at": due}
        )  # fmt: skip
        after = f", a timer of {seconds:g} s" if kind == TIMER else ""
        self.changes.append(f"added: {method}({text[1:-1]}) from {source} to {target}{after}")

    def _channel(self, source: str, target: str, kind: str) -> dict[str, Any]:
        for row in self.rows["channels"]:
            if (row["source"], row["target"], row["kind"]) == (source, target, kind):
                found: dict[str, Any] = row
                return found
        new: dict[str, Any] = {"source": source, "target": target, "kind": kind, "recorded_by": "marker"}
        new.update(dict.fromkeys(_COUNTS, 0))
        self.rows["channels"].append(new)
        return new

    def _pickled(self, value: Any, what: str) -> bytes:
        from ray_snapshot.runtime.checkpointing import pickled_as

        blob, reason = pickled_as(value, what, RUN, self.reader.run_id)
        if blob is None:
            raise NotRestorableError(f"edit: {reason}: nothing was written", obstacles=[str(reason)])
        return blob

    # ---- what is written --------------------------------------------------------------------------------------------

    def sections(self) -> list[bytes]:
        """The sections of the edited checkpoint."""
        return [pickle.dumps(part, protocol=5) for part in self.parts]

    def snapshot(self, snapshot_id: str, run_id: str, record: Mapping[str, Any]) -> Snapshot:
        """The edited snapshot."""
        tables = {name: self._table(name, snapshot_id, run_id) for name in self.found.tables if name != "snapshots"}
        tables["waits"] = satisfy_waits(tables["waits"], tables["messages"], tables["calls"], tables["machines"])
        (row,) = self.found.tables["snapshots"].to_pylist()
        run = self.found.run_id.partition(EDITED)[0]
        uncovered = list(
            dict.fromkeys([*self.found.coverage.get("uncovered", ()), f"it was edited: no moment of run {run}"])
        )
        row.update(
            snapshot_id=snapshot_id, run_id=run_id, restored_from=self.found.snapshot_id,
            channel_count=tables["channels"].num_rows, in_flight_count=tables["messages"].num_rows,
            coverage=to_json({**self.found.coverage, "uncovered": uncovered, "edited": record}).text,
        )  # fmt: skip
        schema = self.found.tables["snapshots"].schema
        return Snapshot({**tables, "snapshots": pa.Table.from_pylist([row], schema=schema)})

    def _table(self, name: str, snapshot_id: str, run_id: str) -> pa.Table:
        rows = self.rows.get(name, None)
        rows = self.found.tables[name].to_pylist() if rows is None else rows
        about = {"snapshot_id": snapshot_id, "run_id": run_id}
        changed = [{**row, **about} for row in rows]
        if name == "waits":
            for row in changed:
                row["satisfied"] = None if row["on_call_id"] is None else row["satisfied"]
        return pa.Table.from_pylist(changed, schema=SNAPSHOT_TABLES[name])


_COUNTS = ("sent_count", "accepted_count", "settled_count", "in_flight_count", "duplicate_count")


def _check_names(
    row: Mapping[str, Any], known: set[str], needed: set[str], what: str, *, ignored: bool = False
) -> None:
    lacking = [name for name in sorted(needed) if row.get(name) is None]
    wrong = [] if ignored else sorted(set(row) - known)
    if lacking or wrong:
        told = f"lacks {', '.join(lacking)}" if lacking else f"has {', '.join(wrong)}"
        raise SettingError(f"edit: {what}: {dict(row)!r} {told}; a message there has {', '.join(sorted(known))}")


def _short(text: str | None, most: int = 200) -> str:
    text = text or "null"
    return text if len(text) <= most else f"{text[: most - 3]}..."
