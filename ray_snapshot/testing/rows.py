"""A state of the space as a snapshot: by the theorem that is what it is. Never imports Ray.

What a machine waits for is told as on Ray: by the wait inside its action, by a full mailbox, by its own `waiting_for`, or by
its joins where its inputs are declared.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ray_snapshot.encoding import to_json
from ray_snapshot.errors import MachineFailedError
from ray_snapshot.json_text import parsed_json
from ray_snapshot.names import DRIVER
from ray_snapshot.protocol.joins import Inputs, half_begun, waiting_of
from ray_snapshot.runtime.context import attach
from ray_snapshot.runtime.mixin import SnapshotMixin
from ray_snapshot.runtime.staged import StagedContext
from ray_snapshot.snapshot import Snapshot
from ray_snapshot.testing.acts import Ref
from ray_snapshot.testing.records import ANSWER, CHANNEL, MACHINE, Inside, Mail, Rest, State, Unborn
from ray_snapshot.testing.space import Space
from ray_snapshot.testing.values import Loose, as_bytes, decoded, encoded, fill, state_of
from ray_snapshot.waits import Wait

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Said:
    """What a machine says of itself by its hooks."""

    status: str
    wait: Wait | None


class Shown:
    """Machines and messages of a space as objects and rows, each made once."""

    def __init__(self, space: Space) -> None:
        self.space = space
        self.objects: dict[tuple[int, int], Any] = {}
        """By cell and value: the machine, to be looked at."""
        self._said: dict[tuple[int, int], Said] = {}
        self._states: dict[tuple[int, int], Any] = {}
        self._args: dict[bytes, Any] = {}

    def object(self, cell: int, value: int) -> Any:
        """The machine object of a cell's value; None if there is none."""
        found = self.objects.get((cell, value))
        if found is None:
            record = self.space.values[value]
            if type(record) is Rest:
                data = as_bytes(record.state)
            elif type(record) is Inside:
                data = record.shown
            else:
                return None
            kind = self.space.stage.kinds[record.kind]
            found = kind.__new__(kind)
            fill(found, decoded(data))
            attach(found, StagedContext(self.space.stage, self.space.cells[cell][1]))
            self.objects[cell, value] = found
        return found

    def said(self, cell: int, value: int) -> Said:
        """What its hooks say; raises `MachineFailedError` for an answer that is none."""
        found = self._said.get((cell, value))
        if found is None:
            found = self._said[cell, value] = self._ask(cell, value)
        return found

    def _ask(self, cell: int, value: int) -> Said:
        body = self.object(cell, value)
        try:
            wait = body.waiting_for()
            if wait is None:
                return Said("active" if body.is_active() else "passive", None)
        except Exception:  # as on Ray: a hook that raises stops nothing, and the machine may act
            return Said("active", None)
        if not isinstance(wait, Wait):
            name = self.space.cells[cell][1]
            raise MachineFailedError(
                f"{name} ({type(body).__name__}): waiting_for() returned {wait!r}, which is no wait: return rs.all_of(...),"
                " rs.any_of(...), rs.at_least(k, ...) or None",
                machine=name, method="waiting_for", message=None, source=None, traceback="",
            )  # fmt: skip
        return Said("blocked", wait)

    def state(self, cell: int, value: int) -> Any:
        """What a snapshot records of the machine's state."""
        found = self._states.get((cell, value))
        if found is None:
            try:
                recorded = self.object(cell, value).snapshot_state()
            except Exception as error:  # recorded like that on Ray, too
                recorded = {"$error": f"snapshot_state raised {type(error).__name__}: {error}"}
            found = self._states[cell, value] = parsed_json(to_json(recorded).text)
        return found

    def arguments(self, payload: Loose) -> list[Any]:
        """What a snapshot records of a message's arguments."""
        payload = as_bytes(payload)
        found = self._args.get(payload)
        if found is None:
            args, kwargs = decoded(payload)
            listed = [*args, {"$kwargs": kwargs}] if kwargs else list(args)
            found = self._args[payload] = parsed_json(to_json(listed).text)
        return list(found)

    def changed(self) -> list[str]:
        """The machines that whoever looked at them has changed."""
        found: dict[str, None] = {}
        for (cell, value), body in self.objects.items():
            record = self.space.values[value]
            data = as_bytes(record.state) if type(record) is Rest else record.shown
            if encoded(state_of(body)).data != data:
                found[self.space.cells[cell][1]] = None
        return [*found]

    # ---- a snapshot -------------------------------------------------------------------------------------------------

    def snapshot(self, state: State, *, has_states: bool = True, **columns: Any) -> Snapshot:
        """A state as a snapshot; without the states of machines it is made faster."""
        about = {"snapshot_id": "state", "system": "testing", "run_id": "testing"}
        return Snapshot.from_rows(**self.rows(state, has_states=has_states), **{**about, **columns})

    def rows(self, state: State, *, has_states: bool = True) -> dict[str, Any]:
        """Rows of `machines`, `messages`, `waits` and `calls`, and the `coverage` if it is not whole."""
        space = self.space
        machines: list[Row] = []
        waits: list[Row] = []
        calls: list[Row] = []
        messages = list(self._messages(state))
        arriving = _arriving(messages)
        undeclared: dict[str, str] = {}
        found = [
            (name, space.cell(MACHINE, name)) for name, record in space.machines(state) if type(record) is not Unborn
        ]
        for name, cell in found:
            row: Row = {"machine": name, "class_name": self._class_name(state, cell), "host": name}
            if has_states:
                row["state"] = self.state(cell, state[cell]) if self.object(cell, state[cell]) is not None else None
            status, rows, inside = self._waiting(state, name, cell, arriving.get(name, []), undeclared)
            row["status"] = status
            machines.append(row)
            waits += rows
            calls += inside
        machines.append(self._driver(state, waits))
        coverage: Row = {"coverage": {"uncovered": [], "undeclared": undeclared}} if undeclared else {}
        channels = _channels(messages)
        return {
            "machines": machines,
            "messages": messages,
            "channels": channels,
            "waits": waits,
            "calls": calls,
            **coverage,
        }

    def _class_name(self, state: State, cell: int) -> str:
        return str(self.space.stage.kinds[self.space.values[state[cell]].kind].__name__)

    def _driver(self, state: State, waits: list[Row]) -> Row:
        record = self.space.machine(state, DRIVER)
        row: Row = {"machine": DRIVER, "class_name": "", "host": DRIVER, "state": None, "status": "passive"}
        if isinstance(record, Inside):
            row["status"] = "active" if record.left is not None else "blocked"
            waits += self._wait_rows(state, DRIVER, record) if record.left is None else []
        return row

    def _waiting(
        self, state: State, name: str, cell: int, arriving: list[list[str]], undeclared: dict[str, str]
    ) -> tuple[str, list[Row], list[Row]]:
        """(status, rows of `waits`, rows of `calls`) of a machine."""
        record = self.space.values[state[cell]]
        if type(record) is Inside:
            calls = [
                {"machine": name, "caller": source, "method": record.act.method, "holds_slot": True,
                 "call_id": _call_id(mail.call) if isinstance(mail, Mail) and mail.call else None,
                 "call_site": record.wait.site}
                for source, _, mail in record.taken
            ]  # fmt: skip
            if record.left is not None:
                return "active", [], calls
            return "blocked", self._wait_rows(state, name, record), calls
        if type(record) is not Rest or record.is_stopped:
            return "stopped", [], []
        said = self.said(cell, state[cell])
        if said.wait is not None:
            return "blocked", list(_rows(name, said.wait, None)), []
        if said.status != "passive":
            return said.status, [], []
        return self._by_inputs(name, record, arriving, undeclared)

    def _by_inputs(
        self, name: str, record: Rest, arriving: list[list[str]], undeclared: dict[str, str]
    ) -> tuple[str, list[Row], list[Row]]:
        stage = self.space.stage
        joins, sources = stage.joins[record.kind], stage.sources.get(name)
        says_so = stage.kinds[record.kind].waiting_for is not SnapshotMixin.waiting_for
        if says_so or (sources is None and not joins):
            return "passive", [], []
        inputs = Inputs(tuple(joins), dict(sources or {}), tuple(joins.values()))
        waiting = waiting_of(inputs, arriving)
        if waiting is None:
            lacking = half_begun(inputs, arriving)
            if lacking:
                undeclared[name] = _lacks(joins, lacking)
            return "passive", [], []
        rows = list(_rows(name, waiting.wait, False))
        if not waiting.lacking:
            return "passive", rows, []
        return "blocked", rows, [{"machine": name, "method": _lacks(joins, waiting.lacking), "holds_slot": True}]

    def _wait_rows(self, state: State, name: str, record: Inside) -> list[Row]:
        rows = []
        for ref in record.wait.refs:
            target, is_satisfied = self.answerer(state, ref)
            rows.append(
                {"machine": name, "alternative": 0, "k": record.wait.k, "on_machine": target,
                 "on_call_id": _call_id(ref), "satisfied": is_satisfied}
            )  # fmt: skip
        return rows

    def answerer(self, state: State, ref: Ref) -> tuple[str | None, bool]:
        """(who owes the result of a call, whether it is there or the call will be accepted without anybody's help)."""
        space = self.space
        if space.at(state, space.cell(ANSWER, ref)) is not None:
            return None, True
        for cell, value in enumerate(state):
            kind, channel = space.cells[cell]
            if kind == CHANNEL and value and channel[2] == "call":
                if any(space.values[mail].call == ref for mail in space.values[value]):
                    return channel[1], self._is_ready(state, channel[1])
            elif kind == MACHINE and ref in _answered_by(space.values[value]):
                return channel, False
        return None, True

    def _is_ready(self, state: State, name: str) -> bool:
        """Whether a machine is in no action, but blocked by what it says of itself: it accepts a call all the same."""
        cell = self.space.cell(MACHINE, name)
        record = self.space.at(state, cell)
        return type(record) is Rest and self.said(cell, state[cell]).wait is not None

    def _messages(self, state: State) -> Iterator[Row]:
        for (source, target, kind), mails in self.space.channels(state):
            for number, (mail, _) in enumerate(mails, 1):
                row = {"source": source, "target": target, "kind": kind, "number": number, "method": mail.method}
                row["args"] = self.arguments(mail.payload)
                if mail.call is not None:
                    row["call_id"] = _call_id(mail.call)
                yield row
        for name, record in self.space.machines(state):
            if type(record) is Unborn:
                row = {"source": record.creator, "target": name, "number": 0, "method": "__init__"}
                yield {**row, "args": self.arguments(record.payload)}


