"""What `ray-snapshot run` says last. No Ray in here."""

from types import SimpleNamespace

from ray_snapshot.instrument.process.failures import FAILURES
from ray_snapshot.instrument.running import Options, Reporter
from ray_snapshot.instrument.watcher.incidents import Summary
from ray_snapshot.verdicts import Verdict


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
