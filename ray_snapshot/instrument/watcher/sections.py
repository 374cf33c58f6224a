"""What a restore needs of a snapshot of an app: states and calls in flight, as bytes, and why there may be nothing to restore.

Made by the analyst from what the processes reported; opened by the watcher, which never opens the states in it.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ray_snapshot.instrument.here import class_in
from ray_snapshot.names import DRIVER, is_actor
from ray_snapshot.protocol.calls import CONSTRUCTOR, MachineReport, Sent
from ray_snapshot.protocol.mailbox import TIMER
from ray_snapshot.runtime.rows import MESSAGE_ROW

if TYPE_CHECKING:
    from ray_snapshot.instrument.process.states import SavedValue
    from ray_snapshot.instrument.watcher.collected import CollectedCalls

CHECKPOINT_OFF = "nothing is kept to restore it from: rs.watch(checkpoint=True)"
"""The obstacle of every snapshot that was taken without `checkpoint=True`."""

Saved = tuple[bytes, tuple[str, ...]]
"""(what was pickled, the names that stand for handles in it)."""

SavedCall = tuple[str, str, int, str, str | None, Saved]
"""(source, target, number, method, concurrency group, arguments)."""


@dataclass(slots=True)
class Section:
    """What a restore needs of a snapshot of an app; all machines by the names that people know."""

    states: dict[str, Saved] = field(default_factory=dict)
    calls: list[SavedCall] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)
    """The machine of each name that stands for a handle."""

    def dumps(self) -> bytes:
        """The section as it is stored."""
        return pickle.dumps((self.states, self.calls, self.names), protocol=5)


def opened_section(sections: Iterable[bytes]) -> Section:
    """A section as it was stored; its digest has been checked, or it never left this system."""
    return Section(*pickle.loads(b"".join(sections)))


def section_of(collected: CollectedCalls) -> Section:
    """The section of a snapshot that has no obstacles."""
    facts = collected.facts
    names = {name: str(one["shown"]) for name, one in facts.items()}
    found = Section(names=names)
    for name in collected.completed.machines:
        recorded = collected.recorded.get(name)
        if name != DRIVER and recorded is not None and recorded.kept is not None and recorded.kept.blob is not None:
            found.states[found.names[name]] = recorded.kept.blob, recorded.kept.names
    for channel in collected.completed.channels:
        for number, sent in sorted(channel.in_flight.items()):
            if sent.kept is not None and sent.kept.blob is not None:
                ends = names.get(channel.source, channel.source), names[channel.target]  # a machine has one name
                found.calls.append((*ends, number, sent.method, sent.group, (sent.kept.blob, sent.kept.names)))
    return found


# ---- obstacles --------------------------------------------------------------------------------------------------------------


def obstacles_of(collected: CollectedCalls, uncovered: Iterable[str]) -> list[str]:
    """Why a snapshot cannot be restored, machine by machine."""
    if not collected.header.is_kept:
        return [CHECKPOINT_OFF]
    found = [f"it is not known what this does: {text}" for text in uncovered]
    for report in collected.completed.machines.values():
        if is_actor(report.machine):
            found += _of_actor(collected, report)
        elif report.machine == DRIVER and not collected.header.is_journaled:
            found += _of_driver(report)
    for channel in collected.completed.channels:
        for number, sent in sorted(channel.in_flight.items()):
            found += _of_call(collected, channel.source, channel.target, number, sent)
    for machine, recorded in collected.recorded.items():
        found += _of_mail(collected.shown(machine), () if recorded.mail is None else recorded.mail.messages)
    for host in collected.hosted:
        for name in host.kept - collected.facts.keys():
            found.append(f"a machine of {host.host}: {_unwatched(name)} in its state")
    return list(dict.fromkeys(found))


def _of_mail(shown: str, messages: Iterable[tuple[Any, ...]]) -> Iterator[str]:
    """What waits in the process of a sender, and is nowhere in what is kept."""
    for row in messages:
        about = dict(zip(MESSAGE_ROW, row, strict=True))
        what = "a timer" if about["kind"] == TIMER else "a message to a machine that is not there yet"
        yield f"{shown}: {what}, for {about['target']}.{about['method']}"


def _unwatched(name: str) -> str:
    return f"a handle of an actor that is not watched ({class_in(name)})"


def _of_driver(report: MachineReport) -> Iterator[str]:
    for wait in report.waits:
        if wait.call_id is None and not wait.is_callback:
            yield f"{DRIVER}: it waits inside its script, at {wait.call_site}"
            return


def _of_actor(collected: CollectedCalls, report: MachineReport) -> Iterator[str]:
    recorded = collected.recorded.get(report.machine)
    shown = collected.shown(report.machine)
    sites = {} if recorded is None else recorded.call_sites
    waiting = {wait.call_id: wait.call_site for wait in report.waits}
    for call in report.calls:
        site = waiting.get(call.call_id)
        where = f" at {site}, where it waits" if site else ""
        running = sites.get(call.call_id)
        yield f"{shown}: inside {call.method}{where or (f' at {running}' if running else '')}"
    if collected.header.is_journaled:
        yield from _of_restarts(collected, report.machine)
    if report.calls:
        return
    if report.status == "active":  # its task is nowhere in what is kept
        where = f" at {waiting[None]}" if waiting.get(None) else ""
        yield f"{shown}: a task of its own waits for a reply{where}"
    kept = None if recorded is None else recorded.kept
    yield from _of_kept(collected, shown, kept, "its state")


def _of_restarts(collected: CollectedCalls, machine: str) -> Iterator[str]:
    """Why an app cannot go back by itself when this actor dies."""
    facts, shown = collected.facts[machine], collected.shown(machine)
    if facts.get("max_restarts") == 0:
        yield f"{shown}: Ray does not start it again when its process dies: make it with max_restarts=-1"
    maker = facts.get("maker")
    if maker not in (None, DRIVER) and not facts.get("is_detached"):
        yield f"{shown}: Ray ends it when {collected.shown(maker)} dies, which has made it: give it lifetime='detached'"
    if facts.get("endless") is not None:
        yield f"{shown}: Ray would repeat calls of the past for ever: bound max_task_retries of {facts['endless']}"


def _of_call(collected: CollectedCalls, source: str, target: str, number: int, sent: Sent) -> Iterator[str]:
    ends = [collected.shown(name) for name in (source, target)]
    if number == CONSTRUCTOR or target not in collected.facts:
        yield f"{ends[1]}: it is just being made"
    elif sent.needs:
        yield f"{ends[0]}: its call of {ends[1]}.{sent.method} waits for the reply of another"
    else:
        yield from _of_kept(collected, f"{ends[0]}, in its call of {ends[1]}.{sent.method}", sent.kept, "its arguments")


def _of_kept(collected: CollectedCalls, who: str, kept: SavedValue | None, what: str) -> Iterator[str]:
    if kept is None:
        yield f"{who}: {what} could not be copied"
        return
    if kept.obstacle is not None:
        yield f"{who}: {kept.obstacle}"
    for name in kept.names:
        if name not in collected.facts:
            yield f"{who}: {_unwatched(name)} in {what}"
