"""What was found of one program, as a row (`--json`) and as lines for a terminal. Pure.

Every word of it is a suspicion: only a program that was started with `ray-snapshot run` is known to be deadlocked.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict
from datetime import datetime
from functools import cache
from typing import Any

from ray_snapshot.detectors.common import at_most, held_texts
from ray_snapshot.instrument.deaths import KILLED
from ray_snapshot.instrument.frames import cut_middle
from ray_snapshot.limits import LIMITS
from ray_snapshot.names import LONG_S, name_ranges
from ray_snapshot.unprepared.judging import NONE, SUSPECTED, UNKNOWN, Finding
from ray_snapshot.unprepared.records import ALIVE, IN_QUEUE, RUNNING, WAITS_FOR_NODE, Actor, Dead, Look, Task
from ray_snapshot.views.report import MOST_LINES, chain, happened_lines, screenful, wait_lines

_STACKS = (
    "install py-spy where the cluster runs (`pip install 'ray-snapshot[stacks]'`): stacks tell a wait without a time-out from"
    " one with, and show the line"
)
_REFUSED = (
    "py-spy may not read the processes: set the kernel's `kernel.yama.ptrace_scope` to 0, start the container with"
    " `--cap-add SYS_PTRACE`, or ask as the user who runs Ray"
)


class Names:
    """How actors, tasks and drivers are called in one look: by Ray's name, else by class and a number."""

    def __init__(self, look: Look, job: str = "") -> None:
        """`job`: actors of other ones are told with their classes and jobs."""
        self.look = look
        self._actors: dict[str, str] = {}
        counts: Counter[tuple[str, str]] = Counter()
        every: list[Actor | Dead] = [*look.actors.values(), *look.dead.values()]
        for actor in sorted(every, key=lambda one: (one.began_ms or 1 << 60, one.key)):
            number = counts[actor.job, actor.kind]
            counts[actor.job, actor.kind] += 1
            self._actors[actor.key] = actor.name or f"{actor.kind}-{number}"
            if job not in ("", actor.job):
                detached = "detached " if isinstance(actor, Actor) and actor.is_detached else ""
                self._actors[actor.key] += f" (a {detached}{actor.kind} of job {actor.job})"
        self._tasks: dict[str, str] = {}
        running = (task for task in look.tasks.values() if task.kind == "task" and task.state in RUNNING)
        for task in sorted(running, key=lambda one: (one.since_s, one.key)):
            number = counts[task.job, task.name]
            counts[task.job, task.name] += 1
            self._tasks[task.key] = f"{short(task.name)}-{number}"

    def of(self, key: str) -> str:
        """Of an actor, a task, a group or a driver."""
        if key in self._actors:
            return self._actors[key]
        if key in self.look.groups:
            group = self.look.groups[key]
            return f"group {group.name}" if group.name else f"group {key[:8]}"
        task = self.look.tasks.get(key)
        if task is None or task.kind == "driver":
            return "driver"
        if task.kind == "task":
            return self._tasks.get(key, f"{short(task.name)}()")
        return self._actors.get(task.actor, task.name.partition(".")[0])

    def filled(self, text: str) -> str:
        """A text in which `{key}` stands for a name."""
        return re.sub(r"\{([0-9a-f]{16,})\}", lambda found: self.of(found[1]), text)


def short(name: str) -> str:
    """A function's name without its module."""
    return name.rpartition(".")[2]


def row(finding: Finding, look: Look, address: str, apart_s: float) -> dict[str, Any]:
    """All that was found, of plain values."""
    names = Names(look, finding.job.key)
    members, behind = (
        sorted(
            (_record(key, finding, look, names) for key in keys[: LIMITS.json_rows]),
            key=lambda one: str(one["machine"]),
        )
        for keys in ((finding.core, finding.behind) if finding.verdict != NONE else ((), ()))
    )
    own = [task for task in look.tasks.values() if task.job == finding.job.key and task.kind != "driver"]
    waiting, actors = pending(own, finding, look, names), busy_actors(own, look, names)
    return {
        "kind": "unprepared",
        "verdict": finding.verdict,
        "address": address,
        "job": finding.job.key,
        "entrypoint": finding.job.entrypoint,
        "driver_pid": finding.job.pid,
        "unfinished": len(own),
        "looks_apart_s": round(apart_s, 1),
        "still_for_s": _still_for(finding, look),
        "members": members,
        "stuck_behind": behind,
        "pending": waiting[: LIMITS.json_rows],
        "actors": actors[: LIMITS.json_rows],
        "counts": {
            "members": len(finding.core),
            "stuck_behind": len(finding.behind),
            "pending": len(waiting),
            "actors": len(actors),
        },
        "stacks": _stacks(finding, names),
        "died": _deaths(finding, look, names),
        "reasons": [names.filled(text) for text in finding.reasons],
        "records": look.count,
        "may_be_incomplete": look.may_be_incomplete,
    }


