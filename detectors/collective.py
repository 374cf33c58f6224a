"""Is there a collective of torch.distributed that cannot complete, because a rank can never come to it?

The waits of ranks are put into the wait-for graph of `Deadlock`: a rank that has stood in a collective for long goes on once
any rank can act that may still have to do something there. A rank that has died, or has left the group, never does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from ray_snapshot.detectors.common import NamedDetector, answer, plural, with_statuses
from ray_snapshot.detectors.deadlock import Deadlock
from ray_snapshot.detectors.rank_groups import Wait, groups
from ray_snapshot.names import DRIVER, listed
from ray_snapshot.snapshot import Snapshot
from ray_snapshot.verdicts import Verdict


class Collective(NamedDetector):
    """True iff ranks of a group have stood in a collective for ten seconds that can never complete.

    None where it is not known whether a rank can still come: it is not observed, or in a wait of which it cannot be told what
    ends it; where torch counts nothing; where all ranks are there and none computes; and where the snapshot does not say where
    ranks stand. Evidence: `groups` (a sentence for each group of which a rank has waited so: who is in what, for how long,
    where the others are, and when a time-out ends it), `stuck` (machines), and `depends_on` if None. Not stable: a time-out
    ends it. Cost: that of `Deadlock`, once a rank has waited for so long.
    """

    type = "collective"
    stable = False

    def evaluate(self, snapshot: Snapshot) -> Verdict:
        """Put the waits of ranks into the wait-for graph, and reduce it."""
        if "collectives" not in snapshot.coverage:
            return answer(self, snapshot, None, {}, "The snapshot does not say where ranks stand in collectives.")
        if not (standing := groups(snapshot)):
            return answer(self, snapshot, False, {}, "No rank has waited in a collective for long.")
        waits = [one for group in standing for one in group.waits()]
        reduced = Deadlock().evaluate(_with_ranks(snapshot, waits))
        ends = [*reduced.evidence.get("members", ()), *reduced.evidence.get("stuck_behind", ())]
        names = {record["machine"] for record in ends} if reduced.holds else set()
        stuck = {one.member.machine for one in waits if one.is_lost or (one.is_known and one.name in names)}
        lines = [group.line(snapshot) for group in standing]
        text, evidence = " | ".join(lines), {"groups": lines, "stuck": sorted(stuck)}
        if stuck:
            return answer(self, snapshot, True, evidence, f"A collective cannot complete: {text}.")
        doubts = [*dict.fromkeys(doubt for one in waits for doubt in _doubts(one))]
        if reduced.holds is not False:
            doubts += reduced.evidence.get("depends_on") or ["who is deadlocked beside it"]
        if doubts:
            why = f"Whether a collective can complete cannot be told, for it depends on {listed(doubts)}: {text}."
            return answer(self, snapshot, None, {**evidence, "depends_on": doubts}, why)
        return answer(self, snapshot, False, evidence, f"A rank that others wait for goes on: {text}.")


def _doubts(wait: Wait) -> Iterator[str]:
    """What it depends on whether the collective that a rank waits in completes, beside what the rows of waits say."""
    member, missing = wait.member, wait.missing
    is_open = member.call is None or member.number < 0 or (all(one.is_gone for one in missing) and not member.is_quiet)
    if wait.strange:
        be = "is" if wait.strange == 1 else "are"
        yield f"{plural(wait.strange, 'rank')} of group {wait.group} that {be} not observed"
    elif member.is_quiet and not missing:
        yield f"what keeps {member.operation} of group {wait.group} from completing"
    elif missing and not wait.is_lost and is_open:
        yield f"whether {listed(one.machine for one in missing)} did what {member.operation} of group {wait.group} needs"


def _with_ranks(snapshot: Snapshot, waits: Sequence[Wait]) -> Snapshot:
    """A copy with these waits as rows of `waits`, each for what stands for its collective; and not as what cannot be told.

    That goes on as soon as any of those can that could do anything for it. A thread of one of these that acts may, or not.
    """
    table, machines = snapshot.tables["waits"], snapshot.tables["machines"]
    common: dict[str, Any] = {"alternative": 0, "k": 1, "satisfied": False}
    acting = {str(text).rpartition(" of ")[2] for text in snapshot.coverage.get("uncovered") or ()}
    known = [one for one in waits if one.is_known and one.member.call is not None]
    calls = [(one.member.machine, None if one.member.call == DRIVER else one.member.call, one.name) for one in known]
    added = [{"machine": machine, "call_id": call, "on_machine": name, **common} for machine, call, name in calls]
    for (name, _), one in {(one.name, id(one.awaited)): one for one in known}.items():  # groups may have one name
        on = [other.machine for other in one.awaited] or [name]
        added += [{"machine": name, "on_machine": other, **common} for other in on]
        added += [{"machine": name, **common} for other in on if other in acting][:1]
    rows = pa.concat_tables([table, pa.Table.from_pylist(added, schema=table.schema)])
    owners = {*zip(rows["machine"].to_pylist(), rows["call_id"].to_pylist(), strict=True)}
    others = {row["machine"] for row in snapshot.calls if (row["machine"], row["call_id"]) not in owners}
    blocked = {row["machine"] for row in added} - others
    names = [{"machine": name, "status": "blocked"} for name in dict.fromkeys(one.name for one in known)]
    machines = pa.concat_tables([pa.Table.from_pylist(names, schema=machines.schema), machines])
    copied = snapshot.with_rows(machines=with_statuses(machines, dict.fromkeys(blocked, "blocked")), waits=rows)
    sites = {(one.member.machine, one.member.call_site) for one in waits}
    whole = [row for row in snapshot.coverage.get("unexplained") or () if isinstance(row, Mapping)]
    unknown = [row for row in whole if (row.get("machine"), row.get("call_site")) not in sites]
    copied.coverage = {**snapshot.coverage, "unexplained": unknown}
    return copied
