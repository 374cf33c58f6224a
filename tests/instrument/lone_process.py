"""A watched process without Ray: its watcher never answers, threads from before are not its own, and nothing of it is left."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
from ray._private.function_manager import FunctionActorManager

from ray_snapshot.instrument.here import CURRENT, own_threads, settle_in
from ray_snapshot.instrument.hooks import calls, headers
from ray_snapshot.instrument.process import handed, recording, reloading
from ray_snapshot.instrument.process.process import Process
from ray_snapshot.instrument.process.reloading import Terms
from ray_snapshot.protocol.calls import CallLedger, Header

BOUND_S = 10.0

PLAINLY: Any = FunctionActorManager._make_actor_method_executor
"""As Ray calls methods without us."""


class Silent:
    def __getattr__(self, name: str) -> Any:
        return self

    def remote(self, *_: Any) -> Any:
        return self

    def future(self) -> Any:
        return self

    def add_done_callback(self, _: Any) -> None:
        """It never comes."""


@contextmanager
def lone_process(ledger: CallLedger | None = None, terms: Terms | None = None) -> Iterator[Process]:
    """The process that this one takes itself for meanwhile; by default of a machine `A`."""
    found = Process("app:1", Silent(), ledger or CallLedger("A"), {}, *([terms] if terms else []))
    settle_in(found)
    strangers = {*threading.enumerate()}
    with pytest.MonkeyPatch.context() as patch:
        for module in (handed, recording, reloading):
            patch.setattr(module, "own_threads", lambda: [one for one in own_threads() if one not in strangers])
        try:
            yield found
        finally:
            found.is_closed = True
            found.control.end()
            found.control.thread.join(BOUND_S)
            settle_in(None)
            CURRENT.set(None)  # a call whose end a test has broken is never left


def wire(process: Process, number: int) -> bytes:
    """The header of the driver's call of that number, as it travels."""
    return headers.packed(process.system, None, Header("driver", 0, number, 0, 1))


class Called:
    """An actor's object: its methods are called as Ray calls them, with a header or without; the rest is the object's own."""

    def __init__(self, own: Any, make: Any = None) -> None:
        self._own = own
        self._make = make or calls.executing(PLAINLY)

    def __getattr__(self, name: str) -> Any:
        method = getattr(type(self._own), name, None)
        return partial(self._make(None, name, method), self._own) if callable(method) else getattr(self._own, name)


def acting(process: Process, own: Any) -> Any:
    """`own`, which is the process's object, as Ray calls it."""
    process.body = own
    return Called(own)
