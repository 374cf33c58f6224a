"""The trace of a process: every atomic action of its machines, logged as it happens (`System(trace=True)`).

An entry is made under the post's lock, in the step that accepts: so its colour is that of its machine at that moment. What
it accepted and sent is kept as it travels, which cannot change, and becomes JSON only when it is shipped. No vector clocks
are kept: a reader of the trace can compute them from it, and messages stay as they are.

An action that waits inside is parted into steps by its waits (`Waited`): of each is logged for which calls it was, behind how
many messages, and what came of it: so the action can be done again, and each step has its own colour. What came is made JSON
at once, for the machine may change it; it is bounded as any recorded value is. The driver's waits are actions of its own.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from ray.exceptions import RayTaskError

from ray_snapshot import redaction
from ray_snapshot.columns import packed
from ray_snapshot.decoding import exact
from ray_snapshot.encoding import to_json
from ray_snapshot.limits import LIMITS
from ray_snapshot.protocol.host import OutChannel
from ray_snapshot.protocol.mailbox import CALL, MAIL, TIMER, Mailbox, Message
from ray_snapshot.runtime.faults import text_of
from ray_snapshot.runtime.payload import recorded_args
from ray_snapshot.runtime.waits import TrackedWait
from ray_snapshot.schema import ACTIONS

Fields = dict[str, Any]
"""The fields of one message, as JSON will have them; `payload` becomes `args`."""


@dataclass(slots=True)
class Waited:
    """One wait inside an action."""

    wait: TrackedWait
    place: int
    """How many messages the action had sent before it."""
    came: str | None = None
    """JSON of what came of it; None while it is not over."""
    colour: Any = None
    """The machine's, behind it."""
    at: float = 0.0
    """When it was over."""

    def __str__(self) -> str:
        wait = self.wait
        fields: Fields = {
            "place": self.place,
            "function": wait.function,
            "k": int(wait.k),  # Ray takes any number, of numpy's too
            "calls": [call_id for _, call_id in wait.on],
            "site": wait.call_site,
        }
        if (wait.has_foreign or wait.calls) and wait.function != "locate":
            fields["foreign"] = True
        if wait.timeout is not None:
            fields["timeout"] = float(wait.timeout)
        if self.came is None:
            return json.dumps(fields, separators=(",", ":"))
        fields |= {"colour": int(self.colour), "at": int(self.at * 1e6)}
        return f'{json.dumps(fields, separators=(",", ":"))[:-1]},"came":{self.came}}}'


@dataclass(slots=True)
class Entry:
    """One action."""

    machine: str
    number: int
    method: str
    colour: Any
    acted_at: float
    accepted: list[Fields] = field(default_factory=list)
    sent: list[Fields] = field(default_factory=list)
    is_over: bool = False
    waited_at: str | None = None
    """Where it waited inside for a reply, the last time."""
    raised: str | None = None
    waits: list[Waited] = field(default_factory=list)

    @property
    def step_colour(self) -> Any:
        """The colour that the machine had when its current step began: it acts, so its last wait is over."""
        return self.waits[-1].colour if self.waits else self.colour


