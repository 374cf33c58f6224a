"""`pytest --ray-snapshot` on a suite that we did not prepare: what hangs fails with the reason, and the rest goes on."""

import json
import re
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import pytest
from clean import clean_environment

import ray_snapshot as rs
from ray_snapshot.pytest_plugin.watching import Running, TestRun

pytest_plugins = "pytester"
by_night = pytest.mark.nightly
BOUND_S = 60.0
FAILED, INTERNAL_ERROR, USAGE_ERROR = 1, 3, 4


@pytest.mark.contract
@pytest.mark.nightly
@pytest.mark.ray
def test_a_test_that_hangs_fails_with_the_report_and_the_rest_goes_on(suite, pytester: pytest.Pytester) -> None:  # type: ignore[no-untyped-def]
    ran = suite("--ray-snapshot", "--ray-snapshot-grace=1", "--ray-snapshot-report=kept")
    assert ran.outcomes == {
        "test_hangs": "FAILED",
        "test_that_comes_next": "PASSED",
        "test_that_ends_beside_what_is_stuck": "PASSED",
        "test_that_takes_too_long": "FAILED",
        "test_that_never_ends": "FAILED",
        "test_that_catches_it": "FAILED",
        "test_that_expects_it": "PASSED",
        "test_that_expects_it_in_vain": "FAILED",
        "test_conserved": "PASSED",
        "test_not_conserved": "FAILED",
        "test_with_a_fixture_that_hangs": "ERROR",
        "test_that_somebody_ends": "PASSED",
        "TestOfTheOldKind::test_that_expects_it": "PASSED",
        "test_that_expects_several": "PASSED",
        "test_that_runs_pytest": "FAILED",
        "test_elsewhere[a/b]": "FAILED",
        "test_elsewhere[c/b]": "FAILED",
    }, ran.text
    assert ran.exit_code == FAILED
    for said in (
        "DeadlockError: deadlock in test_bank.py::test_hangs (snapshot ",
        "in Account.pay (test_bank.py:",
        "AssertionError: it never terminates: deadlock in test_bank.py::test_that_never_ends (snapshot ",
        "AssertionError: it has not terminated within 1 s: Not terminated: ",
        "this test has caught a DeadlockError: deadlock in test_bank.py::test_that_catches_it (snapshot ",
        "this test expects a deadlock, and came to none",
        "deadlock in test_bank.py::test_with_a_fixture_that_hangs (snapshot ",
    ):
        assert said in ran.text, ran.text
    _of_its_own_alone(ran.text)
    kept = {path.read_text(encoding="utf-8").splitlines()[0] for path in pytester.path.glob("kept/*/report.txt")}
    assert kept == {f"test_bank.py::{name}" for name, outcome in ran.outcomes.items() if outcome != "PASSED"}
    (found,) = pytester.path.glob("kept/test-bank-py-test-hangs-*-main/report.txt")
    assert "What can never move again" in found.with_suffix(".html").read_text(encoding="utf-8")
    report = found.read_text(encoding="utf-8")
    assert "deadlock in test_bank.py::test_hangs" in report
    (history,) = (line.removeprefix("history: ") for line in report.splitlines() if line.startswith("history: "))
    deadlocks = [one for one in rs.History(history).verdicts() if one.detector == "deadlock" and one.holds]
    assert {one.evidence["member_count"] for one in deadlocks} >= {2}
    assert {row["system"] for row in rs.History(history).snapshots()} == {"pytest-main-tests"}, "of a Ray for all tests"


@pytest.mark.contract
@pytest.mark.ray
def test_what_hangs_fails_with_the_report_and_what_comes_next_runs(suite) -> None:  # type: ignore[no-untyped-def]
    some = "test_hangs or comes_next or (expects_it and not in_vain and not OldKind)"
    ran = suite("--ray-snapshot", "--ray-snapshot-grace=1", "-k", some)
    assert ran.outcomes == {
        "test_hangs": "FAILED",
        "test_that_comes_next": "PASSED",
        "test_that_expects_it": "PASSED",
    }, ran.text
    assert ran.exit_code == FAILED
    assert "DeadlockError: deadlock in test_bank.py::test_hangs (snapshot " in ran.text
    assert "in Account.pay (test_bank.py:" in ran.text
    _of_its_own_alone(ran.text)


