"""Hosts, the machines that live on them, and the channels that the program has declared."""

from __future__ import annotations

import time
from typing import Any

from ray_snapshot.errors import DuplicateMachineError, HostDiedError
from ray_snapshot.names import DRIVER, listed
from ray_snapshot.protocol.choosing import BARRIERS
from ray_snapshot.protocol.coordinator import reached
from ray_snapshot.runtime.service.course import Course


class Directory:
    """The directory of one system."""

    def __init__(self, system: str, protocol: str) -> None:
        self.system = system
        self.protocol = protocol
        self.actors: dict[str, Any] = {}
        """The Ray actors of hosts."""
        self.places: dict[str, str] = {DRIVER: DRIVER}
        """The host of each machine."""
        self.counters: dict[str, int] = {}
        self.unclaimed: set[str] = set()
        """Names that are restored, and that the program has not spawned yet."""
        self.sources: set[str] = set()
        """Machines whose role says that barriers are injected there, whatever is connected to them."""
        self.forward: dict[str, set[str]] = {}
        """Declared channels that close no cycle among themselves: barriers align on them. Targets by source."""
        self.declared: list[tuple[str, str, str | None]] = []
        """(source, target, port) of every channel declared, in order."""
        self.awaited: list[tuple[str, str]] = []
        """(target, source) of the declared channels that barriers align on."""

    def machines_on(self, host: str) -> list[str]:
        """The machines of a host."""
        return [name for name, place in self.places.items() if place == host]

    def lost_host(self, host: str, reason: str) -> HostDiedError:
        """The error that names a host that is gone, and what it carried."""
        machines = self.machines_on(host)
        what = f"{host} with {listed(machines)}" if machines else f"the {host}" if host == "analyst" else host
        return HostDiedError(f"{what} of system {self.system} is gone: {reason}", host=host, machines=machines)

    def clear(self) -> None:
        """All hosts have ended, and their machines with them."""
        self.places = {DRIVER: DRIVER}
        for known in (self.actors, self.counters, self.forward):
            known.clear()
        for noted in (self.unclaimed, self.sources, self.declared, self.awaited):
            noted.clear()

    # ---- names ----------------------------------------------------------------------------------------------------

    def claim(
        self,
        class_name: str,
        count: int,
        names: list[str] | None,
        hosts: list[str],
        role: str | None,
        *,
        is_driver: bool,
    ) -> list[str]:
        """Take `count` names (made from the class's name if none are given), one per host named; all or none."""
        again = self.unclaimed if is_driver else set()
        is_made = names is None
        if names is None:
            names = []
            while len(names) < count:
                name = f"{class_name}-{self.counters.get(class_name, 0)}"
                self.counters[class_name] = self.counters.get(class_name, 0) + 1
                if name not in self.places or name in again:
                    names.append(name)
        taken = None if is_made else next((name for name in names if name in self.places and name not in again), None)
        if taken is not None or (not is_made and len(set(names)) < len(names)):
            taken = taken or next(name for name in names if names.count(name) > 1)
            raise DuplicateMachineError(
                f"a machine {taken!r} already exists in {self.system}; names are unique", machine=taken
            )
        for name, host in zip(names, hosts, strict=True):
            self.places.setdefault(name, host)  # restored ones are where they are
        self.unclaimed.difference_update(names)
        self.sources.update(names if role == "source" else ())
        return names

    async def located(self, names: list[str], timeout: float, course: Course) -> dict[str, str]:
        """Where those of these machines live that there are; if there is none, waits up to `timeout` seconds for one.

        Raises what stopped the system, rather than wait for what will never be spawned.
        """
        deadline = time.monotonic() + timeout
        while not any(name in self.places for name in names) and not course.is_closing:
            if course.failure is not None:
                raise course.failure.with_traceback(None)
            left = deadline - time.monotonic()
            if left <= 0 or not await course.change(left):
                break
        return {name: self.places[name] for name in names if name in self.places}

    # ---- declared channels ----------------------------------------------------------------------------------------

    def declare(self, source: str, target: str, port: str | None) -> bool:
        """Note a declared channel; whether barriers align on it."""
        self.declared.append((source, target, port))
        aligns = self.protocol in BARRIERS and self._is_forward(source, target) and target != DRIVER
        if aligns:
            self.awaited.append((target, source))
        return aligns

    def _is_forward(self, source: str, target: str) -> bool:
        """Whether barriers align on this declared channel: it closes no cycle, and leads to no source."""
        if target in self.sources or source in reached(self.forward, [target]):
            return False
        self.forward.setdefault(source, set()).add(target)
        return True
