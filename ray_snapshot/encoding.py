"""Values as strict JSON text, readable and bounded, whatever they are.

`to_json` never raises and never calls the program's own code, except `__machine_name__` of a handle and the
`repr` of types written in C: what it finds in dictionaries, slots and fields is what it writes. A small plain
value goes straight to the C encoder; everything else is first reduced to plain lists and dictionaries (by
`ray_snapshot.plain`). The tagged forms, `{"$bytes": ...}` and the like, are listed in `docs/reference/json.md`.
Only the standard library is imported.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

from ray_snapshot import redaction
from ray_snapshot.fields import in_class
from ray_snapshot.plain import LARGEST_INTEGER, Reducer, TooMuch, type_name

MOST_BYTES = 8_000_000
"""The longest text of one value, in bytes of UTF-8."""

HEAD_BYTES = 64_000
"""How much of a value is shown whose text would be longer than that."""

STATE_MS = 200.0
"""How long the text of one machine's state may take, in milliseconds of processor time: the machine stands still meanwhile."""

RETRY_EVERY = 16
"""A machine whose state took longer gets `STATE_MS` divided by this, except in one of so many snapshots."""

_CUT_OFF = '{"$truncated":'
PLAIN_DEPTH = 3
PLAIN_ITEMS = 64
PLAIN_CHARACTERS = 256
"""A value that is deeper, or has longer containers or texts in it, does not go to the encoder in C as it is."""

SIMPLE = frozenset({float, bool, type(None)})
_SURROGATE = re.compile("[\ud800-\udfff]")


class Patience:
    """Decides how long the state of one machine may take: only a little if the last one took too long and was cut
    off."""

    __slots__ = ("cut_offs",)

    def __init__(self) -> None:
        self.cut_offs = 0

    def to_json(self, state: Any) -> Encoded:
        """The state's text, made within `STATE_MS` or a small part of that, else cut off."""
        is_whole_tried = self.cut_offs % RETRY_EVERY == 0
        found = to_json(state, STATE_MS if is_whole_tried else STATE_MS / RETRY_EVERY)
        self.cut_offs = self.cut_offs + 1 if found.text.startswith(_CUT_OFF) else 0
        return found


class Encoded(NamedTuple):
    """JSON text of a value, whether it was cut, and how many bytes the whole would have had (cut: about)."""

    text: str
    truncated: bool
    size: int


def to_json(value: Any, most_ms: float | None = None) -> Encoded:
    """Strict JSON text of any value, at most `MOST_BYTES` long; never raises.

    A value whose text would be longer, or take more than `most_ms` of this thread's processor time, becomes
    `{"$truncated": {"bytes", "read", "sha256", "head"}}` as soon as that is known; a long string, blob or array
    inside it is cut alone, so that the rest stays whole. Costs 2 to 3 us for a small plain dictionary, and at most the
    time of `MOST_BYTES` of text for a large value, however large.
    """
    try:
        if not redaction.is_active and is_plain(value):
            text = dumped(value)
            if text.isascii() and len(text) <= MOST_BYTES:
                return Encoded(text, False, len(text))
    except Exception:  # not a number, or changed by another thread meanwhile: the long way can tell
        pass
    try:
        return _reduced(value, None if most_ms is None else time.thread_time() + most_ms / 1e3)
    except Exception as error:
        text = dumped({"$unreadable": type_name(type(value)), "error": type(error).__name__})
        return Encoded(_clean(text), True, len(text))


def is_plain(value: Any, depth: int = PLAIN_DEPTH) -> bool:  # noqa: PLR0912 - called for every state and message
    """Whether the C encoder can take it as it is: small, shallow, exact built-in types, short integers, handles."""
    kind: Any = type(value)
    if kind is dict:
        for key in value:
            if type(key) is not str or len(key) > PLAIN_CHARACTERS:
                return False
        items = value.values()
    elif kind is list:
        items = value
    else:
        items = (value,)
        if kind is not str and kind is not int and kind not in SIMPLE:
            return False
    if len(items) > PLAIN_ITEMS:
        return False
    for item in items:
        kind = type(item)
        if kind is str:
            if len(item) > PLAIN_CHARACTERS:
                return False
        elif kind is int:
            if not -LARGEST_INTEGER <= item <= LARGEST_INTEGER:
                return False
        elif kind in SIMPLE:
            pass
        elif kind is dict or kind is list:
            if depth == 1 or not is_plain(item, depth - 1):
                return False
        elif (name := name_function(kind)) is None or len(name(item)) > PLAIN_CHARACTERS:
            return False
    return True


@lru_cache(10_000)
def name_function(kind: Any) -> Callable[[Any], str] | None:
    """What tells the machine's name, of a class of handles; None of any other class."""
    return None if in_class(kind, "__machine_name__") is None else kind.__machine_name__


def _handle(value: Any) -> dict[str, str]:
    """A machine's handle as it is written; called by the encoder for what it does not know."""
    return {"$machine": type(value).__machine_name__(value)}


def _reduced(value: Any, until: float | None) -> Encoded:
    reducer = Reducer(MOST_BYTES, gives_up=True, until=until)
    try:
        text = _clean(dumped(reducer.reduce(value)))
        size = _bytes(text)
        if size <= MOST_BYTES:
            return Encoded(text, reducer.truncated, size + reducer.bytes_cut)
    except TooMuch:
        size = MOST_BYTES - reducer.left
    return _head_of(value, size, size + reducer.bytes_cut)


def _head_of(value: Any, read: int, whole: int) -> Encoded:
    """What stands for a value of which `read` bytes were enough to see that it is too long."""
    head = _clean(dumped(Reducer(HEAD_BYTES).reduce(value)))
    digest = hashlib.sha256(head.encode()).hexdigest()
    text = f'{_CUT_OFF}{{"bytes":{whole},"read":{read},"sha256":"{digest}","head":{head}}}}}'
    return Encoded(text, True, whole)


def dumped(value: Any) -> str:
    """The text of a value that the encoder in C can take as it is (`is_plain`)."""
    text: str = "".join(_encode(value, 0))
    return text


def _make_encoder() -> Any:
    """The encoder in C, made once: `json.dumps` makes one for every call, which takes as long as its work."""
    encoder = json.JSONEncoder(
        ensure_ascii=False, allow_nan=False, check_circular=False, separators=(",", ":"), default=_handle
    )
    try:
        made = json.encoder.c_make_encoder(  # type: ignore[attr-defined]
            None, encoder.default, json.encoder.encode_basestring, None, ":", ",", False, False, False
        )
        if "".join(made({"a": [1, "é"]}, 0)) == '{"a":[1,"é"]}':
            return made
    except Exception:  # another Python's json: its public face does the same, more slowly
        pass
    return lambda value, _level: (encoder.encode(value),)


_encode = _make_encoder()


def _clean(text: str) -> str:
    r"""Write lone surrogates as the six characters `\udXXX`: they have no UTF-8, and many readers refuse."""
    if text.isascii():
        return text
    return _SURROGATE.sub(lambda found: f"\\\\u{ord(found[0]):04x}", text)


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())
