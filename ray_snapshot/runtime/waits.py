"""Tracked waits: `ray.get` and `ray.wait`, as called by machines and by the driver.

A machine that waits inside an action gives its host's floor to the other machines, is recorded as blocked with the place
in its source, and comes back only at a boundary, after everything its reply was red for has been recorded. With a timeout
the waiter may act unasked: it is recorded as active.
"""

from __future__ import annotations

import functools
import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.exceptions import RayError

from ray_snapshot.errors import HostDiedError, RolledBackError
from ray_snapshot.limits import LIMITS
from ray_snapshot.names import DRIVER
from ray_snapshot.protocol.call_messages import parsed
from ray_snapshot.runtime.faults import as_error, first_line, own_error
from ray_snapshot.runtime.handles import POSTS
from ray_snapshot.runtime.here import BEHIND, HERE, call_site_here
from ray_snapshot.runtime.refs import call_of


def in_threads() -> None:
    """Ray warns of `ray.get` in asynchronous actors; in this process it blocks threads, never the event loop."""
    logging.getLogger("ray._private.worker").addFilter(_is_no_warning_of_blocking)


def _is_no_warning_of_blocking(record: logging.LogRecord) -> bool:
    return "blocking ray.get inside async actor" not in record.getMessage()


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
    calls: list[str] = field(default_factory=list)
    """The calls of watched actors among what it waits for, if they are of this system."""
    since: float = field(default_factory=time.time)
    raises: bool = False
    """Whether the first error of any of them ends it."""
    error: BaseException | None = None
    """What it has ended in."""
    raised: BaseException | None = None
    """The same as the waiter meets it."""
    is_over: bool = False
    """Whether all of it has come."""
    function: str = "get"
    """`get`, `wait`, or `locate`: a call looks for the host of a machine."""
    refs: list[Any] = field(default_factory=list)
    """What it waits for."""
    result: Any = None
    """What has come of it, for a trace: a list of values of a get, what Ray answers of a wait."""

    @property
    def may_act(self) -> bool:
        """Whether the waiter may go on although no machine of the system lets it."""
        return self.timeout is not None or self.has_foreign

    @property
    def short_form(self) -> tuple[str, int, tuple[str, ...]]:
        """(`wait_mode`, `wait_k`, `waits_for`)."""
        names = tuple(dict.fromkeys([*(name for name, _ in self.on), *(parsed(call).target for call in self.calls)]))
        mode = "all" if self.k >= len(self.on) + len(self.calls) else "any" if self.k == 1 else "k_of_n"
        return mode, self.k, names

    def rows(self, alternative: int = 0) -> list[dict[str, Any]]:
        """Rows of the table `waits`, without the machine; none of a wait for actors too, of which a ledger tells."""
        if self.calls:
            return []
        since = int(self.since * 1e6)
        return [
            {"alternative": alternative, "k": self.k, "on_machine": name, "on_call_id": call_id, "waiting_since": since}
            for name, call_id in self.on
        ]


class CallBook:
    """Which machine owes the result behind a reference; kept by the reference's id, so that no result is kept alive."""

    def __init__(self) -> None:
        self._calls: OrderedDict[bytes, tuple[str, str]] = OrderedDict()
        self._undone: OrderedDict[bytes, str] = OrderedDict()
        """Calls of the past that a rollback has undone, by the machine that was called."""

    def add(self, ref: Any, target: str, call_id: str) -> None:
        """A call was made."""
        self._calls[ref.binary()] = target, call_id
        if len(self._calls) > LIMITS.remembered_calls:
            self._calls.popitem(last=False)

    def undo(self) -> None:
        """The system is rolled back: no result of a call that was made so far is accepted any more."""
        self._undone.update((ref, target) for ref, (target, _) in self._calls.items())
        self._calls.clear()
        while len(self._undone) > LIMITS.remembered_calls:
            self._undone.popitem(last=False)

    def check(self, refs: list[Any]) -> None:
        """Raise `RolledBackError` if one of these calls was undone."""
        for ref in refs if self._undone else ():
            target = self._undone.get(ref.binary()) if isinstance(ref, ray.ObjectRef) else None
            if target is not None:
                raise RolledBackError(
                    f"the call to {target} was made before the system was rolled back: its result is of a past that has been"
                    " given up; call again",
                    snapshot_id=None,
                )

    def find(self, refs: list[Any]) -> list[tuple[str, str]]:
        """(machine, call id) of those references that machines of the system owe."""
        known = (self._calls.get(ref.binary()) for ref in refs if isinstance(ref, ray.ObjectRef))
        return [call for call in known if call is not None]


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
    """Ray's own `ray.get`, for our own waits; raises what Ray raises."""
    get = BEHIND.get("get") or _original.get("get", ray.get)
    return get(refs, timeout=timeout)


