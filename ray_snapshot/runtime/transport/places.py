"""On which host a machine lives, as far as this process must know to send to it."""

from __future__ import annotations

import time

from ray.exceptions import RayError

from ray_snapshot.errors import UnknownMachineError
from ray_snapshot.names import DRIVER
from ray_snapshot.protocol.host import HostCore
from ray_snapshot.runtime.faults import as_error
from ray_snapshot.runtime.handles import MachineHandle
from ray_snapshot.runtime.transport.carrier import Carrier
from ray_snapshot.runtime.transport.membership import Membership
from ray_snapshot.runtime.waits import answer_of, located


class Places:
    """What one process knows of the service's directory; it is kept in the core, which needs it to choose a link."""

    def __init__(self, member: Membership, carrier: Carrier, spawn_timeout: float) -> None:
        self.member = member
        self.carrier = carrier
        self.spawn_timeout = spawn_timeout
        self.is_tracked = True
        """Whether a wait for a machine is a tracked wait of the machine that acts here."""
        self.is_asking = False
        """Whether the directory is being asked for names; under the lock."""

    def learn(self, handle: MachineHandle) -> None:
        """A handle may say where its machine lives; under the lock."""
        place, known = handle._host, self.carrier.core.addresses.places
        if place is not None and place != self.member.host and handle._name not in known:
            known[handle._name] = place

    def look_up(self) -> None:
        """Ask for the hosts of machines to which something was sent, without waiting; under the lock.

        One question at a time: what comes up while it is on its way is asked for by the next.
        """
        if self.carrier.core.addresses.to_ask and not self.is_asking:
            self.is_asking = True
            self.member.start_soon(self._ask())

    async def _ask(self) -> None:
        """Ask the directory for names until there are none to ask for."""
        try:
            while True:
                with self.member.lock:
                    core = self.carrier.core
                    names = core.addresses.take_unresolved()
                    if not names or self.member.is_closing:
                        self.is_asking = False
                        return
                if missing := await self._resolve(core, names, 0.0):
                    self.member.start(self._wait_for(core, missing))
        except BaseException:  # the service is gone: what the next one is to say is asked for anew, behind a rollback
            with self.member.lock:
                self.is_asking = False
            raise

    async def _wait_for(self, core: HostCore, names: list[str]) -> None:
        """Ask for names that nobody bears yet, until they are spawned or the bound is over."""
        until, missing, some_came = time.monotonic() + self.spawn_timeout, names, True
        while some_came and missing:  # none has come when the bound is over, or the system ends
            asked, left = missing, until - time.monotonic()
            missing = await self._resolve(core, asked, max(0.0, left))
            some_came = len(missing) < len(asked)
        if missing:
            senders = {channel.owner.name for name in missing for channel in core.addresses.unresolved.get(name, ())}
            self.member.fail(
                UnknownMachineError(
                    f"no machine {missing[0]!r} was spawned within {self.spawn_timeout:g} s, but"
                    f" {', '.join(sorted(senders)[:3])} sent to it: check the name, or spawn it first",
                    machine=missing[0],
                )
            )

    async def _resolve(self, core: HostCore, names: list[str], timeout: float) -> list[str]:
        """Ask once, and send what waited for the names that are known; returns the others, unless `core` is over."""
        places = await self.member.service.locate.remote(names, timeout)
        with self.member.lock:
            if self.member.is_closing or core is not self.carrier.core:
                return []
            for name, host in places.items():
                core.resolve(name, host)
            self.carrier.flush()
            self.member.wake()
        return [name for name in names if name not in places]

    def place_of(self, handle: MachineHandle) -> str:
        """The host of a machine; waits up to `spawn_timeout` for it to be spawned. Raises `UnknownMachineError`."""
        name, core = handle._name, self.carrier.core
        with self.member.lock:
            if name in core.machines and self.member.host != DRIVER:
                return self.member.host
            place = core.addresses.places.get(name) or handle._host
        if place is None:
            place = self._locate(name)
        if place is None:
            raise UnknownMachineError(
                f"no machine {name!r} was spawned within {self.spawn_timeout:g} s (spawn_timeout); check the name",
                machine=name,
            )
        return str(place)

    def _locate(self, name: str) -> str | None:
        """Wait for a machine to be spawned; a tracked wait, so that other machines of this host can act meanwhile."""
        asked = self.member.service.locate.remote([name], self.spawn_timeout)
        try:
            found: dict[str, str] = located(asked) if self.is_tracked else answer_of(asked)
        except RayError as error:
            raise as_error(error) from None
        return found.get(name)
