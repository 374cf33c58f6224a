"""How an action is ended at the place where it waits, to be done again from its beginning with what has come.

Where there is no host (`runtime.staged`), an action is never suspended: it is unwound by an exception that the user's code must
not catch. Never imports Ray.
"""

from __future__ import annotations

import ast
import linecache
import types
from collections.abc import Callable
from functools import lru_cache

from ray_snapshot.runtime.here import OURS, USERS, rank_of

END = "_run"
"""The function of ours below which an action's frames lie."""


class Unwound(BaseException):
    """Ends an action at the place where it needs an input that is still to come. User code must not catch it."""


def is_library(file: str) -> bool:
    """Whether a file is Python's, a library's (of whatever environment is on the path), or ours."""
    return rank_of(file) != USERS


def handler_around(frame: types.FrameType | None, is_library: Callable[[str], bool] = is_library) -> str | None:
    """ "file:line" of the handler that would catch what unwinds an action from this frame, as far as that can be seen."""
    while frame is not None:
        file = frame.f_code.co_filename
        line = None if is_library(file) else _catching(file, frame.f_lineno)
        if line is not None:
            return f"{file}:{line}"
        if frame.f_code.co_name == END and rank_of(file) == OURS:
            return None
        frame = frame.f_back
    return None


def told_caught(told: str, site: str | None, handler: str | None) -> str:
    """What is wrong with an action that caught what was to end it where it waits."""
    where = f"the handler at {handler}" if handler else f"code around {site}"
    return (
        f"{told} goes on behind a wait that is not over: {where} catches BaseException. An action that waits is ended there and"
        " done again; catch Exception, or the errors that you mean"
    )


def _catching(file: str, line: int) -> int | None:
    """The line of the innermost handler around a line that catches everything; None if there is none, or no source."""
    found = None
    for first, last, handler in _handlers(file):
        if first <= line <= last:
            found = handler
    return found


@lru_cache(1_000)
def _handlers(file: str) -> tuple[tuple[int, int, int], ...]:
    """(first line, last line, handler) of what stands under a `try` that catches everything; outer ones first."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except SyntaxError:
        return ()
    found = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Try):
            continue
        catching = [handler.lineno for handler in node.handlers if _is_for_all(handler)]
        catching += [item.lineno for item in node.finalbody if isinstance(item, ast.Return | ast.Break | ast.Continue)]
        if catching:
            found.append((node.body[0].lineno, node.body[-1].end_lineno or node.body[-1].lineno, catching[0]))
    return tuple(sorted(found))


def _is_for_all(handler: ast.ExceptHandler) -> bool:
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    names = {getattr(kind, "id", getattr(kind, "attr", None)) for kind in kinds}
    return handler.type is None or "BaseException" in names
