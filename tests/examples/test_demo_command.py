"""What the demo tells people to type; without Ray."""

import sys

import pytest

from ray_snapshot.commands import demo


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