class Tracer:
    """The actions of one process's machines that have not been shipped; every method is called under the post's lock."""

    def __init__(self, run_id: str, host: str, main: str) -> None:
        self.run_id = run_id
        self.host = host
        self.main = main
        """The name by which other programs can import the driver's `__main__`."""
        self.numbers: dict[str, int] = {}
        self.current: dict[str, Entry] = {}
        self.entries: list[Entry] = []

    def _begin(self, machine: str, method: str, colour: Any) -> Entry:
        number = self.numbers[machine] = self.numbers.get(machine, 0) + 1
        entry = Entry(machine, number, method, colour, time.time())
        self.entries.append(entry)
        return entry

    def accepted(self, machine: str, taken: Sequence[tuple[Mailbox, Message]], colour: Any) -> None:
        """A machine begins to act, on what it has accepted."""
        entry = self.current[machine] = self._begin(machine, taken[0][1][2], colour)
        for mailbox, (_, number, method, payload, _, _) in taken:
            fields: Fields = {"source": mailbox.source, "kind": mailbox.kind, "number": number, "method": method}
            if mailbox.kind == CALL:
                fields["call_id"] = payload[0]
            entry.accepted.append({**fields, "payload": _arguments(mailbox.kind, payload)})

    def born(self, creator: str, child: str, kind: type, payload: Any, colour: Any) -> None:
        """A machine begins with its constructor: it accepts its creation, message 0 of the channel from its creator."""
        entry = self.current[child] = self._begin(child, "__init__", colour)
        fields = {"source": creator, "kind": MAIL, "number": 0, "method": "__init__", "class": self.name_of(kind)}
        entry.accepted.append({**fields, "payload": payload})

    def acts_as(self, machine: str, method: str) -> None:
        """The method that a machine's action runs, where it is not that of its message: a join."""
        self.current[machine].method = method

    def sent(self, channel: OutChannel, method: str, payload: Any, colour: Any, seconds: float | None = None) -> Fields:
        """A machine has sent the last message of a channel; returns what is logged of it, to which more may be added."""
        fields: Fields = {"target": channel.target, "kind": channel.kind, "number": channel.sent, "method": method}
        if channel.kind == CALL:
            fields["call_id"] = payload[0]
        if seconds is not None:
            fields["seconds"] = seconds
        fields["payload"] = _arguments(channel.kind, payload)
        self._add_sent(channel.owner.name, fields, colour)
        return fields

    def created(self, creator: str, child: str, kind: type, payload: Any, colour: Any) -> None:
        """A machine has sent the creation of another."""
        fields = {"target": child, "kind": MAIL, "number": 0, "method": "__init__", "class": self.name_of(kind)}
        self._add_sent(creator, {**fields, "payload": payload}, colour)

    def _add_sent(self, machine: str, fields: Fields, colour: Any) -> None:
        entry = self.current.get(machine)
        if entry is None:  # the driver: each of its sends is an action of its own
            entry = self._begin(machine, "send", colour)
            entry.is_over = True
        if colour != entry.step_colour:
            fields["colour"] = colour
        entry.sent.append(fields)

    def waits(self, machine: str, wait: TrackedWait) -> None:
        """The action of a machine begins to wait inside: a step of it is over."""
        entry = self.current[machine]
        entry.waited_at = wait.call_site or "an unknown place"
        entry.waits.append(Waited(wait, len(entry.sent)))

    def waited(self, machine: str, came: str, colour: Any) -> None:
        """Its wait is over, and its next step begins, with this colour."""
        waited = self.current[machine].waits[-1]
        waited.came, waited.colour, waited.at = came, colour, time.time()
        _let_go(waited.wait)

    def waited_outside(self, machine: str, wait: TrackedWait, came: str, colour: Any) -> None:
        """The driver has waited for calls: that is an action of its own, and sends nothing."""
        entry = self._begin(machine, wait.function, colour)
        entry.is_over, entry.waited_at = True, wait.call_site or "an unknown place"
        entry.waits.append(Waited(wait, 0, came, colour, entry.acted_at))
        _let_go(wait)

    def raised(self, machine: str, error: BaseException) -> None:
        """The action of a machine has raised."""
        if machine in self.current:
            self.current[machine].raised = type(error).__name__

    def end(self, machine: str) -> None:
        """The action of a machine is over."""
        entry = self.current.pop(machine, None)
        if entry is not None:
            entry.is_over = True

    def take(self, *, everything: bool = False) -> list[Entry]:
        """The actions that are over (or all of them), to be shipped."""
        taken = [entry for entry in self.entries if entry.is_over or everything]
        self.entries = [] if everything else [entry for entry in self.entries if not entry.is_over]
        return taken

    def put_back(self, taken: Sequence[Entry]) -> None:
        """What was taken could not be shipped: it goes with the next."""
        self.entries = [*taken, *self.entries]

    @property
    def is_full(self) -> bool:
        """Whether so much has gathered that it must be shipped before more is done."""
        return len(self.entries) >= LIMITS.trace_entries

    def name_of(self, kind: type) -> str:
        """ "module:qualname" of a class."""
        module = self.main if kind.__module__ == "__main__" else kind.__module__
        return f"{module}:{kind.__qualname__}"

    def shipped(self, entries: list[Entry]) -> bytes | None:
        """Rows of `actions`, as an Arrow stream; None if there are none. Needs no lock."""
        if not entries:
            return None
        rows = [self._row(entry) for entry in entries]
        shipped: bytes = packed(pa.RecordBatch.from_pylist(rows, schema=ACTIONS)).to_pybytes()
        return shipped

    def _row(self, entry: Entry) -> dict[str, Any]:
        return {
            "run_id": self.run_id,
            "machine": entry.machine,
            "number": entry.number,
            "host": self.host,
            "method": entry.method,
            "accepted": _messages(entry.accepted),
            "sent": _messages(entry.sent),
            "colour": int(entry.colour),
            "acted_at": int(entry.acted_at * 1e6),
            "is_over": entry.is_over,
            "waited_at": entry.waited_at,
            "raised": entry.raised,
            "waits": f"[{','.join(map(str, entry.waits))}]" if entry.waits else None,
        }


