"""What a host sends to the collector: counts for the protocol, and Arrow columns for the snapshot.

Built from `Recording`s, which do not change any more, so no lock is held here. States are already JSON text (they were
encoded while their machine was held); the arguments of messages in flight are encoded here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import Any

import pyarrow as pa

from ray_snapshot.columns import inner, packed, unpacked
from ray_snapshot.encoding import Encoded, to_json
from ray_snapshot.protocol.collector import ChannelKey, HostReport, LateReport
from ray_snapshot.protocol.host import Creation, MachineCopy, Recording
from ray_snapshot.protocol.mailbox import CALL, TIMER, Message
from ray_snapshot.runtime.payload import recorded_args
from ray_snapshot.schema import CHANNELS, MACHINES, MESSAGES


@dataclass(slots=True)
class BodyCopy:
    """What a snapshot holds of one machine's object."""

    class_name: str
    status: str
    state: Encoded | None
    waits: list[dict[str, Any]] = field(default_factory=list)
    """Rows of `waits` without the machine."""
    calls: list[dict[str, Any]] = field(default_factory=list)
    """Rows of `calls` without the machine."""
    short_wait: tuple[str | None, int | None, tuple[str, ...]] = (None, None, ())
    obstacle: str | None = None


@dataclass(slots=True)
class HostPayload:
    """One host's part of one snapshot."""

    number: int
    counts: HostReport | LateReport
    messages: pa.RecordBatch | pa.Table
    machines: pa.RecordBatch | pa.Table | None = None
    channels: pa.RecordBatch | pa.Table | None = None
    """Channels within the host; those that cross hosts are joined by the collector."""
    held: dict[ChannelKey, int] = field(default_factory=dict)
    """Messages that wait at their sender, per channel: they are recorded by it."""
    waits: list[dict[str, Any]] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)
    obstacles: list[str] = field(default_factory=list)
    without_state: list[str] = field(default_factory=list)
    """Machines that were recorded in the middle of an action."""
    markers: int = 0
    """Markers that this host put on its links."""

    def __reduce__(self) -> tuple[Any, ...]:
        batches = [None if batch is None else packed(batch) for batch in (self.messages, self.machines, self.channels)]
        rest = (self.held, self.waits, self.calls, self.obstacles, self.without_state, self.markers)
        return _received, (self.number, self.counts, batches, rest)


def _received(number: int, counts: HostReport | LateReport, batches: list[Any], rest: tuple[Any, ...]) -> HostPayload:
    tables: list[Any] = [None if buffer is None else unpacked(buffer) for buffer in batches]
    return HostPayload(number, counts, *tables, *rest)


@cache
def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], schema=schema)


class _Columns:
    """Rows gathered as tuples of the columns named; columns that are not named are null, or a constant."""

    def __init__(self, schema: pa.Schema, *names: str) -> None:
        self.schema = inner(schema)
        self.names = names
        self.rows: list[tuple[Any, ...]] = []

    def batch(self, **constants: Any) -> pa.RecordBatch:
        length = len(self.rows)
        if not length:
            return _empty(self.schema)
        columns = dict(zip(self.names, zip(*self.rows, strict=True), strict=True))
        arrays = []
        for item in self.schema:
            if item.name in columns:
                arrays.append(pa.array(columns[item.name], item.type))
            elif item.name in constants:
                arrays.append(pa.repeat(pa.scalar(constants[item.name], item.type), length))
            else:
                arrays.append(pa.nulls(length, item.type))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


class MessageRows:
    """Rows of `messages`."""

    def __init__(self) -> None:
        self.columns = _Columns(
            MESSAGES,
            *("source", "target", "kind", "number", "call_id", "method"),
            *("args", "args_truncated", "payload_bytes", "sent_at", "due_at"),
        )

    def add(self, source: str, target: str, kind: str, message: Message) -> None:
        """One message in flight."""
        _, number, method, payload, sent_at, _ = message
        call_id, payload = payload if kind == CALL else (None, payload)
        due, payload = payload if kind == TIMER else (None, payload)
        args, size = recorded_args(payload)
        encoded = to_json(args)
        sent_us, due_us = int(sent_at * 1e6), None if due is None else int(due * 1e6)
        self.columns.rows.append(
            (source, target, kind, number, call_id, method, encoded.text, encoded.truncated, size, sent_us, due_us)
        )

    def add_creation(self, creation: Creation) -> None:
        """A creation in flight: message 0 of the channel from creator to child."""
        args, size = recorded_args(creation.payload[2])
        encoded = to_json(args)
        head = (creation.creator, creation.child, "mail", 0, None, "__init__")
        self.columns.rows.append((*head, encoded.text, encoded.truncated, size, int(creation.sent_at * 1e6), None))

    def batch(self) -> pa.RecordBatch:
        return self.columns.batch()


