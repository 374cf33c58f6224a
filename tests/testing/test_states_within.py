"""A constraint, as TLC's: states outside are found and judged, and not gone on from."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import counting_machines as machines
import pytest

from ray_snapshot import cli, testing
from ray_snapshot.errors import DetectorError, SettingError

pytestmark = pytest.mark.contract

MOST = 200
"""So many states end a search that goes on from states outside: without a constraint most of these never end."""
explore = partial(testing.explore, most_states=MOST)


def test_states_outside_are_found_and_not_gone_on_from() -> None:
    """Two counters within 0 to 3: 16 states, and of each counter four in which it is one too far."""
    found = explore(machines.counters, within=machines.small)
    assert (found.ok, found.complete, found.states, found.outside, found.depth) == (True, True, 24, 8, 6), str(found)
    assert str(found).startswith("24 states; complete within small: 8 of them are outside, and not gone on from\n")
    assert found.within == "small"


def test_states_outside_are_judged() -> None:
    found = explore(machines.counters, always=machines.small, within=machines.small)
    assert found.broken == "small"
    assert found.counterexample is not None
    assert len(found.counterexample.steps) == 5
    assert explore(machines.counters, never=machines.at_four, within=machines.small).broken == "at_four"
    assert explore(machines.counters, never=machines.large, within=machines.small).ok


def test_a_state_outside_is_no_end_of_a_run() -> None:
    found = explore(machines.counters, eventually=machines.large, within=machines.small)
    assert (found.ok, found.complete, found.ends) == (True, True, 0), str(found)


def test_a_run_that_stays_within_only_because_a_message_is_never_accepted_is_not_fair() -> None:
    never_comes = machines.is_broken
    found = explore(machines.spinner_and_jar, eventually=never_comes, within=machines.is_empty)
    assert found.ok, str(found)
    assert (found.states, found.outside) == (4, 2)
    found = explore(machines.spinner_and_jar, eventually=never_comes)
    assert found.counterexample is not None
    assert found.counterexample.loop_from is not None


def test_a_loop_that_stays_within_is_a_counterexample() -> None:
    def spinner(system: Any) -> None:
        system.spawn(machines.Spinner, name="spinner").spin.send()

    found = explore(spinner, eventually=machines.is_broken, within=lambda _: True)
    assert found.counterexample is not None
    assert found.counterexample.loop_from is not None


def test_of_several_constraints_all_must_hold() -> None:
    def first_is_less_than_two(states: Any) -> bool:
        return bool(states["a"].count < 2)

    found = explore(machines.counters, within=[machines.small, first_is_less_than_two])
    assert (found.states - found.outside, found.within) == (8, "small and first_is_less_than_two")


def test_a_constraint_may_say_which_machines_it_reads() -> None:
    asked = []

    @testing.over("a", "b")
    def is_small(states: Any) -> bool:
        asked.append(None)
        return states["a"].count <= 3 and states["b"].count <= 3

    found = explore(machines.counters, within=is_small)
    assert (found.states, found.outside, len(asked)) == (24, 8, 24)


def test_where_no_state_is_outside_the_search_is_of_all_states() -> None:
    found = explore(machines.spinner_and_jar, within=lambda _: True)
    assert (found.complete, found.outside) == (True, 0)
    assert "4 states; complete, and all are within <lambda>" in str(found)


def test_a_state_of_which_it_cannot_be_told_is_gone_on_from_and_said() -> None:
    def perhaps(states: Any) -> bool | None:
        return None if states["b"].count == 2 else machines.small(states)

    found = explore(machines.counters, within=perhaps)
    assert not found.complete
    assert (
        "the constraint perhaps could not be told in 5 states"
        in explore(machines.counters, within=[perhaps, machines.small]).why[0]
    ), found.why


def test_a_search_that_was_stopped_is_not_complete_within() -> None:
    found = explore(machines.counters, within=machines.small, most_states=20)
    assert not found.complete
    assert str(found).startswith("20 states; not complete within small: ")


def test_a_detector_is_stable_within() -> None:
    """`at_four` holds outside alone, where no step is taken; without the constraint the next one breaks it."""
    found = testing.check_stable(machines.at_four, machines.counters, within=machines.small)
    assert (found.ok, found.complete, found.states, found.outside) == (True, True, 24, 8)
    found = testing.check_stable(machines.at_four, machines.counters, most_states=MOST)
    assert found.counterexample is not None

    def at_three(states: Any) -> bool:
        return bool(states["a"].count == 3)

    found = testing.check_stable(at_three, machines.counters, within=machines.small)
    assert found.counterexample is not None, "a step that leads outside counts"


def test_what_is_asked_wrongly_is_told() -> None:
    with pytest.raises(
        SettingError, match="within=is_broken: it does not hold in the state in which the system begins"
    ):
        explore(machines.counters, within=machines.is_broken)
    with pytest.raises(SettingError, match="leave within out"):
        explore(machines.counters, within=machines.small, protocol="observer")
    with pytest.raises(DetectorError):
        explore(machines.counters, within=3)

    def wrong(states: Any) -> bool:
        return bool(states["z"])

    with pytest.raises(DetectorError, match="predicate 'wrong' raised KeyError"):
        explore(machines.counters, within=wrong)


def test_the_command_says_that_it_is_complete_within(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(Path(__file__).parent)
    words = ["explore", "counting_machines:counters", "--within", "counting_machines:small", "--most-states", "200"]
    assert cli.main(words) == 0
    assert "complete within small: 8 of them are outside, and not gone on from" in capsys.readouterr().out
    assert cli.main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["ok"], found["complete"], found["within"], found["outside"]) == (True, True, "small", 8)
    assert cli.main(["explore", "counting_machines:counters", "--within", "counting_machines:is_broken"]) == 2
    told = capsys.readouterr().err
    assert "so no step would be taken" in told
    assert told.count("\n") == 1
