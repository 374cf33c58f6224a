"""A system of many hosts in one process: the service and the cores of hosts that ship.

What is real: `runtime.service.Service` with all its parts, a `HostCore` for each host and for the driver, the reports that they
build (`runtime.report`), and every pickle that Ray would carry. What is not: Ray. A call is a pickle in a pool, of which one is
taken by chance and delivered. Of what Ray itself costs a service, `scale` says how much it was measured to be.
"""

from __future__ import annotations

import asyncio
import gc
import math
import pickle
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from ray_snapshot.encoding import to_json
from ray_snapshot.names import DRIVER
from ray_snapshot.parts.reporting import taken
from ray_snapshot.protocol.barrier_host import BARRIER, BarrierCore
from ray_snapshot.protocol.choosing import BARRIERS, core_for
from ray_snapshot.protocol.commands import Close, Request, Welcome
from ray_snapshot.protocol.host import HostCore, Machine
from ray_snapshot.protocol.links import Batch
from ray_snapshot.protocol.mailbox import MAIL, METHOD
from ray_snapshot.runtime.collected import Collected
from ray_snapshot.runtime.report import BodyCopy, Facts, host_payload, late_payload
from ray_snapshot.runtime.service.actor import Service
from ray_snapshot.runtime.service.config import ServiceConfig

NO_END_S = 1e9
"""The timeout of snapshots here: a large crowd takes minutes in one process."""

SETTLE_S = 1e-4

Targets = list[list[int]]
"""By host: those that it has a link to."""


def complete(hosts: int) -> Targets:
    """Every host to every other."""
    return [[target for target in range(hosts) if target != source] for source in range(hosts)]


def ring(hosts: int) -> Targets:
    """Every host to the next."""
    return [[(source + 1) % hosts] for source in range(hosts)]


