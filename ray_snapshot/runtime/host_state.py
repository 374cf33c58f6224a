"""What a host's part in the run is made of; what is done with it is in the rooms that follow.

`host_copying` (what a snapshot holds of a machine), `host_recording` (turning red and reporting), `host_waiting` (calls, waits
and full mailboxes), `host` (the action threads, and the whole).
"""

from __future__ import annotations

import asyncio
import threading
import time
from abc import abstractmethod
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from ray_snapshot.protocol.choosing import core_for
from ray_snapshot.protocol.host import Machine
from ray_snapshot.protocol.mailbox import Mailbox, Message
from ray_snapshot.runtime import waits
from ray_snapshot.runtime.assembly import warm_up
from ray_snapshot.runtime.classes import ClassStore
from ray_snapshot.runtime.floor import Floor
from ray_snapshot.runtime.notices import Notices
from ray_snapshot.runtime.ports import Ports
from ray_snapshot.runtime.post import Post
from ray_snapshot.runtime.replies import Replies
from ray_snapshot.runtime.report import BodyCopy
from ray_snapshot.runtime.tracing import Tracer


@dataclass(frozen=True, slots=True)
class HostConfig:
    """What a host is told at its birth."""

    run_id: str
    host: str
    colour: int
    open_at_birth: tuple[int, ...]
    protocol: str
    alignment_timeout: float | None
    mailbox_bound: int
    send_timeout: float
    spawn_timeout: float
    import_path: tuple[str, ...]
    trace: str | None = None
    """Whether to log every action: then the name by which the driver's `__main__` can be imported."""
    redacted: tuple[str, ...] = ()
    """Names of fields that are never recorded."""
    checkpoint: bool = False
    """Whether to keep what a restore needs with every snapshot."""
    recover: bool = False
    """Whether the system goes back to its last snapshot when a host dies."""
    generation: int = 0
    """Of whoever made the host."""
    incarnation: int = 0
    grace: float = 0.0
    """How long the last snapshot may take when this process gets SIGTERM; 0: none is taken."""


@dataclass(slots=True)
class Performance:
    """An action that somebody wants to know of."""

    action: tuple[Machine, Mailbox, Message]
    began: float
    wait: waits.TrackedWait | None = None

    @property
    def machine(self) -> Machine:
        return self.action[0]

    @property
    def method(self) -> str:
        return self.action[2][2]

    @property
    def source(self) -> str:
        return self.action[1].source


class HostState(Post):
    """See the module."""

    def __init__(
        self,
        config: HostConfig,
        service: Any,
        loop: asyncio.AbstractEventLoop,
        classes: ClassStore | None = None,
    ) -> None:
        super().__init__(config.run_id, config.host, service, spawn_timeout=config.spawn_timeout)
        self.config = config
        self.generation = config.generation
        self.recovers = config.recover
        self.loop = loop
        self.core = core_for(
            config.protocol,
            config.host,
            born=config.colour,
            barriers={"clock": time.monotonic, "on_open": self._bound_alignment},
            copy_body=self.copy_body,
            bound=config.mailbox_bound,
            polled=("driver",),
            open_at_birth=config.open_at_birth,
        )
        self.tracer = None if config.trace is None else Tracer(config.run_id, config.host, config.trace)
        self.floor = Floor(self.lock)
        self.classes = classes or ClassStore()
        self.shipped: set[tuple[str, str]] = set()
        self.replies = Replies(config.run_id)
        self.ports = Ports(self.classes)
        self.action: tuple[Machine, Mailbox, Message] | None = None
        """The action that the holder of the floor is in, or has just left; a plain tuple, for there is one a message."""
        self.action_began = 0.0
        self.suspended: dict[str, Performance] = {}
        self.held_since: dict[str, float] = {}
        self.is_watching_held = False
        self.forced: Machine | None = None
        self.to_stop: deque[tuple[str, int]] = deque()
        """(machine, how many of the driver's messages come before that) of those that the driver has stopped."""
        self.recorded_at: dict[int, float] = {n: time.time() for n in config.open_at_birth}
        self.reported: set[int] = set()
        self.overdue: set[int] = set()
        """Snapshots that this host must record now, in the middle of an action if need be."""
        self.copier = ThreadPoolExecutor(1, thread_name_prefix="report")
        self.is_guarding = False
        self.construct_count = 0
        self.warming = threading.Thread(target=warm_up, name="warm-up", daemon=True)
        self.threads: list[threading.Thread] = []
        """Action threads, some of which may have ended."""
        self.timers: list[tuple[Any, int, float]] = []
        """Restored, to be set when the host starts: (channel, number, seconds left)."""
        self.notices = Notices()
        self.is_broken = False
        """An action was cut short because a host is gone: what it leaves behind is in no snapshot."""

    @property
    def performing(self) -> Performance | None:
        """The action that the holder of the floor is in."""
        action = self.action
        return None if action is None else Performance(action, self.action_began)

    def _action_thread(self) -> int:
        return self.floor.holder or 0

    @property
    def is_retired(self) -> bool:
        return self.is_closing and self.failure is not None

    @abstractmethod
    def copy_body(self, machine: Machine) -> BodyCopy:
        """What the snapshot holds of a machine."""

    @abstractmethod
    def _bound_alignment(self, number: int) -> None:
        """Bound the patience with inputs whose barriers do not come."""

    @abstractmethod
    def _new_runner(self) -> None:
        """Start another action thread."""
