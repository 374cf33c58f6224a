"""The counts that complete a snapshot on Ray are the simulator's: whichever of them is wrong, a seeded run finds it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ray_snapshot.parts.reporting import LinkCounts
from ray_snapshot.simulation.mail.oracle import OracleError
from ray_snapshot.simulation.rollback.storms import STORMS, run_storm

RECEIVER, SENDER = LinkCounts.receiver, LinkCounts.sender
SEEDS = range(5)


def run_all() -> None:
    for seed in SEEDS:
        for name in STORMS:
            run_storm(name, seed)


WRONG: dict[str, tuple[str, Callable[..., Any]]] = {
    "what waits at its sender counts as sent": (
        "sender",
        lambda self, channel, sent, _: SENDER(self, channel, sent, 0),
    ),
    "one less was sent": ("sender", lambda self, channel, sent, held: SENDER(self, channel, max(0, sent - 1), held)),
    "what was sent outside the cut counts as accepted": (
        "receiver",
        lambda self, mailbox, accepted, in_flight, _=0: RECEIVER(self, mailbox, accepted, in_flight, 0),
    ),
    "what is in flight is not counted": (
        "receiver",
        lambda self, mailbox, accepted, _, duplicates=0: RECEIVER(self, mailbox, accepted, 0, duplicates),
    ),
    "what is in flight counts twice": (
        "receiver",
        lambda self, mailbox, accepted, found, duplicates=0: RECEIVER(self, mailbox, accepted, 2 * found, duplicates),
    ),
    "creations that came late are not counted": ("came", lambda *_: None),
}


def test_with_the_right_counts_all_of_these_runs_are_complete_and_right() -> None:
    run_all()


@pytest.mark.parametrize(("method", "wrong"), WRONG.values(), ids=WRONG)
def test_a_wrong_count_is_found(method: str, wrong: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LinkCounts, method, wrong)
    with pytest.raises(OracleError, match=r"waits for|has more in its cut than was sent"):
        run_all()
