"""How the made-up system moves: what each channel has carried by each snapshot, all channels at once.

In every interval some channels send; of what is sent a little is still in flight at the snapshot, and nothing that was in
flight at the one before. So a history without anomalies has no head of line that stands still. Imports numpy only; read
`plan` first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ray_snapshot.synth.plan import BLOCK, LONELY, Planted, Settings

Integers = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]

CALL, MAIL = 0, 1
_LARGEST_BACKLOG = 300
_BACKLOG_SENT, _BACKLOG_GROWTH = 5, 3
_HOT_SENT = 200


@dataclass(frozen=True, slots=True)
class Channels:
    """Who can send to whom, sorted by source, target and kind."""

    source: Integers
    target: Integers
    kind: Integers
    amount: Integers
    """What every message of the channel carries."""

    def index(self, source: int, target: int, kind: int = MAIL) -> int:
        """The position of a channel."""
        (found,) = np.flatnonzero((self.source == source) & (self.target == target) & (self.kind == kind))
        return int(found)


@dataclass(frozen=True, slots=True)
class Step:
    """The channels as of one snapshot; arrays over `Channels`."""

    number: int
    sent: Integers
    accepted: Integers
    in_flight: Integers
    held: Booleans
    """Channels whose messages in flight were sent at `held_since` and stay."""
    held_since: Integers
    growing: Booleans
    """Channels with a backlog that moves, but too slowly."""
    calling: Booleans
    """Call channels whose last call runs at this moment."""


def lay_channels(settings: Settings, planted: Sequence[Planted], chance: np.random.Generator) -> Channels:
    """A ring of all machines, one shortcut for every four, calls for one in twenty, and what the anomalies need."""
    count = settings.machines
    lonely = {one.first + 1 for one in planted if one.anomaly in LONELY}
    taken = {one.first + n for one in planted for n in range(BLOCK)}
    ring = np.array([machine for machine in range(1, count + 1) if machine not in lonely], np.int64)
    free = np.array([machine for machine in range(1, count + 1) if machine not in taken], np.int64)
    shortcuts = chance.choice(free, (count // 4, 2))
    callers = chance.permutation(free)[: 2 * max(1, count // 20)].reshape(-1, 2)
    own = np.array([key for one in planted for key in _own(one)], np.int64).reshape(-1, 3)
    keys = np.concatenate(
        [
            _keys(np.column_stack([ring, np.roll(ring, -1)]), MAIL),
            _keys(shortcuts[shortcuts[:, 0] != shortcuts[:, 1]], MAIL),
            _keys(callers, CALL),
            own,
        ]
    )
    keys = np.unique(keys, axis=0)
    return Channels(keys[:, 0], keys[:, 1], keys[:, 2], np.where(keys[:, 2] == MAIL, 1 + keys[:, 0] % 5, 0))


def _keys(pairs: Integers, kind: int) -> Integers:
    return np.column_stack([pairs, np.full(len(pairs), kind, np.int64)])


def _own(planted: Planted) -> list[tuple[int, int, int]]:
    """Channels that only this anomaly needs."""
    one = planted.first
    if planted.anomaly == "deadlock":
        return [(one, one + 1, CALL), (one + 1, one + 2, CALL), (one + 2, one, CALL), (one + 3, one, CALL)]
    return [(one + 2, one + 1, MAIL)] if planted.anomaly == "stuck" else []


def steps(
    settings: Settings, planted: Sequence[Planted], channels: Channels, chance: np.random.Generator
) -> Iterator[Step]:
    """The channels at each snapshot, one after the other."""
    count = len(channels.source)
    sent, in_flight = np.zeros(count, np.int64), np.zeros(count, np.int64)
    held_since = np.zeros(count, np.int64)
    effects = [_Effect(one, channels) for one in planted]
    own = np.zeros(count, np.bool_)
    for effect in effects:
        own[effect.calls] = True
    for number in range(settings.snapshots):
        new, left = _draw(channels, chance)
        new[own], left[own] = 0, 0
        held, growing = np.zeros(count, np.bool_), np.zeros(count, np.bool_)
        for effect in effects:
            effect.change(number, new, left, held, growing)
        for one in planted:
            if one.anomaly == "stall" and one.holds(number):
                new[:], growing[:] = 0, False
                left = np.where(held, in_flight, 0)
        held_since = np.where(held & (new == 0), held_since, number)
        sent, in_flight = sent + new, left
        calling = (channels.kind == CALL) & (new > 0) & ~own & (channels.source % 2 == number % 2)
        yield Step(number, sent, sent - left, left, held, held_since, growing, calling)


def _draw(channels: Channels, chance: np.random.Generator) -> tuple[Integers, Integers]:
    """What is sent in an interval, and what of it is still in flight at its end."""
    count = len(channels.source)
    new = chance.integers(1, 4, count) * (chance.random(count) < 0.3)
    left = np.minimum(new, chance.integers(1, 3, count) * (chance.random(count) < 0.3))
    calls = channels.kind == CALL
    return np.where(calls, np.minimum(new, 1), new), np.where(calls, 0, left)


class _Effect:
    """What one anomaly does to its channels."""

    def __init__(self, planted: Planted, channels: Channels) -> None:
        self.planted = planted
        one, name = planted.first, planted.anomaly
        members = np.arange(one, one + 4)
        touching = np.isin(channels.source, members) | np.isin(channels.target, members)
        self.calls = [channels.index(*key) for key in _own(planted) if name == "deadlock"]
        self.mail = np.flatnonzero(touching & (channels.kind == MAIL))
        self.of_two = np.flatnonzero((channels.source == one + 1) | (channels.target == one + 1))
        has_channel = name in ("stuck", "backlog", "deaf", "hot", "tear")
        self.channel = channels.index(one, one + 1) if has_channel else -1
        self.other = channels.index(one + 2, one + 1) if name == "stuck" else -1

    def change(self, number: int, new: Integers, left: Integers, held: Booleans, growing: Booleans) -> None:
        """Change what is sent and left in flight in the interval before snapshot `number`."""
        since = number - self.planted.at
        name, channel = self.planted.anomaly, self.channel
        if name == "leak" and since in (-1, 0):
            new[self.of_two], left[self.of_two] = 0, 0
        if since < 0:
            return
        if name == "deadlock":
            self._deadlock(since, new, left, held)
        elif name == "stuck":
            new[channel], left[channel], held[channel] = int(since == 0), 1, True
            new[self.other], left[self.other] = 2, 0
        elif name == "backlog":
            grown = min(_BACKLOG_GROWTH * (since + 1), _LARGEST_BACKLOG)
            new[channel], left[channel], growing[channel] = _BACKLOG_SENT, grown, True
        elif name == "deaf":
            new[self.of_two], left[self.of_two] = 0, 0
            new[channel], left[channel], held[channel] = 2 * int(since == 0), 2, True
        elif name == "hot":
            new[channel], left[channel] = _HOT_SENT, 0

    def _deadlock(self, since: int, new: Integers, left: Integers, held: Booleans) -> None:
        """Edge by edge; the last call of the circle, and that of the fourth machine, are never accepted."""
        new[self.mail], left[self.mail] = 0, 0
        for edge, channel in enumerate(self.calls):
            new[channel] = int(since == edge)
            if edge >= 2 and since >= edge:
                left[channel], held[channel] = 1, True
