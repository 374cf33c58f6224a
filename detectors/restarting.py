"""Is an actor restarted again and again? Its work is not done, and its callers may wait for ever."""

from __future__ import annotations

from ray_snapshot.detectors.common import NamedDetector, answer
from ray_snapshot.detectors.happened import restart_loops
from ray_snapshot.limits import LIMITS
from ray_snapshot.names import listed
from ray_snapshot.snapshot import Snapshot
from ray_snapshot.verdicts import Verdict


class Restarting(NamedDetector):
    """True iff a watched actor has been restarted three times within ten minutes, and has not lived for long since.

    Evidence: `machines`, and `restarts` (a sentence each: how often, in what time, inside which call, why); the first 100. Not
    stable: the next start may be the last. Cost: O(deaths and errors that the coverage lists).
    """

    type = "restarting"
    stable = False
    looks_at: frozenset[str] = frozenset()

    def evaluate(self, snapshot: Snapshot) -> Verdict:
        """Read what the watching app lists of the time before the snapshot."""
        loops = [*restart_loops(snapshot)][: LIMITS.listed]
        evidence = {"machines": [loop.machine for loop in loops], "restarts": [str(loop) for loop in loops]}
        if not loops:
            return answer(self, snapshot, False, evidence, "No actor is restarted again and again.")
        return answer(self, snapshot, True, evidence, f"Restarting: {listed(evidence['restarts'])}.")