def came_of(wait: TrackedWait) -> str:
    """JSON of what came of a wait: `{"values": [...]}` of a get, `{"places": [...]}` of a wait (of the refs that are there),
    `{"error": {...}}` of one that raised. Where anything is redacted, neither values nor texts."""
    if wait.raised is not None:
        return json.dumps({"error": _error(wait.raised)}, separators=(",", ":"))
    if wait.result is None:
        return '{"unknown":true}'  # neither a result nor an error of Ray's
    if not wait.raises:
        there = {id(ref) for ref in wait.result[0]}
        return json.dumps({"places": [place for place, ref in enumerate(wait.refs) if id(ref) in there]})
    if redaction.is_active:
        return '{"values":null}'
    return f'{{"values":[{",".join(to_json(value).text for value in wait.result)}]}}'


def _error(error: BaseException) -> Fields:
    """`own`: whether it came bare, as errors of ours and of Ray's own do; else `type` and `text` are of what was raised, and
    `told` is what Ray says of it."""
    bare: BaseException = error.cause if isinstance(error, RayTaskError) else error
    said: Fields = {"type": type(bare).__name__, "own": bare is error}
    if not redaction.is_active:
        said["text"] = text_of(bare)[: LIMITS.trace_error_characters]
        if bare is not error:
            said["told"] = text_of(error)[: LIMITS.trace_error_characters]
    return said


def _let_go(wait: TrackedWait) -> None:
    """Nothing that came is kept alive."""
    wait.refs, wait.result, wait.raised = [], None, None


def main_module() -> str:
    """The name by which another program can import this one's `__main__`."""
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec is not None:
        return str(spec.name)
    path = getattr(main, "__file__", None)
    return "__main__" if path is None else os.path.splitext(os.path.basename(path))[0]


def _arguments(kind: str, payload: Any) -> Any:
    """What a message of this kind carries for its method: calls have their id in front, timers when they are due."""
    return payload[1] if kind in (CALL, TIMER) else payload


def _messages(messages: list[Fields]) -> str:
    return f"[{','.join(map(_message, messages))}]"


def _message(fields: Fields) -> str:
    """JSON of one message; `exact` only where the plain form would lose something."""
    args, _ = recorded_args(fields["payload"], fields["method"])
    encoded = to_json(args)
    head = json.dumps({name: value for name, value in fields.items() if name != "payload"}, separators=(",", ":"))
    parts = [head[:-1], f'"args":{encoded.text}']
    if encoded.truncated:
        parts.append('"args_truncated":true')
    else:
        tagged = to_json([exact(item) for item in args]).text
        if tagged != encoded.text:
            parts.append(f'"exact":{tagged}')
    return f"{','.join(parts)}}}"
