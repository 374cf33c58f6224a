"""Do the tests of the protocol for calls work? Each wrong protocol must be caught by a seeded run, for the right reason."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from worlds.calls.central import Step
from worlds.calls.programs import Call, Create, Fail, Get, Kind, Notify, Park, Start, Work
from worlds.calls.schedules import explore, run_calls
from worlds.calls.world import CallWorld
from worlds.mail.every_order import Explored

from ray_snapshot.protocol import call_collector
from ray_snapshot.protocol.acceptance import Acceptance
from ray_snapshot.protocol.call_collector import CallParties, CompletedCallSnapshot, PendingCallSnapshot
from ray_snapshot.protocol.callers import CallersOfCut
from ray_snapshot.protocol.calls import CallLedger, Header, MachineReport
from ray_snapshot.protocol.coordinator import Coordinator
from ray_snapshot.protocol.sent_log import SentLog
from ray_snapshot.protocol.task_collector import TasksOfCut
from ray_snapshot.protocol.tasks import TaskEnds, TaskLog
from ray_snapshot.simulation.mail.oracle import OracleError

MOST_SEEDS = 400
Patch = pytest.MonkeyPatch


@dataclass(frozen=True)
class Mutant:
    """One wrong protocol."""

    breaks: Callable[[Patch], None]
    shown_by: str | Callable[[], Explored]
    """The kind of app that shows it, or a small system in every order."""
    seen_by: str
    """A part of what the failure says."""


def _without_guards(patch: Patch) -> None:
    """Take out what refuses red in white, so that the oracle has to see it."""
    accept, wake = CallLedger.accept, CallLedger.wake

    def accept_all(self: CallLedger, header: Header, method: str, now: float, **more: Any) -> str:
        return accept(self, header._replace(colour=min(header.colour, self.colour)), method, now, **more)

    patch.setattr(CallLedger, "accept", accept_all)
    patch.setattr(CallLedger, "wake", lambda self, wait_id, colour=0: wake(self, wait_id, min(colour, self.colour)))


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


# ---- numbers and colours ------------------------------------------------------------------------------------------------


def lower_numbers_of_calls_are_not_recorded(patch: Patch) -> None:
    """Who records n records n alone (trap 2)."""
    record = CallLedger.record

    def alone(self: CallLedger, *args: Any, **more: Any) -> tuple[int, ...]:
        numbers = record(self, *args, **more)
        for number in numbers[:-1]:
            self.open.pop(number, None)
        return numbers

    patch.setattr(CallLedger, "record", alone)


def red_is_accepted_in_white(patch: Patch) -> None:
    """A red call or reply makes the machine record at its next boundary, and not before (traps 4 and 6)."""
    _without_guards(patch)
    hear = CallLedger.hear
    patch.setattr(CallLedger, "hear", lambda self, colour: hear(self, colour) and False)


def replies_carry_no_colour(patch: Patch) -> None:
    """The reply of a red call looks white, to its caller and to whoever the ref is passed on to (trap 4)."""
    finish = CallLedger.finish
    patch.setattr(CallLedger, "finish", lambda self, call_id, **more: finish(self, call_id, **more) * 0)


def headers_carry_the_colour_of_birth(patch: Patch) -> None:
    """A call has the colour that its sender was born with (trap 6: number, colour and log entry are one step)."""
    submit = CallLedger.submit

    def pale(self: CallLedger, *args: Any, **more: Any) -> Header:
        return submit(self, *args, **more)._replace(colour=self.born)

    patch.setattr(CallLedger, "submit", pale)


# ---- born during the snapshot --------------------------------------------------------------------------------------------


def newcomers_are_not_waited_for(patch: Patch) -> None:
    """The list of machines is fixed when the snapshot starts (trap 3)."""
    patch.setattr(PendingCallSnapshot, "expect", lambda *_: None)
    patch.setattr(PendingCallSnapshot, "unheard", lambda _: set())


def constructors_are_not_logged(patch: Patch) -> None:
    """Creating is no call (trap 3)."""
    create = CallLedger.create

    def silent(self: CallLedger, target: str, *args: Any, **more: Any) -> Header:
        header = create(self, target, *args, **more)
        self.outputs[target].log.clear()
        return header

    patch.setattr(CallLedger, "create", silent)


# ---- numbers with holes --------------------------------------------------------------------------------------------------


def settled_calls_stay_in_the_log(patch: Patch) -> None:
    """Trap 5."""
    patch.setattr(CallLedger, "settle", lambda *_: None)


def the_floor_is_the_last_number(patch: Patch) -> None:
    """The receiver forgets what the sender does not know to be accepted (trap 5)."""
    submit = CallLedger.submit

    def high(self: CallLedger, *args: Any, **more: Any) -> Header:
        header = submit(self, *args, **more)
        return header._replace(floor=header.number)

    patch.setattr(CallLedger, "submit", high)


def the_receiver_remembers_one_number_only(patch: Patch) -> None:
    """It takes its calls to come in order, without holes (trap 5)."""

    def accept(self: Acceptance, number: int, _: int) -> bool:
        self.floor = max(self.floor, number)
        self.accepted.add(number)
        self.accepted.forget_below(self.floor)
        return True

    patch.setattr(Acceptance, "accept", accept)


def a_new_incarnation_is_born_white(patch: Patch) -> None:
    """It may send white what its predecessor would have sent red (trap 5)."""
    register = CallParties.register

    def white(self: CallParties, machine: str, incarnation: int, colour: int, last: int) -> int:
        return register(self, machine, incarnation, colour, 0 if incarnation else last)

    patch.setattr(CallParties, "register", white)


def calls_that_are_retried_are_acknowledged_when_accepted(patch: Patch) -> None:
    """If the target dies then, nobody remembers that Ray will execute them again (trap 5)."""
    accept = CallLedger.accept

    def early(self: CallLedger, header: Header, *args: Any, **more: Any) -> str:
        return accept(self, header._replace(is_retried=False), *args, **more)

    patch.setattr(CallLedger, "accept", early)


def a_restart_ends_calls_that_are_retried(patch: Patch) -> None:
    """Trap 5."""
    patch.setattr(CallLedger, "target_restarted", lambda self, target, incarnation, before: self.target_died(target))


def a_starting_machine_is_passive(patch: Patch) -> None:
    """A new incarnation has its constructor still to run, and nobody else knows (trap 5)."""
    init = CallLedger.__init__

    def started(self: CallLedger, *args: Any, is_starting: bool = False, **more: Any) -> None:
        init(self, *args, **more)

    patch.setattr(CallLedger, "__init__", started)


def machines_that_will_start_again_are_forgotten(patch: Patch) -> None:
    """A snapshot says nothing of a machine that is dead, and about to run its constructor (trap 5)."""
    died = CallParties.died
    patch.setattr(CallParties, "died", lambda self, machine, reason="", is_restarting=False: died(self, machine))


def what_an_earlier_incarnation_answered_counts_as_unanswered(patch: Patch) -> None:
    """Its acknowledgement died with it; the reply is there (trap 5)."""
    patch.setattr(call_collector._Join, "_is_certain", lambda *_: True)


# ---- half-done steps ----------------------------------------------------------------------------------------------------


def a_submit_that_raised_stays_in_the_log(patch: Patch) -> None:
    """Trap 6."""
    patch.setattr(CallLedger, "retract", lambda *_: None)


def states_are_copied_when_they_are_reported(patch: Patch) -> None:
    """The copy holds what red actions did (trap 6)."""
    record, report = CallLedger.record, CallLedger.report

    def later(self: CallLedger, copy_state: Any, **more: Any) -> tuple[int, ...]:
        self.__dict__["copier"] = copy_state
        return record(self, copy_state, **more)

    def now(self: CallLedger, number: int) -> MachineReport:
        found = report(self, number)
        return replace(found, state=self.__dict__["copier"]()) if found.has_state else found

    patch.setattr(CallLedger, "record", later)
    patch.setattr(CallLedger, "report", now)


def recordings_share_the_log(patch: Patch) -> None:
    """Trap 8."""
    report = SentLog.report
    patch.setattr(SentLog, "report", lambda sent, target: replace(report(sent, target), log=sent.log))


# ---- threads --------------------------------------------------------------------------------------------------------------


def red_waits_for_the_other_threads(patch: Patch) -> None:
    """A machine records only when none of its threads is inside an action (trap 7)."""
    record = CallLedger.record
    patch.setattr(
        CallLedger, "record", lambda self, *args, **more: record(self, *args, **more) if self.can_copy else ()
    )


def states_are_copied_while_a_thread_is_inside_an_action(patch: Patch) -> None:
    """Trap 7."""
    patch.setattr(CallLedger, "can_copy", property(lambda _: True))


# ---- waits ----------------------------------------------------------------------------------------------------------------


def nobody_wakes_who_is_parked(patch: Patch) -> None:
    """A local wait has no edge (trap 10)."""
    patch.setattr(CallersOfCut, "may_call", lambda *_: ())


def parked_and_ready_is_parked(patch: Patch) -> None:
    """What it waits for has come, and only the loop has not run (trap 10)."""
    patch.setattr(CallLedger, "ready", lambda *_: None)


def replies_on_their_way_do_not_count(patch: Patch) -> None:
    """A wait whose reply is in flight looks unsatisfied."""
    patch.setattr(call_collector._Join, "_is_answered", lambda *_: False)


def errors_count_as_replies(patch: Patch) -> None:
    """A call that has raised looks as if it had been answered well: the wait for a list that it ends looks stuck."""
    finish = CallLedger.finish
    patch.setattr(CallLedger, "finish", lambda self, call_id, **_: finish(self, call_id))


def a_list_waits_for_all(patch: Patch) -> None:
    """A wait for a list does not end at the first error."""
    patch.setattr(call_collector._Join, "_errors", lambda *_: ())


# ---- the driver leaves ---------------------------------------------------------------------------------------------------


def final_counts_are_thrown_away(patch: Patch) -> None:
    """Trap 11."""
    patch.setattr(CallParties, "left", lambda self, report: self.machines.pop(report.machine, None))


def final_counts_take_all_to_be_accepted(patch: Patch) -> None:
    """Trap 11."""
    leave = CallLedger.leave

    def optimistic(self: CallLedger) -> MachineReport:
        final = leave(self)
        return replace(final, outputs=tuple(replace(out, log={}) for out in final.outputs))

    patch.setattr(CallLedger, "leave", optimistic)


# ---- acknowledgements -----------------------------------------------------------------------------------------------------


def acknowledgements_carry_no_colour(patch: Patch) -> None:
    """A white log forgets what was accepted in red."""
    acknowledge = CallLedger.acknowledge
    patch.setattr(CallLedger, "acknowledge", lambda self, acks: acknowledge(self, acks._replace(colour=0)))


def the_join_does_not_subtract(patch: Patch) -> None:
    """What the receiver had accepted counts as in flight until its acknowledgement comes."""
    patch.setattr(call_collector._Join, "_accepted", lambda *_: ())


# ---- plain tasks ----------------------------------------------------------------------------------------------------------


def tasks_never_have_a_header(patch: Patch) -> None:
    """A white worker runs what a red machine has sent (trap 22)."""
    patch.setattr(CallLedger, "is_ahead", property(lambda _: False))
    patch.setattr(CallLedger, "accept_task", _accepting_all(CallLedger.accept_task))


def _accepting_all(accept_task: Callable[..., str]) -> Callable[..., str]:
    def accepting(self: CallLedger, task: str, method: str, now: float, *, colour: int = 0) -> str:
        return accept_task(self, task, method, now, colour=min(colour, self.colour))

    return accepting


def workers_are_born_as_white_as_a_header(patch: Patch) -> None:
    """A task without a header is as red as every number that all have recorded (trap 22)."""
    patch.setattr(Coordinator, "join", lambda self, *who: self.calls.register(*_all(who), self.last))


def _all(who: tuple[Any, ...]) -> tuple[Any, ...]:
    return (*who, *(0, 0)[len(who) - 1 :])


def senders_drop_tasks_that_are_over_at_once(patch: Patch) -> None:
    """Ray says of a task that it is over, and not how red its worker was (trap 15)."""
    end = TaskLog.end
    patch.setattr(TaskLog, "end", lambda self, tasks, colour, own: end(self, tasks, min(colour, own), own))


def workers_do_not_tell_of_ends(patch: Patch) -> None:
    """A task that is over looks as if no worker had begun it, until its sender drops it (trap 25)."""
    patch.setattr(TaskEnds, "report", lambda _: {})


def workers_forget_ends_that_were_told(patch: Patch) -> None:
    """They were in a log yet (trap 25)."""
    forget = TaskEnds.forget
    patch.setattr(TaskEnds, "forget", lambda self, told, held: forget(self, told, lambda _: False))


def ends_that_may_not_be_the_last_are_forgotten(patch: Patch) -> None:
    """A retried task has raised for the last time, and is in a log yet: it looks as if nobody had begun it (trap 27)."""
    patch.setattr(TasksOfCut, "unsettled", frozenset())


def a_last_try() -> None:
    """A task that raises in each of its runs."""
    run_calls("tasks that fail", 1103)


def ends_behind_the_cut_go_with_their_worker(patch: Patch) -> None:
    """A worker that recorded, ran another task, and left is forgotten when the snapshot is complete (trap 26)."""
    fold = CallParties.fold

    def folding(self: CallParties, completed: CompletedCallSnapshot) -> None:
        machines = {name: replace(one, has_left=True) for name, one in completed.machines.items()}
        fold(self, replace(completed, machines=machines))

    patch.setattr(CallParties, "fold", folding)


def workers_that_idle_are_not_heard_any_more(patch: Patch) -> None:
    """What they had run comes with their final counts (trap 26)."""
    left = CallParties.left
    patch.setattr(CallParties, "left", lambda self, report: left(self, replace(report, ended={})))


def an_error_is_the_end_of_a_task_that_is_retried(patch: Patch) -> None:
    """It is on its way again (trap 27)."""

    def on_the_way(self: TasksOfCut, task: str, _: Any) -> bool:
        return task not in self.running and task not in self.ended

    patch.setattr(TasksOfCut, "_is_on_the_way", on_the_way)


def tasks_on_their_way_wake_nobody(patch: Patch) -> None:
    """Whoever is parked may be called by a task that has not begun."""
    patch.setattr(CallersOfCut, "_tasks_to_begin", lambda _: ())


def a_task_on_its_way() -> Explored:
    """A machine is parked, and the only one that will call it is a task that the driver has sent, and left."""
    kind = Kind({"park": (Park(),), "notify": (Notify(),)}, slots=2)
    functions = {"f": (Call("a", "notify"),)}
    driver = (Call("a", "park"), Start("f"))
    return explore(CallWorld({"K": kind}, {"a": "K"}, driver, functions=functions), never=("acknowledge", "hurry"))


def two_tasks_in_one_worker() -> Explored:
    world = CallWorld({}, {}, (Start("f"), Start("f"), Work()), functions={"f": ()})
    return explore(world, never=("retire",))


MUTANTS = [
    Mutant(tasks_never_have_a_header, "tasks", "it has not been sent"),
    Mutant(workers_are_born_as_white_as_a_header, "tasks", "it has not been sent"),
    Mutant(senders_drop_tasks_that_are_over_at_once, two_tasks_in_one_worker, "the tasks"),
    Mutant(workers_do_not_tell_of_ends, "tasks", "the tasks"),
    Mutant(workers_forget_ends_that_were_told, "tasks", "the tasks"),
    Mutant(ends_behind_the_cut_go_with_their_worker, "tasks", "the tasks"),
    Mutant(workers_that_idle_are_not_heard_any_more, "tasks", "the tasks"),
    Mutant(an_error_is_the_end_of_a_task_that_is_retried, "tasks that fail", "the tasks"),
    Mutant(ends_that_may_not_be_the_last_are_forgotten, a_last_try, "said not to be there, and it has ended"),
    Mutant(tasks_on_their_way_wake_nobody, a_task_on_its_way, "is deadlocked, and then comes"),
    Mutant(lower_numbers_of_calls_are_not_recorded, "plain", "all is quiet, but snapshot"),
    Mutant(red_is_accepted_in_white, "plain", "it has not been sent"),
    Mutant(replies_carry_no_colour, "plain", "have been answered"),
    Mutant(headers_carry_the_colour_of_birth, "plain", "it has not been sent"),
    Mutant(newcomers_are_not_waited_for, "births", "are in flight, and recorded are"),
    Mutant(constructors_are_not_logged, "births", "are in flight, and recorded are"),
    Mutant(settled_calls_stay_in_the_log, "lost", "are in flight, and recorded are"),
    Mutant(the_floor_is_the_last_number, "plain", "are in flight, and recorded are"),
    Mutant(the_receiver_remembers_one_number_only, "plain", "are in flight, and recorded are"),
    Mutant(a_new_incarnation_is_born_white, "restarts", "what runs is"),
    Mutant(calls_that_are_retried_are_acknowledged_when_accepted, "restarts", "are in flight, and recorded are"),
    Mutant(a_restart_ends_calls_that_are_retried, "restarts", "are in flight, and recorded are"),
    Mutant(a_starting_machine_is_passive, a_child_that_starts_again, "all is done, and then comes"),
    Mutant(machines_that_will_start_again_are_forgotten, a_child_that_starts_again, "all is done, and then comes"),
    Mutant(
        what_an_earlier_incarnation_answered_counts_as_unanswered, a_reply_that_outlives_its_machine, "and then comes"
    ),
    Mutant(a_submit_that_raised_stays_in_the_log, "lost", "are in flight, and recorded are"),
    Mutant(states_are_copied_when_they_are_reported, "plain", "the states are"),
    Mutant(recordings_share_the_log, "plain", "are in flight, and recorded are"),
    Mutant(red_waits_for_the_other_threads, "plain", "ProtocolError"),
    Mutant(states_are_copied_while_a_thread_is_inside_an_action, "plain", "inside actions"),
    Mutant(nobody_wakes_who_is_parked, "parked", "is deadlocked, and then comes"),
    Mutant(parked_and_ready_is_parked, one_who_parks, "is deadlocked, and then comes"),
    Mutant(replies_on_their_way_do_not_count, "plain", "said not to be there, and it has ended"),
    Mutant(errors_count_as_replies, one_who_fails, "is deadlocked, and then comes"),
    Mutant(a_list_waits_for_all, "failing", "is deadlocked, and then comes"),
    Mutant(final_counts_are_thrown_away, "plain", "all is quiet, but snapshot"),
    Mutant(final_counts_take_all_to_be_accepted, "plain", "are in flight, and recorded are"),
    Mutant(acknowledgements_carry_no_colour, "plain", "are in flight, and recorded are"),
    Mutant(the_join_does_not_subtract, "plain", "are in flight, and recorded are"),
]


SLOW = ("tasks_on_their_way_wake_nobody",)


@pytest.mark.by_day(6)
@pytest.mark.parametrize(
    "mutant",
    [
        pytest.param(one, id=name, marks=pytest.mark.nightly if name in SLOW else ())
        for one in MUTANTS
        for name in [one.breaks.__name__]
    ],
)
def test_a_wrong_protocol_for_calls_is_caught(mutant: Mutant, monkeypatch: Patch) -> None:
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
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == {
        mutant.breaks.__name__ for mutant in MUTANTS
    }
