"""The facts of a machine: folders, what is installed, Java, clusters, as they are found here or in what a test lays out."""

import os
import socket
import sys
from pathlib import Path

import pytest
from limited import limit

from ray_snapshot.doctor import looking
from ray_snapshot.doctor.checks import OK, PROBLEM, WARNING
from ray_snapshot.errors import UnsupportedRayError
from ray_snapshot.history import HistoryWriter
from ray_snapshot.instrument import cluster_shape, shape
from ray_snapshot.spark_jobs.engine.java import look_for_java


def test_what_is_installed_has_a_version() -> None:
    assert looking.installed("pyarrow")
    assert looking.installed("no-such-package-of-anybody") is None


def test_a_folder_is_looked_at_and_left_as_it_was(tmp_path: Path) -> None:
    found = looking.folder_at(tmp_path)
    assert (found.path, found.why_not, found.made_in) == (str(tmp_path), "", "")
    assert found.free
    found = looking.folder_at(tmp_path / "a" / "b")
    assert (found.path, found.made_in, found.why_not) == (str(tmp_path / "a" / "b"), str(tmp_path), "")
    assert [*tmp_path.iterdir()] == []


def test_why_a_folder_cannot_be_written_to_is_found(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert looking.folder_at(tmp_path / "file" / "sub").why_not == "it is no folder"
    assert looking.folder_at(Path("/proc/fs")).why_not, "not even root writes there"


def test_a_history_is_told_from_other_folders(tmp_path: Path) -> None:
    HistoryWriter(tmp_path / "history").close()
    assert looking.history_at(tmp_path / "history").found.endswith("; a history")
    assert looking.history_at(tmp_path / "new").found.endswith("; no history yet")
    (tmp_path / "empty").mkdir()
    assert looking.history_at(tmp_path / "empty").state == OK
    (tmp_path / "file").write_text("")
    assert looking.history_at(tmp_path / "file").found == f"{tmp_path / 'file'} is a file"
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "holiday.jpg").write_text("")
    other = looking.history_at(tmp_path / "other")
    assert other.state == PROBLEM
    assert str(tmp_path / "other") in other.found


def java(folder: Path, answer: str) -> Path:
    """A JAVA_HOME whose Java prints this."""
    (folder / "bin").mkdir(parents=True)
    program = folder / "bin" / "java"
    program.write_text(f"#!/bin/sh\n{answer}\n")
    program.chmod(0o755)
    return folder


def test_each_java_is_started_in_bounded_time_and_no_wrapper_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    old = java(tmp_path / "old", "echo 'openjdk version \"11.0.2\"' >&2")
    good = java(tmp_path / "good", "echo 'openjdk version \"21.0.2\"' >&2")
    environment = {"JAVA_HOME": str(old), "PATH": str(good / "bin")}
    found, skipped = look_for_java(environment)
    assert found == (21, f"java on the PATH ({good / 'bin' / 'java'})")
    assert skipped == [f"JAVA_HOME ({old}) skipped: too old, version 11"]
    hanging = java(tmp_path / "hanging", "exec sleep 60")
    _, skipped = look_for_java({"JAVA_HOME": str(hanging), "PATH": str(good / "bin")}, 0.3)
    assert skipped == [f"JAVA_HOME ({hanging}) skipped: does not run (no answer within 0.3 s)"]
    assert not (tmp_path / "cache").exists()


def test_a_ray_whose_inner_shape_differs_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    assert looking.ray().state in (OK, WARNING)

    def differs() -> None:
        raise UnsupportedRayError("there is no ActorHandle._call")

    monkeypatch.setattr(shape, "check", differs)
    assert looking.ray().state == PROBLEM
    monkeypatch.setitem(sys.modules, "ray", None)
    assert looking.ray().found.startswith("it cannot be imported: ModuleNotFoundError: ")


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """No cluster runs on this machine, and there is no token."""
    for name in ("RAY_ADDRESS", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(cluster_shape, "running_clusters", lambda: [])
    monkeypatch.setattr(cluster_shape, "has_token", lambda: False)
    return monkeypatch


def test_where_no_cluster_runs_that_is_no_warning(alone: pytest.MonkeyPatch) -> None:
    assert [(one.check, one.state) for one in looking.clusters(None)] == [("token", OK), ("cluster", OK)]


@pytest.mark.parametrize(("address", "variable"), [("127.0.0.1:1", None), (None, "127.0.0.1:1")])
def test_the_address_that_was_said_is_the_one_that_is_asked(
    address: str | None, variable: str | None, alone: pytest.MonkeyPatch
) -> None:
    if variable is not None:
        alone.setenv("RAY_ADDRESS", variable)
    _, found = looking.clusters(address)
    assert found.state == PROBLEM
    assert found.found.startswith(f"127.0.0.1:1 ({'RAY_ADDRESS' if variable else '--address'}): no Ray cluster can be")


def test_remains_of_a_cluster_are_no_cluster(alone: pytest.MonkeyPatch) -> None:
    alone.setattr(cluster_shape, "running_clusters", lambda: ["127.0.0.1:1"])
    assert looking.clusters(None)[1].found == "none runs on this machine"


def test_a_cluster_that_hangs_is_told_in_seconds(alone: pytest.MonkeyPatch) -> None:
    limit(alone, greeting_s=0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        alone.setattr(cluster_shape, "running_clusters", lambda: [address])
        _, found = looking.clusters(None)
    assert found.state == WARNING
    assert "timed out" in found.found


def test_the_remedy_stands_apart_from_what_was_found(alone: pytest.MonkeyPatch) -> None:
    _, found = looking.clusters("ray://192.0.2.7:10001")
    assert found.state == PROBLEM
    assert "is no address of a Ray cluster" in found.found
    assert found.remedy.startswith("say HOST:PORT, such as ")
    assert found.remedy not in found.found


@pytest.mark.parametrize(
    ("version", "level", "is_let_in"),
    [
        ("{0}.{1}.{2}", None, True),
        ("{0}.{1}.99", None, False),
        ("{0}.{1}.99", "minor", True),
        ("{0}.99.{2}", "minor", False),
    ],
)
def test_ray_lets_in_who_has_its_python(
    version: str, level: str | None, is_let_in: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "RAY_DEFAULT_PYTHON_VERSION_MATCH_LEVEL"
    monkeypatch.delenv(name, raising=False)
    if level is not None:
        monkeypatch.setenv(name, level)
    assert cluster_shape.is_python_let_in(version.format(*sys.version_info[:3])) == is_let_in


def test_without_a_usable_ray_no_cluster_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray_snapshot.instrument.clusters", None)
    monkeypatch.delattr("ray_snapshot.instrument.clusters")
    (found,) = looking.clusters(None)
    assert (found.check, found.state) == ("cluster", WARNING)


def test_py_spy_is_tried_on_a_process_that_is_not_its_child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "py-spy"
    program.write_text('#!/bin/sh\necho "$*" > "$0.asked"\necho "Permission Denied" >&2\nexit 1\n')
    program.chmod(0o755)
    from ray_snapshot.unprepared import evidence

    monkeypatch.setattr(evidence, "spy", lambda: str(program))
    assert "it may not read other processes" in looking.stacks().found
    assert (tmp_path / "py-spy.asked").read_text().split()[-2:] == ["--pid", str(os.getpid())]
    monkeypatch.setattr(evidence, "spy", lambda: None)
    assert "not installed" in looking.stacks().found
