"""`ray-snapshot run` under a signal: the program ends as Python would, and its last snapshots are in the history."""

import signal
import sys
from pathlib import Path

import pytest
from started import BOUND_S, started

from ray_snapshot.history import History

pytestmark = [pytest.mark.contract, pytest.mark.nightly]

PROGRAM = Path(__file__).with_name("ended_app.py")
COMMAND = Path(sys.executable).with_name("ray-snapshot")


@pytest.mark.parametrize(
    ("how", "number", "code"),
    [
        ("plain", signal.SIGTERM, -signal.SIGTERM),
        ("after", signal.SIGTERM, 7),
        ("before", signal.SIGTERM, 7),
        ("loop", signal.SIGTERM, 7),
        ("threads", signal.SIGTERM, -signal.SIGTERM),
        ("second", signal.SIGTERM, -signal.SIGTERM),
        ("plain", signal.SIGHUP, -signal.SIGHUP),
        ("plain", signal.SIGINT, 130),
    ],
)
def test_it_ends_as_python_would_with_what_was_seen_written(
    how: str, number: signal.Signals, code: int, tmp_path: Path
) -> None:
    command = [COMMAND, "run", "--every", "0.3", "--history", "h", PROGRAM, how]
    environment = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    with started(command, cwd=tmp_path, env=environment) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        out, err = process.communicate(timeout=BOUND_S)
    assert process.returncode == code, err
    assert ("handled" in out) == (code == 7)
    assert "SIGTERM received" not in err
    assert ("Traceback" in err) == (number == signal.SIGINT), err  # as Python does
    rows = History(tmp_path / "h").snapshots()
    assert all(not problems for _, problems in History(tmp_path / "h").verify())
    assert rows, "what was taken is there"