def _deaths(finding: Finding, look: Look, names: Names) -> list[str]:
    """The actors of a program that have died, the latest first; those that were meant to only if killed, and others wait."""
    dead = [one for one in look.dead.values() if one.job == finding.job.key and one.cause]
    own = [one for one in dead if not one.is_meant or (finding.verdict != NONE and one.cause == KILLED)]
    return [
        f"{names.of(one.key)} died at {datetime.fromtimestamp(one.ended_ms / 1_000):%H:%M:%S} ({one.cause})"
        for one in own
    ][:MOST_LINES]


def _still_for(finding: Finding, look: Look) -> float | None:
    """For how long nothing of the core has moved, in seconds."""
    times = [look.tasks[key].since_s for key in finding.core if key in look.tasks]
    return round(look.at_s - max(times), 1) if times else None


def _record(key: str, finding: Finding, look: Look, names: Names) -> dict[str, Any]:
    """A line of the core, or behind it: of what runs or needs room; calls in queues are told with their actors."""
    task = look.tasks.get(key)
    if key in finding.graph.needs:
        method = "" if task is None else task.name
        needs, count = _needs(key, finding, look, names), len(finding.graph.needs[key].tasks)
        return {"machine": names.of(key), "method": short(method), "needs": needs, "count": max(1, count)}
    is_driver = task is None or task.kind == "driver"
    read = finding.readings.get(key)
    children = finding.graph.stuck_children(key, finding.stuck)
    calls = [child for child in children if child not in look.tasks or look.tasks[child].kind != "creation"]
    targets = _targets(calls or children, look, names)
    more = len(targets) - LIMITS.told_targets
    kind, _, method = ("", "", "(the program)") if task is None or is_driver else task.name.rpartition(".")
    return {
        "machine": names.of(key),
        "class": kind or None,
        "method": method,
        "call_site": f"{read.frames[0].file}:{read.frames[0].line}" if read and read.frames else None,
        "waits_for": targets[: LIMITS.told_targets] + ([f"{more} more"] if more > 0 else []),
        "primitive": read.frames[0].inside if read and read.frames else None,
        "does": read.why if read else None,
        "pid": task.pid if task is not None and not is_driver else finding.job.pid,
    }


def _targets(keys: Iterable[str], look: Look, names: Names) -> list[str]:
    """What is waited for: the actors of one method together, "A-[0-3] (A.go)"."""
    by_call: dict[str, dict[str, None]] = {}
    for key in keys:
        task = look.tasks.get(key)
        call = "" if task is None or task.kind in ("driver", "task") else f" ({task.name})"
        by_call.setdefault(call, {})[names.of(key)] = None
    return [name_ranges(those) + call for call, those in by_call.items()]


def _needs(key: str, finding: Finding, look: Look, names: Names) -> str:
    need = finding.graph.needs[key]
    wanted = " and ".join(_amounts(part) for part in need.parts)
    return f"{wanted}, and {_holding(need.parts, finding.stuck.holders.get(key, ()), look, names)}"


