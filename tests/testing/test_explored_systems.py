"""`testing.explore` on small systems of which it is known how many states they have, and what is wrong with them."""

import inspect
from typing import Any

import explored_machines as machines
import pytest

import ray_snapshot as rs
from ray_snapshot import detectors, testing
from ray_snapshot.errors import NotDeterministicError, ScheduleError, UnwindingCaughtError

pytestmark = pytest.mark.contract

MONEY = detectors.TokenConservation(total=150, state="$.balance", messages={"deposit": "$[0]"})


def test_a_bank_of_two_has_nine_states_and_keeps_its_money() -> None:
    found = testing.explore(
        machines.bank,
        always=[MONEY, machines.no_overdraft],
        never=[detectors.Deadlock()],
        eventually=[detectors.Termination()],
    )
    assert (found.ok, found.complete, found.states, found.ends) == (True, True, 9, 1), str(found)


def test_a_broken_invariant_comes_with_the_fewest_steps_and_replays() -> None:
    found = testing.explore(machines.bank, always=[machines.a_is_rich])
    assert not found.ok
    assert found.broken == "a_is_rich"
    steps = found.counterexample.steps  # type: ignore[union-attr]
    assert len(steps) == 4, steps
    assert steps[1] == "a accepts transfer(b, 10) from driver; sends deposit(10) to b; balance 100 -> 90"
    run = testing.replay(machines.bank, found.counterexample.schedule)  # type: ignore[union-attr]
    assert run.machines["a"].balance == 95
    assert run.steps == steps


def test_a_schedule_is_text_that_replays_and_does_not_fit_other_machines(tmp_path: Any) -> None:
    found = testing.explore(machines.bank, always=[machines.a_is_rich])
    schedule = found.counterexample.schedule  # type: ignore[union-attr]
    schedule.save(tmp_path / "s.json")
    assert testing.replay(machines.bank, tmp_path / "s.json").machines["a"].balance == 95
    assert testing.replay(machines.bank, str(schedule)).machines["a"].balance == 95
    with pytest.raises(ScheduleError, match="step 3 of the schedule, accept b"):
        testing.replay(machines.ring, schedule)


def test_a_deadlock_is_found_by_its_shortest_way() -> None:
    found = testing.explore(machines.embrace, never=[detectors.Deadlock()])
    assert found.broken == "deadlock"
    steps = found.counterexample.steps  # type: ignore[union-attr]
    assert len(steps) == 3, steps
    assert steps[1].startswith("a accepts greet(b) from driver; calls greeted(a) of b; waits for the result of b")
    assert "2 machines can never move again" in found.counterexample.sentence  # type: ignore[union-attr]


def test_calls_inside_actions_are_answered_in_every_order() -> None:
    ends = set()

    def total(states: Any) -> bool:
        ends.add((states["a"].balance, states["b"].balance))
        return True

    found = testing.explore(
        machines.asking, always=[total], never=[detectors.Deadlock()], eventually=[detectors.Termination()]
    )
    assert found.ok, str(found)
    assert found.complete, found.why
    assert {(70, 65), (65, 70)} <= ends


def test_a_ring_never_terminates_and_the_lasso_is_the_ring() -> None:
    found = testing.explore(machines.ring, eventually=[detectors.Termination()])
    assert found.broken == "termination"
    assert found.counterexample is not None
    assert found.counterexample.loop_from == 2, "the first message is the program's"
    assert len(found.counterexample.steps) == 5
    assert testing.explore(machines.ring_that_ends, eventually=[detectors.Termination()]).ok


def test_an_end_without_the_goal_is_a_counterexample() -> None:
    def b_has_it(states: Any) -> bool:
        return bool(states["b"].has)

    found = testing.explore(machines.ring_that_ends, eventually=[b_has_it])
    assert found.counterexample is not None
    assert found.counterexample.loop_from is None
    assert "nothing is left to happen" in found.counterexample.sentence


def test_a_run_that_starves_a_message_is_not_fair() -> None:
    def build(system: Any) -> None:
        machines.ring(system)
        system.spawn(machines.Account, 1, name="bank").deposit.send(1)

    def paid(states: Any) -> bool:
        return bool(states["bank"].balance == 2)

    assert testing.explore(build, eventually=[paid]).ok


