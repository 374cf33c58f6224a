"""When a host turns red: Chandy and Lamport's marker rules, with EWD864a's refinements.

Sources: K. M. Chandy and L. Lamport, "Distributed Snapshots" (1985): the marker-sending and marker-receiving rules; E. W.
Dijkstra, EWD864a: colours, and "no red message is accepted in a white action".

The participant is a *host*, which carries one or more machines and turns red as a whole, in one instant with none of its
machines inside an action (except at a tracked wait): only so can one marker on a link stand for one on every channel of
that link. Links are FIFO. What is recorded, and of which machines, is not decided here: see `host`.

    event                effect, by what the host knows of the number
                         stale (recorded or closed)   pending                 new
    SnapshotRequested    none                         none                    AskForBoundary
    MarkerArrived        InputsComplete if the last   none (the input         AskForBoundary
                         awaited input delivered      is done for it)
    NumberSeen           none                         none                    AskForBoundary
    BoundaryReached      -                            Record, then SendMarker to every output, before anything else
    SnapshotClosed       forgets what it awaits       an error: a snapshot that this host has not recorded cannot be complete
    SnapshotAborted      forgets what it awaits       stays pending: who turned red elsewhere stays red, and so must we

Not in the table: messages. A message that arrives touches nothing here; its colour says what it is white for, and
`Turning.is_white` tells. A number seen on something that is no marker (a reply, a creation, a batch of a link that is new)
counts like a marker as far as recording goes: its sender was red.

Under `Numbered` colours, a marker for n stands for every lower number that its link has not carried yet, and recording n
records every lower number at the same instant, even one never heard of.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Protocol

from ray_snapshot.errors import ProtocolError
from ray_snapshot.protocol.colours import Colour, Colours
from ray_snapshot.protocol.turning import Turning


@dataclass(frozen=True, slots=True)
class OutputOpened:
    """The host has a link to `target` from now on; what it carries first has the host's colour."""

    target: str


@dataclass(frozen=True, slots=True)
class InputOpened:
    """A link from `source` exists, or has been heard of for the first time, before anything red came over it."""

    source: str


@dataclass(frozen=True, slots=True)
class SnapshotRequested:
    """The coordinator asks this host to record `number`, or an initiator starts it here."""

    number: int


@dataclass(frozen=True, slots=True)
class MarkerArrived:
    """All that follows on the link from `source` has this colour."""

    source: str
    colour: Colour


@dataclass(frozen=True, slots=True)
class NumberSeen:
    """Something of this colour that came over no link (a reply, a creation) is about to be accepted."""

    colour: Colour


@dataclass(frozen=True, slots=True)
class BoundaryReached:
    """What records (a host, or one machine under barriers) is not inside an action, except at a tracked wait."""


@dataclass(frozen=True, slots=True)
class SnapshotClosed:
    """The coordinator has everything of `number`."""

    number: int


@dataclass(frozen=True, slots=True)
class SnapshotAborted:
    """`number` was given up; its parts are wanted no more."""

    number: int


@dataclass(frozen=True, slots=True)
class AskForBoundary:
    """Reach a boundary before accepting anything that is red for `numbers`; under barriers, anything at all."""

    numbers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Record:
    """Turn red for `numbers`, now: from this instant on the host (under barriers, the machine) has `colour`."""

    numbers: tuple[int, ...]
    colour: Colour


@dataclass(frozen=True, slots=True)
class SendMarker:
    """Put a marker on the link to `target`, before anything else goes onto it."""

    target: str
    colour: Colour


@dataclass(frozen=True, slots=True)
class AttachNumber:
    """Attach `colour` to everything that goes to `target` from now on; nothing is sent for it (the observer variant)."""

    target: str
    colour: Colour


@dataclass(frozen=True, slots=True)
class InputsComplete:
    """Every input that the host had when it recorded `number` has delivered its marker."""

    number: int


