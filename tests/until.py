"""The one loop of the tests that asks again and again, with a bound; imports nothing of ours, so that any process can."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def until(
    ask: Callable[[], T],
    *,
    good: Callable[[T], object] = bool,
    seconds: float = 60.0,
    again: tuple[type[BaseException], ...] = (),
) -> T:
    """The first answer that is `good`; asked again after one that is not, and after an error of `again`.

    Between two questions it waits as long as the last one took: a question takes time from the program that it is about.
    Raises `AssertionError` with the last answer, or the last such error, past `seconds`.
    """
    deadline = time.monotonic() + seconds
    while True:
        begun = time.monotonic()
        try:
            if good(last := ask()):
                return last
            said = f"the last answer was {last!r}"
        except again as error:
            said = f"the last error was {error!r}"
        took = time.monotonic() - begun
        assert begun + took < deadline, f"not within {seconds:g} s; {said}"
        time.sleep(max(0.05, took))
