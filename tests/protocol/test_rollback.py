"""The rollback in two phases against its table: every event in every phase; and the coordinator, step by step."""

import re
from itertools import product
from pathlib import Path

import pytest

from ray_snapshot.errors import ProtocolError
from ray_snapshot.protocol import rollback
from ray_snapshot.protocol.rollback import Phase, RollbackCoordinator, RollbackHost, Step

OWN = 2
STOPS = (rollback.StopAccepting(OWN + 1), rollback.Acknowledge(Step.STOP, OWN + 1))
EVENTS: dict[str, rollback.HostEvent] = {
    **{f"{step.name} {n}": rollback.Asked(step, n) for step in Step for n in (OWN - 1, OWN, OWN + 1)},
    **{f"{step.name} of another life": rollback.Asked(step, OWN + 1, incarnation=5) for step in Step},
    **{f"loaded {n}": rollback.LoadFinished(n) for n in (OWN - 1, OWN, OWN + 1)},
}
EFFECTS: dict[tuple[str, Phase], object] = {
    **{("STOP 3", phase): STOPS for phase in Phase},
    **{(event, phase): ProtocolError for event in ("LOAD 3", "START 3", "loaded 3") for phase in Phase},
    ("STOP 2", Phase.STOPPED): (rollback.Acknowledge(Step.STOP, OWN),),
    ("LOAD 2", Phase.STOPPED): (rollback.LoadStates(OWN),),
    ("LOAD 2", Phase.LOADED): (rollback.Acknowledge(Step.LOAD, OWN),),
    ("START 2", Phase.STOPPED): ProtocolError,
    ("START 2", Phase.LOADING): ProtocolError,
    ("START 2", Phase.LOADED): (rollback.StartAccepting(OWN), rollback.Acknowledge(Step.START, OWN)),
    ("START 2", Phase.RUNNING): (rollback.Acknowledge(Step.START, OWN),),
    **{("loaded 2", phase): ProtocolError for phase in Phase},
    ("loaded 2", Phase.LOADING): (rollback.Acknowledge(Step.LOAD, OWN),),
}
"""What is not here has no effect."""

AFTER = {
    **{("STOP 3", phase): (OWN + 1, Phase.STOPPED) for phase in Phase},
    ("LOAD 2", Phase.STOPPED): (OWN, Phase.LOADING),
    ("loaded 2", Phase.LOADING): (OWN, Phase.LOADED),
    ("START 2", Phase.LOADED): (OWN, Phase.RUNNING),
}
"""Where it changes anything."""


@pytest.mark.parametrize(("event", "phase"), list(product(EVENTS, Phase)))
def test_every_event_in_every_phase_has_the_effects_of_the_table(event: str, phase: Phase) -> None:
    host = RollbackHost(OWN, phase)
    expected = EFFECTS.get((event, phase), ())
    if expected is ProtocolError:
        with pytest.raises(ProtocolError):
            host.step(EVENTS[event])
    else:
        assert host.step(EVENTS[event]) == expected
    assert (host.generation, host.phase) == AFTER.get((event, phase), (OWN, phase))


@pytest.mark.parametrize("phase", Phase)
def test_a_host_refuses_what_is_older_and_holds_what_comes_before_it_has_started(phase: Phase) -> None:
    host = RollbackHost(OWN, phase)
    own = rollback.Judgement.ACCEPT if phase is Phase.RUNNING else rollback.Judgement.HOLD
    assert [host.judge(n) for n in (OWN - 1, OWN, OWN + 1)] == [rollback.Judgement.REFUSE, own, rollback.Judgement.HOLD]


# ---- the coordinator ------------------------------------------------------------------------------------------------------


def system(*hosts: str, last: int = 0, **options: object) -> RollbackCoordinator:
    """A coordinator whose hosts run."""
    found = RollbackCoordinator(last=last, **options)  # type: ignore[arg-type]
    for host in hosts:
        found.step(rollback.HostJoined(host, 0, last))
        found.step(rollback.Acknowledged(host, Step.START, last))
    return found


