"""What a host sends to the collector: counts for the protocol, and Arrow columns for the snapshot.

Built from `Recording`s, which do not change any more, so no lock is held here. States are already JSON text (they were
encoded while their machine was held); the arguments of messages in flight are encoded here.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import compress
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ray_snapshot.columns import LEAST_SQUEEZED, Columns, in_batches, inner, lean, spread, squeezed, unspread, whole
from ray_snapshot.encoding import Encoded
from ray_snapshot.parts.reporting import Late, LateRun, LinkCounts, late_report, report
from ray_snapshot.protocol.host import Creation, Recording
from ray_snapshot.protocol.joins import Inputs
from ray_snapshot.protocol.mailbox import MAIL, Mailbox, Message
from ray_snapshot.protocol.parts import GroupCopy, MachineCopy
from ray_snapshot.runtime.collected import HostPayload
from ray_snapshot.runtime.ends import ENDS, Ends
from ray_snapshot.runtime.machine_columns import NO_WAIT, group_columns, machine_columns
from ray_snapshot.runtime.message_columns import InFlight
from ray_snapshot.schema import MACHINES, MESSAGES
from ray_snapshot.shapes import Shape
from ray_snapshot.waits import ShortForm

if TYPE_CHECKING:
    from ray_snapshot.runtime.host.resting import Rows


@dataclass(slots=True)
class BodyCopy:
    """What a snapshot holds of one machine's object."""

    class_name: str
    status: str
    state: Encoded | None
    waits: Sequence[dict[str, Any]] = ()
    """Rows of `waits` without the machine."""
    calls: Sequence[dict[str, Any]] = ()
    """Rows of `calls` without the machine."""
    short_wait: ShortForm = NO_WAIT
    obstacle: str | None = None
    shape: Shape | None = None
    """The shape of its state."""
    inputs: Inputs | None = None
    """Its declared inputs: from these and all messages in flight, `runtime.inputs` finds out later what it waits
    for."""
    recorded_at: float | None = None
    """When the machine turned red by itself; None if its host did so as a whole."""
    kept: tuple[str, bytes] | None = None
    """For a restore: (key of the class, pickled state)."""


@dataclass(frozen=True, slots=True)
class BodyCopies:
    """`BodyCopy` of machines of one class that are passive, and of which nothing but their states is recorded."""

    class_name: str
    texts: Sequence[str]
    """Their states: ASCII, and whole."""
    shape: Shape | None

    def where(self, flags: Sequence[bool]) -> BodyCopies:
        """Those of the machines of which the flags say so."""
        return BodyCopies(self.class_name, [*compress(self.texts, flags)], self.shape)

    def __iter__(self) -> Iterator[BodyCopy]:
        for text in self.texts:
            yield BodyCopy(self.class_name, "passive", Encoded(text, False, len(text)), shape=self.shape)


@dataclass(frozen=True, slots=True)
class Packed:
    """Passive machines at rest whose rows are read only if something asks for them (`brought`)."""

    host: str
    classes: Mapping[str, int]
    """By class: how many."""
    state_bytes: int
    recorded_at: int
    """When the host turned red, in microseconds since 1970."""
    rows: bytes


@dataclass(slots=True)
class HostPart:
    """One host's part of one snapshot, as it is put together where the snapshot is needed."""

    messages: pa.RecordBatch | pa.Table
    ends: pa.RecordBatch | pa.Table | list[Columns]
    """Such batches where it has come to."""
    machines: pa.RecordBatch | pa.Table | None = None
    """The rows of machines; None in a part that came after the report."""
    waits: list[dict[str, Any]] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)
    obstacles: list[str] = field(default_factory=list)
    without_state: list[str] = field(default_factory=list)
    """Machines that were recorded in the middle of an action."""
    markers: int = 0
    """Markers that this host put on its links."""
    inputs: dict[str, Inputs] = field(default_factory=dict)
    """The inputs of passive machines that have declared inputs, or joins."""
    shapes: tuple[Shape, ...] = ()
    """The shapes of the states of its machines, each once."""
    packed: Packed | None = None
    """Of machines at rest that are not among `machines`."""

    @property
    def batches_of_ends(self) -> list[Columns]:
        """The ends, wherever this part is."""
        return self.ends if isinstance(self.ends, list) else in_batches(self.ends)

    @property
    def table_of_ends(self) -> pa.Table:
        """The same, a value a row."""
        return pa.Table.from_batches([spread(batch).select(ENDS.names) for batch in self.batches_of_ends], ENDS)

    def __reduce__(self) -> tuple[Any, ...]:
        tables = (self.messages, self.table_of_ends if isinstance(self.ends, list) else self.ends, self.machines)
        batches = [table if table is None else table.num_rows > 0 and lean(table) for table in tables]
        return _received, (
            batches,
            (
                self.waits,
                self.calls,
                self.obstacles,
                self.without_state,
                self.markers,
                self.inputs,
                self.shapes,
                self.packed,
            ),
        )


