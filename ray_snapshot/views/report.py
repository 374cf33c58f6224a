"""A deadlock, a termination or a doubt in a few lines for a terminal: what a person reads when an app hangs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

MOST_LINES = 12
MOST_NAMES = 8
"""So many of those that one line waits for are named."""

_PACKAGES = r"/site-packages/|/(?:working_dir|py_modules)_files/_ray_pkg_[^/]+/"
"""Where installed libraries are, and where Ray unpacks what a job brings along."""


def current_folder() -> Path | None:
    """None if it is gone."""
    try:
        return Path.cwd()
    except OSError:
        return None


def _typed_from() -> Path | None:
    """What paths leave out: the current folder; None at the root of all, from where they would be no shorter."""
    here = current_folder()
    return None if here is None or here == here.parent else here


def _beginnings() -> re.Pattern[str]:
    """What call sites begin with and a report leaves out: the path to packages, and the current folder."""
    here = _typed_from()
    folders = [] if here is None else [rf"(?<![^\s(]){re.escape(str(here))}/"]
    return re.compile("|".join([rf"[^\s(]*(?:{_PACKAGES})", *folders]))


def deadlock_report(evidence: Mapping[str, Any], system: str, snapshot_id: str) -> str:
    """The report of a deadlock verdict: which machine waits for which, which are stuck behind them, what to change."""
    members, behind = evidence.get("members", []), evidence.get("stuck_behind", [])
    lines = [f"ray-snapshot: deadlock in {system} (snapshot {snapshot_id}): these can never move again"]
    lines += wait_lines(members, evidence.get("member_count", len(members)))
    if behind:
        lines.append("  stuck behind them:")
        lines += wait_lines(behind, evidence.get("stuck_behind_count", len(behind)))
    if any(record.get("needs") for record in (*members, *behind)):
        lines.append("  this holds as long as no node joins, and nobody outside gives anything back")
    advice = (short_sites(text) for text in evidence.get("advice", ()))
    lines += [f"  to do: {text}" for text in dict.fromkeys(advice)]
    return "\n".join(lines)


def wait_lines(records: Iterable[Mapping[str, Any]], count: int | None = None) -> list[str]:
    """A line for each place, with how many calls of one machine wait there; `count`: of all, where these are but some.

    A record with a `count` of its own stands for so many.
    """
    places: Counter[str] = Counter()
    for record in records:
        places[wait_line(record)] += record.get("count", 1)
    shown = list(places.items())[:MOST_LINES]
    lines = [f"    {line}" + (f" ({calls:,} calls)" if calls > 1 else "") for line, calls in shown]
    if (more := (places.total() if count is None else count) - sum(calls for _, calls in shown)) > 0:
        lines.append(f"    ... and {more:,} more")
    return lines


def wait_line(record: Mapping[str, Any]) -> str:
    """One member: `A-0 in A.both (two.py:7) waits for A-1 (A.ask2)`, or `prepare(), not begun, needs CPU 1, ...`."""
    if record.get("needs"):
        machine, method = str(record["machine"]), record.get("method")
        name = machine if machine.endswith("()") or not method else f"{machine} ({method})"
        return f"{name}, not begun, needs {record['needs']}"
    return f"{place(record)} waits for {_targets(record)}"


def place(record: Mapping[str, Any]) -> str:
    """Where a machine is: `A-0 in A.both (two.py:7)`, or `(two.py:7, in queue.Queue.get)`."""
    text = str(record["machine"])
    method, kind = record.get("method"), record.get("class")
    if method:
        text += f" in {kind}.{method}" if kind and not str(method).startswith("(") else f" in {method}"
    if record.get("call_site"):
        text += f" ({place_text(record['call_site'], record.get('primitive'))})"
    return text


def _targets(record: Mapping[str, Any]) -> str:
    names = [str(name) for name in record.get("waits_for", ())]
    count = int(record.get("waits_for_count", len(names)))
    if record.get("held_by"):
        return f"{record['held_by']} to give it back"
    if record.get("waits_for_later_call"):
        machine = str(record["machine"])
        others = [name for name in names if name != machine] or names
        return f"a later call to {machine}, by {'any of ' * (len(others) > 1)}{_some(others, count - len(names))}"
    if record.get("waits_for_a_reader"):
        return f"{_some(names, count - len(names))} to take an item"
    calls = [str(call) for call in record.get("waits_for_calls", ())]
    if len(calls) == len(names):
        pairs = zip(names, calls, strict=True)
        names = [name if name == f"{call}()" else f"{name} ({call})" for name, call in pairs]
    word = {"any": "any of ", "k_of_n": f"{record.get('k', 'some')} of "}.get(str(record.get("mode")), "")
    return (word if len(names) > 1 else "") + (_some(names, count - len(names)) or "something that was not recorded")


def _some(names: list[str], more: int) -> str:
    """ "a, b and 4 more" of `names`, and so many that are not among them."""
    more += max(0, len(names) - MOST_NAMES)
    return ", ".join(names[:MOST_NAMES]) + (f" and {more:,} more" if more else "")


def chain(frames: Iterable[Mapping[str, Any]], cut: int = 0) -> str:
    """The frames of a stack, from the inside out: "A.inner (app.py:7, in queue.Queue.get) < A.outer (app.py:4)".

    `cut`: so many are left out in the middle. A recursion stands once, with how often.
    """
    texts = [f"{one['function']} ({_frame_site(one)})" for one in frames]
    half = len(texts) // 2
    alike = groupby([*texts[:half], f"{cut:,} more", *texts[half:]] if cut else texts)
    counted = ((text, len(list(those))) for text, those in alike)
    return " < ".join(text + (f" ({times:,} times)" if times > 1 else "") for text, times in counted)


def _frame_site(frame: Mapping[str, Any]) -> str:
    return place_text(f"{frame['file']}:{frame['line']}", frame.get("inside"))


def place_text(site: str, inside: str | None = None) -> str:
    """ "app.py:7, in queue.Queue.get": where the user's own line is, and what it is in."""
    return short_site(site) + (f", in {inside}" if inside else "")


