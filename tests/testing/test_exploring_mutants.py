"""Each rule of the search, broken once: a test must see it."""

from collections.abc import Callable
from typing import Any

import pytest
import test_explored_systems as tests
import test_exploring_is_exact as exact
import test_judged_states as judged
import test_timers_in_time as times

from ray_snapshot.testing import (
    calls,
    execution,
    exploring,
    instants,
    judging,
    liveness,
    records,
    space,
    stage,
    timing,
    values,
)
from ray_snapshot.testing.space import Space


def _last_in_first_out(self: Space, state: Any, cells: Any, target: int, task: Any, mails: Any) -> Any:
    if type(task) is int and self.cells[task][0] == records.CHANNEL:
        queue = self.values[state[task]]
        cells[task] = self.id_of(queue[:-1]) if len(queue) > 1 else 0
        mails = ((task, queue[-1]),)
    return _accepting(self, state, cells, target, task, mails)


_accepting = Space._accepting


def _first_set_first(bounds: Any, queue: Any) -> Any:
    return [0]


def _forgets_the_gap(bounds: Any, early: int, late: int, seconds: float, *, is_more: bool) -> Any:
    return None if _behind(bounds, early, late, seconds, is_more=is_more) is None else bounds


_behind = instants.behind


def _any_answer(self: Space, state: Any, wait: Any) -> Any:
    found = _ready(self, state, wait)
    answers = [self.at(state, self.cell(records.ANSWER, ref)) for ref in wait.refs]
    return found or (("values", tuple(one or answers[0] for one in answers)) if wait.is_get and answers[0] else None)


_ready = Space._ready


def _unordered(self: Any, item: Any) -> Any:
    kind = type(item)
    return NotImplemented if kind in (set, frozenset) else _reducer(self, item)


_reducer = values._Canonical.reducer_override


def _deepest_first(self: exploring.Search, why: list[str]) -> Any:
    for move in self.space.start():
        self._arrive(-1, (), move)
    waiting = [0]
    while waiting:
        number = waiting.pop()
        known = len(self.states)
        if (wrong := self._expand(number)) is not None:
            return wrong
        waiting += range(known, len(self.states))
    self.expanded = len(self.states)
    return None


MUTANTS: dict[str, tuple[Any, str, Any, Callable[[], object]]] = {
    "channels are no queues": (
        Space, "_accepting", _last_in_first_out, tests.test_a_join_takes_one_message_of_each_port_in_every_way
    ),
    "timers of a channel come in any order": (
        timing, "_fired", lambda bounds, queue, index: bounds,
        times.test_timers_come_in_the_orders_that_time_allows_and_in_no_others,
    ),
    "timers of a channel come as they were set": (
        timing, "_firsts", _first_set_first, times.test_timers_come_in_the_orders_that_time_allows_and_in_no_others
    ),
    "that a timer came first says nothing of others": (
        timing, "behind", _forgets_the_gap, times.test_timers_come_in_the_orders_that_time_allows_and_in_no_others
    ),
    "a timer that came took no time": (
        timing, "passed", lambda bounds, instant, seconds: bounds,
        times.test_a_timer_that_comes_again_and_again_does_not_put_off_a_longer_one_for_ever,
    ),
    "a wait for all is over with the first": (
        Space, "_ready", _any_answer, tests.test_calls_asked_again_and_again_come_back_to_the_same_states
    ),
    "who stops accepts on": (Space, "_stop", lambda *_: None, tests.test_a_machine_that_the_program_stops_accepts_nothing),
    "who is lost answers nobody": (
        calls.Calls, "refuse", lambda *_: None, exact.test_a_call_to_a_machine_that_has_crashed_is_answered
    ),
    "chance comes out in one way": (
        space, "MOST_CHANCES", 1, tests.test_the_clock_is_virtual_and_chance_comes_out_in_every_way
    ),
    "time stands still": (
        timing.Timing, "_go_on", lambda *_: None, tests.test_the_clock_is_virtual_and_chance_comes_out_in_every_way
    ),
    "the deepest state is looked at first": (
        exploring.Search, "_breadth_first", _deepest_first, tests.test_a_deadlock_is_found_by_its_shortest_way
    ),
    "every loop is fair": (
        liveness, "_tasks", lambda *_: (set(), set(), set()), tests.test_a_run_that_starves_a_message_is_not_fair
    ),
    "who waits now and then may starve others": (
        liveness.Edges, "strong", frozenset(), tests.test_a_message_to_a_machine_that_waits_again_and_again_does_not_starve
    ),
    "no loop is fair": (
        liveness, "_tasks", lambda *_: ({-1}, set(), set()), tests.test_a_ring_never_terminates_and_the_lasso_is_the_ring
    ),
    "ends do not count": (
        liveness.Edges, "end_state", lambda self, is_end: (self.begins.append(len(self.targets)), self.ends.append(0)),
        tests.test_an_end_without_the_goal_is_a_counterexample,
    ),
    "nothing is compared": (
        stage.Stage, "_compare", lambda *_: None, tests.test_an_action_that_does_something_else_when_it_is_done_again_is_named
    ),
    "an action may go on where it waits": (
        execution.Execution, "check_unwound", lambda *_: None, tests.test_an_action_that_catches_its_unwinding_is_told_the_line
    ),
    "sets as they come": (
        values._Canonical, "reducer_override", _unordered, judged.test_sets_in_another_order_and_equal_texts_are_one_state
    ),
    "texts by their identity": (
        values, "_UNCHANGING", frozenset(), judged.test_sets_in_another_order_and_equal_texts_are_one_state
    ),
    "all can move": (judging.ByMoving, "_all_can_move", lambda *_: True, tests.test_a_deadlock_is_found_by_its_shortest_way),
    "predicates may read all": (
        judging._Read, "__getitem__", lambda self, name: self.machines[name],
        tests.test_a_predicate_that_reads_more_than_it_said_is_told,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_seen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    where, attribute, mutant, test = MUTANTS[name]
    with monkeypatch.context() as patch:
        patch.setattr(where, attribute, mutant)
        try:
            test()
        except (Exception, pytest.fail.Exception):
            return
    pytest.fail(f"the mutant lives: {name}")
