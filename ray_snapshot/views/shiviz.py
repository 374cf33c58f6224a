"""A run as a ShiViz log: host, vector clock, event, behind the regular expression by which ShiViz reads it.

The first line of the file is that expression, the second (empty) would separate several executions; each event is a line with
host and clock, and one with its text. A host's own clock begins at 1 and rises by one, as ShiViz demands. Imports only the
standard library.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence

from ray_snapshot.views.space_time import Event, MessageId

EXPRESSION = r"(?<host>\S*) (?<clock>{.*})\n(?<event>.*)"


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


def shiviz_log(events: Sequence[Event]) -> str:
    """The text of a log; `events` in an order in which causes come first."""
    lines = [EXPRESSION, ""]
    clocks = vector_clocks(events)
    for event in events:
        clock = clocks[event.machine, event.number]
        own_first = {event.machine: event.number, **dict(sorted(clock.items()))}
        lines += [f"{event.machine} {json.dumps(own_first)}", re.sub(r"\s+", " ", event.label) or "-"]
    return "\n".join(lines) + "\n"
