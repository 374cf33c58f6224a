"""Token-passing machines on FIFO channels: what `ray-snapshot simulate` runs.

One core per machine, `Independent` colours: each snapshot has its own initiators and spreads by itself, so overlapping ones
do not touch each other. A channel is a queue of messages and markers (or barriers); whatever is delivered is handled at once.

- `chandy-lamport`: exactly as in the 1985 paper. Complete: each machine has recorded, and each of its inputs has delivered
  the marker.
- `observer`: the one named records, and asks all others over control messages of its own (`asks`). Complete by counts.
- The barriers: those named are the sources, and a channel that closes a cycle on the way from them (`closing`) is a back
  edge. Unaligned barriers overtake the messages of their channel, so these are complete by counts too.

Imports the standard library only; `scripts` reads the files, `playing` chooses orders.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ray_snapshot.protocol.barrier_host import BARRIER, BarrierCore, StreamInbox
from ray_snapshot.protocol.choosing import AT_LEAST_ONCE, BARRIERS, CHANDY_LAMPORT, OBSERVER, UNALIGNED, core_for
from ray_snapshot.protocol.collector import HostReport, PendingCounts
from ray_snapshot.protocol.colours import Independent
from ray_snapshot.protocol.host import HostCore, Machine, Recording
from ray_snapshot.protocol.links import Batch, InLink
from ray_snapshot.protocol.mailbox import Inbox
from ray_snapshot.protocol.observer import LooseInLink
from ray_snapshot.simulation.mail.oracle import (
    Log,
    OracleError,
    RecordedSnapshot,
    check_colours,
    check_recorded,
    compare,
)
from ray_snapshot.simulation.mail.reports import Part, assembled, late_part, part_of
from ray_snapshot.simulation.tokens.scripts import Topology

UNBOUNDED = 1 << 60


@dataclass(slots=True)
class Result:
    """What one snapshot recorded; of one that is not complete, what it has recorded so far."""

    number: int
    initiators: tuple[str, ...]
    is_complete: bool
    machines: dict[str, int] = field(default_factory=dict)
    messages: list[tuple[str, str, int]] = field(default_factory=list)
    """(source, target, tokens), in channel order."""
    is_consistent: bool | None = None
    """What the oracle says; None if the snapshot is not complete."""
    problem: str = ""
    duplicates: list[tuple[str, str, int]] = field(default_factory=list)
    """(source, target, messages) that a restore would repeat: where alignment is skipped."""
    control_message_count: int = 0
    """Markers, barriers, or the observer's requests and what is reported to it."""
    blocked: dict[str, int] = field(default_factory=dict)
    """Machines that aligned, with the messages that waited for it."""


