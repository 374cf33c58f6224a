"""Each rule of the search, broken once: a test must see it."""

import pytest
import test_explored_systems as tests
import test_exploring_is_exact as exact
import test_judged_states as judged
import test_timers_in_time as times
from making_mutants import Broken, Mutant, mutants

from ray_snapshot.testing import calls, execution, exploring, judging, liveness, space, stage, timing, values
from ray_snapshot.testing.space import Space

DEEPEST_FIRST = """
waiting = [0]
while waiting:
    known = len(self.states)
    if (wrong := self._expand(waiting.pop())) is not None:
        return wrong
    waiting += range(known, len(self.states))
self.expanded = len(self.states)
"""
MUTANTS: Broken = {
    (tests.test_a_join_takes_one_message_of_each_port_in_every_way, ""): {
        "channels are no queues": (
            Space,
            "_accepting: if type(task) is int and self.cells[task][0] == CHANNEL:\n"
            "    queue = self.values[state[task]]\n"
            "    cells[task] = self.id_of(queue[:-1]) if len(queue) > 1 else 0\n"
            "    mails = ((task, queue[-1]),)",
        ),
    },
    (times.test_timers_come_in_the_orders_that_time_allows_and_in_no_others, ""): {
        "timers of a channel come in any order": (timing, "_fired: return bounds"),
        "timers of a channel come as they were set": (timing, "_firsts: yield 0\nreturn"),
        "that a timer came first says nothing of others": (timing, "behind: return tuple( => return bounds or tuple("),
    },
    (times.test_a_timer_that_comes_again_and_again_does_not_put_off_a_longer_one_for_ever, ""): {
        "a timer that came took no time": (timing, "passed: return bounds"),
    },
    (tests.test_calls_asked_again_and_again_come_back_to_the_same_states, ""): {
        "a wait for all is over with the first": (
            Space,
            "_ready: found = self._answers(state, wait)\n"
            "if wait.is_get and found[0] and not all(found):\n"
            "    return 'values', tuple(one or found[0] for one in found)",
        ),
    },
    (tests.test_a_machine_that_the_program_stops_accepts_nothing, ""): {"who stops accepts on": (Space, "_stop")},
    (exact.test_a_call_to_a_machine_that_has_crashed_is_answered, ""): {
        "who is lost answers nobody": (calls.Calls, "refuse"),
    },
    (tests.test_the_clock_is_virtual_and_chance_comes_out_in_every_way, ""): {
        "chance comes out in one way": lambda patch: patch.setattr(space, "MOST_CHANCES", 1),
        "time stands still": (timing.Timing, "_go_on"),
    },
    (tests.test_a_deadlock_is_found_by_its_shortest_way, ""): {
        "the deepest state is looked at first": (exploring.Search, f"_expand_all: {DEEPEST_FIRST}"),
        "all can move": (judging.ByMoving, "_all_can_move: return True"),
    },
    (tests.test_a_run_that_starves_a_message_is_not_fair, ""): {
        "every loop is fair": (liveness, "_tasks: return set(), set(), set()"),
    },
    (tests.test_a_message_to_a_machine_that_waits_again_and_again_does_not_starve, ""): {
        "who waits now and then may starve others": (liveness.Edges, "strong: return frozenset()"),
    },
    (tests.test_a_ring_never_terminates_and_the_lasso_is_the_ring, ""): {
        "no loop is fair": (liveness, "_tasks: return {-1}, set(), set()"),
    },
    (tests.test_an_end_without_the_goal_is_a_counterexample, ""): {
        "ends do not count": (liveness.Edges, "end_state: append(is_end) => append(0)"),
    },
    (tests.test_an_action_that_does_something_else_when_it_is_done_again_is_named, ""): {
        "nothing is compared": (stage.Stage, "_compare"),
    },
    (tests.test_an_action_that_catches_its_unwinding_is_told_the_line, ""): {
        "an action may go on where it waits": (execution.Execution, "check_unwound"),
    },
    (judged.test_sets_in_another_order_and_equal_texts_are_one_state, ""): {
        "sets as they come": (values._Canonical, "reducer_override: return kind, (_sorted(item),) => return NotImplemented"),
        "texts by their identity": (values._Canonical, "memoize: kind not in _UNCHANGING => True"),
    },
    (tests.test_a_predicate_that_reads_more_than_it_said_is_told, ""): {
        "predicates may read all": (judging._Read, "__getitem__: return self.machines[name]"),
    },
}  # fmt: skip


@pytest.mark.parametrize("mutant", mutants(MUTANTS), ids=lambda mutant: mutant.name)
def test_a_mutant_is_seen(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        mutant.breaks(patch)
        try:
            mutant.shown_by()
        except (Exception, pytest.fail.Exception):
            return
    pytest.fail(f"the mutant lives: {mutant.name}")
