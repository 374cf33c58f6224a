"""The harness itself: what counts as a difference, and how a cause is told; nothing runs here."""

from __future__ import annotations

import pytest
from catalogue import ALL, PROGRAMS
from comparing import Result, differences_between
from real_page import page
from real_runs import Ended
from shares import Share, causes_of


def _ended(lines: list[str], code: int = 0, errors: str = "") -> Ended:
    return Ended(lines, code, errors, 1.0)


def test_every_program_is_in_the_catalogue_and_has_a_name_of_its_own() -> None:
    assert {one.path.name for one in ALL} == {path.name for path in PROGRAMS.glob("*.py")}
    assert len({one.name for one in ALL}) == len(ALL)


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


@pytest.mark.contract
def test_a_cause_is_told_without_what_tells_one_actor_from_the_next() -> None:
    evidence = {"depends_on": ["thread worker-3 of Pool-12", "plain tasks that hold handles or refs"]}
    assert causes_of(evidence, "") == ["a thread of Pool (worker)", "plain tasks that hold handles or refs"]
    told = "Termination cannot be told: the snapshot was aborted (Account-0 did not record in 10 s)."
    assert causes_of({}, told) == ["the snapshot was aborted"]


@pytest.mark.contract
def test_the_page_has_a_row_for_each_program_and_names_those_that_differ() -> None:
    shares = {"deadlock": Share(4, 3, 0, {"plain tasks": 1}), "termination": Share(4, 4, 0, {})}
    results = [Result("one", "tasks", [], 10.5, 11.0, shares), Result("two", "queues", ["run: exit"], 1.0, 2.0, shares)]
    text = page(results, "a computer")
    assert "| one | tasks | yes | 10.5 | 11.0 | 1.05 | 4 | 75 | 100 | d: plain tasks |" in text
    assert "2 programs; 1 differ: two." in text
    assert "the largest ratio of those is 1.05 (one)" in text
