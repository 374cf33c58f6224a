"""The driver program's part in a run: a machine named `driver`, in a process that nobody can call.

A thread of its own runs an event loop: it awaits deliveries, asks the coordinator for commands (a long poll) and records.
The driver's sends are its actions, so it is at a boundary whenever the lock is free. Its program state is its own: a
snapshot holds its channels, its status and what it waits for, but no state.
"""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import Future
from typing import Any

from ray.exceptions import RayActorError

from ray_snapshot.errors import MailboxFullError, SystemNotRunningError
from ray_snapshot.names import DRIVER
from ray_snapshot.protocol.host import HostCore, Machine
from ray_snapshot.runtime import waits
from ray_snapshot.runtime.handles import POSTS
from ray_snapshot.runtime.here import HERE
from ray_snapshot.runtime.post import Post
from ray_snapshot.runtime.report import BodyCopy, host_payload, late_payload


class DriverPost(Post):
    """See the module."""

    def __init__(self, run_id: str, service: Any, *, mailbox_bound: int, send_timeout: float, spawn_timeout: float) -> None:
        super().__init__(run_id, DRIVER, service, spawn_timeout=spawn_timeout)
        self.send_timeout = send_timeout
        self.core = HostCore(DRIVER, copy_body=self.copy_body, bound=mailbox_bound)
        self.me = self.core.born(DRIVER, self)
        self.status = "active"
        self.waiting: waits.TrackedWait | None = None
        self.held_since: float | None = None
        self.calls: dict[Any, tuple[str, str]] = {}
        self.credit = threading.Condition(self.lock)
        self.polling: set[str] = set()
        self.user_thread = threading.get_ident()
        self.is_closing = False
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self._run, name="ray-snapshot-driver", daemon=True)
        self.thread.start()
        POSTS[run_id] = self

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self._start(self._obey_commands())
        self.loop.run_forever()
        self.loop.close()

    def acting(self) -> Machine:
        return self.me

    def check(self) -> None:
        super().check()
        if self.is_closing:
            raise SystemNotRunningError("the system was closed: send inside its `with` block")

    def is_user_thread(self) -> bool:
        """Whether this is the thread that opened the system: whose waits are the driver's."""
        return threading.get_ident() == self.user_thread

    # ---- commands -------------------------------------------------------------------------------------------------

    async def _obey_commands(self) -> None:
        seen = 0
        while not self.is_closing:
            try:
                commands = await self.service.commands.remote(seen)
            except RayActorError:
                if self.is_closing:
                    return
                raise
            seen += len(commands)
            with self.lock:
                for command in commands:
                    self._obey(command)
                self._record()

    def _obey(self, command: tuple[Any, ...]) -> None:
        match command:
            case ("request", number, _):
                self.core.request(number)
            case ("close", number):
                self.core.close(number)
            case ("abort", number):
                self.core.abort(number)
            case ("stopped", names):
                self.core.stopped.update(names)
            case ("failed", error):
                self.failure = self.failure or error
                self.credit.notify_all()

    def heard(self, colour: int) -> None:
        """A reply of this colour is being read in this process."""
        with self.lock:
            self.core.note(colour)
            self._record()

    def _record(self) -> None:
        if self.core.must_record:
            numbers = self.core.boundary()
            now = time.time()
            self.core.copy_next()
            self.flush()
            for number in numbers:
                payload = host_payload(DRIVER, self.core.open[number], now, 1, len(self.core.outputs))
                self.service.report.remote(payload)
        for number, recording in self.core.open.items():
            if recording.late:
                late, recording.late = recording.late, []
                self.service.report.remote(late_payload(DRIVER, number, late, []))

    def copy_body(self, machine: Machine) -> BodyCopy:
        """The driver has no state of its own in a snapshot."""
        found = BodyCopy("driver", self.status, None)
        if self.held_since is not None:
            found.status = "blocked"
            names = tuple(channel.target for channel in machine.over)
            found.short_wait = ("all", len(names), names)
            since = int(self.held_since * 1e6)
            found.waits = [
                {"alternative": 0, "k": len(names), "on_machine": name, "satisfied": False, "waiting_since": since}
                for name in names
            ]
        elif self.waiting is not None:
            found.status = "blocked"
            wait = self.waiting
            names = tuple(dict.fromkeys(name for name, _ in wait.on))
            found.short_wait = ("all" if wait.k >= len(wait.on) else "any" if wait.k == 1 else "k_of_n", wait.k, names)
            since = int(wait.since * 1e6)
            found.waits = [
                {"alternative": 0, "k": wait.k, "on_machine": name, "on_call_id": call_id, "waiting_since": since}
                for name, call_id in wait.on
            ]
            found.calls = [{"method": "(the driver's script)", "holds_slot": True, "call_site": wait.call_site}]
        return found

    # ---- waits ----------------------------------------------------------------------------------------------------

    def called(self, ref: Any, target: str, call_id: str) -> None:
        self.calls[ref] = (target, call_id)

    def begin_wait(self, wait: waits.TrackedWait) -> bool:
        """The driver begins to wait; with a timeout, or for something foreign, it stays active."""
        if wait.timeout is not None or wait.has_foreign:
            return False
        with self.lock:
            self.waiting = wait
            HERE.is_waiting = True
        return True

    def end_wait(self, token: bool) -> None:
        """The wait is over."""
        if token:
            with self.lock:
                self.waiting = None
                HERE.is_waiting = False

    def set_status(self, status: str) -> None:
        """`passive` inside `wait_for`, else `active`."""
        with self.lock:
            self.status = status

    # ---- full mailboxes -------------------------------------------------------------------------------------------

    def hold_back(self, machine: Machine) -> None:
        """Wait until every channel is under its bound again; raises `MailboxFullError` past the bound in time."""
        deadline = time.monotonic() + self.send_timeout
        with self.lock:
            self.held_since = time.time()
            try:
                while machine.over and (left := deadline - time.monotonic()) > 0:
                    self.check()
                    self._poll_credit(machine)
                    self.credit.wait(min(left, 0.5))
                if machine.over:
                    target = machine.over[0].target
                    machine.over.clear()
                    raise MailboxFullError(
                        f"the driver was held at the full mailbox of {target} for {self.send_timeout:g} s: its message is"
                        " sent, but not accepted; send less, or raise mailbox_bound or send_timeout",
                        machine=DRIVER,
                        target=target,
                        seconds=self.send_timeout,
                    )
            finally:
                self.held_since = None

    def _poll_credit(self, machine: Machine) -> None:
        for channel in machine.over:
            host = channel.link.target if channel.link is not None else None
            if host is not None and host in self.handles and host not in self.polling:
                self.polling.add(host)
                self.loop.call_soon_threadsafe(self._start, self._ask_credit(host))

    async def _ask_credit(self, host: str) -> None:
        try:
            for index, accepted in await self.handles[host].credit.remote(DRIVER):
                with self.lock:
                    self.core.acknowledge(host, index, accepted)
                    self.credit.notify_all()
        finally:
            self.polling.discard(host)

    def wake(self) -> None:
        with self.lock:
            self.credit.notify_all()

    # ---- for the system -------------------------------------------------------------------------------------------

    def run(self, work: Any) -> Future[Any]:
        """Run a coroutine on the driver's event loop."""
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def close(self) -> None:
        """Leave the run."""
        self.is_closing = True
        POSTS.pop(self.run_id, None)
        self.loop.call_soon_threadsafe(self._stop)
        self.thread.join(timeout=5)

    def _stop(self) -> None:
        self.close_pump(self.tasks)
        self.loop.call_soon(self.loop.stop)
