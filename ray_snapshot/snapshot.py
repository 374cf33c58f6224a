"""A completed (or aborted) snapshot: Arrow tables, with friendly row views on top.

The tables are those of `ray_snapshot.schema`; a view is made only when the caller asks for that row. So a million
machines are evaluated and written without a Python object each. Read `verify` for what makes a cut consistent.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache, cached_property
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from ray_snapshot.columns import packed, unpacked
from ray_snapshot.cuts import problems_of
from ray_snapshot.encoding import to_json
from ray_snapshot.errors import HistoryFormatError, InconsistentCutError, SettingError, UnknownMachineError
from ray_snapshot.json_text import parsed_json
from ray_snapshot.large_columns import in_order
from ray_snapshot.name_index import NameIndex, Words
from ray_snapshot.names import listed
from ray_snapshot.schema import DEFAULTS, SNAPSHOT_TABLES
from ray_snapshot.shapes import Shape

AT_LEAST_ONCE = "at-least-once-barrier"
"""The one protocol that lets messages from outside the cut into it, and says how many."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message in flight: sent inside the cut, not accepted inside it. Fields are the columns of the table `messages`."""

    source: str
    target: str
    kind: str
    number: int
    method: str
    args: Any
    """The arguments in their recorded (JSON) form: a list; keyword arguments are its last item, `{"$kwargs": {...}}`."""
    args_truncated: bool = False
    payload_bytes: int = 0
    sent_at: datetime | None = None
    due_at: datetime | None = None
    call_id: str | None = None


@dataclass(frozen=True, slots=True)
class Channel:
    """One channel as of the cut: sent = accepted + in flight + settled. Fields are the columns of the table `channels`."""

    source: str
    target: str
    kind: str = "mail"
    sent_count: int = 0
    accepted_count: int = 0
    settled_count: int = 0
    in_flight_count: int = 0
    duplicate_count: int = 0
    recorded_by: str = "marker"
    messages: tuple[Message, ...] = ()
    """What is in flight on it, in its order."""


@dataclass(frozen=True, slots=True)
class Machine:
    """One machine as of the cut; `state` in its recorded (JSON) form. Fields are the columns of the table `machines`."""

    machine: str
    class_name: str
    host: str
    incarnation: int
    status: str
    max_concurrency: int
    state: Any
    state_truncated: bool
    state_bytes: int | None
    wait_mode: str | None
    wait_k: int | None
    waits_for: tuple[str, ...]
    accepted_count: int
    sent_count: int
    recorded_at: datetime | None
    record_delay_ms: float | None
    alignment_ms: float | None = None
    """From the first barrier's arrival to the record; None if the machine aligned no inputs."""
    blocked_count: int | None = None
    """Messages that waited then because their input had delivered its barrier."""


@dataclass(frozen=True)
class _Machines(Mapping[str, Machine]):
    table: pa.Table
    index: dict[str, int] = field(repr=False)

    def __getitem__(self, name: str) -> Machine:
        if name not in self.index:
            raise UnknownMachineError(f"no machine {name!r} in this snapshot; it has {_some(self.index)}", machine=name)
        row = self.table.slice(self.index[name], 1).to_pylist()[0]
        return Machine(
            **{key: row[key] for key in Machine.__slots__ if key not in ("state", "waits_for")},
            state=None if row["state"] is None else _parsed(row["state"], f"the state of {name}"),
            waits_for=tuple(row["waits_for"] or ()),
        )

    def __iter__(self) -> Iterator[str]:
        return iter(self.index)

    def __len__(self) -> int:
        return len(self.index)

    def __contains__(self, name: object) -> bool:
        return name in self.index


@dataclass(frozen=True)
class _Channels(Mapping[tuple[str, str, str], Channel]):
    """Channels by (source, target, kind); between known machines a channel that carried nothing is an empty one."""

    snapshot: Snapshot
    index: dict[tuple[str, str, str], int] = field(repr=False)

    def __getitem__(self, key: tuple[str, ...]) -> Channel:
        source, target, kind = (*key, "mail") if len(key) == 2 else key
        messages = tuple(self.snapshot.messages_by_channel.get((source, target, kind), ()))
        if (source, target, kind) not in self.index:
            for name in (source, target):
                if name not in self.snapshot.machines:
                    raise UnknownMachineError(
                        f"no channel {key!r} in this snapshot, and no machine {name!r}; it has {_some(self.snapshot.machines)}",
                        machine=name,
                    )
            return Channel(source, target, kind, messages=messages)
        row = self.snapshot.tables["channels"].slice(self.index[source, target, kind], 1).to_pylist()[0]
        return Channel(**{key: row[key] for key in Channel.__slots__ if key != "messages"}, messages=messages)

    def __iter__(self) -> Iterator[tuple[str, str, str]]:
        return iter(self.index)

    def __len__(self) -> int:
        return len(self.index)

    def __contains__(self, key: object) -> bool:
        return key in self.index