def _answered_by(record: Any) -> list[Ref | None]:
    """The calls that a machine answers with the action that it is in."""
    taken = record.taken if type(record) is Inside else ()
    return [mail.call for _, _, mail in taken if isinstance(mail, Mail)]


def _call_id(ref: Ref) -> str:
    return f"{ref[0]}/{ref[1]}"


def _rows(name: str, wait: Wait, satisfied: bool | None) -> Iterator[Row]:
    for position, one in enumerate(wait.alternatives):
        for on in one.on:
            yield {"machine": name, "alternative": position, "k": one.k, "on_machine": on, "satisfied": satisfied}


def _arriving(messages: list[Row]) -> dict[str, list[list[str]]]:
    """By machine: the methods in flight to it, channel by channel; each timer by itself."""
    found: dict[str, dict[Any, list[str]]] = defaultdict(lambda: defaultdict(list))
    for row in messages:
        if row["number"]:
            key = row["source"], row["kind"], row["number"] if row["kind"] == "timer" else None
            found[row["target"]][key].append(row["method"])
    return {target: list(channels.values()) for target, channels in found.items()}


def _channels(messages: list[Row]) -> list[Row]:
    """The channels that hold something; a creation is on its channel, and is not counted."""
    counts = Counter((row["source"], row["target"], row.get("kind", "mail")) for row in messages if row["number"])
    counts.update({(row["source"], row["target"], "mail"): 0 for row in messages if not row["number"]})
    return [
        {"source": source, "target": target, "kind": kind, "sent_count": count, "in_flight_count": count}
        for (source, target, kind), count in counts.items()
    ]


def _lacks(joins: Mapping[tuple[str, ...], str], lacking: Any) -> str:
    return " or ".join(
        f"{joins.get(ports, '+'.join(ports))} (lacks {', '.join(missing) or 'one more of any'})"
        for ports, missing in lacking
    )
