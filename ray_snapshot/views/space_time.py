"""A run as a space-time diagram, in one self-contained SVG: a pure function of events and cuts.

A line per machine, a dot per atomic action (white or red for the first cut) with its number and, where there is room, its
method, an arrow per message from the sending to the accepting action, and each cut as a line through the points at which
machines recorded. Messages in flight in the first cut stand out; one that was not accepted ends on the line of its target, in
an open arrow. All colours can be read on white and on black. Imports only the standard library.

The same events can be drawn as they happened, and as the equivalent computation of EWD864a (`equivalent=True`): all white
actions before all red ones, where the cut is a straight line.
"""

from __future__ import annotations

import re
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from xml.sax.saxutils import escape, quoteattr

MessageId = tuple[str, str, str, int]
"""(source, target, kind, number)."""

MOST_EVENTS = 150
MOST_MACHINES = 30

COLUMN, WIDEST, USUAL, LANE = 34.0, 84.0, 1000.0, 62.0
"""A column is so wide at least and at most, and in between so that a picture has its usual width."""
LEFT_PER_CHARACTER, PER_LETTER, TOP, RIGHT = 7.2, 5.7, 64.0, 70.0
NAMED_AGAIN = 900.0
"""After so many pixels the name of a lane stands there again."""
RADIUS = 5.5
SLACK = 0.42
"""How near to a dot a cut may pass, in columns."""

_STYLE = """
text { font: 12px system-ui, sans-serif; fill: #757575; }
.title { font-size: 14px; font-weight: 600; }
.number { font-size: 9px; paint-order: stroke; stroke: #ffffff; stroke-width: 3; }
@media (prefers-color-scheme: dark) { .number { stroke: #0d1117; } }
.lane { stroke: #8c8c8c; stroke-width: 1; }
.action { stroke: #757575; stroke-width: 1.6; fill: #ffffff; }
.red { stroke: #d1343c; fill: #d1343c; }
.message { stroke: #8c8c8c; stroke-width: 1.2; fill: none; marker-end: url(#end); }
.in-flight { stroke: #2b7fd4; stroke-width: 2.4; marker-end: url(#end-in-flight); }
.open { stroke-dasharray: 5 3; marker-end: url(#end-open); }
.in-flight.open { marker-end: url(#end-open-in-flight); }
.leaving { marker-end: none; }
.control { stroke: #8c8c8c; stroke-width: 1; stroke-dasharray: 1.5 3; fill: none; marker-end: url(#end); }
.cut { stroke: #b8860b; stroke-width: 2.2; fill: none; stroke-linejoin: round; }
.cut.other { stroke-width: 1.4; stroke-dasharray: 7 4; }
.cut-label { fill: #a87808; text-anchor: middle; }
.point { fill: #b8860b; }
"""

_MARKERS = "".join(
    f'<marker id="{name}" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="{size}" markerHeight="{size}"'
    f' markerUnits="userSpaceOnUse" orient="auto"><path d="M1,1 L9,5 L1,9{close}" style="{style}"/></marker>'
    for name, size, close, style in (
        ("end", 9, " z", "fill:#8c8c8c"),
        ("end-in-flight", 11, " z", "fill:#2b7fd4"),
        ("end-open", 10, "", "fill:none;stroke:#8c8c8c;stroke-width:1.6"),
        ("end-open-in-flight", 12, "", "fill:none;stroke:#2b7fd4;stroke-width:1.8"),
    )
)


@dataclass(frozen=True, slots=True)
class Event:
    """One atomic action."""

    machine: str
    number: int
    """From 1 in its machine."""
    accepted: tuple[MessageId, ...] = ()
    sent: tuple[MessageId, ...] = ()
    label: str = ""
    """What a pointer shows: method, arguments."""
    mark: str = field(default="", repr=False)
    """The number that a text gives it; empty: its own."""
    method: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Cut:
    """A snapshot."""

    label: str
    counts: Mapping[str, int]
    """For each machine in the cut: how many of its actions lie before it."""


@dataclass(frozen=True, slots=True)
class Control:
    """A marker, a barrier or another control message, between two machines' actions."""

    source: str
    behind: int
    """It was sent after that many actions of its source."""
    target: str
    before: int
    """It arrived after that many actions of its target."""
    label: str = ""


