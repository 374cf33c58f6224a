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
6. *Canonical states.* Not distinguished is what no future depends on, nor the oracle: in which order parts came, what a dead
   host holds, cuts of what was given up, how often a link has been used, and what is over and asked for by nobody.
7. *No choice, no state.* Where there is one step only it is taken at once; states are those with a choice, and ends.

`is_reduced=False` leaves out 3, 5, 7, and the second half of 2: the host dies at any moment, and is missed at any later one.
Tests hold both searches, and `explore`, against each other. Machines must be `Script`s, for what they may still send is read
from these. Imports the standard library only.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ray_snapshot.protocol.links import OutLink
from ray_snapshot.protocol.mailbox import COLOUR, METHOD, NUMBER
from ray_snapshot.simulation.fingerprints import fingerprint
from ray_snapshot.simulation.machines import Script, Send
from ray_snapshot.simulation.oracle import OracleError, Recorded
from ray_snapshot.simulation.reports import Part
from ray_snapshot.simulation.schedules import check_all, check_quiet
from ray_snapshot.simulation.world import Carried, Step, World

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
    search = _Search(tuple(acts), crash, is_reduced)
    found, stack = Orders(), [(one, search.chosen(one)) for one in search.beginnings(world)]
    seen = {hash(_mark(one)) for one, _ in stack}
    while stack:
        world, steps = stack.pop()
        found.states += 1
        if found.states > most:
            raise OracleError(f"more than {most} states: make the system smaller")
        for mark, after in search.after(world, steps):
            if mark not in seen:
                seen.add(mark)
                stack.append((after, search.chosen(after)))
        if not steps:
            _check_end(world, found)
            check(world)
    return found


def _check_end(world: World, found: Orders) -> None:
    check_all(world)
    check_quiet(world)
    snapshots = frozenset(map(canonical, world.completed))
    found.snapshots |= snapshots
    has_crashed = any(host.is_down for host in world.hosts.values())
    found.outcomes.add((has_crashed, _histories(world), snapshots))


def canonical(recorded: Recorded) -> Hashable:
    """A snapshot as a value that does not depend on the order in which its parts came."""
    counts = (recorded.channels, recorded.sent, recorded.accepted, recorded.duplicates)
    kept = tuple(repr(sorted((key, value) for key, value in one.items() if value)) for one in counts)
    return recorded.number, repr(sorted(recorded.states.items())), kept, repr(sorted(recorded.creations))


def _histories(world: World) -> Hashable:
    """What each machine did, and where the completed snapshots cut it; of a host that has died its snapshots tell."""
    dead = {name for name, place in world.places.items() if world.hosts[place].is_down}
    actions = [action for action in world.log.actions if action.machine not in dead]
    actions.sort(key=lambda action: (action.machine, action.index))
    cuts = tuple(
        (number, tuple(sorted(cut.items())))
        for number, cut in sorted(world.log.cuts.items())
        if any(recorded.number == number for recorded in world.completed)
    )
    return tuple((one.machine, one.accepted, tuple(one.sent)) for one in actions), cuts


def _mark(world: World) -> Hashable:
    """`fingerprint`, less what no future depends on, nor the oracle's opinion.

    That is: in which order the parts of a snapshot came, what a host that is dead still holds, and the cuts of snapshots that
    were given up.
    """
    parts, completed, hosts, cuts = world.parts, world.completed, world.hosts, world.log.cuts
    found = tuple((number, tuple(sorted([part.text for part in found]))) for number, found in sorted(parts.items()))
    world.parts = {}
    world.hosts = {name: host for name, host in hosts.items() if not host.is_down}
    given_up = {aborted.number for aborted in world.aborted}
    world.log.cuts = {number: cut for number, cut in cuts.items() if number not in given_up}
    world.completed, marks = [], tuple(sorted([repr(canonical(recorded)) for recorded in completed]))
    try:
        return fingerprint(world), found, marks, tuple(sorted(world.hosts)), tuple(world.coordinator.hosts)
    finally:
        world.parts, world.completed, world.hosts, world.log.cuts = parts, completed, hosts, cuts


def renumber(world: World) -> None:
    """Number the batches of each FIFO link from 0 again, and forget what nobody asks for any more.

    That is what was reported of snapshots that are over; and which are over, of those that a host has recorded and that no
    control message is on its way for.
    """
    if world.is_fifo:
        for source, host in world.hosts.items():
            for target, link in host.core.outputs.items():
                _renumber_link(world, source, target, link)
    told = {message[1:3] for message in world.control}
    for name, host in world.hosts.items():
        host.reported &= host.core.open.keys()
        host.late_count = host.late_count if world.coordinator.pending else 0
        for number in [*host.core.closed]:
            if (name, number) not in told and _is_stale(world, ("abort", name, number)):
                host.core.closed.remove(number)


