"""A rollback in two phases, in storms: what must never happen in between; and that wrong ones are caught."""

import random
from collections.abc import Callable
from typing import Any

import pytest
from worlds.mail.behaviours import Script
from worlds.mail.generations import Lineage
from worlds.mail.machines import Create
from worlds.mail.world import World
from worlds.rollback import storms
from worlds.rollback.rolling_back import Rollback, check_that_generations_do_not_overlap
from worlds.rollback.storms import run_storm

from ray_snapshot.protocol.rollback import (
    Ask,
    AskAgain,
    Asked,
    Judgement,
    LoadFinished,
    Phase,
    RollbackCoordinator,
    RollbackHost,
    Step,
)
from ray_snapshot.simulation.mail.oracle import OracleError

Patch = pytest.MonkeyPatch


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


def old_messages_are_accepted_in_the_second_phase(patch: Patch) -> None:
    """A host that has started takes what is late for what is new."""

    def judge(self: RollbackHost, generation: int) -> Judgement:
        is_running = self.phase is Phase.RUNNING
        return Judgement.ACCEPT if is_running and generation <= self.generation else Judgement.HOLD

    patch.setattr(RollbackHost, "judge", judge)


def a_host_starts_before_all_are_prepared(patch: Patch) -> None:
    """Whoever has loaded is asked to start."""
    acknowledged = RollbackCoordinator._acknowledged

    def hasty(self: RollbackCoordinator, host: str, step: Step, generation: int) -> Any:
        effects = acknowledged(self, host, step, generation)
        is_counted = generation == self.generation and host in self.done and step is Step.LOAD
        return (*effects, Ask(host, Step.START, generation, self.incarnations[host])) if is_counted else effects

    patch.setattr(RollbackCoordinator, "_acknowledged", hasty)


def a_host_is_asked_for_its_next_step_whatever_the_others_do(patch: Patch) -> None:
    def asks(self: RollbackCoordinator) -> Any:
        behind = [host for host, done in self.done.items() if done < Step.START and host not in self.down]
        return tuple(Ask(host, Step(self.done[host] + 1), self.generation, self.incarnations[host]) for host in behind)

    patch.setattr(RollbackCoordinator, "_asks", asks)


def a_host_loads_before_all_have_stopped(patch: Patch) -> None:
    """One phase instead of two: who has stopped loads and starts by itself."""
    step = RollbackHost.step

    def alone(self: RollbackHost, event: Any) -> Any:
        effects = step(self, event)
        if self.phase is Phase.STOPPED and effects:
            effects += step(self, Asked(Step.LOAD, self.generation, self.incarnation))
            effects += step(self, LoadFinished(self.generation))
            effects += step(self, Asked(Step.START, self.generation, self.incarnation))
        return effects

    patch.setattr(RollbackHost, "step", alone)
    patch.setattr(Rollback, "enabled", _without_loading(Rollback.enabled))


