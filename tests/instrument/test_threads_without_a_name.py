"""A thread that `threading` does not list may act as any other: no Ray in here."""

from __future__ import annotations

import _thread
import threading

from ray_snapshot.instrument.here import own_threads
from ray_snapshot.instrument.process.threads import threads_of

BOUND_S = 10.0


def _acting_here() -> list[str]:
    """The threads of this file that may act."""
    return [name for name in threads_of(own_threads()).acting if __file__.rpartition("/")[2] in name]


def test_a_thread_that_threading_has_not_started_may_act_until_it_ends() -> None:
    begun, end, ended = threading.Event(), threading.Lock(), threading.Event()

    def work() -> None:
        begun.set()
        with end:
            ended.set()

    with end:
        _thread.start_new_thread(work, ())
        assert begun.wait(BOUND_S)
        (name,) = _acting_here()
        assert name.startswith("without a name (")
    assert ended.wait(BOUND_S)


def test_such_a_thread_in_a_function_of_rays_or_ours_is_none_of_the_apps() -> None:
    begun, end, ended = threading.Event(), threading.Lock(), threading.Event()
    module = {"__name__": "ray._private.function_manager", "begun": begun, "end": end, "ended": ended}
    text = "def work():\n    begun.set()\n    with end:\n        ended.set()"
    exec(compile(text, __file__, "exec"), module)
    with end:
        _thread.start_new_thread(module["work"], ())  # type: ignore[arg-type]
        assert begun.wait(BOUND_S)
        assert _acting_here() == []
    assert ended.wait(BOUND_S)
