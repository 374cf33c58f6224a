"""Tracked waits: `ray.get` and `ray.wait`, as called by machines and by the driver.

A machine that waits inside an action gives its host's floor to the other machines, is recorded as blocked with the place
in its source, and comes back only at a boundary, after everything its reply was red for has been recorded. With a timeout
the waiter may act unasked: it is recorded as active.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import ray

from ray_snapshot.names import DRIVER
from ray_snapshot.runtime.handles import POSTS
from ray_snapshot.runtime.here import HERE, call_site_here


@dataclass(slots=True)
class TrackedWait:
    """What one machine waits for inside an action."""

    k: int
    on: list[tuple[str, str]]
    """(machine, call id) of each call waited for."""
    has_foreign: bool
    """Whether it also waits for something that no machine of the system owes it."""
    timeout: float | None
    call_site: str | None
    since: float = field(default_factory=time.time)


_original: dict[str, Callable[..., Any]] = {}


def install() -> None:
    """Replace `ray.get` and `ray.wait` in this process by tracked ones; once."""
    if _original:
        return
    _original.update(get=ray.get, wait=ray.wait)
    ray.get = functools.wraps(ray.get)(_get)
    ray.wait = functools.wraps(ray.wait)(_wait)


def uninstall() -> None:
    """Put Ray's own functions back."""
    if _original:
        ray.get, ray.wait = _original["get"], _original["wait"]
        _original.clear()


def raw_get(refs: Any, *, timeout: float | None = None) -> Any:
    """Ray's own `ray.get`, for our own waits."""
    return _original.get("get", ray.get)(refs, timeout=timeout)


def _get(refs: Any, *args: Any, **kwargs: Any) -> Any:
    listed = refs if isinstance(refs, (list, tuple)) else [refs]
    with _tracked(listed, len(listed), kwargs.get("timeout")):
        return _original["get"](refs, *args, **kwargs)


def _wait(refs: Any, *args: Any, **kwargs: Any) -> Any:
    with _tracked(list(refs), kwargs.get("num_returns", 1), kwargs.get("timeout")):
        return _original["wait"](refs, *args, **kwargs)


@contextmanager
def _tracked(refs: Any, k: int, timeout: float | None) -> Iterator[None]:
    post: Any = HERE.post if HERE.post is not None else _driver()
    if post is None or not refs or HERE.is_waiting or (HERE.post is not None and HERE.machine is None):
        yield
        return
    on = [call for ref in refs if (call := post.calls.get(ref)) is not None]
    wait = TrackedWait(k, on, len(on) < len(refs), timeout, call_site_here())
    token = post.begin_wait(wait)
    try:
        yield
    finally:
        post.end_wait(token)


def _driver() -> Any:
    posts: list[Any] = [post for post in POSTS.values() if post.host == DRIVER]
    return next((post for post in posts if post.is_user_thread()), None)
