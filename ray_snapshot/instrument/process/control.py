"""The control thread of a watched process: it carries reports and acknowledgements to the watcher, and commands back.

What a command does is the process's affair (`process`); this file knows only how things travel. Imports nothing of Ray:
the watcher is whatever has these methods. Each step is a `use` of the connection, so none is taken once that is closed.
"""

from __future__ import annotations

import heapq
import itertools
import queue
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

from ray_snapshot.instrument.connection import CONNECTION, Connection
from ray_snapshot.instrument.guard import give_up, ours
from ray_snapshot.limits import LIMITS
from ray_snapshot.protocol.commands import ProcessCommand


class Party(Protocol):
    """The process that the thread works for."""

    machine: str
    is_closed: bool

    def take_acks(self) -> list[Any]:
        """The acknowledgements to send; from now on it asks for the next ones to be sent."""

    def obey(self, command: ProcessCommand) -> None:
        """Do what the watcher asks for."""

    def give_up(self, error: Exception) -> None:
        """Take part no more."""

    def unanswered(self, error: BaseException) -> None:
        """Take part no more, for the watcher does not say what to do; end the thread."""


class Control:
    """The thread, and what it has to do."""

    def __init__(self, party: Party, watcher: Any, connection: Connection = CONNECTION) -> None:
        self.party = party
        self.watcher = watcher
        self.connection = connection
        self.polled: Any = None
        """The future of the latest poll: Ray ends no idle worker that has a ref, so none between two polls."""
        self.outbox: queue.SimpleQueue[tuple[Any, ...]] = queue.SimpleQueue()
        self.ready: list[Any] = []
        """Reports that go with the next poll; of the thread."""
        self.has_ended = False
        self.thread = threading.Thread(target=self._guarded_run, name="ray-snapshot", daemon=True)

    def start(self) -> None:
        """Begin to talk; the process must be ready to obey."""
        self.thread.start()

    def report(self, recorded: Any) -> None:
        """Send a report; what is recorded while commands are obeyed goes with the next poll, for that is a call less."""
        if threading.current_thread() is self.thread:
            self.ready.append(recorded)
        else:
            self.outbox.put(("report", recorded))

    def tell(self, what: str, *about: Any) -> None:
        """Tell the watcher something: what it is called there, and what about it."""
        self.outbox.put(("tell", what, about))

    def flush_soon(self) -> None:
        """Send acknowledgements when more of them have been gathered."""
        self.outbox.put(("flush soon",))

    def soon(self, step: Callable[[], None]) -> None:
        """Have the thread take a step."""
        self.outbox.put(("do", step))

    def after(self, seconds: float, step: Callable[[], None]) -> None:
        """Have the thread take a step in so many seconds."""
        self.outbox.put(("later", time.monotonic() + seconds, step))

    def end(self) -> None:
        """End the thread, and ask no more; its process is closed already, or will be."""
        self.has_ended = True
        self.outbox.put(("gone",))

    def leave(self) -> None:
        """End the thread, and send nothing more: the watcher ends; of the thread itself."""
        self.ready.clear()
        self.end()

    def _guarded_run(self) -> None:
        try:
            self._run()
        except Exception as error:
            give_up(error)

    def _run(self) -> None:
        self.outbox.put(("answer", 0, []))
        later: list[tuple[float, int, tuple[Any, ...]]] = []
        count = itertools.count()
        while not self.party.is_closed and self.connection.is_open:
            try:
                item = self.outbox.get(timeout=max(0.0, later[0][0] - time.monotonic()) if later else None)
            except queue.Empty:
                item = heapq.heappop(later)[2]
            if item == ("flush soon",):
                heapq.heappush(later, (time.monotonic() + LIMITS.acknowledge_s, next(count), ("flush",)))
                continue
            if item[0] == "later":
                heapq.heappush(later, (item[1], next(count), ("do", item[2])))
                continue
            try:
                self.connection.use(self.carry, item)
            except Exception as error:  # the watcher is gone, or Ray is: the app goes on without us
                self.party.give_up(error)
        self.connection.use(self.drop_poll)

    def drop_poll(self) -> None:
        """Keep no ref; Ray must be there, for it counts refs in its core worker."""
        self.polled = None

    def carry(self, item: tuple[Any, ...]) -> None:
        """Do one thing."""
        match item:
            case ("flush",):
                if acks := self.party.take_acks():
                    self.watcher.acknowledge.remote(acks)
            case ("report", recorded):
                self.watcher.recorded.remote(recorded)
            case ("tell", what, about):
                getattr(self.watcher, what).remote(*about)
            case ("answer", seen, commands):
                try:
                    for command in commands:
                        self.party.obey(command)
                finally:
                    if not self.has_ended:
                        self._poll(seen)
                    ready, self.ready = self.ready, []
                    for recorded in ready:  # it has ended meanwhile
                        self.watcher.recorded.remote(recorded)
            case ("do", step):
                step()
            case ("gone",):
                self.party.is_closed = True

    def _poll(self, seen: int) -> None:
        ready, self.ready = self.ready, []
        self.polled = self.watcher.commands_for.remote(self.party.machine, seen, ready).future()
        self.polled.add_done_callback(lambda done: ours(self._answered, done))

    def _answered(self, future: Any) -> None:
        try:
            seen, commands = future.result()
        except BaseException as error:
            self.party.unanswered(error)
            return
        self.outbox.put(("answer", seen, commands))