class Brought(Protocol):
    """Rows of machines that have come with a snapshot, and were not read yet."""

    def rows(self) -> pa.Table:
        """All of them, in the order of names."""
        ...

    def repeats(self, names: pa.ChunkedArray) -> bool:
        """Whether a machine is there twice, or is one of these."""
        ...


@dataclass(frozen=True)
class Absent:
    """Machines of a snapshot whose rows are read when they are asked for; they are passive, and have been at rest."""

    classes: Mapping[str, int]
    """By class: how many."""
    hosts: Mapping[str, int]
    """By host: how many."""
    delays: Mapping[str, float]
    """By host: `record_delay_ms` of its machines."""
    state_bytes: int
    fetch: Callable[[Sequence[str] | None], pa.Table] = field(repr=False)
    """Rows of `machines`: all (None), or of the machines named."""
    partials: Callable[[Any, Snapshot], list[Any]] = field(repr=False)
    """What a detector that adds up (`adding.AddsUp`) makes of the rows of that snapshot: a value a host."""
    brought: Brought | None = field(default=None, repr=False)
    """The rows, where they have come packed."""

    @property
    def count(self) -> int:
        """How many in all."""
        return sum(self.classes.values())


class _Tables(Mapping[str, pa.Table]):
    """Tables by name; what is absent of `machines` is read when that table is first asked for."""

    def __init__(self, found: Mapping[str, pa.Table], absent: Absent) -> None:
        self.found = found
        self.parted: tuple[pa.Table, Absent | None] = found["machines"], absent
        """The rows of machines that are here, and what is absent: always both of one moment, for threads may load."""
        self.lock = threading.Lock()

    def _whole(self) -> pa.Table:
        with self.lock:
            here, absent = self.parted
            if absent is not None:
                whole = pa.concat_tables([here, absent.fetch(None)]).combine_chunks()
                here = in_order(whole, ("machine",))
                self.parted = here, None
            return here

    def __getitem__(self, name: str) -> pa.Table:
        return self._whole() if name == "machines" else self.found[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.found)

    def __len__(self) -> int:
        return len(self.found)


