"""Hosts and names: who is there, where machines live, which channels are declared, and what it means that a process is gone."""

from __future__ import annotations

import time
from typing import Any

from ray.exceptions import RayActorError

from ray_snapshot.errors import (
    DuplicateMachineError,
    HostDiedError,
    UnknownMachineError,
)
from ray_snapshot.names import DRIVER
from ray_snapshot.protocol.choosing import BARRIERS
from ray_snapshot.protocol.commands import (
    AwaitInput,
    DeclarePort,
    Fail,
    HostCommand,
    OpenChannel,
    OpenDriverChannel,
    Stopped,
    Welcome,
)
from ray_snapshot.protocol.coordinator import reached
from ray_snapshot.runtime.faults import first_line
from ray_snapshot.runtime.service_state import POLL_S, ServiceState, listed


class Places(ServiceState):
    """See the module."""

    async def may_be_claimed_again(self, names: list[str]) -> None:
        """Machines that are restored from a checkpoint: the program may spawn each once, and gets what was restored."""
        self.unclaimed.update(names)

    async def register(self, host: str, actor: list[Any], config: Any = None, options: Any = None) -> None:
        """A host joins; it is asked for every snapshot that is pending. `options`: what Ray was asked for it.

        A host whose config is not known is not replaced when it dies.
        """
        await self.opened.wait()
        self.actors[host] = actor[0]
        self.recovery.joined(host, config, options)
        self._tell_host(host, Welcome(self.coordinator.register(host), self.coordinator.last))
        if self.failure is not None:
            self._tell(host, Fail(self.failure))
        self._background(self._watch(actor[0], host))
        await self._notify()

    async def replaced(self, host: str, incarnation: int, actor: list[Any]) -> None:
        """The driver has started another process in the place of one that was gone."""
        await self.opened.wait()
        self.actors[host] = actor[0]
        self._background(self._watch(actor[0], host, incarnation))
        self.recovery.replaced(host, incarnation)

    async def actor_of(self, host: str) -> list[Any]:
        """The Ray actor of a host, wrapped so that it travels as a handle; names may be known before their host is."""
        await self.opened.wait()
        deadline = time.monotonic() + POLL_S
        while host not in self.actors:
            if not await self._change(deadline - time.monotonic()):
                raise HostDiedError(f"{host} of system {self.config.system} did not come up", host=host, machines=[])
        return [self.actors[host]]

    # ---- processes that are gone -------------------------------------------------------------------------------------

    async def _watch(self, actor: Any, host: str, incarnation: int = 0) -> None:
        try:
            await actor.watched.remote()
        except RayActorError as error:
            await self.gone(host, first_line(error), incarnation)

    async def lost(self, host: str, reason: str, generation: int | None = None) -> None:
        """A process of the system is gone, as somebody of that generation has noticed: everybody hears of it."""
        await self.opened.wait()
        if generation is None or generation == self.recovery.generation:
            await self.gone(host, reason, self.recovery.incarnation(host))

    async def gone(self, host: str, reason: str, incarnation: int) -> None:
        """This life of a process has ended: the system is rolled back, if it may be, or else fails."""
        if self.is_closing or self.failure is not None:
            return
        error = self.lost_host(host, reason)
        if not self.recovery.lost(host, incarnation, error):
            await self.fail(error)

    def lost_host(self, host: str, reason: str) -> HostDiedError:
        """The error that names a host that is gone, and what it carried."""
        machines = self._machines_on(host)
        what = f"{host} with {listed(machines)}" if machines else f"the {host}" if host == "analyst" else host
        return HostDiedError(f"{what} of system {self.config.system} is gone: {reason}", host=host, machines=machines)

    def _machines_on(self, host: str) -> list[str]:
        return [name for name, place in self.places.items() if place == host]

    # ---- names and channels ------------------------------------------------------------------------------------------

    async def claim(
        self,
        class_name: str,
        count: int,
        names: list[str] | None,
        hosts: list[str],
        role: str | None = None,
        generation: int = 0,
        is_driver: bool = False,
    ) -> list[str]:
        """Take `count` names (made from the class's name if none are given), one per host named; all or none.

        `generation`: of whoever asks; raises `RolledBackError` if it is of the past.
        """
        await self.opened.wait()
        self.recovery.check(generation)
        again = self.unclaimed if is_driver else set()
        if names is None:
            names = []
            while len(names) < count:
                name = f"{class_name}-{self.counters.get(class_name, 0)}"
                self.counters[class_name] = self.counters.get(class_name, 0) + 1
                if name not in self.places or name in again:
                    names.append(name)
        taken = next((name for name in names if name in self.places and name not in again), None)
        if taken is not None or len(set(names)) < len(names):
            taken = taken or next(name for name in names if names.count(name) > 1)
            raise DuplicateMachineError(
                f"a machine {taken!r} already exists in {self.config.system}; names are unique", machine=taken
            )
        self.places.update((n, host) for n, host in zip(names, hosts, strict=True) if n not in self.places)
        self.unclaimed.difference_update(names)
        self.sources.update(names if role == "source" else ())
        await self._notify()
        return names

    async def locate(self, names: list[str], timeout: float) -> dict[str, str]:
        """Where machines live; waits up to `timeout` seconds for those that do not exist yet, and leaves out the rest.

        Raises what stopped the system, rather than wait for what will never be spawned.
        """
        await self.opened.wait()
        deadline = time.monotonic() + timeout
        while not all(name in self.places for name in names) and not self.is_closing:
            if self.failure is not None:
                raise self.failure.with_traceback(None)
            left = deadline - time.monotonic()
            if left <= 0 or not await self._change(left):
                break
        return {name: self.places[name] for name in names if name in self.places}

    async def stopped(self, names: list[str], colour: int, generation: int) -> None:
        """Machines have stopped, on a host of this colour: everybody is told, and sending to them is an error from now on."""
        await self.opened.wait()
        if generation != self.recovery.generation:
            return
        self._broadcast(Stopped(tuple(names), colour))
        await self._notify()

    async def connect(self, source: str, target: str, port: str | None = None, site: str | None = None) -> None:
        """Declare the channel from `source` to `target` beforehand, and that it serves that port; `site`: who says so."""
        await self.opened.wait()
        for name in (source, target):
            if name not in self.places:
                raise UnknownMachineError(
                    f"connect({source!r}, {target!r}): no machine {name!r} was spawned", machine=name
                )
        if self._declare(source, target, port):
            await self._control(target, AwaitInput(target, source))
        if source != DRIVER:
            await self._control(source, OpenChannel(source, target))
        elif target != DRIVER:
            self.tell_driver(OpenDriverChannel(target, self.places[target]))
            await self._notify()
        if port is not None and target != DRIVER:
            await self._control(target, DeclarePort(target, port, source, site))

    def _declare(self, source: str, target: str, port: str | None) -> bool:
        """Note a declared channel; whether barriers align on it."""
        self.declared.append((source, target, port))
        aligns = self.config.protocol in BARRIERS and self._is_forward(source, target) and target != DRIVER
        if aligns:
            self.awaited.append((target, source))
        return aligns

    async def _control(self, machine: str, command: HostCommand) -> None:
        await self.actors[self.places[machine]].control.remote([command], self.recovery.generation)

    def _is_forward(self, source: str, target: str) -> bool:
        """Whether barriers align on this declared channel: it closes no cycle, and leads to no source."""
        if target in self.sources or source in reached(self.forward, [target]):
            return False
        self.forward.setdefault(source, set()).add(target)
        return True