def done(coordinator: RollbackCoordinator, step: Step, *hosts: str) -> tuple[rollback.CoordinatorEffect, ...]:
    effects: tuple[rollback.CoordinatorEffect, ...] = ()
    for host in hosts:
        effects = coordinator.step(rollback.Acknowledged(host, step, coordinator.generation))
    return effects


def asks(step: Step, generation: int, *hosts: str, incarnation: int = 0) -> tuple[rollback.Ask, ...]:
    return tuple(rollback.Ask(host, step, generation, incarnation) for host in hosts)


def test_acknowledgements_that_are_late_or_double_count_for_nothing() -> None:
    coordinator = system("a", "b")
    coordinator.step(rollback.RollbackAsked("one"))
    done(coordinator, Step.STOP, "a", "b")
    coordinator.step(rollback.RollbackAsked("two"))
    before = repr(vars(coordinator))
    for host in ("a", "b"):
        assert coordinator.step(rollback.Acknowledged(host, Step.STOP, 1)) == ()
        assert coordinator.step(rollback.Acknowledged(host, Step.LOAD, 1)) == ()
    assert repr(vars(coordinator)) == before
    done(coordinator, Step.STOP, "a", "a")
    assert coordinator.reached == 0


def test_what_was_not_asked_for_is_an_error_and_changes_nothing() -> None:
    coordinator = system("a", "b")
    coordinator.step(rollback.RollbackAsked("one"))
    before = repr(vars(coordinator))
    for step, generation in ((Step.LOAD, 1), (Step.START, 1), (Step.STOP, 2)):
        with pytest.raises(ProtocolError):
            coordinator.step(rollback.Acknowledged("a", step, generation))
    assert coordinator.step(rollback.Acknowledged("nobody", Step.STOP, 1)) == ()
    assert repr(vars(coordinator)) == before


def test_a_second_failure_while_the_system_recovers_begins_anew() -> None:
    coordinator = system("a", "b", "c")
    assert coordinator.step(rollback.HostFailed("a", 0, now=0.0))[1:] == asks(Step.STOP, 1, "b", "c")
    done(coordinator, Step.STOP, "b", "c")
    found = coordinator.step(rollback.HostFailed("b", 0, now=1.0))
    assert found == (rollback.BeginGeneration(2, "host b is gone"), *asks(Step.STOP, 2, "c"))
    assert done(coordinator, Step.STOP, "c") == ()
    assert coordinator.step(rollback.HostJoined("a", 1, rollback.NO_GENERATION)) == asks(
        Step.STOP, 2, "a", incarnation=1
    )
    assert done(coordinator, Step.STOP, "a") == ()
    assert coordinator.step(rollback.HostJoined("b", 1, rollback.NO_GENERATION)) == asks(
        Step.STOP, 2, "b", incarnation=1
    )
    assert {ask.host for ask in done(coordinator, Step.STOP, "b") if isinstance(ask, rollback.Ask)} == {"a", "b", "c"}


def test_a_host_that_is_not_replaced_is_waited_for_no_more() -> None:
    coordinator = system("a", "b")
    coordinator.step(rollback.HostFailed("a", 0, now=0.0, is_replaced=False))
    assert done(coordinator, Step.STOP, "b") == asks(Step.LOAD, 1, "b")
    assert coordinator.step(rollback.HostFailed("a", 0, now=0.0)) == ()  # known
    assert coordinator.step(rollback.HostJoined("a", 0, 0)) == ()  # said before it died


def test_a_replacement_that_fails_before_it_has_joined_is_waited_for_as_before() -> None:
    coordinator = system("a", "b")
    coordinator.step(rollback.HostFailed("a", 0, now=0.0))
    assert coordinator.step(rollback.HostFailed("a", 1, now=0.0)) == ()
    assert coordinator.step(rollback.HostJoined("a", 1, rollback.NO_GENERATION)) == ()
    assert coordinator.step(rollback.HostJoined("a", 2, rollback.NO_GENERATION)) == (
        *asks(Step.STOP, 1, "a", incarnation=2),
        *asks(Step.STOP, 1, "b"),
    )


