"""What a thread calls that stands in C, by the names in the code: `self.lock.acquire()`. Runs no code of the app.

Standard library only.
"""

from __future__ import annotations

import dis
import inspect
import sys
from functools import lru_cache
from types import CodeType, FrameType
from typing import Any


def awaited_object(frame: FrameType, variable: str, attributes: tuple[str, ...]) -> Any:
    """The object of a call in C, as in `self.lock.acquire()`; None if names do not lead to it. Runs no code of the app."""
    item = local_variable(frame, variable)
    for name in attributes:
        item = inspect.getattr_static(item, name, None)
    return item


@lru_cache(256)
def call_names(code: CodeType, at: int) -> tuple[str, str, tuple[str, ...]] | None:
    """(method, variable, attributes) of the call at an instruction, as in `a.b.method(names, ...)`; None if it is another one.

    The variable is "" where the method is that of no name: `a().method()`.
    """
    chain, method = [part for one in dis.get_instructions(code) if one.offset <= at for part in _parts(one)], "acquire"
    name, given = chain.pop() if chain else ("", 0)
    if name != "BEFORE_WITH":
        if not name.startswith("CALL"):
            return None
        left = given + (name == "CALL_KW")  # whose names are one more
        while chain and (chain[-1][0] in _BEFORE_A_CALL or left > 0):
            one, _ = chain.pop()
            left -= one.startswith(_LOADS)
            if not one.startswith((*_LOADS, *_BEFORE_A_CALL, "LOAD_ATTR")):
                return None
        if not chain or chain[-1][0] not in ("LOAD_METHOD", "LOAD_ATTR"):
            return None
        method = chain.pop()[1]
    attributes: list[str] = []
    while chain and chain[-1][0] == "LOAD_ATTR":
        attributes.append(chain.pop()[1])
    if not chain or not chain[-1][0].startswith(_LOADS[1:]):
        return method, "", ()
    return method, chain[-1][1], tuple(reversed(attributes))


_LOADS = ("LOAD_CONST", "LOAD_FAST", "LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF")
_BEFORE_A_CALL = ("PRECALL", "KW_NAMES", "PUSH_NULL")


def _parts(one: dis.Instruction) -> list[tuple[str, Any]]:
    """(name, argument): two of `LOAD_FAST_LOAD_FAST` and the like, into which Python 3.13 joins some."""
    if isinstance(one.argval, tuple) and "_FAST_" in one.opname:
        return [*zip(one.opname.replace("FAST_", "FAST ").split(), one.argval, strict=True)]
    return [] if one.opname == "EXTENDED_ARG" else [(one.opname, one.argval)]


def local_variable(frame: FrameType, name: str) -> Any:
    """A variable of a frame, or of its module."""
    values = local_variables(frame, name)
    return values[name] if values else frame.f_globals.get(name)


def local_variables(frame: FrameType, *names: str) -> dict[str, Any]:
    """Those variables of a frame that it has. Up to Python 3.12 a frame keeps the dictionary of its locals: it is emptied
    again, unless the app has it, so that no object of the app lives longer than without us."""
    own = frame.f_locals
    values = {name: own[name] for name in names if name in own}
    if _KEEPS_LOCALS and frame.f_code.co_flags & inspect.CO_OPTIMIZED and sys.getrefcount(own) <= _REFS_OF_LOCALS:
        own.clear()
    return values


_KEEPS_LOCALS = sys.version_info < (3, 13)
_REFS_OF_LOCALS = 3
"""The frame's, the variable's, and that of `sys.getrefcount`."""