def _without_loading(enabled: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self: [step for step in enabled(self) if step[0] != "loaded"]


def acknowledgements_of_an_older_generation_count(patch: Patch) -> None:
    def late(self: RollbackCoordinator, host: str, step: Step, generation: int) -> Any:
        del generation
        return counted(self, host, step, self.generation) if step == self.done.get(host, 9) + 1 else ()

    counted = RollbackCoordinator._acknowledged
    patch.setattr(RollbackCoordinator, "_acknowledged", late)


def a_failure_during_recovery_is_not_noticed(patch: Patch) -> None:
    failed = RollbackCoordinator._failed
    patch.setattr(RollbackCoordinator, "_failed", lambda self, *event: failed(self, *event) if self.is_running else ())


def the_dead_are_replaced_and_nobody_else_goes_back(patch: Patch) -> None:
    """A second failure takes only the replacement through the steps."""
    failed = RollbackCoordinator._failed

    def only(self: RollbackCoordinator, host: str, incarnation: int, now: float, is_replaced: bool) -> Any:
        if self.is_running or not is_replaced or host not in self.done:
            return failed(self, host, incarnation, now, is_replaced)
        self.incarnations[host] = incarnation
        self.done[host] = 0
        self.down.add(host)
        return ()

    patch.setattr(RollbackCoordinator, "_failed", only)


def what_is_asked_of_the_dead_is_done_by_their_successors(patch: Patch) -> None:
    """A host does not look for which of its lives something was meant."""
    step = RollbackHost.step

    def anyone(self: RollbackHost, event: Any) -> Any:
        if isinstance(event, Asked):
            event = Asked(event.step, event.generation, self.incarnation)
        return step(self, event)

    patch.setattr(RollbackHost, "step", anyone)


def what_comes_too_early_is_refused(patch: Patch) -> None:
    judge = RollbackHost.judge

    def strict(self: RollbackHost, generation: int) -> Judgement:
        found = judge(self, generation)
        return Judgement.REFUSE if found is Judgement.HOLD else found

    patch.setattr(RollbackHost, "judge", strict)


def nothing_is_asked_again(patch: Patch) -> None:
    step = RollbackCoordinator.step
    patch.setattr(RollbackCoordinator, "step", _without_asking_again(step))


def a_late_request_stops_a_host_again(patch: Patch) -> None:
    step = RollbackHost.step

    def obedient(self: RollbackHost, event: Any) -> Any:
        if isinstance(event, Asked) and event.step is Step.STOP and event.generation == self.generation:
            self.phase = Phase.STOPPED
        return step(self, event)

    patch.setattr(RollbackHost, "step", obedient)


def what_was_held_is_forgotten(patch: Patch) -> None:
    patch.setattr(Lineage, "started", lambda self, name: self.held.pop(name, None))


def all_are_asked_to_stop_at_once(patch: Patch) -> None:
    """Those for which it is final, too."""
    asks = RollbackCoordinator._asks

    def hasty(self: RollbackCoordinator) -> Any:
        last, self.last_to_stop = self.last_to_stop, set()
        effects = asks(self)
        self.last_to_stop = last
        return effects

    patch.setattr(RollbackCoordinator, "_asks", hasty)


def those_that_stop_last_are_never_asked(patch: Patch) -> None:
    """When the last of the others has stopped nobody says so."""
    acknowledged = RollbackCoordinator._acknowledged

    def forgets(self: RollbackCoordinator, host: str, step: Step, generation: int) -> Any:
        before = self.reached
        effects = acknowledged(self, host, step, generation)
        return effects if self.reached != before else ()

    patch.setattr(RollbackCoordinator, "_acknowledged", forgets)
    patch.setattr(RollbackCoordinator, "step", _without_asking_again(RollbackCoordinator.step))


def _without_asking_again(step: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, event: () if event == AskAgain() else step(self, event)


WRONG = {
    all_are_asked_to_stop_at_once: ("mixed-chandy-lamport", "stops last, and has stopped before"),
    those_that_stop_last_are_never_asked: ("mixed-observer", "does not end"),
    old_messages_are_accepted_in_the_second_phase: ("flow-chandy-lamport", "."),
    a_host_starts_before_all_are_prepared: ("storm-observer", "has not loaded"),
    a_host_is_asked_for_its_next_step_whatever_the_others_do: ("storm-observer", "somebody acts in generation"),
    a_host_loads_before_all_have_stopped: ("storm-observer", "which it was not asked for"),
    acknowledgements_of_an_older_generation_count: ("storm-chandy-lamport", "."),
    a_failure_during_recovery_is_not_noticed: ("flow-chandy-lamport", "."),
    the_dead_are_replaced_and_nobody_else_goes_back: ("flow-observer", "."),
    what_is_asked_of_the_dead_is_done_by_their_successors: ("storm-chandy-lamport", "."),
    what_comes_too_early_is_refused: ("flow-chandy-lamport", "too little|waits for"),
    nothing_is_asked_again: ("storm-chandy-lamport", "does not end"),
    a_late_request_stops_a_host_again: ("storm-chandy-lamport", "."),
    what_was_held_is_forgotten: ("flow-chandy-lamport", "too little|waits for"),
}
MOST_SEEDS = 600


@pytest.mark.parametrize("breaks", WRONG, ids=lambda breaks: breaks.__name__)
def test_a_wrong_rollback_is_caught(breaks: Callable[[Patch], None], monkeypatch: Patch) -> None:
    breaks(monkeypatch)
    name, seen_by = WRONG[breaks]
    with pytest.raises(OracleError, match=seen_by):
        _run_storms(name)


def _run_storms(name: str) -> None:
    for seed in range(MOST_SEEDS):
        run_storm(name, seed)
