"""When a machine turns red by barriers: aligned, unaligned, or with alignment skipped.

Sources: P. Carbone et al., "Lightweight Asynchronous Snapshots for Distributed Dataflows" (2015), algorithms 1 (acyclic
graphs) and 2 (cyclic ones); the Flink documentation for unaligned barriers and for alignment that is skipped.

The participant is a *machine*, not a host: the inputs of an operator are channels. Barriers travel in the channels, in
order with the messages; a machine that has recorded n puts a barrier for n on each of its outputs before anything else.
Some of the inputs are *awaited*: those that were declared beforehand and do not close a cycle. All others (back edges, and
undeclared channels) are not; what is white in them when the machine records, or comes after it, is recorded as
channel state, until their barrier has come. A machine that awaits no input is a source, and records when it is asked.

- `ALIGNED`: an input that has delivered its barrier is blocked until the machine has recorded; it records when all that
  are awaited have delivered. So no awaited input has a message in the cut: on an acyclic graph there is no channel state.
- `UNALIGNED`: a barrier is dealt with on arrival, before what was there earlier; the machine records at the first one, and
  what was overtaken is channel state. (That is the marker rule of Chandy and Lamport, machine by machine.)
- `AT_LEAST_ONCE`: as `ALIGNED`, but nothing is blocked. What the machine accepts behind a barrier gets into its state: a
  restore repeats it. The cut is not consistent, and knows how many messages of each channel that is.

    event              effect, for a machine that has not recorded the number (for one that has: none)
    ChannelOpened        none: an input that is awaited is so from now on
    Injected           AskForBoundary if no input is awaited, else none: its barriers will come
    BarrierArrived     ALIGNED: Block its input, and AskForBoundary with the last awaited one
                       UNALIGNED: AskForBoundary; AT_LEAST_ONCE: AskForBoundary with the last awaited one
    BarrierQueued      ALIGNED: AskForBoundary for what waits behind a higher number on this input
    Forced             AskForBoundary: the machine is unaligned for this snapshot
    BoundaryReached    Record, then SendBarriers, before anything else, then Unblock what was blocked for it

`Forced` is for what cannot wait: a red call or reply (its caller waits inside an action, and blocking it could stop the very
barrier that is awaited), a machine that accepts nothing any more, a snapshot given up, patience that is over.

Snapshots whose sources differ may cross: the barrier for m waits behind one for n that has blocked its input, and elsewhere,
at this machine or over several, n waits for m. So a machine never lets m wait behind a higher n. What is left cannot wait in
a circle: for each number from inputs to their sources, which closes no cycle, and from a number to lower ones. (`Numbered`
colours need no such rule: a barrier for n is one for every lower number too.)
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from ray_snapshot.protocol.chandy_lamport import AskForBoundary, BoundaryReached, Record
from ray_snapshot.protocol.colours import Colour, Colours
from ray_snapshot.protocol.turning import Turning, plain

Channel = Any
"""Whatever names an input of the machine."""


class Mode(Enum):
    """What becomes of an input that has delivered its barrier."""

    ALIGNED = "aligned-barrier"
    UNALIGNED = "unaligned-barrier"
    AT_LEAST_ONCE = "at-least-once-barrier"


@dataclass(frozen=True, slots=True)
class ChannelOpened:
    """The machine has this input; `is_awaited`: it was declared, and closes no cycle."""

    channel: Channel
    is_awaited: bool = False


@dataclass(frozen=True, slots=True)
class Injected:
    """The host has heard of `number`: its sources record it."""

    number: int


@dataclass(frozen=True, slots=True)
class BarrierArrived:
    """A barrier of this colour has come: on arrival if `UNALIGNED`, else when it is the head of its channel."""

    channel: Channel
    colour: Colour


@dataclass(frozen=True, slots=True)
class BarrierQueued:
    """A barrier of this colour has taken its place in the channel, behind what is there."""

    channel: Channel
    colour: Colour


@dataclass(frozen=True, slots=True)
class Forced:
    """Record this at the next boundary, aligned or not."""

    colour: Colour


@dataclass(frozen=True, slots=True)
class Block:
    """Accept nothing from this input until further notice."""

    channel: Channel


@dataclass(frozen=True, slots=True)
class SendBarriers:
    """Put a barrier of this colour on every output, before anything else goes onto it."""

    colour: Colour


@dataclass(frozen=True, slots=True)
class Unblock:
    """Accept from these inputs again."""

    channels: tuple[Channel, ...]


Event = ChannelOpened | Injected | BarrierQueued | BarrierArrived | Forced | BoundaryReached
Effect = AskForBoundary | Block | Record | SendBarriers | Unblock


def _as_declared(_channel: Channel, _number: int) -> bool:
    return True


class Alignment:
    """One machine's side; `born` is the colour that it has at its birth.

    `is_awaited` may take inputs out for single numbers (in `simulate` what closes a cycle depends on the source).
    """

    def __init__(
        self,
        mode: Mode,
        colours: Colours | None = None,
        born: Colour | None = None,
        is_awaited: Callable[[Channel, int], bool] = _as_declared,
    ) -> None:
        self.mode = mode
        self.turning = Turning(colours, born)
        self.colours = self.turning.colours
        self.known: Colour = self.turning.colour
        """The numbers that the machine has met, by a barrier or by injection."""
        self.inputs: dict[Channel, Colour] = {}
        """What the barriers of each input have said."""
        self.queued: dict[Channel, Colour] = {}
        """The same, with those that have yet to become the head of their channel."""
        self.awaited: set[Channel] = set()
        self.is_awaited = is_awaited

    @property
    def must_record(self) -> bool:
        """Whether the machine records at its next boundary."""
        return self.turning.must_turn

    def is_blocked(self, channel: Channel) -> bool:
        """Whether nothing may be accepted from this input now."""
        return self.mode is Mode.ALIGNED and self.is_red(self.inputs[channel])

    def is_red(self, colour: Colour) -> bool:
        """Whether something of this colour was sent by a machine that had recorded what this one has not."""
        return bool(self.colours.joined(self.turning.colour, colour) != self.turning.colour)

    def aligning(self) -> tuple[int, ...]:
        """The numbers that the machine has met, and records only when its awaited inputs have delivered them."""
        return self.colours.newly_red(self.turning.due, self.known)

    def step(self, event: Event) -> tuple[Effect, ...]:
        """Take one event; returns the effects, in the order in which the world must carry them out."""
        match event:
            case ChannelOpened(channel, is_awaited):
                self.inputs.setdefault(channel, self.colours.white)
                self.queued.setdefault(channel, self.colours.white)
                if is_awaited:
                    self.awaited.add(channel)
                return ()
            case BarrierArrived(channel, colour):
                return self._barrier(channel, colour)
            case BarrierQueued(channel, colour):
                self.queued[channel] = self.colours.joined(self.queued[channel], colour)
                return self._stuck(channel) if self.is_blocked(channel) else ()
            case Injected(number):
                self.known = self.colours.recorded(self.known, (number,))
                return self._aligned() if not self._awaited_for(number) else ()
            case Forced(colour):
                self.known = self.colours.joined(self.known, colour)
                return self._ask(colour)
            case BoundaryReached():
                return self._record() if self.must_record else ()

    def _awaited_for(self, number: int) -> list[Channel]:
        return [channel for channel in self.awaited if self.is_awaited(channel, number)]

    def _barrier(self, channel: Channel, colour: Colour) -> tuple[Effect, ...]:
        self.inputs[channel] = self.colours.joined(self.inputs[channel], colour)
        self.known = self.colours.joined(self.known, colour)
        if self.mode is Mode.UNALIGNED:
            return self._ask(colour)
        effects: tuple[Effect, ...] = (Block(channel),) if self.is_blocked(channel) else ()
        effects += self._aligned()
        return effects + self._stuck(channel) if self.is_blocked(channel) else effects

    def _stuck(self, channel: Channel) -> tuple[Effect, ...]:
        """Ask for what waits on this input behind a higher number, which has blocked it."""
        colours, delivered = self.colours, self.inputs[channel]
        blocking = max(colours.newly_red(self.turning.colour, delivered))
        effects: tuple[Effect, ...] = ()
        for number in colours.newly_red(self.turning.due, self.queued[channel]):
            is_stuck = number < blocking and not colours.is_red(delivered, number)
            if is_stuck and channel in self._awaited_for(number):
                effects += self._ask(colours.recorded(self.turning.colour, (number,)))
        return effects

    def _aligned(self) -> tuple[Effect, ...]:
        """Ask for what every awaited input has delivered."""
        is_red = self.colours.is_red
        effects: tuple[Effect, ...] = ()
        for number in self.colours.newly_red(self.turning.due, self.known):
            if all(is_red(self.inputs[channel], number) for channel in self._awaited_for(number)):
                effects += self._ask(self.colours.recorded(self.turning.colour, (number,)))
        return effects

    def _ask(self, colour: Colour) -> tuple[Effect, ...]:
        fresh = self.turning.hear(colour)
        return (AskForBoundary(fresh),) if fresh else ()

    def _record(self) -> tuple[Effect, ...]:
        blocked = [channel for channel in self.inputs if self.is_blocked(channel)]
        numbers, colour = self.turning.turn(), self.turning.colour
        freed = tuple(channel for channel in blocked if not self.is_blocked(channel))
        effects: tuple[Effect, ...] = (Record(numbers, colour), SendBarriers(colour))
        return (*effects, Unblock(freed)) if freed else effects

    def fingerprint(self) -> Hashable:
        """A value that is equal exactly for states that behave alike."""
        inputs = tuple(sorted((channel, plain(colour)) for channel, colour in self.inputs.items()))
        queued = tuple(sorted((channel, plain(colour)) for channel, colour in self.queued.items()))
        return self.turning.fingerprint(), plain(self.known), inputs, queued, tuple(sorted(self.awaited))