def _renumber_link(world: World, source: str, target: str, link: OutLink) -> None:
    if world.hosts[target].is_down:
        link.sequence = link.in_flight = 0
        return
    end = world.hosts[target].core.inputs.get(source)
    arrived = end.next if end is not None else 0
    if end is None or not arrived or end.early:
        return
    end.next, link.sequence = 0, link.sequence - arrived
    for carried in world.network:
        if (carried.source, carried.target) == (source, target):
            name, sequence, declared, segments, acknowledgements = carried.batch
            carried.batch = name, sequence - arrived, declared, segments, acknowledgements


class _Saved:
    """A world to make copies of. What never changes once it is there, the copies share."""

    def __init__(self, world: World) -> None:
        self.parts, self.completed = world.parts, world.completed
        world.parts, world.completed = {}, []
        self.rest = pickle.dumps(world, pickle.HIGHEST_PROTOCOL)
        world.parts, world.completed = self.parts, self.completed
        self.parts, self.completed = self._both()

    def copy(self) -> World:
        """Another world in the same state."""
        found: World = pickle.loads(self.rest)
        found.parts, found.completed = self._both()
        return found

    def _both(self) -> tuple[dict[int, list[Part]], list[Recorded]]:
        return {number: [*parts] for number, parts in self.parts.items()}, [*self.completed]


class _Search:
    """Which steps are tried in a state, and which are taken at once."""

    def __init__(self, acts: tuple[str, ...], crash: str | None, is_reduced: bool) -> None:
        self.acts = acts
        self.crash = crash
        self.is_reduced = is_reduced
        self.begun: set[int] = set()
        """Marks of states from which somebody has gone on already."""
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
        return self.crash is not None and world.hosts[self.crash].is_down and self.crash in world.coordinator.hosts

    def _may_hear_of_a_crash(self, world: World, name: str) -> bool:
        """Whether a crash that is to come, or to be noticed, could tell this host something that it has not done yet."""
        if self.crash is None or name == self.crash or self.crash not in world.coordinator.hosts:
            return False
        return not all(_is_stale(world, ("abort", name, number)) for number in range(1, world.coordinator.last + 1))

    def _by_host(self, world: World) -> dict[str, list[Step]]:
        found = {name: world.enabled_on(name) for name in world.hosts}
        for index in _heads(world):
            found[world.network[index].target].append(("deliver", index))
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

    def after(self, world: World, steps: list[Step]) -> Iterator[tuple[int, World]]:
        """The worlds behind each of these steps, once they have run on, with their marks; the last is `world` itself."""
        saved = _Saved(world) if len(steps) > 1 else None
        for at, step in enumerate(steps, 1):
            before = saved.copy() if saved is not None and at < len(steps) else world
            for one in self._taken(before, step):
                yield from self._run_on(one) if self.is_reduced else ((hash(_mark(one)), one),)

    def beginnings(self, world: World) -> Iterator[World]:
        """The world once it has settled; and if a host may crash, that too."""
        if self.crash is not None and self.is_reduced:
            yield from self._halted(_Saved(world))
        yield from self._taken(world, None)

    def _run_on(self, world: World) -> Iterator[tuple[int, World]]:
        """Go on while there is but one step to try."""
        renumber(world)
        mark = hash(_mark(world))
        if mark in self.begun:
            return
        self.begun.add(mark)
        steps = self.chosen(world)
        has_moved = len(steps) == 1
        while len(steps) == 1:
            world, *others = reversed([*self._taken(world, steps[0])])
            for other in others:
                yield from self._run_on(other)
            renumber(world)
            steps = self.chosen(world)
        yield hash(_mark(world)) if has_moved else mark, world

    def _taken(self, world: World, step: Step | None) -> Iterator[World]:
        """What may come of a step and all that is eager behind it; the world itself last."""
        if self.crash is not None and self.is_reduced:
            yield from self._with_crashes(world, step)
            return
        if step is not None:
            world.perform(step, 1)
        self.settle(world)
        yield world

    def _with_crashes(self, world: World, step: Step | None) -> Iterator[World]:
        """Take a step and what is eager behind it; wherever the crash could be told from one elsewhere, it happens, too."""
        emitted, completed = self._emitted(world), len(world.completed)
        step = step or self._eager(world)
        while step is not None:
            world.perform(step, 1)
            if not world.hosts[self._crash].is_down and self._emitted(world) != emitted:
                emitted = self._emitted(world)
                if self._is_new_once_halted(world):
                    yield from self._halted(_Saved(world))
            if self._is_unnoticed(world) and len(world.completed) > completed:
                completed = len(world.completed)
                yield self._noticed(_Saved(world).copy())
            step = self._eager(world)
        yield world

    @property
    def _crash(self) -> str:
        assert self.crash is not None
        return self.crash

    def _emitted(self, world: World) -> Hashable:
        """What others may know of the host that will crash."""
        host = world.hosts[self._crash]
        return sum(link.sequence for link in host.core.outputs.values()), len(host.reported), host.late_count

    def _is_new_once_halted(self, world: World) -> bool:
        """Whether the crash has not been tried here: what only the dead know makes no difference."""
        host = world.hosts[self._crash]
        host.is_down = True
        mark = hash(_mark(world))
        host.is_down = False
        is_new = mark not in self.tried
        self.tried.add(mark)
        return is_new

    def _halted(self, saved: _Saved) -> Iterator[World]:
        world = saved.copy()
        world.perform(("halt", self._crash))
        on_its_way = any(one[0] == "part" and one[2].host == self._crash for one in world.control)
        if on_its_way or any(self._crash in pending.reported for pending in world.coordinator.pending.values()):
            later = saved.copy()
            later.perform(("halt", self._crash))
            yield from self._with_crashes(later, None)  # something may be completed before the crash is noticed
        yield self._noticed(world)

    def _noticed(self, world: World) -> World:
        world.perform(("notice", self._crash))
        self.settle(world)
        return world

    # ---- what is taken at once --------------------------------------------------------------------------------------

    def settle(self, world: World) -> None:
        """Take the eager steps until there are none."""
        while (step := self._eager(world)) is not None:
            world.perform(step)

    def _eager(self, world: World) -> Step | None:
        for name in world.hosts:
            for step in world.enabled_on(name):
                if step[0] in EAGER or (self.is_reduced and step[0] == "record"):
                    return step
        for index, message in enumerate(world.control):
            if message[0] in ("part", "close") or (self.is_reduced and _is_stale(world, message)):
                return "control", index
        for index in _heads(world) if self.is_reduced else ():
            if _tells_nothing(world, world.network[index]):
                return "deliver", index
        return None


