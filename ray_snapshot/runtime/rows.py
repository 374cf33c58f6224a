"""Rows of channels and messages as tuples, as hosts make columns of them; and all that a process without machines reports.

Imports no Arrow: a watched actor that sends to machines makes its rows in the user's own process.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain, repeat
from typing import Any

from ray_snapshot.encoding import to_json
from ray_snapshot.encoding_many import texts_of_lists
from ray_snapshot.protocol.collector import HostReport
from ray_snapshot.protocol.host import Creation
from ray_snapshot.protocol.mailbox import CALL, MAIL, TIMER, Mailbox, Message
from ray_snapshot.protocol.parts import GroupCopy, MachineCopy
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


def message_columns(
    sources: Sequence[str], targets: Sequence[str], kinds: Sequence[str], messages: Sequence[Message]
) -> Any:
    """The columns of `message_row` of each message; most go from here to there, with small plain arguments."""
    payloads = [message[3] for message in messages]
    if {*kinds} == {MAIL} and {*map(type, payloads)} == {tuple} and (texts := texts_of_lists(payloads)) is not None:
        numbers, methods = [message[1] for message in messages], [message[2] for message in messages]
        sizes = [sum([len(item) if type(item) is str else 8 for item in payload]) for payload in payloads]
        times, none = [int(message[4] * 1e6) for message in messages], [None] * len(messages)
        return sources, targets, kinds, numbers, none, methods, texts, [False] * len(messages), sizes, times, none
    return [*zip(*map(message_row, sources, targets, kinds, messages), strict=True)]


def in_flight_of(copy: GroupCopy) -> Any:
    """The columns of the messages in flight to machines that were copied together, or waiting at them; None without any."""
    sources, targets, kinds, found = list[str](), list[str](), list[str](), list[Message]()
    if copy.queued:
        owners = [*chain.from_iterable(map(repeat, copy.machines, copy.box_counts))]
        for row, messages in copy.queued.items():
            box = copy.boxes[row]
            for _ in messages:
                sources.append(box.source)
                targets.append(owners[row])
                kinds.append(box.kind)
            found += messages
    if copy.waiting:
        owners = [*chain.from_iterable(map(repeat, copy.machines, copy.channel_counts))]
        for row, messages in copy.waiting.items():
            channel = copy.channels[row]
            for _ in messages:
                sources.append(owners[row])
                targets.append(channel.target)
                kinds.append(channel.kind)
            found += messages
    return message_columns(sources, targets, kinds, found) if found else None


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
