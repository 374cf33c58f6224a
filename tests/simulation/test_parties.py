"""Machines and watched actors in one system: one colour per process, one number, one consistent cut (see `parties`)."""

import random
from collections import Counter
from collections.abc import Callable

import pytest
from making_mutants import Edit, break_
from worlds.calls.programs import Call as ActorCall
from worlds.calls.programs import Kind, Post, Work
from worlds.mail.behaviours import Script
from worlds.mail.every_order import Explored
from worlds.mail.machines import Ask, Send, Tell
from worlds.parties.rows import rows_of
from worlds.parties.schedules import explore, run_parties
from worlds.parties.world import ERRORS, PartyWorld, Turn

from ray_snapshot import Snapshot
from ray_snapshot.detectors import Deadlock, Termination
from ray_snapshot.errors import SettingError
from ray_snapshot.names import LIFE
from ray_snapshot.protocol.call_collector import CallParties, PendingCallSnapshot
from ray_snapshot.protocol.calls import CallLedger
from ray_snapshot.protocol.choosing import BARRIERS, CHANDY_LAMPORT, OBSERVER
from ray_snapshot.protocol.collector import PendingCounts
from ray_snapshot.protocol.coordinator import Coordinator, PendingSnapshot
from ray_snapshot.protocol.host import HostCore
from ray_snapshot.protocol.senders import Senders
from ray_snapshot.simulation.mail.oracle import OracleError

NIGHTLY = pytest.mark.nightly

DIES = 0.01
"""How often, a step, a process ends."""

PROTOCOLS = (CHANDY_LAMPORT, OBSERVER)


# ---- every order ----------------------------------------------------------------------------------------------------


def asks_and_is_sent_to(protocol: str, *, can_restart: bool = False) -> PartyWorld:
    """A machine asks an actor that sends to the same machine: that may arrive red while the machine waits in its action."""
    m = Script(sends=(("go", (Ask("a", "work"),)),), unasked=("go",))
    kinds = {"Actor": Kind({"work": (Post("m", "posted"), Work())}, can_restart=can_restart)}
    return PartyWorld({"m": ("H", m, ())}, kinds, {"a": "Actor"}, protocol=protocol, is_atomic=True)


def is_asked_and_tells(protocol: str) -> PartyWorld:
    """An actor waits for the reply of a machine, which calls another actor before it answers."""
    n = Script(sends=(("ask", (Tell("b", "note"),)),))
    kinds = {"Asks": Kind({"work": (Post("n", "ask", waits=True),)}), "Notes": Kind({"note": (Work(),)})}
    actors = {"a": "Asks", "b": "Notes"}
    return PartyWorld({"n": ("H", n, ())}, kinds, actors, (ActorCall("a", "work"),), protocol=protocol, is_atomic=True)


def two_hosts_and_an_actor(protocol: str) -> PartyWorld:
    """What one machine tells an actor and what it sends to another machine, which asks the actor, go two ways."""
    m = Script(sends=(("go", (Tell("a", "work"), Send("n", "hello", None))),), unasked=("go",))
    n = Script(sends=(("hello", (Ask("a", "work"),)),))
    kinds = {"Actor": Kind({"work": (Work(),)})}
    return PartyWorld({"m": ("G", m, ()), "n": ("H", n, ())}, kinds, {"a": "Actor"}, protocol=protocol, is_atomic=True)


System = Callable[[str], PartyWorld]


@pytest.mark.by_day(1)
@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(
    ("system", "acts"),
    [
        (asks_and_is_sent_to, ("m",)),
        pytest.param(is_asked_and_tells, (), marks=NIGHTLY),
        pytest.param(two_hosts_and_an_actor, ("m",), marks=NIGHTLY),
    ],
)
def test_every_order_is_consistent(system: System, acts: tuple[str, ...], protocol: str) -> None:
    assert explored(system(protocol), acts).snapshots > 1


@NIGHTLY
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_order_with_two_snapshots_is_consistent(protocol: str) -> None:
    assert explored(asks_and_is_sent_to(protocol), ("m",), snapshots=2).snapshots > 10


