"""The actors that a process makes, until their constructors are known to have begun."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from ray_snapshot.protocol.calls import CONSTRUCTOR, MachineReport


class Making:
    """Used under the lock of the process."""

    def __init__(self) -> None:
        self.under_way = 0
        """Actors that are being made: their calls are numbered, and not yet in the ledger, so this is no boundary."""
        self.births: dict[str, Mapping[str, Any]] = {}
        """By machine, what names it (`class`, `name`, `ordinal`), and its `key` in Ray."""
        self._made: Counter[str] = Counter()

    def ordinal(self, class_name: str) -> int:
        """Which of the actors of its class that this process makes the next one is, from 0."""
        self._made[class_name] += 1
        return self._made[class_name] - 1

    def made(self, machine: str, birth: Mapping[str, Any]) -> None:
        """`birth`: what the maker knows of it (`shape.options_of`, its ordinal, and its key)."""
        about = {"name": birth["name"], "ordinal": birth["ordinal"], "key": birth["key"]}
        self.births[machine] = {"class": birth["kind"], **about}

    def unborn(self, report: MachineReport) -> dict[str, Mapping[str, Any]]:
        """Those whose constructors are in the sender's log; the others are forgotten."""
        logged = [output.target for output in report.outputs if CONSTRUCTOR in output.log]
        self.births = {name: self.births[name] for name in logged if name in self.births}
        return dict(self.births)
