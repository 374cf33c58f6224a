"""The pen with which `draw.py` draws: shapes in, one self-contained SVG out, the same bytes on every machine.

A sheet is a light card, so that it reads alike on light and dark pages, and knows where its texts stand, so that a test
can say that none lies over another. Imports only the standard library.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

Point = tuple[float, float]

WIDE_LETTER = 0.58
"""Width of an average letter as a part of the size of the font; a generous one, for the reader's font is not known."""

STYLE = """
.card { fill: #fcfcfa; stroke: #d5d9d4; }
text { font: 13px system-ui, -apple-system, "Segoe UI", "Liberation Sans", sans-serif; fill: #1d2329; }
.middle { text-anchor: middle; }
.end { text-anchor: end; }
.small { font-size: 12px; }
.dim { fill: #59636e; }
.head { font-size: 14px; font-weight: 600; }
.strong { font-weight: 600; }
.on-red { fill: #ffffff; }
.good { fill: #256d2b; }
.bad { fill: #b3261e; }
.cut-label { fill: #7d5c00; }
.lane { stroke: #8c959f; stroke-width: 1.2; }
.coin-lane { stroke: #efb62c; stroke-width: 7; stroke-linecap: round; }
.line { stroke: #59636e; stroke-width: 1.4; fill: none; }
.line.blue { stroke: #1f6fc0; stroke-width: 2.4; }
.line.bad { stroke: #b3261e; stroke-width: 2.6; }
.line.gold { stroke: #d39a0f; stroke-width: 3; }
.line.good { stroke: #256d2b; stroke-width: 1.8; }
.line.marker { stroke: #59636e; stroke-width: 1.1; stroke-dasharray: 2 3; }
.line.outside { stroke: #59636e; stroke-dasharray: 6 4; }
.line.faint { stroke: #c3c8ce; }
.line.ask { stroke: #59636e; stroke-dasharray: 5 3; }
.cut { stroke: #b8860b; stroke-width: 2.4; fill: none; stroke-linejoin: round; }
.point { fill: #b8860b; }
.white { fill: #ffffff; stroke: #1d2329; stroke-width: 1.5; }
.red { fill: #c4302b; stroke: #8e1b17; stroke-width: 1.5; }
.coin { fill: #f7cf5c; stroke: #8a6500; stroke-width: 1.5; }
.blue { fill: #dcebfa; stroke: #1f6fc0; stroke-width: 1.5; }
.grey { fill: #eceeec; stroke: #8c959f; stroke-width: 1.2; }
.plain { fill: #ffffff; stroke: #59636e; stroke-width: 1.3; }
.moves { fill: #e4f1e3; stroke: #256d2b; stroke-width: 1.6; }
.core { fill: #fbe4e2; stroke: #b3261e; stroke-width: 2.4; }
.behind { fill: #fdf1d8; stroke: #9a6700; stroke-width: 1.6; }
.marker-box { fill: #3c4650; stroke: #1d2329; }
.frame { fill: none; stroke: #8c959f; stroke-width: 1.2; stroke-dasharray: 7 4; }
"""

HEADS = {
    "line": "#59636e",
    "blue": "#1f6fc0",
    "bad": "#b3261e",
    "gold": "#d39a0f",
    "good": "#256d2b",
    "faint": "#c3c8ce",
}


@dataclass(frozen=True, slots=True)
class Words:
    """A text that stands on a sheet, and the room that it takes."""

    words: str
    left: float
    top: float
    right: float
    bottom: float

    def overlaps(self, other: Words) -> bool:
        return (
            self.left < other.right and other.left < self.right and self.top < other.bottom and other.top < self.bottom
        )


