"""A picture of waits as one SVG: the core as a ring, what is stuck behind it in columns by distance, arrows from left to right.

A pure function of a `Picture`. The text can be read and searched, is cut to its box, and stands whole in a tooltip; kinds
differ by border as well as by colour; light and dark follow the reader's setting. Imports only the standard library.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from xml.sax.saxutils import escape, quoteattr

from ray_snapshot.streams import shown
from ray_snapshot.views.wait_picture import BEHIND, CALLERS, CORE, OTHER, WAITS, Arrow, Box, Picture

LEAST, MOST = 120.0, 430.0
"""Width of a box, in pixels: as its column needs it."""
CHARACTER = 6.8
"""Of a wide font."""
LINE, PAD, GAP, RING_GAP, COLUMN_GAP = 16.0, 9.0, 20.0, 44.0, 84.0
CHARACTERS = int((MOST - 2 * PAD) / CHARACTER)
"""So many fit into a line of the widest box."""
LONGEST = 120
"""Characters of a tooltip."""
BEND, MOST_BEND = 0.13, 36.0
"""How far an arrow bends aside, as a part of its length, and in pixels: so two arrows that go to and fro are two."""

WORDS: Mapping[str, str] = {
    CORE: "can never move again",
    BEHIND: "stuck behind those",
    WAITS: "waits",
    OTHER: "waits for nothing here",
    CALLERS: "a call of any of them would end the wait",
}

UNCERTAIN: Mapping[str, str] = {
    **WORDS,
    CORE: "would be stuck if nothing else acts",
    BEHIND: "waits for those, directly or through others",
}
"""The same where it is not known whether something else may act."""

NOT_TOLD = "waits for nothing here, or is not told of"

_STYLE = """
.waits { --ink: #1d2329; --dim: #59636e; --card: #ffffff; --core: #b3261e; --behind: #9a6700; --line: #7d8590; }
@media (prefers-color-scheme: dark) {
.waits { --ink: #e6edf3; --dim: #9aa4ae; --card: #1c2128; --core: #ff8177; --behind: #e0a93b; --line: #8b949e; } }
.waits text { font: 12px system-ui, sans-serif; fill: var(--dim); }
.waits .title { font-weight: 600; fill: var(--ink); }
.waits rect { fill: var(--card); stroke: var(--line); stroke-width: 1.2; }
.waits .core rect { stroke: var(--core); stroke-width: 2.6; }
.waits .behind rect { stroke: var(--behind); stroke-width: 1.6; }
.waits .other rect, .waits .callers rect, .waits .any { stroke-dasharray: 5 3; }
.waits .callers rect { fill: none; }
.waits .arrow { fill: none; stroke: var(--line); stroke-width: 1.5; }
.waits .arrow.core { stroke: var(--core); stroke-width: 2; }
.waits .head { fill: var(--line); }
.waits .head.core { fill: var(--core); }
.waits a:hover rect, .waits a:focus rect { stroke-width: 3; }
"""


@dataclass(frozen=True, slots=True)
class _Placed:
    """A box by its middle; `at`: its place in the picture."""

    at: int
    box: Box
    x: float
    y: float
    width: float

    @property
    def height(self) -> float:
        return 2 * PAD + LINE * (1 + len(self.box.lines))


@dataclass(frozen=True, slots=True)
class _Block:
    """What is placed as one: a box, or the boxes of a ring, from its own upper left corner."""

    boxes: Sequence[_Placed]
    width: float
    height: float


def svg(picture: Picture, links: Mapping[str, str] | None = None, title: str = "Who waits for whom") -> str:
    """The drawing; "" if there is nothing to draw. `links`: an address for machines, and for boxes of several by title."""
    if not picture.boxes:
        return ""
    placed, width, height = _layout(picture)
    body = [_arrow(arrow, placed) for arrow in picture.arrows]
    words = {**(WORDS if picture.is_certain else UNCERTAIN), **({OTHER: NOT_TOLD} if picture.left_out else {})}
    body += [_box(one, links or {}, words[one.box.kind]) for one in placed]
    legend, legend_height = _legend(picture, height, words)
    role = "group" if links else "img"  # what can be followed is no part of an image
    return (
        f'<svg class="waits" xmlns="http://www.w3.org/2000/svg" role="{role}" aria-label={quoteattr(title)}'
        f' width="{width:.0f}" height="{height + legend_height:.0f}" style="--wide: {width:.0f}px"'
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


# ---- where everything is -------------------------------------------------------------------------------------------------


def _layout(picture: Picture) -> tuple[list[_Placed], float, float]:
    """The boxes, and the size of the drawing: a column for each distance, the nearest on the right."""
    columns = {distance: _blocks(picture, distance) for distance in sorted({box.distance for box in picture.boxes})}
    height = max(sum(block.height for block in blocks) + GAP * (len(blocks) - 1) for blocks in columns.values())
    width = sum(max(block.width for block in blocks) for blocks in columns.values()) + COLUMN_GAP * (len(columns) - 1)
    placed: dict[int, _Placed] = {}
    right = width + GAP
    for blocks in columns.values():
        wide = max(block.width for block in blocks)
        ordered = sorted(blocks, key=lambda block: _middle(block, picture.arrows, placed))
        top = GAP + (height - sum(block.height for block in blocks) - GAP * (len(blocks) - 1)) / 2
        for block in ordered:
            left = right - wide + (wide - block.width) / 2
            placed |= {one.at: replace(one, x=one.x + left, y=one.y + top) for one in block.boxes}
            top += block.height + GAP
        right -= wide + COLUMN_GAP
    return _in_view([placed[at] for at in range(len(placed))], picture.arrows, width, height)


def _in_view(
    placed: list[_Placed], arrows: Sequence[Arrow], width: float, height: float
) -> tuple[list[_Placed], float, float]:
    """All of it moved so that the bent arrows are inside, too."""
    bends = [_bend(placed[arrow.source], placed[arrow.target]) for arrow in arrows]
    left, top = (min([0.0, *(at[axis] - GAP / 2 for at in bends)]) for axis in (0, 1))
    right = max([width + 2 * GAP, *(x + GAP / 2 for x, _ in bends)])
    bottom = max([height + 2 * GAP, *(y + GAP / 2 for _, y in bends)])
    return [replace(one, x=one.x - left, y=one.y - top) for one in placed], right - left, bottom - top


def _blocks(picture: Picture, distance: int) -> list[_Block]:
    here = {at: box for at, box in enumerate(picture.boxes) if box.distance == distance}
    needed = max(CHARACTER * len(line) for box in here.values() for line in (box.title, *box.lines)) + 2 * PAD
    rings: dict[int | str, list[_Placed]] = {}
    for at, box in here.items():
        placed = _Placed(at, box, 0, 0, min(MOST, max(LEAST, needed)))
        rings.setdefault(f"{at}" if box.ring is None else box.ring, []).append(placed)
    return [*map(_ring, rings.values())]


def _ring(boxes: Sequence[_Placed]) -> _Block:
    """Boxes in two columns, in their order down the right one and up the left one: each is beside the next. Two are in one."""
    half, wide = len(boxes) if len(boxes) < 3 else (len(boxes) + 1) // 2, boxes[0].width
    columns = [range(half), range(len(boxes) - 1, half - 1, -1)]
    tall = [sum(boxes[row].height for row in column) + RING_GAP * max(0, len(column) - 1) for column in columns]
    width = wide if len(boxes) < 3 else 2 * wide + RING_GAP
    found = []
    for column, x, down in zip(columns, (width - wide / 2, wide / 2), tall, strict=True):
        top = (max(tall) - down) / 2
        for row in column:
            found.append(replace(boxes[row], x=x, y=top + boxes[row].height / 2))
            top += boxes[row].height + RING_GAP
    return _Block(found, width, max(tall))


def _middle(block: _Block, arrows: Sequence[Arrow], placed: Mapping[int, _Placed]) -> float:
    """How far down what it waits for is, on the average: so arrows cross less."""
    own = {one.at for one in block.boxes}
    found = [placed[arrow.target].y for arrow in arrows if arrow.source in own and arrow.target in placed]
    found += [placed[arrow.source].y for arrow in arrows if arrow.target in own and arrow.source in placed]
    return sum(found) / len(found) if found else 0.0


# ---- what is written -----------------------------------------------------------------------------------------------------


def _text(text: str) -> str:
    """A stranger's text in one line, harmless."""
    return escape(shown(" ".join(text[:LONGEST].split()))[: 2 * LONGEST] or "-")


def _cut(text: str) -> str:
    text = shown(" ".join(text[:LONGEST].split()))
    return _text(text if len(text) <= CHARACTERS else f"{text[: CHARACTERS - 1]}…")


def _box(placed: _Placed, links: Mapping[str, str], told: str) -> str:
    box, x, y = placed.box, placed.x - placed.width / 2, placed.y - placed.height / 2
    lines = [(box.title, ' class="title"'), *((line, "") for line in box.lines)]
    body = f'<rect x="{x:.1f}" y="{y:.1f}" width="{placed.width:.1f}" height="{placed.height:.0f}" rx="7"/>'
    for row, (line, words) in enumerate(lines):
        body += f'<text{words} x="{x + PAD:.1f}" y="{y + PAD + LINE * (row + 0.75):.1f}">{_cut(line)}</text>'
    tip = f"<title>{_text(box.title)} {told}. {' '.join(map(_text, box.lines))}</title>"
    drawn = f'<g class="{box.kind}">{tip}{body}</g>'
    href = links.get(box.machines[0] if len(box.machines) == 1 else box.title)
    return f"<a href={quoteattr(href)}>{drawn}</a>" if href else drawn


def _arrow(arrow: Arrow, placed: Sequence[_Placed]) -> str:
    source, target = placed[arrow.source], placed[arrow.target]
    kind = "core" if source.box.kind == target.box.kind == CORE else ""
    path = _loop(source) if source is target else _curve(source, target)
    head = f"wait-head-{kind or 'plain'}"
    tip = f"<title>{_text(arrow.label)}</title>"
    return f'<path class="arrow {kind}{" any" * arrow.is_any}" marker-end="url(#{head})" d="{path}">{tip}</path>'


def _curve(source: _Placed, target: _Placed) -> str:
    bend = _bend(source, target)
    begin, end = (replace(one, x=x, y=y) for one in (source, target) for x, y in [_edge(one, bend)])
    x, y = _bend(
        begin, end
    )  # not `bend` itself: between boxes that are near that may be the end, and have no direction
    return f"M{begin.x:.1f},{begin.y:.1f} Q{x:.1f},{y:.1f} {end.x:.1f},{end.y:.1f}"


def _bend(begin: _Placed, end: _Placed) -> tuple[float, float]:
    """The point towards which a line from one to the other is drawn aside."""
    across, down = end.x - begin.x, end.y - begin.y
    aside = min(BEND, 2 * MOST_BEND / (math.hypot(across, down) or 1.0))
    return (begin.x + end.x) / 2 + aside * down, (begin.y + end.y) / 2 - aside * across


def _edge(placed: _Placed, towards: tuple[float, float]) -> tuple[float, float]:
    """Where the line from the middle of a box leaves it."""
    across, down = towards[0] - placed.x, towards[1] - placed.y
    half_x, half_y = placed.width / 2 + 2, placed.height / 2 + 2
    scale = min(half_x / abs(across) if across else math.inf, half_y / abs(down) if down else math.inf, 1.0)
    return placed.x + across * scale, placed.y + down * scale


def _loop(placed: _Placed) -> str:
    """The arrow of what waits for itself."""
    x, half = placed.x + placed.width / 2 + 1, placed.height / 4
    return f"M{x:.1f},{placed.y - half:.1f} c30,-14 30,{2 * half + 14:.1f} 0,{2 * half:.1f}"


def _legend(picture: Picture, height: float, words: Mapping[str, str]) -> tuple[str, float]:
    """What the borders and arrows mean that occur, and how high that is."""
    kinds = [kind for kind in words if any(box.kind == kind for box in picture.boxes)]
    box = '<g class="{}"><rect x="{}" y="{:.1f}" width="22" height="12" rx="3"/></g>'
    marks = [(box.format(kind, GAP, height + 20 * row), words[kind]) for row, kind in enumerate(kinds)]
    if any(arrow.is_any and picture.boxes[arrow.target].kind != CALLERS for arrow in picture.arrows):
        path = f'<path class="arrow any" d="M{GAP},{height + 20 * len(marks) + 6:.1f} h22"/>'
        marks.append((path, "any of these would do"))
    if len(marks) < 2:
        return "", 0.0
    texts = (
        f'{mark}<text x="{GAP + 30}" y="{height + 20 * row + 10.5:.1f}">{text}</text>'
        for row, (mark, text) in enumerate(marks)
    )
    return "".join(texts), 20.0 * len(marks) + 6