class Snapshot:
    """One snapshot: `.machines[name]`, `.channels[source, target, kind]`, `.messages`; the row of `snapshots` as attributes."""

    snapshot_id: str
    system: str
    run_id: str
    sequence: int
    restored_from: str | None
    protocol: str
    status: str
    abort_reason: str | None
    abort_machine: str | None
    abort_call_site: str | None
    initiators: list[str]
    started_at: datetime
    completed_at: datetime | None
    duration_ms: float
    machine_count: int
    channel_count: int
    in_flight_count: int
    control_message_count: int
    channel_marker_count: int
    bytes: int
    consistent: bool
    restorable: bool
    obstacles: list[str]
    coverage: dict[str, Any]

    shapes: tuple[Shape, ...] = ()
    """The shapes of the machines' states, as their hosts tell them; only on the way into a history."""

    def __init__(self, tables: Mapping[str, pa.Table], absent: Absent | None = None) -> None:
        found = {name: tables[name] if name in tables else _empty(name) for name in SNAPSHOT_TABLES}
        self.tables: Mapping[str, pa.Table] = found if absent is None else _Tables(found, absent)
        self.totals: dict[str, Any] = {}
        """By the data of a detector that adds up: what all rows come to."""
        self._statuses: tuple[pa.Table, Words] | None = None
        (row,) = self.tables["snapshots"].to_pylist()
        row["coverage"] = _parsed(row["coverage"] or "{}", "the coverage")
        row["initiators"] = row["initiators"] or []
        row["obstacles"] = row["obstacles"] or []
        self.__dict__.update(row)

    def __repr__(self) -> str:
        return (
            f"<Snapshot {self.snapshot_id} of {self.system}: {self.status}, {self.machine_count} machines,"
            f" {self.in_flight_count} messages in flight>"
        )

    def to_arrow(self, table: str = "machines") -> pa.Table:
        """One of its tables (`snapshots`, `machines`, `channels`, `messages`, `calls`, `waits`); JSON columns are text."""
        if table not in self.tables:
            raise SettingError(f"a snapshot has no table {table!r}; it has {', '.join(self.tables)}")
        return self.tables[table]

    def to_pandas(self, table: str = "machines") -> Any:
        """The same as a pandas DataFrame; pandas comes with the extra `spark`."""
        return self.to_arrow(table).to_pandas()

    def __reduce__(self) -> tuple[Any, ...]:
        return _received, ({name: packed(table) for name, table in self.tables.items() if table.num_rows},)

    @cached_property
    def machines(self) -> Mapping[str, Machine]:
        """Machines by name."""
        table = self.tables["machines"]
        return _Machines(table, {name: row for row, name in enumerate(table["machine"].to_pylist())})

    @cached_property
    def recorded_names(self) -> NameIndex:
        """The names of the machines, by row; made once for all who look names up."""
        names = self.tables["machines"]["machine"].combine_chunks()
        return NameIndex(names.cast(pa.string()))

    @cached_property
    def channels(self) -> Mapping[tuple[str, str, str], Channel]:
        """Channels by (source, target, kind)."""
        columns = (self.tables["channels"][name].to_pylist() for name in ("source", "target", "kind"))
        return _Channels(self, {key: row for row, key in enumerate(zip(*columns, strict=True))})

    @cached_property
    def messages(self) -> tuple[Message, ...]:
        """All messages in flight, in channel order."""
        return tuple(
            Message(
                **{
                    key: _parsed(row[key] or "[]", "a message's args") if key == "args" else row[key]
                    for key in Message.__slots__
                }
            )
            for row in self.tables["messages"].to_pylist()
        )

    @cached_property
    def messages_by_channel(self) -> Mapping[tuple[str, str, str], Sequence[Message]]:
        """Messages in flight by (source, target, kind)."""
        found: dict[tuple[str, str, str], list[Message]] = defaultdict(list)
        for message in self.messages:
            found[message.source, message.target, message.kind].append(message)
        return found

    @property
    def waits(self) -> list[dict[str, Any]]:
        """The rows of the table `waits`."""
        rows: list[dict[str, Any]] = self.tables["waits"].to_pylist()
        return rows

    @property
    def calls(self) -> list[dict[str, Any]]:
        """The rows of the table `calls`."""
        rows: list[dict[str, Any]] = self.tables["calls"].to_pylist()
        return rows

    @property
    def parted(self) -> tuple[pa.Table, Absent | None]:
        """Rows of `machines` that are here, and those machines whose rows are read when the table `machines` is asked for;
        None if all are here."""
        return self.tables.parted if isinstance(self.tables, _Tables) else (self.tables["machines"], None)

    @property
    def statuses(self) -> Words:
        """The statuses of the rows of `machines` that are here; read once for all who ask."""
        return self.statuses_of(self.parted[0])

    def statuses_of(self, here: pa.Table) -> Words:
        """Those of the rows that `parted` gave, whatever another thread has loaded since."""
        known = self._statuses
        if known is None or known[0] is not here:
            status = here["status"].combine_chunks()
            known = self._statuses = here, Words(status if status.type == pa.string() else status.cast(pa.string()))
        return known[1]

    def apart(self) -> tuple[Mapping[str, pa.Table], Absent | None]:
        """All tables, of `machines` only rows that are here; and the machines whose rows are not read yet (see `parted`)."""
        here, absent = self.parted
        return {**(self.tables.found if isinstance(self.tables, _Tables) else self.tables), "machines": here}, absent

    def with_machines(self, machines: pa.Table) -> Snapshot:
        """The same with these rows of `machines`, and nothing absent."""
        return self.with_rows(machines=machines)

    def with_rows(self, *, machines: pa.Table, **others: pa.Table) -> Snapshot:
        """The same with these rows of `machines` and of other tables, and nothing absent."""
        tables = self.tables.found if isinstance(self.tables, _Tables) else self.tables
        row = tables["snapshots"]
        place = row.schema.get_field_index("machine_count")
        row = row.set_column(place, row.schema.field(place), pa.array([machines.num_rows], pa.int64()))
        return Snapshot({**tables, "snapshots": row, "machines": machines, **others})

    def rows_of(self, names: Sequence[str]) -> pa.Table:
        """Rows of `machines`, of those named only, in no order."""
        here, absent = self.parted
        found = here.filter(pc.is_in(here["machine"], pa.array(names, pa.string())))
        if absent is None or found.num_rows == len(names):
            return found
        return pa.concat_tables([found, absent.fetch(names)])

    def problems(self) -> list[str]:
        """What is wrong with the cut, a sentence each; empty if it is consistent. O(machines + channels + messages)."""
        return problems_of(self) if self.status == "complete" else []

    @property
    def repeats_by_design(self) -> int:
        """How many messages from outside the cut `at-least-once-barrier` let into it: what a restore would repeat."""
        if self.protocol != AT_LEAST_ONCE or self.consistent:
            return 0
        return int(pc.sum(self.tables["channels"]["duplicate_count"]).as_py() or 0)

    def faults(self) -> list[str]:
        """`problems`, without those that are by design: what `repeats_by_design` counts."""
        if not self.repeats_by_design:
            return self.problems()
        return problems_of(self, may_repeat=True) if self.status == "complete" else []

    def verify(self) -> None:
        """Raise `InconsistentCutError` unless the cut is consistent.

        On every channel: no message was accepted inside the cut and sent outside it (EWD864a: no red message is
        accepted in a white action), and each message sent inside is accepted, in flight (a row of `messages`) or settled.
        """
        problems = self.problems()
        if problems:
            design = f" ({self.protocol}: by design)" if self.repeats_by_design and not self.faults() else ""
            raise InconsistentCutError(
                f"snapshot {self.snapshot_id} is no consistent cut{design}: {listed(problems, mark='; ')}",
                snapshot_id=self.snapshot_id,
                problems=problems,
            )

    @classmethod
    def from_rows(
        cls,
        *,
        machines: Iterable[Mapping[str, Any]] = (),
        messages: Iterable[Mapping[str, Any]] = (),
        channels: Iterable[Mapping[str, Any]] = (),
        waits: Iterable[Mapping[str, Any]] = (),
        calls: Iterable[Mapping[str, Any]] = (),
        **snapshot: Any,
    ) -> Snapshot:
        """A snapshot by hand; what is left out gets its default.

        `state` and `args` are given as values (not as JSON text). Messages are numbered behind what their channel has
        accepted; channels get the counts that their messages imply; waits come from `waits_for`, and are satisfied where
        a message from the awaited machine is in flight. Raises `SettingError` for a column that does not exist.
        """
        machine_rows = [_machine_row(row) for row in machines]
        message_rows = [dict(row) for row in messages]
        channel_rows = _number_messages([dict(row) for row in channels], message_rows)
        for row in message_rows:
            row["args"] = to_json(list(row.get("args", ()))).text
        wait_rows = [dict(row) for row in waits]
        declared = {row["machine"] for row in wait_rows}
        wait_rows += [
            row for machine in machine_rows if machine["machine"] not in declared for row in _short_waits(machine)
        ]
        call_rows = [dict(row) for row in calls]
        in_flight = {(row["source"], row["target"]) for row in message_rows}
        unfinished = {row.get("call_id") for row in (*message_rows, *call_rows)} - {None}
        for row in wait_rows:
            if row.get("satisfied") is None:
                is_unfinished = row.get("on_call_id") in unfinished
                row["satisfied"] = not is_unfinished and (row.get("on_machine"), row["machine"]) in in_flight
        now = datetime.now(UTC)
        meta = {
            "snapshot_id": "by-hand-0",
            "started_at": now,
            "completed_at": now,
            "duration_ms": 0.0,
            "initiators": [],
            "obstacles": [],
            "machine_count": len(machine_rows),
            "channel_count": len(channel_rows),
            "in_flight_count": len(message_rows),
            **snapshot,
        }
        if isinstance(meta.get("coverage"), Mapping):
            meta["coverage"] = to_json(meta["coverage"]).text
        rows = {
            "snapshots": [meta],
            "machines": machine_rows,
            "channels": channel_rows,
            "messages": message_rows,
            "calls": call_rows,
            "waits": wait_rows,
        }
        run_id = meta.get("run_id", DEFAULTS["snapshots"]["run_id"])
        return cls({name: _table(name, found, meta["snapshot_id"], run_id) for name, found in rows.items()})


