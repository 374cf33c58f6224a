"""What `ray-snapshot run` says last. No Ray in here."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest

from ray_snapshot.instrument.process.failures import FAILURES
from ray_snapshot.instrument.running import Options, Reporter
from ray_snapshot.instrument.watcher.incidents import Summary
from ray_snapshot.verdicts import Verdict

UNREAD = ("read later", 1, "A-0.f raised KeyError"), ("unread", 1, "B-0.g raised ValueError")


def ended(*found: Summary | None, alarm: str = "", detectors: tuple[str, ...] = ("deadlock", "stall")) -> str:
    reporter = Reporter(Options(every=1.0, history=None, detectors=[*detectors], exit_on=None, name=None))
    reporter.watches += [SimpleNamespace(summary=summary) for summary in found]
    if alarm:
        reporter.hear(Verdict(detector=alarm, holds=True, alarm=True, sentence="It stands."))
    return re.fullmatch(r"ray-snapshot: exit 7 after 0 s, (.*)", reporter.ending(7))[1]  # type: ignore[index]


@pytest.mark.parametrize(
    ("found", "about", "said"),
    [
        ((), {}, "nothing was watched"),
        ((Summary(0, 0, []),), {}, "no snapshot"),
        ((Summary(1, 0, []),), {"detectors": ("stall",)}, "1 snapshot"),
        ((Summary(70, 0, []), Summary(1, 0, []), None), {}, "71 snapshots, no deadlock"),
        ((Summary(2, 3, []),), {"alarm": "stall"}, "2 snapshots, alarm of stall, 3 restarts"),
        (
            (Summary(2, 0, [*UNREAD]),),
            {},
            "2 snapshots, no deadlock, 1 error that nobody has read (B-0.g raised ValueError)",
        ),
    ],
)
def test_it_counts_snapshots_alarms_restarts_and_errors_that_were_never_read(found: Any, about: Any, said: str) -> None:
    FAILURES.was_read("read later")
    assert ended(*found, **about) == said
