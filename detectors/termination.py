"""Is the computation over: is every machine passive and nothing on its way?

"Everyone is idle" alone is not termination: a message in flight wakes its target. The snapshot holds both
at one consistent moment, so the conjunction is stable and can be believed (Chandy and Lamport 1985, section
4).
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ray_snapshot.detectors.common import (
    answer,
    at_rest,
    check_name,
    is_any_of,
    lasted,
    parties,
    plural,
    positions,
    texts,
    uncovered,
    unsound,
)
from ray_snapshot.detectors.deadlock import Deadlock
from ray_snapshot.detectors.groups import check_group, is_pattern
from ray_snapshot.detectors.part import judge_part
from ray_snapshot.errors import SettingError
from ray_snapshot.limits import LIMITS
from ray_snapshot.names import CALLS, DRIVER, listed
from ray_snapshot.snapshot import Snapshot
from ray_snapshot.verdicts import Verdict

_KEYS = ["source", "target", "kind"]
_STATUSES = ("active", "passive", "blocked", "stopped")


class Termination:
    """True iff every machine (the driver too) is passive or stopped and no message is in flight, timers
    included.

    - A blocked machine is not done: False. Whether it is stuck, `Deadlock` tells, and the sentence says the same.
    - A message on its way to a stopped machine can never be accepted; it is counted (`undeliverable`), but
      is no work.
    - With anything uncovered that could still act the answer is None instead of True.

    With `machines` (names, or patterns such as `worker-*`) it is decided of that group alone: True iff no member can ever
    act again. False: a member is active or blocked, or a message is in flight to one. None: all is quiet there, but a machine
    outside that can act, or can be woken by one that can, may still send to it. Declared inputs of the members
    (`system.connect(source, target, port=...)`) rule senders out, and so does `senders`, the names of all that ever send to
    the group from outside (an empty list: no machine does). Evidence: `group`, `machines`, `active`, `blocked`, `in_flight`,
    `could_be_woken_by`. Stable for exact names; under a pattern another machine may be born, so then `stable` is False.

    Cost: O(machines + channels + messages); of a group, and where nothing but blocked machines is left, O(V + E) as `Deadlock`.
    """

    stable: bool = True
    alarm_when: bool | None = None
    looks_at = frozenset({"statuses"})

    def __init__(self, *, machines: Any = None, senders: Any = None, name: str | None = None) -> None:
        self.machines = None if machines is None else check_group(machines)
        self.senders = [] if senders in ([], ()) else None if senders is None else check_group(senders, "senders")
        if self.machines is None and self.senders is not None:
            raise SettingError("Termination(senders=...): say whose termination, by machines=[...]")
        self.stable = not any(map(is_pattern, (*(self.machines or ()), *(self.senders or ()))))
        whole = "termination" if self.machines is None else f"termination({','.join(self.machines)})"
        self.name = check_name(whole if name is None else name)
        self.spec: dict[str, Any] = {"type": "termination", "name": self.name}
        if self.machines is not None:
            self.spec["machines"] = self.machines
        if self.senders is not None:
            self.spec["senders"] = self.senders

    def __repr__(self) -> str:
        settings = [f"machines={self.machines}"] if self.machines is not None else []
        settings += [f"senders={self.senders}"] if self.senders is not None else []
        return f"Termination({', '.join([*settings, f'name={self.name!r}'])})"

    def evaluate(self, snapshot: Snapshot) -> Verdict:
        """Decide from the statuses of the machines and from what is in flight."""
        reason = unsound(snapshot)
        if reason:
            return answer(self, snapshot, None, {}, f"Termination cannot be told: {reason}.")
        if self.machines is not None:
            return answer(self, snapshot, *judge_part(snapshot, self.machines, self.senders))
        evidence = {**_machines(snapshot), **_in_flight(snapshot)}
        if evidence["active"] or evidence["blocked"] or evidence["in_flight"]:
            return answer(self, snapshot, False, evidence, _why_not(snapshot, evidence))
        unseen = uncovered(snapshot)
        if unseen:
            evidence["uncovered"] = unseen
            text = f"Termination cannot be told: all is quiet, but this was not observed: {listed(unseen)}."
            return answer(self, snapshot, None, evidence, text)
        text = f"Terminated: {parties(snapshot, evidence['machines'])} {at_rest(snapshot)}, nothing in flight."
        return answer(self, snapshot, True, evidence, text)


def _machines(snapshot: Snapshot) -> dict[str, Any]:
    """How many machines have which status (an unknown one counts as active); the first that are not done."""
    table, absent = snapshot.parted
    at_rest = 0 if absent is None else absent.count
    statuses = snapshot.statuses_of(table)
    idle = {status: statuses.are(status) for status in _STATUSES[1:]}
    active = ~np.logical_or.reduce(list(idle.values()))
    names = texts(table["machine"])
    counts = {status: int(rows.sum()) for status, rows in idle.items()}
    counts["passive"] += at_rest
    return {
        "machines": table.num_rows + at_rest,
        "active": int(active.sum()),
        **counts,
        "first_active": names.take(np.flatnonzero(active)[: LIMITS.named_machines]).to_pylist(),
        "first_blocked": names.take(np.flatnonzero(idle["blocked"])[: LIMITS.named_machines]).to_pylist(),
    }


def _in_flight(snapshot: Snapshot) -> dict[str, Any]:
    """How much is in flight, by channel; what goes to stopped machines apart."""
    messages, channels = snapshot.tables["messages"], snapshot.tables["channels"]
    is_told_by_channels = messages.num_rows < (pc.sum(channels["in_flight_count"]).as_py() or 0)
    rows = channels.filter(pc.greater(channels["in_flight_count"], 0)) if is_told_by_channels else messages
    count = rows["in_flight_count"].to_numpy() if is_told_by_channels else np.ones(rows.num_rows, np.int64)
    machines, _ = snapshot.parted  # none that is absent has stopped
    stopped = texts(machines["machine"]).filter(pa.array(snapshot.statuses_of(machines).are("stopped")))
    lost = positions(texts(rows["target"]), stopped) >= 0 if len(stopped) else np.zeros(rows.num_rows, np.bool_)
    timers = is_any_of(rows["kind"], "timer")
    coming = rows.filter(pa.array(~lost)) if lost.any() else rows
    return {
        "in_flight": int(count[~lost].sum()),
        "timers": int(count[~lost & timers].sum()),
        "undeliverable": int(count[lost].sum()),
        "first_channels": (_first_rows if is_told_by_channels else _first_channels)(coming),
    }


def _first_rows(channels: pa.Table) -> list[dict[str, Any]]:
    first = channels.slice(0, LIMITS.named_machines).select([*_KEYS, "in_flight_count"])
    found: list[dict[str, Any]] = first.rename_columns([*_KEYS, "count"]).to_pylist()
    return found


def _first_channels(messages: pa.Table) -> list[dict[str, Any]]:
    """`source, target, kind` of the channels of the first messages, and the `count` of messages in each."""
    rows = messages.select(_KEYS).append_column("at", pa.array(np.arange(messages.num_rows)))
    each = rows.group_by(_KEYS, use_threads=False).aggregate([("at", "min"), ("at", "count")])
    first = each.take(pc.select_k_unstable(each, k=LIMITS.named_machines, sort_keys=[("at_min", "ascending")]))
    found: list[dict[str, Any]] = first.select([*_KEYS, "at_count"]).rename_columns([*_KEYS, "count"]).to_pylist()
    return found


def _why_not(snapshot: Snapshot, evidence: dict[str, Any]) -> str:
    reasons = []
    if evidence["active"]:
        reasons.append(_active(snapshot, evidence["first_active"], evidence["active"]))
    if evidence["in_flight"]:
        first = evidence["first_channels"][0]
        where = f"the first from {first['source']} to {first['target']}"
        reasons.append(f"{plural(evidence['in_flight'], 'message')} in flight ({where})")
    head = "Not terminated"
    if evidence["blocked"]:
        deadlock = None if reasons else Deadlock().evaluate(snapshot)
        head += " (stuck, not done)" if deadlock is not None and deadlock.holds else ""
        about = "" if deadlock is None else _OF_BLOCKED[deadlock.holds]
        reasons.append(f"{listed(evidence['first_blocked'], evidence['blocked'])} blocked{about}")
    if evidence["first_active"] == [DRIVER] and len(reasons) == 1:
        reasons.append("nothing else goes on" if snapshot.protocol == CALLS else _ONLY_DRIVER)
    return f"{head}: {'; '.join(reasons)}."


_OF_BLOCKED = {
    True: "",
    False: ", and what is waited for has come or can still come",
    None: ", and whether what is waited for can come cannot be told",
}
"""By the answer of `Deadlock`."""


def _active(snapshot: Snapshot, first: list[str], count: int) -> str:
    """ "a active", and of what runs calls, where and how long: "nap-0 still runs nap (at app.py:5, for 12 s)"."""
    calls = snapshot.tables["calls"]
    rows = calls.filter(pa.array(is_any_of(calls["machine"], *first)))
    if not rows.num_rows:
        return f"{listed(first, count)} active"
    running: dict[str, dict[str, Any]] = {}
    for row in rows.sort_by("started_at").to_pylist():
        if row["call_id"] is not None:  # not a wait of no call
            running.setdefault(row["machine"], row)
    shown = [name for name in first if name in running][: LIMITS.named_running]
    machines = snapshot.parted[0].select(["machine", "class_name"])
    found = machines.filter(pa.array(is_any_of(machines["machine"], *shown))).to_pylist()
    classes = {row["machine"]: row["class_name"] for row in found}
    parts = [f"{name} still runs {_doing(running[name], classes[name], snapshot.started_at)}" for name in shown]
    rest = [name for name in first if name not in shown]
    return "; ".join([*parts, *([f"{listed(rest, count - len(shown))} active"] if rest else [])])


def _doing(call: dict[str, Any], class_name: str | None, now: datetime) -> str:
    about = [f"at {call['call_site']}"] if call["call_site"] else []
    if call["started_at"] is not None:
        about.append(f"for {lasted((now - call['started_at']).total_seconds())}")
    name = f"{class_name}.{call['method']}" if class_name else str(call["method"])
    return name + (f" ({', '.join(about)})" if about else "")


_ONLY_DRIVER = (
    "all machines are at rest, and only the program that drives them may act: it is passive while it sits in wait_for, so"
    " termination may have held before"
)