def test_a_host_that_comes_back_before_its_death_was_noticed_has_died() -> None:
    coordinator = system("a", "b")
    found = coordinator.step(rollback.HostJoined("a", 1, rollback.NO_GENERATION))
    assert found[0] == rollback.BeginGeneration(1, "host a died unseen")
    assert coordinator.step(rollback.HostJoined("a", 1, rollback.NO_GENERATION)) == ()
    assert coordinator.step(rollback.HostFailed("a", 0, now=9.0)) == ()  # that was its life before


def test_a_host_that_is_expected_is_waited_for() -> None:
    coordinator = system("a")
    coordinator.step(rollback.RollbackAsked("move"))
    coordinator.step(rollback.HostExpected("new"))
    assert done(coordinator, Step.STOP, "a") == ()
    coordinator.step(rollback.HostJoined("new", 0, rollback.NO_GENERATION))
    assert done(coordinator, Step.STOP, "new") == asks(Step.LOAD, 1, "a", "new")


def test_after_too_many_failures_it_gives_up_with_the_reason() -> None:
    coordinator = system("a", "b", most_failures=2, within_s=10.0)
    for incarnation, now in enumerate((0.0, 11.0, 12.0)):
        assert isinstance(coordinator.step(rollback.HostFailed("a", incarnation, now))[0], rollback.BeginGeneration)
        coordinator.step(rollback.HostJoined("a", incarnation + 1, rollback.NO_GENERATION))
    (told,) = coordinator.step(rollback.HostFailed("a", 3, 13.0))
    assert told == rollback.GiveUp("3 failures within 10 s; 2 are borne")
    assert coordinator.step(rollback.RollbackAsked("please")) == ()
    assert not coordinator.is_running


def test_after_many_slow_failures_in_vain_it_gives_up_and_a_snapshot_that_is_kept_begins_the_count_anew() -> None:
    coordinator = system("a", most_failures=2, within_s=10.0)

    def fail(incarnation: int) -> rollback.CoordinatorEffect:
        (told, *_) = coordinator.step(rollback.HostFailed("a", incarnation, 100.0 * incarnation))
        coordinator.step(rollback.HostJoined("a", incarnation + 1, rollback.NO_GENERATION))
        return told

    assert all(isinstance(fail(number), rollback.BeginGeneration) for number in range(20))
    coordinator.kept()
    assert all(isinstance(fail(number), rollback.BeginGeneration) for number in range(20, 40))
    assert fail(40) == rollback.GiveUp("21 failures since a snapshot was kept; 20 are borne")


def test_the_page_has_the_table_of_the_host() -> None:
    page = (Path(__file__).parents[2] / "docs" / "protocols.md").read_text()
    table = page.split("## Rollback")[1].split("\n## ")[0]
    rows = dict(re.findall(r"^\| `(STOP|LOAD|START|LoadFinished)` \| (.*) \|$", table, re.MULTILINE))
    for name, key in (("STOP", "STOP 2"), ("LOAD", "LOAD 2"), ("START", "START 2"), ("LoadFinished", "loaded 2")):
        cells = [cell.strip() for cell in rows[name].split("|")]
        for phase, cell in zip(Phase, cells, strict=True):
            expected = EFFECTS.get((key, phase), ())
            names = [type(one).__name__ for one in expected] if isinstance(expected, tuple) else ["error"]
            assert re.findall(r"\w+", cell) == names, (name, phase)


def test_those_that_stop_last_are_asked_once_when_the_last_of_the_others_has_stopped() -> None:
    coordinator = RollbackCoordinator()
    coordinator.last_to_stop.update(("x", "y"))
    for host in ("a", "b", "x", "y"):
        coordinator.step(rollback.HostJoined(host, 0, 0))
        coordinator.step(rollback.Acknowledged(host, Step.START, 0))
    asked = [effect.host for effect in coordinator.step(rollback.RollbackAsked("")) if isinstance(effect, rollback.Ask)]
    assert asked == ["a", "b"]
    assert coordinator.step(rollback.Acknowledged("a", Step.STOP, 1)) == ()
    effects = coordinator.step(rollback.Acknowledged("b", Step.STOP, 1))
    assert effects == (rollback.Ask("x", Step.STOP, 1, 0), rollback.Ask("y", Step.STOP, 1, 0))
    assert coordinator.step(rollback.Acknowledged("x", Step.STOP, 1)) == (), "y is still stopping"
