"""Simulated and traced runs as the events and cuts that `space_time` draws."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ray_snapshot.errors import SettingError
from ray_snapshot.views.space_time import Control, Cut, Event, MessageId, panel, stacked

if TYPE_CHECKING:
    from ray_snapshot.simulation.mail.oracle import Log
    from ray_snapshot.witness.log import Action


def simulated_events(log: Log) -> list[Event]:
    """The actions of a simulated run."""
    return [
        Event(action.machine, action.index, tuple(action.accepted), tuple(action.sent), _told(action))
        for action in log.actions
    ]


def _told(action: Any) -> str:
    parts = [f"accepts {kind} {number} from {source}" for source, _, kind, number in action.accepted]
    parts += [f"sends {kind} {number} to {target}" for _, target, kind, number in action.sent]
    return f"{'; '.join(parts)} (then {action.after})"


def simulated_cuts(log: Log, machines: Iterable[str], number: int | None) -> list[Cut]:
    """The cuts of a simulated run, or the one asked for; raises `SettingError` if there is none of that number."""
    if number is not None and number not in log.cuts:
        known = f"there are {', '.join(map(str, log.cuts))}" if log.cuts else "there is none"
        raise SettingError(f"--snapshot {number}: this run took no snapshot of that number; {known}")
    chosen = log.cuts if number is None else {number: log.cuts[number]}
    order = list(machines)
    return [
        Cut(f"snapshot {found}", {name: cut[name] for name in order if name in cut}) for found, cut in chosen.items()
    ]


def traced_events(actions: Iterable[Action]) -> list[Event]:
    """The actions of a traced run; of those that waited inside, the steps, with the replies that some wait has got."""
    listed = list(actions)
    got = {reply for action in listed for reply in action.heard}
    return [
        Event(
            action.machine,
            action.place,
            (*(message.key for message in action.accepted), *action.heard),
            (*(message.key for message in action.sent), *(reply for reply in action.answers if reply in got)),
            label(action),
            numbered(action),
            action.method,
        )
        for action in listed
    ]


def vector_clocks(events: Iterable[Event]) -> dict[tuple[str, int], dict[str, int]]:
    """By (machine, number): how many events of each machine this one knows of, itself included (Mattern 1989).

    `events` in an order in which causes come first; knowledge travels with messages only.
    """
    clocks: dict[tuple[str, int], dict[str, int]] = {}
    senders: dict[MessageId, tuple[str, int]] = {}
    for event in events:
        key = event.machine, event.number
        clock = dict(clocks.get((event.machine, event.number - 1), {}))
        for message in event.accepted:
            for machine, count in clocks.get(senders.get(message, key), {}).items():
                clock[machine] = max(clock.get(machine, 0), count)
        clock[event.machine] = event.number
        clocks[key] = clock
        senders.update(dict.fromkeys(event.sent, key))
    return clocks


def numbered(action: Action) -> str:
    """3, or 3.2 for its second step."""
    return f"{action.number}.{action.step + 1}" if action.step or action.ends_in else f"{action.number}"


def label(action: Action) -> str:
    """What an action did, in one line."""
    accepted = " and ".join(f"{message} from {message.key[0]}" for message in action.accepted)
    if action.behind is not None:
        accepted = f"behind its wait at {action.behind.site}"
    sent = ", ".join(f"{_name(message)} to {message.key[1]}" for message in action.sent)
    return "; sends ".join(part for part in (accepted, sent) if part) if accepted else f"sends {sent}" if sent else "-"


def _name(message: Any) -> str:
    return "creation" if message.is_creation else str(message)


def both_ways(events: Sequence[Event], cut: Cut, control: Sequence[Control] = ()) -> str:
    """The SVG of a run as it happened, and of its equivalent computation in which the cut is a moment."""
    ran = panel(events, [cut], control=control, title="The run")
    title = "An equivalent computation: all white actions, the snapshot, all red ones"
    return stacked([ran, panel(events, [cut], title=title, equivalent=True)])