class Poller(rs.SnapshotMixin):
    """Waits inside an action again and again."""

    def __init__(self) -> None:
        self.is_told = False
        self.round = 0

    def poll(self, other: rs.MachineHandle) -> None:
        import ray

        self.round = (self.round + ray.get(other.one.remote())) % 2
        self.handle.poll.send(other)

    def tell(self) -> None:
        self.is_told = True

    def one(self) -> int:
        return 1


class Telling(rs.SnapshotMixin):
    def go(self, to: rs.MachineHandle) -> None:
        to.tell.send()


def test_a_message_to_a_machine_that_waits_again_and_again_does_not_starve() -> None:
    def build(system: Any) -> None:
        poller, other = system.spawn(Poller, name="poller"), system.spawn(Poller, name="other")
        system.spawn(Telling, name="sender").go.send(poller)
        poller.poll.send(other)

    assert testing.explore(build, eventually=[lambda states: states["poller"].is_told]).ok
    found = testing.explore(build, eventually=[lambda states: states["poller"].is_told and states["poller"].round == 1])
    assert found.counterexample is None, "both rounds come again and again"
    found = testing.explore(build, eventually=[lambda states: states["poller"].round == 2])
    assert found.counterexample is not None
    loop = found.counterexample.steps[found.counterexample.loop_from :]
    assert not any("tell" in step for step in loop), "what is told once is told in front of the loop"
    assert testing.replay(build, found.counterexample.schedule).steps == found.counterexample.steps


def test_timers_race_with_messages_and_keep_their_own_order() -> None:
    came = set()

    def note(states: Any) -> bool:
        came.add(tuple(states["a"].came))
        return True

    found = testing.explore(machines.racing, always=[note])
    assert found.complete
    whole = {one for one in came if len(one) == 3}
    assert whole == {("answer", "late", "later"), ("late", "answer", "later"), ("late", "later", "answer")}


def test_a_join_takes_one_message_of_each_port_in_every_way() -> None:
    pairs = set()

    def note(states: Any) -> bool:
        pairs.update(states["pair"].pairs)
        return True

    assert testing.explore(machines.joining, always=[note]).complete
    assert pairs == {("y", "r")}, "y stands in front of r on its channel"


def test_half_a_join_is_a_deadlock_once_its_senders_are_declared() -> None:
    found = testing.explore(machines.half_a_join, never=[detectors.Deadlock()])
    assert found.broken == "deadlock"
    assert "pair" in found.counterexample.sentence  # type: ignore[union-attr]


def test_machines_spawn_others_which_stop() -> None:
    found = testing.explore(machines.family, eventually=[detectors.Termination()])
    assert found.ok, str(found)
    run = testing.replay(machines.family, _longest(machines.family))
    assert sorted(run.machines) == ["Child-0", "Child-1", "parent"]
    assert run.is_over


def _longest(build: Any) -> testing.Schedule:
    """The schedule of a run to its end."""
    found = testing.explore(build, eventually=[lambda states: False])
    assert found.counterexample is not None
    return found.counterexample.schedule


def test_sending_to_a_machine_that_has_stopped_fails_the_action() -> None:
    class Late(rs.SnapshotMixin):
        def __init__(self, child: rs.MachineHandle) -> None:
            self.child = child

        def disturb(self) -> None:
            self.child.leave.send()

    def build(system: Any) -> None:
        child = system.spawn(machines.Child, system.machine("late"), name="child")
        late = system.spawn(Late, child, name="late")
        child.leave.send()
        late.disturb.send()

    found = testing.explore(build)
    assert found.broken == "no action raises"
    assert "MachineStoppedError: late sent leave to child, which has stopped" in found.counterexample.sentence  # type: ignore[union-attr]


def test_the_clock_is_virtual_and_chance_comes_out_in_every_way() -> None:
    at, eyes = set(), set()

    def note(states: Any) -> bool:
        at.add(states["clock"].at)
        return True

    def count(states: Any) -> bool:
        eyes.add(states["die"].eyes)
        return True

    assert testing.explore(machines.clocked, always=[note]).ok
    assert at == {None, 2.5}
    thrown = testing.explore(machines.throwing, always=[count])
    assert thrown.complete
    assert eyes == {0, 1, 2, 3, 4, 5, 6}
    assert thrown.states == 7, "the start, and six throws"


