"""What a watcher knows of each machine, and its name for people: its name in Ray, or its class and a number."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import Any

from ray_snapshot.instrument.here import class_in
from ray_snapshot.limits import LIMITS
from ray_snapshot.names import DRIVER, is_machine_name
from ray_snapshot.protocol.call_collector import CompletedCallSnapshot
from ray_snapshot.protocol.tasks import function_of, is_task, is_worker


class Roster:
    """The machines of one watcher; `is_dead` says whether a machine is gone for good, so that its name is free."""

    def __init__(self, is_dead: Callable[[str], bool], hosted: Callable[[], Collection[str]] = tuple) -> None:
        """`hosted`: the machines of hosts, which have the names that the program has given them."""
        self.is_dead = is_dead
        self.hosted = hosted
        self.facts: dict[str, dict[str, Any]] = {}
        """By machine that has registered: what is known of it; `shown` is the name for people."""
        self.counts: Counter[str] = Counter()
        self.reserved: dict[str, str] = {}
        """Names for people of machines that a snapshot has shown, and that have not registered."""

    def enter(self, machine: str, facts: dict[str, Any], restarts: int) -> int:
        """A process joins; returns which life of its machine this is."""
        known = self.facts.get(machine)
        incarnation = 0 if known is None else known["incarnation"] + 1
        if known is not None:
            facts = {**{name: known[name] for name in known if name not in facts}, **facts}
        shown = self.reserved.pop(machine, "") if known is None else str(known["shown"])
        shown = shown or self.name_for(machine, facts)
        self.facts[machine] = {**facts, "incarnation": incarnation, "shown": shown, "restarts": restarts}
        return incarnation

    def name_for(self, machine: str, facts: Mapping[str, Any]) -> str:
        """A name that no other machine is called by."""
        if machine == DRIVER:
            return DRIVER
        taken = {one["shown"] for one in self.facts.values()} | {*self.reserved.values()} | {*self.hosted()}
        name = facts.get("name")
        if name and len(name) <= 2 * LIMITS.header_class_characters and is_machine_name(name) and self._is_free(name):
            return str(name)
        kind = _printable(facts["class"].lstrip("_")) or "Actor"
        if (ordinal := facts.get("ordinal")) is not None and f"{kind}-{ordinal}" not in taken:
            return f"{kind}-{ordinal}"
        if is_worker(machine):  # it takes part anew, and the name that it had is not forgotten yet
            kind = f"{kind}-{ordinal}"
        while True:
            shown = f"{kind}-{self.counts[kind]}"
            self.counts[kind] += 1
            if shown not in taken:
                return shown

    def _is_free(self, name: str) -> bool:
        """Whether no actor that lives is called that."""
        is_taken = any(one["shown"] == name and not self.is_dead(key) for key, one in self.facts.items())
        return not is_taken and name not in self.hosted()

    def give_way(self, names: Collection[str]) -> None:
        """The program has given these names to machines: actors that were called so get others."""
        for key, one in self.facts.items():
            if key != DRIVER and one["shown"] in names:
                one["shown"] = ""
                one["shown"] = self.name_for(key, {**one, "ordinal": None})

    def namesakes(self, name: str | None) -> list[str]:
        """Machines that have this name in Ray, which gives it again as soon as the one that had it is dead."""
        return [key for key, one in self.facts.items() if name and one.get("name") == name]

    def reserve(self, completed: CompletedCallSnapshot, births: Mapping[str, Mapping[str, Any]]) -> None:
        """Name the machines of a snapshot that have not registered, by what the processes that made them know: `births`.

        They bear these names when they register, too: an actor is called the same in each snapshot. Machines of hosts, also of
        those that have ended, have the names that the program has given them: only names of actors have a colon.
        """
        ends = dict.fromkeys(end for channel in completed.channels for end in (channel.source, channel.target))
        for machine in ends:
            if is_task(machine) or is_worker(machine):
                continue
            if ":" in machine and machine not in self.facts and machine not in self.reserved:
                self.reserved[machine] = self.name_for(machine, births.get(machine, {"class": class_in(machine)}))
        self._reserve_tasks(completed)

    def _reserve_tasks(self, completed: CompletedCallSnapshot) -> None:
        """Name the plain tasks that run; the names of those that have ended are forgotten."""
        running = {machine for machine in completed.machines if is_task(machine)}
        for machine in [name for name in self.reserved if is_task(name) and name not in running]:
            del self.reserved[machine]
        for machine in running - self.reserved.keys():
            self.reserved[machine] = self.name_for(machine, {"class": function_of(machine)})

    def forget_workers(self, known: Collection[str]) -> None:
        """Of workers that take part no more nothing is kept."""
        for machine in [name for name in self.facts if is_worker(name) and name not in known]:
            del self.facts[machine]

    def name_of(self, machine: str) -> str:
        """What a machine is called, whether it has registered or not."""
        return str(self.facts.get(machine, {}).get("shown") or self.reserved.get(machine, class_in(machine)))

    def in_words(self, text: str) -> str:
        """A text with machines' names for people in place of their own."""
        for machine in sorted(self.facts, key=len, reverse=True):
            text = text.replace(machine, self.facts[machine]["shown"])
        return text


def _printable(class_name: str) -> str:
    """A class's name as people can read it in a line: anything goes into `type(name, ...)`."""
    shown = "".join(one if one.isprintable() else ascii(one)[1:-1] for one in class_name)
    return shown if len(shown) <= LIMITS.header_class_characters else f"{shown[: LIMITS.header_class_characters]}…"
