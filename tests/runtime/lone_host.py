"""A host without Ray: the real one, with its threads, between a driver's core and a service that only writes down."""

import asyncio
import pickle
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

from until import until

from ray_snapshot.names import DRIVER
from ray_snapshot.protocol.choosing import core_for
from ray_snapshot.protocol.commands import HostCommand
from ray_snapshot.protocol.mailbox import CALL, MAIL
from ray_snapshot.runtime.classes import packed
from ray_snapshot.runtime.collected import HostPayload
from ray_snapshot.runtime.host.actor import obey
from ray_snapshot.runtime.host.config import HostConfig
from ray_snapshot.runtime.host.post import HostPost
from ray_snapshot.runtime.report import HostPart

HOST = "host-0"


class Actor:
    """The service, or another host: takes every call, writes it down, and answers with what `answers` has."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.heard: list[tuple[str, tuple[Any, ...]]] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Method(self, name)

    def of(self, name: str) -> list[tuple[Any, ...]]:
        return [args for found, args in [*self.heard] if found == name]


class _Method:
    def __init__(self, actor: Actor, name: str) -> None:
        self.actor, self.name = actor, name

    def remote(self, *args: Any) -> Any:
        self.actor.heard.append((self.name, args))
        answer: Future[Any] = Future()
        if self.name in self.actor.answers:
            answer.set_result(self.actor.answers[self.name])
        return _Awaitable(answer)


class _Awaitable:
    """What Ray gives: may be awaited on any loop. One that is never answered ends with its task."""

    def __init__(self, answer: Future[Any]) -> None:
        self.answer = answer

    def __await__(self) -> Any:
        return asyncio.wrap_future(self.answer).__await__()


class LoneHost:
    """`post` is the host; `driver` is the core of the one who creates its machines and sends to them."""

    def __init__(self, **options: Any) -> None:
        given: dict[str, Any] = {
            "run_id": "lone", "host": HOST, "colour": 0, "open_at_birth": (), "protocol": "observer",
            "alignment_timeout": None, "mailbox_bound": 100, "send_timeout": 30.0, "spawn_timeout": 30.0, "import_path": (),
        }  # fmt: skip
        self.service = Actor(report=None, fail=None, trace=None, stopped=None, lost=None, locate={}, actor_of=[Actor()])
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, name="ray-snapshot-lone", daemon=True)
        self.post = HostPost(HostConfig(**given | options), self.service, self.loop)
        self.begin_driver()

    def begin_driver(self) -> None:
        self.driver = core_for(self.post.config.protocol, DRIVER)
        self.me = self.driver.born(DRIVER, self)
        self.driver.acting = None

    def create(self, name: str, kind: type, *args: Any) -> None:
        with self.post.member.lock:
            self.driver.create(DRIVER, name, HOST, (*packed(kind), args), time.time())
        self._deliver()

    def send(self, name: str, method: str, *args: Any) -> None:
        with self.post.member.lock:
            self.driver.send(self.me, name, MAIL, method, args, time.time())
        self._deliver()

    def call(self, name: str, method: str, *args: Any) -> Future[Any]:
        call_id = f"driver/{time.monotonic_ns()}"
        with self.post.member.lock:
            self.driver.send(self.me, name, CALL, method, (call_id, args), time.time())
        self._deliver()
        return self.post.reply_to(call_id, name)

    def _deliver(self) -> None:
        def deliver() -> None:
            for target, batch in self.driver.take_batches(10):
                self.driver.outputs[target].in_flight -= 1
                self.post.core.arrive(pickle.loads(pickle.dumps(batch)))
            self.post.reporter.arrived()
            self.post.floor.wake()

        self._on_loop(deliver)

    def obey(self, *commands: HostCommand) -> None:
        self._on_loop(lambda: obey(self.post, commands))

    def _on_loop(self, work: Callable[[], None]) -> None:
        """Do it where Ray's calls to a host are done, for only there may a task be started."""

        async def done() -> None:
            with self.post.member.lock:
                work()

        asyncio.run_coroutine_threadsafe(done(), self.loop).result(30)

    def body(self, name: str) -> Any:
        until(lambda: name in self.post.core.machines and self.post.core.machines[name].body is not None)
        return self.post.core.machines[name].body

    def report(self, number: int) -> HostPart:
        payload: HostPayload = until(lambda: [p for (p,) in self.service.of("report") if p.number == number])[0]
        part: HostPart = pickle.loads(payload.part)
        return part

    def failure(self) -> Exception:
        error: Exception = until(lambda: self.service.of("fail"))[0][0]
        return error


@contextmanager
def lone_host(**options: Any) -> Iterator[LoneHost]:
    """One that acts; `options` are `HostConfig`'s."""
    found = LoneHost(**options)
    found.thread.start()
    found.post.start()
    try:
        yield found
    finally:
        found.post.close()
        found.loop.call_soon_threadsafe(found.loop.stop)
        found.thread.join(30)
        found.loop.close()
