"""Who waits for whom as boxes and arrows: what is drawn, as plain values; `wait_svg` draws it, a report in Markdown writes it.

A box is a machine, or, where there are more than `MOST_BOXES`, all machines of one class that wait at the same place. Its
distance is how many waits lie between it and what it is stuck behind: 0 for the core. Imports only the standard library.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

MOST_BOXES = 60
MOST_ARROWS = 400
MOST_PLACES = 2
"""Of one box so many places at which it waits are shown."""

CORE, BEHIND, WAITS, OTHER = "core", "behind", "waits", "other"
"""Can never move again; stuck behind those; waits; is waited for, and waits for nothing itself."""

Record = Mapping[str, Any]
"""One wait, as the evidence of a deadlock has it: `machine, class, method, call_site, waits_for, ...`."""


@dataclass(frozen=True, slots=True)
class Box:
    """A machine, or several that are alike."""

    title: str
    lines: tuple[str, ...] = ()
    """Where it waits."""
    kind: str = OTHER
    distance: int = 0
    """In waits: 0 for the core, or for what waits for nothing; -1 for what a core waits for and is no part of it."""
    ring: int | None = None
    """Of the core: which one; boxes of one ring are drawn as one."""
    machines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Arrow:
    """`source` waits for `target` (places in `Picture.boxes`)."""

    source: int
    target: int
    label: str = ""
    """What it waits for, in words."""


@dataclass(frozen=True, slots=True)
class Picture:
    """Boxes and arrows; `is_grouped`: boxes stand for several machines each."""

    boxes: tuple[Box, ...] = ()
    arrows: tuple[Arrow, ...] = ()
    is_grouped: bool = False
    is_certain: bool = True
    """Whether the core can never move, or could not if nothing else acts."""
    more_arrows: int = 0
    """So many are not among `arrows`."""


def picture(
    members: Sequence[Record], behind: Sequence[Record], cores: Sequence[Iterable[str]] = (), *, is_certain: bool = True
) -> Picture:
    """The picture of these waits. `members`: those that can never move; `cores`: the machines of each independent core."""
    ring_of = {name: ring for ring, core in enumerate(cores) for name in core}
    kinds = {str(record["machine"]): BEHIND if members else WAITS for record in behind}
    kinds |= {str(record["machine"]): CORE for record in members}
    records = [*members, *behind]
    for record in records:
        for name in record.get("waits_for", ()):
            kinds.setdefault(str(name), OTHER)
    classes = {str(record["machine"]): record.get("class") for record in records}
    keys = {name: name for name in kinds}
    if is_grouped := len(kinds) > MOST_BOXES:
        keys = _alike(records, kinds, classes)
    boxes = _boxes(records, kinds, keys, ring_of)
    boxes = {key: boxes[key] for key in _round(boxes, records, keys)}
    at = {key: place for place, key in enumerate(boxes)}
    arrows = _arrows(records, keys, at)
    distances = _distances([*boxes.values()], arrows)
    placed = [replace(box, distance=distances[place]) for place, box in enumerate(boxes.values())]
    more = max(0, len(arrows) - MOST_ARROWS)
    return Picture(tuple(placed), tuple(arrows[:MOST_ARROWS]), is_grouped, is_certain, more)


def _alike(records: Iterable[Record], kinds: Mapping[str, str], classes: Mapping[str, Any]) -> dict[str, str]:
    """By machine: what is drawn as one box with it."""
    first: dict[str, Record] = {}
    for record in records:
        first.setdefault(str(record["machine"]), record)
    found = {}
    for name, kind in kinds.items():
        place = _place(first[name]) if name in first else ""
        found[name] = f"{kind}\0{classes.get(name) or name.rstrip('0123456789-')}\0{place}"
    most = [key for key, _ in Counter(found.values()).most_common(MOST_BOXES - 1)]
    return {name: key if key in most else f"{kinds[name]}\0others\0" for name, key in found.items()}


def _boxes(
    records: Iterable[Record], kinds: Mapping[str, str], keys: Mapping[str, str], ring_of: Mapping[str, int]
) -> dict[str, Box]:
    places: dict[str, Counter[str]] = {}
    for record in records:
        place = _place(record)
        if place:
            places.setdefault(keys[str(record["machine"])], Counter())[place] += record.get("count", 1)
    machines: dict[str, list[str]] = {}
    for name, key in keys.items():
        machines.setdefault(key, []).append(name)
    found = {}
    for key, names in machines.items():
        listed = places.get(key, Counter()).most_common()
        lines = [f"{place} ({count:,} calls)" if count > len(names) else place for place, count in listed[:MOST_PLACES]]
        if len(listed) > MOST_PLACES:
            lines.append(f"and at {len(listed) - MOST_PLACES} more places")
        title = names[0] if len(names) == 1 else f"{len(names):,} × {key.split(chr(0))[1]}"
        found[key] = Box(title, tuple(lines), kinds[names[0]], ring=_ring(names, ring_of), machines=tuple(names))
    return found


def _round(boxes: Mapping[str, Box], records: Iterable[Record], keys: Mapping[str, str]) -> list[str]:
    """The boxes in such an order that, round a ring, each waits for the next one as far as that can be."""
    waits: dict[str, list[str]] = {}
    for record in records:
        waits.setdefault(keys[str(record["machine"])], []).extend(
            keys[str(name)] for name in record.get("waits_for", ())
        )
    found: dict[str, None] = {}
    for key in boxes:
        while key not in found:
            found[key] = None
            following = [other for other in waits.get(key, ()) if boxes[other].ring == boxes[key].ring]
            key = next((other for other in following if other not in found), key)  # noqa: PLW2901 - the next one round
    return list(found)


def _ring(names: Iterable[str], ring_of: Mapping[str, int]) -> int | None:
    return next((ring_of[name] for name in names if name in ring_of), None)


def _place(record: Record) -> str:
    """Where it waits: `A.both (two.py:7)`; of what has not begun, what it needs."""
    if record.get("needs"):
        return f"not begun, needs {record['needs']}"
    method, kind = record.get("method"), record.get("class")
    site = str(record["call_site"]).rpartition("/")[2] if record.get("call_site") else ""
    if not method:
        return site
    text = f"{kind}.{method}" if kind and not str(method).startswith("(") else str(method)
    return text + (f" ({site})" if site else "")


def _arrows(records: Iterable[Record], keys: Mapping[str, str], at: Mapping[str, int]) -> list[Arrow]:
    found: dict[tuple[int, int], Arrow] = {}
    for record in records:
        source = str(record["machine"])
        names = [str(name) for name in record.get("waits_for", ())]
        calls = [str(call) for call in record.get("waits_for_calls", ())]
        calls = calls if len(calls) == len(names) else [""] * len(names)
        for name, call in zip(names, calls, strict=True):
            pair = at[keys[source]], at[keys[name]]
            if not (name == source and record.get("waits_for_later_call")):
                found.setdefault(pair, Arrow(*pair, f"{source} waits for {name}" + (f" ({call})" if call else "")))
    return list(found.values())


def _distances(boxes: Sequence[Box], arrows: Iterable[Arrow]) -> list[int]:
    """How many waits each is away from the core; without a core, from what waits for nothing. What leads to neither is 0."""
    waiting: dict[int, list[int]] = {}
    for arrow in arrows:
        waiting.setdefault(arrow.target, []).append(arrow.source)
    sources = {source for listed in waiting.values() for source in listed}
    has_core = any(box.kind == CORE for box in boxes)
    first = [place for place, box in enumerate(boxes) if (box.kind == CORE if has_core else place not in sources)]
    found = dict.fromkeys(first, 0)
    ahead = deque(first)
    while ahead:
        place = ahead.popleft()
        for source in waiting.get(place, ()):
            if source not in found:
                found[source] = found[place] + 1
                ahead.append(source)
    return [found.get(place, -1 if has_core and box.kind == OTHER else 0) for place, box in enumerate(boxes)]
