"""What the demo tells people to type, and what the commands say where no program runs; neither needs Ray."""

from __future__ import annotations

import sys

import pytest

from ray_snapshot import cli
from ray_snapshot.commands import demo
from ray_snapshot.errors import ClusterError


@pytest.mark.parametrize(
    ("on_the_path", "program", "words"),
    [
        ("/usr/bin/ray-snapshot", ".venv/bin/ray-snapshot", "ray-snapshot"),
        (None, ".venv/bin/ray-snapshot", ".venv/bin/ray-snapshot"),
        (None, "/my apps/bin/ray-snapshot", "'/my apps/bin/ray-snapshot'"),
        (None, "/src/ray_snapshot/cli.py", f"{sys.executable} -m ray_snapshot.cli"),
    ],
)
def test_a_command_that_is_shown_can_be_pasted(
    monkeypatch: pytest.MonkeyPatch, on_the_path: str | None, program: str, words: str
) -> None:
    monkeypatch.setattr(demo.shutil, "which", lambda _: on_the_path)
    monkeypatch.setattr(sys, "argv", [program, "demo"])
    assert demo._pasted("list", "/my out/history") == f"{words} list '/my out/history'"


@pytest.mark.parametrize("command", [["systems"], ["snapshot", "shop"], ["diagnose", "shop"]])
def test_where_no_cluster_runs_the_commands_say_to_start_the_program_first(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    def connect(address: str) -> None:
        raise ClusterError(f"no Ray cluster can be reached at {address!r}") from ConnectionError("none was found")

    monkeypatch.setattr("ray_snapshot.runtime.cluster.connect", connect)
    monkeypatch.setattr("ray_snapshot.instrument.cluster_shape.running_clusters", list)
    assert cli.main(command) == 2
    assert "start your program first" in capsys.readouterr().err
    assert cli.main([*command, "--address", "127.0.0.1:1"]) == 2
    assert "cluster can be reached at '127.0.0.1:1'" in capsys.readouterr().err