def _heads(world: World) -> list[int]:
    """Of each FIFO link the batch that is next; of one that reorders, all."""
    if not world.is_fifo:
        return [*range(len(world.network))]
    heads: dict[tuple[str, str], int] = {}
    for index, carried in enumerate(world.network):
        key = carried.source, carried.target
        if key not in heads or carried.batch[1] < world.network[heads[key]].batch[1]:
            heads[key] = index
    return [*heads.values()]


def _is_stale(world: World, message: Step) -> bool:
    """A control message to a host that is down, or has done what it asks."""
    kind, name, *rest = message
    core = world.hosts[name].core
    if world.hosts[name].is_down:
        return True
    if kind == "request":
        return rest[0] in core.closed or rest[0] in core.open
    return kind == "abort" and core.is_recorded(rest[0]) and not core.protocol.is_white(core.colour, rest[0])


def _tells_nothing(world: World, carried: Carried) -> bool:
    """A batch to a host that is down; or that carries no message, and no colour that its target has not."""
    host = world.hosts[carried.target]
    if host.is_down:
        return True
    core = host.core
    for colour, messages in carried.batch[3]:
        if not core.protocol.is_white(core.colour, 1) and colour <= core.colour and not messages:
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
    carries = {carried.source for carried in world.network if carried.target == name}
    return not any((source, name) in may_carry and not (world.is_fifo and source in carries) for source in world.hosts)


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
    last = world.coordinator.last
    if core.must_record or core.uncopied or core.colour < last:
        return True
    return any(machine.copied < last for machine in core.machines.values())


def _may_send(world: World, acts: tuple[str, ...]) -> set[tuple[str, str]]:
    """(source, target) of all messages that may still be sent: those of the events to come, and of what these send."""
    events = {(name, "go") for name in acts if not world.log.lengths.get(name)}
    for carried in world.network:
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
    return [output for output in outputs if isinstance(output, Send)]


__all__ = ["Orders", "canonical", "every_order"]
