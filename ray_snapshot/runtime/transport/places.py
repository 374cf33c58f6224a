"""On which host a machine lives, as far as this process must know to send to it."""

from __future__ import annotations

from ray.exceptions import RayError

from ray_snapshot.errors import UnknownMachineError
from ray_snapshot.names import DRIVER
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

    def learn(self, handle: MachineHandle) -> None:
        """A handle may say where its machine lives; under the lock."""
        place, known = handle._host, self.carrier.core.addresses.places
        if place is not None and place != self.member.host and handle._name not in known:
            known[handle._name] = place

    def look_up(self) -> None:
        """Ask for the hosts of machines to which something was sent, without waiting; under the lock."""
        names = self.carrier.core.addresses.take_unresolved()
        if names:
            self.member.start_soon(self._resolve(names))

    async def _resolve(self, names: list[str]) -> None:
        """Ask the directory for names until all are there or the bound is over."""
        member, core = self.member, self.carrier.core
        places = await member.service.locate.remote(names, self.spawn_timeout)
        with member.lock:
            if member.is_closing or core is not self.carrier.core:
                return
            for name, host in places.items():
                core.resolve(name, host)
            self.carrier.flush()
            member.wake()
        missing = [name for name in names if name not in places]
        if missing:
            senders = {channel.owner.name for name in missing for channel in core.addresses.unresolved.get(name, ())}
            member.fail(
                UnknownMachineError(
                    f"no machine {missing[0]!r} was spawned within {self.spawn_timeout:g} s, but"
                    f" {', '.join(sorted(senders)[:3])} sent to it: check the name, or spawn it first",
                    machine=missing[0],
                )
            )

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