@dataclass(slots=True)
class _Picture:
    """Where everything is."""

    machines: list[str]
    events: list[Event]
    columns: dict[tuple[str, int], int]
    offset: float
    y: dict[str, float]
    column: float
    """Its width."""

    @property
    def width(self) -> float:
        return self.x(max(self.columns.values(), default=0)) + RIGHT

    def x(self, column: float) -> float:
        return self.offset + column * self.column


def diagram(
    events: Sequence[Event],
    cuts: Sequence[Cut] = (),
    *,
    control: Sequence[Control] = (),
    title: str = "",
    equivalent: bool = False,
    most_events: int = MOST_EVENTS,
    most_machines: int = MOST_MACHINES,
) -> str:
    """The SVG of a run; `events` in an order in which every message is sent before it is accepted.

    The first of `cuts` decides the colours. Of more than `most_events` events a window around it is drawn, and of more
    than `most_machines` machines those that act most in it; the diagram says so.
    """
    return stacked([panel(events, cuts, control=control, title=title, equivalent=equivalent,
                          most_events=most_events, most_machines=most_machines)])  # fmt: skip


@dataclass(frozen=True, slots=True)
class Panel:
    """A drawing, and its size."""

    body: str
    width: float
    height: float


def stacked(panels: Sequence[Panel]) -> str:
    """One SVG of several drawings, one below the other, with one legend."""
    legend, legend_width = _legend("".join(one.body for one in panels))
    width = max([legend_width, *(one.width for one in panels)])
    parts, top = [], 0.0
    for one in panels:
        parts.append(f'<g class="panel" transform="translate(0,{top:.0f})">{one.body}</g>')
        top += one.height
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{top + 40:.0f}"'
        f' viewBox="0 0 {width:.0f} {top + 40:.0f}" role="img"'
        ' aria-label="Machines as lines, actions as dots, messages as arrows">'
        f"<style>{_STYLE}</style><defs>{_MARKERS}</defs>"
        f'{"".join(parts)}<g transform="translate(16,{top + 16:.0f})">{legend}</g></svg>\n'
    )


def panel(
    events: Sequence[Event],
    cuts: Sequence[Cut] = (),
    *,
    control: Sequence[Control] = (),
    title: str = "",
    equivalent: bool = False,
    most_events: int = MOST_EVENTS,
    most_machines: int = MOST_MACHINES,
) -> Panel:
    """One drawing of a run; see `diagram`."""
    main = cuts[0] if cuts else None
    shown = _in_order(events, main) if equivalent else list(events)
    shown, notes = _window(shown, main, most_events)
    machines, more = _lanes(shown, main, most_machines)
    shown = [event for event in shown if event.machine in machines]
    columns = _columns(shown, main if equivalent else None)
    picture = _Picture(
        machines,
        shown,
        columns,
        offset=40 + LEFT_PER_CHARACTER * max([6, *(len(name) + 1 for name in machines)]),
        y={machine: TOP + LANE * lane + 30 for lane, machine in enumerate(machines)},
        column=min(WIDEST, max(COLUMN, USUAL / (1 + max(columns.values(), default=0)))),
    )
    points = [_points(picture, cut) for cut in cuts]
    recorded = {
        (name, cut.counts[name]): x for cut, of in zip(cuts, points, strict=True) for name, (x, _) in of.items()
    }
    body = [
        _title(title, [*notes, *more]),
        *_lane_lines(picture),
        *(_control(picture, one, recorded) for one in control if {one.source, one.target} <= picture.y.keys()),
        *_arrows(picture, events, main),
        *_cut_lines(cuts, points),
        *_dots(picture, events, main),
    ]
    width = max(picture.width, 40 + 8.2 * len("; ".join([title, *notes, *more])))
    return Panel("".join(body), width, TOP + LANE * len(machines) + 34)


# What is shown


def _is_white(event: Event, cut: Cut | None) -> bool:
    return cut is None or event.number <= cut.counts.get(event.machine, 0)


def _in_order(events: Sequence[Event], cut: Cut | None) -> list[Event]:
    """White events in their order, then red ones in theirs."""
    return sorted(events, key=lambda event: not _is_white(event, cut))


