"""Every order of systems that `schedules.explore` is too slow for: partial-order reduction, and what makes it sound.

What is judged at the end of an order (its *outcome*: what each machine did, when it recorded, and the snapshots) does not
change when two neighbouring steps are exchanged that commute. So one of such orders is enough (Godefroid 1996, persistent
sets: they keep every end). Steps of different hosts commute, and so do sending to a FIFO link and taking its head. Hence:

1. *Only heads.* Of a FIFO link only the first batch is delivered: a later one would be kept until that has come.
2. *Eager steps.* What only moves recorded parts and batches on is done at once; so is turning red once it is due, for
   nothing may be accepted before it; so are deliveries and control messages that tell nothing new.
3. *A host that can learn nothing goes first.* If each link into a host has a head, or will never carry anything again, no
   other host can change what this host may do next: its steps are a persistent set, and the others wait.
4. *Snapshots are started, and given up, at the beginning.* Their control messages come at any moment and in any order, so
   nothing is lost; a host may even hear that a number was given up before it hears of the number.
5. *A host crashes where others can tell.* What it does behind the last thing that anybody hears of it makes no difference, nor
   when it dies behind that: so it dies directly behind a batch or a report that it has sent, or at the beginning. It is missed
   at once, or directly behind a snapshot that was completed meanwhile: with nothing else does that interfere. While a crash
   may still come, a host goes first (3) only if no number that is given up could tell it anything.
6. *Canonical states.* Not distinguished is what no future depends on, nor the oracle (`marks`): in which order parts came,
   what a dead host holds, cuts of what was given up, how often a link has been used, and what is over and asked for no more.
7. *No choice, no state.* Where there is one step only it is taken at once; states are those with a choice, and ends.

`is_reduced=False` leaves out 3, 5, 7, and the second half of 2: the host dies at any moment, and is missed at any later one.
Tests hold both searches, and `explore`, against each other. Machines must be `Script`s, for what they may still send is read
from these. The worlds of a search share their hosts, and what comes of a step is worked out once (`sharing`).
Imports the standard library only.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from ray_snapshot.protocol.mailbox import COLOUR, METHOD, NUMBER
from ray_snapshot.simulation.mail.hosts import Step
from ray_snapshot.simulation.mail.network import Carried
from ray_snapshot.simulation.mail.oracle import OracleError
from worlds.mail.behaviours import Script
from worlds.mail.machines import Send
from worlds.mail.marks import forget, is_stale, mark
from worlds.mail.schedules import check_all, check_quiet
from worlds.mail.sharing import SharedWorld
from worlds.mail.world import World

EAGER = ("flush", "report", "late", "copy")


@dataclass(slots=True)
class Orders:
    """What `every_order` has seen."""

    states: int = 0
    outcomes: set[tuple[bool, Hashable, Hashable]] = field(default_factory=set)
    """(whether a host has crashed, what the others did and where the snapshots cut it, the snapshots)."""
    snapshots: set[Hashable] = field(default_factory=set)
    """Distinct completed snapshots, each checked by the oracle."""


def every_order(
    world: World,
    acts: Iterable[str],
    *,
    crash: str | None = None,
    is_reduced: bool = True,
    check: Callable[[World], None] = lambda _: None,
    most: int = 100_000,
) -> Orders:
    """Every order in which machines act once each (`acts`), messages come, and the host `crash`, if any, dies.

    Raises `OracleError` on the first order that is wrong, or when there are more than `most` states.
    """
    with _keeping_everything():
        return _searched(SharedWorld.shared(world), _Search(tuple(acts), crash, is_reduced), check, most)


@contextmanager
def _keeping_everything() -> Iterator[None]:
    """A search keeps nearly all that it makes: to look for garbage in that, again and again, is a quarter of its time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _searched(world: SharedWorld, search: _Search, check: Callable[[World], None], most: int) -> Orders:
    found, stack = Orders(), [(one, search.chosen(one)) for one in search.beginnings(world)]
    seen = {mark(one) for one, _ in stack}
    while stack:
        now, steps = stack.pop()
        found.states += 1
        if found.states > most:
            raise OracleError(f"more than {most} states: make the system smaller")
        for marked, after in search.after(now, steps):
            if marked not in seen:
                seen.add(marked)
                stack.append((after, search.chosen(after)))
        if not steps:
            _check_end(now, found)
            check(now)
    return found


