"""Who waits for whom as boxes and arrows: what is drawn, as plain values; `wait_svg` draws it, a report in Markdown writes it.

A box is a machine, or `ALIKE` or more of one class that wait at the same places for the same boxes; where there are more
than `MOST_BOXES`, all of one class at one place. Those that might end a wait by a later call are one box. The distance of a
box is how many waits lie between it and what it is stuck behind: 0 for the core. Imports only base.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from textwrap import wrap
from typing import Any

from ray_snapshot.names import name_ranges

ALIKE = 3
MOST_BOXES = 24
MOST_ARROWS = 400
MOST_PLACES = 2
"""Of one box so many places at which it waits are shown."""

CORE, BEHIND, WAITS, OTHER, CALLERS = "core", "behind", "waits", "other", "callers"
"""Can never move again; stuck behind those; waits; is waited for, and waits for nothing itself; might end a wait by a call."""

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
    is_any: bool = False
    """Whether any of several could end the wait."""


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
    left_out: int = 0
    """So many of those that wait are in no box: of these nothing is told."""


def picture(
    members: Sequence[Record],
    behind: Sequence[Record],
    cores: Sequence[Iterable[str]] = (),
    *,
    is_certain: bool = True,
    left_out: int = 0,
) -> Picture:
    """The picture of these waits. `members`: those that can never move; `cores`: the machines of each independent core;
    `left_out`: so many more wait."""
    ring_of = {name: ring for ring, core in enumerate(cores) for name in core}
    waits = [_Wait.of(record) for record in (*members, *behind)]
    kinds = {wait.machine: BEHIND if members else WAITS for wait in waits}
    kinds |= {str(record["machine"]): CORE for record in [one for one in members if one.get("is_cause")] or members}
    callers = {name for wait in waits for name in wait.callers}
    at_callers = {_CALLERS: _callers(callers, len(callers & kinds.keys()))} if callers else {}
    kinds = {name: OTHER for wait in waits for name in wait.on} | kinds
    classes = {name: _kind_of(name) for name in kinds} | {one.machine: one.class_name for one in waits}
    keys, is_grouped = _alike(waits, kinds, classes), False
    for kept in (CORE, ""):
        if len({*keys.values()}) > MOST_BOXES:
            keys, is_grouped = _by_place(waits, kinds, classes, {**keys}, kept), True
    boxes = _boxes(waits, kinds, classes, keys, ring_of) | at_callers
    keys[_CALLERS] = _CALLERS
    boxes = {key: boxes[key] for key in _round(boxes, waits, keys)}
    arrows = _arrows(waits, keys, boxes)
    distances = _distances([*boxes.values()], arrows)
    placed = [replace(box, distance=distances[place]) for place, box in enumerate(boxes.values())]
    more = max(0, len(arrows) - MOST_ARROWS)
    return Picture(tuple(placed), tuple(arrows[:MOST_ARROWS]), is_grouped, is_certain, more, left_out)


@dataclass(frozen=True, slots=True)
class _Wait:
    """A record as far as it is drawn."""

    machine: str
    class_name: str
    place: str
    count: int
    on: Mapping[str, str]
    """For which machines it waits, and for which call of each."""
    is_any: bool
    callers: frozenset[str] = frozenset()
    """Any of these might end it by a later call."""

    @classmethod
    def of(cls, record: Record) -> _Wait:
        own, names = str(record["machine"]), [str(name) for name in record.get("waits_for", ())]
        calls = [str(call) for call in record.get("waits_for_calls", ())]
        on = dict(zip(names, calls if len(calls) == len(names) else [""] * len(names), strict=True))
        found = cls(own, str(record.get("class") or _kind_of(own)), _place(record), record.get("count", 1), on,
                    len(on) > 1 and record.get("mode") in ("any", "k_of_n"))  # fmt: skip
        if not record.get("waits_for_later_call"):
            return found
        if record.get("held_by"):  # the holder is in the same machine
            return replace(found, on={own: str(record["held_by"])}, is_any=False)
        others = on.keys() - {own}
        if len(others) < 2:
            return replace(found, on=dict.fromkeys(others, ""), is_any=False)
        return replace(found, on={}, is_any=True, callers=frozenset(others))

    @property
    def targets(self) -> list[str]:
        """What its arrows lead to."""
        return [_CALLERS] if self.callers else [*self.on]


_CALLERS = "\0callers"


def _callers(names: Set[str], stuck: int) -> Box:
    fate = "all of them are stuck" if stuck == len(names) else f"{stuck:,} of them are stuck"
    return Box(f"{len(names):,} possible callers", (*wrap(name_ranges(names), 56), *([fate] if stuck else [])), CALLERS)


def _kind_of(name: str) -> str:
    return name.rstrip("0123456789-")


def _first_of_group(keys: dict[str, str], key_of: Callable[[str], Any], least: int = 1) -> dict[str, str]:
    """By machine the first of those with its key, where there are so many; else as it was."""
    groups: dict[Any, list[str]] = {}
    for name in keys:
        groups.setdefault(key_of(name), []).append(name)
    return keys | {name: names[0] for names in groups.values() if len(names) >= least for name in names}


def _alike(waits: Iterable[_Wait], kinds: Mapping[str, str], classes: Mapping[str, str]) -> dict[str, str]:
    """By machine: what is drawn as one box with it, since it waits at the same places for the same boxes."""
    own: dict[str, list[_Wait]] = {}
    askers: dict[str, set[str]] = {}
    for wait in waits:
        own.setdefault(wait.machine, []).append(wait)
        for name in wait.on:
            askers.setdefault(name, set()).add(wait.machine)
    keys = {name: name for name in kinds}

    def key_of(name: str) -> Any:
        places = {
            (one.place, *sorted({"" if on == name else keys.get(on, on) for on in one.targets}))
            for one in own.get(name, ())
        }
        by = () if places else {keys[one] for one in askers.get(name, ())}
        return kinds[name], classes[name], frozenset(places), frozenset(by)

    for _ in range(MOST_BOXES):  # far more steps than a picture has columns
        before, keys = keys, _first_of_group(keys, key_of, ALIKE)
        if keys == before:
            break
    return keys


def _by_place(
    waits: Iterable[_Wait], kinds: Mapping[str, str], classes: Mapping[str, str], keys: dict[str, str], left_out: str
) -> dict[str, str]:
    """The same by class and place, or by class, but for those of one kind; what is left over is one box."""
    places: dict[str, str] = {}
    for wait in waits:
        places.setdefault(wait.machine, wait.place)
    alike = {name: (kinds[name], classes[name], places.get(name)) for name in keys if kinds[name] != left_out}
    room = MOST_BOXES - 1 - len({key for name, key in keys.items() if name not in alike})
    if len({*alike.values()}) > room:  # a box for each class, whatever the place
        alike = {name: (kind, of, None) for name, (kind, of, _) in alike.items()}
    most = [key for key, _ in Counter(alike.values()).most_common(max(1, room))]
    return keys | _first_of_group(
        dict.fromkeys(alike, ""), lambda name: alike[name] if alike[name] in most else kinds[name]
    )


def _boxes(
    waits: Iterable[_Wait],
    kinds: Mapping[str, str],
    classes: Mapping[str, str],
    keys: Mapping[str, str],
    ring_of: Mapping[str, int],
) -> dict[str, Box]:
    places: dict[str, Counter[str]] = {}
    for wait in waits:
        if wait.place:
            places.setdefault(keys[wait.machine], Counter())[wait.place] += wait.count
    machines: dict[str, list[str]] = {}
    for name, key in keys.items():
        machines.setdefault(key, []).append(name)
    found = {}
    for key, names in machines.items():
        listed = places.get(key, Counter()).most_common()
        lines = [f"{place} ({count:,} calls)" if count > len(names) else place for place, count in listed[:MOST_PLACES]]
        if len(listed) > MOST_PLACES:
            lines.append(f"and at {len(listed) - MOST_PLACES} more places")
        if len(names) > 1:
            lines.insert(0, name_ranges(names))
        of = {classes[name] for name in names}
        many = f"{len(names):,} × {classes[names[0]]}" if len(of) == 1 else f"{len(names):,} others"
        title = names[0] if len(names) == 1 else many
        ring = next((ring_of[name] for name in names if name in ring_of and kinds[name] == CORE), None)
        found[key] = Box(title, tuple(lines), kinds[names[0]], ring=ring, machines=tuple(names))
    return found


def _round(boxes: Mapping[str, Box], waits: Iterable[_Wait], keys: Mapping[str, str]) -> list[str]:
    """The boxes in such an order that, round a ring, each waits for the next one as far as that can be."""
    leads: dict[str, list[str]] = {}
    for wait in waits:
        leads.setdefault(keys[wait.machine], []).extend(keys[name] for name in wait.targets)
    found: dict[str, None] = {}
    for key in boxes:
        while key not in found:
            found[key] = None
            following = [other for other in leads.get(key, ()) if boxes[other].ring == boxes[key].ring]
            key = next((other for other in following if other not in found), key)  # noqa: PLW2901 - the next one round
    return list(found)


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


def _arrows(waits: Iterable[_Wait], keys: Mapping[str, str], boxes: Mapping[str, Box]) -> list[Arrow]:
    at = {key: place for place, key in enumerate(boxes)}
    found: dict[tuple[int, int], Arrow] = {}
    for wait in waits:
        for name in wait.targets:
            pair, call = (at[keys[wait.machine]], at[keys[name]]), wait.on.get(name)
            label = f"{boxes[keys[wait.machine]].title} waits for {'any of ' * wait.is_any}{boxes[keys[name]].title}"
            arrow = found.setdefault(pair, Arrow(*pair, label + (f" ({call})" if call else ""), wait.is_any))
            if arrow.is_any and not wait.is_any:
                found[pair] = replace(arrow, is_any=False)
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
    return [found.get(place, -1 if has_core and box.kind in (OTHER, CALLERS) else 0) for place, box in enumerate(boxes)]
