"""Sessions that are open when the program calls `ray.shutdown()` are closed first: behind it nothing of them can be asked.

And whether a session's Ray is still there: each call to an actor would start another one, where there is none.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import wraps
from typing import Any, NamedTuple

import ray


class _Opened(NamedTuple):
    close: Callable[[], None]
    connection: tuple[str, str] | None
    """To Ray, when it began."""


_lock = threading.Lock()
"""Held around changes of what follows, and never while a session is closed."""

_open: dict[object, _Opened] = {}
"""The sessions of this process, the latest last."""

_ours: list[tuple[Any, Any]] = []
"""What was last put in the place of Ray's function, and what was there before."""


def opened(session: object, close: Callable[[], None]) -> None:
    """A session has begun; `close` finishes and writes what is pending, and ends it."""
    connection = _connection()
    with _lock:
        cell = _cell()
        if cell is not None and not (_ours and cell.cell_contents is _ours[0][0]):
            own = cell.cell_contents
            _ours[:] = [(_closing_first(own), own)]
            cell.cell_contents = _ours[0][0]
        _open[session] = _Opened(close, connection)


def closed(session: object) -> None:
    """It is over."""
    with _lock:
        _open.pop(session, None)
        cell = _cell()
        if not _open and _ours and cell is not None and cell.cell_contents is _ours[0][0]:
            cell.cell_contents = _ours.pop()[1]


def sessions() -> list[Any]:
    """Those that are open."""
    with _lock:
        return [*_open]


def has_ray(session: object) -> bool:
    """Whether this process still has the connection to Ray that the session began with."""
    return session not in _open or _open[session].connection == _connection()


def _connection() -> tuple[str, str] | None:
    if not ray.is_initialized():
        return None
    context = ray.get_runtime_context()
    return context.get_node_id(), context.get_job_id()  # jobs are counted from 1 in each cluster


def _cell() -> Any:
    """Where Ray's decorator of public functions keeps the function itself, whoever has imported it; None: not found there."""
    function: Any = ray.shutdown
    names = getattr(getattr(function, "__code__", None), "co_freevars", ())
    return function.__closure__[names.index("func")] if "func" in names else None


def _closing_first(own: Callable[..., Any]) -> Callable[..., Any]:
    """`ray.shutdown`, behind the end of all sessions; Ray is down in any case before what stopped a system is raised."""

    @wraps(own)
    def shutdown(*args: Any, **kwargs: Any) -> Any:
        trouble: Exception | None = None
        try:
            for session in reversed([*_open.values()]):
                try:
                    session.close()
                except Exception as error:
                    trouble = trouble or error
        finally:
            found = own(*args, **kwargs)
        if trouble is not None:
            raise trouble
        return found

    return shutdown
