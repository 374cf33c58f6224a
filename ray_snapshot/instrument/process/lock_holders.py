"""Which calls are inside `with` on the lock that a thread waits for, told from frames and the code's table of exceptions.

Only for the words: nothing is concluded from it. Runs no code of the app. Standard library only.
"""

from __future__ import annotations

import _thread
import dis
import threading
from collections.abc import Iterator, Mapping
from functools import cached_property, lru_cache
from types import CodeType, FrameType
from typing import Any

from ray_snapshot.instrument.process.called import awaited_object, call_names
from ray_snapshot.limits import LIMITS
from ray_snapshot.names import HELD_BY
from ray_snapshot.runtime.here import outward

LOCKS = (_thread.LockType, threading._CRLock, _thread.RLock)  # type: ignore[attr-defined]
_CONDITION_WAIT = threading.Condition.wait.__code__
"""It releases the condition's lock."""


class LockHolders:
    """Of one instant. `methods`: by thread the method that it runs ("": none); `frames`: the innermost frame of each."""

    def __init__(self, methods: Mapping[int, str], frames: Mapping[int, FrameType]) -> None:
        self.methods = methods
        self.frames = frames

    def of(self, frame: FrameType) -> str:
        """ "threading.RLock held by Account.transfer": what a thread with this innermost frame waits for; "" if no call is seen
        to hold it."""
        lock = _object_at(frame, frame.f_lasti)
        kind = "threading.Lock" if type(lock) is _thread.LockType else "threading.RLock"
        holders = [*self._holders.get(id(lock), ())][: LIMITS.named_holders]
        return f"{kind}{HELD_BY}{', '.join(holders)}" if holders else ""

    @cached_property
    def _holders(self) -> Mapping[int, Mapping[str, None]]:
        """By lock (its id): the methods, with their classes, that are inside `with` on it; or a thread's function."""
        found: dict[int, dict[str, None]] = {}
        for thread, method in self.methods.items():
            frames = list(outward(self.frames.get(thread)))
            name = next((one.f_code.co_qualname for one in frames if one.f_code.co_name == method), "")
            released = [awaited_object(one, "self", ("_lock",)) for one in frames if one.f_code is _CONDITION_WAIT]
            for frame in frames if name or not method else ():
                for lock in (_object_at(frame, at) for at in _entered(frame.f_code, frame.f_lasti)):
                    if issubclass(type(lock), LOCKS) and not any(lock is one for one in released):
                        found.setdefault(id(lock), {})[name or frame.f_code.co_qualname] = None
        return found


def _object_at(frame: FrameType, at: int) -> Any:
    """The object of the call, or of the `with`, at an instruction."""
    names = call_names(frame.f_code, at)
    return None if names is None else awaited_object(frame, *names[1:])


@lru_cache(256)
def _entered(code: CodeType, at: int) -> tuple[int, ...]:
    """Of the `with` blocks around an instruction: where each was entered."""
    table = dis.Bytecode(code).exception_entries  # type: ignore[attr-defined]
    return tuple(_around(table, {one.offset: one.opname for one in dis.get_instructions(code)}, at)) if table else ()


def _around(table: Any, ops: Mapping[int, str], at: int) -> Iterator[int]:
    seen = set[int]()
    while (entry := next((one for one in table if one.start <= at < one.end), None)) and entry.target not in seen:
        seen.add(at := entry.target)
        before = [offset for offset in ops if offset < min(one.start for one in table if one.target == at)]
        if ops.get(at + 2) == "WITH_EXCEPT_START" and ops[before[-1]] == "BEFORE_WITH":
            yield before[-1]
