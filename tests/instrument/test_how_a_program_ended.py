"""What `ray-snapshot run` says last. No Ray in here."""

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from ray_snapshot.instrument.process.failures import FAILURES
from ray_snapshot.instrument.running import Options, Reporter
from ray_snapshot.instrument.watcher.incidents import Summary
from ray_snapshot.verdicts import SUSPECTED, Verdict


def ended(*found: Summary | None, alarm: str = "", detectors: str = "deadlock stall", code: int = 7) -> str:
    reporter = Reporter(Options(every=1.0, history=None, detectors=detectors.split(), exit_on=None, name=None))
    reporter.watches += [SimpleNamespace(summary=summary) for summary in found]
    reporter.hear(Verdict(detector=alarm, holds=True, alarm=bool(alarm), sentence="It stands."))
    return reporter.ending(code).removeprefix(f"ray-snapshot: exit {code} after 0 s, ")


def test_it_counts_snapshots_alarms_restarts_and_errors_that_were_never_read() -> None:
    assert ended() == "nothing was watched"
    assert ended(Summary(0, 0, [])) == "no snapshot"
    assert ended(Summary(1, 0, []), detectors="stall") == "1 snapshot"
    assert ended(Summary(70, 0, []), Summary(1, 0, []), None) == "71 snapshots, no deadlock"
    assert ended(Summary(71, 0, []), code=143) == "71 snapshots, no alarm", "it may have hung"
    assert ended(Summary(2, 3, []), alarm="stall") == "2 snapshots, alarm of stall, 3 restarts"
    FAILURES.was_read("read")
    unread = [("read", 1, "A-0.f raised KeyError"), ("not read", 1, "B-0.g raised ValueError")]
    assert ended(Summary(2, 0, unread)).endswith("deadlock, 1 error that nobody has read (B-0.g raised ValueError)")


@pytest.mark.parametrize(
    ("seen", "ends"),
    [
        ([(0, None), (30, None), (61, None)], True),
        ([(0, None), (10, ""), (50, ""), (59, None), (61, None)], True),
        ([(0, None), (10, False), (50, None), (61, None)], False),
        ([(0, None), (59, ""), (61, None)], False),
        ([(0, None), (61, "")], False),
        ([(0, None), (5, None), (50, ""), (62, "B")], False),
    ],
)
def test_a_deadlock_that_stays_suspected_ends_the_program_also_where_snapshots_between_cannot_tell(
    seen: list[tuple[float, bool | str | None]], ends: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """None: it is suspected; "B": another one is; "": it cannot be told; False: there is none."""
    now = [0.0]
    options = Options(every=1.0, history=None, detectors=["deadlock"], exit_on=SUSPECTED, name=None)
    reporter = Reporter(options, lambda: 1_000.0 + now[0])
    reporter.end = threading.current_thread()  # as if it were ended already
    for now[0], holds in seen:
        about: dict[str, Any] = {"grade": SUSPECTED, "unless": "not"} if holds in (None, "B") else {}
        about["evidence"] = {"depends_on": [holds or "A"]}
        told = Verdict(
            detector="deadlock", detector_spec={"type": "deadlock"}, sentence="It hangs.", holds=None, **about
        )
        reporter.hear(told.model_copy(update={"holds": False}) if holds is False else told)
    assert ("It hangs." in capsys.readouterr().err) is ends