@NIGHTLY
@pytest.mark.parametrize("can_restart", [False, True])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_order_with_a_death_is_consistent(protocol: str, can_restart: bool) -> None:
    world = asks_and_is_sent_to(protocol, can_restart=can_restart)
    world.perform(("calls", "step", "driver", None))
    assert explore(world, ("m",), dies="a").snapshots > 50


def explored(world: PartyWorld, acts: tuple[str, ...], snapshots: int = 1) -> Explored:
    """Behind what the driver does at the beginning."""
    for _ in range(1 if acts else 2):
        world.perform(("calls", "step", "driver", None))
    return explore(world, acts, snapshots=snapshots)


# ---- by chance ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("seeds", [range(6), pytest.param(range(6, 2_000), marks=NIGHTLY)], ids=["day", "night"])
def test_systems_by_chance_are_consistent(seeds: range, protocol: str) -> None:
    """`worlds.parties.schedules.run_parties(seed, protocol)` replays one of them."""
    completed = waits = crossed = 0
    for seed in seeds:
        world = run_parties(seed, protocol)
        completed += len(world.mail.central.completed)
        waits += sum(
            one.caller is not None and one.caller[2] in "mno" for s in world.calls.central.completed for one in s.waits
        )
        crossed += sum(call[0] in "mno" for s in world.calls.central.completed for call in s.in_flight)
    assert completed > 3 * len(seeds)
    assert min(waits, crossed) > len(seeds), "machines that wait for actors, and calls on their way from them, are cut"


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("seeds", [range(8), pytest.param(range(8, 3_000), marks=NIGHTLY)], ids=["day", "night"])
def test_processes_die_and_some_start_again(seeds: range, protocol: str) -> None:
    """Their mail comes late or never, what they had recorded is lost or not, and who had called them hears an error."""
    seen: Counter[str] = Counter()
    for seed in seeds:
        world = run_parties(seed, protocol, dies=DIES)
        completed = world.mail.central.completed
        seen["deaths"] += len(world.over)
        seen["lives"] += sum(LIFE in name for name in world.mail.log.lengths)
        seen["lost messages"] += len(world.mail.log.lost)
        seen["errors"] += world.mail.log.lengths[ERRORS]
        seen["uncertain"] += any(one.uncertain for one in completed)
        seen["certain behind a death"] += bool(world.over) and any(not one.uncertain for one in completed[-2:])
    assert min(seen.values()) > len(seeds) / 3, seen


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("seeds", [range(5), pytest.param(range(5, 600), marks=NIGHTLY)], ids=["day", "night"])
def test_verdicts_hold_while_nobody_dies_any_more(seeds: range, protocol: str) -> None:
    """Who waits for one that is gone is not deadlocked unless nothing comes; what a death undoes was true until then."""
    seen: Counter[tuple[str, bool | None]] = Counter()
    for seed in seeds:
        world = run_parties(seed, protocol, dies=DIES)
        last = max((at for at, event in enumerate(world.calls.log.events) if event.kind == "die"), default=-1)
        for number, halves in world.snapshots.items():
            snapshot = Snapshot.from_rows(**rows_of(world, *halves))
            deadlock, termination = Deadlock().evaluate(snapshot), Termination().evaluate(snapshot)
            seen["deadlock", deadlock.holds] += 1
            seen["termination", termination.holds] += 1
            if deadlock.holds and world.calls.central.began[number][0] > last:
                stuck = {row["machine"] for row in (*deadlock.evidence["members"], *deadlock.evidence["stuck_behind"])}
                _check_they_stand_still(world, number, stuck, is_all=bool(termination.holds))
        waiting = world.mail.waits.suspended | {name for name, one in world.calls.alive.items() if one.runs}
        assert deadlock.holds is bool(waiting), f"seed {seed}: {deadlock.sentence}"
        assert not (waiting and termination.holds), f"seed {seed}: {termination.sentence}"
    assert min(seen["deadlock", True], seen["deadlock", False], seen["termination", True]) > len(seeds) / 2, seen


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("seeds", [range(5), pytest.param(range(5, 600), marks=NIGHTLY)], ids=["day", "night"])
def test_verdicts_across_both_are_right(seeds: range, protocol: str) -> None:
    """Who is deadlocked never moves again, and at the end all that waits is named; once terminated, nothing happens."""
    seen: Counter[tuple[str, bool]] = Counter()
    mixed = 0
    for seed in seeds:
        world = run_parties(seed, protocol)
        for number, halves in world.snapshots.items():
            snapshot = Snapshot.from_rows(**rows_of(world, *halves))
            deadlock, termination = Deadlock().evaluate(snapshot), Termination().evaluate(snapshot)
            assert None not in (deadlock.holds, termination.holds), (seed, deadlock.sentence, termination.sentence)
            stuck = {row["machine"] for row in (*deadlock.evidence["members"], *deadlock.evidence["stuck_behind"])}
            _check_they_stand_still(world, number, stuck, is_all=bool(termination.holds))
            seen["deadlock", bool(deadlock.holds)] += 1
            seen["termination", bool(termination.holds)] += 1
            mixed += bool(stuck & {"m", "n", "o"}) and bool(stuck & {"a", "b"})
        waiting = world.mail.waits.suspended | {name for name, one in world.calls.alive.items() if one.runs}
        assert stuck == waiting, f"seed {seed}: {deadlock.sentence}"
        assert termination.holds is not bool(waiting), f"seed {seed}: {termination.sentence}"
    assert len(seen) == 4, seen
    assert mixed > len(seeds)


