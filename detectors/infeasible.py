"""Is anything asked for that no node of the cluster could ever give, were it empty?

Ray lets such a call wait without an end. Who has made it may still act, and give it up: so it is no deadlock.
"""

from __future__ import annotations

from ray_snapshot.detectors.common import NamedDetector, answer, unsound, with_workers
from ray_snapshot.detectors.pending import roomless
from ray_snapshot.limits import LIMITS
from ray_snapshot.names import LONG_S, listed
from ray_snapshot.snapshot import Snapshot
from ray_snapshot.verdicts import Verdict


class Infeasible(NamedDetector):
    """True iff a call, a constructor or a placement group that a call waits for has waited for 10 s for more than any node has.

    None where a node may join: with an autoscaler, or while the nodes change. Evidence: `waiting` (what waits, for how long and
    for what, a line each), `needs` (what of it no node has), `advice`; the first 100. Not stable: a node may join, and who has
    made the call may cancel it. Cost: O(messages + demands x nodes).
    """

    type = "infeasible"
    stable = False

    def evaluate(self, snapshot: Snapshot) -> Verdict:
        """Hold each demand that has waited for long against what nodes have, held or free."""
        if reason := unsound(snapshot):
            return answer(self, snapshot, None, {}, f"Infeasible demands cannot be told: {reason}.")
        demands = [one for one in roomless(snapshot) if one.waited_s >= LONG_S and one.lack.is_never][: LIMITS.listed]
        needs = [one.lack.why() for one in demands]
        lines = [with_workers(snapshot, one.line(need)) for one, need in zip(demands, needs, strict=True)]
        advice = list(dict.fromkeys(one.lack.remedy() for one in demands))
        evidence = {"waiting": lines, "needs": list(dict.fromkeys(needs)), "advice": advice}
        if not demands:
            return answer(self, snapshot, False, evidence, "No infeasible demand.")
        if unsure := demands[0].lack.state.told.unsure:
            text = f"Infeasible demands cannot be told: {listed(lines)}; this depends on {listed(unsure)}."
            return answer(self, snapshot, None, {**evidence, "depends_on": list(unsure)}, text)
        return answer(self, snapshot, True, evidence, f"Infeasible: {listed(lines)}. {advice[0]}")
