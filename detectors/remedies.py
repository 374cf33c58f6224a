"""What a person can change so that a deadlock does not come about, and what became of those whose calls might end it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from ray_snapshot.detectors.common import Integers, is_any_of, unobserved
from ray_snapshot.detectors.explain import (
    CALLED_AT,
    ENDED_TASKS,
    About,
    Node,
    also_waits_on,
    awaited_text,
    callers_of,
    first_gate,
    is_constructor,
    object_text,
    primitives_of,
    subject_text,
)
from ray_snapshot.detectors.happened import died_behind, ended_threads, restarted
from ray_snapshot.detectors.wait_graph import WaitGraph
from ray_snapshot.limits import LIMITS
from ray_snapshot.names import HELD_BY, listed, name_ranges
from ray_snapshot.snapshot import Snapshot


def advice(snapshot: Snapshot, waits: WaitGraph, members: Integers, stuck: Integers, cause: Integers) -> list[str]:
    """What a person can change so that the calls among `members` (the cores) get on; `stuck`: all that cannot move; `cause`:
    who keeps all others."""
    calls = members[members >= waits.first_call]
    if not len(calls):
        return []
    rooms = {also for node in calls.tolist() if (also := also_waits_on(waits, node)) in waits.lacks}
    if rooms:
        return list(dict.fromkeys(waits.lacks[room].remedy() for room in sorted(rooms)))[: LIMITS.advice]
    about = About(snapshot, waits, members)
    waiting = [(node, call) for node in members.tolist() for call in _not_begun(about, node)]
    parked = [node for node in calls.tolist() if callers_of(about, node)]
    if parked and not waiting:  # calls behind them may end these waits, and whoever waits for those is no member
        behind = np.setdiff1d(stuck[waits.blocked[stuck]], members)[: LIMITS.behind_members]
        about = About(snapshot, waits, np.union1d(members, behind))
        full = {about.nodes[node].machine for node in parked}
        waiting = [
            (node, call)
            for node in about.alternatives
            for call in _not_begun(about, node)
            if about.nodes[call].machine in full
        ]
    changes: dict[str, dict[str, list[str]]] = {}
    for node, call in waiting:
        who, target, change = about.nodes[node], about.nodes[call], _change(about, node, call)
        if change:
            sites = changes.setdefault(change, {}).setdefault(str((who if _WHO in change else target).call), [])
            sites += filter(None, [who.call_site])
    if parked and not changes:
        return _of_parked(about, [node for node in parked if node in cause])[: LIMITS.advice]
    if waiting:
        return [_told(change, calls) for change, calls in changes.items()][: LIMITS.advice]
    never = set(stuck.tolist())
    return [_impossible(about, node, never) for node in calls.tolist()[: LIMITS.advice]]


def _not_begun(about: About, node: int) -> list[int]:
    """The calls that a node waits for and that cannot begin."""
    calls = about.waits.calls
    end = about.waits.first_call + calls.call_count
    begun = about.waits.first_call + calls.running_count
    on = [call for _, choice in about.alternatives.get(node, []) for call in choice if begun <= call < end]
    gated = [call for call in on if 0 <= _gate(about.waits, call) < len(calls.gates.is_open)]
    return [call for call in gated if not calls.gates.is_open[_gate(about.waits, call)]]


def _gate(waits: WaitGraph, call: int) -> int:
    """The gate that a call that has not begun must pass; -1: none."""
    also = also_waits_on(waits, call)
    return also - first_gate(waits) if also >= 0 else -1


_WHO, _TARGET = "{who}", "{target}"
"""In a sentence of advice: the calls that it is about, which wait, or which are waited for; with their places in the source."""


def _told(change: str, calls: Mapping[str, Sequence[str]]) -> str:
    at = " ({})" if _WHO in change else CALLED_AT
    told = [call + (at.format(listed(dict.fromkeys(sites))) if sites else "") for call, sites in calls.items()]
    return change.replace(_WHO, _TARGET).replace(_TARGET, listed(told))


def _change(about: About, node: int, call: int) -> str:
    """What to change where `node` waits for a `call` that cannot begin; "" if another call is the one that has to."""
    gates, gate = about.waits.calls.gates, _gate(about.waits, call)
    who, target = about.nodes[node], about.nodes[call]
    if gates.exclusive[gate] >= 0:
        return _after(about, gate, target)
    actor = target.class_name or target.machine
    group = gates.group_names[gates.group[gate]]
    bound = f"max_concurrency of {actor}" if group is None else f"the bound of concurrency group {group} of {actor}"
    held = int(gates.held[gate])
    waits = about.waits
    count = held + int((waits.calls.also == waits.calls.call_count + gate).sum())  # any may be first, and keep its slot
    bound += f" to {count}"
    lock = f"({count} of its calls then run at once: lock what they change, but not while they wait)"
    if who.is_call and who.machine == target.machine:
        if who.method == target.method:
            return f"{_WHO} calls itself, and each level takes a slot: call self.{target.method}() directly."
        directly = f"call self.{target.method}() directly, or raise {bound} {lock}."
        return f"{_WHO} waits for {target.call} of the same actor: {directly}"
    if untaken := _untaken(about, target.machine):
        then = "drop that generator, or raise its _generator_backpressure_num_objects"
        return f"Take the items of {untaken} before {_TARGET} is waited for, {then}; or raise {bound} {lock}."
    if parked := _parked_at(about, target.machine):
        return _beside_parked(about, target, parked, bound, lock)
    or_async = f", or make {actor} an async actor that awaits" if group is None and held == 1 else ""
    others = "or give its value along with the call, so that nobody asks back; or do not wait for its reply."
    return f"Raise {bound}{or_async}, so that {_TARGET} can begin {lock}; {others}"


def _beside_parked(about: About, target: Node, parked: list[int], bound: str, lock: str) -> str:
    """The advice where calls that wait inside an actor have taken all slots. A group of its own helps a call that does not wait
    there itself; where one of those is queued, too, it is the one that has to begin."""
    waiting = {about.nodes[one].method for one in parked}
    every = (call for node in about.alternatives for call in _not_begun(about, node))
    queued = {about.nodes[one].method for one in every if about.nodes[one].machine == target.machine}
    if target.method in waiting:
        is_lost = queued - waiting or ended_threads(about.snapshot, target.machine)
        return "" if is_lost else f"Raise {bound}, so that {_TARGET} can begin {lock}."
    is_on_loop = any(about.nodes[one].primitive.startswith("asyncio.") for one in parked)
    apart = f"apart from {listed(dict.fromkeys(str(about.nodes[one].call) for one in parked))}"
    apart += _IF_THAT_WAKES * bool(queued & waiting) + _ACROSS_LOOPS * is_on_loop
    enough = "which is enough for the calls that there are now."
    return f"Give {_TARGET} a concurrency group {apart}; or raise {bound} {lock}, {enough}"


def _untaken(about: About, machine: str) -> str | None:
    """A generator of a machine that Ray holds at a `yield` until an item is taken: it keeps its slot as long."""
    held = (about.nodes[one] for one in sorted(about.generators) if one in about.nodes)
    return next((one.call for one in held if one.machine == machine), None)


_IF_THAT_WAKES = ", if that is what wakes it"
_ACROSS_LOOPS = ", and wake that by loop.call_soon_threadsafe (concurrency groups have event loops of their own)"


def _parked_at(about: About, machine: str) -> list[int]:
    """Calls of a machine that wait inside it to be woken: what would wake them begins no sooner if nobody waits for it."""
    return [one for one in about.alternatives if about.nodes[one].machine == machine and callers_of(about, one)]


def _after(about: About, gate: int, target: Node) -> str:
    """The advice where one call keeps all others out."""
    keeper = about.nodes.get(about.waits.first_call + int(about.waits.calls.gates.exclusive[gate]), target)
    place = _placed(keeper) if keeper is not target else target.machine
    if is_constructor(about, gate):
        return (
            f"Wait in a method that is called afterwards, not in {place}: {_TARGET} begins only when that has returned."
        )
    needs = f"it keeps the event loop that {_TARGET} needs."
    if keeper.primitive and not keeper.primitive.startswith("asyncio."):
        return f"Let {place} wait in a thread (await asyncio.to_thread(...)): {needs}"
    return f"Await the reply in {place} instead of ray.get (`await ref`, in an async method): {needs}"


def _of_parked(about: About, parked: list[int]) -> list[str]:
    """Of calls that wait for locks inside their actors: what holds them while it waits, or that several are taken in turn."""
    holding: dict[tuple[str, str], dict[str, None]] = {}
    for node in parked:
        if (told := _holder_of_lock(about, node)) is not None:
            holding.setdefault(told[:2], {})[told[2]] = None
    are_many = len({about.nodes[node].machine for node in parked if about.nodes[node].holder}) > 1
    order = ", or take these locks in the same order everywhere" * are_many
    lines = [f"{held} {listed(sorted(awaited))}: {then}{order}." for (held, then), awaited in holding.items()]
    rest = [one for node in parked if not (one := about.nodes[node]).holder]
    if len({one.machine for one in rest}) > 1 and all(one.primitive.startswith(_LOCKS) for one in rest):
        return [*lines, f"Take {listed(dict.fromkeys(one.machine for one in rest))} in the same order everywhere."]
    by_change: dict[str, dict[str, None]] = {}
    for one in rest:
        if change := next((text for kind, text in _WAKERS.items() if kind in one.primitive), None):
            how = "inside asyncio.timeout(seconds)" if one.primitive.startswith("asyncio.") else "with timeout=seconds"
            by_change.setdefault(f"{change}; or wait {how}.", {})[_placed(one)] = None
    return [*lines, *(change.format(listed(places)) for change, places in by_change.items())]


_WAKERS = {
    "Future.result": "Let no work of an executor wait for other work of it ({}), or give it more threads (max_workers)",
    "Queue.put": "Take items while {} puts more in, or give its queue a larger maxsize",
    "Queue.get": "Put an item in before the caller of {} waits, and a last one when no more come",
    "Queue.join": "Call task_done() for each item of the queue of {}",
    "Semaphore": "Release each permit of {} where it was taken (`with`, or in a `finally`)",
    "Lock": "Release the lock of {} where it was taken (`with`, or in a `finally`)",
    "Barrier": "Let as many call {} as the barrier has parties",
    "Condition": "Notify the condition of {} whenever what it waits for may be true",
    "Event": "Set the event of {} before its callers wait, and after an error too (`finally`)",
}
"""By part of the name of what a call waits on: what is to be changed so that something wakes it."""


def _placed(node: Node) -> str:
    return f"{node.call} ({node.call_site})" if node.call_site else str(node.call)


def _holder_of_lock(about: About, node: int) -> tuple[str, str, str] | None:
    """Who holds the lock that a call waits for ("Ledger.add holds asyncio.Lock while it waits (app.py:14) for"), what to do,
    and what that one waits for; None if it is not known."""
    mine = about.nodes[node]
    if len(mine.holders) != 1:
        return None
    place, among = (mine.machine, *mine.holders), ((other, about.nodes[other]) for other in about.alternatives)
    nodes = [other for other, one in among if one.is_running and (one.machine, one.method) == place]
    lock = mine.primitive.partition(HELD_BY)[0]
    then = f"leave the `{'async ' * lock.startswith('asyncio.')}with` before that wait"
    if not nodes:  # a thread, or a task of asyncio
        return f"{mine.holder} holds {lock} while it", then, "waits"
    if len({about.nodes[other].call_site for other in nodes}) != 1 or about.nodes[nodes[0]].holder:
        return None
    return (
        f"{mine.holder} holds {lock} while it waits{about.nodes[nodes[0]].place} for",
        then,
        awaited_text(about, nodes[0]),
    )


_LOCKS = ("asyncio.Lock", "asyncio.Semaphore", "asyncio.BoundedSemaphore")


def with_holders(snapshot: Snapshot, waits: WaitGraph, cause: Integers, members: Integers) -> Integers:
    """`cause` with the calls of `members` that hold the locks that it waits for, and what these wait for; all `members` if one
    that holds a lock is none of them."""
    if not any(HELD_BY in text for text in primitives_of(snapshot).values()):
        return cause
    about, found = About(snapshot, waits, members), set(cause.tolist())
    holders = {(about.nodes[node].machine, name) for node in found for name in about.nodes[node].holders}
    at: dict[tuple[str, str | None], list[int]] = {}
    for node in members.tolist():
        at.setdefault((about.nodes[node].machine, about.nodes[node].method), []).append(node)
    if not at.keys() >= holders:
        return members
    nodes = [node for holder in holders for node in at[holder]]
    while nodes:
        if (node := nodes.pop()) not in found:
            found.add(node)
            nodes += [one for _, on in about.alternatives.get(node, []) for one in on if about.nodes[one].is_call]
    return np.intersect1d(members, [*found])


def lost_callers(snapshot: Snapshot, waits: WaitGraph, cause: Integers) -> list[str]:
    """Of calls that wait inside their own actors: why nothing wakes them. First of their threads.

    "nobody is left to call buffer: driver, rollout-[0-3] are stuck; parameters does nothing until it is called".
    """
    calls = cause[cause >= waits.first_call]
    if not len(calls):
        return []
    about = About(snapshot, waits, calls)
    parked: dict[str, list[int]] = {}
    for node in calls.tolist():
        if not about.nodes[node].holder and callers_of(about, node):
            parked.setdefault(about.nodes[node].machine, []).append(node)
    machines: dict[tuple[str, str], list[str]] = {}
    for machine, nodes in parked.items():
        machines.setdefault(_why_no_call(about, machine, nodes, parked), []).append(machine)
    threads = [
        text for machine in parked for text in (*ended_threads(snapshot, machine), *_parked_threads(snapshot, machine))
    ]
    return [*threads, *(f"{head} {name_ranges(names)}{rest}" for (head, rest), names in machines.items())][
        : LIMITS.advice
    ]


def _parked_threads(snapshot: Snapshot, machine: str) -> list[str]:
    """The threads of a machine's own that wait as its calls do: "thread plan_0 (app.py:21) of Planner-0 waits, too"."""
    told = snapshot.coverage.get("parked_threads")
    names = told.get(machine) if isinstance(told, Mapping) else None
    found = unobserved(f"thread {name} of {machine}" for name in names or ())
    return [f"{text} {'wait' if text[0].isdigit() else 'waits'}, too" for text in found]


