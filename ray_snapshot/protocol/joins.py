"""Joins: which patterns of ports are enabled, and what a machine waits for whose patterns are not.

A pattern is a tuple of ports of which one action takes one message each (EWD864a: an atomic action may accept from each of
several input buffers); a method that is a port of no join is a pattern of one. A message can be taken if all that is in
front of it on its channel is taken by the same action: so each channel offers a *run*, the ports at its front as far as
they are different ports of the pattern. Values in, values out; imports the standard library and `ray_snapshot.waits`.

What a machine waits for follows from its patterns once its inputs are declared (`system.connect(source, target, port)`): any
one of its patterns; of a pattern, every port whose message is not there; for a port, any one of its declared sources.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TypeVar

from ray_snapshot.waits import Alternative, Wait

Pattern = tuple[str, ...]
T = TypeVar("T")

MOST_ALTERNATIVES = 100
"""So many combinations of sources of one pattern are told apart; past it the ports with the most sources are left out."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """All that a machine may be sent: its patterns, and by port the machines that are declared to send to it."""

    joins: tuple[Pattern, ...]
    sources: Mapping[str, tuple[str, ...]]
    methods: tuple[str, ...] = ()
    """What a person calls each of the joins; may be left out."""

    @property
    def patterns(self) -> tuple[Pattern, ...]:
        """The joins, then the declared ports that are methods by themselves."""
        joined = {port for ports in self.joins for port in ports}
        return (*self.joins, *((port,) for port in self.sources if port not in joined))


@dataclass(frozen=True, slots=True)
class Waiting:
    """What a machine that can do nothing waits for."""

    wait: Wait
    lacking: tuple[tuple[Pattern, Pattern], ...]
    """(pattern, ports without a message) of each pattern of which a part is there; none: the machine is at rest."""


def run_of(methods: Iterable[str], ports: Pattern) -> Pattern:
    """The ports at the front of a channel, as far as one action of this pattern could take them."""
    found: list[str] = []
    for method in methods:
        if method not in ports or method in found:
            break
        found.append(method)
    return tuple(found)


def cover(ports: Pattern, runs: Mapping[Pattern, T]) -> list[tuple[str, T]] | None:
    """For each port the channel to take it from, in the order of taking; None if the pattern is not enabled.

    `runs`: a channel for each run that there is, of every length. An exact cover, tried one after the other: patterns have
    few ports.
    """
    if not ports:
        return []
    for run, channel in runs.items():
        if ports[0] in run and all(port in ports for port in run):
            rest = cover(tuple(port for port in ports if port not in run), runs)
            if rest is not None:
                return [*((port, channel) for port in run), *rest]
    return None


def waiting_of(inputs: Inputs, channels: Sequence[Sequence[str]]) -> Waiting | None:
    """What a machine waits for, `channels` being the methods in flight to it, channel by channel, in order.

    None if it waits for nothing in particular: something can be accepted, or a port without a message has no declared
    source, so that it is not known who might send to it.
    """
    joined = {port for ports in inputs.joins for port in ports}
    if any(channel[0] not in joined for channel in channels if channel):
        return None
    alternatives: list[Alternative] = []
    lacking: list[tuple[Pattern, Pattern]] = []
    for ports in inputs.patterns:
        runs = {run[:size]: None for run in (run_of(one, ports) for one in channels) for size in range(1, len(run) + 1)}
        there = {port for run in runs for port in run}
        missing = tuple(port for port in ports if port not in there)
        if cover(ports, runs) is not None or not all(inputs.sources.get(port) for port in missing or ports):
            return None
        alternatives += _alternatives(inputs, missing) if missing else _any_source(inputs, ports)
        if there:
            lacking.append((ports, missing))
    return Waiting(Wait(tuple(dict.fromkeys(alternatives))), tuple(lacking)) if alternatives else None


def half_begun(inputs: Inputs, channels: Sequence[Sequence[str]]) -> tuple[tuple[Pattern, Pattern], ...]:
    """(join, ports without a message) of each join of which a part is there, for a machine of which `waiting_of` is None.

    Empty if anything can be accepted, or if nothing is there. Then it is known what is missing, but not who may send it.
    """
    joined = {port for ports in inputs.joins for port in ports}
    if any(channel[0] not in joined for channel in channels if channel):
        return ()
    found: list[tuple[Pattern, Pattern]] = []
    for ports in inputs.joins:
        runs = {run[:size]: None for run in (run_of(one, ports) for one in channels) for size in range(1, len(run) + 1)}
        if cover(ports, runs) is not None:
            return ()
        there = {port for run in runs for port in run}
        if there:
            found.append((ports, tuple(port for port in ports if port not in there)))
    return tuple(found)


def _alternatives(inputs: Inputs, missing: Pattern) -> Iterator[Alternative]:
    """One source for each missing port, in every combination: what is necessary, and sufficient up to the bound."""
    chosen: list[tuple[str, ...]] = []
    count = 1
    for sources in sorted((inputs.sources[port] for port in missing), key=len):
        if chosen and count * len(sources) > MOST_ALTERNATIVES:
            break
        chosen.append(sources)
        count *= len(sources)
    if len(chosen) == 1:
        yield Alternative(1, chosen[0])
        return
    for combination in product(*chosen):
        on = tuple(dict.fromkeys(combination))
        yield Alternative(len(on), on)


def _any_source(inputs: Inputs, ports: Pattern) -> list[Alternative]:
    """Each port is there, but not all of them together: a message for any of them may help."""
    return [Alternative(1, tuple(dict.fromkeys(name for port in ports for name in inputs.sources[port])))]
