"""Declared inputs: which machines send to which port of a machine, and what an idle machine waits for by them."""

from __future__ import annotations

from functools import lru_cache

from ray_snapshot.errors import UnknownMethodError
from ray_snapshot.protocol.host import Machine
from ray_snapshot.protocol.joins import Inputs
from ray_snapshot.runtime.classes import ClassStore
from ray_snapshot.runtime.mixin import SnapshotMixin


class Ports:
    """The declared inputs of one host's machines; everything happens under the host's lock."""

    def __init__(self, classes: ClassStore) -> None:
        self.classes = classes
        self.sources: dict[str, dict[str, tuple[str, ...]]] = {}
        """By machine and port: the machines that are declared to send to it."""
        self.declared_at: dict[tuple[str, str], str | None] = {}
        """By (machine, port): the place in the program that declared it first."""

    def declare(self, target: str, port: str, source: str, site: str | None) -> None:
        """`source` sends to that port of a machine; `site`: the place in the program that says so."""
        ports = self.sources.setdefault(target, {})
        self.declared_at.setdefault((target, port), site)
        ports[port] = tuple(dict.fromkeys((*ports.get(port, ()), source)))

    def wrong(self, machine: Machine) -> UnknownMethodError | None:
        """A declared port that this machine, which has been constructed, does not have."""
        joined = {port for ports in self.classes.joins[type(machine.body)] for port in ports}
        for port in self.sources.get(machine.name, ()):
            if port not in joined and not callable(getattr(machine.body, port, None)):
                return UnknownMethodError(
                    f"connect(..., {machine.name!r}, port={port!r}): {type(machine.body).__name__} has no port and no"
                    f" method {port!r} (declared at {self.declared_at[machine.name, port] or 'an unknown place'})",
                    machine=machine.name,
                    method=port,
                )
        return None

    def inputs_of(self, machine: Machine) -> Inputs | None:
        """A machine's inputs, to find out what it waits for; None if it says that itself, or has neither declared
        inputs nor joins."""
        sources = self.sources.get(machine.name)
        joins = self.classes.joins[type(machine.body)]
        says_so = getattr(machine.body.waiting_for, "__func__", None) is not SnapshotMixin.waiting_for
        if says_so or (sources is None and not joins):
            return None
        if sources is None:
            return _undeclared(type(machine.body).__qualname__, tuple(joins.items()))
        return Inputs(tuple(joins), dict(sources), tuple(joins.values()))


@lru_cache(256)
def _undeclared(_: str, joins: tuple[tuple[tuple[str, ...], str], ...]) -> Inputs:
    """The joins of a class, one object for all its machines, so that it is pickled once."""
    return Inputs(tuple(ports for ports, _ in joins), {}, tuple(method for _, method in joins))
