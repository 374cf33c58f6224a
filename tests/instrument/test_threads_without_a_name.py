"""A thread that `threading` does not list may act as any other. No Ray is started in here."""

import _thread
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from ray.util.tracing.tracing_helper import _inject_tracing_into_class

from ray_snapshot.instrument.here import HARNESS, own_threads
from ray_snapshot.instrument.process.blocked_threads import BlockedThreads

BOUND_S = 10.0


def _acting_here() -> list[str]:
    return [name for name in BlockedThreads().report(own_threads(), 0.0).acting if __file__.rpartition("/")[2] in name]


class _Stands:
    """What a thread does that stands until it is let go."""

    def __init__(self) -> None:
        self.begun, self.ended, self.end = threading.Event(), threading.Event(), threading.Lock()

    def serve(self) -> None:
        self.begun.set()
        with self.end:
            self.ended.set()

    @contextmanager
    def standing(self, start: Callable[[], object]) -> Iterator[None]:
        with self.end:
            start()
            assert self.begun.wait(BOUND_S)
            yield
        assert self.ended.wait(BOUND_S)

    def made_in(self, module: str, text: str, name: str) -> Any:
        """Something that a module of that name would have, in this file's text."""
        space: dict[str, Any] = {"__name__": module, "threading": threading, "serve": self.serve}
        exec(compile(text, __file__, "exec"), space)
        return space[name]


class _Server(threading.Thread):
    def __init__(self, stands: _Stands) -> None:
        super().__init__()
        self.stands = stands

    def run(self) -> None:
        _serve(self.stands)


def _serve(stands: _Stands) -> None:
    stands.serve()


class _Traced(_Stands):
    """As an actor that has begun such a thread: Ray has put a function around each of its methods."""


_inject_tracing_into_class(_Traced)


@pytest.mark.parametrize("kind", [_Stands, _Traced])
def test_a_thread_that_threading_has_not_started_may_act_until_it_ends(kind: type[_Stands]) -> None:
    stands = kind()
    with stands.standing(lambda: _thread.start_new_thread(stands.serve, ())):
        (name,) = _acting_here()
        assert name.startswith("without a name (")


@pytest.mark.parametrize("how", ["its function", "its class"])
def test_a_thread_of_what_runs_the_program_is_none_of_the_apps(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stands, is_function = _Stands(), how == "its function"
    thread = threading.Thread(target=_serve, args=(stands,)) if is_function else _Server(stands)
    with stands.standing(thread.start):
        assert thread in own_threads()
        monkeypatch.setattr(_serve if is_function else _Server, "__module__", "pytest_rerunfailures")
        HARNESS.add("pytest_")
        try:
            assert thread not in own_threads()
        finally:
            HARNESS.discard("pytest_")
    thread.join(BOUND_S)


def test_such_a_thread_in_a_function_of_rays_or_ours_is_none_of_the_apps() -> None:
    stands = _Stands()
    work = stands.made_in("ray._private.function_manager", "def work():\n    serve()", "work")
    with stands.standing(lambda: _thread.start_new_thread(work, ())):
        assert _acting_here() == []


def test_a_debuggers_thread_that_threading_does_not_list_is_none_of_the_apps() -> None:
    stands, text = _Stands(), "class Own(threading.Thread):\n  def run(self):\n    serve()"
    thread = stands.made_in("_pydevd_bundle.pydevd_comm", text, "Own")()
    with stands.standing(thread.start):
        hidden = threading._active.pop(thread.ident)  # type: ignore[attr-defined]
        try:
            assert _acting_here() == []
        finally:
            threading._active[thread.ident] = hidden  # type: ignore[attr-defined]
    thread.join(BOUND_S)


def test_a_thread_that_a_debugger_starts_for_the_app_is_the_apps() -> None:
    stands, module = _Stands(), dict[str, Any](__name__="_pydev_bundle.pydev_monkey")
    exec("def start(work):\n    work()", module)
    with stands.standing(lambda: _thread.start_new_thread(module["start"], (stands.serve,))):
        assert len(_acting_here()) == 1


@pytest.mark.parametrize(
    ("module", "is_own"),
    [
        *(
            (f"ipykernel.{name}", False)
            for name in ("iostream", "heartbeat", "control", "shellchannel", "parentpoller")
        ),
        *((name, False) for name in ("IPython.core.history", "zmq.utils.garbage", "tqdm._monitor")),
        ("ipykernel.subshell", True),
    ],
)
def test_of_the_threads_of_a_notebooks_kernel_only_one_that_runs_cells_is_the_apps(
    module: str, is_own: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    stands = _Stands()
    thread = _Server(stands)
    monkeypatch.setattr(_Server, "__module__", module)
    with stands.standing(thread.start):
        assert (thread in own_threads()) is is_own
    thread.join(BOUND_S)
