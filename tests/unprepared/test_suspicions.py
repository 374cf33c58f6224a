"""From two looks at made-up records to a verdict: what is suspected, what is not, and what cannot be told. No Ray."""

from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from limited import limit
from looks import IN_GET, IN_GET_FOR_A_WHILE, JOB, LACKS_ARGUMENTS, LACKS_ROOM, LOOP, NODE, QUEUED, RUNS, Made, user

from ray_snapshot.errors import ClusterError
from ray_snapshot.instrument.deaths import KILLED
from ray_snapshot.unprepared import looking, report
from ray_snapshot.unprepared.graph import Graph
from ray_snapshot.unprepared.judging import judge
from ray_snapshot.unprepared.looking import exit_code
from ray_snapshot.unprepared.records import Dead, Task, driver_of


def ring(count: int = 2) -> tuple[Made, list[str]]:
    """So many actors, each of which runs a call that waits for one in the queue of the next."""
    made = Made()
    actors = [made.actor() for _ in range(count)]
    calls = [made.call(actor, made.driver) for actor in actors]
    for place, call in enumerate(calls):
        made.call(actors[(place + 1) % count], call, QUEUED, "A.value")
    return made, calls


def told(made: Made) -> str:
    return "\n".join(report.lines(report.row(made.judged(), made.look(), "a:1", 3.0), None))


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_actors_that_wait_for_one_another_are_suspected(count: int) -> None:
    made, calls = ring(count)
    found = made.judged()
    assert (found.verdict, set(found.core), found.behind) == ("suspected", set(calls), (made.driver,))


def test_the_report_names_places_queues_and_what_to_do() -> None:
    made, _ = ring()
    assert told(made).splitlines() == [
        "job 01000000 (app.py, process 1): suspected: these have not moved for 90 s, and it seems that they cannot"
        " (two looks 3 s apart)",
        "    A-0 in A.go (/home/u/app.py:7) waits for A-1 (A.value)",
        "    A-1 in A.go (/home/u/app.py:7) waits for A-0 (A.value)",
        "  behind them:",
        "    driver in (the program) (/home/u/app.py:7) waits for A-[0-1] (A.go)",
        "  at the actors:",
        "    A-0 (process 101) runs A.go for 90 s; 1 call waits for it",
        "    A-1 (process 102) runs A.go for 90 s; 1 call waits for it",
        "  to do: start it with `ray-snapshot run app.py` to know for sure",
    ]


def test_a_thousand_actors_that_stand_alike_are_a_line_of_each_list() -> None:
    made = Made(has={"CPU": 1_000.0})
    lead = made.actor("Lead")
    made.call(lead, made.driver, method="Lead.fit")
    for _ in range(1_000):
        call = made.call(actor := made.actor(holds={"CPU": 1.0}), made.driver)
        made.process(made.actors[actor].pid, user("main"), user("go"), IN_GET)
        made.call(lead, call, QUEUED, "Lead.push")
        made.task(call, LACKS_ROOM, "prepare", needs={"CPU": 1.0})
    made.call(actor, next(iter(made.tasks)), QUEUED, "A.ask")
    text = told(made)
    made.has = {"CPU": 2_000.0}
    assert "prepare() of A-[0-999] (1,000) has waited for 90 s: it needs CPU 1, and" in told(made)
    assert len(text.splitlines()) < 16
    for line in (
        "A-[0-999] each hold CPU 1 of 1000",
        "A-[0-999] (1,000) in A.go (/home/u/app.py:7) waits for Lead-0 (Lead.push), prepare()",
        "waits for A-[0-999] (A.go), Lead-0 (Lead.fit)",
        "A-[0-998] (999) runs A.go for 90 s; no call waits",
        "A-[0-999] (1,000): go (/home/u/app.py:7) < main (/home/u/app.py:7)",
    ):
        assert line in text


@pytest.mark.parametrize("changed", ["state", "since_s", "attempt"])
def test_whatever_has_moved_between_the_looks_clears_its_ring(changed: str) -> None:
    made, calls = ring()
    before = made.look(97.0)
    task = before.tasks[calls[1]]
    moved = replace(task, **{changed: getattr(task, changed) + 1})
    before = replace(before, tasks={**before.tasks, calls[1]: moved})
    assert made.judged(before).verdict == "none"


