"""What the service of a system keeps, and how it tells others: commands to hosts, a log for the driver, changes to wait for."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ray_snapshot.errors import (
    RaySnapshotError,
    SystemNotRunningError,
)
from ray_snapshot.names import DRIVER
from ray_snapshot.protocol.commands import Close, DriverCommand, HostCommand, SharedCommand
from ray_snapshot.protocol.coordinator import Coordinator
from ray_snapshot.protocol.recovery_line import Allowance
from ray_snapshot.runtime.collected import SnapshotHeader
from ray_snapshot.runtime.handing_over import HandOver
from ray_snapshot.runtime.report import HostPayload

if TYPE_CHECKING:
    from ray_snapshot.runtime.line import Line
    from ray_snapshot.runtime.recovery import Recovery
    from ray_snapshot.runtime.telling import Telling

POLL_S = 10.0
"""How long an unanswered long poll is held."""

LAZY_S = 1.0
"""How long a host may go without hearing that a snapshot is complete, which only frees memory."""


@dataclass(frozen=True, slots=True)
class ServiceConfig:
    """What a service is told at its birth."""

    system: str
    run_id: str
    protocol: str
    most_open: int
    snapshot_timeout: float
    checkpoint: bool = False
    recover: bool = False
    most_failures: int = 5
    failures_within: float = 60.0
    start_timeout: float = 120.0


@dataclass(slots=True)
class Collection:
    """A snapshot that is being collected."""

    header: SnapshotHeader
    timeout: float
    done: asyncio.Future[Any]
    is_driver_asked: bool
    unasked: list[str] = field(default_factory=list)
    """Hosts that the observers ask once they have recorded themselves."""
    is_hurried: bool = False
    """Whether half of the time is over, and hosts have been told to record in the middle of an action."""
    payloads: list[HostPayload] = field(default_factory=list)

    @property
    def half_time(self) -> float:
        """When half of the time is over."""
        return self.header.started_at + self.timeout / 2


class ServiceState(ABC):
    """See the module; what becomes of these is said in `service_places`, `service_collecting` and `service`."""

    recovery: Recovery
    telling: Telling
    line: Line

    def __init__(self, config: ServiceConfig, analyst: Any) -> None:
        self.config = config
        self.analyst = analyst
        self.coordinator = Coordinator(most_open=config.most_open)
        self.coordinator.register(DRIVER)
        self.actors: dict[str, Any] = {}
        self.places: dict[str, str] = {DRIVER: DRIVER}
        self.counters: dict[str, int] = {}
        self.sources: set[str] = set()
        """Machines whose role says that barriers are injected there, whatever is connected to them."""
        self.forward: dict[str, set[str]] = {}
        """Declared channels that close no cycle among themselves: barriers align on them. Targets by source."""
        self.collections: dict[int, Collection] = {}
        self.driver_log: list[DriverCommand] = []
        """What the driver has not obeyed yet."""
        self.driver_obeyed = 0
        self.changed = asyncio.Condition()
        self.failure: RaySnapshotError | None = None
        self.lazily: dict[str, list[Close]] = {}
        """Per host: what it need not know at once, told with the next command, or within `LAZY_S`."""
        self.lazy_until = 0.0
        self.tasks: set[asyncio.Task[Any]] = set()
        self.traces: list[bytes] = []
        """Rows of the trace that have come with reports, not yet handed to the analyst."""
        self.handing = HandOver(analyst, is_again=config.recover)
        self.life = 0
        self.opened = asyncio.Event()
        """Not before the driver has said which life of the service this is, where it may have several."""
        self.allowance = Allowance(is_bounded=config.recover)
        self.is_closing = False
        self.declared: list[tuple[str, str, str | None]] = []
        """(source, target, port) of every channel declared, in order."""
        self.awaited: list[tuple[str, str]] = []
        """(target, source) of the declared channels that barriers align on."""
        self.unclaimed: set[str] = set()
        """Names that are restored, and that the program has not spawned yet."""

    @abstractmethod
    async def fail(self, error: RaySnapshotError, generation: int | None = None) -> None:
        """Something stops the system, unless that is of a generation (of whoever says so) that has been left behind."""

    # ---- telling -----------------------------------------------------------------------------------------------------

    async def commands(self, obeyed: int) -> list[DriverCommand]:
        """What the driver must do, behind the first `obeyed`, which are forgotten; waits for it."""
        del self.driver_log[: obeyed - self.driver_obeyed]
        self.driver_obeyed = obeyed
        self.allowance.obeyed(obeyed)
        deadline = time.monotonic() + POLL_S
        while not self.driver_log and not self.is_closing:
            if not await self._change(deadline - time.monotonic()):
                break
        return list(self.driver_log)

    def _tell(self, host: str, *commands: SharedCommand) -> None:
        if host == DRIVER:
            self.tell_driver(*commands)
        else:
            self._tell_host(host, *commands)

    def tell_driver(self, *commands: DriverCommand) -> None:
        """It hears of it when it asks; `_notify` answers its long poll."""
        self.driver_log += (*self.lazily.pop(DRIVER, ()), *commands)

    def _tell_host(self, host: str, *commands: HostCommand) -> None:
        if found := [*self.lazily.pop(host, ()), *commands]:
            self.actors[host].control.remote(found, self.recovery.generation)

    def _tell_lazily(self, command: Close) -> None:
        """Tell everybody, but make no call for it."""
        if not self.lazily:
            self.lazy_until = time.time() + LAZY_S
        for host in (DRIVER, *self.actors):
            self.lazily.setdefault(host, []).append(command)

    def _broadcast(self, *commands: SharedCommand) -> None:
        for host in (DRIVER, *self.actors):
            self._tell(host, *commands)

    # ---- waiting, and work beside ------------------------------------------------------------------------------------

    def _check(self) -> None:
        if self.failure is not None:
            raise self.failure.with_traceback(None)  # or each time it is raised makes it longer
        if self.is_closing:
            raise SystemNotRunningError(f"system {self.config.system} was closed", system=self.config.system)

    async def _notify(self) -> None:
        async with self.changed:
            self.changed.notify_all()

    async def _change(self, timeout: float) -> bool:
        """Wait for a change, up to `timeout` seconds; False if there was none."""
        if timeout <= 0:
            return False
        async with self.changed:
            try:
                await asyncio.wait_for(self.changed.wait(), timeout)
            except TimeoutError:
                return False
        return True

    def _background(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self.tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            fault = RaySnapshotError(f"the service of {self.config.system} failed: {type(error).__name__}: {error}")
            self.line.begin(self.fail(fault))  # `settle` waits for it


def listed(names: list[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more if names else "no machines"
