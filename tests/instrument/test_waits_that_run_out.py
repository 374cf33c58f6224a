"""What the end of a wait tells of the calls that it was for: one that is not known to be accepted stays in the log."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
import ray
from lone_process import lone_process, wire
from ray.exceptions import GetTimeoutError, RayActorError, RayTaskError

from ray_snapshot.instrument.hooks import calls, tracking
from ray_snapshot.runtime.refs import tracked

FAILED = RayTaskError("f", "", ValueError("no"))


def raising(error: Exception) -> Callable[..., Any]:
    def work(*_: Any, **__: Any) -> Any:
        raise error

    return work


def logged(wait: Callable[..., Any], original: Callable[..., Any], count: int, **options: Any) -> list[int]:
    """The calls that are in the log of a process that has waited for `count` of its calls."""
    with lone_process() as process:
        with calls._begun("f", wire(process, 1), (object(),)):
            refs = []
            for number in range(1, count + 1):
                process.submit("B", "g", (), False, ())
                refs.append(tracked(ray.ObjectRef.from_random(), f"A/0/B/{number}"))
            with suppress(RayTaskError, RayActorError, GetTimeoutError):
                wait(original, refs, **options)
        return [*process.ledger.outputs["B"].log]


@pytest.mark.parametrize("ready", [0, 1, 2])
def test_a_wait_in_which_no_reply_was_read_says_nothing(ready: int) -> None:
    """Its target may have accepted it in red: to a machine that is white yet it must stay in flight."""

    def found(refs: Any, **_: Any) -> Any:
        return refs[:ready], refs[ready:]

    assert logged(tracking.wait, found, 2, num_returns=2, timeout=0.1) == [1, 2]


def test_a_get_that_returns_says_that_all_were_accepted() -> None:
    assert logged(tracking.get, lambda refs, **_: [None for _ in refs], 2) == []


@pytest.mark.parametrize("error", [FAILED, RayActorError(), GetTimeoutError()])
def test_of_a_list_an_error_does_not_say_whose_it_is(error: Exception) -> None:
    assert logged(tracking.get, raising(error), 2) == [1, 2]


@pytest.mark.parametrize(("error", "expected"), [(FAILED, []), (RayActorError(), []), (GetTimeoutError(), [1])])
def test_the_error_of_one_call_is_its_own(error: Exception, expected: list[int]) -> None:
    assert logged(tracking.get, raising(error), 1) == expected
