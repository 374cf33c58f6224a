"""Is there a collective of torch.distributed that cannot complete, because a rank can never come to it?

The waits of ranks are put into the wait-for graph of `Deadlock`: a rank that has stood in a collective for long goes on once
any rank can act that may still have to do something there. A rank that has died, or has left the group, never does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from ray_snapshot.detectors.common import answer, check_name, listed, plural
from ray_snapshot.detectors.deadlock import Deadlock
from ray_snapshot.detectors.rank_groups import Group, Member, groups
from ray_snapshot.names import DRIVER
from ray_snapshot.snapshot import Snapshot
from ray_snapshot.verdicts import Verdict


class Collective:
    """True iff ranks of a group have stood in a collective for ten seconds that can never complete.

    None where it is not known whether a rank can still come: it is not observed, or in a wait of which it cannot be told what
    ends it; and where all ranks are there and none computes. Evidence: `groups` (a sentence for each group of which a rank
    has waited so: who is in what, for how long, where the others are, and when a time-out ends it), `stuck` (machines), and
    `depends_on` if None. Not stable: a time-out ends it. Cost: that of `Deadlock`, once a rank has waited for so long.
    """

    stable: bool = False
    alarm_when: bool | None = True
    looks_at = frozenset({"statuses"})

    def __init__(self, *, name: str = "collective") -> None:
        self.name = check_name(name)
        self.spec: dict[str, Any] = {"type": "collective", "name": name}

    def __repr__(self) -> str:
        return f"Collective(name={self.name!r})"

    def evaluate(self, snapshot: Snapshot) -> Verdict:
        """Put the waits of ranks into the wait-for graph, and reduce it."""
        found = groups(snapshot)
        if not found:
            return answer(self, snapshot, False, {}, "No rank has waited in a collective for long.")
        waits = [(group, member) for group in found for member in group.members if member.waits]
        reduced = Deadlock().evaluate(_with_ranks(snapshot, waits))
        ends = [*reduced.evidence.get("members", ()), *reduced.evidence.get("stuck_behind", ())]
        names = {record["machine"] for record in ends}
        stuck = {one.machine for group, one in waits if _is_lost(group, one)}
        if reduced.holds:
            stuck |= {one.machine for group, one in waits if _rows(group, one) and one.machine in names}
        lines = [group.line(snapshot) for group in found]
        told, evidence = " | ".join(lines), {"groups": lines, "stuck": sorted(stuck)}
        if stuck:
            return answer(self, snapshot, True, evidence, f"A collective cannot complete: {told}.")
        doubts = [*dict.fromkeys(doubt for group, one in waits for doubt in _doubts(group, one))]
        if reduced.holds is None:
            doubts += reduced.evidence.get("depends_on", ())
        if doubts:
            text = f"Whether a collective can complete cannot be told, for it depends on {listed(doubts)}: {told}."
            return answer(self, snapshot, None, {**evidence, "depends_on": doubts}, text)
        return answer(self, snapshot, False, evidence, f"A rank that others wait for goes on: {told}.")


def _is_lost(group: Group, member: Member) -> bool:
    """Whether all that a rank waits for has died or left, whatever its process does beside."""
    missing = group.missing(member)
    return bool(missing) and not group.strange and member.is_quiet and all(one.is_gone for one in missing)


def _rows(group: Group, member: Member) -> list[dict[str, Any]]:
    """What a rank waits for, as rows of `waits`; none if that is not known well enough."""
    missing = group.missing(member)
    if member.call is None or not member.is_quiet or not missing or group.strange:
        return []
    call = None if member.call == DRIVER else member.call
    on: list[dict[str, Any]] = [{"on_machine": one.machine} for one in missing if not one.is_gone]
    common = {"machine": member.machine, "call_id": call, "alternative": 0, "k": 1, "satisfied": False}
    return [{**common, **one} for one in on or [{"on_machine": member.machine, "on_call_id": call}]]


def _doubts(group: Group, member: Member) -> Iterator[str]:
    """What it depends on whether the collective that a rank waits in completes, beside what the rows of waits say."""
    missing = group.missing(member)
    if group.strange:
        yield f"{plural(group.strange, 'rank')} of group {group.name} that {'is' if group.strange == 1 else 'are'} not observed"
    elif member.is_quiet and not missing:
        yield f"what keeps {member.operation} of group {group.name} from completing"
    elif member.call is None and missing and not _is_lost(group, member):
        yield f"whether {listed(one.machine for one in missing)} comes to {member.operation} of group {group.name}"


def _with_ranks(snapshot: Snapshot, waits: Sequence[tuple[Group, Member]]) -> Snapshot:
    """A copy with the waits of these ranks as rows of `waits`, and not as what cannot be told."""
    table, machines = snapshot.tables["waits"], snapshot.tables["machines"]
    added = [row for group, member in waits for row in _rows(group, member)]
    rows = pa.concat_tables([table, pa.Table.from_pylist(added, schema=table.schema)])
    owners = {*zip(rows["machine"].to_pylist(), rows["call_id"].to_pylist(), strict=True)}
    acting = {row["machine"] for row in snapshot.calls if (row["machine"], row["call_id"]) not in owners}
    blocked = {row["machine"] for row in added} - acting
    names, statuses = machines["machine"].to_pylist(), machines["status"].to_pylist()
    status = ["blocked" if name in blocked else one for name, one in zip(names, statuses, strict=True)]
    at = machines.schema.get_field_index("status")
    machines = machines.set_column(at, machines.schema.field(at), pa.array(status, machines.schema.field(at).type))
    copied = snapshot.with_rows(machines=machines, waits=rows)
    sites = {(member.machine, member.call_site) for _, member in waits}
    told = [
        row
        for row in snapshot.coverage.get("unexplained") or ()
        if isinstance(row, Mapping) and (row.get("machine"), row.get("call_site")) not in sites
    ]
    copied.coverage = {**snapshot.coverage, "unexplained": told}
    return copied
