"""Host cores joined by links that a test carries by hand: nothing moves unless the test says so."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from ray_snapshot.protocol.barrier_host import BarrierCore
from ray_snapshot.protocol.barriers import Mode
from ray_snapshot.protocol.collector import PendingCounts
from ray_snapshot.protocol.host import HostCore, Machine, OutChannel
from ray_snapshot.simulation.mail.reports import assembled, late_part, part_of


class Net:
    """Machines by the host they live on; the body of a machine is a list: what it has accepted."""

    def __init__(
        self, places: Mapping[str, str], joins: Any = (), core: Callable[..., HostCore] = HostCore, **options: Any
    ) -> None:
        self.cores: dict[str, HostCore] = {}
        self.places = dict(places)
        for name, host in places.items():
            if host not in self.cores:
                self.cores[host] = core(host, copy_body=lambda m: tuple(m.body), **options)
            self.cores[host].born(name, [], joins)
        for name, host in places.items():
            for one in self.cores.values():
                one.resolve(name, host)
            self.cores[host].end_action(self.machine(name))

    def machine(self, name: str) -> Machine:
        return self.cores[self.places[name]].machines[name]

    def send(self, source: str, target: str, args: Any, method: str = "m") -> OutChannel:
        return self.cores[self.places[source]].send(self.machine(source), target, "mail", method, args, 0.0)

    def barrier_core(self, host: str) -> BarrierCore:
        core = self.cores[host]
        assert isinstance(core, BarrierCore)
        return core

    def carry(self, source: str, target: str) -> None:
        """What waits on one link arrives."""
        batch = self.cores[source].output(target).take()
        if batch is not None:
            self.cores[target].arrive(batch)

    def carry_all(self) -> None:
        for source, core in self.cores.items():
            for target in list(core.outputs):
                self.carry(source, target)

    def record(self, host: str, number: int) -> None:
        """The coordinator asks, and a boundary is reached."""
        self.cores[host].request(number)
        self.cores[host].boundary()

    def turn(self, host: str, number: int) -> None:
        """The same, and its machines are copied."""
        self.record(host, number)
        self.copy(host)

    def act(self, host: str) -> tuple[str, list[Any]] | None:
        """One whole action: who, and what it accepted."""
        core = self.cores[host]
        core.boundary()
        found = core.next_action()
        if found is None:
            return None
        machine, taken = found
        machine.body += [message[3] for _, message in taken]
        core.end_action(machine)
        return machine.name, [message[3] for _, message in taken]

    def copy(self, *hosts: str) -> None:
        for host in hosts or self.cores:
            while self.cores[host].copy_next():
                pass

    def in_flight(self, number: int) -> dict[tuple[str, str], list[Any]]:
        """What all hosts have recorded in flight so far, by (source, target); it is taken out."""
        channels = self.snapshot(number).channels
        return {key[:2]: [args for _, _, args in messages] for key, messages in channels.items()}

    def snapshot(self, number: int) -> Any:
        """The recorded snapshot, checked to be complete by the collector's counts."""
        pending = PendingCounts(number, self.cores)
        parts = []
        for host, core in self.cores.items():
            assert number in core.open, f"{host} has not recorded {number}"
            recording = core.open[number]
            assert recording.is_copied, f"{host} has machines to copy"
            late = late_part(host, 1, recording)
            parts += [part_of(host, recording), late]
            pending.report(parts[-2].counts)  # type: ignore[arg-type]
            pending.late(late.counts)  # type: ignore[arg-type]
        assert pending.is_complete, f"it waits for {pending.waits_for()}"
        assert not pending.missing, f"more accepted or found than sent: {pending.missing}"
        return assembled(number, parts)


def barrier_net(mode: Mode, places: Mapping[str, str], *edges: tuple[str, str], **options: Any) -> Net:
    """Machines under a barrier protocol; `edges` are declared, and close no cycle."""
    net = Net(places, core=partial(BarrierCore, mode=mode), **options)
    for source, target in edges:
        net.barrier_core(net.places[target]).await_input(target, source)
        net.cores[net.places[source]].channel(net.machine(source), target, "mail")
    return net