def test_a_call_that_has_ended_or_begun_meanwhile_clears_who_has_started_it() -> None:
    made, calls = ring()
    gone = Task("e" * 16 + "f" * 24 + JOB, 0, JOB, "task", "f", calls[0], "", RUNS, 10.0)
    before = made.look(97.0)
    with_another = replace(before, tasks={**before.tasks, gone.key: gone})
    assert made.judged(with_another).verdict == "none"
    (found,) = judge(before, replace(with_another, at_s=100.0), {NODE: made.told}, [JOB])
    assert found.verdict == "none"


@pytest.mark.parametrize(
    ("frames", "verdict"),
    [
        ([user("go"), IN_GET_FOR_A_WHILE], "none"),
        ([user("go", "time.sleep(60)")], "none"),
        ([user("go", "while busy: pass")], "none"),
        ([user("go", "self.lock.acquire()")], "unknown"),
        ([user("go"), ["get_next", "/x/site-packages/ray/_private/x.py", 1, "", None]], "unknown"),
        ([user("go"), IN_GET, {"cpu_s": 1.0}], "none"),
    ],
)
def test_a_stack_that_is_in_no_endless_wait_of_rays_or_a_process_that_computes_suspects_nobody(
    frames: list[Any], verdict: str
) -> None:
    made, _ = ring()
    more = frames[-1] if isinstance(frames[-1], dict) else {}
    made.process(102, *(one for one in frames if one is not more), **more)
    assert made.judged().verdict == verdict


@pytest.mark.parametrize(
    ("switches", "sleeps", "verdict"),
    [(120, False, "none"), (3, False, "suspected"), (3, True, "none"), (0, False, "unknown")],
    ids=["polls", "ticks", "sleeps a second", "stands still"],
)
def test_without_a_stack_the_kernel_tells_what_its_thread_does(switches: int, sleeps: bool, verdict: str) -> None:
    made, _ = ring()
    for pid in (101, 102):
        made.process(pid, switches=[["ray::A.go", switches, True, sleeps], ["worker.io", 50, False, True]])
        del made.told[pid]["threads"]
    found = made.judged()
    assert found.verdict == verdict
    assert ("time-out look the same" in str(found.reasons)) == (verdict == "suspected")


def test_a_process_that_cannot_be_looked_at_makes_it_unknown_and_says_which() -> None:
    made, _ = ring()
    del made.told[102]
    found = made.judged()
    assert found.verdict == "unknown"
    assert "not known: A-1: its process could not be looked at" in told(made)


def test_a_threaded_actor_with_one_call_that_moves_is_not_used_up() -> None:
    """What its calls start has the actor as its parent, not the call."""
    made = Made()
    actor = made.actor()
    itself = "f" * 16 + actor
    made.call(actor, made.driver)
    other = made.call(actor, made.driver, method="A.other")
    made.call(actor, itself, QUEUED)
    stack = made.told[101]["threads"][0]
    named = {"name": "t", "is_active": False}
    loop = ["actor_method_executor", "/x/site-packages/ray/_private/function_manager.py", 1, "", None]
    threads = [named | {"frames": [IN_GET, user(method), loop]} for method in ("go", "other")]
    made.told[101]["threads"] = [*threads, stack | {"frames": stack["frames"][-1:]}]
    assert made.judged().verdict == "suspected"
    made.tasks[other] = replace(made.tasks[other], since_s=99.0)
    before = replace(made.look(97.0), tasks={**made.look().tasks, other: replace(made.tasks[other], since_s=10.0)})
    assert made.judged(before).verdict == "none"


@pytest.mark.parametrize(
    ("frames", "verdict"),
    [
        ([IN_GET, user("go")], "suspected"),
        ([IN_GET_FOR_A_WHILE, user("go")], "none"),
        ([user("go", "while busy: pass")], "none"),
        ([["select", "/usr/lib/python3.11/selectors.py", 1, "", None]], "unknown"),
    ],
    ids=["blocks its loop", "for a while", "computes", "awaits"],
)
def test_the_loop_of_an_async_actor_shows_a_coroutine_that_blocks_it(frames: list[list[object]], verdict: str) -> None:
    """Nothing of Ray's is below what runs on that thread; other calls of the actor stand there, too."""
    made, calls = ring()
    for actor, parent in zip(made.actors, reversed(calls), strict=True):
        made.call(actor, parent, method="A.value")
    run = ["run", "/usr/lib/python3.11/threading.py", 1, "", None]
    for pid in (101, 102):
        main = {"name": "MainThread", "is_active": False, "frames": [LOOP]}
        made.told[pid]["threads"] = [main, main | {"name": "AsyncIO Thread: default", "frames": [*frames, run]}]
    assert made.judged().verdict == verdict