def short_sites(text: str) -> str:
    """A text with the call sites in it as one would type them here."""
    return _beginnings().sub("", text)


def short_site(site: str) -> str:
    """A call site with a path as one would type it here."""
    path, _, line = site.rpartition(":")
    *packages, library = re.split(_PACKAGES, path)
    if packages:
        return f"{library}:{line}"
    here = _typed_from()
    if here is None or not Path(path).is_relative_to(here):
        return site
    return f"{Path(path).relative_to(here)}:{line}"


def wait_tree(waits: Iterable[Mapping[str, Any]], places: Mapping[str, str]) -> list[str]:
    """Which machine waits for which, each once, as an indented tree: first from machines that no other waits for, then
    from the rest. An arrow closes a cycle. A call that waits inside its own actor waits for a later call to it."""
    rows = [row for row in waits if not row["satisfied"]]
    local = {_wait_of(row) for row in rows if _is_for_a_later_call(row)}
    edges: dict[str, list[str]] = {}
    callers: dict[str, list[str]] = {}
    for row in rows:
        is_local = _wait_of(row) in local
        targets = (callers if is_local else edges).setdefault(row["machine"], [])
        name = row["on_machine"] or "something that was not recorded"
        if name not in targets and not (is_local and name == row["machine"]):
            targets.append(name)
    waited_for = {name for targets in edges.values() for name in targets}
    tree = _Tree(edges, callers, places)
    waiting = dict.fromkeys((*edges, *callers))
    for root in [*(name for name in waiting if name not in waited_for), *waiting]:
        if root not in tree.drawn:
            tree.branch(root)
    return tree.lines


def _wait_of(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return row["machine"], row.get("call_id"), row.get("alternative")


def _is_for_a_later_call(row: Mapping[str, Any]) -> bool:
    return bool(row.get("call_id")) and row["on_machine"] == row["machine"] and not row["on_call_id"]


class _Tree:
    """The lines of a tree, as it is drawn."""

    def __init__(
        self, edges: Mapping[str, list[str]], callers: Mapping[str, list[str]], places: Mapping[str, str]
    ) -> None:
        self.edges = edges
        self.callers = callers
        """By machine with a call that waits for a later one: who might make it."""
        self.places = places
        self.drawn: set[str] = set()
        self.lines: list[str] = []

    def branch(self, name: str, path: tuple[str, ...] = ()) -> None:
        """Draw what `name` waits for, below those that wait for it."""
        indent = "  " * len(path) + ("waits for " if path else "")
        if name in path:
            self.lines.append(f"{indent}{name}  <- a cycle: it waits for itself")
            return
        self.lines.append(f"{indent}{self.places.get(name, name)}")
        if name in self.drawn:
            return
        self.drawn.add(name)
        for target in self.edges.get(name, ()):
            self.branch(target, (*path, name))
        if (callers := self.callers.get(name)) is not None:
            by = f", by {'any of ' * (len(callers) > 1)}{_some(callers, 0)}" if callers else ""
            self.lines.append(f"{'  ' * (len(path) + 1)}waits for a later call to it{by}")