class Sheet:
    """One drawing of so many pixels; `title` and `description` are for those who cannot see it."""

    def __init__(self, width: int, height: int, *, title: str, description: str) -> None:
        self.width, self.height = width, height
        self.title, self.description = title, description
        self.words: list[Words] = []
        self._shapes: list[str] = []

    def text(self, x: float, y: float, words: str, kind: str = "") -> None:
        """One line of words, its baseline at `y`; `kind`: classes of the style, such as "middle small"."""
        size = 14 if "head" in kind else 12 if "small" in kind else 13
        width = len(words) * size * WIDE_LETTER * (1.07 if "head" in kind or "strong" in kind else 1)
        left = x - width / 2 if "middle" in kind else x - width if "end" in kind.split() else x
        self.words.append(Words(words, left, y - size * 0.8, left + width, y + size * 0.22))
        self._add("text", kind, x=x, y=y, inner=escape(words))

    def lines(self, x: float, y: float, *lines: str, kind: str = "", apart: float = 17) -> None:
        """Several lines of words, one below the other."""
        for place, line in enumerate(lines):
            self.text(x, y + place * apart, line, kind)

    def line(self, begin: Point, end: Point, kind: str = "line") -> None:
        self._add("line", kind, x1=begin[0], y1=begin[1], x2=end[0], y2=end[1])

    def path(self, points: Sequence[Point], kind: str = "line") -> None:
        """A line through the points."""
        self._add("path", kind, d="M" + " L".join(f"{_short(x)},{_short(y)}" for x, y in points))

    def arrow(self, begin: Point, end: Point, kind: str = "line", *, gaps: Point = (0, 0), bend: float = 0) -> None:
        """From `begin` to `end`, shortened by `gaps` at its ends; `bend`: how far it bows to its left."""
        (x1, y1), (x2, y2) = begin, end
        length = ((x2 - x1) ** 2 + (y2 - y1) ** 2) ** 0.5
        dx, dy = (x2 - x1) / length, (y2 - y1) / length
        x1, y1, x2, y2 = x1 + dx * gaps[0], y1 + dy * gaps[0], x2 - dx * gaps[1], y2 - dy * gaps[1]
        middle = (x1 + x2) / 2 + dy * bend, (y1 + y2) / 2 - dx * bend
        through = f"Q{_short(middle[0])},{_short(middle[1])} " if bend else "L"
        colour = next((name for name in HEADS if name != "line" and name in kind.split()), "line")
        self._add(
            "path",
            kind if kind.startswith("line") else f"line {kind}",
            d=f"M{_short(x1)},{_short(y1)} {through}{_short(x2)},{_short(y2)}",
            **{"marker-end": f"url(#{colour})"},
        )

    def box(self, x: float, y: float, width: float, height: float, kind: str, *, round: float = 5) -> None:
        self._add("rect", kind, x=x, y=y, width=width, height=height, rx=round)

    def circle(self, centre: Point, radius: float, kind: str) -> None:
        self._add("circle", kind, cx=centre[0], cy=centre[1], r=radius)

    def coin(self, x: float, y: float) -> None:
        self.circle((x, y), 7, "coin")

    def svg(self) -> str:
        heads = "".join(
            f'<marker id="{name}" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="9" markerHeight="9"'
            f' markerUnits="userSpaceOnUse" orient="auto"><path d="M1,1 L9,5 L1,9 z" fill="{colour}"/></marker>\n'
            for name, colour in HEADS.items()
        )
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{self.width}" height="{self.height}"'
            f' viewBox="0 0 {self.width} {self.height}" role="img" aria-labelledby="title desc">\n'
            f'<title id="title">{escape(self.title)}</title>\n<desc id="desc">{escape(self.description)}</desc>\n'
            f"<style>{STYLE}</style>\n<defs>\n{heads}</defs>\n"
            f'<rect class="card" x="0.5" y="0.5" width="{self.width - 1}" height="{self.height - 1}" rx="8"/>\n'
            + "\n".join(self._shapes)
            + "\n</svg>\n"
        )

    def _add(self, shape: str, kind: str, *, inner: str = "", **numbers: float | str) -> None:
        told = f' class="{kind}"' if kind else ""
        told += "".join(
            f' {name}="{value if isinstance(value, str) else _short(value)}"' for name, value in numbers.items()
        )
        self._shapes.append(f"<{shape}{told}>{inner}</{shape}>" if inner else f"<{shape}{told}/>")


def _short(value: float) -> str:
    return f"{value:.1f}".rstrip("0").rstrip(".")


Cut = Mapping[str, float]
"""For each machine the moment, an x, at which it recorded."""