def test_a_cluster_that_ends_between_the_looks_is_an_error_and_is_not_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made, _ = ring()
    looks = iter([made.look(97.0)])
    monkeypatch.setattr(looking.clusters, "authorized", lambda _: nullcontext())
    monkeypatch.setattr(looking, "Records", lambda *_: SimpleNamespace(look=lambda: next(looks)))
    monkeypatch.setattr(looking, "_examined", lambda *_: {NODE: made.told})
    limit(monkeypatch, apart_s=0.0)
    with pytest.raises(ClusterError, match=r"the Ray cluster at 127.0.0.1:1 has ended while it was looked at"):
        looking.look_twice("127.0.0.1:1", None, (), lambda _: nullcontext())


def test_a_call_in_the_queue_of_an_actor_that_runs_nothing_is_on_its_way() -> None:
    made = Made()
    one, two = made.actor(), made.actor()
    made.call(two, made.call(one, made.driver), QUEUED)
    assert made.judged().verdict == "none"


def test_who_waits_for_one_of_two_and_the_other_moves_is_not_stuck() -> None:
    made, calls = ring()
    helper = made.task(calls[0])
    made.process(made.tasks[helper].pid, user("f", "time.sleep(9)"))
    assert made.judged().verdict == "none"


def test_an_idle_actor_that_waits_for_mail_is_not_stuck_if_nobody_waits_for_it() -> None:
    made = Made()
    made.call(made.actor(), made.driver)
    made.process(101, ["main_loop", "/x/site-packages/ray/_private/worker.py", 9, "", None])
    made.process(1, user("main", "time.sleep(9)"))
    assert made.judged().verdict == "none"
    made.process(1, user("main"), IN_GET)
    assert made.judged().verdict == "unknown"


def test_a_ref_that_was_given_may_be_of_any_task_that_moves() -> None:
    """It is suspected only if none does."""
    made = Made()
    one, two = made.actor(), made.actor()
    first = made.call(one, made.driver)
    made.call(two, first, QUEUED)
    made.call(one, made.driver, QUEUED)
    made.call(two, made.driver)
    assert made.judged().verdict == "suspected"
    other = made.task(made.driver)
    made.process(made.tasks[other].pid, user("f", "time.sleep(9)"))
    assert made.judged().verdict == "none"


def test_what_waits_only_for_arguments_of_which_nothing_is_recorded_is_unknown() -> None:
    made = Made()
    for _ in range(2):
        made.task(made.driver, LACKS_ARGUMENTS)
    assert made.judged().verdict == "unknown"


# ---- room ---------------------------------------------------------------------------------------------------------------


def test_an_actor_that_holds_what_its_task_needs_is_suspected_and_enough_that_nobody_keeps_is_only_a_delay() -> None:
    made = Made()
    call = made.call(made.actor(holds={"CPU": 2.0}), made.driver)
    need = made.task(call, LACKS_ROOM, "prepare", needs={"CPU": 1.0})
    assert set(made.judged().core) == {call, need}
    assert "prepare(), not begun, needs CPU 1, and A-0 holds CPU 2 of 2" in told(made)
    made.has = {"CPU": 3.0}
    assert made.judged().verdict == "none"


def test_a_plain_task_gives_back_its_cpu_while_it_waits_and_nothing_else() -> None:
    for name, verdict in (("CPU", "none"), ("tool", "suspected")):
        made = Made(has={name: 1.0})
        outer = made.task(made.driver, needs={name: 1.0})
        made.task(outer, LACKS_ROOM, needs={name: 1.0})
        assert made.judged().verdict == verdict
        unless = f"holds {name} 1 of 1, but for its CPU while it waits in ray.get"
        assert (unless in told(made)) == (name == "CPU")


def test_actors_at_rest_keep_their_room_once_their_program_is_stuck_for_long_enough() -> None:
    made = Made(has={"CPU": 1.0})
    made.actor(holds={"CPU": 1.0})
    late = made.actor(state=1, holds={"CPU": 1.0})
    made.tasks["f" * 16 + late] = Task(
        "f" * 16 + late, 0, JOB, "creation", "A.__init__", made.driver, late, LACKS_ROOM, 10.0, {"CPU": 1.0}
    )
    made.call(late, made.driver, LACKS_ROOM)
    assert made.judged().verdict == "suspected"
    key = "f" * 16 + late
    made.tasks[key] = replace(made.tasks[key], since_s=95.0)
    assert "ask again in 16 s" in str(made.judged().reasons)
    made.process(1, user("main", "time.sleep(9)"))
    assert made.judged().verdict == "none"


