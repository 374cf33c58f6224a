"""What a person reads when an app hangs."""

from pathlib import Path
from typing import Any

import pytest

from ray_snapshot.views.report import MOST_LINES, deadlock_report, folded, short_sites, wait_line, wait_lines, wait_tree


def member(machine: str, on: str, **more: Any) -> dict[str, Any]:
    site = f"{Path.cwd()}/bank.py:14"
    return {"machine": machine, "class": "Account", "method": "pay", "call_site": site, "waits_for": [on], **more}


def test_a_report_says_who_waits_where_for_which_call_and_what_to_do_once() -> None:
    advice = f"Make Account.get (called at {Path.cwd()}/bank.py:14) one-way."
    members = [member("a", "b", waits_for_calls=["Account.get"]), member("b", "a")]
    evidence = {"members": members, "stuck_behind": [member("c", "a")], "advice": [advice, advice]}
    assert deadlock_report(evidence, "bank", "s").splitlines() == [
        "ray-snapshot: deadlock in bank (snapshot s): these can never move again",
        "    a in Account.pay (bank.py:14) waits for b (Account.get)",
        "    b in Account.pay (bank.py:14) waits for a",
        "  stuck behind them:",
        "    c in Account.pay (bank.py:14) waits for a",
        "  to do: Make Account.get (called at bank.py:14) one-way.",
    ]


@pytest.mark.parametrize(
    ("folder", "file"),
    [
        ("/opt/venv/lib/site-packages", "ray/util/queue.py"),
        ("/tmp/ray/session_1/runtime_resources/working_dir_files/_ray_pkg_0123456789abcdef", "app.py"),
        ("/tmp/ray/session_1/runtime_resources/py_modules_files/_ray_pkg_0123456789abcdef", "mine/app.py"),
    ],
)
def test_what_was_installed_or_came_with_a_job_is_named_from_its_package_on_and_the_bracket_stays(
    folder: str, file: str
) -> None:
    record = {**member("a", "b"), "call_site": f"{folder}/{file}:321"}
    advice = f"Queue.put ({folder}/{file}:321) waits."
    text = deadlock_report({"members": [record], "advice": [advice]}, "app", "s")
    assert f"({file}:321) waits for b" in text
    assert text.endswith(f"  to do: Queue.put ({file}:321) waits.")


@pytest.mark.parametrize(
    ("folder", "site", "told"),
    [
        ("/", "/tmp/app.py:7", "/tmp/app.py:7"),
        ("/tmp", "/tmp/app.py:7", "app.py:7"),
        ("/tmp", "/data/tmp/app.py:7", "/data/tmp/app.py:7"),
    ],
)
def test_a_place_is_told_alike_by_itself_and_in_a_sentence(
    monkeypatch: pytest.MonkeyPatch, folder: str, site: str, told: str
) -> None:
    monkeypatch.setattr(Path, "cwd", lambda: Path(folder))
    assert short_sites(f"f (called at {site}), ({site})") == f"f (called at {told}), ({told})"


def test_a_long_report_is_cut_and_says_how_many_there_are() -> None:
    members = [member(f"a{number}", f"b{number}") for number in range(20)]
    text = deadlock_report({"members": members, "member_count": 5_000}, "app", "s")
    assert text.splitlines()[-1] == f"    ... and {5_000 - MOST_LINES:,} more"


def test_calls_of_one_machine_that_wait_at_one_place_are_one_line() -> None:
    members = [member("a", "b")] * 1_000 + [member("b", "a")]
    text = deadlock_report({"members": members, "member_count": 2_001}, "app", "s")
    assert text.splitlines()[1:] == [
        "    a in Account.pay (bank.py:14) waits for b (1,000 calls)",
        "    b in Account.pay (bank.py:14) waits for a",
        "    ... and 1,000 more",
    ]


def test_a_machine_without_a_class_is_in_its_method() -> None:
    """A plain task."""
    record = {**member("prepare-0", "a"), "class": "", "method": "prepare"}
    text = deadlock_report({"members": [record]}, "app", "s")
    assert text.splitlines()[-1] == "    prepare-0 in prepare (bank.py:14) waits for a"


def test_a_tree_begins_with_those_that_nobody_waits_for_and_closes_each_cycle() -> None:
    rows = [{"machine": one, "on_machine": on, "satisfied": False} for one, on in (("a", "b"), ("b", "a"), ("c", "a"))]
    rows.append({"machine": "d", "on_machine": "a", "satisfied": True})
    rows.append({"machine": "e", "call_id": "c/0/e/1", "on_machine": None, "text": "waits in open", "satisfied": False})
    assert wait_tree(rows, {("c", None): "c in main"}) == [
        "c in main",
        "  waits for a",
        "    waits for b",
        "      waits for a  <- a cycle: it waits for itself",
        "e",
        "  waits in open",
    ]


