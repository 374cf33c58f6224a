"""Actors without Ray; on them the part of a service that goes back, and a program's session."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from ray_snapshot.protocol.coordinator import Coordinator
from ray_snapshot.protocol.recovery_line import Allowance
from ray_snapshot.runtime.service.config import ServiceConfig
from ray_snapshot.runtime.service.course import Course
from ray_snapshot.runtime.service.directory import Directory
from ray_snapshot.runtime.service.handing_over import HandOver
from ray_snapshot.runtime.service.orders import Orders
from ray_snapshot.runtime.service.recovery import Recovery
from ray_snapshot.runtime.session import Session
from ray_snapshot.runtime.settings import settings_of


class Nothing:
    async def gone(self, host: str, reason: str, incarnation: int) -> None: ...

    async def fail(self, error: Any, generation: int | None = None) -> None: ...

    def give_up_all(self, reason: str) -> None: ...

    async def handed_over(self, snapshot_id: str) -> None: ...


def fail(error: Exception) -> None:
    raise error


def recovery_with(analyst: Any) -> Recovery:
    """Of a system that goes back by itself, with no host; inside an event loop or before one begins."""
    config = ServiceConfig("alone", "run", "observer", 8, 30.0, recover=True)
    course, directory = Course(config.system, fail), Directory(config.system, config.protocol)
    orders = Orders(course, directory, Allowance(is_bounded=True), lambda: found.generation)
    handing = HandOver(analyst, is_again=True)
    found = Recovery(config, course, directory, orders, Coordinator(), handing, Nothing())
    return found


class Calm:
    failure = None

    def check(self) -> None: ...

    def raises(self, error: Any) -> None: ...

    def has_raised(self, error: Any) -> bool:
        return False

    def rest(self) -> AbstractContextManager[None]:
        return nullcontext()

    def close(self) -> None: ...


class Program(Session):
    """A session whose service and analyst a test plays; `memory`: what it remembers for their next lives."""

    def __init__(self, memory: Any = None, **settings: Any) -> None:
        super().__init__("shop", settings_of(settings), kind="System", history=None, detectors=[])
        self.memory = memory
        self._part = Calm()

    @property
    def _memory(self) -> Any:
        return self.memory

    def snapshot(self, *, timeout: float | None = None) -> Any:
        raise NotImplementedError

    def _leave(self) -> None: ...

    def _again(self, make: Callable[[], Any], what: str, timeout: float = 60.0) -> Any:
        return make()