def _amounts(part: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {amount:g}" for name, amount in sorted(part.items())) or "a worker"


def _holding(parts: Collection[Mapping[str, float]], holders: Iterable[str], look: Look, names: Names) -> str:
    """`A holds CPU 1 of 2; ...`, or that no node has so much."""
    if beyond := _beyond(parts, look):
        return f"no node has more than {_amounts(beyond)}"
    wanted = {name for part in parts for name in part}
    total = {name: sum(node.has.get(name, 0.0) for node in look.nodes.values()) for name in wanted}
    told: dict[str, list[str]] = {}
    for holder in holders:
        held = [
            f"{name} {amount:g} of {total[name]:g}" for name, amount in _held(holder, look).items() if name in wanted
        ]
        if held:
            gives_back = (
                holder in look.tasks
                and look.tasks[holder].kind == "task"
                and any(one.startswith("CPU ") for one in held)
            )
            unless = ", but for its CPU while it waits in ray.get" if gives_back else ""
            told.setdefault(f"{', '.join(held)}{unless}", []).append(names.of(holder))
    return "; ".join(at_most(held_texts(told), LIMITS.told_targets, "")) or "what holds it is not recorded"


def _beyond(parts: Iterable[Mapping[str, float]], look: Look) -> dict[str, float]:
    """Of what no node has enough: how much the largest has."""
    wanted: dict[str, float] = defaultdict(float)
    for part in parts:
        for name, amount in part.items():
            wanted[name] = max(amount, wanted[name])
    most = {name: max((node.has.get(name, 0.0) for node in look.nodes.values()), default=0.0) for name in wanted}
    return {name: most[name] for name, amount in wanted.items() if most[name] < amount}


def _held(holder: str, look: Look) -> Mapping[str, float]:
    if holder in look.actors:
        return look.actors[holder].holds
    if holder in look.tasks:
        return look.tasks[holder].needs
    parts = [part for part, _ in look.groups[holder].bundles]
    return {name: sum(part.get(name, 0.0) for part in parts) for name in dict.fromkeys(itertools.chain(*parts))}


_PENDING = ("task", "of", "count", "needs", "is_stuck", "waited_s", "is_infeasible", "holding")


def pending(own: Iterable[Task], finding: Finding, look: Look, names: Names) -> list[dict[str, Any]]:
    """What waits for room, alike ones together: what it needs, who has it, and for how long it has waited."""
    alike: dict[tuple[Any, ...], list[Task]] = defaultdict(list)
    holding = cache(lambda needs: _holding([dict(needs)], _all_holders(dict(needs), look), look, names))
    for task in own:
        if task.state == WAITS_FOR_NODE and task.kind in ("task", "creation"):
            parent = names.of(task.parent) if task.parent in look.tasks else "a call that has ended"
            alike[task.name, parent, tuple(sorted(task.needs.items()))].append(task)
    found: list[tuple[Any, ...]] = []
    for (_, parent, needs), tasks in list(alike.items())[: LIMITS.json_rows]:
        first = min(tasks, key=lambda one: one.since_s)
        waited_s = round(look.at_s - first.since_s, 1)
        never = waited_s >= LONG_S and look.grows is False and bool(_beyond([first.needs], look))
        name = names.of(first.key) if first.kind == "task" else first.name
        is_stuck = finding.graph.node[first.key] in finding.stuck.nodes
        found.append((name, parent, len(tasks), dict(first.needs), is_stuck, waited_s, never, holding(needs)))
    for group in look.groups.values():
        if group.job == finding.job.key and not group.is_created:
            parts = [part for part, _ in group.bundles]
            wanted: dict[str, float] = {name: amount for part in parts for name, amount in part.items()}
            parent, is_stuck = names.of(group.made_in) if group.made_in else "driver", group.key in finding.stuck.nodes
            held = _holding(parts, _all_holders(wanted, look), look, names)
            found.append((names.of(group.key), parent, 1, wanted, is_stuck, None, False, held))
    return [dict(zip(_PENDING, one, strict=True)) for one in found]


def _all_holders(needs: Mapping[str, float], look: Look) -> list[str]:
    """Who has any of it now, stuck or not."""
    there = [actor.key for actor in look.actors.values() if actor.state == ALIVE and not actor.group]
    running = [
        task.key for task in look.tasks.values() if task.kind == "task" and task.state in RUNNING and not task.group
    ]
    made = [group.key for group in look.groups.values() if group.is_created]
    return [key for key in (*there, *running, *made) if any(_held(key, look).get(name) for name in needs)]


def busy_actors(own: Iterable[Task], look: Look, names: Names) -> list[dict[str, Any]]:
    """Actors of a program that run something: what, for how long, and how many calls wait for them; the longest queue first."""
    running: dict[str, list[Task]] = defaultdict(list)
    queues: Counter[str] = Counter()
    for task in own:
        if task.actor in look.actors and task.kind != "creation":
            if task.state in RUNNING:
                running[task.actor].append(task)
            elif task.state in IN_QUEUE or task.state == WAITS_FOR_NODE:
                queues[task.actor] += 1
    found = [
        {
            "actor": names.of(key),
            "pid": look.actors[key].pid,
            "node": look.actors[key].node,
            "running": [
                {"method": task.name, "for_s": round(look.at_s - task.since_s, 1)}
                for task in sorted(running[key], key=lambda one: one.since_s)[:MOST_LINES]
            ],
            "running_count": len(running[key]),
            "queue_length": queues[key],
        }
        for key in running.keys() | queues.keys()
    ]
    return sorted(found, key=lambda one: (-one["queue_length"], one["actor"]))


def _stacks(finding: Finding, names: Names) -> list[dict[str, Any]]:
    """The users' frames of what is stuck, and of the driver."""
    keys = [*finding.core, *finding.behind] if finding.verdict != NONE else []
    found = []
    for key in dict.fromkeys([*keys, finding.job.driver]):
        read = finding.readings.get(key)
        if read is not None and read.frames:
            frames, cut = cut_middle(read.frames)
            found.append({"machine": names.of(key), "frames": [asdict(one) for one in frames], "cut": cut})
    return found[: LIMITS.json_rows]


# ---- for a terminal ----------------------------------------------------------------------------------------------------


def lines(told: Mapping[str, Any], refusal: str | None) -> list[str]:
    """A row as a person reads it; `refusal`: why stacks could not be read, of any process."""
    verdict = told["verdict"]
    program = _program(told["entrypoint"]) or "a program"
    found = [f"job {told['job']} ({program}, process {told['driver_pid']}): {_headline(told)}"]
    if verdict != NONE:
        found += _waits(told, "members")
        if told["stuck_behind"]:
            found += ["  behind them:", *_waits(told, "stuck_behind")]
        found += _queues(told["actors"], told["counts"]["actors"])
    others = [one for one in told["pending"] if verdict == NONE or not one["is_stuck"]]  # those stand above
    if others:
        more = told["counts"]["pending"] - len(told["pending"])
        pending_lines = screenful(Counter(f"    {_pending(one)}" for one in others), len(others) + more)
        found += ["  has not begun:", *pending_lines]
    if verdict != NONE:
        found += _shown_stacks(told["stacks"])
    found += happened_lines(told["died"])
    found += [f"  {'not known' if verdict == UNKNOWN else 'note'}: {text}" for text in told["reasons"]]
    if verdict != NONE:
        found += _advice(told, refusal)
    return found


def _headline(told: Mapping[str, Any]) -> str:
    apart = f"two looks {told['looks_apart_s']:.0f} s apart"
    if told["verdict"] == SUSPECTED:
        still = told["still_for_s"]
        since = f" for {still:.0f} s" if still is not None else ""
        return f"suspected: these have not moved{since}, and it seems that they cannot ({apart})"
    if told["verdict"] == UNKNOWN:
        return f"it cannot be told whether {'these are' if told['members'] else 'it is'} stuck ({apart})"
    if any(one["is_infeasible"] for one in told["pending"]):
        return "it waits for what no node can ever give"
    count = told["unfinished"]
    return (
        f"nothing suspected: {count:,} unfinished {'call or task' if count == 1 else 'calls and tasks'}"
        if count
        else "idle"
    )


def _waits(told: Mapping[str, Any], name: str) -> list[str]:
    return wait_lines(
        told[name], sum(one.get("count", 1) for one in told[name]) + told["counts"][name] - len(told[name])
    )


def _queues(actors: list[Any], count: int) -> list[str]:
    """What runs at each, and how many calls wait; with its process, if it is not one of many that are alike."""
    whole = {}
    for one in actors:
        alike = Counter(item["method"] for item in one["running"])
        longest = {item["method"]: item["for_s"] for item in reversed(one["running"])}
        runs = ", ".join(
            f"{method}{f' ({count} calls)' if count > 1 else ''} for {longest[method]:.0f} s"
            for method, count in alike.items()
        )
        queue = one["queue_length"]
        waiting = f"{queue:,} {'call waits' if queue == 1 else 'calls wait'} for it" if queue else "no call waits"
        what = f"runs {runs or 'nothing'}; {waiting}" if one["pid"] else f"has not begun; {waiting}"
        process = f"(process {one['pid']}) " if one["pid"] else ""
        whole[f"    {one['actor']} {what}"] = f"    {one['actor']} {process}{what}"
    found = [whole.get(line, line) for line in screenful(Counter([*whole]), count)]
    return ["  at the actors:", *found] if found else []


def _pending(one: Mapping[str, Any]) -> str:
    calls = f" ({one['count']:,} calls)" if one["count"] > 1 else ""
    waited = f" has waited for {one['waited_s']:.0f} s" if one["waited_s"] is not None else " waits"
    return f"{one['task']} of {one['of']}{calls}{waited}: it needs {_amounts(one['needs'])}, and {one['holding']}"


def _shown_stacks(stacks: list[Any]) -> list[str]:
    """Those with more than the line that stands with the wait already."""
    deep = [one for one in stacks if len(one["frames"]) > 1]
    found = screenful(Counter(f"    {one['machine']}: {chain(one['frames'], one['cut'])}" for one in deep))
    return ["  called from:", *found] if found else []


def _advice(told: Mapping[str, Any], refusal: str | None) -> list[str]:
    hints = {"not installed": [_STACKS], "refused": [_REFUSED], None: []}
    found = [f"  hint: {text}" for text in hints.get(refusal, [f"stacks could not be read: {refusal}"])]
    return [*found, f"  to do: start it with `{run_command(told['entrypoint'])}` to know for sure"]


def run_command(entrypoint: str) -> str:
    """How the program is started so that it is watched."""
    program = _program(entrypoint)
    return f"ray-snapshot run {program}" if program and not program.startswith("-c") else "ray-snapshot run SCRIPT"


def _program(entrypoint: str) -> str:
    """What was given to Python; "" if that is not known."""
    found = re.match(r"(?:\S*/)?python[\d.]* (.+)", entrypoint)
    return found[1] if found else ""
