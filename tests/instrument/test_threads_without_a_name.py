"""A thread that `threading` does not list may act as any other: no Ray in here."""

from __future__ import annotations

import _thread
import threading
from typing import Any

import pytest

from ray_snapshot.instrument.here import HARNESS, own_threads
from ray_snapshot.instrument.process.blocked_threads import BlockedThreads

BOUND_S = 10.0


def _acting_here() -> list[str]:
    """The threads of this file that may act."""
    return [name for name in BlockedThreads().report(own_threads(), 0.0).acting if __file__.rpartition("/")[2] in name]


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


def _serve(begun: threading.Event, end: threading.Lock) -> None:
    begun.set()
    with end:
        pass


class _Server(threading.Thread):
    def __init__(self, begun: threading.Event, end: threading.Lock) -> None:
        super().__init__()
        self.given = begun, end

    def run(self) -> None:
        _serve(*self.given)


@pytest.mark.parametrize("how", ["its function", "its class"])
def test_a_thread_of_what_runs_the_program_is_none_of_the_apps(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, end = threading.Event(), threading.Lock()
    thread = threading.Thread(target=_serve, args=(begun, end)) if how == "its function" else _Server(begun, end)
    with end:
        thread.start()
        assert begun.wait(BOUND_S)
        assert thread in own_threads()
        where = _serve if how == "its function" else _Server
        monkeypatch.setattr(where, "__module__", "pytest_rerunfailures")
        HARNESS.add("pytest_")
        try:
            assert thread not in own_threads()
        finally:
            HARNESS.discard("pytest_")
    thread.join(BOUND_S)


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


def test_a_debuggers_thread_that_threading_does_not_list_is_none_of_the_apps() -> None:
    begun, end, ended = threading.Event(), threading.Lock(), threading.Event()
    module = {
        "__name__": "_pydevd_bundle.pydevd_comm",
        "begun": begun,
        "end": end,
        "ended": ended,
        "threading": threading,
    }
    text = "class Own(threading.Thread):\n  def run(self):\n    begun.set()\n    with end:\n      ended.set()"
    exec(compile(text, __file__, "exec"), module)
    thread: threading.Thread = module["Own"]()  # type: ignore[operator]
    with end:
        thread.start()
        assert begun.wait(BOUND_S)
        hidden = threading._active.pop(thread.ident)  # type: ignore[attr-defined]
        try:
            assert _acting_here() == []
        finally:
            threading._active[thread.ident] = hidden  # type: ignore[attr-defined]
    thread.join(BOUND_S)
    assert ended.is_set()


def test_a_thread_that_a_debugger_starts_for_the_app_is_the_apps() -> None:
    begun, end, ended = threading.Event(), threading.Lock(), threading.Event()
    module: dict[str, Any] = {"__name__": "_pydev_bundle.pydev_monkey"}
    exec("def start(work):\n    work()", module)

    def work() -> None:
        begun.set()
        with end:
            ended.set()

    with end:
        _thread.start_new_thread(module["start"], (work,))
        assert begun.wait(BOUND_S)
        assert len(_acting_here()) == 1
    assert ended.wait(BOUND_S)


@pytest.mark.parametrize(
    "module",
    [
        *(f"ipykernel.{name}" for name in ("iostream", "heartbeat", "control", "shellchannel", "parentpoller")),
        *("IPython.core.history", "zmq.utils.garbage", "tqdm._monitor"),
    ],
)
def test_the_threads_of_a_notebooks_kernel_are_none_of_the_apps(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _is_the_apps_own(module, monkeypatch) is False


def test_a_thread_in_which_a_kernel_runs_cells_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _is_the_apps_own("ipykernel.subshell", monkeypatch) is True


def _is_the_apps_own(module: str, monkeypatch: pytest.MonkeyPatch) -> bool:
    begun, end = threading.Event(), threading.Lock()
    thread = _Server(begun, end)
    monkeypatch.setattr(_Server, "__module__", module)
    with end:
        thread.start()
        assert begun.wait(BOUND_S)
        found = thread in own_threads()
    thread.join(BOUND_S)
    return found
