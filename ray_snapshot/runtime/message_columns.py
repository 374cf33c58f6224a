"""The columns of messages in flight, made column by column: no object a message, where their arguments are small and plain.

`rows.message_row` says what a row holds; here it is said of thousands together. What must be looked at by itself is: then the
messages beside it, of the same method, are too, a few hundred at most.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import chain, repeat
from operator import is_, itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ray_snapshot import redaction
from ray_snapshot.columns import inner, nothing
from ray_snapshot.encoding import PLAIN_ITEMS, dumped, to_json
from ray_snapshot.encoding_many import fit, texts_of_values
from ray_snapshot.large_columns import PIECE, joined, taken
from ray_snapshot.limits import LIMITS
from ray_snapshot.plain import LARGEST_INTEGER
from ray_snapshot.protocol.mailbox import ARGS, CALL, MAIL, METHOD, NUMBER, SENT_AT, TIMER, Message, names_and_kinds
from ray_snapshot.protocol.parts import GroupCopy
from ray_snapshot.runtime.ends import texts
from ray_snapshot.runtime.payload import recorded_args
from ray_snapshot.schema import MESSAGES

_NUMBER, _METHOD, _ARGS, _SENT_AT = map(itemgetter, (NUMBER, METHOD, ARGS, SENT_AT))
_SPECIAL = re.compile(r'[\x00-\x1f"\\]')
"""What JSON does not write as it is."""

_Arguments = tuple[Any, Any, Any]
"""Columns `args`, `args_truncated`, `payload_bytes`: arrays, or such in pieces."""


class InFlight:
    """Messages in flight, in the order in which their channels are shown; those of one channel come together."""

    def __init__(self) -> None:
        self.sources: list[str] = []
        self.targets: list[str] = []
        self.kinds: list[str] = []
        self.counts: list[int] = []
        """Of each channel shown: how many messages."""
        self.messages: list[Message] = []

    def add(self, source: str, target: str, kind: str, messages: Sequence[Message]) -> None:
        """The next messages, of one channel."""
        self.sources.append(source)
        self.targets.append(target)
        self.kinds.append(kind)
        self.counts.append(len(messages))
        self.messages += messages

    def add_group(self, copy: GroupCopy) -> None:
        """The messages in flight to machines that were copied together, then those that wait at them."""
        if copy.queued:
            owners = [*chain.from_iterable(map(repeat, copy.machines, copy.box_counts))]
            names, kinds = names_and_kinds([copy.senders[row] for row in copy.queued])
            self._add_all(names, (owners[row] for row in copy.queued), kinds, copy.queued)
        if copy.waiting:
            owners = [*chain.from_iterable(map(repeat, copy.machines, copy.channel_counts))]
            names, kinds = names_and_kinds([copy.receivers[row] for row in copy.waiting])
            self._add_all((owners[row] for row in copy.waiting), names, kinds, copy.waiting)

    def _add_all(
        self, sources: Iterable[str], targets: Iterable[str], kinds: str | list[str], messages: dict[int, list[Message]]
    ) -> None:
        self.sources += sources
        self.targets += targets
        self.kinds += repeat(kinds, len(messages)) if isinstance(kinds, str) else kinds
        self.counts += map(len, messages.values())
        self.messages += chain.from_iterable(messages.values())

    def table(self) -> pa.Table:
        """All of them, in the columns of `messages` without those that a whole snapshot has once."""
        if not self.messages:
            return nothing(MESSAGES)
        schema = inner(MESSAGES)
        at = np.repeat(np.arange(len(self.counts)), self.counts)
        names = [pa.array(column, pa.string()) for column in (self.sources, self.targets, self.kinds)]
        return pa.concat_tables(
            self._part(schema, names, at, first) for first in range(0, len(self.messages), LIMITS.column_messages)
        )

    def _part(self, schema: pa.Schema, names: Sequence[pa.Array], at: npt.NDArray[np.int64], first: int) -> pa.Table:
        """`at`: of each message, the place of its channel in `names`."""
        messages, at = self.messages[first : first + LIMITS.column_messages], at[first : first + LIMITS.column_messages]
        found: dict[str, Any] = {
            name: _taken(column, at) for name, column in zip(("source", "target", "kind"), names, strict=True)
        }
        payloads, methods = [*map(_ARGS, messages)], [*map(_METHOD, messages)]
        if {*self.kinds} != {MAIL}:
            kinds = [self.kinds[place] for place in at.tolist()]
            of_calls = [payload[0] if kind == CALL else None for kind, payload in zip(kinds, payloads, strict=True)]
            due = [
                int(payload[0] * 1e6) if kind == TIMER else None for kind, payload in zip(kinds, payloads, strict=True)
            ]
            found |= {"call_id": of_calls, "due_at": due}
            payloads = [payload if kind == MAIL else payload[1] for kind, payload in zip(kinds, payloads, strict=True)]
        found["args"], found["args_truncated"], found["payload_bytes"] = arguments(methods, payloads)
        found["number"] = [*map(_NUMBER, messages)]
        found["method"] = texts(methods)
        sent_at = np.fromiter(map(_SENT_AT, messages), np.float64, len(messages)) * 1e6
        found["sent_at"] = pa.array(sent_at.astype(np.int64)).cast(schema.field("sent_at").type)
        columns = [
            pa.nulls(len(messages), item.type)
            if (column := found.get(item.name)) is None
            else column
            if isinstance(column, pa.Array | pa.ChunkedArray)
            else pa.array(column, item.type)
            for item in schema
        ]
        return pa.table(columns, schema=schema).combine_chunks()


def _taken(column: pa.Array, at: npt.NDArray[np.int64]) -> pa.Array:
    """The values of a column at these places, of which each stands at least as often as it did before."""
    if at[0] == at[-1]:
        return pa.repeat(column[int(at[0])], len(at))
    return column.take(pa.array(at))


def _is_one(values: Sequence[Any]) -> bool:
    """Whether all are the same object."""
    return all(map(is_, values, repeat(values[0])))


def arguments(methods: Sequence[str], payloads: Sequence[Any]) -> _Arguments:
    """What `recorded_args` and `to_json` say of each payload for its method."""
    if _is_one(methods) and {*map(type, payloads)} == {tuple} and len({*map(len, payloads)}) == 1:
        return _of_alike(methods, payloads)
    sizes = [len(payload) if type(payload) is tuple else -1 for payload in payloads]
    alike: dict[tuple[str, int], list[int]] = defaultdict(list)
    for place, key in enumerate(zip(methods, sizes, strict=True)):
        alike[key].append(place)
    found = [
        _of_alike([methods[place] for place in places], [payloads[place] for place in places])
        for places in alike.values()
    ]
    order = np.empty(len(payloads), np.int64)
    order[[*chain.from_iterable(alike.values())]] = np.arange(len(payloads))
    together = pa.table([joined(columns) for columns in zip(*found, strict=True)], ["args", "truncated", "size"])
    args, truncated, size = taken(together, pa.array(order)).columns
    return args, truncated, size


def _of_alike(methods: Sequence[str], payloads: Sequence[Any]) -> _Arguments:
    """The same of payloads for one method that are tuples of one length, or none of which is a tuple."""
    count = len(payloads)
    if type(payloads[0]) is tuple and count >= LIMITS.packed_arguments:
        if (found := _together(payloads)) is not None:
            return found
        if count > LIMITS.special_arguments:
            firsts = range(0, count, LIMITS.special_arguments)
            parts = [
                _of_alike(methods[at : at + LIMITS.special_arguments], payloads[at : at + LIMITS.special_arguments])
                for at in firsts
            ]
            args, truncated, size = map(joined, zip(*parts, strict=True))
            return args, truncated, size
    recorded = [recorded_args(payload, method) for payload, method in zip(payloads, methods, strict=True)]
    encoded = [to_json(args) for args, _ in recorded]
    return (
        pa.array([one.text for one in encoded], pa.string()),
        pa.array([one.truncated for one in encoded], pa.bool_()),
        pa.array([size for _, size in recorded], pa.int64()),
    )


def _together(payloads: Sequence[tuple[Any, ...]]) -> _Arguments | None:
    """The same of tuples of one length; None if there is a value that must be looked at by itself."""
    count, width = len(payloads), len(payloads[0])
    if redaction.is_active or width > PLAIN_ITEMS:
        return None
    pieces: list[Any] = []
    size, text = np.zeros(count, np.int64), "["
    for place in range(width):
        column = [*map(itemgetter(place), payloads)]
        values = _values(column)
        if values is None:
            return None
        before, texts, after = values
        text += before
        if texts is not None:
            pieces += text, texts
            text = ""
        text += after + "," if place < width - 1 else after
        kinds = {*map(type, column)}
        if kinds == {str}:
            size += np.fromiter(map(len, column), np.int64, count)
        elif str in kinds:
            size += [len(value) if type(value) is str else 8 for value in column]
        else:
            size += 8
    text += "]"
    if count * (len(text) + sum(map(_longest, pieces))) > PIECE:
        return None
    args = pc.binary_join_element_wise(*pieces, text, "") if pieces else pa.repeat(pa.scalar(text), count)
    return args, pa.repeat(pa.scalar(value=False), count), pa.array(size)


def _longest(texts: str | pa.Array) -> int:
    """The bytes of the longest of some texts in ASCII."""
    return len(texts) if isinstance(texts, str) else pc.max(pc.binary_length(texts)).as_py()


def _values(column: Sequence[Any]) -> tuple[str, pa.Array | None, str] | None:
    """The JSON texts of some arguments at one place, all in ASCII, with what stands before and behind each of them.

    No column: all have the text before. None: there is one that the encoder in C cannot take as it is.
    """
    try:
        if _is_one(column):
            return (
                (text, None, "") if fit(column[:1], is_inside=True) and (text := dumped(column[0])).isascii() else None
            )
        kinds = {*map(type, column)}
        if kinds == {int}:
            numbers = pa.array(column, pa.int64())
            return ("", numbers.cast(pa.string()), "") if pc.min(numbers).as_py() >= -LARGEST_INTEGER else None
        if kinds == {bool}:
            return "", pa.array(column, pa.bool_()).cast(pa.string()), ""
        if not fit(column, is_inside=True):
            return None
        if kinds == {str} and (joined := "".join(column)).isascii() and _SPECIAL.search(joined) is None:
            return '"', pa.array(column, pa.string()), '"'
        written = [*texts_of_values(column)]
        return ("", pa.array(written, pa.string()), "") if all(map(str.isascii, written)) else None
    except (ValueError, OverflowError):  # not a number, or longer than 64 bits
        return None
