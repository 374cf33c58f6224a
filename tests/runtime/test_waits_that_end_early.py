"""`wait_for` of what can never come any more ends at once, with the reason, and no sooner than that is certain."""

import threading
from typing import Any

import pytest
from runtime_machines import BOUND_S, Sender

import ray_snapshot as rs
from ray_snapshot import detectors
from ray_snapshot.runtime.session import for_ever_stuck

NEVER_S = 10_000.0
SOON_S = 1.0
"""A test that waited so long would have failed by then."""

WHOLE, PART, STUCK = detectors.Termination(), detectors.Termination(machines=["a"]), detectors.Deadlock()
KNOWN = [WHOLE, PART, STUCK]


def _verdicts(active: int = 0, *, stuck: Any = True, done: Any = False, cuts: str = "ss") -> dict[str, rs.Verdict]:
    return {
        "termination": rs.Verdict(holds=done, evidence={"active": active}, snapshot_id=cuts[0]),
        PART.name: rs.Verdict(holds=False, evidence={"active": 0}, snapshot_id=cuts[0]),
        "deadlock": rs.Verdict(holds=stuck, snapshot_id=cuts[1]),
    }


def test_it_is_certain_only_where_some_are_deadlocked_and_nothing_is_active_on_the_same_snapshot() -> None:
    found = _verdicts()
    assert for_ever_stuck(WHOLE, found, KNOWN) is found["deadlock"]
    assert for_ever_stuck(detectors.Termination(name="over"), {**found, "over": found["termination"]}, KNOWN)
    for other in (
        _verdicts(active=1),
        _verdicts(stuck=False),
        _verdicts(stuck=None),
        _verdicts(done=None),
        _verdicts(cuts="st"),
        {"termination": found["termination"]},
    ):
        assert for_ever_stuck(WHOLE, other, KNOWN) is None
    assert for_ever_stuck(WHOLE, found, [WHOLE]) is None, "the user's own detector may be called deadlock"
    for waited_for in (PART, STUCK):
        assert for_ever_stuck(waited_for, found, KNOWN) is None


@pytest.mark.contract
@pytest.mark.ray
@pytest.mark.nightly
def test_termination_is_not_waited_for_in_a_deadlock_nor_in_a_system_that_another_thread_closes(
    ray_cluster: None,
) -> None:
    with rs.System("circle") as system:
        a, b = system.spawn_many(Sender, count=2, names=["a", "b"], per_host=1)
        system.start()
        assert system.wait_for("termination", timeout=BOUND_S).holds
        a.ask.send(b, "ask_for", a, "hear")
        said = r"termination can never hold any more, as snapshot .* shows: Deadlock: a .*waits for b"
        with pytest.raises(rs.NeverHoldsError, match=said) as caught:
            system.wait_for("termination", timeout=NEVER_S)
        assert isinstance(caught.value, rs.SnapshotTimeoutError)
        assert (caught.value.waited_for, caught.value.verdict.detector) == ("termination", "deadlock")
        with pytest.raises(rs.SnapshotTimeoutError) as waited:
            system.wait_for("termination", timeout=SOON_S, stop_on_alarm=False)
        assert not isinstance(waited.value, rs.NeverHoldsError), "it was to be waited for"
        heard = threading.Event()
        system.subscribe(lambda verdict: heard.set() if verdict.holds else None)
        with pytest.raises(rs.NeverHoldsError):
            system.wait_for("termination", timeout=NEVER_S, stop_on_alarm=True)
        heard.clear()
        system.subscribe(lambda verdict: heard.set() if verdict.holds else None)
        closer = threading.Thread(target=lambda: heard.wait(BOUND_S) and system.close())
        closer.start()
        try:
            with pytest.raises(
                rs.SystemNotRunningError, match="was closed"
            ):  # a callback may act, so it was waited for
                system.wait_for("termination", timeout=NEVER_S)
        finally:
            heard.set()
            closer.join()