def _check_they_stand_still(world: PartyWorld, number: int, stuck: set[str], *, is_all: bool) -> None:
    """Nothing that these do comes behind the snapshot; of an actor with several slots one call may go on."""
    actions, events = world.behind[number]
    several = {name for name, slots in world.calls.slots().items() if slots > 1}
    acted = {action.machine for action in world.mail.log.actions[actions:]}
    moves = {event.machine for event in world.calls.log.events[events:] if event.kind in ("step", "wake", "finish")}
    assert not (stuck - several) & (acted | moves), f"snapshot {number} says that {stuck} are stuck"
    assert not (is_all and (acted or moves)), f"snapshot {number} says that all is done"


@pytest.mark.parametrize("order", range(5))
def test_each_of_two_calls_of_one_actor_gets_its_own_reply(order: int) -> None:
    chance = random.Random(order)
    kinds = {"Asks": Kind({"work": (Post("n", "ask", waits=True),)}, slots=2)}
    world = PartyWorld({"n": ("H", Script(), ())}, kinds, {"a": "Asks"}, (ActorCall("a", "work"),) * 2)
    while steps := world.enabled():
        world.perform(chance.choice(steps))
    assert not world.calls.alive["a"].runs
    assert not world.replies
    assert not any(world.owed.values())


def test_barriers_are_refused() -> None:
    for protocol in BARRIERS:
        with pytest.raises(SettingError, match="a process has one colour there"):
            asks_and_is_sent_to(protocol)


# ---- broken on purpose ----------------------------------------------------------------------------------------------


