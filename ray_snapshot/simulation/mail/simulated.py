"""Hosts in a deterministic world: the very `HostCore`, `Coordinator` and `PendingSnapshot` that the Ray runtime runs.

What Ray, threads and clocks do out there is here a list of *steps*: `perform(step)` takes one, and who chooses is the caller's
business. Between two steps nothing happens. What the machines do, and how a batch arrives, is for those who extend this:
`testing/hosted` has the users' own classes, `tests/worlds/mail/world` pure functions and every fault of a network.

Everything is logged for the oracle, which shares no code with the protocol. Imports the standard library only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar

from ray_snapshot.protocol.barrier_host import BarrierCore
from ray_snapshot.protocol.collector import Answer
from ray_snapshot.protocol.coordinator import AbortedSnapshot, CompletedSnapshot, Coordinator
from ray_snapshot.protocol.host import Machine
from ray_snapshot.protocol.mailbox import MAIL
from ray_snapshot.simulation.mail.central import Central
from ray_snapshot.simulation.mail.hosts import SimHost, Step
from ray_snapshot.simulation.mail.network import Network
from ray_snapshot.simulation.mail.oracle import Log
from ray_snapshot.simulation.mail.reports import Part
from ray_snapshot.simulation.mail.rules import Rules

TIMEOUT = 10_000
"""Of a snapshot, in logical time."""


class SimulatedHosts:
    """Hosts with machines, a network and a central point, between which steps are taken one at a time.

    Each step returns what came of it, for a trace.
    """

    kind: ClassVar[type[SimHost]] = SimHost
    """What its hosts are."""

    def __init__(self, rules: Rules, last: int = 0) -> None:
        self.rules = rules
        self.taken = 0
        """Steps taken."""
        self.hosts: dict[str, SimHost] = {}
        self.places: dict[str, str] = {}
        """By machine that has ever been born: its host."""
        self.network = Network()
        self.control: list[Step] = []
        """Control messages on their way."""
        self.central = Central(Coordinator(most_open=rules.most_open, last=last))
        self.log = Log(is_fifo=rules.is_fifo)

    def add_host(self, name: str, born: Any, open_at_birth: Iterable[int] = ()) -> None:
        """A host is there; nobody has told the central point."""
        barriers = {"on_record": self._recorded, "clock": self._clock}
        self.hosts[name] = self.kind(self.rules.core(name, born, open_at_birth, barriers))

    def make_room(self, host: SimHost, child: str, place: str) -> None:
        """The child that this host creates will live there."""
        if place not in self.hosts:  # born with its creator's colour, and with what is open there
            self.add_host(place, host.core.colour, tuple(host.core.open))
            self.control.append(("register", place))
        self.places[child] = place

    def connect(self, source: str, target: str) -> None:
        """Declare a channel that closes no cycle: barriers align on it."""
        sender, receiver = self.hosts[self.places[source]].core, self.hosts[self.places[target]].core
        if isinstance(receiver, BarrierCore):
            receiver.await_input(target, source)
        sender.channel(sender.machines[source], target, MAIL)
        self.hosts[sender.host].ask()  # else no barrier ever finds its way

    def states(self) -> dict[str, Any]:
        """The state of every machine that has been born."""
        return {
            machine.name: machine.body.state
            for host in self.hosts.values()
            for machine in host.core.machines.values()
            if machine.body is not None
        }

    # ---- machines record ------------------------------------------------------------------------------------------

    def _recorded(self, machine: Machine, numbers: tuple[int, ...]) -> None:
        """Under a barrier protocol each machine records by itself."""
        self.record(numbers, [machine.name])

    def record(self, numbers: Iterable[int], machines: Iterable[str]) -> None:
        """These machines have turned red for these numbers."""
        for number in numbers:
            self.log.record(number, machines)

    def _clock(self) -> float:
        return float(self.taken)

    def boundary(self, host: SimHost) -> tuple[int, ...]:
        """Between two actions of a host: the numbers that it records."""
        numbers = host.core.boundary()
        self.record(numbers, host.core.machines)
        return numbers

    # ---- steps ----------------------------------------------------------------------------------------------------

    def _record(self, name: str) -> object:
        return self.boundary(self.hosts[name])

    def _copy(self, name: str) -> str:
        return self.hosts[name].copy_next()

    def _fire(self, name: str, index: int) -> str:
        return self.hosts[name].fire(index)

    def _resolve(self, name: str, asked: str) -> str:
        return self.hosts[name].resolve(asked, self.places[asked])

    def _crash(self, name: str) -> str:
        """A fault: the host is gone, with all that it kept; snapshots that need it are given up."""
        self.hosts[name].is_down = True
        aborted = self.central.coordinator.leave(name)
        self._give_up(*aborted)
        return f"is gone, and with it snapshots {', '.join(str(one.number) for one in aborted) or 'none'}"

    def snapshot(self, *initiators: str) -> str:
        """Start a snapshot, at the given hosts (all, if none is given)."""
        if any(host.is_down for host in self.hosts.values()):
            return "refused: a host is down, and the system has not been rolled back"
        number = self.central.start(TIMEOUT)
        if number is None:
            return "refused: too many are open"
        self.control += [("request", host, number) for host in initiators or self.central.coordinator.hosts]
        return f"snapshot {number} is asked for"

    def _give_up(self, *aborted: AbortedSnapshot) -> None:
        for one in aborted:
            self.control += self.central.give_up(one)

    def _report(self, name: str, number: int) -> str:
        self.control.append(("part", number, self.hosts[name].report(number)))
        return f"reports {number}"

    def _late(self, name: str, number: int) -> str:
        part = self.hosts[name].late(number)
        self.control.append(("part", number, part))
        return f"reports late for {number}: {sum(map(len, part.channels.values()))} messages"

    # ---- control messages -----------------------------------------------------------------------------------------

    def _control(self, index: int) -> str:
        return self.hear(self.control.pop(index))

    def hear(self, message: Step) -> str:
        """A control message arrives; returns what comes of it."""
        kind, where, *rest = message
        if kind in ("part", "register"):
            return self._hear_centrally(message)
        if where not in self.hosts or self.hosts[where].is_down:
            return f"{where} is down: lost"
        getattr(self.hosts[where].core, kind)(*rest)
        return f"{kind} {' '.join(map(str, rest))} to {where}"

    def _hear_centrally(self, message: Step) -> str:
        kind, where, *rest = message
        if kind == "part":
            return self._part(where, rest[0])
        self.control.append(self.central.welcome(where))
        return f"{where} registers"

    def _part(self, number: int, part: Part) -> str:
        answer = self.central.report(number, part)
        if answer is Answer.SUCCESS:
            snapshot = self.central.coordinator.completed(number)
            if snapshot is not None:
                self.close(snapshot)
        elif answer is Answer.DISCARDED:  # the number is over
            self.control.append(("abort", part.host, number))
        return f"report of {part.host} for {number}: {answer.value}"

    def close(self, snapshot: CompletedSnapshot) -> None:
        """All parts are there."""
        self.control += self.central.complete(snapshot, is_fifo=self.rules.is_fifo)


STEPS: dict[str, Callable[..., object]] = {
    "record": SimulatedHosts._record,
    "copy": SimulatedHosts._copy,
    "fire": SimulatedHosts._fire,
    "resolve": SimulatedHosts._resolve,
    "crash": SimulatedHosts._crash,
    "snapshot": SimulatedHosts.snapshot,
    "report": SimulatedHosts._report,
    "late": SimulatedHosts._late,
    "control": SimulatedHosts._control,
}
"""By kind: what takes it."""
