"""Rows of channels and messages as tuples; and all that a process without machines reports.

Imports no Arrow: a watched actor that sends to machines makes its rows in the user's own process. Hosts make columns
of thousands together (`ends`, `message_columns`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ray_snapshot.encoding import to_json
from ray_snapshot.protocol.collector import HostReport
from ray_snapshot.protocol.host import Creation
from ray_snapshot.protocol.mailbox import CALL, TIMER, Mailbox, Message
from ray_snapshot.protocol.parts import MachineCopy
from ray_snapshot.runtime.payload import recorded_args

END_ROW = ("source", "target", "kind", "sent", "accepted", "in_flight", "held", "duplicates")
"""Columns of a channel as one of its ends sees it."""

MESSAGE_ROW = (
    *("source", "target", "kind", "number", "call_id", "method"),
    *("args", "args_truncated", "payload_bytes", "sent_at", "due_at"),
)
"""Columns of a message in flight."""


def message_row(source: str, target: str, kind: str, message: Message) -> tuple[Any, ...]:
    """A message in flight."""
    _, number, method, payload, sent_at, _ = message
    call_id, payload = payload if kind == CALL else (None, payload)
    due, payload = payload if kind == TIMER else (None, payload)
    args, size = recorded_args(payload, method)
    encoded = to_json(args)
    sent_us, due_us = int(sent_at * 1e6), None if due is None else int(due * 1e6)
    return source, target, kind, number, call_id, method, encoded.text, encoded.truncated, size, sent_us, due_us


@dataclass(slots=True)
class MailPart:
    """What a process that hosts no machines has sent to machines, at its instant: its channels, and what waits in it."""

    life: int = 0
    """Of which of the systems that have joined the watch."""
    counts: HostReport | None = None
    ends: list[tuple[Any, ...]] = field(default_factory=list)
    messages: list[tuple[Any, ...]] = field(default_factory=list)

    # ---- as `parts.reporting.Rows` ----------------------------------------------------------------------------------

    def machine(self, copy: MachineCopy) -> None:
        """The sender itself: its ledger tells of it."""

    def ends_of(self, copy: MachineCopy) -> None:
        """Channels to machines; nothing is sent to it by mail."""
        for channel, sent, waiting in copy.outputs:
            self.ends.append((copy.machine, channel.target, channel.kind, sent, 0, 0, len(waiting), 0))

    def late(self, mailbox: Mailbox, machine: str) -> None:
        """It gets none."""

    def message(self, source: str, target: str, kind: str, message: Message) -> None:
        """A message that waits here: a timer, or one for a machine whose host is not known."""
        self.messages.append(message_row(source, target, kind, message))

    def creation(self, creation: Creation) -> None:
        """It makes no machines."""