def test_in_a_tree_a_call_that_waits_inside_its_actor_says_who_could_wake_it_and_closes_no_cycle() -> None:
    get = {"machine": "q", "call_id": "driver/0/q/1", "alternative": 0, "on_call_id": None, "satisfied": False}
    rows = [{"machine": "driver", "on_machine": "q", "call_id": None, "on_call_id": "driver/0/q/1", "satisfied": False}]
    rows += [{**get, "on_machine": other} for other in ("q", "driver", "a")]
    assert wait_tree(rows, {("q", "driver/0/q/1"): "q in Queue.get"}) == [
        "driver",
        "  waits for q in Queue.get",
        "    waits for a call of a or driver to wake it",
    ]


def test_the_smallest_set_that_cannot_move_stands_first_and_calls_of_one_actor_are_one_line() -> None:
    """A full buffer of which the learner wants other items, and a queue that only those behind it would fill."""
    parked = {"waits_for_later_call": True, "waits_for": ["buffer", "play-0", "play-1", "learner"], "mode": "any"}
    buffer = {"machine": "buffer", "class": "Buffer", "is_cause": True, **parked}
    add, sample = (
        {**buffer, "method": name, "call_site": f"app.py:{line}"} for name, line in (("add", 4), ("sample", 5))
    )
    queue = {**parked, "machine": "queue", "class": "Queue", "method": "get", "waits_for": ["queue", "learner"]}
    learner = {"machine": "learner", "method": "learn", "waits_for": ["buffer"], "waits_for_calls": ["Buffer.sample"]}
    members, callers = (
        [queue, add, add, sample, learner],
        ["nobody is left to call buffer: learner, play-[0-1] are stuck"],
    )
    behind = [{"machine": f"play-{n}", "waits_for": ["buffer"]} for n in range(2)]
    evidence = {
        "members": members,
        "stuck_behind": behind,
        "callers": callers,
        "member_count": 5,
        "stuck_behind_count": 4,
    }
    assert deadlock_report(evidence, "app", "s").splitlines()[1:] == [
        "    buffer: 2 calls of Buffer.add (app.py:4) and 1 of Buffer.sample (app.py:5) wait to be woken",
        "    nobody is left to call buffer: learner, play-[0-1] are stuck",
        "  stuck behind them:",
        "    learner in learn waits for buffer (Buffer.sample)",
        "    play-0 waits for buffer",
        "    play-1 waits for buffer",
        "    queue in Queue.get waits for a call of learner to wake it",
        "    ... and 2 more",
    ]


def _parked(call_id: str, *callers: str) -> list[dict[str, Any]]:
    """A call of `buffer` that waits for a later one."""
    row = {"machine": "buffer", "call_id": call_id, "alternative": 0, "on_call_id": None, "satisfied": False}
    return [{**row, "on_machine": name} for name in ("buffer", *callers)]


def _asking(machine: str, call_id: str) -> dict[str, Any]:
    on = {"on_machine": "buffer", "on_call_id": call_id, "satisfied": False}
    return {"machine": machine, "call_id": f"driver/0/{machine}/1", "alternative": 0, **on}


def test_in_a_tree_who_waits_for_a_call_waits_where_that_call_is() -> None:
    rows = [
        _asking("learner", "l/1"),
        _asking("player", "p/1"),
        *_parked("p/1", "learner"),
        *_parked("l/1#2", "player"),
    ]
    places = {("buffer", "p/1"): "buffer in add", ("buffer", "l/1"): "buffer in sample"}
    assert wait_tree(rows, places) == [
        "learner",
        "  waits for buffer in sample",
        "    waits for a call of player to wake it",
        "player",
        "  waits for buffer in add",
        "    waits for a call of learner to wake it",
    ]


def test_in_a_tree_who_waits_for_a_call_that_has_not_begun_waits_for_those_that_run() -> None:
    rows = [_asking("late", "x/9"), *_parked("p/1", "late"), *_parked("p/2", "late"), *_parked("l/1", "late")]
    places = {
        ("buffer", name): f"buffer in {where}" for name, where in (("p/1", "add"), ("p/2", "add"), ("l/1", "sample"))
    }
    assert wait_tree(rows, places) == [
        "late",
        "  waits for buffer",
        "    buffer in add (2 calls)",
        "      waits for a call of late to wake it",
        "    buffer in sample",
        "      waits for a call of late to wake it",
    ]


def test_in_a_tree_a_call_that_waits_for_its_arguments_is_not_the_one_that_runs() -> None:
    rows = [{**_asking("buffer", "x/1"), "call_id": "d/2", "on_machine": "a"}, _asking("late", "d/2")]
    places, to_begin = {("buffer", "p/1"): "buffer in add"}, {("buffer", "d/2"): "buffer in put, not begun"}
    assert wait_tree(rows, places, to_begin) == ["late", "  waits for buffer in put, not begun", "    waits for a"]


def test_in_a_tree_calls_at_one_place_that_wait_for_each_other_close_no_cycle() -> None:
    row = {"machine": "a", "on_machine": "a", "satisfied": False, "alternative": 0}
    places = {("a", "1"): "a in ask", ("a", "2"): "a in ask"}
    assert wait_tree([{**row, "call_id": "1", "on_call_id": "2"}], places) == ["a in ask"]


