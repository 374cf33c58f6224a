"""Token-passing machines on FIFO channels: what `ray-snapshot simulate` runs.

One `HostCore` per machine, `Independent` colours: each snapshot has one initiator and spreads by its own markers alone,
exactly as in the 1985 paper, so overlapping ones do not touch each other. A channel is a queue of messages and markers;
whatever is delivered is handled at once. Complete means here: each machine has recorded, and each of its inputs has
delivered the snapshot's marker. Imports the standard library only; `scripts` reads the files, `playing` chooses orders.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

from ray_snapshot.protocol.chandy_lamport import ChandyLamport
from ray_snapshot.protocol.colours import Independent
from ray_snapshot.protocol.host import HostCore, Machine
from ray_snapshot.protocol.links import Batch
from ray_snapshot.simulation.machines import Input, Output, Send
from ray_snapshot.simulation.oracle import Log, OracleError, Recorded, check, replayed
from ray_snapshot.simulation.reports import Part, assembled, late_part, part_of
from ray_snapshot.simulation.scripts import Topology

UNBOUNDED = 1 << 60


@dataclass(frozen=True, slots=True)
class Holder:
    """Holds tokens: takes what comes; unasked it sends `choice // n` tokens to its target number `choice % n` of n."""

    targets: tuple[str, ...]
    joins: tuple[tuple[str, ...], ...] = ()

    def react(self, _name: str, state: Any, inputs: tuple[Input, ...], choice: int) -> tuple[Any, tuple[Output, ...]]:
        """Take tokens, or send some."""
        if inputs:
            return state + inputs[0].args, ()
        tokens, index = divmod(choice, len(self.targets))
        return state - tokens, (Send(self.targets[index], "tokens", tokens),)


@dataclass(slots=True)
class Result:
    """What one snapshot recorded; of one that is not complete, what it has recorded so far."""

    number: int
    initiator: str
    is_complete: bool
    machines: dict[str, int] = field(default_factory=dict)
    messages: list[tuple[str, str, int]] = field(default_factory=list)
    """(source, target, tokens), in channel order."""
    is_consistent: bool | None = None
    """What the oracle says; None if the snapshot is not complete."""
    problem: str = ""


class TokenSystem:
    """The machines, channels and snapshots of one topology."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.tokens = dict(topology.machines)
        self.channels: dict[tuple[str, str], deque[Batch]] = {channel: deque() for channel in topology.channels}
        self.outputs: dict[str, list[tuple[str, str]]] = {name: [] for name in topology.machines}
        for channel in topology.channels:
            self.outputs[channel[0]].append(channel)
        self.initiators: list[str] = []
        self.pending: dict[int, set[str]] = {}
        """Per snapshot that is not complete: machines that have not finished their part."""
        self.recorded: dict[int, Recorded] = {}
        self.log = Log()
        self.cores: dict[str, HostCore] = {}
        for name, tokens in topology.machines.items():
            targets = tuple(target for _, target in self.outputs[name])
            self.log.start[name] = (Holder(targets), tokens)
            self.log.lengths[name] = 0
            self.cores[name] = _core(name)
        self._connect()

    def _connect(self) -> None:
        for source, target in self.channels:
            core = self.cores[source]
            self.cores[target].input(source)
            core.resolve(target, target)
            core.channel(core.machines[source], target, "mail")
        for name, core in self.cores.items():
            core.machines[name].body = self
            for target, batch in core.take_batches(UNBOUNDED):
                self.cores[target].arrive(batch)

    def send(self, source: str, target: str, tokens: int) -> None:
        """Put a message of `tokens` tokens on the channel; raises `ValueError` if the machine has fewer."""
        if tokens > self.tokens[source]:
            raise ValueError(f"{source} has {amount(self.tokens[source])} and cannot send {tokens}")
        core = self.cores[source]
        machine = core.machines[source]
        core.begin_action(machine)
        holder = self.log.start[source][0]
        assert isinstance(holder, Holder)
        choice = tokens * len(holder.targets) + holder.targets.index(target)
        action = self.log.begin(source, [], choice)
        self.tokens[source] -= tokens
        channel = core.send(machine, target, "mail", "tokens", tokens, 0.0)
        action.after = self.tokens[source]
        action.sent.append((source, target, "mail", channel.sent))
        self._carry(source)

    def snapshot(self, machine: str) -> int:
        """Start a snapshot at `machine`; returns its number."""
        number = len(self.initiators)
        self.initiators.append(machine)
        self.pending[number] = set(self.cores)
        self.cores[machine].request(number)
        self._record(machine)
        self._collect(machine)
        return number

    def deliver(self, source: str, target: str) -> str:
        """Deliver the head of the channel; returns what it was. Raises `IndexError` if the channel is empty."""
        batch = self.channels[source, target].popleft()
        told = told_of(batch, self.cores[target])
        self.cores[target].arrive(batch)
        recorded = self._record(target)
        while (found := self.cores[target].next_action()) is not None:
            self._accept(target, found[1])
        self._collect(target)
        return told + recorded

    def _accept(self, name: str, taken: list[Any]) -> None:
        ((mailbox, message),) = taken
        action = self.log.begin(name, [(mailbox.source, name, "mail", message[1])], 0)
        self.tokens[name] += message[3]
        action.after = self.tokens[name]

    def _record(self, name: str) -> str:
        """A boundary: record what is due, copy at once, send the markers on."""
        core = self.cores[name]
        numbers = core.boundary()
        for number in numbers:
            self.log.record(number, [name])
        while core.copy_next():
            pass
        self._carry(name)
        return "".join(f"; {name} records snapshot {number}" for number in numbers)

    def _carry(self, source: str) -> None:
        for target, batch in self.cores[source].take_batches(UNBOUNDED):
            self.channels[source, target].append(batch)

    def _collect(self, name: str) -> None:
        """A machine whose inputs have all delivered their markers has finished its part."""
        for number, recording in self.cores[name].open.items():
            if recording.has_markers:
                self.pending[number].discard(name)
        for number in [number for number, missing in self.pending.items() if not missing]:
            del self.pending[number]
            self.recorded[number] = assembled(number, self._parts(number))
            for core in self.cores.values():
                core.close(number)

    def _parts(self, number: int) -> list[Part]:
        parts = []
        for name, core in self.cores.items():
            if number in core.open:
                parts += [part_of(name, core.open[number]), late_part(name, 1, core.open[number])]
        return parts

    def results(self) -> list[Result]:
        """Every snapshot in the order in which they were started; at the end of a run, for it takes the recordings."""
        last = replayed(self.log)
        found = []
        for number, initiator in enumerate(self.initiators):
            is_complete = number in self.recorded
            recorded = self.recorded[number] if is_complete else assembled(number, self._parts(number))
            result = Result(number, initiator, is_complete)
            result.machines = {name: recorded.states[name] for name in self.tokens if name in recorded.states}
            for source, target in self.channels:
                messages = recorded.channels.get((source, target, "mail"), ())
                result.messages += [(source, target, args) for _, _, args in messages]
            if is_complete:
                self._judge(result, recorded, last)
            found.append(result)
        return found

    def _judge(self, result: Result, recorded: Recorded, last: Any) -> None:
        try:
            check(self.log, recorded, last)
        except OracleError as error:
            result.problem = str(error)
        result.is_consistent = not result.problem

    @property
    def is_quiet(self) -> bool:
        """Whether every channel is empty."""
        return not any(self.channels.values())

    def fingerprint(self) -> Hashable:
        """Equal for systems that have the same future, and whose snapshots have recorded the same so far."""
        return (
            tuple(self.tokens.values()),
            tuple(tuple(map(_item, queue)) for queue in self.channels.values()),
            tuple(core.protocol.fingerprint() for core in self.cores.values()),
            tuple(
                (number, name, _recorded(recording))
                for name, core in self.cores.items()
                for number, recording in sorted(core.open.items())
            ),
            tuple(repr(recorded) for _, recorded in sorted(self.recorded.items())),
        )


