"""Machines that nothing touches are not copied: what their host records and keeps is as without. Mutants are seen."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable, Iterator, Sequence
from itertools import compress, cycle
from typing import Any

import pytest
from making_mutants import Edit, break_

from ray_snapshot.encoding import to_json
from ray_snapshot.errors import ProtocolError
from ray_snapshot.protocol.chandy_lamport import ChandyLamport
from ray_snapshot.protocol.copying import Copying
from ray_snapshot.protocol.host import HostCore, Machine
from ray_snapshot.protocol.mailbox import MAIL
from ray_snapshot.protocol.observer import Observer
from ray_snapshot.protocol.parts import GroupCopy, MachineCopy
from ray_snapshot.runtime.checkpointing import section_of
from ray_snapshot.runtime.host.resting import RestingRows
from ray_snapshot.runtime.planning import opened_section
from ray_snapshot.runtime.report import BodyCopy

HOSTS = ("A", "B")
HOMES = {name: host for host, names in zip(HOSTS, ("acegi", "bdfhj"), strict=True) for name in names}
LENGTH = 200


class Extras(list[int]):
    """The states of some machines."""

    def where(self, flags: Sequence[bool]) -> Extras:
        """Those of the machines of which the flags say so."""
        return Extras(compress(self, flags))


class World:
    """Two hosts and their links; a machine's state is how often it has acted. `shown` is what each recording holds.

    `rests`: machines are put to rest; `together`: several are copied in one go, or the first few of those that were asked for;
    `grouped`: those that are not `a` or `f`, if they are more than one.
    """

    def __init__(self, protocol: Callable[[], Any], *, rests: bool, together: bool, grouped: bool) -> None:
        self.sizes = cycle([1, 4, 2] if together else [1])
        """How many are to be copied in one go."""
        self.states = dict.fromkeys(HOMES, 0)
        self.cores = {
            name: HostCore(
                name,
                protocol=protocol(),
                copy_body=self.body,
                copy_bodies=self.copied if together else None,
                copy_group=self.grouped if grouped else None,
                is_lasting=self.lasts if rests else None,
                bound=3,
            )
            for name in HOSTS
        }
        self.at_rest: dict[str, dict[str, MachineCopy]] = {name: {} for name in HOSTS}
        self.shown: dict[tuple[str, int], Any] = {}
        self.late: dict[tuple[str, int], list[Any]] = {}
        self.links: dict[tuple[str, str], list[Any]] = {("A", "B"): [], ("B", "A"): []}
        self.rested = 0
        for name, host in HOMES.items():
            if name in "abcdef":
                self.cores[host].born(name, object())

    def lasts(self, machine: Machine, extra: Any) -> bool:
        return machine.name not in "cd"  # those are copied each time

    def body(self, machine: Machine) -> Any:
        return self.states[machine.name] + 1

    def copied(self, machines: Sequence[Machine]) -> list[Any]:
        return [self.body(machine) for machine in machines[:3]]

    def grouped(self, machines: Sequence[Machine], may_rest: Any) -> Any:
        taken = [machine for machine in machines if machine.name not in "af"]
        if len(taken) < 2:
            return None
        resting = [may_rest is not None and self.lasts(machine, None) and may_rest(machine) for machine in taken]
        return taken, Extras(self.states[machine.name] + 1 for machine in taken), resting

    def home(self, name: str) -> HostCore:
        return self.cores[HOMES[name]]

    def machine(self, name: str) -> Machine | None:
        found = self.home(name).machines.get(name)
        return None if found is None or found.body is None or found.is_stopped else found

    # ---- steps ----------------------------------------------------------------------------------------------------

    def act(self, host: str, then: str | None) -> None:
        core = self.cores[host]
        if core.must_record or (found := core.next_action()) is None:
            return
        machine, _ = found
        self.states[machine.name] += 1
        if then is not None and then not in core.addresses.stopped:
            core.send(machine, then, MAIL, "note", (), 0.0)
        core.end_action(machine)

    def start(self, name: str, target: str, delay: bool) -> None:
        """The machine acts by itself: it sends, or sets a timer."""
        core, machine = self.home(name), self.machine(name)
        if machine is None or core.must_record or machine.is_held or target in core.addresses.stopped:
            return
        core.begin_action(machine)
        if delay:
            core.set_timer(machine, target, "note", (0.0, ()), 0.0, 1.0)
        else:
            core.send(machine, target, MAIL, "note", (), 0.0)
        core.end_action(machine)

    def fire(self, name: str) -> None:
        for channel in self.home(name).machines[name].outputs.values() if self.machine(name) else ():
            for number in [*channel.timers][:1]:
                self.home(name).fire(channel, number)

    def connect(self, name: str, target: str) -> None:
        if (machine := self.machine(name)) is not None and target not in self.home(name).addresses.stopped:
            self.home(name).channel(machine, target, MAIL)

    def find(self, host: str, name: str) -> None:
        self.cores[host].resolve(name, HOMES[name])

    def create(self, name: str) -> None:
        if self.machine(name) is None and name not in self.home(name).addresses.stopped:
            self.home(name).born(name, object())

    def stop(self, name: str) -> None:
        if (machine := self.machine(name)) is not None:
            self.home(name).stop(machine)

    def carry(self, source: str, target: str) -> None:
        self.links[source, target] += [batch for _, batch in self.cores[source].take_batches(10)]
        if self.links[source, target]:
            self.cores[source].outputs[target].in_flight -= 1
            self.cores[target].arrive(self.links[source, target].pop(0))

    def request(self, host: str, number: int) -> None:
        self.cores[host].request(number)

    def turn(self, host: str) -> None:
        core = self.cores[host]
        core.boundary()
        if not core.copying.uncopied:
            self.look(host)

    def copy(self, host: str) -> None:
        if self.cores[host].copying.uncopied and not self.cores[host].copy_next(next(self.sizes)):
            self.look(host)

    def give_up(self, number: int) -> None:
        for core in self.cores.values():
            core.abort(number)

    def wake_all(self, host: str) -> None:
        self.cores[host].copying.wake_all()

    # ---- what a world shows -----------------------------------------------------------------------------------------

    def look(self, host: str) -> None:
        """Recordings have become whole: take what they hold."""
        core, rows = self.cores[host], self.at_rest[host]
        rested = [
            copy
            for one in core.copying.take_rested()
            for copy in (one.each() if isinstance(one, GroupCopy) else (one,))
        ]
        self.rested += len(rested)
        assert core.copying.rested_count == 0
        rows.update({copy.machine: copy for copy in rested})
        for number, recording in core.open.items():
            if recording.is_copied and recording.has_resting and (host, number) not in self.shown:
                found = {**rows, **{copy.machine: copy for copy in recording.each_copy()}}
                assert sorted(recording.names) == sorted(copy.machine for copy in recording.each_copy())
                self.shown[host, number] = {name: seen(copy) for name, copy in found.items()}
                self.late[host, number] = recording.late
        if core.copying.is_lasting is not None:
            for name in core.copying.awake:
                rows.pop(name, None)

    def told(self) -> Any:
        """All recordings, with the messages that came behind the copies: those in flight are in one or the other."""
        for host in HOSTS:
            self.turn(host)
            while self.cores[host].copying.uncopied:
                self.copy(host)
        return {
            key: (copies, sorted((box.source, machine.name, message[1]) for box, machine, message in self.late[key]))
            for key, copies in self.shown.items()
        }


def seen(copy: MachineCopy) -> Any:
    inputs = sorted((box.source, box.kind, accepted, [one[1] for one in white]) for box, accepted, white in copy.inputs)
    outputs = sorted((one.target, one.kind, sent, [m[1] for m in waiting]) for one, sent, waiting in copy.outputs)
    return copy.is_born, copy.accepted, copy.sent, copy.extra, inputs, outputs


def merged(told: Any) -> Any:
    """Where a message in flight is told does not matter: in a mailbox that was copied later, or behind an earlier copy."""
    found = {}
    for key, (copies, late) in told.items():
        in_flight = sorted(late)
        for name, (_, _, _, _, inputs, _) in copies.items():
            in_flight += [(source, name, number) for source, _, _, numbers in inputs for number in numbers]
        rows = {
            name: (
                *facts,
                [(source, kind, accepted) for source, kind, accepted, _ in inputs if accepted],
                _used(outputs),
            )
            for name, (*facts, inputs, outputs) in copies.items()
        }
        found[key] = rows, sorted(in_flight)
    return found


def _used(outputs: Any) -> Any:
    """Channels that carry nothing yet may be opened behind the instant."""
    return [(target, kind, sent, waiting) for target, kind, sent, waiting in outputs if sent]


def steps(seed: int) -> Iterator[tuple[str, tuple[Any, ...]]]:
    chance = random.Random(seed)
    number = 0
    for _ in range(LENGTH):
        name, other = chance.choice([*HOMES]), chance.choice([*HOMES])
        host = chance.choice(HOSTS)
        far = HOSTS[1 - HOSTS.index(host)]
        kind = chance.choices(
            [
                "act", "start", "timer", "fire", "connect", "find", "create", "stop", "carry", "request", "turn", "copy",
                "give_up", "wake",
            ],
            [10, 4, 1, 1, 1, 3, 1, 0.3, 14, 5, 14, 40, 0.5, 0.2],
        )[0]  # fmt: skip
        if kind == "request":
            number += chance.random() < 0.6
        yield {
            "act": ("act", (host, chance.choice([other, None, None]))),
            "start": ("start", (name, other, False)),
            "timer": ("start", (name, other, True)),
            "fire": ("fire", (name,)),
            "connect": ("connect", (name, other)),
            "find": ("find", (host, name)),
            "create": ("create", (name,)),
            "stop": ("stop", (name,)),
            "carry": ("carry", (host, far)),
            "request": ("request", (host, max(1, number))),
            "turn": ("turn", (host,)),
            "copy": ("copy", (host,)),
            "give_up": ("give_up", (max(1, number - 1),)),
            "wake": ("wake_all", (host,)),
        }[kind]


def run(
    seed: int, protocol: Callable[[], Any], *, rests: bool = False, together: bool = False, grouped: bool = False
) -> World:
    world = World(protocol, rests=rests, together=together, grouped=grouped)
    for step, args in steps(seed):
        getattr(world, step)(*args)
    return world


@pytest.mark.parametrize("protocol", [ChandyLamport, Observer])
@pytest.mark.parametrize(
    "times", [pytest.param(150, id="few"), pytest.param(5_000, id="many", marks=pytest.mark.nightly)]
)
def test_recordings_are_the_same_with_machines_at_rest(protocol: Callable[[], Any], times: int, seed: int) -> None:
    rested = compared = 0
    for number in range(seed, seed + times):
        plain = run(number, protocol)
        resting = run(number, protocol, rests=number % 5 > 0, together=number % 3 > 0, grouped=number % 3 > 1)
        differing, same = compare(plain, resting)
        assert differing == {}, f"pytest --seed {number}"
        rested += resting.rested
        compared += same
    assert rested > 2 * times, "hardly anything was put to rest"
    assert compared > 2 * times, "hardly anything was recorded"


def compare(plain: World, resting: World) -> tuple[dict[Any, Any], int]:
    """Which recordings of two worlds differ, and how many do not; those that one of them gave up first are not compared."""
    ours, theirs = merged(resting.told()), merged(plain.told())
    both = ours.keys() & theirs.keys()
    differing = {key: (ours[key], theirs[key]) for key in both if ours[key] != theirs[key]}
    return differing, len(both) - len(differing)


ALL_UNCOPIED = """\
taken = [self.uncopied.popleft() for _ in range(min(most, len(self.uncopied)))]
return [machine for machine in taken if machine.copied != self.turning.colour]"""
NOT_AWAKE = (Copying, "wake: self.awake[machine.name] = machine => pass")

GROUPED: dict[str, Edit] = {
    "who_is_in_no_group_is_forgotten": (Copying, "_take_group: return others => return []"),
    "groups_take_red_messages": (Copying, "_copy_group: is_white(colour, number) => True"),
    "a_group_rests_with_messages": (Copying, "_has_nothing_to_do: return True"),
    "of_a_group_all_rest_or_none": (
        World,
        "grouped: in taken), resting => in taken), [True in resting] * len(resting)",
    ),
    "a_group_is_in_its_last_recording_only": (Copying, "_take_group: due = due[-1:]"),
    "a_group_says_what_is_counted_of_others": (
        GroupCopy,
        "each: self.found, self.accepted, => self.found, self.accepted[::-1],",
    ),
}
MUTANTS: dict[str, Edit | list[Edit]] = {
    # Copied before its own action, it is missing from one recording only.
    "who_was_copied_last_for_another_snapshot_is_copied_along": (Copying, f"_next_uncopied: {ALL_UNCOPIED}"),
    "each_gets_the_copy_of_another": (Copying, "copy_next: self._bodies(machines) => [*reversed(self._bodies(machines))]"),
    "who_was_not_copied_with_the_others_is_forgotten": (
        Copying,
        "copy_next: self.uncopied.extendleft(reversed(machines[len(bodies) :])) => pass",
    ),
    "messages_wake_nobody": (HostCore, "_put: self.copying.wake(machine) => pass"),
    "who_has_messages_rests": [
        (Copying, "_is_quiet: any(box.kept for box in copy.boxes) => False"),
        (Copying, "_has_nothing_to_do: any(box.kept for box in machine.inbox.mailboxes.values()) => False"),
    ],
    "who_is_in_a_later_recording_only_rests": (Copying, "_due_of: self._due[1:] => self._due[1], bool(self._due[1])"),
    "who_is_woken_is_not_copied_next_time": NOT_AWAKE,
}  # fmt: skip
FIRST = {
    "messages_wake_nobody": 80,
    "groups_take_red_messages": 70,
    "a_group_rests_with_messages": 70,
    "who_is_in_a_later_recording_only_rests": 470,
}
"""The seeds before this one do not show it."""


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_machine_that_rests_for_too_long_is_seen(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    break_(monkeypatch, MUTANTS[mutant])
    assert any(map(_is_seen, range(FIRST.get(mutant, 0), 3_000)))


@pytest.mark.parametrize(
    "mutant", [*GROUPED, *(pytest.param(mutant, marks=pytest.mark.nightly) for mutant in [*MUTANTS][3:])]
)
def test_of_machines_that_are_copied_as_a_group_it_is_seen_too(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    break_(monkeypatch, GROUPED.get(mutant) or MUTANTS[mutant])
    assert any(_is_seen(number, grouped=True) for number in range(FIRST.get(mutant, 0), 3_000))


def _is_seen(number: int, *, grouped: bool = False) -> bool:
    plain = run(number, ChandyLamport)
    try:
        return compare(plain, run(number, ChandyLamport, rests=True, together=True, grouped=grouped))[0] != {}
    except ProtocolError:
        return True


class SavingWorld(World):
    """`saved` is what the section of each recording says of its machines."""

    def __init__(self, protocol: Callable[[], Any], *, rests: bool, together: bool) -> None:
        self.saved: dict[tuple[str, int], list[Any]] = {}
        self.rows = {host: RestingRows(host) for host in HOSTS}
        self.saved_at_rest = 0
        super().__init__(protocol, rests=rests, together=together, grouped=False)

    def body(self, machine: Machine) -> BodyCopy:
        state = self.states[machine.name]
        status = "stopped" if machine.is_stopped else "passive"
        return BodyCopy("Counting", status, to_json(state), kept=(f"class {state % 3}", pickle.dumps(state)))

    def look(self, host: str) -> None:
        core, rows = self.cores[host], self.rows[host]
        rows.take(core.copying.take_rested())
        for number, recording in core.open.items():
            if recording.is_copied and recording.has_resting and (host, number) not in self.saved:
                at_rest = rows.beside([copy.machine for copy in recording.copies]).saved
                self.saved_at_rest += 0 if at_rest is None else at_rest.count
                table = None if at_rest is None else at_rest.table()
                section = section_of(host, recording, 0.0, {}, (), (), table)
                self.saved[host, number] = sorted(opened_section(section.dumps())[1])
        rows.forget(core.copying.awake)

    def sections(self) -> dict[tuple[str, int], list[Any]]:
        """All recordings that have become whole."""
        for host in HOSTS:
            self.turn(host)
            while self.cores[host].copying.uncopied:
                self.copy(host)
        return self.saved


def _run(seed: int, protocol: Callable[[], Any], *, rests: bool) -> SavingWorld:
    world = SavingWorld(protocol, rests=rests, together=rests and seed % 2 == 0)
    for step, args in steps(seed):
        getattr(world, step)(*args)
    return world


def _differing(seed: int, protocol: Callable[[], Any]) -> tuple[dict[Any, Any], int, int]:
    """Which sections are other ones with machines at rest, how many were compared, and how many of them were at rest."""
    plain, resting = _run(seed, protocol, rests=False), _run(seed, protocol, rests=True)
    ours, theirs = resting.sections(), plain.sections()
    both = ours.keys() & theirs.keys()
    return {key: (ours[key], theirs[key]) for key in both if ours[key] != theirs[key]}, len(both), resting.saved_at_rest


@pytest.mark.parametrize("protocol", [ChandyLamport, Observer])
@pytest.mark.parametrize(
    "times", [pytest.param(20, id="few"), pytest.param(1_000, id="many", marks=pytest.mark.nightly)]
)
def test_sections_are_the_same_with_machines_at_rest(protocol: Callable[[], Any], times: int, seed: int) -> None:
    compared = rested = 0
    for number in range(seed, seed + times):
        differing, both, at_rest = _differing(number, protocol)
        assert differing == {}, f"pytest --seed {number}"
        compared, rested = compared + both, rested + at_rest
    assert compared > 2 * times, "hardly anything was recorded"
    assert rested > 2 * times, "hardly anything was at rest"


SAVING_MUTANTS: dict[str, Edit] = {
    # Its row is that of an earlier moment.
    "who_wakes_stays_among_those_at_rest": (RestingRows, "forget"),
    # A section has it twice.
    "who_is_copied_is_among_those_at_rest_too": (RestingRows, "beside: names = ()"),
    "who_is_woken_is_not_copied_next_time": NOT_AWAKE,
}


@pytest.mark.parametrize("mutant", SAVING_MUTANTS)
def test_a_state_that_is_saved_for_too_long_is_seen(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    break_(monkeypatch, SAVING_MUTANTS[mutant])
    assert any(map(_is_seen_saved, range(500)))


def _is_seen_saved(number: int) -> bool:
    try:
        return _differing(number, ChandyLamport)[0] != {}
    except ProtocolError:
        return True
