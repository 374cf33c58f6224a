"""A rollback in two phases, in storms: what must never happen in between; and that wrong ones are caught."""

import random

import pytest
from making_mutants import Broken, Mutant, mutants
from worlds.mail.behaviours import Script
from worlds.mail.generations import Lineage
from worlds.mail.machines import Create
from worlds.mail.world import World
from worlds.rollback import storms
from worlds.rollback.rolling_back import Rollback, check_that_generations_do_not_overlap
from worlds.rollback.storms import run_storm

from ray_snapshot.protocol.rollback import RollbackCoordinator, RollbackHost
from ray_snapshot.simulation.mail.oracle import OracleError


def _run(protocol: str = "chandy-lamport", seed: int = 3) -> storms.Run:
    return storms._without_crashes(storms._wanderers(protocol, random.Random(seed), []))


def test_a_host_that_has_not_been_told_goes_on_in_the_generation_before_and_what_it_sends_is_refused() -> None:
    run = _run()
    old = run.world
    first, *others = old.hosts
    storms.roll_back(run)
    (place,) = [index for index, one in enumerate(run.rollback.mail) if one[0] == first]
    run.rollback.perform(("told", place))
    machine = {host: next(name for name, at in old.places.items() if at == host) for host in old.hosts}
    assert not old.can_act(machine[first])
    assert all(old.can_act(machine[host]) for host in others)
    assert not any(run.world.can_act(name) for name in run.world.log.start)
    for choice in range(1, 20):
        if old.can_act(machine[others[0]]):
            old.perform(("act", machine[others[0]]), choice)
        while steps := [step for step in old.enabled_on(others[0]) if step[0] in ("continue", "flush")]:
            old.perform(steps[0])
    assert old.network.batches
    check_that_generations_do_not_overlap(old)
    storms.settle(run)
    storms.check(run)
    assert any("of generation 0: refused" in line for line in old.trace or ())


def test_what_comes_before_a_host_has_started_is_held_until_it_has() -> None:
    for seed in range(60):
        trace: list[str] = []
        run_storm("flow-chandy-lamport", seed, trace)
        if any(line.endswith(": held") for line in trace):
            return
    pytest.fail("nothing was ever held")


def test_a_host_that_a_machine_has_made_does_nothing_before_it_has_joined() -> None:
    maker = Script((("go", (Create("child", "K", Script(), ()),)),), ("go",))
    world = World({"a": ("A", maker, ())}, is_atomic=True)
    run = storms.Run("chandy-lamport", random.Random(0), world)
    for step in (("act", "a"), ("flush", "A"), ("deliver", 0)):
        world.perform(step, 1)
    assert world.lineage.held["K"]
    assert world.enabled_on("K") == []
    run.rollback.register()
    run.rollback.finish()
    assert ("birth", "K") in world.enabled_on("K")


# ---- wrong rollbacks --------------------------------------------------------------------------------------------------------

WHATEVER = """\
behind = [host for host, done in self.done.items() if done < Step.START and host not in self.down]
return tuple(Ask(host, Step(self.done[host] + 1), self.generation, self.incarnations[host]) for host in behind)"""
START_AT_ONCE = """\
is_counted = step is Step.LOAD and generation == self.generation and host in self.done
            early = (Ask(host, Step.START, generation, self.incarnations[host]),) if is_counted else ()
            return self._acknowledged(host, step, generation) + early"""
BY_ITSELF = """\
if self.phase is Phase.STOPPED and effects:
        effects += self._again(Step.LOAD) + self._load_finished(self.generation) + self._again(Step.START)
    return effects"""
ONLY_ITSELF = """\
if not self.is_running and is_replaced and host in self.done:
    self.incarnations[host], self.done[host] = incarnation, 0
    self.down.add(host)
    return ()"""
STOP_AGAIN = """\
if isinstance(event, Asked) and event.step is Step.STOP and event.generation == self.generation:
    self.phase = Phase.STOPPED"""
