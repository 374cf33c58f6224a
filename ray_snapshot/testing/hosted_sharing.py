"""Hosts that many worlds of one search have: a world that is about to change one takes a copy of its own first.

A step changes one host, or two. So a world is made of its parent's hosts (`HostedWorld.fork`), and looks each up by
`hosts[name]`, which is where the copy is made; who only reads a host asks `hosts.get(name)`, or goes through `hosts.values()`.
What depends on a host alone is worked out once (`SharedHosts.change`). Before a world is forked its own hosts are kept
(`SharedHosts.keep`), and nothing changes them any more. Never imports Ray.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any

from ray_snapshot.protocol.barrier_host import BarrierCore
from ray_snapshot.simulation.mail.hosts import SimHost
from ray_snapshot.simulation.mail.sharing import FrozenHost, Keeper

if TYPE_CHECKING:
    from ray_snapshot.simulation.mail.simulated import SimulatedHosts


def _no_time() -> float:
    raise AssertionError("a host that other worlds have, too, was about to ask for the time")


def new_keeper() -> Keeper:
    """What keeps the hosts of one search."""
    return Keeper(_no_time)


class SharedHosts(dict[str, SimHost]):
    """The hosts of one world, by name."""

    def __init__(
        self, world: SimulatedHosts, keeper: Keeper, kept: dict[str, FrozenHost], hosts: dict[str, SimHost]
    ) -> None:
        super().__init__(hosts)
        self.world = world
        self.keeper = keeper
        self.shared = kept
        """Those that are not the world's own."""

    def __getitem__(self, name: str) -> SimHost:
        """A host, to be changed."""
        kept = self.shared.pop(name, None)
        if kept is None:
            return super().__getitem__(name)
        host: SimHost = pickle.loads(kept.pickled)
        if isinstance(host.core, BarrierCore):
            host.core.on_record, host.core.clock = self.world._recorded, self.world._clock
        self[name] = host
        return host

    def change(self, name: str, key: Hashable, change: Callable[[SimHost], Any]) -> Any:
        """Let something happen to a host that depends on nothing but it and what `key` tells, and changes nothing else.

        It is worked out once for all worlds with that host. Under barriers a host tells its world when a machine records.
        """
        kept = self.shared.get(name)
        if kept is None or isinstance(kept.host.core, BarrierCore):
            return change(self[name])
        found = kept.changes.get(key)
        if found is None:
            host = self[name]
            result = change(host)
            found = kept.changes[key] = self.keeper.kept(host), result
        after, result = found
        self.shared[name], self[name] = after, after.host
        return result

    def keep(self) -> None:
        """Nothing will change these hosts any more."""
        for name, host in self.items():
            if name not in self.shared:
                kept = self.shared[name] = self.keeper.kept(host)
                self[name] = kept.host

    def marks(self) -> tuple[int, ...]:
        """Equal for hosts, of the same names, whose futures are alike."""
        self.keep()
        shared = self.shared
        return tuple([shared[name].mark for name in sorted(shared)])

    def of(self, world: SimulatedHosts) -> SharedHosts:
        """The same hosts, for another world."""
        self.keep()
        return SharedHosts(world, self.keeper, self.shared.copy(), self)
