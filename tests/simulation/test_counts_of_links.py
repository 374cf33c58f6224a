"""The counts that complete a snapshot on Ray are the simulator's: whichever of them is wrong, a seeded run finds it."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
from worlds.rollback.storms import STORMS, run_storm

from ray_snapshot.parts.reporting import LinkCounts
from ray_snapshot.simulation.mail.oracle import OracleError

ENDS_OF = LinkCounts.ends_of
SEEDS = range(2)


def run_all() -> None:
    for seed in SEEDS:
        for name in STORMS:
            run_storm(name, seed)


def _changed(change: Callable[[Any], dict[str, Any]]) -> Callable[[Any, Any], None]:
    """Counts a copy with some of what it says replaced."""

    def ends_of(self: LinkCounts, found: Any) -> None:
        changed = copy.copy(found)
        for name, value in change(found).items():
            setattr(changed, name, value)
        ENDS_OF(self, changed)

    return ends_of


WRONG: dict[str, tuple[str, Callable[..., Any]]] = {
    "what waits at its sender counts as sent": ("ends_of", _changed(lambda _: {"waiting": {}})),
    "one less was sent": ("ends_of", _changed(lambda found: {"sent_on": [max(0, sent - 1) for sent in found.sent_on]})),
    "what was sent outside the cut counts as accepted": ("ends_of", _changed(lambda _: {"duplicates": {}})),
    "what is in flight is not counted": ("ends_of", _changed(lambda _: {"queued": {}})),
    "what is in flight counts twice": (
        "ends_of",
        _changed(lambda found: {"queued": {box: [*messages, *messages] for box, messages in found.queued.items()}}),
    ),
    "what is in flight and came late is not counted": ("late", lambda *_: None),
    "creations that came late are not counted": ("came", lambda *_: None),
}


def test_with_the_right_counts_all_of_these_runs_are_complete_and_right() -> None:
    run_all()


@pytest.mark.parametrize(("method", "wrong"), WRONG.values(), ids=WRONG)
def test_a_wrong_count_is_found(method: str, wrong: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LinkCounts, method, wrong)
    with pytest.raises(OracleError, match=r"waits for|has more in its cut than was sent"):
        run_all()