NEVER_AGAIN = (RollbackCoordinator, "step: return self._asks() => return ()")

BROKEN: Broken = {
    ("mixed-chandy-lamport", "stops last, and has stopped before"): {
        # Those for which it is final, too.
        "all_are_asked_to_stop_at_once": (
            RollbackCoordinator,
            "_asks: in self.behind if => in [one for one, done in self.done.items() if done == reached] if",
        ),
    },
    ("mixed-observer", "does not end"): {
        # When the last of the others has stopped nobody says so.
        "those_that_stop_last_are_never_asked": [
            (RollbackCoordinator, "_acknowledged: return self._asks_last() if => return () if"),
            NEVER_AGAIN,
        ],
    },
    ("flow-chandy-lamport", "."): {
        # A host that has started takes what is late for what is new.
        "old_messages_are_accepted_in_the_second_phase": [
            (RollbackHost, "judge: if generation < self.generation: => if False:"),
            (RollbackHost, "judge: generation == self.generation and => generation <= self.generation and"),
        ],
        "a_failure_during_recovery_is_not_noticed": (RollbackCoordinator, "_failed: if not self.is_running: return ()"),
    },
    ("storm-observer", "has not loaded"): {
        # Whoever has loaded is asked to start.
        "a_host_starts_before_all_are_prepared": (
            RollbackCoordinator,
            f"step: return self._acknowledged(host, step, generation) => {START_AT_ONCE}",
        ),
    },
    ("storm-observer", "somebody acts in generation"): {
        "a_host_is_asked_for_its_next_step_whatever_the_others_do": (RollbackCoordinator, f"_asks: {WHATEVER}"),
    },
    ("storm-observer", "which it was not asked for"): {
        # One phase instead of two: who has stopped loads and starts by itself.
        "a_host_loads_before_all_have_stopped": [
            (RollbackHost, "step: return (\n => effects = (\n"),
            (RollbackHost, f"step: event.generation)\n    ) => event.generation)\n    )\n    {BY_ITSELF}"),
            (Rollback, 'enabled: steps += [("loaded", index) for index in range(len(self.loading))] => pass'),
        ],
    },
    ("storm-chandy-lamport", "."): {
        "acknowledgements_of_an_older_generation_count": (
            RollbackCoordinator,
            "_acknowledged: generation = self.generation\nif step != self.done.get(host, 9) + 1: return ()",
        ),
        # A host does not look for which of its lives something was meant.
        "what_is_asked_of_the_dead_is_done_by_their_successors": (
            RollbackHost,
            "step:  or event.incarnation != self.incarnation => ",
        ),
        "a_late_request_stops_a_host_again": (RollbackHost, f"step: {STOP_AGAIN}"),
    },
    ("flow-observer", "."): {
        # A second failure takes only the replacement through the steps.
        "the_dead_are_replaced_and_nobody_else_goes_back": (RollbackCoordinator, f"_failed: {ONLY_ITSELF}"),
    },
    ("flow-chandy-lamport", "too little|waits for"): {
        "what_comes_too_early_is_refused": (RollbackHost, "judge: else Judgement.HOLD => else Judgement.REFUSE"),
        "what_was_held_is_forgotten": (Lineage, "started: self.held.pop(name, None)"),
    },
    ("storm-chandy-lamport", "does not end"): {"nothing_is_asked_again": NEVER_AGAIN},
}
MOST_SEEDS = 600


@pytest.mark.parametrize("mutant", mutants(BROKEN), ids=lambda mutant: mutant.name)
def test_a_wrong_rollback_is_caught(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant.breaks(monkeypatch)
    with pytest.raises(OracleError, match=mutant.seen_by):
        _run_storms(mutant.shown_by)


def _run_storms(name: str) -> None:
    for seed in range(MOST_SEEDS):
        run_storm(name, seed)
