"""What has happened before a snapshot, in words: deaths, restarts, threads and children that failed, unread errors of calls.

The watcher lists it in the coverage (`happened`), the newest first; each has `kind`, `machine`, `class` and `at` (ISO 8601).

- `raised`: `method`, `error` (a type), `call_site`, `count`; `is_retried`: Ray retries the call, else the error is unread.
- `thread_ended`: `thread` (its name), `error`, `call_site`; `is_task`: an asyncio task, seen at `at`, whose error is unread.
- `child_ended`: `pid`, `program`, `how`; `at` is that of the snapshot; without `how` the app has asked, and there is `seen_at`.
- `died`: `cause`; `passed_through` (`machine` and `method` of each): what it got through last where others wait now.
- `restarted`: a process of an actor died, and Ray has begun another: `cause`, `count` (of its restarts); `lost` (`method` and
  `caller` of each): calls in which it was seen last, which Ray does not run again, and nothing waits for.
- `poll`: see `polls`.
- `restarting`: `count`, `began`, `cause`; `method`, `call_site`, `is_seen`, `is_each`, `of_ends` (how often, of how many):
  where it was when it died; `is_awaited`: whether it has calls to do.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from ray_snapshot.detectors.common import lasted
from ray_snapshot.detectors.polls import Poll, poll_of
from ray_snapshot.names import listed
from ray_snapshot.snapshot import Snapshot


def happened(snapshot: Snapshot, *, is_clear: bool = False) -> list[str]:
    """A sentence of each, the newest first. `is_clear`: nothing hangs, so a restart by which no call was lost is no news."""
    told = (one for one in rows(snapshot) if not (one.get("is_young") or one.get("is_wait")))
    shown = (one for one in told if not is_clear or one["kind"] != "restarted" or one["lost"])
    return [sentence(one, snapshot.started_at) for one in shown]


def polls(snapshot: Snapshot) -> list[Poll]:
    """The callers that ask again and again and get equal answers."""
    return [poll_of(one, snapshot.started_at) for one in rows(snapshot) if one["kind"] == "poll"]


def rows(snapshot: Snapshot) -> list[Mapping[str, Any]]:
    """All that the coverage lists, as far as it has the form."""
    told = snapshot.coverage.get("happened") if isinstance(snapshot.coverage, Mapping) else None
    return [one for one in told if _is_read(one, snapshot.started_at)] if isinstance(told, list) else []


def died_behind(snapshot: Snapshot, machines: Collection[str]) -> list[str]:
    """Who has died that had got through a method of one of these in which others wait."""
    dead = (one for one in rows(snapshot) if one["kind"] == "died")
    return [
        str(one["machine"]) for one in dead if any(by["machine"] in machines for by in one.get("passed_through") or ())
    ]


def ended_threads(snapshot: Snapshot, machine: str) -> list[str]:
    """A sentence of each thread or task of this machine that an exception has ended."""
    own = (one for one in rows(snapshot) if one["kind"] == "thread_ended" and one["machine"] == machine)
    return [sentence(one, snapshot.started_at) for one in own]


def restarted(snapshot: Snapshot) -> set[str]:
    """The actors whose process has died, and that Ray has begun again."""
    return {str(one["machine"]) for one in rows(snapshot) if one["kind"] in ("restarted", "restarting")}


def _is_read(one: Any, now: datetime) -> bool:
    try:
        return bool(sentence(one, now))
    except (TypeError, ValueError, KeyError):
        return False


def sentence(one: Mapping[str, Any], now: datetime) -> str:
    """ "painter-1.paint raised ZeroDivisionError at 12:03:11 (paint.py:14); nobody has read it"."""
    name = str(one["machine"])
    place = f" ({one['call_site']})" if one.get("call_site") else ""
    if one["kind"] == "thread_ended":
        kind = "task" if one.get("is_task") else "thread"
        return f"{name}: {kind} {one['thread']} was ended by {one['error']} at {_clock(one)}{place}"
    if one["kind"] == "child_ended":
        since = f"has ended since {datetime.fromtimestamp(one.get('seen_at') or 0):%H:%M:%S}; how is not known"
        how = f"ended with {one['how']} and was not waited for" if one["how"] else since
        return f"{name}: child process {one['pid']} ({one['program']}) {how}"
    if one["kind"] == "raised":
        if one.get("is_retried"):
            times = f"{one['count']:,} times, the last time"
            return f"{name}.{one['method']} raised {one['error']} {times} at {_clock(one)}{place}; Ray runs it again"
        return f"{name}.{one['method']} raised {one['error']} at {_clock(one)}{place}; nobody has read it"
    if one["kind"] == "died":
        through = listed([f"{by['method']} of {by['machine']}" for by in one.get("passed_through") or ()])
        last = f", which had got through {through}," if through else ""
        return f"{name}{last} died at {_clock(one)} ({one['cause']})"
    if one["kind"] == "restarted":
        lost = [f"{one['class']}.{by['method']}, called by {by['caller']}," for by in one["lost"]]
        seen = f"; it was last seen in {listed(lost)} for which nobody waits" * bool(lost)
        again = f", {one['count']:,} times so far" * (one["count"] > 1)
        return f"{name} died at {_clock(one)} ({one['cause']}), and was restarted{again}{seen}"
    if one["kind"] == "restarting":
        return str(RestartLoop.of(one))
    if one["kind"] == "poll":
        return str(poll_of(one, now))
    return ""


def _clock(one: Mapping[str, Any]) -> str:
    """ "12:03:11", where this is read."""
    return f"{datetime.fromisoformat(one['at']).astimezone():%H:%M:%S}"


class RestartLoop(NamedTuple):
    """An actor that is started again and again."""

    machine: str
    restarts: int
    seconds: float
    inside: str
    """Where it was when it died: "each time inside Model.load (b10.py:10)"; "" if that is not known."""
    cause: str
    is_awaited: bool
    """Calls wait for it, or run there."""

    def __str__(self) -> str:
        """ "Model-0 has been restarted 41 times in 90 s, each time inside Model.load (b10.py:10), exit code 137"."""
        more = [text for text in (self.inside, self.cause) if text]
        return ", ".join(
            [f"{self.machine} has been restarted {self.restarts:,} times in {lasted(self.seconds)}", *more]
        )

    @classmethod
    def of(cls, one: Mapping[str, Any]) -> RestartLoop:
        """What the coverage says of it."""
        began, last = (datetime.fromisoformat(one[name]).replace(tzinfo=UTC) for name in ("began", "at"))
        call = f"{one['class']}.{one['method']}" + (f" ({one['call_site']})" if one.get("call_site") else "")
        times, ends = one.get("of_ends") or (1, 1)
        when = (
            "each time" if one.get("is_each") else f"{times} of the last {ends} times" if ends > 1 else "the last time"
        )
        inside = f"{when} inside {call}" if one.get("is_seen") else f"with {call} to do"
        seconds = (last - began).total_seconds()
        return cls(
            str(one["machine"]),
            int(one["count"]),
            seconds,
            inside if one["method"] else "",
            str(one["cause"]),
            bool(one.get("is_awaited")),
        )

    @property
    def depends_on(self) -> str:
        """What would decide it, for the evidence of a verdict."""
        return f"whether {self.machine} stays alive"


def restart_loops(snapshot: Snapshot) -> Iterator[RestartLoop]:
    """The actors that are started again and again."""
    return (RestartLoop.of(one) for one in rows(snapshot) if one["kind"] == "restarting")