def _received(batches: list[Any], rest: tuple[Any, ...]) -> HostPart:
    """`batches`: messages, ends and machines; False: there are none, None: they are not told."""
    (messages, ends, machines), (none, _, no_machines) = batches, _empty()
    return HostPart(
        none if messages is False else whole(messages),
        [] if ends is False else unspread(ends),
        no_machines if machines is False else None if machines is None else whole(machines),
        *rest,
    )


@cache
def _empty() -> tuple[pa.RecordBatch, pa.RecordBatch, pa.RecordBatch]:
    """No messages, no ends, and no machines."""
    messages, ends, machines = (
        pa.RecordBatch.from_pylist([], schema=schema) for schema in (inner(MESSAGES), ENDS, inner(MACHINES))
    )
    return messages, ends, machines


@dataclass(frozen=True, slots=True)
class Facts:
    """What a host's own clock and links say of its instant."""

    recorded_at: float
    markers: int
    """Markers that the host put on its links."""
    obstacles: Sequence[str] = ()
    """Why this part cannot be restored."""


class PartRows:
    """The columns of a part, as a recording is shown to them (`parts.reporting.Rows`)."""

    def __init__(self, part: HostPart | None = None, *, one_by_one: bool = False) -> None:
        self.part = part or _part()
        self.one_by_one = one_by_one
        self.copies: list[MachineCopy] = []
        """Of machines that are born."""
        self.groups: list[GroupCopy] = []
        self.ends = Ends()
        self.messages = InFlight()

    def machine(self, copy: MachineCopy) -> None:
        if not copy.is_born:
            return
        self.copies.append(copy)
        body: BodyCopy = copy.extra
        found = self.part
        if body.state is None:
            found.without_state.append(copy.machine)
        if body.waits:
            found.waits += [{"machine": copy.machine, **row} for row in body.waits]
        if body.calls:
            found.calls += [{"machine": copy.machine, **row} for row in body.calls]
        if body.inputs is not None:
            found.inputs[copy.machine] = body.inputs
        if body.obstacle:
            found.obstacles.append(f"{copy.machine}: {body.obstacle}")

    def group(self, copy: GroupCopy) -> None:
        self.groups.append(copy)
        self.ends.add_group(copy)
        self.messages.add_group(copy)

    def in_flight(self, source: str, target: str, kind: str, messages: Sequence[Message]) -> None:
        self.messages.add(source, target, kind, messages)

    def behind(self, late: Sequence[LateRun]) -> None:
        for box, machine, messages in late:
            self.ends.add_late(box, machine, len(messages))
            self.messages.add(box.source, machine, box.kind, messages)

    def ends_of(self, copy: MachineCopy) -> None:
        self.ends.add(copy)

    def late(self, mailbox: Mailbox, machine: str) -> None:
        self.ends.add_late(mailbox, machine, 1)

    def message(self, source: str, target: str, kind: str, message: Message) -> None:
        self.messages.add(source, target, kind, [message])

    def creation(self, creation: Creation) -> None:
        """Message 0 of the channel from creator to child."""
        message: Message = (0, 0, "__init__", creation.payload[2], creation.sent_at, creation.colour)
        self.messages.add(creation.creator, creation.child, MAIL, [message])

    def machines_of(self, host: str, recorded_at: int | None = None) -> pa.Table:
        """The rows of machines, which all have the same host; `recorded_at`: see `machine_columns`."""
        tables = [group_columns(self.groups, host, recorded_at)] if self.groups else []
        if self.copies or not tables:
            tables.append(machine_columns(self.copies, host, recorded_at, one_by_one=self.one_by_one))
        return pa.concat_tables(tables)

    def pickled(self) -> bytes:
        """The part, with its columns."""
        self.part.messages, self.part.ends = self.messages.table(), _all_of(self.part.ends, self.ends.table())
        pickled = pickle.dumps(self.part, protocol=5)
        packed = self.part.packed
        is_small = packed is not None and len(pickled) - len(packed.rows) < LEAST_SQUEEZED
        return pickled if is_small else squeezed(pickled)