class TokenSystem:
    """The machines, channels and snapshots of one topology."""

    def __init__(self, topology: Topology, protocol: str = CHANDY_LAMPORT) -> None:
        self.topology = topology
        self.protocol = protocol
        self.tokens = dict(topology.machines)
        self.channels: dict[tuple[str, str], deque[Batch]] = {channel: deque() for channel in topology.channels}
        self.outputs: dict[str, list[tuple[str, str]]] = {name: [] for name in topology.machines}
        for channel in topology.channels:
            self.outputs[channel[0]].append(channel)
        self.initiators: list[tuple[str, ...]] = []
        self.asks: dict[tuple[str, str], deque[int]] = {}
        """The observer's requests on their way: (observer, machine)."""
        self.back: dict[int, set[tuple[str, str]]] = {}
        """Per snapshot: the channels that close a cycle on the way from its sources."""
        self.pending: dict[int, set[str]] = {}
        """Per snapshot that is not complete: machines that have not finished their part."""
        self.counts: dict[int, PendingCounts] = {}
        """The same by counts, where no marker closes a channel."""
        self.parts: dict[int, list[Part]] = {}
        self.control_counts: Counter[int] = Counter()
        self.sent_behind: dict[tuple[str, str, int], int] = {}
        """How many actions a machine had performed when it sent a control message: (source, target, which)."""
        self.control: list[tuple[str, int, str, int, str]] = []
        """Control messages delivered: (source, its actions by then, target, its actions by then, text)."""
        self.recorded: dict[int, RecordedSnapshot] = {}
        self.log = Log()
        self.cores: dict[str, HostCore] = {}
        for name, tokens in topology.machines.items():
            self.log.start[name] = (None, tokens)
            self.log.lengths[name] = 0
            self.cores[name] = self._core(name)
        self._connect()

    def _core(self, name: str) -> HostCore:
        options: dict[str, Any] = {"in_link": LooseInLink if self.protocol == UNALIGNED else InLink}
        if self.protocol not in BARRIERS:
            options["inbox"] = Inbox
        barriers = {"is_awaited": self._is_awaited}
        core = core_for(
            self.protocol,
            name,
            colours=Independent(),
            barriers=barriers,
            copy_body=_tokens_of,
            bound=UNBOUNDED,
            **options,
        )
        core.born(name, None)
        core.boundary()
        return core

    def _is_awaited(self, target: str, source: str, number: int) -> bool:
        return (source, target) not in self.back.get(number, ())

    def _connect(self) -> None:
        for source, target in self.channels:
            core, receiver = self.cores[source], self.cores[target]
            if isinstance(receiver, BarrierCore):
                receiver.await_input(target, source)
            receiver.input(source)
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
        action = self.log.begin(source, [], tokens)
        self.tokens[source] -= tokens
        channel = core.send(machine, target, "mail", "tokens", tokens, 0.0)
        action.after = self.tokens[source]
        action.sent.append((source, target, "mail", channel.sent))
        core.end_action(machine)
        self._carry(source)

    def snapshot(self, *machines: str) -> int:
        """Start a snapshot at `machines`: its initiators, sources or observers; returns its number."""
        number = len(self.initiators)
        self.initiators.append(machines)
        self.pending[number] = set(self.cores)
        self.counts[number] = PendingCounts(number, self.cores)
        self.parts[number] = []
        self.back[number] = closing(self.outputs, machines) if self.protocol in BARRIERS else set()
        for machine in machines:
            self.cores[machine].request(number)
            self._record(machine)
            self._collect(machine)
        if self.protocol == OBSERVER:
            self._ask(number, machines[0], [name for name in self.cores if name not in machines])
        return number

    def _ask(self, number: int, observer: str, names: Iterable[str]) -> None:
        for name in names:
            self.asks.setdefault((observer, name), deque()).append(number)
            self.sent_behind[observer, name, -1 - number] = self.log.lengths[observer]
            self.control_counts[number] += 1

    def ask(self, observer: str, machine: str) -> str:
        """The oldest request of the observer reaches the machine. Raises `LookupError` if none is on its way."""
        number = self.asks[observer, machine].popleft()
        self._tell_control(observer, machine, -1 - number, f"request {number}")
        if number not in self.recorded:
            self.cores[machine].request(number)
        recorded = self._record(machine)
        self._collect(machine)
        return f"request {number}{recorded}"

    def deliver(self, source: str, target: str) -> str:
        """Deliver the head of the channel; returns what it was. Raises `IndexError` if the channel is empty."""
        batch = self.channels[source, target].popleft()
        core = self.cores[target]
        told = told_of(batch, core)
        if _is_control(batch):
            self._tell_control(source, target, batch[1], told)
        before = self.log.lengths[target]
        core.arrive(batch)
        settled = self._settle(target)
        is_held = (
            not _is_control(batch) and self.log.lengths[target] == before
        )  # its channel is blocked: the machine aligns
        return told + ("; held back" if is_held else "") + settled

    def _settle(self, name: str) -> str:
        """Record what is due, and accept what waits and is not blocked."""
        core, recorded = self.cores[name], self._record(name)
        while (found := core.next_action()) is not None:
            self._accept(name, found[1])
            recorded += self._record(name)
        self._collect(name)
        return recorded

    def _tell_control(self, source: str, target: str, which: int, text: str) -> None:
        behind = self.sent_behind.pop((source, target, which))
        self.control.append((source, behind, target, self.log.lengths[target], text))

    def _accept(self, name: str, taken: list[Any]) -> None:
        ((mailbox, message),) = taken
        action = self.log.begin(name, [(mailbox.source, name, "mail", message[1])], 0)
        self.tokens[name] += message[3]
        action.after = self.tokens[name]

    def _record(self, name: str) -> str:
        """A boundary: record what is due, copy at once, send the markers on."""
        core = self.cores[name]
        before = core.machines[name].copied
        core.boundary()
        while core.copy_next():
            pass
        numbers = core.turning.colours.newly_red(before, core.machines[name].copied)
        for number in numbers:
            self.log.record(number, [name])
            self.control_counts[number] += 0 if self.protocol == OBSERVER else len(self.outputs[name])
        self._carry(name)
        return "".join(f"; {name} records snapshot {number}" for number in numbers)

    def _carry(self, source: str) -> None:
        for target, batch in self.cores[source].take_batches(UNBOUNDED):
            queue = self.channels[source, target]
            if _is_control(batch):
                self.sent_behind[source, target, batch[1]] = self.log.lengths[source]
            if self.protocol == UNALIGNED and _is_barrier(batch):  # behind the barriers that have overtaken before it
                queue.insert(sum(map(_is_barrier, queue)), batch)
            else:
                queue.append(batch)

    def _collect(self, name: str) -> None:
        """What the machine has recorded since the last time reaches the central point at once."""
        by_counts = self.protocol in (OBSERVER, UNALIGNED)
        for number, recording in self.cores[name].open.items():
            if by_counts:
                self._count(name, number, recording)
            elif recording.has_markers:
                self.pending[number].discard(name)
        for number in [number for number, missing in self.pending.items() if not missing]:
            self._complete(number)

    def _count(self, name: str, number: int, recording: Recording) -> None:
        counts = self.counts[number]
        parts, news = self.parts[number], list[Part]()
        if recording.is_copied and name not in counts.reported:
            news.append(part_of(name, recording))
        elif recording.is_copied and recording.late:
            news.append(late_part(name, len(parts) + 1, recording))
        parts += news
        for part in news:
            if isinstance(part.counts, HostReport):
                counts.report(part.counts)
            else:
                counts.late(part.counts)
        if (
            self.protocol == OBSERVER and name != self.initiators[number][0]
        ):  # only that one counts, and the others report
            self.control_counts[number] += len(news)
        if counts.is_complete:
            self.pending[number].clear()

    def _complete(self, number: int) -> None:
        del self.pending[number]
        self.recorded[number] = assembled(number, self._parts(number))
        for core in self.cores.values():
            core.close(number)

    def _parts(self, number: int) -> list[Part]:
        """What was reported; where nothing is counted, what there is now."""
        there = {part.host for part in self.parts[number]}
        open_here = {name: core.open[number] for name, core in self.cores.items() if number in core.open}
        parts = self.parts[number] + [part_of(name, one) for name, one in open_here.items() if name not in there]
        return sorted(parts, key=lambda part: (part.host, part.sequence))

    def results(self) -> list[Result]:
        """Every snapshot in the order in which they were started; at the end of a run, for it takes the recordings."""
        found = []
        for number, initiators in enumerate(self.initiators):
            is_complete = number in self.recorded
            recorded = self.recorded[number] if is_complete else assembled(number, self._parts(number))
            result = Result(number, initiators, is_complete)
            result.control_message_count = self.control_counts[number]
            result.blocked = recorded.blocked
            result.machines = {name: recorded.states[name] for name in self.tokens if name in recorded.states}
            for source, target in self.channels:
                messages = recorded.channels.get((source, target, "mail"), ())
                result.messages += [(source, target, args) for _, _, args in messages]
                if repeated := recorded.duplicates.get((source, target, "mail")):
                    result.duplicates.append((source, target, repeated))
            if is_complete:
                self._judge(result, recorded)
            found.append(result)
        return found

    def _judge(self, result: Result, recorded: RecordedSnapshot) -> None:
        try:
            if self.protocol != AT_LEAST_ONCE:
                check_colours(self.log, recorded.number)
                held = sum(result.machines.values()) + sum(tokens for _, _, tokens in result.messages)
                compare("there are", amount(sum(self.topology.machines.values())), amount(held))
            check_recorded(self.log, recorded)
        except OracleError as error:
            result.problem = str(error)
        result.is_consistent = not (result.problem or result.duplicates)

    @property
    def is_quiet(self) -> bool:
        """Whether every channel is empty, and no request is on its way."""
        return not any(self.channels.values()) and not any(self.asks.values())

    def fingerprint(self) -> Hashable:
        """Equal for systems that have the same future, and whose snapshots have recorded the same so far."""
        return (
            tuple(self.tokens.values()),
            tuple(tuple(map(_item, queue)) for queue in self.channels.values()),
            tuple((key, tuple(numbers)) for key, numbers in sorted(self.asks.items()) if numbers),
            tuple(core.fingerprint() for core in self.cores.values()),
            tuple(_waiting(core) for core in self.cores.values()),
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
    if messages and messages[0][2] == BARRIER:
        inbox = core.machines[core.host].inbox
        assert isinstance(inbox, StreamInbox)
        heard = inbox.heard[batch[0], "mail"]
        return f"barrier {', '.join(map(str, core.turning.colours.newly_red(heard, messages[0][5])))}".rstrip()
    if messages:
        return amount(messages[0][3])
    new = core.turning.colours.newly_red(core.inputs[batch[0]].colour, colour)
    return f"marker {', '.join(map(str, new))}"


def amount(tokens: int) -> str:
    """A number of tokens, for a person."""
    return "1 token" if tokens == 1 else f"{tokens} tokens"


def closing(outputs: Mapping[str, Sequence[tuple[str, str]]], sources: Sequence[str]) -> set[tuple[str, str]]:
    """The channels that close a cycle: into a source, or back edges of the depth-first search from them; O(V + E)."""
    found = {channel for channels in outputs.values() for channel in channels if channel[1] in sources}
    done: set[str] = set()
    on_path: set[str] = set()
    stack = [(name, iter(outputs[name])) for name in sources]
    while stack:
        name, channels = stack[-1]
        on_path.add(name)
        channel = next(channels, None)
        if channel is None:
            stack.pop()
            done.add(name)
            on_path.discard(name)
        elif channel[1] in on_path:
            found.add(channel)
        elif channel[1] not in done and channel[1] not in sources:
            stack.append((channel[1], iter(outputs[channel[1]])))
    return found


def _is_barrier(batch: Batch) -> bool:
    messages = batch[3][-1][1]
    return bool(messages) and messages[0][2] == BARRIER


def message_number(batch: Batch) -> int | None:
    """The number of a message on its channel, from 1; None for a marker or barrier."""
    return None if _is_control(batch) else batch[3][-1][1][0][1]


def _is_control(batch: Batch) -> bool:
    return _is_barrier(batch) or not batch[3][-1][1]


def _tokens_of(machine: Machine) -> int:
    tokens: int = machine.body.tokens[machine.name]
    return tokens


def _item(batch: Batch) -> Hashable:
    colour, messages = batch[3][-1]
    return tuple(sorted(colour)), tuple((message[2], message[3], tuple(sorted(message[5]))) for message in messages)


def _waiting(core: HostCore) -> Hashable:
    """What waits in the mailboxes of a machine that aligns."""
    boxes = core.machines[core.host].inbox.mailboxes
    return tuple((key, tuple(message[1:4] for message in box.queue)) for key, box in sorted(boxes.items()))


def _recorded(recording: Any) -> Hashable:
    copies = tuple(
        (
            copy.extra,
            tuple(count for _, count, _ in copy.inputs),
            tuple(count for _, count, _ in copy.outputs),
        )
        for copy in recording.each_copy()
    )
    return copies, tuple((mailbox.source, message[1], message[3]) for mailbox, _, message in recording.late)