def _parsed(text: str, what: str) -> Any:
    """What a JSON text of a snapshot holds; raises `HistoryFormatError` if it is none, or none that is stored."""
    try:
        return parsed_json(text)
    except ValueError as fault:
        raise HistoryFormatError(f"{what} cannot be read: {fault}; see `ray-snapshot history verify`") from None


@cache
def _empty(name: str) -> pa.Table:
    return SNAPSHOT_TABLES[name].empty_table()


def _received(buffers: dict[str, pa.Buffer]) -> Snapshot:
    return Snapshot({name: unpacked(buffer) for name, buffer in buffers.items()})


def satisfy_waits(waits: pa.Table, messages: pa.Table, calls: pa.Table, machines: pa.Table) -> pa.Table:
    """Fill the nulls of `satisfied`.

    A wait for a machine is satisfied where a message from it is in flight; a wait for a call, where that call is neither
    in flight nor accepted and unfinished: then its reply is. A stopped machine refuses what it has not accepted; one that
    is blocked by what it says of itself (`waiting_for`), in no action, accepts and answers all the same.
    """
    if waits.num_rows == 0 or waits["satisfied"].null_count == 0:
        return waits
    in_flight = set(zip(messages["source"].to_pylist(), messages["target"].to_pylist(), strict=True))
    inside = set(calls["machine"].to_pylist())
    status = zip(machines["machine"].to_pylist(), machines["status"].to_pylist(), strict=True)
    ready = {name for name, word in status if word == "stopped" or (word == "blocked" and name not in inside)}
    asked = zip(messages["call_id"].to_pylist(), messages["target"].to_pylist(), strict=True)
    unfinished = {*(call_id for call_id, target in asked if target not in ready), *calls["call_id"].to_pylist()}
    rows = zip(*(waits[name].to_pylist() for name in ("on_machine", "machine", "on_call_id", "satisfied")), strict=True)
    filled = [
        known if known is not None else (on, machine) in in_flight if call_id is None else call_id not in unfinished
        for on, machine, call_id, known in rows
    ]
    return waits.set_column(waits.schema.get_field_index("satisfied"), "satisfied", pa.array(filled, pa.bool_()))