def host_payload(host: str, recording: Recording, recorded_at: float, incarnation: int, markers: int) -> HostPayload:
    """The report of a host whose machines have all been copied; O(machines + channels + messages in flight)."""
    machines = _Columns(
        MACHINES,
        *("machine", "class_name", "status", "state", "state_truncated", "state_bytes"),
        *("wait_mode", "wait_k", "waits_for", "accepted_count", "sent_count"),
    )
    channels = _Columns(
        CHANNELS, "source", "target", "kind", "sent_count", "accepted_count", "in_flight_count", "recorded_by"
    )
    rows = MessageRows()
    counts = HostReport(host, {}, {}, {}, recording.created, recording.arrived)
    found = HostPayload(recording.number, counts, rows.batch(), markers=markers)
    local = _Local()
    for copy in recording.copies:
        if copy.is_born:
            _machine_row(machines, copy, found)
        _inputs(copy, counts, local, rows)
        _outputs(copy, counts, local, rows, found.held)
    for creation in recording.creations:
        rows.add_creation(creation)
    for key, (sent, accepted, in_flight, held) in local.channels.items():
        channels.rows.append((*key, sent, accepted, in_flight + held, "sender" if held else "marker"))
    found.machines = machines.batch(
        host=host, incarnation=incarnation, max_concurrency=1, recorded_at=int(recorded_at * 1e6)
    )
    found.channels = channels.batch(settled_count=0, duplicate_count=0)
    found.messages = rows.batch()
    return found


def late_payload(host: str, number: int, late: list[Any], creations: list[Creation]) -> HostPayload:
    """White messages that reached a host after its report."""
    counts: dict[ChannelKey, int] = {}
    arrived: dict[str, int] = {}
    rows = MessageRows()
    for mailbox, machine, message in late:
        key = mailbox.source, machine.name, mailbox.kind
        counts[key] = counts.get(key, 0) + 1
        rows.add(*key, message)
    for creation in creations:
        if creation.source is not None:
            arrived[creation.source] = arrived.get(creation.source, 0) + 1
        rows.add_creation(creation)
    return HostPayload(number, LateReport(host, counts, arrived), rows.batch())


class _Local:
    """Channels within the host: [sent, accepted, in flight in the mailbox, held at the sender]."""

    def __init__(self) -> None:
        self.channels: dict[ChannelKey, list[int]] = {}

    def of(self, key: ChannelKey) -> list[int]:
        found = self.channels.get(key)
        if found is None:
            found = self.channels[key] = [0, 0, 0, 0]
        return found


def _machine_row(machines: _Columns, copy: MachineCopy, found: HostPayload) -> None:
    body: BodyCopy = copy.extra
    state = (None, False, None) if body.state is None else tuple(body.state)
    counts = (copy.accepted, copy.sent)
    machines.rows.append((copy.machine, body.class_name, body.status, *state, *body.short_wait, *counts))
    if body.state is None:
        found.without_state.append(copy.machine)
    if body.waits:
        found.waits += [{"machine": copy.machine, **row} for row in body.waits]
    if body.calls:
        found.calls += [{"machine": copy.machine, **row} for row in body.calls]
    if body.obstacle:
        found.obstacles.append(f"{copy.machine}: {body.obstacle}")


def _inputs(copy: MachineCopy, counts: HostReport, local: _Local, rows: MessageRows) -> None:
    for mailbox, accepted, messages in copy.inputs:
        key = mailbox.source, copy.machine, mailbox.kind
        if mailbox.link is None:
            entry = local.of(key)
            entry[1] = accepted
            entry[2] = len(messages)
        else:
            counts.accepted[key] = accepted  # type: ignore[index]
            if messages:
                counts.in_flight[key] = counts.in_flight.get(key, 0) + len(messages)  # type: ignore[index]
        for message in messages:
            rows.add(*key, message)


def _outputs(
    copy: MachineCopy, counts: HostReport, local: _Local, rows: MessageRows, held: dict[ChannelKey, int]
) -> None:
    for channel, sent, waiting in copy.outputs:
        key = copy.machine, channel.target, channel.kind
        if channel.mailbox is not None:
            entry = local.of(key)
            entry[0] = sent
            entry[3] = len(waiting)
        else:
            counts.sent[key] = sent  # type: ignore[index]
            if waiting:
                counts.in_flight[key] = counts.in_flight.get(key, 0) + len(waiting)  # type: ignore[index]
                held[key] = len(waiting)
        for message in waiting:
            rows.add(*key, message)