def test_actors_at_rest_are_a_doubt_only_for_the_program_that_needs_what_they_hold() -> None:
    made, other = Made(has={"CPU": 1.0}), "02000000"
    made.actor(holds={"CPU": 1.0})
    resting = made.task(made.driver, LACKS_ROOM, "one", needs={"CPU": 1.0})
    elsewhere = made.task(driver_of(other), LACKS_ROOM, "two", needs={"GPU": 1.0})
    look = made.look()
    tasks = {**look.tasks, elsewhere: replace(look.tasks[elsewhere], job=other)}
    look = replace(look, tasks=tasks, jobs={**look.jobs, other: replace(look.jobs[JOB], key=other)})
    found = Graph(look).stuck()
    assert {resting, elsewhere} <= found.core
    assert found.rest_on_idle == {resting}


def test_room_that_an_actor_of_an_ended_program_holds_makes_it_unknown_and_the_actor_is_named_with_its_job() -> None:
    made, other = Made(), "02000000"
    made.actor("Cache", holds={"CPU": 2.0})
    key, actor = made.actors.popitem()
    made.actors[key] = replace(actor, job=other, name="cache-0", is_detached=True)
    need = made.task(made.driver, LACKS_ROOM, "train", needs={"CPU": 1.0})
    assert made.judged().verdict == "unknown"
    assert (
        "has waited for 90 s: it needs CPU 1, and cache-0 (a detached Cache of job 02000000) holds CPU 2 of 2"
        in told(made)
    )
    made.tasks[need] = replace(made.tasks[need], since_s=95.0)
    assert made.judged().verdict == "none", "it has waited for 5 s"
    made.tasks[need] = replace(made.tasks[need], since_s=10.0)
    made.has = {"CPU": 3.0}
    assert made.judged().verdict == "none"


def test_of_what_is_started_again_and_again_it_is_said_in_which_call_and_how_it_died() -> None:
    made = Made()
    key = made.actor("Model", restarts=41, changed_ms=99_000)
    call = made.call(key, made.driver, method="Model.load")
    made.call(key, made.driver, QUEUED, method="Model.ask")
    made.process(made.actors[key].pid, user("load"))
    made.tasks[call] = replace(made.tasks[call], attempt=41)
    made.more = {"exits": {made.actors[key].pid: "exit code 3"}}
    assert "41 times in 100 s, each time inside Model.load (/home/u/app.py:7), exit code 3" in told(made)
    made.more = {}
    made.tasks = {name: replace(task, state=QUEUED, attempt=41) for name, task in made.tasks.items()}
    assert told(made).count("and has still to do Model.ask, Model.load") == 1, "either may be the one"


def test_the_dead_are_named_in_the_order_of_birth_and_those_that_were_meant_to_die_only_in_a_hang() -> None:
    made = Made()
    made.actor("Embedder")
    made.actors = {key: replace(one, began_ms=5) for key, one in made.actors.items()}
    (dead, killed, left) = (
        Dead(f"{number:024x}{JOB}", JOB, "Embedder", "", number, 1_000 * number, cause, is_meant)
        for number, cause, is_meant in ((2, "exit code 3", False), (3, KILLED, True), (4, "by exit_actor", True))
    )
    made.more = {"dead": {one.key: one for one in (killed, dead, left)}}
    healthy = report.row(made.judged(), made.look(), "", 3.0)
    assert [text[: text.index(" at ")] for text in healthy["died"]] == ["Embedder-0 died"]
    (living,) = made.actors
    made.call(living, made.call(living, made.driver), QUEUED, "Embedder.value")
    hangs = report.row(made.judged(), made.look(), "", 3.0)
    assert [text[: text.index(" at ")] for text in hangs["died"]] == ["Embedder-1 died", "Embedder-0 died"]
    assert hangs["members"][0]["machine"] == "Embedder-3"


def test_an_actor_that_is_started_again_and_again_is_named_and_makes_it_unknown() -> None:
    made = Made()
    key = made.actor("Model")
    made.call(key, made.driver, method="Model.load")
    made.process(made.actors[key].pid, user("load"))
    assert made.judged().verdict == "none"
    often = replace(made.actors[key], restarts=41, began_ms=10_000, changed_ms=99_000)
    made.actors[key] = often
    assert made.judged().verdict == "unknown"
    assert "Model-0 has been restarted 41 times in 90 s, and has still to do Model.load" in told(made)
    told_of = dict(made.told)
    made.process(often.pid, user("load", "lock.acquire()"))
    assert "has been restarted 41 times" in told(made), "whatever else is not known"
    made.told = told_of
    for rarely in (replace(often, restarts=2), replace(often, changed_ms=20_000)):
        made.actors[key] = rarely
        assert made.judged().verdict == "none"