def told_of(batch: Batch, core: HostCore) -> str:
    """What a batch carries, for a person."""
    (colour, messages) = batch[3][-1]
    if messages:
        return amount(messages[0][3])
    new = core.protocol.colours.newly_red(core.inputs[batch[0]].colour, colour)
    return f"marker {', '.join(map(str, new))}"


def amount(tokens: int) -> str:
    """A number of tokens, for a person."""
    return "1 token" if tokens == 1 else f"{tokens} tokens"


def _core(name: str) -> HostCore:
    core = HostCore(name, protocol=ChandyLamport(Independent()), copy_body=_tokens_of, bound=UNBOUNDED)
    core.born(name, None)
    return core


def _tokens_of(machine: Machine) -> int:
    tokens: int = machine.body.tokens[machine.name]
    return tokens


def _item(batch: Batch) -> Hashable:
    colour, messages = batch[3][-1]
    return tuple(sorted(colour)), tuple(message[3] for message in messages)


def _recorded(recording: Any) -> Hashable:
    copies = tuple(
        (
            copy.extra,
            tuple(count for _, count, _ in copy.inputs),
            tuple(count for _, count, _ in copy.outputs),
        )
        for copy in recording.copies
    )
    return copies, tuple((mailbox.source, message[1], message[3]) for mailbox, _, message in recording.late)