def _machine_row(given: Mapping[str, Any]) -> dict[str, Any]:
    row = dict(given)
    if "machine" not in row:
        raise SettingError(f"a row of machines needs the column 'machine': {row}")
    encoded = to_json(row.get("state", {}))
    row.update(state=encoded.text, state_truncated=encoded.truncated, state_bytes=encoded.size)
    if row.get("waits_for"):
        row.setdefault("status", "blocked")
        row.setdefault("wait_mode", "all" if row.get("wait_k") is None else "k_of_n")
        modes = {"all": len(row["waits_for"]), "any": 1}
        row["wait_k"] = modes.get(row["wait_mode"], row.get("wait_k"))
    return row


def _short_waits(machine: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The rows of `waits` that the short form of one machine stands for."""
    return [
        {"machine": machine["machine"], "alternative": 0, "k": machine["wait_k"], "on_machine": name}
        for name in machine.get("waits_for") or ()
    ]


def _number_messages(channels: list[dict[str, Any]], messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Number the messages, make the channels they imply, and fill the counts that were left out."""
    by_key = {(row["source"], row["target"], row.setdefault("kind", "mail")): row for row in channels}
    in_flight: dict[tuple[str, str, str], int] = defaultdict(int)
    for message in messages:
        key = message["source"], message["target"], message.setdefault("kind", "mail")
        channel = by_key.setdefault(key, dict(zip(("source", "target", "kind"), key, strict=True)))
        in_flight[key] += 1
        message.setdefault("number", channel.get("accepted_count", 0) + in_flight[key])
    for key, channel in by_key.items():
        channel.setdefault("in_flight_count", in_flight[key])
        channel.setdefault("accepted_count", max(0, channel.get("sent_count", 0) - channel["in_flight_count"]))
        channel.setdefault(
            "sent_count", channel["accepted_count"] + channel["in_flight_count"] + channel.get("settled_count", 0)
        )
    return list(by_key.values())


def _table(name: str, rows: list[dict[str, Any]], snapshot_id: str, run_id: str) -> pa.Table:
    schema = SNAPSHOT_TABLES[name]
    defaults = {"snapshot_id": snapshot_id, **DEFAULTS[name]}
    if name != "snapshots":
        defaults["run_id"] = run_id
    for row in rows:
        unknown = set(row) - set(schema.names)
        if unknown:
            raise SettingError(
                f"{', '.join(sorted(unknown))}: no such column in {name}; it has {', '.join(schema.names)}"
            )
    return pa.Table.from_pylist([{**defaults, **row} for row in rows], schema=schema)


def _some(names: Iterable[str]) -> str:
    return listed(map(repr, names), most=5) or "none"
