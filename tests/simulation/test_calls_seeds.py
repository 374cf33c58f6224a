"""Snapshots of calls in any order: hundreds of apps by chance, each run checked by the theorem.

Calls are accepted in any order, lost, repeated and cancelled; machines die and start again; acknowledgements are lost and
doubled. Then it is quiet, and every open snapshot must complete, however many calls are blocked for good. A failure names
its seed and the command that replays it.
"""

import ast
import inspect
from collections import Counter

import pytest
from replaying import check_replay
from worlds.calls import oracle as calls_oracle
from worlds.calls import schedules as calls_schedules
from worlds.calls.oracle import deadlocked, is_terminated
from worlds.calls.schedules import CALL_PROFILES, run_calls
from worlds.calls.world import CallWorld

from ray_snapshot.protocol.collector import Answer
from ray_snapshot.simulation.mail.oracle import OracleError

SEEDS = 24


def _seen(world: CallWorld) -> Counter[str]:
    """What a run met, so that a test can tell that its seeds meet it at all."""
    slots = world.slots()
    found = world.central.completed
    kinds = Counter(event.kind for event in world.log.events)
    seen: Counter[str] = Counter(completed=len(found), aborted=len(world.central.aborted))
    seen["in flight"] = sum(len(one.in_flight) for one in found)
    seen["constructors in flight"] = sum(call[3] == 0 for one in found for call in one.in_flight)
    seen["tasks in flight"] = sum(call[0] == "*" for one in found for call in one.in_flight)
    seen["tasks that ran"] = sum(call[0] == "*" for one in found for call in one.running)
    seen["workers that idled"] = sum(event.kind == "leave" and "worker" in event.machine for event in world.log.events)
    seen["waiting"] = sum(bool(one.waits) for one in found)
    seen["parked"] = sum(wait.is_local for one in found for wait in one.waits)
    seen["deadlocks"] = sum(bool(deadlocked(one, slots)) for one in found)
    seen["terminated"] = sum(is_terminated(one) for one in found)
    seen["started in quiet"] = sum(one.was_quiet for one in found)
    seen["without a state"] = sum(len(one.machines) - len(one.states) > 1 for one in found)
    seen["machines that died meanwhile"] = sum(bool(one.gone) for one in found)
    seen["new incarnations"] = sum(incarnation > 0 for one in found for incarnation in one.machines.values())
    seen["settled"], seen["died"], seen["cancelled"] = kinds["settle"], kinds["die"], kinds["cancelled"]
    seen["executed twice"] = sum(count > 1 for count in _acceptances(world).values())
    seen["the driver left"] = kinds["leave"]
    seen["doubles answered"] = world.central.answers[Answer.DUPLICATE] + world.central.answers[Answer.DISCARDED]
    seen["cuts that are no instant"] = sum(len(set(cut.values())) > 1 for cut in world.log.cuts.values())
    return seen


def _acceptances(world: CallWorld) -> Counter[object]:
    return Counter(event.call for event in world.log.events if event.kind == "accept")


@pytest.mark.by_day(5)
@pytest.mark.parametrize("profile", CALL_PROFILES)
def test_every_snapshot_of_calls_is_a_state_that_could_have_been(profile: str) -> None:
    seen = sum((_seen(run_calls(profile, seed)) for seed in range(SEEDS)), Counter())
    settings = CALL_PROFILES[profile]
    expected = ["completed", "in flight", "waiting", "deadlocks", "terminated", "started in quiet", "without a state"]
    expected += ["the driver left", "doubles answered", "cuts that are no instant"]
    expected += ["tasks in flight", "tasks that ran", "workers that idled"] * settings.tasks
    expected += ["aborted"] * settings.aborts
    expected += ["constructors in flight"] * settings.births
    expected += ["parked"] * settings.parks
    expected += ["settled"] * bool(settings.loses or settings.raises)
    expected += ["cancelled"] * bool(settings.loses)
    expected += ["died", "machines that died meanwhile"] * bool(settings.dies)
    expected += ["new incarnations"] * bool(settings.dies and settings.retries)
    expected += ["executed twice"] * settings.retries
    assert {what: seen[what] for what in expected if not seen[what]} == {}
    assert seen["completed"] > 3 * SEEDS


@pytest.mark.nightly
@pytest.mark.parametrize("profile", CALL_PROFILES)
def test_every_snapshot_of_calls_is_right_over_thousands_of_seeds(profile: str) -> None:
    for seed in range(SEEDS, 2_500):
        run_calls(profile, seed)


@pytest.mark.parametrize(("profile", "seed"), [("restarts", 3754), ("restarts", 8172), ("everything", 9705)])
def test_who_begins_anew_does_not_take_the_calls_of_its_predecessor_for_its_own(profile: str, seed: int) -> None:
    """What was to be told to the one before: which of its calls a target that died has not accepted."""
    run_calls(profile, seed)


@pytest.mark.parametrize(("profile", "seed"), [("tasks that fail", 1103), ("everything", 561)])
def test_a_retried_task_that_raises_is_not_forgotten_and_runs_where_it_runs_again(profile: str, seed: int) -> None:
    """Its worker has left, or died, when another one has run it for the last time."""
    run_calls(profile, seed)


def test_a_call_may_raise_whose_sender_is_a_worker_that_has_ended() -> None:
    run_calls("tasks that fail", 2465)


def test_a_call_of_the_dead_is_not_executed_again() -> None:
    run_calls("restarts", 5112)


def test_a_call_that_was_cancelled_and_runs_again_may_have_been_answered() -> None:
    run_calls("everything", 9668)


def test_the_oracle_of_calls_shares_no_code_with_the_protocol() -> None:
    tree = ast.parse(inspect.getsource(calls_oracle))
    found = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert [name for name in found if name.startswith("ray_snapshot.")] == ["ray_snapshot.simulation.mail.oracle"]


def test_a_failure_of_calls_names_the_seed_and_the_command_that_replays_it(monkeypatch: pytest.MonkeyPatch) -> None:
    trace: list[str] = []

    def fails(*_: object) -> None:
        raise OracleError("for the sake of the test")

    monkeypatch.setattr(calls_schedules, "check_calls", fails)
    with pytest.raises(OracleError, match="seed 5 of profile tasks that fail") as caught:
        run_calls("tasks that fail", 5, trace)
    check_replay(caught.value, trace)