def _check_end(world: World, found: Orders) -> None:
    check_all(world)
    check_quiet(world)
    snapshots = frozenset(recorded.text for recorded in world.central.completed)
    found.snapshots |= snapshots
    has_crashed = any(host.is_down for host in world.hosts.values())
    found.outcomes.add((has_crashed, _histories(world), snapshots))


def _histories(world: World) -> Hashable:
    """What each machine did, and where the completed snapshots cut it; of a host that has died its snapshots tell."""
    dead = {name for name, place in world.places.items() if world.hosts[place].is_down}
    actions = [action for action in world.log.actions if action.machine not in dead]
    actions.sort(key=lambda action: (action.machine, action.index))
    cuts = tuple(
        (number, tuple(sorted(cut.items())))
        for number, cut in sorted(world.log.cuts.items())
        if any(recorded.number == number for recorded in world.central.completed)
    )
    return tuple((one.machine, one.accepted, tuple(one.sent)) for one in actions), cuts


class _Search:
    """Which steps are tried in a state, and which are taken at once."""

    def __init__(self, acts: tuple[str, ...], crash: str | None, is_reduced: bool) -> None:
        self.acts = acts
        self.crash = crash
        self.is_reduced = is_reduced
        self.begun: set[int] = set()
        """Marks of states that have been gone on from already."""
        self.tried: set[int] = set()
        """Marks of states behind a crash that has been tried, before anything else happens."""

    # ---- steps ----------------------------------------------------------------------------------------------------

    def chosen(self, world: World) -> list[Step]:
        """The steps to try: all, or those of one host that can learn nothing from the others."""
        by_host = self._by_host(world)
        if self.is_reduced:
            may_carry = _may_carry(world, self.acts)
            ready = [
                name
                for name, steps in by_host.items()
                if steps and _learns_nothing(world, name, may_carry) and not self._may_hear_of_a_crash(world, name)
            ]
            if ready:
                return min((by_host[name] for name in ready), key=len)
        steps = [step for steps in by_host.values() for step in steps]
        return steps or ([("notice", self.crash)] if self._is_unnoticed(world) else [])

    def _is_unnoticed(self, world: World) -> bool:
        return (
            self.crash is not None and world.hosts[self.crash].is_down and self.crash in world.central.coordinator.hosts
        )

    def _may_hear_of_a_crash(self, world: World, name: str) -> bool:
        """Whether a crash that is to come, or to be noticed, could tell this host something that it has not done yet."""
        if self.crash is None or name == self.crash or self.crash not in world.central.coordinator.hosts:
            return False
        return not all(
            is_stale(world, ("abort", name, number)) for number in range(1, world.central.coordinator.last + 1)
        )

    def _by_host(self, world: World) -> dict[str, list[Step]]:
        found = {name: world.enabled_on(name) for name in world.hosts}
        for index in heads(world):
            found[world.network.batches[index].target].append(("deliver", index))
        for index, message in enumerate(world.control):
            found[message[1]].append(("control", index))
        for name in self.acts:
            if not world.log.lengths.get(name) and world.can_act(name):
                found[world.places[name]].append(("act", name))
        if self.crash is not None and not self.is_reduced:
            is_down = world.hosts[self.crash].is_down
            found[self.crash] += [("halt", self.crash)] * (not is_down)
            found[self.crash] += [("notice", self.crash)] * self._is_unnoticed(world)
        return found

    def after(self, world: SharedWorld, steps: list[Step]) -> Iterator[tuple[int, SharedWorld]]:
        """The worlds behind each of these steps, once they have run on, with their marks; the last is `world` itself."""
        for at, step in enumerate(steps, 1):
            before = world.copy() if at < len(steps) else world
            for one in self._taken(before, step):
                yield from self._run_on(one) if self.is_reduced else ((mark(one), one),)

    def beginnings(self, world: SharedWorld) -> Iterator[SharedWorld]:
        """The world once it has settled; and if a host may crash, that too."""
        if self.crash is not None and self.is_reduced:
            yield from self._halted(world)
        yield from self._taken(world, None)

    def _run_on(self, world: SharedWorld) -> Iterator[tuple[int, SharedWorld]]:
        """Go on while there is but one step to try."""
        forget(world)
        marked = mark(world)
        if marked in self.begun:
            return
        self.begun.add(marked)
        steps = self.chosen(world)
        has_moved = len(steps) == 1
        while len(steps) == 1:
            world, *others = reversed([*self._taken(world, steps[0])])
            for other in others:
                yield from self._run_on(other)
            forget(world)
            steps = self.chosen(world)
        yield mark(world) if has_moved else marked, world

    def _taken(self, world: SharedWorld, step: Step | None) -> Iterator[SharedWorld]:
        """What may come of a step and all that is eager behind it; the world itself last."""
        if self.crash is not None and self.is_reduced:
            yield from self._with_crashes(world, step)
            return
        if step is not None:
            world.perform(step, 1)
        self.settle(world)
        yield world

    def _with_crashes(self, world: SharedWorld, step: Step | None) -> Iterator[SharedWorld]:
        """Take a step and what is eager behind it; wherever the crash could be told from one elsewhere, it happens, too."""
        completed = len(world.central.completed)
        step = step or self._eager(world)
        while step is not None:
            world.perform(step, 1)
            is_heard = step[0] in ("flush", "report", "late") and step[1] == self._crash
            if is_heard and self._is_new_once_halted(world):
                yield from self._halted(world)
            if self._is_unnoticed(world) and len(world.central.completed) > completed:
                completed = len(world.central.completed)
                yield self._noticed(world.copy())
            step = self._eager(world)
        yield world

    @property
    def _crash(self) -> str:
        assert self.crash is not None
        return self.crash

    def _is_new_once_halted(self, world: SharedWorld) -> bool:
        """Whether the crash has not been tried here: what only the dead know makes no difference."""
        marked = mark(world, dead=self._crash)
        is_new = marked not in self.tried
        self.tried.add(marked)
        return is_new

    def _halted(self, world: SharedWorld) -> Iterator[SharedWorld]:
        """The worlds in which the host dies now; `world` stays as it is."""
        halted = world.copy()
        halted.perform(("halt", self._crash))
        on_its_way = any(one[0] == "part" and one[2].host == self._crash for one in halted.control)
        if on_its_way or any(
            self._crash in pending.counts.reported for pending in halted.central.coordinator.pending.values()
        ):
            # something may be completed before the crash is noticed
            yield from self._with_crashes(halted.copy(), None)
        yield self._noticed(halted)

    def _noticed(self, world: SharedWorld) -> SharedWorld:
        world.perform(("notice", self._crash))
        self.settle(world)
        return world

    # ---- what is taken at once --------------------------------------------------------------------------------------

    def settle(self, world: SharedWorld) -> None:
        """Take the eager steps until there are none."""
        while (step := self._eager(world)) is not None:
            world.perform(step)

    def _eager(self, world: World) -> Step | None:
        for name in world.hosts:
            for step in world.enabled_on(name):
                if step[0] in EAGER or (self.is_reduced and step[0] == "record"):
                    return step
        for index, message in enumerate(world.control):
            if message[0] in ("part", "close") or (self.is_reduced and is_stale(world, message)):
                return "control", index
        for index in heads(world) if self.is_reduced else ():
            if _tells_nothing(world, world.network.batches[index]):
                return "deliver", index
        return None