def test_a_demand_that_no_node_can_meet_is_an_alarm_though_the_driver_still_acts() -> None:
    made = Made()
    made.process(1, user("main", "time.sleep(9)"))
    made.task(made.driver, LACKS_ROOM, "big", needs={"CPU": 4.0})
    row = report.row(made.judged(), made.look(), "", 3.0)
    assert (row["verdict"], exit_code([row])) == ("none", 3)
    assert "it waits for what no node can ever give" in told(made)
    for more in ({"grows": True}, {"grows": None}):
        made.more = more
        assert exit_code([report.row(made.judged(), made.look(), "", 3.0)]) == 0, "a node may join"


def test_what_no_node_has_is_suspected_if_somebody_waits_for_it_and_no_autoscaler_may_add_it() -> None:
    made = Made()
    made.task(made.driver, LACKS_ROOM, needs={"GPU": 1.0})
    assert made.judged().verdict == "suspected"
    assert "no node has more than GPU 0" in told(made)
    for grows in (True, None):
        made.more = {"grows": grows}
        assert made.judged().verdict == "unknown"
    made.more = {}
    made.process(1, user("main", "time.sleep(9)"))
    assert made.judged().verdict == "none"


def test_owners_of_groups_that_wait_for_another_are_suspected() -> None:
    made = Made()
    made.group(True, {"CPU": 2.0})
    wanted = made.group(False, {"CPU": 1.0})
    assert set(made.judged().core) == {wanted, made.driver}
    made.has = {"CPU": 3.0}
    assert made.judged().verdict == "none"


# ---- what Ray does not tell ----------------------------------------------------------------------------------------------


def test_a_living_actor_without_any_record_makes_it_unknown_and_a_suspicion_stays_one() -> None:
    made = Made()
    silent = made.actor("Proxy")
    made.more = {"recorded": frozenset([JOB])}
    assert made.judged().verdict == "unknown"
    assert "a living actor has no record at all (Proxy)" in told(made)
    made, _ = ring()
    made.more = {"recorded": frozenset([JOB, *made.actors]) - {silent}}
    assert made.judged().verdict == "suspected"


def test_a_program_without_records_is_unknown_and_the_setting_is_named() -> None:
    made = Made(is_recorded=False)
    assert made.judged().verdict == "unknown"
    assert "RAY_enable_task_events_to_dashboard_head" in told(made)


def test_near_the_stores_maximum_records_may_be_incomplete() -> None:
    made = Made(more={"count": 96_000, "maximum": 100_000})
    assert made.judged().verdict == "unknown"
    assert "records may be incomplete: the control store has 96,000" in told(made)
    made.more["count"] = 94_000
    assert made.judged().verdict == "none"


def test_a_driver_that_is_gone_is_said_to_be() -> None:
    made, calls = ring()
    look = made.look()
    jobs = {JOB: replace(look.jobs[JOB], is_dead=True)}
    (found,) = judge(replace(look, at_s=97.0, jobs=jobs), replace(look, jobs=jobs), {NODE: made.told}, [JOB])
    assert (found.verdict, set(found.core)) == ("suspected", set(calls))
    assert "driver gone" in str(found.reasons)


def test_a_hundred_thousand_tasks_are_few_nodes() -> None:
    made, calls = ring()
    actors = list(made.actors)
    for number in range(100_000):
        made.call(actors[number % 2], calls[1 - number % 2], QUEUED, "A.value")
    graph = Graph(made.look())
    assert len(graph.places) + len(graph.parties) + len(graph.needs) < 20
    assert set(made.judged().core) == set(calls)


def test_a_constructor_that_asks_its_maker_is_suspected_though_ray_records_no_node_for_it() -> None:
    made = Made()
    maker = made.actor()
    making = made.call(maker, made.driver, RUNS, "Maker.make")
    child = made.actor("Child", state=1)
    pid = made.actors[child].pid
    created = made.task(making, RUNS, "Child.__init__", kind="creation", actor=child, pid=pid, node="")
    made.process(pid, user("__init__"), IN_GET)
    made.call(child, making, QUEUED, "Child.value")
    made.call(maker, created, QUEUED, "Maker.value")
    found = made.judged()
    assert found.verdict == "suspected", told(made)
    assert {making, created} <= set(found.core)