Event = (
    OutputOpened
    | InputOpened
    | SnapshotRequested
    | MarkerArrived
    | NumberSeen
    | BoundaryReached
    | SnapshotClosed
    | SnapshotAborted
)
Effect = AskForBoundary | Record | SendMarker | AttachNumber | InputsComplete


class HostProtocol(Protocol):
    """What `HostCore` asks of a protocol by which hosts turn red as a whole."""

    turning: Turning
    has_markers: bool

    @property
    def link_colour(self) -> Colour: ...

    def heard_over(self, source: str, colour: Colour, /) -> MarkerArrived | NumberSeen: ...

    def step(self, event: Event, /) -> tuple[Effect, ...]: ...

    def fingerprint(self) -> Hashable: ...


def asked_for(fresh: tuple[int, ...]) -> tuple[AskForBoundary, ...]:
    """The effect of numbers that are due from now on."""
    return (AskForBoundary(fresh),) if fresh else ()


class ChandyLamport:
    """One host's side of the marker algorithm; `born` is the colour of the host's creator.

    `turning`: that of the ledger in this process, if there is one.
    """

    has_markers = True

    def __init__(
        self, colours: Colours | None = None, born: Colour | None = None, turning: Turning | None = None
    ) -> None:
        self.turning = turning or Turning(colours, born)
        self.outputs: list[str] = []
        self.inputs: dict[str, Colour] = {}
        self.awaited: dict[int, set[str]] = {}
        """Per recorded number that is not closed: the inputs whose marker is missing."""

    @property
    def link_colour(self) -> Colour:
        """What a link that is opened now carries first."""
        return self.turning.colour

    def heard_over(self, source: str, colour: Colour) -> MarkerArrived:
        """What it means that a link changes its colour: that is the marker."""
        return MarkerArrived(source, colour)

    def step(self, event: Event) -> tuple[Effect, ...]:
        """Take one event; returns the effects, in the order in which the world must carry them out."""
        match event:
            case BoundaryReached():
                return self._record() if self.turning.must_turn else ()
            case MarkerArrived(source, colour):
                return self._marker(source, colour)
            case SnapshotRequested(number):
                return asked_for(self.turning.request(number))
            case NumberSeen(colour):
                return asked_for(self.turning.hear(colour))
            case OutputOpened(target):
                if target not in self.outputs:
                    self.outputs.append(target)
                return ()
            case InputOpened(source):
                self.inputs.setdefault(source, self.turning.colours.white)
                return ()
            case SnapshotClosed(number):
                if self.turning.is_white(self.turning.colour, number):
                    raise ProtocolError(f"snapshot {number} was closed before this host recorded it", number=number)
                self.awaited.pop(number, None)
                return ()
            case SnapshotAborted(number):
                self.awaited.pop(number, None)
                return ()

    def _marker(self, source: str, colour: Colour) -> tuple[Effect, ...]:
        colours = self.turning.colours
        old = self.inputs.get(source, colours.white)
        self.inputs[source] = colours.joined(old, colour)
        effects: list[Effect] = [*asked_for(self.turning.hear(colour))]
        for number in colours.newly_red(old, self.inputs[source]):
            missing = self.awaited.get(number)
            if missing is not None and source in missing:
                missing.discard(source)
                if not missing:
                    effects.append(InputsComplete(number))
        return tuple(effects)

    def _record(self) -> tuple[Effect, ...]:
        turning = self.turning
        numbers = turning.turn()
        effects: list[Effect] = [Record(numbers, turning.colour)]
        effects += [SendMarker(target, turning.colour) for target in self.outputs]
        for number in numbers:
            missing = {source for source, colour in self.inputs.items() if turning.is_white(colour, number)}
            self.awaited[number] = missing
            if not missing:
                effects.append(InputsComplete(number))
        return tuple(effects)

    def fingerprint(self) -> Hashable:
        """A value that is equal exactly for states that behave alike."""
        return (
            self.turning.fingerprint(),
            tuple(self.outputs),
            tuple(sorted(self.inputs.items())),
            tuple(sorted((number, tuple(sorted(missing))) for number, missing in self.awaited.items())),
        )
