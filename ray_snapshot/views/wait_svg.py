"""A picture of waits as one SVG: the core as a ring, what is stuck behind it in columns by distance, arrows from left to right.

A pure function of a `Picture`. The text can be read and searched, is cut to its box, and stands whole in a tooltip; kinds
differ by border as well as by colour; light and dark follow the reader's setting. Imports only the standard library.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape, quoteattr

from ray_snapshot.streams import shown
from ray_snapshot.views.wait_picture import BEHIND, CORE, OTHER, WAITS, Arrow, Box, Picture

BOX = 236.0
"""Width of a box, in pixels."""
LINE, PAD, GAP, RING_GAP, COLUMN_GAP = 16.0, 9.0, 20.0, 44.0, 84.0
CHARACTERS = 33
"""So many fit into a line of a box."""
LONGEST = 120
"""Characters of a tooltip."""
BEND, MOST_BEND = 0.13, 36.0
"""How far an arrow bends aside, as a part of its length, and in pixels: so two arrows that go to and fro are two."""

WORDS: Mapping[str, str] = {
    CORE: "can never move again",
    BEHIND: "stuck behind those",
    WAITS: "waits",
    OTHER: "waits for nothing here",
}

UNCERTAIN: Mapping[str, str] = {
    **WORDS,
    CORE: "would be stuck if nothing else acts",
    BEHIND: "waits for those, directly or through others",
}
"""The same where it is not known whether something else may act."""

_STYLE = """
.waits { --ink: #1d2329; --dim: #59636e; --card: #ffffff; --core: #b3261e; --behind: #9a6700; --line: #7d8590; }
@media (prefers-color-scheme: dark) {
.waits { --ink: #e6edf3; --dim: #9aa4ae; --card: #1c2128; --core: #ff8177; --behind: #e0a93b; --line: #8b949e; } }
.waits text { font: 12px system-ui, sans-serif; fill: var(--dim); }
.waits .title { font-weight: 600; fill: var(--ink); }
.waits rect { fill: var(--card); stroke: var(--line); stroke-width: 1.2; }
.waits .core rect { stroke: var(--core); stroke-width: 2.6; }
.waits .behind rect { stroke: var(--behind); stroke-width: 1.6; }
.waits .other rect { stroke-dasharray: 5 3; }
.waits .arrow { fill: none; stroke: var(--line); stroke-width: 1.5; }
.waits .arrow.core { stroke: var(--core); stroke-width: 2; }
.waits .head { fill: var(--line); }
.waits .head.core { fill: var(--core); }
.waits a:hover rect, .waits a:focus rect { stroke-width: 3; }
"""


@dataclass(frozen=True, slots=True)
class _Block:
    """What is placed as one: a box, or the boxes of a ring."""

    boxes: tuple[int, ...]
    centres: tuple[tuple[float, float], ...]
    """Of its boxes, from its own upper left corner."""
    width: float
    height: float


def svg(picture: Picture, links: Mapping[str, str] | None = None, title: str = "Who waits for whom") -> str:
    """The drawing; "" if there is nothing to draw. `links`: an address for machines, and for boxes of several by title."""
    if not picture.boxes:
        return ""
    centres, width, height = _layout(picture)
    body = [_arrow(arrow, picture, centres) for arrow in picture.arrows]
    words = WORDS if picture.is_certain else UNCERTAIN
    body += [_box(box, centres[place], links or {}, words[box.kind]) for place, box in enumerate(picture.boxes)]
    legend, legend_height = _legend(picture, height, words)
    role = "group" if links else "img"  # what can be followed is no part of an image
    return (
        f'<svg class="waits" xmlns="http://www.w3.org/2000/svg" role="{role}" aria-label={quoteattr(title)}'
        f' width="{width:.0f}" height="{height + legend_height:.0f}"'
        f' viewBox="0 0 {width:.0f} {height + legend_height:.0f}">'
        f"<style>{_STYLE}</style><defs>{_head('', 'head')}{_head('core', 'head core')}</defs>"
        + "".join(body)
        + legend
        + "</svg>"
    )


def _head(kind: str, words: str) -> str:
    return (
        f'<marker id="wait-head-{kind or "plain"}" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="9" markerHeight="9"'
        f' markerUnits="userSpaceOnUse" orient="auto"><path class="{words}" d="M1,1 L9,5 L1,9 z"/></marker>'
    )


def _height(box: Box) -> float:
    return 2 * PAD + LINE * (1 + len(box.lines))


# ---- where everything is -------------------------------------------------------------------------------------------------


def _layout(picture: Picture) -> tuple[list[tuple[float, float]], float, float]:
    """Centres of the boxes, and the size of the drawing: a column for each distance, the nearest on the right."""
    columns = {distance: _blocks(picture, distance) for distance in sorted({box.distance for box in picture.boxes})}
    height = max(sum(block.height for block in blocks) + GAP * (len(blocks) - 1) for blocks in columns.values())
    width = sum(max(block.width for block in blocks) for blocks in columns.values()) + COLUMN_GAP * (len(columns) - 1)
    centres: dict[int, tuple[float, float]] = {}
    right = width + GAP
    for blocks in columns.values():
        wide = max(block.width for block in blocks)
        ordered = sorted(blocks, key=lambda block: _middle(block, picture.arrows, centres))
        top = GAP + (height - sum(block.height for block in blocks) - GAP * (len(blocks) - 1)) / 2
        for block in ordered:
            left = right - wide + (wide - block.width) / 2
            for place, (x, y) in zip(block.boxes, block.centres, strict=True):
                centres[place] = left + x, top + y
            top += block.height + GAP
        right -= wide + COLUMN_GAP
    return _in_view([centres[place] for place in range(len(picture.boxes))], picture.arrows, width, height)


def _in_view(
    centres: list[tuple[float, float]], arrows: Sequence[Arrow], width: float, height: float
) -> tuple[list[tuple[float, float]], float, float]:
    """All of it moved so that the bent arrows are inside, too."""
    bends = [_bend(centres[arrow.source], centres[arrow.target]) for arrow in arrows]
    left, top = (min([0.0, *(at[axis] - GAP / 2 for at in bends)]) for axis in (0, 1))
    right = max([width + 2 * GAP, *(x + GAP / 2 for x, _ in bends)])
    bottom = max([height + 2 * GAP, *(y + GAP / 2 for _, y in bends)])
    return [(x - left, y - top) for x, y in centres], right - left, bottom - top


def _blocks(picture: Picture, distance: int) -> list[_Block]:
    rings: dict[int | str, list[int]] = {}
    for place, box in enumerate(picture.boxes):
        if box.distance == distance:
            rings.setdefault(f"{place}" if box.ring is None else box.ring, []).append(place)
    return [_ring(places, [_height(picture.boxes[place]) for place in places]) for places in rings.values()]


def _ring(places: Sequence[int], heights: Sequence[float]) -> _Block:
    """Boxes in two columns, in their order down the right one and up the left one: each is beside the next. Two are in one."""
    half = len(places) if len(places) < 3 else (len(places) + 1) // 2
    rows = [[*range(half)], [*reversed(range(half, len(places)))]]
    tall = [sum(heights[row] for row in column) + RING_GAP * (len(column) - 1) for column in rows]
    centres: dict[int, tuple[float, float]] = {}
    width = BOX if len(places) < 3 else 2 * BOX + RING_GAP
    for column, x, down in zip(rows, (width - BOX / 2, BOX / 2), tall, strict=True):
        top = (max(tall) - down) / 2
        for row in column:
            centres[row] = x, top + heights[row] / 2
            top += heights[row] + RING_GAP
    return _Block(tuple(places), tuple(centres[row] for row in range(len(places))), width, max(tall))


def _middle(block: _Block, arrows: Sequence[Arrow], centres: Mapping[int, tuple[float, float]]) -> float:
    """How far down what it waits for is, on the average: so arrows cross less."""
    own = set(block.boxes)
    found = [centres[arrow.target][1] for arrow in arrows if arrow.source in own and arrow.target in centres]
    found += [centres[arrow.source][1] for arrow in arrows if arrow.target in own and arrow.source in centres]
    return sum(found) / len(found) if found else 0.0


# ---- what is written -----------------------------------------------------------------------------------------------------


def _text(text: str) -> str:
    """A stranger's text in one line, harmless."""
    return escape(shown(" ".join(text[:LONGEST].split()))[: 2 * LONGEST] or "-")


def _cut(text: str) -> str:
    text = shown(" ".join(text[:LONGEST].split()))
    return _text(text if len(text) <= CHARACTERS else f"{text[: CHARACTERS - 1]}…")


def _box(box: Box, centre: tuple[float, float], links: Mapping[str, str], told: str) -> str:
    x, y = centre[0] - BOX / 2, centre[1] - _height(box) / 2
    lines = [(box.title, ' class="title"'), *((line, "") for line in box.lines)]
    body = f'<rect x="{x:.1f}" y="{y:.1f}" width="{BOX:.0f}" height="{_height(box):.0f}" rx="7"/>'
    for row, (line, words) in enumerate(lines):
        body += f'<text{words} x="{x + PAD:.1f}" y="{y + PAD + LINE * (row + 0.75):.1f}">{_cut(line)}</text>'
    tip = f"<title>{_text(box.title)} {told}. {' '.join(map(_text, box.lines))}</title>"
    drawn = f'<g class="{box.kind}">{tip}{body}</g>'
    href = links.get(box.machines[0] if len(box.machines) == 1 else box.title)
    return f"<a href={quoteattr(href)}>{drawn}</a>" if href else drawn


def _arrow(arrow: Arrow, picture: Picture, centres: Sequence[tuple[float, float]]) -> str:
    source, target = picture.boxes[arrow.source], picture.boxes[arrow.target]
    kind = "core" if source.kind == target.kind == CORE else ""
    path = _loop(centres[arrow.source], source) if arrow.source == arrow.target else _curve(arrow, picture, centres)
    head = f"wait-head-{kind or 'plain'}"
    tip = f"<title>{_text(arrow.label)}</title>"
    return f'<path class="arrow {kind}" marker-end="url(#{head})" d="{path}">{tip}</path>'


def _curve(arrow: Arrow, picture: Picture, centres: Sequence[tuple[float, float]]) -> str:
    (x, y), (to_x, to_y) = centres[arrow.source], centres[arrow.target]
    bend_x, bend_y = _bend((x, y), (to_x, to_y))
    begin = _edge((x, y), picture.boxes[arrow.source], (bend_x, bend_y))
    end = _edge((to_x, to_y), picture.boxes[arrow.target], (bend_x, bend_y))
    return f"M{begin[0]:.1f},{begin[1]:.1f} Q{bend_x:.1f},{bend_y:.1f} {end[0]:.1f},{end[1]:.1f}"


def _bend(begin: tuple[float, float], end: tuple[float, float]) -> tuple[float, float]:
    """The point towards which a line from one to the other is drawn aside."""
    across, down = end[0] - begin[0], end[1] - begin[1]
    aside = min(BEND, 2 * MOST_BEND / (math.hypot(across, down) or 1.0))
    return (begin[0] + end[0]) / 2 + aside * down, (begin[1] + end[1]) / 2 - aside * across


def _edge(centre: tuple[float, float], box: Box, towards: tuple[float, float]) -> tuple[float, float]:
    """Where the line from the middle of a box leaves it."""
    across, down = towards[0] - centre[0], towards[1] - centre[1]
    half_x, half_y = BOX / 2 + 2, _height(box) / 2 + 2
    scale = min(half_x / abs(across) if across else math.inf, half_y / abs(down) if down else math.inf, 1.0)
    return centre[0] + across * scale, centre[1] + down * scale


def _loop(centre: tuple[float, float], box: Box) -> str:
    """The arrow of what waits for itself."""
    x, y = centre[0] + BOX / 2 + 1, centre[1]
    half = _height(box) / 4
    return f"M{x:.1f},{y - half:.1f} c30,-14 30,{2 * half + 14:.1f} 0,{2 * half:.1f}"


def _legend(picture: Picture, height: float, words: Mapping[str, str]) -> tuple[str, float]:
    """What the borders mean, and how high that is."""
    kinds = [kind for kind in words if any(box.kind == kind for box in picture.boxes)]
    if len(kinds) < 2:
        return "", 0.0
    found = ""
    for row, kind in enumerate(kinds):
        y = height + 20 * row
        found += (
            f'<g class="{kind}"><rect x="{GAP}" y="{y:.1f}" width="22" height="12" rx="3"/></g>'
            f'<text x="{GAP + 30}" y="{y + 10.5:.1f}">{words[kind]}</text>'
        )
    return found, 20.0 * len(kinds) + 6
