"""The Arrow tables of one made-up snapshot: columns of `ray_snapshot.schema`, built without a Python object a row.

Only what few machines have (calls, waits) is built row by row. Read `motion` first, `writing` next.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ray_snapshot.schema import DEFAULTS, SNAPSHOT_TABLES
from ray_snapshot.snapshot import Snapshot
from ray_snapshot.synth.motion import CALL, Channels, Integers, Step
from ray_snapshot.synth.plan import LEAKED, LIMIT, LONELY, NEW_LIMIT, Planted, Settings

OPENING_BALANCE = 1_000

_OUTER, _INNER = "bank.py:41", "bank.py:58"
"""Call sites: where a transfer waits for an audit, and where an audit waits for the next one."""

_TRANSFER, _AUDIT = "transfer", "audit"


class Rows:
    """Makes the tables of one snapshot after the other."""

    def __init__(self, settings: Settings, planted: Sequence[Planted], channels: Channels, run_id: str) -> None:
        self.settings = settings
        self.planted = planted
        self.channels = channels
        self.run_id = run_id
        self.names = pa.array([settings.name(machine) for machine in range(settings.machines + 1)])
        hosts = [f"host-{settings.host(machine):02d}" for machine in range(settings.machines + 1)]
        self.hosts = pa.array(["driver", *hosts[1:]])
        self.host_numbers = np.array([-1, *map(settings.host, range(1, settings.machines + 1))])
        self.classes = pa.array(["driver", *["Account"] * settings.machines])
        self.sources, self.targets = (self.names.take(pa.array(part)) for part in (channels.source, channels.target))
        self.kinds = pa.array(["call", "mail"]).take(pa.array(channels.kind))
        self.lonely = [one.first + 1 for one in planted if one.anomaly in LONELY]

    @property
    def total(self) -> int:
        """What machines and messages hold in all."""
        return OPENING_BALANCE * (self.settings.machines - len(self.lonely))

    def started_at(self, number: int) -> datetime:
        """When snapshot `number` is started."""
        return self.settings.started_at + timedelta(seconds=number * self.settings.every_s)

    def snapshot_id(self, number: int) -> str:
        """The id of snapshot `number`: as real ones, it sorts by time."""
        started = self.started_at(number)
        return f"{started:%Y%m%dT%H%M%S}{started.microsecond:06d}Z-{self.run_id[-6:]}-{number:06d}"

    def snapshot(self, step: Step, chance: np.random.Generator) -> Snapshot:
        """The snapshot of one step; one that is given up has no rows but its own."""
        aborted = next((one for one in self.planted if one.anomaly == "abort" and one.holds(step.number)), None)
        if aborted is not None:
            return self._aborted(step.number, aborted)
        calls, waits = self._calls(step)
        parts = {
            "machines": self._machines(step, chance, waits),
            "channels": self._channels(step),
            "messages": self._messages(step),
            "calls": self._by_row("calls", step, calls),
            "waits": self._by_row("waits", step, waits),
        }
        return Snapshot({"snapshots": self._header(step, parts), **parts})

    # Machines

    def _machines(self, step: Step, chance: np.random.Generator, waits: list[dict[str, Any]]) -> pa.Table:
        count = self.settings.machines + 1
        sent, accepted = (self._per_machine(step, name) for name in ("sent", "accepted"))
        state = self._states(step, accepted)
        delay = self._delays(step, chance)
        waiting = {row["machine"]: row["on_machine"] for row in waits}
        blocked = np.flatnonzero(pc.is_in(self.names, value_set=pa.array(list(waiting), pa.string())).to_numpy(False))
        started_us = int(self.started_at(step.number).timestamp() * 1e6)
        columns = {
            "machine": self.names,
            "class_name": self.classes,
            "host": self.hosts,
            "status": self._status(step, chance, blocked),
            "state": state,
            "state_bytes": pc.binary_length(state).cast(pa.int64()),
            **self._short_waits(blocked, waiting),
            "accepted_count": accepted,
            "sent_count": sent,
            "recorded_at": pa.array(started_us + (delay * 1e3).astype(np.int64)).cast(pa.timestamp("us", tz="UTC")),
            "record_delay_ms": delay,
        }
        return self._table("machines", step, columns, count).filter(self._present(step.number))

    def _per_machine(self, step: Step, what: str) -> Integers:
        """The sum of one count over each machine's channels."""
        place = self.channels.source if what == "sent" else self.channels.target
        sums = np.bincount(place, getattr(step, what), self.settings.machines + 1)
        return sums.astype(np.int64)

    def _states(self, step: Step, accepted: Integers) -> pa.Array:
        balance, limit = self._balances(step), np.full(len(accepted), LIMIT)
        for one in self.planted:
            if one.anomaly == "leak" and one.holds(step.number):
                balance[one.first + 1] -= LEAKED
            if one.anomaly == "field" and one.holds(step.number):
                limit[one.first + 1] = NEW_LIMIT
        texts = (pc.cast(pa.array(part), pa.string()) for part in (balance, limit, accepted))
        keys = ('{"balance":', ',"limit":', ',"done":')
        parts = [part for pair in zip(keys, texts, strict=True) for part in pair]
        states = pc.binary_join_element_wise(*parts, "}", "")
        return pa.concat_arrays([pa.nulls(1, pa.string()), states[1:]])  # the driver has none of its own

    def _balances(self, step: Step) -> Integers:
        channels, count = self.channels, self.settings.machines + 1
        paid = np.bincount(channels.source, channels.amount * step.sent, count)
        got = np.bincount(channels.target, channels.amount * step.accepted, count)
        balance = (OPENING_BALANCE + got - paid).astype(np.int64)
        balance[self.lonely] = 0
        return balance

    def _status(self, step: Step, chance: np.random.Generator, blocked: Integers) -> pa.Array:
        active = chance.random(self.settings.machines + 1) < 0.4
        active[step.number % self.settings.machines + 1] = True
        if (stall := next((one for one in self.planted if one.anomaly == "stall"), None)) and stall.holds(step.number):
            active = np.arange(len(active)) % 10 == 0
        active[self.channels.target[step.calling]] = True
        for one in self.planted:
            if one.anomaly == "deaf" and one.holds(step.number):
                active[one.first + 1] = False
            if one.anomaly == "deadlock" and one.holds(step.number):
                active[one.first : one.first + 3] = True  # until each of them blocks
        active[0] = True
        codes = active.astype(np.int64)
        codes[blocked] = 2
        return pa.array(["passive", "active", "blocked"]).take(pa.array(codes))

    def _short_waits(self, blocked: Integers, waiting: dict[str, str]) -> dict[str, Any]:
        count = self.settings.machines + 1
        mode, needed = np.full(count, None, object), np.full(count, None, object)
        mode[blocked], needed[blocked] = "all", 1
        on: list[list[str] | None] = [None] * count
        for row in blocked.tolist():
            on[row] = [waiting[self.settings.name(row)]]
        return {
            "wait_mode": pa.array(mode, pa.string()),
            "wait_k": pa.array(needed, pa.int64()),
            "waits_for": pa.array(on, pa.list_(pa.string())),
        }

    def _delays(self, step: Step, chance: np.random.Generator) -> Any:
        delay = 1 + 5 * chance.random(self.settings.machines + 1)
        for one in self.planted:
            if one.anomaly == "slow" and one.holds(step.number):
                delay[self.host_numbers == self.settings.host(one.first)] += 600 * self.settings.every_s
        return delay

    def _present(self, number: int) -> pa.Array:
        found = np.ones(self.settings.machines + 1, np.bool_)
        for one in self.planted:
            if one.anomaly in LONELY:
                found[one.first + 1] = one.holds(number) == (one.anomaly == "appear")
        return pa.array(found)

    # Channels and messages

    def _channels(self, step: Step) -> pa.Table:
        accepted = step.accepted.copy()
        for one in self.planted:
            if one.anomaly == "tear" and one.holds(step.number):
                channel = self.channels.index(one.first, one.first + 1)
                accepted[channel] = step.sent[channel] + 1
        counts = {"sent_count": step.sent, "accepted_count": accepted, "in_flight_count": step.in_flight}
        ends = {"source": self.sources, "target": self.targets, "kind": self.kinds}
        return self._table("channels", step, ends | counts, len(accepted))

    def _messages(self, step: Step) -> pa.Table:
        channel = np.repeat(np.arange(len(step.in_flight)), step.in_flight)
        behind = np.arange(len(channel)) - np.repeat(np.cumsum(step.in_flight) - step.in_flight, step.in_flight)
        number = step.accepted[channel] + 1 + behind
        is_call = self.channels.kind[channel] == CALL
        amounts = pc.cast(pa.array(self.channels.amount[channel]), pa.string())
        args = pc.binary_join_element_wise("[", amounts, "]", "")
        columns = {
            "source": self.sources.take(pa.array(channel)),
            "target": self.targets.take(pa.array(channel)),
            "kind": self.kinds.take(pa.array(channel)),
            "number": number,
            "call_id": self._call_ids(channel, number, is_call),
            "method": pa.array(["deposit", _AUDIT]).take(pa.array(is_call.astype(np.int64))),
            "args": pc.if_else(pa.array(is_call), "[]", args),
            "payload_bytes": np.where(is_call, 0, 8),
            "sent_at": self._sent_at(step, channel, behind),
        }
        return self._table("messages", step, columns, len(channel))

    def _call_ids(self, channel: Integers, number: Integers, is_call: Any) -> pa.Array:
        ids: list[str | None] = [None] * len(channel)
        for row in np.flatnonzero(is_call).tolist():
            ids[row] = self._call_id(int(channel[row]), int(number[row]))
        return pa.array(ids, pa.string())

    def _call_id(self, channel: int, number: int) -> str:
        return f"{self.sources[channel]}/1/{self.targets[channel]}/{number}"

    def _sent_at(self, step: Step, channel: Integers, behind: Integers) -> pa.Array:
        """A tenth of an interval before the snapshot that saw it first; of a backlog the head is the oldest."""
        age = np.where(step.held[channel], step.number - step.held_since[channel], 0)
        left = step.in_flight[channel] - 1 - behind
        age = np.where(step.growing[channel], left // 5, age)
        every_us = self.settings.every_s * 1e6
        started_us = self.started_at(step.number).timestamp() * 1e6
        return pa.array((started_us - (age + 0.1) * every_us).astype(np.int64)).cast(pa.timestamp("us", tz="UTC"))

    # Calls and waits

    def _calls(self, step: Step) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        calls, waits = [], []
        for channel in np.flatnonzero(step.calling).tolist():
            caller, callee = str(self.sources[channel]), str(self.targets[channel])
            outer, inner = f"driver/1/{caller}/{step.number}", self._call_id(channel, int(step.sent[channel]))
            began = self.started_at(step.number) - timedelta(seconds=0.3 * self.settings.every_s)
            calls += [_call(caller, outer, "driver", _TRANSFER, _OUTER, began)]
            calls += [_call(callee, inner, caller, _AUDIT, None, began)]
            waits += [_wait(caller, outer, callee, inner, began)]
        for one in self.planted:
            if one.anomaly == "deadlock" and one.holds(step.number):
                for call, wait in self._circle(one, step.number):
                    calls.append(call)
                    waits += [wait] if wait else []
        calls.sort(key=lambda row: (row["machine"], row["call_id"]))
        waits.sort(key=lambda row: (row["machine"], row["call_id"]))
        return calls, waits

    def _circle(self, planted: Planted, number: int) -> list[tuple[dict[str, Any], dict[str, Any] | None]]:
        """The calls of a deadlock as far as it has formed, each with its wait if it waits already."""
        one, two, three, four = (self.settings.name(planted.first + n) for n in range(4))
        since = number - planted.at
        began = [
            self.started_at(planted.at + edge) - timedelta(seconds=0.2 * self.settings.every_s) for edge in range(4)
        ]
        ids = [f"driver/1/{one}/{planted.at}", f"{one}/1/{two}/1", f"{two}/1/{three}/1", f"{three}/1/{one}/1"]
        chain = [(one, "driver", _TRANSFER, _OUTER), (two, one, _AUDIT, _INNER), (three, two, _AUDIT, _INNER)]
        found: list[tuple[dict[str, Any], dict[str, Any] | None]] = []
        for edge, (machine, caller, method, site) in enumerate(chain):
            if since >= edge - 1:
                waits = since >= edge
                call = _call(machine, ids[edge], caller, method, site if waits else None, began[max(0, edge - 1)])
                target = (two, three, one)[edge]
                wait = _wait(machine, ids[edge], target, ids[edge + 1], began[edge]) if waits else None
                found.append((call, wait))
        if since >= 3:
            outer = f"driver/1/{four}/{planted.at + 3}"
            call = _call(four, outer, "driver", _TRANSFER, _OUTER, began[3])
            found.append((call, _wait(four, outer, one, f"{four}/1/{one}/1", began[3])))
        return found

    def _by_row(self, name: str, step: Step, rows: list[dict[str, Any]]) -> pa.Table:
        schema = SNAPSHOT_TABLES[name]
        columns = (
            {key: pa.array([row.get(key) for row in rows], schema.field(key).type) for key in rows[0]} if rows else {}
        )
        return self._table(name, step, columns, len(rows))

    # The snapshot itself

    def _header(self, step: Step, parts: dict[str, pa.Table]) -> pa.Table:
        duration = float(pc.max(parts["machines"]["record_delay_ms"]).as_py()) + 2
        started = self.started_at(step.number)
        size = int(pc.sum(parts["machines"]["state_bytes"]).as_py()) + 60 * parts["messages"].num_rows
        hosts = self.settings.host_count
        row = {
            "completed_at": started + timedelta(milliseconds=duration),
            "duration_ms": duration,
            "machine_count": parts["machines"].num_rows,
            "channel_count": parts["channels"].num_rows,
            "in_flight_count": parts["messages"].num_rows,
            "control_message_count": hosts * (hosts + 1),
            "channel_marker_count": hosts * (hosts - 1),
            "bytes": size,
        }
        return self._snapshot_row(step.number, row)

    def _aborted(self, number: int, planted: Planted) -> Snapshot:
        machine = self.settings.name(planted.first + 1)
        waited_s = 0.5 * self.settings.every_s
        row = {
            "status": "aborted",
            "abort_reason": f"{machine} did not record within {waited_s:g} s: it computes",
            "abort_machine": machine,
            "abort_call_site": "bank.py:73",
            "completed_at": self.started_at(number) + timedelta(seconds=waited_s),
            "duration_ms": waited_s * 1e3,
            "machine_count": 0,
            "channel_count": 0,
            "in_flight_count": 0,
            "consistent": False,
        }
        return Snapshot({"snapshots": self._snapshot_row(number, row)})

    def _snapshot_row(self, number: int, row: dict[str, Any]) -> pa.Table:
        whole = {
            **DEFAULTS["snapshots"],
            "snapshot_id": self.snapshot_id(number),
            "system": self.settings.system,
            "run_id": self.run_id,
            "sequence": number,
            "initiators": [],
            "obstacles": [],
            "started_at": self.started_at(number),
            **row,
        }
        return pa.Table.from_pylist([whole], schema=SNAPSHOT_TABLES["snapshots"])

    def _table(self, name: str, step: Step, columns: dict[str, Any], count: int) -> pa.Table:
        """The columns given, the ids, the defaults of the others."""
        constant = {**DEFAULTS[name], "snapshot_id": self.snapshot_id(step.number), "run_id": self.run_id}
        schema = SNAPSHOT_TABLES[name]
        arrays = [
            _array(columns[field.name], field.type)
            if field.name in columns
            else pa.repeat(pa.scalar(constant.get(field.name), field.type), count)
            for field in schema
        ]
        return pa.table(arrays, schema=schema)


def _array(values: Any, kind: pa.DataType) -> pa.Array:
    array = values if isinstance(values, (pa.Array, pa.ChunkedArray)) else pa.array(values)
    return array if array.type == kind else array.cast(kind)


def _call(machine: str, call_id: str, caller: str, method: str, site: str | None, began: datetime) -> dict[str, Any]:
    return {
        "machine": machine,
        "call_id": call_id,
        "caller": caller,
        "method": method,
        "holds_slot": True,
        "call_site": site,
        "started_at": began,
    }


def _wait(machine: str, call_id: str, on_machine: str, on_call_id: str, since: datetime) -> dict[str, Any]:
    return {
        "machine": machine,
        "call_id": call_id,
        "alternative": 0,
        "k": 1,
        "on_machine": on_machine,
        "on_call_id": on_call_id,
        "satisfied": False,
        "waiting_since": since,
    }