def tree(hosts: int) -> Targets:
    """A binary tree, each of its edges in both directions."""
    found: Targets = [[] for _ in range(hosts)]
    for child in range(1, hosts):
        found[child].append((child - 1) // 2)
        found[(child - 1) // 2].append(child)
    return found


def scattered(hosts: int, degree: int = 8) -> Targets:
    """Every host to `degree` others, by chance."""
    chance = random.Random(hosts)
    return [
        [target + (target >= source) for target in chance.sample(range(hosts - 1), min(degree, hosts - 1))]
        for source in range(hosts)
    ]


@dataclass(frozen=True, slots=True)
class Round:
    """What one snapshot took: how many of each kind were sent, how many bytes they had, and seconds of processor time."""

    sent: Counter[str]
    size: Counter[str]
    service_s: float
    hosts_s: float

    @property
    def control_messages(self) -> int:
        """All that the snapshot sent; what the program sends is not among it."""
        return self.sent.total()


@dataclass(slots=True)
class Network:
    """What is on its way."""

    chance: random.Random
    under_way: list[tuple[bytes, Any]] = field(default_factory=list)
    sent: Counter[str] = field(default_factory=Counter)
    size: Counter[str] = field(default_factory=Counter)

    def send(self, kind: str, message: Any, target: Any) -> None:
        """A message in one call."""
        carried = pickle.dumps(message, protocol=5)
        self.sent[kind] += 1
        self.size[kind] += len(carried)
        self.under_way.append((carried, target))

    def next(self) -> tuple[Any, Any]:
        """One of what is on its way, by chance: (message, target)."""
        at = self.chance.randrange(len(self.under_way))
        self.under_way[at], self.under_way[-1] = self.under_way[-1], self.under_way[at]
        carried, target = self.under_way.pop()
        return pickle.loads(carried), target

    def take_counts(self) -> tuple[Counter[str], Counter[str]]:
        """What was sent since this was last asked, and its bytes."""
        found = self.sent, self.size
        self.sent, self.size = Counter(), Counter()
        return found


@dataclass(frozen=True, slots=True)
class Call:
    """A method of a Ray actor."""

    remote: Callable[..., Any]


def _never(*_: Any) -> asyncio.Future[Any]:
    return asyncio.get_running_loop().create_future()


class Actor:
    """A host, as the service sees it."""

    def __init__(self, network: Network, host: Host) -> None:
        self.watched = Call(_never)
        self.roll = Call(lambda step, *_: asyncio.sleep(0, (step,)))
        self.control = Call(lambda commands, _: network.send(kind_of(commands), commands, host))
        self.ask = Call(self._asked)

    def _asked(self, commands: list[Any], generation: int) -> Awaitable[None]:
        """The report travels by itself, so that it may be lost or overtaken as what comes late may."""
        self.control.remote(commands, generation)
        return asyncio.sleep(0)


def kind_of(commands: list[Any]) -> str:
    """What a call to a host is counted as: a request takes along what was put off."""
    kinds = {type(one) for one in commands}
    return next(name for kind, name in ((Request, "request"), (Welcome, "welcome"), (Close, "close")) if kind in kinds)


class Analyst:
    """Takes complete snapshots, as bytes."""

    def __init__(self, network: Network) -> None:
        self.watched = Call(_never)
        self.add = Call(self._add)
        self.network = network

    def _add(self, found: Collected, _place: int, _session: None, *pieces: bytes) -> Awaitable[None]:
        self.network.size["handed on"] += len(pickle.dumps((found, *pieces), protocol=5))
        return asyncio.sleep(0)


class Host:
    """A core, and what the runtime does around it, without threads: it records, copies and reports as soon as it may."""

    def __init__(self, name: str, protocol: str, network: Network) -> None:
        barriers = {"clock": lambda: 0.0} if protocol in BARRIERS else None
        self.core: HostCore = core_for(protocol, name, barriers=barriers, copy_body=copied)
        self.network = network
        self.reported: set[int] = set()

    def obey(self, commands: Iterable[Any]) -> None:
        """Do what the service says."""
        for command in commands:
            match command:
                case Request(number):
                    self.core.request(number)
                case Welcome(pending, last):
                    self.core.welcome(pending, last)
                case Close(number):
                    self.core.close(number)
        self.go_on()

    def arrive(self, batch: Batch) -> None:
        """Take what another host has sent."""
        self.core.arrive(batch)
        self.go_on()

    def go_on(self) -> None:
        """Turn red if that is due, copy, carry out creations, and report."""
        core = self.core
        if core.boundary() or isinstance(core, BarrierCore):
            self.flush()
        while (creation := core.next_birth()) is not None:
            core.end_action(core.born(creation.child, creation.payload))
        while core.copying.uncopied:
            core.copy_next()
        self.report(is_patient=True)

    def report(self, is_patient: bool) -> None:
        """Report what is copied; `is_patient`: only what has all its markers."""
        for recording in self.core.open.values():
            if not recording.is_copied or (is_patient and not recording.has_markers):
                continue
            facts = Facts(0.0, recording.marker_count)
            if recording.number not in self.reported:
                self.reported.add(recording.number)
                self.network.send("report", host_payload(self.core.host, recording, facts, *taken(recording)), None)
            elif recording.late:  # over a link of which the host knew nothing when it reported
                self.network.send("late", late_payload(self.core.host, recording, facts, *taken(recording)), None)

    def flush(self) -> None:
        """Send what is gathered for other hosts."""
        for target, batch in self.core.take_batches():
            self.network.send("marker" if is_control(batch) else "message", batch, target)

    def accept_all(self) -> None:
        """Let its machine accept all that has come."""
        while (found := self.core.next_action()) is not None:
            self.core.end_action(found[0])


def copied(machine: Machine) -> BodyCopy:
    """What a snapshot holds of a machine: a small state."""
    return BodyCopy("Account", "passive", to_json({"name": machine.name, "balance": 100, "recent": [1, 2, 3]}))


def is_control(batch: Batch) -> bool:
    """Whether a batch carries markers, and no message of the program."""
    return all(message[METHOD] == BARRIER for _, messages in batch[3] for message in messages)


class Crowd:
    """So many hosts with a machine each, which sends on each of its channels between two snapshots.

    The driver has made the machines, so it has a link to each host, on which it sends a marker like any other.
    """

    def __init__(self, targets: Targets, *, protocol: str = "chandy-lamport") -> None:
        self.targets = targets
        self.network = Network(random.Random(0))
        config = ServiceConfig("crowd", "run-000001", protocol, 8, NO_END_S)
        self.service = Service(config, Analyst(self.network))
        self.driver = Host(DRIVER, protocol, self.network)
        self.hosts = {
            f"host-{number}": Host(f"host-{number}", protocol, self.network) for number in range(len(targets))
        }
        self.obeyed = 0
        self.service_s = self.hosts_s = 0.0

    async def begin(self) -> None:
        """Make the hosts known, and a machine on each; the first snapshot, which also opens what is opened once."""
        core = self.driver.core
        core.end_action(core.born(DRIVER, DRIVER))
        for number, (name, host) in enumerate(self.hosts.items()):
            await self.service.register(name, [Actor(self.network, host)])
            await asyncio.sleep(
                SETTLE_S
            )  # the service waits for its answer, or would ask it again with each that comes
            core.create(DRIVER, f"m-{number}", name, "Account", 0.0)
            for target in self.targets[number]:
                host.core.resolve(f"m-{target}", f"host-{target}")
        self.driver.flush()
        await self._deliver_all()
        await self.snapshot()
        gc.collect()
        gc.freeze()  # what is of the hosts: a service of its own would not walk it

    async def snapshot(self) -> Round:
        """Let every machine send, and take a snapshot while that is on its way."""
        for number, host in enumerate(self.hosts.values()):
            machine = host.core.machines[f"m-{number}"]
            for target in self.targets[number]:
                host.core.send(machine, f"m-{target}", MAIL, "deposit", (1,), 0.0)
            host.flush()
        self.network.take_counts()
        self.service_s = self.hosts_s = 0.0
        number = await self._served(self.service.snapshot([], NO_END_S, wait=False))
        while number in self.service.collecting.collections:
            await self._ask_driver()
            await self._deliver_all()
            for host in (self.driver, *self.hosts.values()):
                self._timed(host.report, False)
        await self._served(self.service.collecting.line.handed_over())
        self.service.orders.lazy_until = math.inf  # what is put off goes with the next request
        sent, size = self.network.take_counts()
        for host in self.hosts.values():
            host.accept_all()
        self.network.take_counts()
        sent.pop("message", None), size.pop("message", None)
        return Round(sent, size, self.service_s, self.hosts_s)

    async def end(self) -> None:
        """Give up what the service waits for."""
        for task in [*self.service.course.tasks]:
            task.cancel()
        await asyncio.sleep(0)
        gc.unfreeze()

    async def _ask_driver(self) -> None:
        if self.service.orders.driver_told > self.obeyed:
            commands = await self._served(self.service.commands(self.obeyed))
            self.obeyed += len(commands)
            self.network.send(kind_of(commands), commands, self.driver)

    async def _deliver_all(self) -> None:
        while self.network.under_way:
            message, target = self.network.next()
            if target is None:
                await self._served(self.service.report(message))
                await self._ask_driver()
            elif isinstance(target, Host):
                self._timed(target.obey, message)
            else:
                self._timed(self._arrived, target, message)

    def _arrived(self, target: str, batch: Batch) -> None:
        source = self.driver if batch[0] == DRIVER else self.hosts[batch[0]]
        source.core.outputs[target].in_flight = 0  # the window never closes here: one batch a round, and a marker
        self.hosts[target].arrive(batch)

    def _timed(self, work: Callable[..., object], *args: Any) -> None:
        began = time.process_time()
        work(*args)
        self.hosts_s += time.process_time() - began

    async def _served(self, work: Awaitable[Any]) -> Any:
        """Let the service work, on its event loop and nothing else there."""
        began = time.process_time()
        try:
            return await work
        finally:
            self.service_s += time.process_time() - began


def rounds_of(targets: Targets, count: int = 3, protocol: str = "chandy-lamport") -> list[Round]:
    """So many snapshots of such a system, behind a first one."""

    async def play() -> list[Round]:
        crowd = Crowd(targets, protocol=protocol)
        await crowd.begin()
        found = [await crowd.snapshot() for _ in range(count)]
        await crowd.end()
        return found

    return asyncio.run(play())