def _of_its_own_alone(text: str) -> None:
    """No report names actors that an earlier test has left behind."""
    for report in text.split("E       ray_snapshot.errors.DeadlockError: ")[1:]:
        lines = report.split("stuck behind them", maxsplit=1)[0].splitlines()[1:]
        assert sum("in Account.pay" in line for line in lines) == 2, report


ALONE = """
import os
import pytest
import ray
from test_bank import stuck

@pytest.fixture
def cluster():
    ray.init()
    yield
    ray.shutdown()

@pytest.mark.ray_snapshot(every=0.2, expect="deadlock")
def test_alone(cluster, ray_snapshot):
    assert ray_snapshot.watch.name == "pytest-main-test-alone-py-test-alone"
    ray.get(stuck())
"""


@pytest.mark.contract
@pytest.mark.nightly
@pytest.mark.ray
def test_a_test_with_a_ray_of_its_own_has_its_name_and_its_marker_says_how_often(
    suite, pytester: pytest.Pytester
) -> None:  # type: ignore[no-untyped-def]
    """Every ten minutes it would not end within the bound of this run."""
    pytester.makepyfile(test_alone=ALONE)
    ran = suite("--ray-snapshot", "--ray-snapshot-every=600", "test_alone.py")
    assert (ran.exit_code, ran.outcomes) == (0, {"test_alone": "PASSED"}), ran.text


@pytest.mark.contract
@by_night
@pytest.mark.ray
def test_the_same_under_xdist_with_a_cluster_for_each_worker(suite, pytester: pytest.Pytester) -> None:  # type: ignore[no-untyped-def]
    ran = suite("--ray-snapshot", "--ray-snapshot-grace=1", "-n", "2", "--ray-snapshot-report=kept", own=True)
    assert ran.exit_code == FAILED
    assert ran.outcomes["test_hangs"] == "FAILED", ran.text
    assert ran.outcomes["test_that_expects_it"] == "PASSED", ran.text
    assert ran.outcomes["test_with_a_fixture_that_hangs"] == "ERROR", ran.text
    assert len(ran.outcomes) == 17, ran.text
    assert {path.name.split("-")[1] for path in pytester.path.glob("kept/history-*")} <= {"gw0", "gw1"}


@pytest.mark.contract
@by_night
@pytest.mark.ray
def test_a_deadlock_may_be_reported_only(suite) -> None:  # type: ignore[no-untyped-def]
    ran = suite("--ray-snapshot", "--ray-snapshot-on-deadlock=report", "-k", "somebody_ends")
    assert ran.outcomes == {"test_that_somebody_ends": "PASSED"}, ran.text
    assert "RaySnapshotWarning: test_bank.py::test_that_somebody_ends came to a deadlock in " in ran.text


@pytest.mark.contract
@by_night
@pytest.mark.ray
def test_where_warnings_are_errors_a_report_is_a_failure_and_the_run_goes_on(suite) -> None:  # type: ignore[no-untyped-def]
    # What another plugin warns of at its own start is none of ours.
    options = ("--ray-snapshot", "--ray-snapshot-on-deadlock=report", "-p", "no:asyncio", "-W", "error::UserWarning")
    ran = suite(*options, "-k", "somebody_ends or conserved")
    assert ran.exit_code == FAILED, ran.text
    assert ran.outcomes["test_conserved"] == "PASSED", ran.text
    assert "test_that_somebody_ends came to a deadlock in " in ran.text


@pytest.mark.contract
@pytest.mark.ray
def test_without_the_option_nothing_is_watched_and_who_needs_it_is_told(suite) -> None:  # type: ignore[no-untyped-def]
    ran = suite(
        "-k",
        "comes_next or ends_beside or expects_it or is_skipped",
        "--deselect",
        "test_bank.py::test_that_expects_it_in_vain",
    )
    assert {name: outcome for name, outcome in ran.outcomes.items() if outcome != "FAILED"} == {
        "test_that_ends_beside_what_is_stuck": "ERROR"
    }, ran.text
    assert "1 skipped" in ran.text
    assert "the fixture ray_snapshot needs --ray-snapshot" in ran.text
    assert "this test expects a deadlock, and would hang: run pytest with --ray-snapshot" in ran.text