def _part(**facts: Any) -> HostPart:
    return HostPart(*_empty()[:2], **facts)


def _all_of(table: Any, batch: pa.RecordBatch) -> Any:
    """The rows of both."""
    if not table.num_rows:
        return batch
    return pa.Table.from_batches(
        [*table.to_batches(), *(batch.to_batches() if isinstance(batch, pa.Table) else [batch])]
    )


@dataclass(frozen=True, slots=True)
class Resting:
    """What a report shows of the machines that were at rest when its host turned red; see `host.resting`."""

    machines: Rows
    ends: pa.Table
    counts: LinkCounts
    inputs: Mapping[str, Inputs]
    shapes: Sequence[Shape]
    saved: Rows | None = None
    """What a checkpoint keeps of them (`saved_machines.SAVED`); None where none of them is kept."""


def host_payload(
    host: str,
    recording: Recording,
    facts: Facts,
    late: Sequence[Late] = (),
    late_creations: Sequence[Creation] = (),
    resting: Resting | None = None,
    pack: Callable[[Resting, int], Packed | None] | None = None,
) -> HostPayload:
    """The report of a host whose machines have all been copied; O(machines + channels + messages in flight).

    `late` and `late_creations` are white and arrived after their machine was copied. `resting`: those of which there are no
    copies; what they cost is a fraction of a microsecond each, or nothing where their rows were packed before (`pack`).
    """
    part = _part(markers=facts.markers)
    rows = PartRows(part, one_by_one=_turned_red_one_by_one(recording))
    counts = report(host, recording, rows, late, late_creations, None if resting is None else resting.counts)
    recorded_at = int(facts.recorded_at * 1e6)
    if resting is not None and pack is not None:
        part.packed = pack(resting, recorded_at)
    _fill(part, rows, host, recording, facts, resting)
    return HostPayload(recording.number, counts, rows.pickled(), facts.markers)


def _fill(
    part: HostPart, rows: PartRows, host: str, recording: Recording, facts: Facts, resting: Resting | None
) -> None:
    """The columns of a part, of which the messages and the ends of channels are in `rows` already."""
    shapes = {id(shape): shape for copy in recording.copies if copy.is_born and (shape := copy.extra.shape) is not None}
    shapes |= {id(shape): shape for group in recording.groups if (shape := group.extras.shape) is not None}
    part.obstacles += facts.obstacles
    recorded_at = int(facts.recorded_at * 1e6)
    part.machines = rows.machines_of(host, recorded_at=recorded_at)
    if resting is not None:
        if part.packed is None:
            part.machines = _all_of(at(resting.machines.table(), recorded_at), part.machines)
        part.ends = resting.ends
        part.inputs = {**resting.inputs, **part.inputs}
        shapes |= {id(shape): shape for shape in resting.shapes}
    part.shapes = tuple(set(shapes.values()))


def at(machines: pa.Table, recorded_at: int) -> pa.Table:
    """Rows of machines with the moment at which their host turned red."""
    place = machines.schema.get_field_index("recorded_at")
    item = machines.schema.field(place)
    return machines.set_column(place, item, pa.repeat(pa.scalar(recorded_at, item.type), machines.num_rows))


def late_payload(
    host: str, recording: Recording, facts: Facts, late: Sequence[Late], late_creations: Sequence[Creation]
) -> HostPayload:
    """White messages and creations that reached a host after its report."""
    part = _part(markers=facts.markers, obstacles=list(facts.obstacles))
    rows = PartRows(part)
    recording.late_reports += 1
    counts = late_report(host, rows, late, late_creations, recording.late_reports)
    return HostPayload(recording.number, counts, rows.pickled(), facts.markers)


def _turned_red_one_by_one(recording: Recording) -> bool:
    first = next((copy for copy in recording.copies if copy.is_born), None)
    return first is not None and first.extra.recorded_at is not None
