"""Addresses that lead nowhere are told in one line, in seconds, without Ray. No cluster in here."""

import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import ray
from clean import clean_environment, ran
from limited import limit

from ray_snapshot import ClusterError
from ray_snapshot.cli import main
from ray_snapshot.commands import visiting
from ray_snapshot.errors import SystemNotRunningError
from ray_snapshot.instrument import cluster_shape, clusters
from ray_snapshot.instrument.clusters import Cluster, Found

BOUND_S = 60.0


@contextmanager
def listening(answer: bytes | None) -> Iterator[str]:
    """The address of something that is no Ray cluster: answers each caller with that, or keeps silent."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            caller, _ = server.accept()
            with caller:
                caller.recv(100)
                caller.sendall(answer or b"")

        if answer is not None:
            threading.Thread(target=serve, daemon=True).start()
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.contract
@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1:-1", ":", "foo", "ray://127.0.0.1:10001", "http://a:8265", "local", "a:99999", "a:0", "a:٣",
        ":6379", "a:" + "9" * 30,
    ],
)  # fmt: skip
def test_an_address_that_is_none_is_refused_before_ray_sees_it(
    address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["diagnose", "app", "--address", address]) == 2
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert "is no address of a Ray cluster: say HOST:PORT" in said.err


@pytest.mark.contract
@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"", b"+PONG\r\n"])
def test_something_else_that_listens_there_is_told_apart(answer: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    with listening(answer) as address:
        assert main(["systems", "--address", address]) == 2
    assert f"what answers at {address} is no Ray cluster" in capsys.readouterr().err


def test_nobody_there_and_somebody_who_says_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    limit(monkeypatch, greeting_s=0.05)
    with listening(None) as address:
        assert main(["snapshot", "app", "--address", address]) == 2
    assert f"no Ray cluster can be reached at '{address}': timed out" in capsys.readouterr().err
    assert main(["snapshot", "app", "--address", address]) == 2
    assert "Connection refused" in capsys.readouterr().err


@pytest.mark.contract
def test_the_address_of_the_environment_is_checked_as_well(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "http://127.0.0.1:8265")
    assert main(["systems"]) == 2
    assert "'http://127.0.0.1:8265' is no address of a Ray cluster" in capsys.readouterr().err


def test_where_nothing_runs_it_says_how_to_start(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    for remains in ([], ["127.0.0.1:1"]):
        monkeypatch.setattr(cluster_shape, "running_clusters", lambda remains=remains: remains)
        for command in (["diagnose", "app"], ["snapshot", "app"], ["systems"]):
            assert main(command) == 2
            (said,) = capsys.readouterr().err.splitlines()
            assert (
                "no Ray cluster runs on this machine: start your program first, with `ray-snapshot run SCRIPT`" in said
            )


def test_a_cluster_that_does_not_answer_is_named_once_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    limit(monkeypatch, greeting_s=0.05)
    with listening(None) as one, listening(None) as two:
        monkeypatch.setattr(cluster_shape, "running_clusters", lambda: [one, two])
        assert main(["systems"]) == 2
    said = capsys.readouterr().err
    assert "no Ray cluster of this machine can be asked: " in said
    assert f"{one}, {two} (no Ray cluster can be reached: timed out)" in said


def test_who_runs_a_system_is_asked_and_two_of_one_name_are_both_named() -> None:
    found = Found([Cluster("a:1", ("x", "y")), Cluster("b:2", ("y",))], {"hangs": ["c:3", "d:4"]})
    assert found.that_runs("x").address == "a:1"
    with pytest.raises(ClusterError, match=r"2 Ray clusters run a system 'y': say which with --address: a:1, b:2"):
        found.that_runs("y")
    told = r"cannot be told whether a system 'z' runs: .*; running: x \(a:1\), .*; not asked: c:3, d:4 \(hangs\)"
    with pytest.raises(ClusterError, match=told):
        found.that_runs("z")
    with pytest.raises(SystemNotRunningError, match=r"no system 'z' is running .*; running: x \(a:1\), y \(a:1\)"):
        Found(found.clusters, {}).that_runs("z")


def test_while_another_cluster_comes_a_busy_one_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def look(address: str) -> Cluster:
        asked.append(address)
        if address == "busy:1" and asked.count(address) == 1:
            raise ClusterError("no Ray cluster answers at busy:1: timed out")
        return Cluster(address, ("app",) if address == "busy:1" else ())

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(clusters, "alive", lambda: ["busy:1", "new:2"])
    monkeypatch.setattr(clusters, "is_alive", lambda _: True)
    monkeypatch.setattr(clusters, "look", look)
    assert clusters.find(None, "app").that_runs("app").address == "busy:1"
    assert asked == ["busy:1", "new:2", "busy:1"]


def test_a_port_that_does_not_answer_in_time_is_not_taken_for_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    def late(*_: object) -> None:
        raise TimeoutError

    monkeypatch.setattr(cluster_shape, "running_clusters", lambda: ["127.0.0.1:1"])
    assert clusters.alive() == []
    monkeypatch.setattr(clusters.socket, "create_connection", late)
    assert clusters.alive() == ["127.0.0.1:1"]


@pytest.mark.parametrize(("more", "shown"), [({}, ""), ({visiting.ASKED_FOR: "info"}, "from Ray's depths\n")])
def test_what_ray_writes_by_itself_is_shown_where_it_is_asked_for(more: dict[str, str], shown: str) -> None:
    code = (
        "import os, sys; from ray_snapshot.commands.visiting import visitor\n"
        'with visitor(): os.write(2, b"from Ray\'s depths\\n"); print("ours", file=sys.stderr)\n'
        'print("after", file=sys.stderr); os.write(2, b"and after\\n")'
    )
    done = _python(code, **more)
    assert (done.returncode, done.stderr) == (0, f"{shown}ours\nafter\nand after\n")


def test_a_cluster_that_never_answers_ends_the_command() -> None:
    code = (
        "import sys, threading; from ray_snapshot.commands.visiting import at_most, visitor\n"
        'with visitor(), at_most(0.05, lambda: print("too long", file=sys.stderr)): threading.Event().wait()'
    )
    done = _python(code)
    assert (done.returncode, done.stderr) == (2, "too long\n")


def test_a_cluster_that_is_gone_ends_the_command_before_ray_does() -> None:
    code = (
        "import sys, threading; from ray_snapshot.commands import visiting\n"
        "visiting.GONE_S, visiting._LOOK_S = 0.1, 0.05\n"
        "with visiting.as_long_as(lambda: True, lambda: None): pass\n"
        'with visiting.as_long_as(lambda: False, lambda: print("gone", file=sys.stderr)): threading.Event().wait()'
    )
    done = _python(code)
    assert (done.returncode, done.stderr) == (2, "gone\n")


def _python(code: str, **more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code]
    environment = clean_environment(**more)
    return ran(*command, env=environment, seconds=BOUND_S)


@pytest.mark.parametrize("version", ["2.44.1", "3.0.0"])
def test_a_cluster_of_another_ray_is_told_before_ray_refuses_it_in_many_lines(
    version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clusters, "_authorized", lambda address: "a connection")
    monkeypatch.setattr(cluster_shape, "version_known", lambda store, seconds: version)
    with pytest.raises(ClusterError) as raised:
        clusters.authorize("192.0.2.7:6379")
    assert str(raised.value) == (
        f"the Ray cluster at 192.0.2.7:6379 runs Ray {version}, and this is Ray {ray.__version__}: use the environment"
        " that it was started from"
    )
    for same in (None, ray.__version__):
        monkeypatch.setattr(cluster_shape, "version_known", lambda store, seconds, same=same: same)
        assert clusters.authorize("192.0.2.7:6379") == "a connection"
