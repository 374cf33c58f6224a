"""Do the tests of the protocol for calls work? Each wrong protocol must be caught by a seeded run, for the right reason."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from making_mutants import Broken, Mutant, mutants
from worlds.calls.central import Step
from worlds.calls.programs import Call, Create, Fail, Get, Kind, Notify, Park, Start, Work
from worlds.calls.schedules import explore, run_calls
from worlds.calls.world import CallWorld
from worlds.mail.every_order import Explored

from ray_snapshot.protocol import call_collector
from ray_snapshot.protocol.acceptance import Acceptance
from ray_snapshot.protocol.call_collector import CallParties, PendingCallSnapshot
from ray_snapshot.protocol.callers import CallersOfCut
from ray_snapshot.protocol.calls import CallLedger
from ray_snapshot.protocol.coordinator import Coordinator
from ray_snapshot.protocol.sent_log import SentLog
from ray_snapshot.protocol.task_collector import TasksOfCut
from ray_snapshot.protocol.tasks import TaskEnds, TaskLog
from ray_snapshot.simulation.mail.oracle import OracleError

MOST_SEEDS = 400
JOIN = call_collector._Join


# ---- small systems, in every order ---------------------------------------------------------------------------------------


def _dies_once(name: str) -> Callable[[CallWorld], list[Step]]:
    def extra(world: CallWorld) -> list[Step]:
        machine = world.alive.get(name)
        is_up = machine is not None and machine.is_built and not machine.runs
        return [("die", name)] if is_up and not world.log.faults else []

    return extra


def one_who_parks() -> Explored:
    kind = Kind({"park": (Park(),), "notify": (Notify(),)}, slots=2)
    world = CallWorld({"Kind": kind}, {"a": "Kind"}, (Call("a", "park"), Call("a", "notify")))
    return explore(world, never=("acknowledge",))


def one_who_fails() -> Explored:
    """The first of two calls for which another one waits raises; the second one waits for that one."""
    methods = {"both": (Call("b", "fail"), Call("b", "back"), Get((0, 1))), "end": ()}
    other = {"fail": (Fail(),), "back": (Call("a", "end"), Get((0,)))}
    kinds = {"One": Kind(methods), "Two": Kind(other, slots=2)}
    return explore(CallWorld(kinds, {"a": "One", "b": "Two"}, (Call("a", "both"),)), never=("acknowledge", "hurry"))


def a_child_that_starts_again() -> Explored:
    kind = Kind({"__init__": (Work(),)}, can_restart=True)
    return explore(CallWorld({"Kind": kind}, {}, (Create("kid", "Kind"),)), _dies_once("kid"))


def a_reply_that_outlives_its_machine() -> Explored:
    kind = Kind({"answer": (), "read": (Get((0,)),)}, can_restart=True)
    world = CallWorld({"Kind": kind}, {"a": "Kind"}, (Call("a", "answer"), Call("a", "read", gives=(0,))))
    return explore(world, _dies_once("a"), never=("acknowledge", "hurry"))


def a_last_try() -> None:
    """A task that raises in each of its runs."""
    run_calls("tasks that fail", 1103)


def a_task_on_its_way() -> Explored:
    """A machine is parked, and the only one that will call it is a task that the driver has sent, and left."""
    kind = Kind({"park": (Park(),), "notify": (Notify(),)}, slots=2)
    functions = {"f": (Call("a", "notify"),)}
    driver = (Call("a", "park"), Start("f"))
    return explore(CallWorld({"K": kind}, {"a": "K"}, driver, functions=functions), never=("acknowledge", "hurry"))


def two_tasks_in_one_worker() -> Explored:
    world = CallWorld({}, {}, (Start("f"), Start("f"), Work()), functions={"f": ()})
    return explore(world, never=("retire",))


# ---- what is wrong -------------------------------------------------------------------------------------------------------

NO_GUARDS = (
    (CallLedger, "accept: if colour > self.turning.colour: => if False:"),
    (CallLedger, "wake: if colour > self.colour: => if False:"),
)

UNSENT, IN_FLIGHT, UNEXPECTED = (
    "it has not been sent",
    "are in flight, and recorded are",
    "is deadlocked, and then comes",
)
TASKS, TOO_EARLY, UNFINISHED = "the tasks", "all is done, and then comes", "all is quiet, but snapshot"
ENDED = "said not to be there, and it has ended"

BROKEN: Broken = {
    ("plain", UNFINISHED): {
        # Who records n records n alone (trap 2).
        "lower_numbers_of_calls_are_not_recorded": (CallLedger, "turned: in numbers: => in numbers[-1:]:"),
        # Trap 11.
        "final_counts_are_thrown_away": (CallParties, "left: return self.machines.pop(report.machine, None)"),
    },
    ("plain", UNSENT): {
        # A red call or reply makes the machine record at its next boundary, and not before (traps 4 and 6).
        "red_is_accepted_in_white": [
            *NO_GUARDS,
            (CallLedger, "hear: return bool(colour > self.turning.colour) => return False"),
        ],
        # A call has the colour that its sender was born with (trap 6: number, colour and log entry are one step).
        "headers_carry_the_colour_of_birth": (CallLedger, "submit: number, self.turning.colour, => number, self.born,"),
    },
    ("plain", "have been answered"): {
        # The reply of a red call looks white, to its caller and to whoever the ref is passed on to (trap 4).
        "replies_carry_no_colour": (CallLedger, "finish: return self.turning.colour => return 0"),
    },
    ("births", IN_FLIGHT): {
        # The list of machines is fixed when the snapshot starts (trap 3).
        "newcomers_are_not_waited_for": [
            (PendingCallSnapshot, "expect"),
            (PendingCallSnapshot, "unheard: return set()"),
        ],
        # Creating is no call (trap 3).
        "constructors_are_not_logged": (SentLog, "create: self.log[CONSTRUCTOR] = sent => pass"),
    },
    ("lost", IN_FLIGHT): {
        # Trap 5.
        "settled_calls_stay_in_the_log": (CallLedger, "settle"),
        # Trap 6.
        "a_submit_that_raised_stays_in_the_log": (CallLedger, "retract"),
    },
    ("plain", IN_FLIGHT): {
        # The receiver forgets what the sender does not know to be accepted (trap 5).
        "the_floor_is_the_last_number": (CallLedger, "submit: output.floor, is_retried) => number, is_retried)"),
        # It takes its calls to come in order, without holes (trap 5).
        "the_receiver_remembers_one_number_only": (
            Acceptance,
            "accept: self.floor = max(self.floor, number); self.accepted.add(number)\n"
            "self.accepted.forget_below(self.floor); return True",
        ),
        # Trap 8.
        "recordings_share_the_log": (SentLog, "report: dict(self.log) => self.log"),
        # Trap 11.
        "final_counts_take_all_to_be_accepted": (
            CallLedger,
            "leave: waits=()) => waits=(), outputs=tuple(replace(one.report(to), log={}) for to, one in self.outputs.items()))",
        ),
        # A white log forgets what was accepted in red.
        "acknowledgements_carry_no_colour": (CallLedger, "acknowledge: acks = acks._replace(colour=0)"),
        # What the receiver had accepted counts as in flight until its acknowledgement comes.
        "the_join_does_not_subtract": (JOIN, "_accepted: return ()"),
    },
    ("restarts", "what runs is"): {
        # It may send white what its predecessor would have sent red (trap 5).
        "a_new_incarnation_is_born_white": (CallParties, "register: colour = max(colour, last) => pass"),
    },
    ("restarts", IN_FLIGHT): {
        # If the target dies then, nobody remembers that Ray will execute them again (trap 5).
        "calls_that_are_retried_are_acknowledged_when_accepted": (
            CallLedger,
            "accept: header = header._replace(is_retried=False)",
        ),
        # Trap 5.
        "a_restart_ends_calls_that_are_retried": (CallLedger, "target_restarted: return self.target_died(target)"),
    },
    (a_child_that_starts_again, TOO_EARLY): {
        # A new incarnation has its constructor still to run, and nobody else knows (trap 5).
        "a_starting_machine_is_passive": (CallLedger, "__init__: is_starting = False"),
        # A snapshot says nothing of a machine that is dead, and about to run its constructor (trap 5).
        "machines_that_will_start_again_are_forgotten": (CallParties, "died: is_restarting = False"),
    },
    (a_reply_that_outlives_its_machine, "and then comes"): {
        # Its acknowledgement died with it; the reply is there (trap 5).
        "what_an_earlier_incarnation_answered_counts_as_unanswered": (JOIN, "_is_certain: return True"),
    },
    ("plain", "the states are"): {
        # The copy holds what red actions did (trap 6).
        "states_are_copied_when_they_are_reported": [
            (CallLedger, "record: self.copier = copy_state"),
            (
                CallLedger,
                "report: return self.open[number] => found = self.open[number]\n"
                "    return replace(found, state=self.copier()) if found.has_state else found",
            ),
        ],
    },
    ("plain", "ProtocolError"): {
        # A machine records only when none of its threads is inside an action (trap 7).
        "red_waits_for_the_other_threads": (
            CallLedger,
            "record: if not self.must_record: => if not (self.must_record and self.can_copy):",
        ),
    },
    ("plain", "inside actions"): {
        # Trap 7.
        "states_are_copied_while_a_thread_is_inside_an_action": (CallLedger, "can_copy: return True"),
    },
    # A local wait has no edge (trap 10).
    ("parked", UNEXPECTED): {"nobody_wakes_who_is_parked": (CallersOfCut, "may_call: return ()")},
    # What it waits for has come, and only the loop has not run (trap 10).
    (one_who_parks, UNEXPECTED): {"parked_and_ready_is_parked": (CallLedger, "ready")},
    # A wait whose reply is in flight looks unsatisfied.
    ("plain", ENDED): {"replies_on_their_way_do_not_count": (JOIN, "_is_answered: return False")},
    # A call that has raised looks as if it had been answered well: the wait for a list that it ends looks stuck.
    (one_who_fails, UNEXPECTED): {"errors_count_as_replies": (CallLedger, "finish: is_error = False")},
    # A wait for a list does not end at the first error.
    ("failing", UNEXPECTED): {"a_list_waits_for_all": (JOIN, "_errors: return ()")},
    ("tasks", UNSENT): {
        # A white worker runs what a red machine has sent (trap 22).
        "tasks_never_have_a_header": [
            (CallLedger, "is_ahead: return False"),
            (CallLedger, "accept_task: if colour > self.colour: => if False:"),
        ],
        # A task without a header is as red as every number that all have recorded (trap 22).
        "workers_are_born_as_white_as_a_header": (Coordinator, "join: max(colour, self.settled) => colour"),
    },
    (two_tasks_in_one_worker, TASKS): {
        # Ray says of a task that it is over, and not how red its worker was (trap 15).
        "senders_drop_tasks_that_are_over_at_once": (TaskLog, "end: if colour > own: => if False:"),
    },
    ("tasks", TASKS): {
        # A task that is over looks as if no worker had begun it, until its sender drops it (trap 25).
        "workers_do_not_tell_of_ends": (TaskEnds, "report: return {}"),
        # They were in a log yet (trap 25).
        "workers_forget_ends_that_were_told": (TaskEnds, "forget: if not held(task): => if True:"),
        # A worker that recorded, ran another task, and left is forgotten when the snapshot is complete (trap 26).
        "ends_behind_the_cut_go_with_their_worker": (CallParties, "fold:  and told[name].has_left => "),
        # What they had run comes with their final counts (trap 26).
        "workers_that_idle_are_not_heard_any_more": (CallParties, "left: report = replace(report, ended={})"),
    },
    ("tasks that fail", TASKS): {
        # It is on its way again (trap 27).
        "an_error_is_the_end_of_a_task_that_is_retried": (
            TasksOfCut,
            "_is_on_the_way: return task not in self.running and task not in self.ended",
        ),
    },
    # A retried task has raised for the last time, and is in a log yet: it looks as if nobody had begun it (trap 27).
    (a_last_try, ENDED): {"ends_that_may_not_be_the_last_are_forgotten": (TasksOfCut, "unsettled: return frozenset()")},
    # Whoever is parked may be called by a task that has not begun.
    (a_task_on_its_way, UNEXPECTED): {"tasks_on_their_way_wake_nobody": (CallersOfCut, "_tasks_to_begin: return ()")},
}
MUTANTS = mutants(BROKEN)

SLOW = ("tasks_on_their_way_wake_nobody",)


@pytest.mark.by_day(6)
@pytest.mark.parametrize(
    "mutant",
    [pytest.param(one, id=one.name, marks=pytest.mark.nightly if one.name in SLOW else ()) for one in MUTANTS],
)
def test_a_wrong_protocol_for_calls_is_caught(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant.breaks(monkeypatch)
    if not isinstance(mutant.shown_by, str):
        with pytest.raises(OracleError, match=mutant.seen_by):
            mutant.shown_by()
        return
    told = []
    for seed in range(MOST_SEEDS):
        try:
            run_calls(mutant.shown_by, seed)
        except OracleError as error:
            told.append(str(error))
            if mutant.seen_by in str(error):
                return
    pytest.fail(f"{MOST_SEEDS} seeds did not show {mutant.seen_by!r}; they showed {told[:3]}")


@pytest.mark.nightly
def test_the_protocol_for_calls_itself_passes_the_small_systems_that_catch_mutants() -> None:
    assert a_child_that_starts_again() == Explored(states=2379, ends=1094, snapshots=27)
    assert a_reply_that_outlives_its_machine() == Explored(states=4411, ends=1419, snapshots=54)


def test_the_protocol_for_calls_itself_passes_the_seeds_that_catch_the_mutants() -> None:
    for profile in sorted({mutant.shown_by for mutant in MUTANTS if isinstance(mutant.shown_by, str)}):
        for seed in range(3):
            run_calls(profile, seed)


def test_the_page_of_protocols_names_every_mutant_of_calls() -> None:
    page = (Path(__file__).parents[2] / "docs" / "protocols.md").read_text()
    table = page.split("### Traps of calls")[1].split("\n##")[0]
    rows = [row.split("|")[3] for row in table.splitlines() if row.startswith("| ")]
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == {mutant.name for mutant in MUTANTS}
