"""A state of the space as a snapshot: by the theorem that is what it is. Never imports Ray.

What a machine waits for is told as on Ray: by the wait inside its action, by a full mailbox, by its own `waiting_for`, or by
its joins where its inputs are declared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from ray_snapshot.errors import MachineFailedError
from ray_snapshot.names import DRIVER
from ray_snapshot.protocol.joins import Inputs, half_begun, waiting_of
from ray_snapshot.runtime.context import attach
from ray_snapshot.runtime.inputs import arriving, call_row, lacks, wait_rows
from ray_snapshot.runtime.mixin import SnapshotMixin
from ray_snapshot.runtime.staged import Said, StagedContext, recorded_arguments, recorded_state, said_by
from ray_snapshot.snapshot import Snapshot
from ray_snapshot.testing.acts import Ref
from ray_snapshot.testing.records import ANSWER, CHANNEL, MACHINE, Inside, Mail, Rest, State, Unborn
from ray_snapshot.testing.space import Space
from ray_snapshot.testing.table import ByCell
from ray_snapshot.testing.values import Loose, as_bytes, decoded, encoded, fill, state_of
from ray_snapshot.waits import Wait

Row = dict[str, Any]


class Shown:
    """Machines and messages of a space as objects and rows, each made once."""

    def __init__(self, space: Space) -> None:
        self.space = space
        self.objects = ByCell(self._object)
        """The machine, to be looked at; None if there is none."""
        self._said = ByCell(self._ask)
        self._states = ByCell(lambda cell, value: recorded_state(self.objects[cell, value]))
        self._args: dict[bytes, Any] = {}

    def object(self, cell: int, value: int) -> Any:
        """The machine object of a cell's value; None if there is none."""
        return self.objects[cell, value]

    def _object(self, cell: int, value: int) -> Any:
        record = self.space.values[value]
        if type(record) not in (Rest, Inside):
            return None
        kind = self.space.stage.kinds[record.kind]
        found = kind.__new__(kind)
        fill(found, decoded(_state_bytes(record)))
        attach(found, StagedContext(self.space.stage, self.space.cells[cell][1]))
        return found

    def said(self, cell: int, value: int) -> Said:
        """What its hooks say; raises `MachineFailedError` for an answer that is none."""
        found: Said = self._said[cell, value]
        return found

    def _ask(self, cell: int, value: int) -> Said:
        body = self.object(cell, value)
        found = said_by(body)
        if not isinstance(found.wait, Wait | None):
            name = self.space.cells[cell][1]
            raise MachineFailedError(
                f"{name} ({type(body).__name__}): waiting_for() returned {found.wait!r}, which is no wait: return"
                " rs.all_of(...), rs.any_of(...), rs.at_least(k, ...) or None",
                machine=name, method="waiting_for", message=None, source=None, traceback="",
            )  # fmt: skip
        return found

    def state(self, cell: int, value: int) -> Any:
        """What a snapshot records of the machine's state."""
        return self._states[cell, value]

    def arguments(self, payload: Loose) -> list[Any]:
        """What a snapshot records of a message's arguments."""
        payload = as_bytes(payload)
        found = self._args.get(payload)
        if found is None:
            found = self._args[payload] = recorded_arguments(*decoded(payload))
        return list(found)

    def changed(self) -> list[str]:
        """The machines that whoever looked at them has changed."""
        found: dict[str, None] = {}
        for (cell, value), body in self.objects.items():
            if body is not None and encoded(state_of(body)).data != _state_bytes(self.space.values[value]):
                found[self.space.cells[cell][1]] = None
        return [*found]

    # ---- a snapshot -------------------------------------------------------------------------------------------------

    def snapshot(self, state: State, *, has_states: bool = True) -> Snapshot:
        """A state as a snapshot; without the states of machines it is made faster."""
        about: Row = {"snapshot_id": "state", "system": "testing", "run_id": "testing"}
        return Snapshot.from_rows(**self.rows(state, has_states=has_states), **about)

    def rows(self, state: State, *, has_states: bool = True) -> dict[str, Any]:
        """Rows of `machines`, `messages`, `waits` and `calls`, and the `coverage` if it is not whole."""
        space = self.space
        machines: list[Row] = []
        waits: list[Row] = []
        calls: list[Row] = []
        messages = list(self._messages(state))
        flying = arriving(
            (row["target"], row["source"], row["kind"], row["number"], row["method"])
            for row in messages
            if row["number"]
        )
        undeclared: dict[str, str] = {}
        for name, record in space.machines(state):
            if type(record) is Unborn:
                continue
            cell = space.cell(MACHINE, name)
            kind = space.stage.kinds[record.kind]
            row: Row = {"machine": name, "class_name": kind.__name__, "host": name}
            if has_states:
                row["state"] = self.state(cell, state[cell]) if self.object(cell, state[cell]) is not None else None
            status, rows, inside = self._waiting(state, name, cell, flying.get(name, []), undeclared)
            row["status"] = status
            machines.append(row)
            waits += rows
            calls += inside
        machines.append(self._driver(state, waits))
        coverage: Row = {"coverage": {"uncovered": [], "undeclared": undeclared}} if undeclared else {}
        tables = {"machines": machines, "messages": messages, "channels": _channels(messages)}
        return {**tables, "waits": waits, "calls": calls, **coverage}

    def _driver(self, state: State, waits: list[Row]) -> Row:
        record = self.space.machine(state, DRIVER)
        row: Row = {"machine": DRIVER, "class_name": "", "host": DRIVER, "state": None, "status": "passive"}
        if isinstance(record, Inside):
            row["status"] = "active" if record.wait.timeout is not None else "blocked"
            waits += self._wait_rows(state, DRIVER, record) if record.wait.timeout is None else []
        return row

    def _waiting(
        self, state: State, name: str, cell: int, flying: list[list[str]], undeclared: dict[str, str]
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
            if record.wait.timeout is not None:
                return "active", [], calls
            return "blocked", self._wait_rows(state, name, record), calls
        if type(record) is not Rest or record.is_stopped:
            return "stopped", [], []
        said = self.said(cell, state[cell])
        if said.wait is not None:
            return "blocked", list(wait_rows(name, said.wait, satisfied=None)), []
        if said.status != "passive":
            return said.status, [], []
        return self._by_inputs(name, record, flying, undeclared)

    def _by_inputs(
        self, name: str, record: Rest, flying: list[list[str]], undeclared: dict[str, str]
    ) -> tuple[str, list[Row], list[Row]]:
        stage = self.space.stage
        joins, sources = stage.joins[record.kind], stage.sources.get(name)
        says_so = stage.kinds[record.kind].waiting_for is not SnapshotMixin.waiting_for
        if says_so or (sources is None and not joins):
            return "passive", [], []
        inputs = Inputs(tuple(joins), dict(sources or {}), tuple(joins.values()))
        waiting = waiting_of(inputs, flying)
        if waiting is None:
            lacking = half_begun(inputs, flying)
            if lacking:
                undeclared[name] = lacks(inputs, lacking)
            return "passive", [], []
        rows = list(wait_rows(name, waiting.wait))
        return ("blocked", rows, [call_row(name, inputs, waiting)]) if waiting.lacking else ("passive", rows, [])

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
            for number, mail in enumerate(mails, 1):
                row = {"source": source, "target": target, "kind": kind, "number": number, "method": mail.method}
                row["args"] = self.arguments(mail.payload)
                if mail.call is not None:
                    row["call_id"] = _call_id(mail.call)
                yield row
        for name, record in self.space.machines(state):
            if type(record) is Unborn:
                row = {"source": record.creator, "target": name, "number": 0, "method": "__init__"}
                yield {**row, "args": self.arguments(record.payload)}


def _state_bytes(record: Any) -> bytes:
    return as_bytes(record.state) if type(record) is Rest else record.shown


def _answered_by(record: Any) -> list[Ref | None]:
    """The calls that a machine answers with the action that it is in."""
    taken = record.taken if type(record) is Inside else ()
    return [mail.call for _, _, mail in taken if isinstance(mail, Mail)]


def _call_id(ref: Ref) -> str:
    return f"{ref[0]}/{ref[1]}"


def _channels(messages: list[Row]) -> list[Row]:
    """The channels that hold something; a creation is on its channel, and is not counted."""
    counts = Counter((row["source"], row["target"], row.get("kind", "mail")) for row in messages if row["number"])
    counts.update({(row["source"], row["target"], "mail"): 0 for row in messages if not row["number"]})
    return [
        {"source": source, "target": target, "kind": kind, "sent_count": count, "in_flight_count": count}
        for (source, target, kind), count in counts.items()
    ]