RUNS = """
import json
import sys
import pytest
for number, arguments in enumerate(json.loads(sys.argv[1])):
    print(f"run {number}", flush=True)
    print("exit", int(pytest.main(["-p", "no:cacheprovider", *arguments])), flush=True)
"""


def _pytest(pytester: pytest.Pytester, *runs: tuple[str, ...]) -> list[tuple[int, str]]:
    """How each run of pytest ends, and what it writes; one process runs them one after the other."""
    ran = subprocess.run(
        (sys.executable, "-c", RUNS, json.dumps(runs)),
        cwd=pytester.path,
        env=clean_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=BOUND_S,
        check=False,
    )
    texts = re.split(r"^run \d+\n", ran.stdout, flags=re.MULTILINE)[1:]
    assert len(texts) == len(runs), ran.stdout
    return [(int(text.rsplit("exit ", maxsplit=1)[1]), text) for text in texts]


def test_what_earlier_tests_have_left_is_no_part_of_a_report() -> None:
    at = {"old": "2026-03-01T11:00:00+00:00", "new": "2026-03-01T12:00:00+00:00"}
    members = [{"machine": name, "since": since, "is_cause": True} for name, since in at.items()]
    evidence = {"members": members, "stuck_behind": members, "cores": [["old"], ["new"]], "callers": ["nobody is left"]}
    run = TestRun.__new__(TestRun)
    run.running = Running("test_it", False, 1.0, began=datetime.fromisoformat(at["new"]).timestamp())
    own = run.own_part(rs.Verdict(evidence=evidence)).evidence
    assert [[one["machine"] for one in own[name]] for name in ("members", "stuck_behind")] == [["new"], ["new"]]
    assert (own["cores"], own["callers"], own["cause_count"]) == ([["new"]], [], 1), "callers are told of no core apart"
    alone = run.own_part(rs.Verdict(evidence={**evidence, "members": members[1:], "cores": [["new"]]}))
    assert alone.evidence["callers"] == ["nobody is left"]


def test_the_plugin_loads_neither_ray_nor_anything_heavy(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import sys

        def test_nothing_is_there():
            assert "ray_snapshot.pytest_plugin" in sys.modules
            assert not {"ray", "pyarrow", "numpy", "pydantic"} & set(sys.modules)
        """
    )
    ((code, text),) = _pytest(pytester, ())
    assert code == 0, text


@pytest.mark.contract
def test_what_means_nothing_or_cannot_be_done_is_refused_at_once(pytester: pytest.Pytester) -> None:
    told = 'the marker is ray_snapshot(every=SECONDS, expect="deadlock")'
    refused = {("test_plain.py", *arguments): said for arguments, said in OPTIONS.items()}
    for number, marker in enumerate(('expect="crash"', "every=0", "often=True", "'deadlock'")):
        name = f"test_marker_{number}"
        pytester.makepyfile(
            **{name: f"import pytest\n\n@pytest.mark.ray_snapshot({marker})\ndef test_it():\n    pass\n"}
        )
        refused[f"{name}.py",] = told
    pytester.makepyfile(test_plain="def test_it():\n    pass\n")
    for (code, text), said in zip(_pytest(pytester, *refused), refused.values(), strict=True):
        assert code == USAGE_ERROR, text
        assert said in text
        assert "Traceback" not in text


OPTIONS = {
    ("--ray-snapshot", "--ray-snapshot-every=0"): "--ray-snapshot-every",
    ("--ray-snapshot", "--ray-snapshot-report=/proc/none"): "a history cannot be kept in",
    ("--ray-snapshot-on-deadlock=explode",): "invalid choice",
}


def test_a_setting_turns_it_on_and_help_tells_of_it(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("import sys\n\ndef test_it():\n    assert 'ray_snapshot.instrument.watching' in sys.modules\n")
    (Path(pytester.path) / "pytest.ini").write_text("[pytest]\nray_snapshot = true\n", encoding="utf-8")
    (code, text), (_, helped) = _pytest(pytester, (), ("--help",))
    assert code == 0, text
    for option in ("--ray-snapshot ", "--ray-snapshot-every", "--ray-snapshot-on-deadlock", "--ray-snapshot-report"):
        assert option in helped
