"""Sessions that are open when the program calls `ray.shutdown()` are closed first: behind it nothing of them can be asked.

And whether a session's Ray is still there: each call to an actor would start another one, where there is none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import ray

from ray_snapshot.errors import RaySnapshotError


class _Opened(NamedTuple):
    close: Callable[[], None]
    connection: tuple[str, str] | None
    """To Ray, when it began."""


_open: dict[object, _Opened] = {}
"""The sessions of this process, the latest last."""

_own: list[Any] = []
"""Ray's function, while ours stands in its place."""


def opened(session: object, close: Callable[[], None]) -> None:
    """A session has begun; `close` finishes and writes what is pending, and ends it."""
    if not _own and (cell := _cell()) is not None:
        _own.append(cell.cell_contents)
        cell.cell_contents = _shutdown
    _open[session] = _Opened(close, _connection())


def closed(session: object) -> None:
    """It is over."""
    _open.pop(session, None)
    if not _open and _own and (cell := _cell()) is not None and cell.cell_contents is _shutdown:
        cell.cell_contents = _own.pop()


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


def _shutdown(*args: Any, **kwargs: Any) -> Any:
    """In place of `ray.shutdown`; what stopped a system is raised when Ray is down."""
    own: Callable[..., Any] = _own[0]
    trouble: RaySnapshotError | None = None
    for session in reversed([*_open.values()]):
        try:
            session.close()
        except RaySnapshotError as error:
            trouble = trouble or error
    own(*args, **kwargs)
    if trouble is not None:
        raise trouble