def heads(world: World) -> list[int]:
    """Of each FIFO link the batch that is next; of one that reorders, all."""
    if not world.rules.is_fifo:
        return [*range(len(world.network.batches))]
    heads: dict[tuple[str, str], int] = {}
    for index, carried in enumerate(world.network.batches):
        key = carried.source, carried.target
        if key not in heads or carried.batch[1] < world.network.batches[heads[key]].batch[1]:
            heads[key] = index
    return [*heads.values()]


def _tells_nothing(world: World, carried: Carried) -> bool:
    """A batch to a host that is down; or that carries no message, and no colour that its target has not."""
    host = world.hosts[carried.target]
    if host.is_down:
        return True
    core = host.core
    for colour, messages in carried.batch[3]:
        if not core.turning.is_white(core.colour, 1) and colour <= core.colour and not messages:
            continue
        if colour or any(not _is_stale_barrier(core, carried, message) for message in messages):
            return False
    return True


def _is_stale_barrier(core: Any, carried: Carried, message: Any) -> bool:
    link = core.inputs.get(carried.source)  # only looked at: to look at a batch must not open the link
    if message[NUMBER] or link is None or message[0] >= len(link.mailboxes):
        return False
    box = link.mailboxes[message[0]]
    return not box.queue and message[COLOUR] <= box.owner.machine.copied