def _why_no_call(about: About, machine: str, nodes: list[int], parked: Collection[str]) -> tuple[str, str]:
    """What stands before and after its name."""
    dead, again = died_behind(about.snapshot, [machine]), restarted(about.snapshot)
    fates: dict[str, dict[str, None]] = {"died": dict.fromkeys(dead)} if dead else {}
    on = {other for node in nodes for _, choice in about.alternatives.get(node, []) for other in choice}
    for other in sorted(on, key=lambda node: about.nodes[node].machine):
        if not about.nodes[other].is_call and (name := about.nodes[other].machine) not in {*parked, *dead}:
            has_ended, is_idle = about.waits.stopped[other], about.waits.passive[other]
            idle = "restarted" if name in again else "idle"
            fates.setdefault("ended" if has_ended else idle if is_idle else "stuck", {})[name] = None
    channels = about.snapshot.tables["channels"]
    if (is_any_of(channels["source"], ENDED_TASKS) & is_any_of(channels["target"], machine)).any():
        fates.setdefault("ended", {})["every task that called it"] = None
    reasons = [
        f"{name_ranges(fates[fate])} {text[len(fates[fate]) > 1]}" for fate, text in _FATES.items() if fate in fates
    ]
    if about.waits.calls.machine[nodes[0] - about.waits.first_call] in about.waits.calls.full:
        return "no call can begin in", "; ".join([": every slot is taken", *reasons])
    return ("nobody is left to call", f": {'; '.join(reasons)}") if reasons else ("nobody else may call", "")


_FATES = {
    "died": ("has died", "have died"),
    "ended": ("has ended", "have ended"),
    "restarted": (
        "died, was restarted, and does nothing until it is called",
        "died, were restarted, and do nothing until they are called",
    ),
    "stuck": ("is stuck", "are stuck"),
    "idle": ("does nothing until it is called", "do nothing until they are called"),
}


def _impossible(about: About, node: int, stuck: set[int]) -> str:
    """What must come and cannot, where no slot is in question."""
    on = dict.fromkeys(other for _, choice in about.alternatives.get(node, []) for other in choice)
    never = list(dict.fromkeys(object_text(about.nodes[other]) for other in on if other in stuck))
    text = f"{subject_text(about.nodes[node])} waits for {awaited_text(about, node)}"
    if node in about.generators:
        how = "take its items before anything else is waited for, drop it, or raise its _generator_backpressure_num_objects."
        return f"{text}: {how}"
    if 0 < len(never) < len(on):
        text += f", and {listed(never)} can never come"
    return text + ": give this wait a timeout, or take one of those that it waits for out of it."
