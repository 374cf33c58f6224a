"""An app of somebody else's whose processes are killed: it goes back by itself, and its program notices nothing."""

import json
from pathlib import Path

import pytest
from app_runner import Runner

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_cluster")]

PROGRAM = str(Path(__file__).parent / "recovering_driver.py")


@pytest.mark.nightly
@pytest.mark.parametrize("kills", [2, 6])
def test_every_call_counts_once_whatever_is_killed(runner: Runner, kills: int, seed: int) -> None:
    done = runner.plain(PROGRAM, str(kills), str(seed))
    assert done.exit_code == 0, done.errors
    whole, told = done.output.splitlines()
    assert whole == "420 coins; every gift once: True"
    found = json.loads(told)
    assert found["restored_from"] is not None
    assert found["spare"] == 7, "a death that the app wants is not undone"
    wanted = "mortal: Ray does not start it again when its process dies: make it with max_restarts=-1"
    assert wanted in found["obstacles"]
    assert "recover: an actor of Account is an obstacle: Ray does not start it again" in done.errors