def test_chance_with_countless_outcomes_is_tried_in_part_and_said() -> None:
    found = testing.explore(machines.measuring)
    assert not found.complete
    assert any("4 of countless outcomes of self.random" in why and "explored_machines.py:" in why for why in found.why)


def _line(method: str, words: str) -> str:
    lines, first = inspect.getsourcelines(getattr(machines.Bad, method))
    return str(first + next(place for place, line in enumerate(lines) if words in line))


@pytest.mark.parametrize(
    ("method", "words", "said"),
    [("ask_time", "time.time()", "asks time.time()"), ("ask_chance", "random.random()", "asks random.random()")],
)
def test_a_machine_that_asks_the_real_clock_or_real_chance_is_told_the_line(method: str, words: str, said: str) -> None:
    with pytest.raises(NotDeterministicError, match=r"self\.") as caught:
        testing.explore(machines.bad(method))
    assert said in str(caught.value)
    assert caught.value.call_site.endswith(f"explored_machines.py:{_line(method, words)}")


def test_an_action_that_does_something_else_when_it_is_done_again_is_named() -> None:
    with pytest.raises(NotDeterministicError, match="ask_identity of bad leaves another state behind"):
        testing.explore(machines.bad("ask_identity"))


def test_an_action_that_catches_its_unwinding_is_told_the_line() -> None:
    with pytest.raises(UnwindingCaughtError, match="catches BaseException") as caught:
        testing.explore(machines.bad("swallow"))
    assert caught.value.call_site.endswith(f"explored_machines.py:{_line('swallow', 'except BaseException')}")


def test_what_a_machine_is_in_a_wait_is_not_what_its_finally_makes_of_it() -> None:
    """And what it sends there it sends behind the wait, once."""
    found = testing.explore(
        machines.bad("tidy"), never=[lambda states: getattr(states.get("bad"), "value", 0) == "asking"]
    )
    assert found.counterexample is not None
    whole = testing.explore(machines.bad("tidy"))
    assert whole.complete
    run = testing.simulate(machines.bad("tidy"))
    assert run.machines["bad"].value == "asked"


@pytest.mark.parametrize("protocol", [None, "observer"])
def test_a_state_that_cannot_be_pickled_is_named_and_the_search_not_complete(protocol: str | None) -> None:
    found = testing.explore(machines.bad("keep_lock"), protocol=protocol, most_states=300)
    assert not found.complete
    assert "bad.value (of type lock) cannot be pickled: all states share it" in found.why


@pytest.mark.parametrize("protocol", [None, "observer"])
@pytest.mark.parametrize(
    ("method", "name"), [("change_global", "explored_machines.SEEN"), ("change_class", "Bad.made")]
)
def test_globals_that_an_action_changes_are_named_and_the_search_not_complete(
    method: str, name: str, protocol: str | None
) -> None:
    machines.Bad.made = 0
    found = testing.explore(machines.bad(method), protocol=protocol, most_states=300)
    assert not found.complete
    assert any(why.startswith(f"{name} (changed in Bad.{method} of bad)") for why in found.why), found.why


def test_an_action_that_raises_is_a_counterexample_with_its_line() -> None:
    found = testing.explore(machines.bad("fail"))
    assert found.broken == "no action raises"
    assert f"ValueError: as meant at {machines.__file__}:{_line('fail', 'raise')}" in found.counterexample.sentence  # type: ignore[union-attr]


def test_what_cannot_be_pickled_cannot_be_sent() -> None:
    found = testing.explore(machines.bad("tell"))
    assert "UnpicklableMessageError: bad -> other.nothing" in found.counterexample.sentence  # type: ignore[union-attr]


def test_a_search_that_does_not_end_says_how_far_it_came() -> None:
    found = testing.explore(machines.bank, most_states=4)
    assert (found.ok, found.complete) == (True, False)
    assert "most_states=4" in found.why[0]


def test_machines_that_crash_leave_the_others_waiting() -> None:
    def b_has_60(states: Any) -> bool:
        return "b" in states and bool(states["b"].balance == 55)

    assert testing.explore(machines.bank, eventually=[b_has_60]).ok
    found = testing.explore(machines.bank, eventually=[b_has_60], crashes=1)
    assert not found.ok
    assert any(step in ("b crashes", "a crashes") for step in found.counterexample.steps)  # type: ignore[union-attr]
    replayed = testing.replay(machines.bank, found.counterexample.schedule)  # type: ignore[union-attr]
    assert replayed.steps == found.counterexample.steps  # type: ignore[union-attr]