def _window(events: list[Event], cut: Cut | None, most: int) -> tuple[list[Event], list[str]]:
    """At most so many events, around the middle of the cut."""
    if len(events) <= most:
        return events, []
    whites = [place for place, event in enumerate(events) if _is_white(event, cut)]
    reds = [place for place, event in enumerate(events) if not _is_white(event, cut)]
    middle = ((whites[-1] if whites else 0) + (reds[0] if reds else len(events))) // 2
    first = max(0, min(middle - most // 2, len(events) - most))
    return events[first : first + most], [f"{most} of {len(events)} actions, around the cut"]


def _lanes(events: list[Event], cut: Cut | None, most: int) -> tuple[list[str], list[str]]:
    """The machines drawn, in the order in which they first act; those that only have a point in the cut last."""
    counts: dict[str, int] = {}
    sent = {message for event in events for message in event.sent}
    for event in events:
        for machine in (event.machine, *(one for message in sent.intersection(event.accepted) for one in message[:2])):
            counts[machine] = counts.get(machine, 0) + 1
    for machine in cut.counts if cut is not None else ():
        counts.setdefault(machine, 0)
    if len(counts) <= most:
        return sorted(counts, key=_natural), []
    busiest = sorted(sorted(counts, key=lambda name: -counts[name])[:most], key=_natural)
    return busiest, [f"the {most} busiest of {len(counts)} machines"]


def _natural(name: str) -> list[tuple[int, int | str]]:
    """So that account-2 comes before account-10; the driver first."""
    parts: list[str] = [""]
    for character in name:
        if parts[-1] and character.isdigit() == parts[-1][-1].isdigit():
            parts[-1] += character
        else:
            parts.append(character)
    split: list[tuple[int, int | str]] = [(0, int(p)) if p.isdecimal() else (1, p) for p in parts if p]
    return [(0, -1)] if name == "driver" else [(1, ""), *split]


def _columns(events: Sequence[Event], cut: Cut | None) -> dict[tuple[str, int], int]:
    """A column per event, never before that of an earlier one: events share one if neither machine nor message forbids it.

    With a cut, red ones begin in a column of their own.
    """
    columns: dict[tuple[str, int], int] = {}
    column, here = 0, set[str]()
    sent_here = set[MessageId]()
    was_white = True
    for event in events:
        turns = was_white and not _is_white(event, cut)
        if event.machine in here or sent_here.intersection(event.accepted) or (turns and here):
            column, here, sent_here = column + 1 + turns, set(), set()
        was_white = was_white and not turns
        here.add(event.machine)
        sent_here.update(event.sent)
        columns[event.machine, event.number] = column
    return columns


# How it is drawn


def _title(title: str, notes: Sequence[str]) -> str:
    more = f" ({'; '.join(notes)})" if notes else ""
    return f'<text class="title" x="16" y="24">{escape(title + more)}</text>'


def _lane_lines(picture: _Picture) -> list[str]:
    end, found = picture.width - 20, []
    for machine, y in picture.y.items():
        found.append(f'<line class="lane" x1="{picture.offset - 22:.1f}" y1="{y:.1f}" x2="{end:.1f}" y2="{y:.1f}"/>')
        found.append(f'<text x="16" y="{y + 4:.1f}">{escape(machine)}</text>')
        for again in range(1, int(end / NAMED_AGAIN + 0.6)):
            found.append(
                f'<text class="number" x="{again * NAMED_AGAIN:.0f}" y="{y - 18:.1f}">{escape(machine)}</text>'
            )
    return found


def _dots(picture: _Picture, events: Sequence[Event], cut: Cut | None) -> list[str]:
    found, sides = [], _sides(picture, events)
    following: dict[str, float] = {}
    for event in reversed(picture.events):
        x, y = picture.x(picture.columns[event.machine, event.number]), picture.y[event.machine]
        room = following.get(event.machine, picture.width) - x
        following[event.machine] = x
        colour = "" if _is_white(event, cut) else " red"
        told = f"{event.machine} {event.number}" + (f": {event.label}" if event.label else "")
        mark = event.mark or str(event.number)
        if event.method and len(f"{mark} {event.method}") * PER_LETTER < room:
            mark += f" {event.method}"
        down = 17 if sides[event.machine, event.number] <= 0 else -10
        found.append(
            f'<g><title>{escape(told)}</title><circle class="action{colour}" cx="{x:.1f}" cy="{y:.1f}" r="{RADIUS}"/>'
            f'<text class="number" x="{x - 3:.1f}" y="{y + down:.1f}">{escape(mark)}</text></g>'
        )
    return found[::-1]


def _sides(picture: _Picture, events: Sequence[Event]) -> Counter[tuple[str, int]]:
    """By event: how many more of its arrows are below its lane than above."""
    found: Counter[tuple[str, int]] = Counter()
    for event in events:
        y = picture.y.get(event.machine, 0.0)
        others = [source for source, *_ in event.accepted] + [target for _, target, *_ in event.sent]
        found[event.machine, event.number] = sum(
            1 if picture.y.get(other, y) > y else -1 for other in others if other in picture.y
        )
    return found


def _arrows(picture: _Picture, events: Sequence[Event], cut: Cut | None) -> list[str]:
    """An arrow per message that begins or ends in the picture."""
    senders = {message: event for event in events for message in event.sent}
    acceptors = {message: event for event in events for message in event.accepted}
    found = []
    for message in dict.fromkeys([*senders, *acceptors]):
        source, target = senders.get(message), acceptors.get(message)
        ends = [event for event in (source, target) if event is not None]
        if message[1] not in picture.y or not any((event.machine, event.number) in picture.columns for event in ends):
            continue
        is_in_flight = (
            cut is not None
            and source is not None
            and _is_white(source, cut)
            and (target is None or not _is_white(target, cut))
        )
        path, ending = _path(picture, message, source, target)
        if path:
            kinds = "message" + " in-flight" * is_in_flight + ending
            told = (
                f"{message[2]} {message[3]} from {message[0]} to {message[1]}"
                if message[3]
                else f"creation of {message[1]}"
            )
            found.append(
                f'<path class="{kinds}" data-message={quoteattr(":".join(map(str, message)))} d="{path}">'
                f"<title>{escape(told)}</title></path>"
            )
    return found


def _path(picture: _Picture, message: MessageId, source: Event | None, target: Event | None) -> tuple[str, str]:
    """(the arrow's path, how it ends if not at a dot); an end outside of the picture is drawn as a stub."""
    begin, end = _place(picture, source), _place(picture, target)
    y = picture.y[message[1]]
    if begin is not None and end is not None:
        return _line(begin, end), ""
    if begin is not None:
        columns = 0.5 + round(abs(y - begin[1]) / LANE * 0.6)  # between two dots, and on the line of its target
        end = min(picture.width - 24, begin[0] + columns * picture.column), y
        return _line(begin, end, gap=0), " open" if target is None else " leaving"
    if end is not None and source is not None:  # it was sent before the window
        above = -1 if picture.y.get(message[0], 0.0) <= end[1] else 1
        return _line((end[0] - picture.column * 0.8, end[1] + above * LANE * 0.4), end), ""
    return "", ""


def _place(picture: _Picture, event: Event | None) -> tuple[float, float] | None:
    if event is None or (event.machine, event.number) not in picture.columns:
        return None
    return picture.x(picture.columns[event.machine, event.number]), picture.y[event.machine]


def _line(begin: tuple[float, float], end: tuple[float, float], gap: float = RADIUS + 1) -> str:
    """From dot to dot, shortened so that it touches them; an arc from a machine to itself."""
    (x1, y1), (x2, y2) = begin, end
    if y1 == y2:
        height = min(26.0, 12 + (x2 - x1) / 12)
        return f"M{x1:.1f},{y1 - RADIUS:.1f} C{x1:.1f},{y1 - height:.1f} {x2:.1f},{y2 - height:.1f} {x2:.1f},{y2 - gap:.1f}"
    length = ((x2 - x1) ** 2 + (y2 - y1) ** 2) ** 0.5 or 1.0
    dx, dy = (x2 - x1) / length, (y2 - y1) / length
    start, stop = RADIUS, length - gap
    return f"M{x1 + dx * start:.1f},{y1 + dy * start:.1f} L{x1 + dx * stop:.1f},{y1 + dy * stop:.1f}"


def _cut_lines(cuts: Sequence[Cut], points_of: Sequence[Mapping[str, tuple[float, float]]]) -> list[str]:
    found = []
    for place, (cut, those) in enumerate(zip(cuts, points_of, strict=True)):
        points = [*those.values()]
        if not points:
            continue
        line = [(points[0][0], points[0][1] - 26), *points, (points[-1][0], points[-1][1] + 26)]
        path = "M" + " L".join(f"{x:.1f},{y:.1f}" for x, y in line)
        other = " other" if place else ""
        dots = "".join(f'<rect class="point" x="{x - 3:.1f}" y="{y - 3:.1f}" width="6" height="6"/>' for x, y in points)
        found.append(
            f'<path class="cut{other}" d="{path}"/>{dots}'
            f'<text class="cut-label" x="{line[0][0]:.1f}" y="{line[0][1] - 6:.1f}">{escape(cut.label)}</text>'
        )
    return found


def _points(picture: _Picture, cut: Cut) -> dict[str, tuple[float, float]]:
    """Where each machine recorded: between its last white and its first red dot, as straight below each other as may be."""
    last = max(picture.columns.values(), default=0)
    bounds: dict[str, tuple[float, float]] = {}
    for machine in picture.machines:
        if machine in cut.counts:
            count = cut.counts[machine]
            mine = {
                event.number: picture.columns[machine, event.number]
                for event in picture.events
                if event.machine == machine
            }
            low = max((column for number, column in mine.items() if number <= count), default=-1)
            high = min((column for number, column in mine.items() if number > count), default=last + 1)
            bounds[machine] = low + SLACK, high - SLACK
    if not bounds:
        return {}
    common = statistics.median([bound for pair in bounds.values() for bound in pair])
    return {one: (picture.x(min(max(common, low), high)), picture.y[one]) for one, (low, high) in bounds.items()}


def _control(picture: _Picture, control: Control, recorded: Mapping[tuple[str, int], float]) -> str:
    """A dashed arrow between two points that lie between actions: where machines recorded, if they did so there."""
    ends: list[tuple[float, float]] = []
    for machine, count in ((control.source, control.behind), (control.target, control.before)):
        before = picture.columns.get((machine, count), -1)
        behind = picture.columns.get((machine, count + 1), before + 1)
        x = recorded.get((machine, count), picture.x((before + behind) / 2))
        if ends and x <= ends[0][0]:
            x = max(ends[0][0] + 5, picture.x((before + behind) / 2))
        ends.append((x, picture.y[machine]))
    (x1, y1), (x2, y2) = ends
    path = f"M{x1:.1f},{y1:.1f} Q{(x1 + x2) / 2 + 26:.1f},{(y1 + y2) / 2 + 10:.1f} {x2:.1f},{y2:.1f}"
    return f'<path class="control" d="{path}"><title>{escape(control.label)}</title></path>'


_LEGEND = (
    (r'class="action"', '<circle class="action" cx="8" cy="0" r="5.5"/>', "action"),
    (r'class="action red"', '<circle class="action red" cx="8" cy="0" r="5.5"/>', "action after the snapshot"),
    (r'class="message(?! [\w ]*(?:in-flight|open))', '<path class="message" d="M-6,0 L22,0"/>', "message"),
    (r'class="message in-flight', '<path class="message in-flight" d="M-6,0 L22,0"/>', "in flight in the snapshot"),
    (r'class="[\w -]* open"', '<path class="message open" d="M-6,0 L22,0"/>', "not accepted"),
    (r'class="[\w -]* leaving"', '<path class="message leaving" d="M-6,0 L22,0"/>', "accepted outside of the picture"),
    (r'class="cut', '<path class="cut" d="M8,-9 L8,9"/>', "snapshot"),
    (r'class="control"', '<path class="control" d="M-6,0 L22,0"/>', "marker, barrier, request"),
)
"""(How what is drawn can be told, its mark, what it means)."""


def _legend(body: str) -> tuple[str, float]:
    """Of what occurs, and how wide that is."""
    found, x = [], 8
    for drawn, mark, text in _LEGEND:
        if re.search(drawn, body):
            found.append(f'<g class="legend" transform="translate({x},0)">{mark}<text x="30" y="4">{text}</text></g>')
            x += 58 + int(6.6 * len(text))
    return "".join(found), x + 20
