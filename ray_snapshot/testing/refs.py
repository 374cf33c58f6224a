"""References to results of calls, as machines hold them under `ray_snapshot.testing`. Never imports Ray."""

from __future__ import annotations

from typing import Any


class CallRef:
    """The result of a call that may still be to come: what `handle.method.remote(...)` returns here."""

    __slots__ = ("caller", "number")

    def __init__(self, caller: str, number: int) -> None:
        self.caller = caller
        self.number = number

    @property
    def key(self) -> tuple[str, int]:
        return self.caller, self.number

    def __eq__(self, other: object) -> bool:
        return type(other) is CallRef and other.key == self.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __repr__(self) -> str:
        return f"<result of call {self.number} of {self.caller}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return CallRef, self.key
