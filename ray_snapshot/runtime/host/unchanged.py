"""What was recorded of machines that have not acted since: the one place that says which copies still hold.

A machine's copy holds as long as no code of the program gets its object. That is so from one of its actions to the next:
`changed` is called, under the host's lock, before each of them, whatever becomes of the counts (a machine that accepts nothing
more may still change, when a wait in its action is over). While a machine is inside an action, or waits there, nothing is kept
of it. All of it is of one generation: a host that goes back has a new one.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import compress
from typing import Any

from ray_snapshot import redaction
from ray_snapshot.fields import in_class
from ray_snapshot.limits import LIMITS
from ray_snapshot.protocol.copying import Asked
from ray_snapshot.protocol.host import Machine
from ray_snapshot.runtime.handles import handle_of
from ray_snapshot.runtime.host.alone import are_alone, has_a_dict, is_alone
from ray_snapshot.runtime.mixin import SnapshotMixin
from ray_snapshot.runtime.report import BodyCopies, BodyCopy

HOOKS = frozenset({"snapshot_state", "waiting_for", "is_active"})
"""What a machine may say of itself."""


class Unchanged:
    """The copies of one host, in one generation; under the host's lock.

    A machine that acts between any two snapshots costs a dictionary entry. One that rests for longer costs its row
    (`host.resting`); where none is at rest, for machines turn red one by one, or it wants to hear of kept snapshots, 0.6 kB,
    the text of its state, and its pickle.
    """

    def __init__(self, *, is_checkpointing: bool) -> None:
        self.is_checkpointing = is_checkpointing
        self.copies: dict[str, BodyCopy | None] = {}
        """By machine that has not acted since its last copy: that copy, or None if it was not kept."""
        self.held_bytes = 0
        self.version = redaction.version

    def changed(self, name: str) -> None:
        """The program's code gets this machine's object, or what is declared of it changes: it is to be copied anew."""
        if name in self.copies:
            self.held_bytes -= _bytes_of(self.copies.pop(name))

    def copy_of(self, machine: Machine) -> BodyCopy | None:
        """What was recorded of the machine, if it would be recorded again.

        Asked before each copy: what is kept of a copy during which more was redacted does not hold either.
        """
        self._forget_redacted()
        found = self.copies.get(machine.name)
        if found is None or machine.is_held or (found.status == "stopped") != machine.is_stopped:
            return None
        return found

    def kept_of(self, names: Sequence[str]) -> dict[str, BodyCopy]:
        """What `copy_of` may have of these machines."""
        self._forget_redacted()
        copies = self.copies
        return {name: copy for name in names if (copy := copies.get(name)) is not None} if copies else {}

    def _forget_redacted(self) -> None:
        if self.version != redaction.version:  # what is redacted now may stand in what was written before
            self.copies.clear()
            self.held_bytes, self.version = 0, redaction.version

    def rests(self, machine: Machine, copy: BodyCopy) -> bool:
        """Whether a copy of a machine holds until the machine is touched: then it is not kept here, for its row will be."""
        if self.copies.get(machine.name) is not copy:
            return False
        self.changed(machine.name)
        return True

    def may_keep(self, machine: Machine) -> bool:
        """Whether what is about to be copied of a machine that is in no action may be kept; asked before it is read.

        Only an idle machine is looked at closely: the others cost nothing here.
        """
        if not self.is_idle(machine):
            self.copied(machine.name)
            return False
        return self.lasts(machine)

    def is_idle(self, machine: Machine) -> bool:
        """Whether the machine has never acted, or not since it was last copied."""
        return not machine.accepted or machine.name in self.copies

    def copied(self, name: str) -> None:
        """A machine that is in no action has been copied."""
        self.copies.setdefault(name, None)

    def lasts(self, machine: Machine) -> bool:
        """`may_keep` of an idle machine."""
        kind: type = type(machine.body)
        is_volatile = _is_volatile(kind)
        if is_volatile or any(hook in machine.body.__dict__ for hook in HOOKS):
            return False
        return is_volatile is False or is_alone(machine, is_checkpointing=self.is_checkpointing)

    def all_that_last(self, machines: Sequence[Machine]) -> list[bool]:
        """`lasts` of idle machines of one class, none of which has a hook of its own; together it takes an eighth."""
        if not machines:
            return []
        kind: type = type(machines[0].body)
        is_volatile = _is_volatile(kind)
        return are_alone(machines) if is_volatile is None else [not is_volatile] * len(machines)

    def which_last(self, machines: Sequence[Machine], acting: Machine | None) -> list[bool]:
        """`may_keep` of each of such machines, but for the one that is in an action; asked before they are read."""
        copies = self.copies
        idle = [not machine.accepted or machine.name in copies for machine in machines]
        if acting is not None:
            idle = [is_idle and machine is not acting for machine, is_idle in zip(machines, idle, strict=True)]
        if False not in idle:
            return self.all_that_last(machines)
        lasting = iter(self.all_that_last([*compress(machines, idle)]))
        return [is_idle and next(lasting) for is_idle in idle]

    def take(
        self,
        machines: Sequence[Machine],
        found: BodyCopies,
        lasting: Sequence[bool],
        may_rest: Asked | None,
        acting: Machine | None,
    ) -> Sequence[bool]:
        """Machines have been copied together: keep what holds until they act; returns which are to be put to rest.

        Of these the rows will be kept. `may_rest`: whether the core lets a machine rest; None: it lets none.
        """
        resting = [False] * len(machines)
        if may_rest is not None and True in lasting:
            resting = [
                lasts and len(text) <= LIMITS.cached_state_bytes and may_rest(machine)
                for machine, text, lasts in zip(machines, found.texts, lasting, strict=True)
            ]
        if False not in resting and not self.copies:
            return resting
        for machine, rests in zip(machines, resting, strict=True):
            if rests:
                self.changed(machine.name)
            elif machine is not acting:
                self.copied(machine.name)
        if lasting != resting:
            for machine, copy, rests, lasts in zip(machines, found, resting, lasting, strict=True):
                if lasts and not rests:
                    self.keep(machine, copy)
        return resting

    def keep(self, machine: Machine, copy: BodyCopy) -> None:
        """Keep a copy, if it is whole, and there is room for it."""
        name, size = machine.name, _bytes_of(copy)
        kind: type = type(machine.body)
        self.changed(name)
        self.copies[name] = None
        is_whole = copy.state is not None and not copy.state.truncated and copy.obstacle is None
        is_whole = is_whole and (copy.kept is not None) == self.is_checkpointing
        if is_whole and _is_volatile(kind) is False and copy.kept is not None:
            is_whole = handle_of.__name__.encode() not in copy.kept[1]  # else their places would have been looked at
        if is_whole and size <= LIMITS.cached_state_bytes and self.held_bytes + size <= LIMITS.cached_states_bytes:
            self.copies[name] = copy
            self.held_bytes += size


def _bytes_of(copy: BodyCopy | None) -> int:
    if copy is None or copy.state is None:
        return 0
    return copy.state.size + (0 if copy.kept is None else len(copy.kept[1]))


@lru_cache(10_000)
def _is_volatile(kind: Any) -> bool | None:
    """Whether states of this class may change outside of actions; None: not where the machine is alone."""
    said = getattr(kind, "volatile", None)
    if is_odd(kind) or _has_own(kind, "waiting_for") or _has_own(kind, "is_active"):
        return True
    if said is None:
        return True if _has_own(kind, "snapshot_state") else None
    return said is not False


@lru_cache(10_000)
def is_bare(kind: Any) -> bool:
    """Whether machines of this class say nothing of themselves: their state is their `__dict__`."""
    return not is_odd(kind) and not any(_has_own(kind, hook) for hook in HOOKS)


def is_odd(kind: type) -> bool:
    """Whether attributes of objects of this class are not simply in their `__dict__`."""
    return not has_a_dict(kind) or in_class(kind, "__getattribute__") is not in_class(object, "__getattribute__")


def _has_own(kind: type, hook: str) -> bool:
    return in_class(kind, hook) is not in_class(SnapshotMixin, hook)