def answer_of(ref: Any) -> Any:
    """What the service answers; raises errors of ours, bare.

    By a future: in an async actor of the user's Ray warns of `ray.get`.
    """
    try:
        return ref.future().result()
    except RayError as error:
        raise as_error(error) from None


def _get(*args: Any, **kwargs: Any) -> Any:
    refs = args[0] if args else kwargs.get("object_refs")
    is_list = isinstance(refs, (list, tuple))
    listed: list[Any] = list(refs) if isinstance(refs, (list, tuple)) else [refs]
    found = _tracked(
        listed,
        len(listed),
        kwargs.get("timeout"),
        lambda: _original["get"](*args, **kwargs) if is_list else [_original["get"](*args, **kwargs)],
        raises=True,
    )
    return found if is_list else found[0]


def _wait(*args: Any, **kwargs: Any) -> Any:
    refs = args[0] if args else kwargs.get("ray_waitables")
    listed = list(refs) if isinstance(refs, (list, tuple)) else []
    k, timeout = kwargs.get("num_returns", 1), kwargs.get("timeout")
    return _tracked(listed, k, timeout, lambda: _original["wait"](*args, **kwargs), function="wait")


def located(ref: Any) -> Any:
    """Wait for where a machine lives, so that others of this host can act meanwhile: the program sees nothing of that."""
    get = _original.get("get", ray.get)
    return _tracked([ref], 1, None, lambda: [get(ref)], raises=True, function="locate")[0]


def _tracked(
    refs: list[Any],
    k: int,
    timeout: float | None,
    wait: Callable[[], Any],
    *,
    raises: bool = False,
    function: str = "get",
) -> Any:
    """Wait, and let every system that this thread takes part in know of it."""
    posts = _posts() if refs and not HERE.is_waiting else []
    if not posts:
        return wait()
    site, tokens, is_ours, tracked = call_site_here(), [], False, []
    for post in posts:
        post.calls.check(refs)
        on = post.calls.find(refs)
        is_ours |= bool(on)
        calls = [call for ref in refs if (call := call_of(ref)) is not None] if post.is_joined else []
        is_foreign = len(on) + len(calls) < len(refs)
        tracked.append(
            TrackedWait(k, on, is_foreign, timeout, site, calls, raises=raises, function=function, refs=refs)
        )
        tokens.append(post.begin_wait(tracked[-1]))
    try:
        result = wait()
        for post, one in zip(posts, tracked, strict=True):
            post.calls.check(refs)  # the system may have been rolled back meanwhile
            if not raises:
                _hear(post, result[0])
            one.is_over = k == len(refs) and (raises or len(result[0]) == k)
            one.result = result
        return result
    except RayError as error:
        for one in tracked:
            one.error = one.raised = error
        own = own_error(error) if is_ours else None
        if own is None:
            raise
        if isinstance(own, HostDiedError) and own.host is None:
            own = _naming(own, posts, refs)
        for one in tracked:
            one.raised = own
        for post in posts:
            post.raises(own)
        raise own from None
    finally:
        for post, token in zip(posts, tokens, strict=True):
            post.end_wait(token)


def _hear(post: Any, there: list[Any]) -> None:
    """Who learns from `ray.wait` that a machine has answered, learns it with the colour of the reply: so that is read.

    Else a white machine could act on what a red one has done.
    (`test_who_waits_for_a_reply_without_reading_it_hears_its_colour`)
    """
    for ref in there:
        if post.calls.find([ref]):
            with suppress(RayError):
                raw_get(ref)


def _naming(error: HostDiedError, posts: list[Any], refs: list[Any]) -> HostDiedError:
    """The error again, with the machines that were waited for, and their host."""
    names = sorted({name for post in posts for name, _ in post.calls.find(refs)})
    places = {post.core.addresses.places.get(name) for post in posts for name in names} - {None}
    host = places.pop() if len(places) == 1 else None
    text = f"waited for {', '.join(names[:3])}{f' on {host}' if host else ''}, but the process is gone: {first_line(error)}"
    return HostDiedError(text, host=host, machines=names)


def _posts() -> list[Any]:
    """The systems whose machine this thread is at the moment: its host's, or those that its program drives."""
    if HERE.post is not None:
        return [HERE.post] if HERE.machine is not None else []
    return [post for post in POSTS.values() if post.member.host == DRIVER]
