"""How the machines of a host are copied for recordings, without stopping it, and put to rest.

The host has turned red, and its machines are copied after that instant, each before its own next action (`copy_now`), the
others one by one in between (`copy_next`): what a machine was at the instant, it still is until it acts. Its mailboxes at the
instant are what is in them when it is copied, less what is red; and white messages that arrive after the copy are
reported as they come (`Recording.late`, by `host`). So the snapshot is exactly that of the instant, and a machine is held only
while it is copied itself.

A machine that nothing has touched since its last copy is at rest, if the world says that its body would be copied the same
(`is_lasting`): it is not looked at when the host turns red, and recordings hold no copy of it. What it was, it still is, so the
world shows its last one (`take_rested`). Whatever touches a machine or one of its channels wakes it first: an action, a message
that arrives, a channel that is opened. So the cost of a snapshot is that of the machines that were touched since the last one.

Under barriers machines record one by one, and none rests: `barrier_host` says which is next, and takes its copy from here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from itertools import compress, islice
from operator import attrgetter
from typing import Any

from ray_snapshot.protocol.colours import Colour
from ray_snapshot.protocol.parts import RESTING, GroupCopy, Machine, MachineCopy, Recording, white_of
from ray_snapshot.protocol.turning import Turning

_COPIED, _BODY = attrgetter("copied"), attrgetter("body")

Asked = Callable[[Machine], bool]

Group = tuple[Sequence[Machine], Any, Sequence[bool]]
"""Some machines; what recordings hold of their bodies, an iterable that has `where(flags)`; and which of them are lasting."""


@dataclass(eq=False)
class Copying:
    """Of one host: of its `machines`, for those of `recordings` (by number) that are not whole yet, in the colour of `turning`.

    `copy_body(machine)` is called while a machine is copied and returns what the snapshot is to hold of its body;
    `copy_bodies`, if there is one, does that for several of one class, of which none acts meanwhile, or for the first few;
    `copy_group(machines, may_rest)` for those of them that it can copy at once (None: for none). It says as well which of those
    that `may_rest` are lasting (None: none may).
    `is_lasting(machine, extra)`: whether that would return the same until the machine is woken; where it would, the machine is
    at rest from then on. Without it none ever rests.
    """

    machines: dict[str, Machine]
    turning: Turning
    recordings: Mapping[int, Recording]
    _: KW_ONLY
    copy_body: Callable[[Machine], Any] = lambda machine: machine.body
    copy_bodies: Callable[[Sequence[Machine]], Sequence[Any]] | None = None
    copy_group: Callable[[Sequence[Machine], Asked | None], Group | None] | None = None
    is_lasting: Callable[[Machine, Any], bool] | None = None
    uncopied: deque[Machine] = field(default_factory=deque)
    """Machines to be copied, and some that have been meanwhile."""
    rested: list[MachineCopy | GroupCopy] = field(default_factory=list)
    """The copies of those that were put to rest since the world last took them."""
    rested_count: int = 0
    """How many machines these are."""
    _due: tuple[Any, list[Recording], bool] = (None, [], False)
    """The answer of `_due_for`, and what it was asked of: mostly the same for one machine after the other."""

    def __post_init__(self) -> None:
        self.awake: dict[str, Machine] = self.machines if self.is_lasting is None else {}
        """Those that are not at rest."""

    def begin(self) -> None:
        """The host has turned red: all that are awake are to be copied."""
        if self.is_lasting is not None:
            self.awake = dict(self.awake)  # a dictionary never gets smaller by itself
        self.uncopied = deque(self.awake.values())
        if not self.uncopied:
            self._all_copied()

    def copy_next(self, most: int = 1) -> bool:
        """Copy up to so many machines that have not been copied since the host turned red; False if none is left."""
        if machines := self._next_uncopied(most):
            due, is_in_all = self._due_of(machines[0].copied)
            if machines := self._take_group(machines, due, is_in_all):
                bodies = self._bodies(machines) if due else [None] * len(machines)
                is_lasting = self.is_lasting if is_in_all else None
                for machine, extra in zip(machines, bodies, strict=False):
                    self._take_copy(machine, due, extra, is_lasting)
                self.uncopied.extendleft(reversed(machines[len(bodies) :]))
        if self.uncopied:
            return True
        self._all_copied()
        return False

    def _next_uncopied(self, most: int) -> list[Machine]:
        """The next of them, of one class, and all copied last for the same snapshot."""
        colour, found = self.turning.colour, list[Machine]()
        if (alike := self._alike(most)) is not None:
            return alike
        while self.uncopied and len(found) < most:
            machine = self.uncopied[0]
            if machine.copied != colour and machine.copied is not RESTING:
                if found and (machine.copied != found[0].copied or type(machine.body) is not type(found[0].body)):
                    break
                found.append(machine)
            self.uncopied.popleft()
        return found

    def _alike(self, most: int) -> list[Machine] | None:
        """`_next_uncopied` where so many can be taken as they come; else None, and none is taken."""
        uncopied = self.uncopied
        found = [*islice(uncopied, most)]
        copied, kinds = {*map(_COPIED, found)}, {*map(type, map(_BODY, found))}
        if len(copied) != 1 or len(kinds) != 1 or not copied.isdisjoint((self.turning.colour, RESTING)):
            return None
        for _ in found:
            uncopied.popleft()
        return found

    def _bodies(self, machines: Sequence[Machine]) -> Sequence[Any]:
        """What recordings are to hold of the bodies of these, or of the first few; None of one that is only being born."""
        if machines[0].body is None:
            return [None] * len(machines)
        if len(machines) > 1 and self.copy_bodies is not None:
            return self.copy_bodies(machines)
        return [self.copy_body(machine) for machine in machines]

    def _take_group(self, machines: list[Machine], due: Sequence[Recording], is_in_all: bool) -> list[Machine]:
        """`_take_copy` of those of these, which are of one class, that the world copies together; returns the others."""
        if self.copy_group is None or not due or len(machines) == 1 or machines[0].body is None:
            return machines
        may_rest = is_in_all and self.is_lasting is not None
        found = self.copy_group(machines, self._has_nothing_to_do if may_rest else None)
        if found is None:
            return machines
        taken, extras, are_lasting = found
        ours = {*map(id, taken)} if len(taken) < len(machines) else None
        others = [machine for machine in machines if id(machine) not in ours] if ours else []
        if True in are_lasting:
            resting, goes_on = [*compress(taken, are_lasting)], [not lasts for lasts in are_lasting]
            self.rested.append(self._copy_group(resting, due[-1].number, extras.where(are_lasting)))
            self.rested_count += len(resting)
            for machine in resting:
                machine.inbox.let_go()
                machine.copied = RESTING
                del self.awake[machine.name]
            taken, extras = [*compress(taken, goes_on)], extras.where(goes_on)
        if taken:
            colour = self.turning.colour
            for machine in taken:
                machine.copied = colour
            for recording in due:
                recording.groups.append(self._copy_group(taken, recording.number, extras))
        return others

    def _copy_group(self, machines: Sequence[Machine], number: int, extras: Any) -> GroupCopy:
        is_white = self.turning.is_white
        return GroupCopy(machines, extras, lambda colour: is_white(colour, number))

    def _has_nothing_to_do(self, machine: Machine) -> bool:
        """Whether nothing waits for a machine, nor in it."""
        if machine.is_held or machine.is_suspended or machine.over:
            return False
        if machine.outputs and any(channel.held or channel.timers for channel in machine.outputs.values()):
            return False
        return not (machine.inbox.mailboxes and any(box.kept for box in machine.inbox.mailboxes.values()))

    def _all_copied(self) -> None:
        self._due = (None, [], False)  # it would keep what was recorded
        for recording in self.recordings.values():
            recording.is_copied = True

    def copy_now(self, machine: Machine) -> None:
        """Something is about to touch a machine that is not of the host's colour: copy it, or wake it."""
        if machine.copied is RESTING:
            self.wake(machine)
            return
        due, _ = self._due_of(machine.copied)
        self._take_copy(machine, due, self.copy_body(machine) if due and machine.body is not None else None)

    def _take_copy(
        self,
        machine: Machine,
        due: Sequence[Recording],
        extra: Any,
        is_lasting: Callable[[Machine, Any], bool] | None = None,
    ) -> None:
        """Copy the machine for these recordings; or put it to rest, where `is_lasting`, so that they need no copy."""
        machine.copied = self.turning.colour
        copies = [self.copy_of(machine, recording.number, extra) for recording in due]
        if is_lasting is not None and self._is_quiet(machine, copies[-1]) and is_lasting(machine, extra):
            machine.inbox.let_go()
            self.rested.append(copies[-1])
            self.rested_count += 1
            machine.copied = RESTING
            del self.awake[machine.name]
            return
        for recording, copy in zip(due, copies, strict=True):
            recording.copies.append(copy)

    def _is_quiet(self, machine: Machine, copy: MachineCopy) -> bool:
        """Whether nothing waits for a machine that has just been copied, nor in it."""
        if machine.is_held or machine.is_suspended or machine.over or copy.waiting or copy.extra is None:
            return False
        return not (copy.boxes and any(box.kept for box in copy.boxes))

    def _due_of(self, copied: Colour) -> tuple[list[Recording], bool]:
        """The recordings that a machine copied up to that colour is missing from; whether these are all that are not whole yet.

        (A machine that is only in a later recording than another, which the world has not been shown, must not be put to
        rest: it would be shown in that, too.)
        """
        key = (copied, self.turning.colour, *self.recordings)
        if self._due[0] != key:
            found = self._due_for(copied)
            self._due = (
                key,
                found,
                bool(found) and found == [one for one in self.recordings.values() if not one.is_copied],
            )
        return self._due[1:]

    def wake(self, machine: Machine) -> None:
        """Something is about to touch the machine, or one of its channels: it belongs to what is copied next time.

        What it is now, it was whenever this host turned red since it was put to rest: those recordings need no copy.
        """
        if machine.copied is RESTING:
            machine.copied = self.turning.colour
            self.awake[machine.name] = machine

    def copy_again(self, machine: Machine, number: int) -> MachineCopy:
        """What a recording would hold of a machine at rest, for a world that writes that anew."""
        return self.copy_of(machine, number, self.copy_body(machine))

    def wake_all(self) -> None:
        """What the world has of machines at rest holds no more."""
        for machine in self.machines.values():
            self.wake(machine)

    def take_rested(self) -> list[MachineCopy | GroupCopy]:
        """The copies of machines that were put to rest since this was last asked, in that order.

        To be asked as soon as recordings are whole (`Recording.is_copied`): they hold no copies of what was at rest.
        """
        found, self.rested, self.rested_count = self.rested, [], 0
        return found

    def _due_for(self, copied: Colour) -> list[Recording]:
        """The recordings that a machine copied up to that colour is missing from."""
        is_white, colour = self.turning.is_white, self.turning.colour
        return [
            found
            for number, found in self.recordings.items()
            if is_white(copied, number) and not is_white(colour, number)
        ]

    def copy_of(self, machine: Machine, number: int, extra: Any) -> MachineCopy:
        """What a recording holds of the machine as it is now, `extra` of its body."""
        found = MachineCopy(machine, extra)
        if full := [box for box in found.boxes if box.kept]:
            is_white = self.turning.is_white
            found.queued = white_of({box: [*box.queue] for box in full}, lambda colour: is_white(colour, number))
        if keeping := [channel for channel in found.channels if channel.held or channel.timers]:
            found.waiting = {channel: channel.waiting() for channel in keeping}
        return found
