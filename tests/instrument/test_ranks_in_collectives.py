"""Programs with torch.distributed, whose ranks are actors: who never comes is told, who is slow is not. They need torch."""

import re

import pytest
from app_runner import Done, Runner
from until import until

pytestmark = [pytest.mark.ray, pytest.mark.libraries, pytest.mark.contract]

DEADLOCK = 3
TWO = r"group world: 2 of 3 are in all_reduce number \d+ \(ranks\.py:\d+\) for \d+ s"


@pytest.mark.parametrize("does", ["raises", "begins", "learns"])
def test_a_rank_that_raised_before_its_collective_is_told_and_ends_the_program(runner: Runner, does: str) -> None:
    program = runner.start_watched(f"ranks-{does}", "--exit-on", "collective", "ranks.py", does)
    done = runner.finish(program)
    assert done.exit_code == DEADLOCK, done.errors
    raised = r"Rank-2\.step raised ValueError at \S+ \(ranks\.py:\d+\); nobody has read it"
    told = rf"A collective cannot complete: {TWO}; rank 2 \(Rank-2\) runs no call \({raised}\); ends at the latest by"
    assert re.search(told, done.errors), done.errors


def test_a_rank_that_works_for_long_is_waited_for_without_a_word(runner: Runner) -> None:
    program = runner.start_watched("ranks-work", "--quiet", "--exit-on", "collective", "ranks.py", "works")
    done = runner.finish(program)
    assert (done.output, done.exit_code) == ("[9.0, 9.0, 9.0]\n", 0), done.errors
    assert [line for line in done.errors.splitlines() if line.startswith("ray-snapshot")] == []


def test_a_recv_that_nobody_sends_to_is_told_and_is_never_no_deadlock(runner: Runner) -> None:
    with runner.watching("ranks-keep", "ranks.py", "keeps"):

        def diagnosis() -> Done:
            return runner.command("diagnose", "ranks-keep", "--address", runner.address)

        told = r"group world: rank 0 \(Rank-0\) is in recv with rank 2 number 2 \(ranks\.py:\d+\) for \d+ s"
        done = until(diagnosis, good=lambda done: bool(re.search(told, done.output)), seconds=120.0)
    assert "No deadlock" not in done.output
    assert done.exit_code == DEADLOCK, done.output