def test_check_stable_names_the_step_after_which_it_does_not_hold() -> None:
    assert testing.check_stable(detectors.Termination(), machines.bank).ok
    found = testing.check_stable(lambda states: states["a"].balance == 90, machines.bank)
    assert found.counterexample is not None
    assert found.counterexample.steps[-1].startswith("a accepts deposit(5) from b")


def test_a_predicate_that_reads_more_than_it_said_is_told() -> None:
    good = testing.over("a")(lambda states: states["a"].balance > 0)
    assert testing.explore(machines.bank, always=[good]).ok

    @testing.over("a")
    def reads_b(states: Any) -> bool:
        return bool(states["b"].balance > 0)

    with pytest.raises(rs.DetectorError, match=r"reads_b.*reads machine 'b'"):
        testing.explore(machines.bank, always=[reads_b])


def test_a_predicate_that_changes_a_machine_is_told() -> None:
    def changes(states: Any) -> bool:
        states["a"].balance += 1
        return True

    found = testing.explore(machines.bank, always=[changes])
    assert not found.complete
    assert "a predicate or a hook has changed a" in found.why[0]


def test_a_wait_for_the_driver_inside_build_is_followed() -> None:
    read = []

    def build(system: Any) -> None:
        import ray

        a = system.spawn(machines.Account, 7, name="a")
        a.deposit.send(1)
        read.append(ray.get(a.read.remote()))
        a.deposit.send(read[-1])

    found = testing.explore(build, eventually=[detectors.Termination()])
    assert found.ok, str(found)
    assert set(read) == {7, 8}


def test_calls_asked_again_and_again_come_back_to_the_same_states() -> None:
    found = testing.explore(machines.asking_for_ever, most_states=500)
    assert found.complete, str(found)
    assert found.states < 40


def _values(build: Any, machine: str, attribute: str) -> set[str]:
    seen = set()

    def note(states: Any) -> bool:
        seen.add(repr(getattr(states[machine], attribute)))
        return True

    found = testing.explore(build, always=[note], never=[detectors.Deadlock()], eventually=[detectors.Termination()])
    assert found.ok, str(found)
    assert found.complete, found.why
    return seen


def test_whoever_answers_first_is_chosen() -> None:
    assert _values(machines.choosing, "chooser", "got") == {"[]", "[1]", "[2]"}


def test_a_wait_with_a_timeout_ends_in_both_ways() -> None:
    assert _values(machines.hurrying, "chooser", "got") == {"[]", "[1]", "['late']"}


def test_a_machine_that_has_stopped_accepts_nothing() -> None:
    assert _values(machines.leaving, "leaver", "count") == {"0", "1"}


def test_a_machine_that_the_program_stops_accepts_nothing() -> None:
    def build(system: Any) -> None:
        import ray

        a = system.spawn(machines.Account, 1, name="a")
        ray.get(a.read.remote())
        a.deposit.send(1)
        system.stop(a)

    assert _values(build, "a", "balance") == {"1"}


def test_a_reference_may_be_kept_for_a_later_action() -> None:
    assert _values(machines.keeping, "keeper", "value") == {"None", "11"}


def test_an_error_of_a_called_method_is_raised_where_it_is_waited_for() -> None:
    class Caller(rs.SnapshotMixin):
        def __init__(self) -> None:
            self.said = ""

        def call(self, bad: rs.MachineHandle) -> None:
            import ray

            try:
                ray.get(bad.fail.remote())
            except ValueError as error:
                self.said = str(error.cause)  # type: ignore[attr-defined]

    def build(system: Any) -> None:
        bad = system.spawn(machines.Bad, name="bad")
        system.spawn(Caller, name="caller").call.send(bad)

    assert _values(build, "caller", "said") == {"''", "'as meant'"}


def test_a_machine_that_is_waited_for_and_crashes_is_told_of() -> None:
    found = testing.explore(machines.asking, crashes=1)
    assert found.broken == "no action raises"
    assert "HostDiedError: the host of b died" in found.counterexample.sentence  # type: ignore[union-attr]