@dataclass(frozen=True, slots=True)
class Run:
    """A run for a space-time diagram: each machine's actions as (name, moment), and messages as (sent in, accepted in)."""

    actions: Mapping[str, Sequence[tuple[str, float]]]
    messages: Sequence[tuple[str, str]]

    def place(self, action: str) -> tuple[str, float]:
        """(machine, moment) of an action."""
        return next(
            (machine, moment) for machine, row in self.actions.items() for name, moment in row if name == action
        )

    def order(self) -> list[str]:
        """All actions in the order in which they happened."""
        rows = [(moment, name) for row in self.actions.values() for name, moment in row]
        return [name for _, name in sorted(rows)]

    def is_white(self, action: str, cut: Cut) -> bool:
        machine, moment = self.place(action)
        return moment < cut[machine]

    def in_flight(self, cut: Cut) -> list[tuple[str, str]]:
        """Messages sent in a white action and accepted in a red one."""
        return [(s, a) for s, a in self.messages if self.is_white(s, cut) and not self.is_white(a, cut)]

    def backwards(self, cut: Cut) -> list[tuple[str, str]]:
        """Red messages accepted in a white action: with one of these the cut is not consistent."""
        return [(s, a) for s, a in self.messages if not self.is_white(s, cut) and self.is_white(a, cut)]


RADIUS = 11.0


def space_time(
    sheet: Sheet,
    run: Run,
    *,
    left: float,
    right: float,
    top: float,
    apart: float = 62,
    cut: Cut | None = None,
    label: str = "",
    markers: Sequence[tuple[str, float, str, float]] = (),
) -> dict[str, float]:
    """Draw a run: a line for each machine, a circle for each action, an arrow for each message, the cut; returns each line's y.

    `markers`: (from machine, moment, to machine, moment).
    """
    y = {machine: top + apart * place for place, machine in enumerate(run.actions)}
    for machine, height in y.items():
        sheet.text(left, height + 4, machine, "strong")
        sheet.line((left + 10 + 9 * len(machine), height), (right, height), "lane")
    for source, begin, target, end in markers:
        sheet.arrow((begin, y[source]), (end, y[target]), "marker", gaps=(4, 4))
    backwards, in_flight = (run.backwards(cut), run.in_flight(cut)) if cut else ([], [])
    for message in run.messages:
        (source, begin), (target, end) = map(run.place, message)
        kind = "bad" if message in backwards else "blue" if message in in_flight else "line"
        sheet.arrow((begin, y[source]), (end, y[target]), kind, gaps=(RADIUS, RADIUS + 1))
    if cut:
        points = [(cut[machine], y[machine]) for machine in y]
        ends = (points[0][0], top - 32), (points[-1][0], points[-1][1] + 32)
        sheet.path([ends[0], *points, ends[1]], "cut")
        for px, py in points:
            sheet.box(px - 4, py - 4, 8, 8, "point", round=0)
        if label:
            sheet.text(ends[0][0], ends[0][1] - 6, label, "middle small cut-label")
    for machine, row in run.actions.items():
        for name, moment in row:
            is_red = cut is not None and not run.is_white(name, cut)
            sheet.circle((moment, y[machine]), RADIUS, "red" if is_red else "white")
            sheet.text(moment, y[machine] + 4, name, "middle small on-red" if is_red else "middle small")
    return y


def pipe(
    sheet: Sheet, x: float, y: float, items: Sequence[tuple[str, str]], *, cell: float = 46, height: float = 30
) -> float:
    """A channel as a pipe, its receiver on the right: `items` as (words, kind), the oldest last; returns its right end."""
    width = cell * len(items)
    sheet.line((x, y - height / 2 - 4), (x + width, y - height / 2 - 4), "lane")
    sheet.line((x, y + height / 2 + 4), (x + width, y + height / 2 + 4), "lane")
    for place, (words, kind) in enumerate(items):
        if not kind:
            continue
        at = x + cell * place
        sheet.box(at + 3, y - height / 2, cell - 6, height, kind)
        if words:
            light = kind in ("red", "marker-box")
            sheet.text(at + cell / 2, y + 4, words, "middle small on-red" if light else "middle small")
    return x + width