# ---- who can still send what --------------------------------------------------------------------------------------------


def _learns_nothing(world: World, name: str, may_carry: set[tuple[str, str]]) -> bool:
    """Whether each link into the host has a head, or will never carry anything again."""
    carries = {carried.source for carried in world.network.batches if carried.target == name}
    return not any(
        (source, name) in may_carry and not (world.rules.is_fifo and source in carries) for source in world.hosts
    )


def _may_carry(world: World, acts: tuple[str, ...]) -> set[tuple[str, str]]:
    """The links that something may still be put on: by sending, or by recording."""
    links = set()
    for name, host in world.hosts.items():
        if not host.is_down and _may_record(world, name):
            links |= {(name, other) for other in world.hosts if other != name}
    for source, target in _may_send(world, acts):
        if not world.hosts[world.places[source]].is_down:
            links.add((world.places[source], world.places[target]))
    return links


def _may_record(world: World, name: str) -> bool:
    core = world.hosts[name].core
    last = world.central.coordinator.last
    if core.must_record or core.copying.uncopied or core.colour < last:
        return True
    return any(machine.copied < last for machine in core.machines.values())


def _may_send(world: World, acts: tuple[str, ...]) -> set[tuple[str, str]]:
    """(source, target) of all messages that may still be sent: those of the events to come, and of what these send."""
    events = {(name, "go") for name in acts if not world.log.lengths.get(name)}
    for carried in world.network.batches:
        boxes = world.hosts[carried.source].core.outputs[carried.target].channels
        for _, messages in carried.batch[3]:
            events |= {(boxes[message[0]].target, str(message[METHOD])) for message in messages if message[NUMBER]}
    for host in world.hosts.values():
        for machine in host.core.machines.values():
            events |= {(machine.name, str(message[METHOD])) for message in machine.inbox.waiting() if message[NUMBER]}
        for link in [*host.core.inputs.values()]:
            for batch in link.early.values():
                events |= {
                    (name, str(message[METHOD]))
                    for name in host.core.machines
                    for _, messages in batch[3]
                    for message in messages
                }
    found: set[tuple[str, str]] = set()
    done: set[tuple[str, str]] = set()
    while events - done:
        event = (events - done).pop()
        done.add(event)
        for send in _sends(world, *event):
            found.add((event[0], send.target))
            events.add((send.target, send.method))
    return found


def _sends(world: World, name: str, event: str) -> list[Send]:
    behaviour = world.log.start[name][0]
    assert isinstance(behaviour, Script), f"{name} follows no script: what it may still send is unknown"
    outputs = next((outputs for key, outputs in behaviour.sends if key == event), ())
    sends = [output for output in outputs if isinstance(output, Send)]
    assert len(sends) == len(outputs), f"{name} does more than send when it has {event}: the search does not know that"
    return sends


__all__ = ["Orders", "every_order", "heads"]