LEDGER_OF_NOW = (
    "replace(self.seen(None), number=number, has_state=then.has_state, state=then.state, was_inside=then.was_inside)"
)
MUTANTS: dict[str, Edit | list[Edit]] = {
    "ledgers_do_not_turn_with_their_host": (HostCore, "boundary: self.ledgers.turned => (lambda *_: None)"),
    "what_a_ledger_saw_is_looked_at_when_it_is_reported": (
        CallLedger,
        f"report: then = self.open[number]\nreturn {LEDGER_OF_NOW}",
    ),
    # The process turns, and what it sends to machines is red; but nothing of it is recorded.
    "the_core_beside_an_actor_is_not_asked": (Turn, "__call__: core.boundary() => core.turning.turn()"),
    "a_host_does_not_hear_the_colour_of_an_actors_reply": (PartyWorld, "_reply: None, colour) => None, 0)"),
    "an_actor_does_not_hear_the_colour_of_a_machines_reply": (PartyWorld, "reply_to: int(reply.colour) => 0"),
    "calls_of_machines_are_white": (
        CallLedger,
        "submit: self.turning.colour => 0 if self.machine in 'mno' else self.turning.colour",
    ),
    "a_machine_forgets_calls_that_were_accepted_in_red": (
        CallLedger,
        "acknowledge: acks = acks._replace(colour=0) if self.machine in 'mno' else acks",
    ),
    "processes_are_not_waited_for": [
        (PendingSnapshot, "is_complete:  and self.calls.is_complete => "),
        (PendingCallSnapshot, "is_complete: return True"),
    ],
    # Also where no actor has accepted a call of theirs, so that nothing else names them.
    "reports_of_machines_are_lost": (Coordinator, "report: calls = ()"),
    "hosts_are_not_waited_for": (PendingSnapshot, "is_complete: self.counts.is_complete and  => "),
    # Where it is due when the actor sends: then the ledger has not recorded.
    "a_core_beside_an_actor_turns_by_itself": (
        HostCore,
        "send_on: if channel.owner.name in 'ab': self.boundary()",
    ),
    "a_ledger_is_not_told_what_is_closed": (HostCore, "_note_closed: self.ledgers.close(number) => pass"),
}
MUTANTS_OF_DEATH: dict[str, tuple[Edit, int]] = {
    "mail_of_the_dead_is_waited_for": ((Coordinator, "close_links"), 40),
    # What was missing is forgotten at the death alone.
    "what_the_dead_have_reported_is_counted_when_it_comes": (
        (PendingCounts, "_count: if self.closed and self._is_closed(key[0]): => if False:"),
        40,
    ),
    "mail_of_the_dead_is_certain": ((Senders, "uncertain: return ()"), 40),
    "mail_of_the_dead_is_certain_from_the_next_snapshot_on": (
        (Senders, "uncertain: return tuple(actor for actor, last in self.lost.items() if last >= number)"),
        130,
    ),
    "the_dead_are_forgotten_when_a_later_snapshot_is_complete": (
        (Senders, "uncertain: min((number, *self.coordinator.pending)) => number"),
        600,
    ),
    "who_starts_again_is_white": ((CallParties, "register: colour = last = 0"), 40),
    "a_new_life_closes_the_links_of_all_lives": ((Coordinator, "close_links: lives += 1"), 40),
}
"""With the number of seeds in which they are found, from the last one on."""


@pytest.mark.by_day(4)
@pytest.mark.parametrize("mutant", MUTANTS)
def test_what_is_broken_is_found(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    break_(monkeypatch, MUTANTS[mutant])
    with pytest.raises(OracleError):
        run_many()


@pytest.mark.by_day(2)
@pytest.mark.parametrize("mutant", MUTANTS)
def test_what_is_broken_is_found_in_a_small_system(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """So the search of every order leaves out no order that matters to any rule."""
    break_(monkeypatch, MUTANTS[mutant])
    is_of_replies = mutant == "an_actor_does_not_hear_the_colour_of_a_machines_reply"
    system, acts = (is_asked_and_tells, ()) if is_of_replies else (asks_and_is_sent_to, ("m",))
    with pytest.raises(OracleError, match=r"(?s)^(?!more than)"):
        explored(system(CHANDY_LAMPORT), acts)


@pytest.mark.by_day(2)
@pytest.mark.parametrize("mutant", MUTANTS_OF_DEATH)
def test_what_is_broken_around_deaths_is_found(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    edit, seeds = MUTANTS_OF_DEATH[mutant]
    break_(monkeypatch, edit)
    with pytest.raises(OracleError):
        run_many(seeds, dies=DIES)


def run_many(seeds: int = 40, dies: float = 0.0) -> None:
    for seed in reversed(range(seeds)):
        for protocol in PROTOCOLS:
            run_parties(seed, protocol, dies=dies)