def test_a_line_names_a_few_of_many_and_how_many_more_there_are() -> None:
    record = member("a", "b", waits_for=[f"b{number}" for number in range(100)], waits_for_count=1_000)
    assert deadlock_report({"members": [record]}, "app", "s").endswith("waits for b[0-99] and 900 more")


def test_what_holds_only_as_long_as_the_cluster_stays_as_it_is_says_so() -> None:
    said = "this holds as long as no node joins, and nobody outside gives anything back"
    assert said not in deadlock_report({"members": [member("a", "b")]}, "app", "s")
    assert said in deadlock_report({"members": [member("a()", "b", needs="CPU 1")]}, "app", "s")


def test_a_task_that_has_not_begun_is_named_once() -> None:
    record = member("a", "f()", waits_for_calls=["f"])
    assert deadlock_report({"members": [record]}, "app", "s").endswith("(bank.py:14) waits for f()")


def test_a_generator_that_ray_holds_waits_for_its_reader_to_take_an_item() -> None:
    record = {
        "machine": "Pages-0",
        "class": "Pages",
        "method": "pages",
        "call_site": "app.py:7",
        "waits_for": ["driver"],
    }
    assert (
        wait_line({**record, "waits_for_a_reader": True})
        == "Pages-0 in Pages.pages (app.py:7) waits for driver to take an item"
    )


def test_a_record_that_stands_for_many_calls_counts_as_many() -> None:
    record = {"machine": "A-0", "class": "A", "method": "ask", "waits_for": ["B-0"]}
    assert wait_lines([{**record, "count": 3}, record]) == ["    A-0 in A.ask waits for B-0 (4 calls)"]


def test_actors_that_stand_alike_are_one_line_and_the_odd_one_comes_first() -> None:
    waits = [
        {"machine": "driver", "call_id": None, "on_machine": f"rank-{n}", "on_call_id": f"c{n}", "satisfied": False}
        for n in range(4)
    ]
    waits += [
        {"machine": f"rank-{n}", "call_id": f"c{n}", "on_machine": None, "on_call_id": None, "satisfied": False}
        | {"text": f"waits in recv (a.py:7) for {10 + n} s"}
        for n in range(4)
    ]
    places = {(f"rank-{n}", f"c{n}"): f"rank-{n} in Rank.step (a.py:{9 if n == 2 else 7})" for n in range(4)}
    assert wait_tree(waits, {("driver", None): "driver in (a.py:3)", **places}) == [
        "driver in (a.py:3)",
        "  waits for rank-2 in Rank.step (a.py:9)",
        "    waits in recv (a.py:7) for 12 s",
        "  waits for rank-[0-1,3] (3) in Rank.step (a.py:7)",
        "    waits in recv (a.py:7) for up to 13 s",
    ]
    behind = [{"machine": "driver", "call_id": None, "on_machine": f"r-{n}", "satisfied": False} for n in range(4)]
    behind += [{"machine": f"r-{n}", "call_id": None, "on_machine": "b-0", "satisfied": False} for n in range(4)]
    behind += [{"machine": "b-0", "call_id": None, "on_machine": "c", "satisfied": False}]
    assert wait_tree(behind, {("driver", None): "driver in (a.py:3)"}) == [
        "driver in (a.py:3)",
        "  waits for r-[0-3] (4)",
        "    waits for b-0",
        "      waits for c",
    ]
    alike = [{"machine": f"w-{n}", "method": "go", "waits_for": ["a-0"], "call_site": "a.py:1"} for n in range(11)]
    assert wait_lines(alike) == ["    w-[0-10] (11) in go (a.py:1) waits for a-0"]
    parties = [{**alike[0], "machine": f"party-of-{name}"} for name in ("ada", "bob", "cy")]
    assert wait_lines(parties) == ["    party-of-ada, party-of-bob, party-of-cy (3) in go (a.py:1) waits for a-0"]
    odd = [{**one, "call_site": f"b.py:{number}"} for number, one in enumerate(alike)]
    many = [{**alike[0], "machine": f"w-{n}"} for n in range(1_000)]
    told = wait_lines([*odd, *many])
    assert told[-1:] == ["    w-[0-999] (1,000) in go (a.py:1) waits for a-0"]


def test_what_is_below_lines_that_are_one_keeps_its_own_calls_and_whom_it_names() -> None:
    below = ["  waits for b-0 in B.meet (a.py:9) (3 calls)", "    waits for a call of r-[0-2] to wake it"]
    blocks = [[f"r-{n} in R.go (a.py:7) (2 calls)", *below] for n in range(3)]
    assert folded([line for block in blocks for line in block]) == [
        "r-[0-2] (3) in R.go (a.py:7) (2 calls each)",
        *below,
    ]


@pytest.mark.parametrize("names", [("1", "2", "3"), ("p1", "p2", "p3")])
def test_a_name_is_folded_only_where_it_stands_by_itself(names: tuple[str, ...]) -> None:
    members = [member(name, f"http{name}", call_site=f"app{name}.py:{name}") for name in names]
    assert wait_lines(members) == [f"    {wait_line(one)}" for one in members]
