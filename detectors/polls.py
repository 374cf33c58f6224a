"""Callers that ask again and again and get equal answers, in words and as waits.

The watcher lists them among what has `happened` (kind `poll`): `machine`, `call_id` (None: its program, or `thread`), `at`
(since when the answers are equal), `asked` (`machine`, `class`, `method`, `call_site`, `times`, `answer`, `calls` of each),
`is_bounded` (the loop ends by itself, too), `is_moving` (who is asked has changed, or a thread works), `is_young` (it is
listed for the verdict alone), `counters` (see `Poll`). Without a `machine` Ray is asked: for the replies to `calls`, or for
an actor by its name. `is_wait`: it asks nobody, but waits with a timeout; any of `calls` (machine, and call or None) ends that.
`is_service`: nobody waits for its end.

In one snapshot a poll is a moment between two calls, or one of them: as a wait it ends when one of those changes whom it asks,
when a reply comes, or, of a name, when anything acts. So its own calls are taken out, and it waits for these.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import pyarrow as pa

from ray_snapshot.detectors.common import lasted, with_statuses
from ray_snapshot.evidence import needs_in
from ray_snapshot.names import DRIVER, listed, name_ranges
from ray_snapshot.schema import SNAPSHOT_TABLES
from ray_snapshot.snapshot import Snapshot
from ray_snapshot.verdicts import Verdict


class PolledRow(NamedTuple):
    """Whom it asks."""

    machine: str
    """Empty: Ray is asked."""
    method: str
    call_site: str
    answer: str
    name: str
    """The method with its class."""
    times: int
    calls: tuple[tuple[str | None, str | None], ...]
    """(machine, id) of those whose replies Ray is asked for."""

    @property
    def what(self) -> str:
        """What would have to change."""
        of_ray = "which names are taken" if self.method.startswith("ray.get_actor") else "what Ray takes"
        return self.machine or ("which replies have come" if self.calls else of_ray)


class Poll(NamedTuple):
    """One of them."""

    machine: str
    call_id: str | None
    thread: str
    seconds: float
    asked: tuple[PolledRow, ...]
    may_end: bool
    """Something beside the answer may end it, or change that soon."""
    counters: tuple[str, ...] | None
    """Of those whom it asks, what counts its calls, if nothing else changes there, and the answers depend on nothing else."""
    is_wait: bool = False
    is_service: bool = False
    """It waits so, and nobody for it: then it is at rest."""
    alike: int = 1
    """So many calls wait there, with this one."""

    def __str__(self) -> str:
        """ "driver asks Buffer.sample (polling.py:17) 150 times in 30 s, always None"."""
        if self.is_wait:
            of = f", {self.alike:,} calls" if self.alike > 1 else ""
            site, what = self.asked[0].call_site, self.asked[0].method
            head = f"{self.machine} ({site}{of}) has waited for {lasted(self.seconds)} in {what}"
            return f"{head}, again and again" if self.asked[0].times > 1 else f"{head}: it is too early to tell"
        groups: dict[tuple[str, str], list[PolledRow]] = {}
        for one in self.asked:
            groups.setdefault((one.name, one.call_site), []).append(one)
        parts = []
        for (name, site), those in groups.items():
            of = f" of {len({one.machine for one in those}):,} actors" if len(those) > 1 else ""
            answer, *others = {one.answer for one in those}
            always = f"always {answer}" if answer and not others else "always the same"
            parts.append(
                f"{name}{of} ({site}) {sum(one.times for one in those):,} times in {lasted(self.seconds)}, {always}"
            )
        who = f"thread {self.thread} of {self.machine}" if self.thread else self.machine
        return f"{who} asks {listed(parts)}"

    @property
    def depends_on(self) -> str:
        """What would decide it, for the evidence of a verdict."""
        if self.is_wait:
            return f"what ends the wait of {self.machine} in {self.asked[0].method}"
        names = [*dict.fromkeys(f"{one.method} of {one.machine}" for one in self.asked if one.machine)]
        return f"what {listed(names)} depends on beside calls" if names else f"whether {self.machine} gives up asking"

    @property
    def unless(self) -> str:
        """What would refute the suspicion that it asks for ever."""
        names = listed(dict.fromkeys(one.name for one in self.asked))
        counted = f", or on how often it is asked ({listed(self.counters)})" if self.counters else ""
        return f"{names} depends on something outside{counted}"


class OnlyAsking:
    """Polls beside which nothing goes on."""

    def __init__(self, polls: Sequence[Poll], as_waits: Verdict, channels: pa.Table) -> None:
        """`as_waits`: the verdict on the snapshot in which each is a wait."""
        self.polls = polls
        self.told = _together([one for one in polls if not one.is_service] or polls)
        """Those that wait alike are one."""
        asked = [*dict.fromkeys(by.what for one in polls for by in one.asked if not one.is_wait)]
        counts = channels.select(["source", "target", "sent_count"]).to_pylist()
        callers = {
            row["source"] for row in counts if row["target"] in asked and row["sent_count"] > 1
        }  # or constructors
        others = callers - {one.machine for one in polls}
        before = f" (called before by {name_ranges(sorted(others))})" * bool(others)
        change = f"change {listed(asked)}{before}" if asked else f"end {'this' if len(self.told) == 1 else 'these'}"
        self.nothing_else = f"Nothing else that {'runs' if as_waits.holds else 'was observed'} can {change}"
        stuck = {one["machine"] for name in ("members", "stuck_behind") for one in as_waits.evidence.get(name, ())}
        is_known = all(one.counters is not None for one in polls) and as_waits.holds
        is_told = is_known and DRIVER in stuck and not needs_in(as_waits.evidence)  # for which a node may join
        self.unless = ", or ".join(dict.fromkeys(one.unless for one in polls)) if is_told else ""
        """What would refute the suspicion that they ask for ever; "" if there is none, for not enough is known."""


def _together(polls: Sequence[Poll]) -> list[Poll]:
    found: dict[tuple[object, ...], list[Poll]] = {}
    for one in polls:
        found.setdefault((one.machine, one.asked[0].call_site) if one.is_wait else (id(one),), []).append(one)
    return [max(those, key=lambda one: one.seconds)._replace(alike=len(those)) for those in found.values()]


def poll_of(row: Mapping[str, Any], now: datetime) -> Poll:
    """What the coverage says of it."""
    asked = []
    for one in row["asked"]:
        name = ".".join(filter(None, (one["class"], one["method"])))
        calls = tuple((by["machine"], by["call_id"]) for by in one.get("calls", ()))
        machine, method, site, answer = (str(one[key]) for key in PolledRow._fields[:4])
        asked.append(PolledRow(machine, method, site, answer, name, int(one["times"]), calls))
    seconds = (now - datetime.fromisoformat(row["at"])).total_seconds()
    call_id = None if row["call_id"] is None else str(row["call_id"])
    may_end, counters = bool(row["is_bounded"] or row["is_moving"]), row.get("counters")
    names = tuple(map(str, counters)) if isinstance(counters, list) else None
    about = str(row["machine"]), call_id, str(row["thread"]), seconds, tuple(asked), may_end, names
    return Poll(*about, bool(row.get("is_wait")), bool(row.get("is_service")))


def with_polls_as_waits(snapshot: Snapshot, every: Sequence[Poll]) -> Snapshot:
    """A copy in which each waits until one of those changes whom it asks, and services are at rest."""
    polls = [one for one in every if not one.is_service]
    rows = {name: snapshot.tables[name].to_pylist() for name in ("messages", "calls", "waits")}
    open_calls = {row["call_id"] for name in ("messages", "calls") for row in rows[name]}
    who = {(one.machine, one.call_id) for one in polls}
    asked = {(one.machine, on.machine, on.method) for one in polls for on in one.asked}
    gone = {row["call_id"] for row in rows["messages"] if (row["source"], row["target"], row["method"]) in asked}
    gone |= {row["call_id"] for row in rows["calls"] if (row["caller"], row["machine"], row["method"]) in asked}
    gone |= {one.call_id for one in every if one.is_service}
    replies = (call for one in polls if not one.is_wait for on in one.asked for _, call in on.calls)
    stay = {*replies, *(by for _, by in who), None}
    gone -= stay
    while more := {row["on_call_id"] for row in rows["waits"] if row["call_id"] in gone} - gone - stay:
        gone |= more  # what these calls have called
    rows["messages"] = [row for row in rows["messages"] if row["call_id"] not in gone]
    left = {row["machine"] for row in rows["calls"] if row["call_id"] in gone}
    rows["calls"] = [row for row in rows["calls"] if row["call_id"] not in gone]
    own = (row for row in rows["waits"] if (row["machine"], row["call_id"]) not in who or row["satisfied"])
    callers = {machine for machine, _ in who}  # of which a callback may wait for an answer
    own = (row for row in own if row["machine"] not in callers or row["on_call_id"] not in gone)
    rounds = {(one.machine, one.call_id, on.machine) for one in polls for on in one.asked}
    own = (row for row in own if (row["machine"], row["call_id"], row["on_machine"]) not in rounds)
    rows["waits"] = [row for row in own if row["call_id"] not in gone]
    about = {"snapshot_id": snapshot.snapshot_id, "run_id": snapshot.run_id, "alternative": _POLLED, "k": 1}
    for one in polls:
        mine = about | {"machine": one.machine, "call_id": one.call_id}
        others = {one.machine, ""}  # it asks Ray for a name, or its own machine, which anything may change
        each = (by.calls or ((_NAMES if by.machine in others else by.machine, None),) for by in one.asked)
        for on, call in dict.fromkeys(itertools.chain.from_iterable(each)):
            if call in gone:
                continue  # it asks, and goes round
            is_over = call is not None and call not in open_calls
            rows["waits"].append(mine | {"on_machine": on, "on_call_id": call, "satisfied": is_over})
    waiting = {(row["machine"], row["call_id"]) for row in rows["waits"]}
    running: dict[str, list[bool]] = {}
    for row in rows["calls"]:
        if row["call_id"] is not None:
            running.setdefault(row["machine"], []).append((row["machine"], row["call_id"]) in waiting)
    machines = snapshot.tables["machines"]
    status = dict(zip(machines["machine"].to_pylist(), machines["status"].to_pylist(), strict=True))
    for name in {*left, *(machine for machine, _ in who)} & status.keys():
        those = running.get(name)
        if (name, None) in who or (those and all(those)):
            status[name] = "blocked"
        elif status[name] != "stopped":
            status[name] = "active" if those else "passive"
    tables = {name: pa.Table.from_pylist(changed, schema=SNAPSHOT_TABLES[name]) for name, changed in rows.items()}
    names = Snapshot.from_rows(machines=[{"machine": _NAMES, "status": "passive"}]).tables["machines"]
    machines = pa.concat_tables([with_statuses(machines, status), names]).sort_by("machine")
    return snapshot.with_rows(machines=machines, **tables)


_NAMES = "any other machine"
"""In that copy: a machine that moves as soon as any does."""

_POLLED = 1_000_000
"""There, too: the alternative of what is asked, beside those of its waits."""
