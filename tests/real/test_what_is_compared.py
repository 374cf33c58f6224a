"""The harness itself: what counts as a difference, and how a cause is told; nothing runs here."""

import re

import pytest
from catalogue import ALL, PROGRAMS
from comparing import Result, differences_between
from planted_hangs import Answer, judged, marked
from real_page import page
from real_runs import Ended
from shares import KINDS, Share, causes_of


def _ended(lines: list[str], code: int = 0, errors: str = "") -> Ended:
    return Ended(lines, code, errors, 1.0)


def test_every_program_is_in_the_catalogue_and_has_a_name_of_its_own() -> None:
    assert {one.path.name for one in ALL} == {path.name for path in PROGRAMS.glob("*.py")}
    assert len({one.name for one in ALL}) == len(ALL)


def test_the_docstring_of_a_program_names_its_hangs_and_their_reports_and_its_source_marks_them() -> None:
    planted = [(one, hang) for one in ALL for hang in one.hangs]
    assert len({hang.name for _, hang in planted}) == len(planted) == 14
    for program, hang in planted:
        head = program.path.read_text().split('"""')[1]
        assert re.search(rf"^{hang.name} +after {re.escape(hang.after)}: ", head, re.MULTILINE), (
            program.name,
            hang.name,
        )
        assert marked(program.path, hang.name)


def test_an_answer_tells_a_hang_if_it_names_one_of_its_lines_and_every_part_of_its_cause() -> None:
    program = next(one for one in ALL if one.name == "rl_engines")
    hang = next(one for one in program.hangs if one.name == "lock")
    place = marked(program.path, "lock")[1]
    parts = "Trainer-0 waits for Lock-0 (Lock.acquire); SampleMaker-0 waits, too"
    answer = judged(program, hang, 3, f"deadlock: ({place}) {parts}")
    assert (answer.is_told, answer.grade, answer.place) == (True, "proven", place)
    assert judged(program, hang, 3, f"suspected: ({place}) {parts}").grade == "suspected"
    assert judged(program, hang, 4, f"({place}0) {parts}").missing == ["its line"]
    assert judged(program, hang, 4, place).missing == [*hang.cause]
    assert judged(program, hang, 0, "No deadlock.").grade == "none"


@pytest.mark.contract
def test_lines_in_another_order_another_code_and_a_fault_of_ours_are_differences() -> None:
    plain = _ended(["app: 1", "app: 2"])
    assert differences_between(plain, plain) == []
    assert "in this order" in differences_between(plain, _ended(["app: 2", "app: 1"]))[0]
    assert "exit code 3" in differences_between(plain, _ended(plain.lines, 3))[0]
    said = "ray-snapshot: a fault of ours: KeyError"
    assert differences_between(plain, _ended(plain.lines, 0, said)) == [f"said: {said}"]


@pytest.mark.contract
def test_a_deadlock_that_is_reported_of_a_program_that_ends_is_a_difference() -> None:
    plain, said = _ended([]), "ray-snapshot: deadlock in app (snapshot 1): these can never move again"
    assert differences_between(plain, _ended([], 0, said)) == [f"said: {said}"]


@pytest.mark.contract
def test_of_the_exception_that_a_user_is_shown_only_what_differs_in_any_two_runs_is_left_out() -> None:
    text = """INFO worker.py
Traceback (most recent call last):
  File "/a/b/app.py", line {line}, in read
ray.exceptions.RayTaskError(KeyError): ray::Ledger.read() (pid={pid}, ip=192.0.2.1, actor_id={id}, at 0x7f{pid})
KeyError: {key}
"""
    one = _ended([], 1, text.format(line=3, pid=12, id="ab" * 16, key="b"))
    two = _ended([], 1, text.format(line=4, pid=77, id="cd" * 16, key="b"))
    other = _ended([], 1, text.format(line=3, pid=12, id="ab" * 16, key="c"))
    assert differences_between(one, two) == []
    assert "KeyError: c" in differences_between(one, other)[0]


def test_a_cause_is_told_by_its_kind() -> None:
    depends_on = {
        "thread worker-3 (pool.py:7) of Pool-12": "thread",
        "timers and sockets on the loop of SERVE_PROXY_ACTOR": "loop",
        "a timer and the handler of SIGCHLD of driver": "signal",
        "plain tasks that hold handles or refs": "plain task",
        "what Late-0 was starting": "starting",
        "who called Pool-1 without a header": "no header",
        "Patient, which is sent to but not recorded": "not recorded",
        "actor Patient (0a1b2c3d)": "not recorded",
        "A-0 died while the snapshot was open": "dead",
        "what get of B-0 waits for (app.py:11, since 10:07:31)": "not observed wait",
        "what ends the wait of driver for an object that no watched call gives": "object of no call",
        "what ends the wait of driver in queue.Queue.get": "wait in Python",
        "what keeps Group-0 from beginning": "delayed",
        "Trainer-0 needs CPU 1, and A-1 of job 02 has it": "room",
        "another one": "another one",
    }
    assert causes_of({"depends_on": list(depends_on)}, "") == list(depends_on.values())
    assert {*depends_on.values()} - {*KINDS} == {"another one"}
    told = "Termination cannot be told: the snapshot was aborted (Account-0 did not record in 10 s)."
    assert causes_of({}, told) == ["aborted"]


TOLD = Answer("lock", "o/r#1", [], "proven", "two.py:3", "")
NOT_TOLD = Answer("died", "o/r#2", ["A|B"], "none", "", "")


def test_the_page_has_a_row_for_each_program_and_names_those_that_differ() -> None:
    shares = {"deadlock": Share(4, 3, 0, {"thread": 1}), "termination": Share(4, 4, 0, {})}
    results = [
        Result("one", "tasks", [], 10.5, 11.0, shares, "2026-11-29, load 2"),
        Result("two", "queues", ["run: exit"], 1.0, 2.0, shares, "2026-11-29, load 9", (TOLD, NOT_TOLD)),
    ]
    text = page(results, "a computer")
    assert "| one | tasks | yes | 10.5 | 11.0 | 1.05 | 4 | 75 | 100 | d: thread 1 | 2026-11-29, load 2 |" in text
    assert "| thread | a thread of the program or of a library that may act | 2 |" in text
    assert (
        "| two | lock | o/r#1 | yes | proven | two.py:3 |\n| two | died | o/r#2 | **no**: not A/B | none | - |" in text
    )
    assert Result.from_json(results[1].as_json()).hangs == (TOLD, NOT_TOLD)
    assert "2 programs; 1 differ: two." in text
    assert "the largest ratio of those is 1.05 (one)" in text
