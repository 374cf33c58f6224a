"""Waits that are followed: `ray.get`, `ray.wait` and, in async actors, `await` of a ref."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayActorError, RayTaskError, TaskCancelledError

from ray_snapshot.instrument.envelopes import colour_of_error
from ray_snapshot.instrument.process import Process, here
from ray_snapshot.protocol.calls import parsed
from ray_snapshot.runtime.here import call_site_here


def get(
    original: Callable[..., Any], object_refs: Any, *args: Any, timeout: float | None = None, **options: Any
) -> Any:
    """In place of `ray.get`."""
    process = here()
    if process is None or not process.follows():
        return original(object_refs, *args, timeout=timeout, **options)
    refs = list(object_refs) if isinstance(object_refs, (list, tuple)) else [object_refs]
    return _followed(
        process, refs, len(refs), timeout, lambda: original(object_refs, *args, timeout=timeout, **options)
    )


def wait(
    original: Callable[..., Any],
    ray_waitables: Any,
    *args: Any,
    num_returns: int = 1,
    timeout: float | None = None,
    **options: Any,
) -> Any:
    """In place of `ray.wait`."""
    process = here()
    options = {"num_returns": num_returns, "timeout": timeout, **options}
    if process is None or not process.follows() or not isinstance(ray_waitables, (list, tuple)):
        return original(ray_waitables, *args, **options)
    return _followed(
        process, list(ray_waitables), num_returns, timeout, lambda: original(ray_waitables, *args, **options)
    )


def put(original: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """In place of `ray.put`: what is in the store may hold a handle, and be read by anybody who gets the ref."""
    process = here()
    if process is not None:
        process.puts += 1
    return original(*args, **options)


def _followed(process: Process, refs: list[Any], k: int, timeout: float | None, work: Callable[[], Any]) -> Any:
    if not refs:
        return work()
    site = call_site_here() or ""
    try:
        wait_id, on = process.begin_wait(refs, k, timeout, site, is_blocking=True)
    except Exception as error:
        process.give_up(error)
        return work()
    end = _End()
    try:
        found = work()
        if k == len(refs):
            end.answered = on
    except BaseException as error:
        end.by(error, on)
        raise
    finally:
        process.guarded(lambda: process.end_wait(wait_id, end.answered, end.colour, settled=end.settled))
    return found


class _End:
    """How a wait has ended: which calls were answered, which will never be, and the colour that came with it."""

    answered: Sequence[str | None] = ()
    settled: Sequence[str | None] = ()
    colour = 0

    def by(self, error: BaseException, on: list[str | None]) -> None:
        """The wait raised."""
        self.colour = colour_of_error(error)
        if len(on) == 1 and not isinstance(error, GetTimeoutError):
            if isinstance(error, (RayActorError, TaskCancelledError)):
                self.settled = on
            elif isinstance(error, RayTaskError):
                self.answered = on


class TrackedRef(ray.ObjectRef):  # type: ignore[misc]  # ray is skipped
    """A ref that knows which call answers it, wherever it is taken; its `await` is a tracked wait."""

    __slots__ = ("call_id",)

    def plain(self) -> Any:
        """The ref as Ray knows it."""
        return ray.ObjectRef(self.binary(), self.owner_address())

    def __await__(self) -> Generator[Any, None, Any]:
        """A generator of its own, for what awaits it is told from its frame (`coroutines`)."""
        process = here()
        site = call_site_here() or ""
        begun = None
        if process is not None and process.follows():
            begun = process.guarded(lambda: process.begin_wait([self], 1, None, site, is_blocking=False))
        if process is None or begun is None:
            return (yield from self.plain().__await__())
        wait_id, on = begun
        end = _End()
        try:
            found = yield from self.plain().__await__()
            end.answered = on
        except BaseException as error:
            end.by(error, on)
            raise
        finally:
            process.guarded(lambda: process.end_wait(wait_id, end.answered, end.colour, settled=end.settled))
        return found

    def __reduce__(self) -> tuple[Any, ...]:
        return _arrived, (self.plain(), self.call_id)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ray.ObjectRef) and bool(self.binary() == other.binary())

    __hash__ = ray.ObjectRef.__hash__


def tracked(refs: Any, call_id: str) -> Any:
    """The same refs, one or a list, with their call; anything but a plain ref as it is."""
    if type(refs) is not ray.ObjectRef:
        return [tracked(ref, call_id) for ref in refs] if isinstance(refs, list) else refs
    return tracked_ref(refs, call_id)


def tracked_ref(ref: Any, call_id: str) -> Any:
    """The same plain ref, with its call."""
    found = TrackedRef(ref.binary(), ref.owner_address())
    found.call_id = call_id
    return found


def _arrived(ref: Any, call_id: str) -> Any:
    """A ref that another process has passed on."""
    process = here()
    if process is None:
        return ref
    process.guarded(lambda: process.may_read(parsed(call_id).target))
    return tracked_ref(ref, call_id)
