"""A deadlock, a termination or a doubt in a few lines for a terminal: what a person reads when an app hangs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

MOST_LINES = 12

_PACKAGES = r"/site-packages/|/(?:working_dir|py_modules)_files/_ray_pkg_[^/]+/"
"""Where installed libraries are, and where Ray unpacks what a job brings along."""

_SITES = re.compile(rf"[^\s(]*(?:{_PACKAGES})|{re.escape(str(Path.cwd()))}/")
"""What call sites begin with and a report leaves out: the path to those, and the current folder."""


def deadlock_report(evidence: Mapping[str, Any], system: str, snapshot_id: str) -> str:
    """The report of a deadlock verdict: which machine waits for which, which are stuck behind them, what to change."""
    members, behind = evidence.get("members", []), evidence.get("stuck_behind", [])
    lines = [f"ray-snapshot: deadlock in {system} (snapshot {snapshot_id}): these can never move again"]
    lines += _listed(members, evidence.get("member_count", len(members)))
    if behind:
        lines.append("  stuck behind them:")
        lines += _listed(behind, evidence.get("stuck_behind_count", len(behind)))
    advice = (_SITES.sub("", text) for text in evidence.get("advice", ()))
    lines += [f"  to do: {text}" for text in dict.fromkeys(advice)]
    return "\n".join(lines)


def _listed(records: list[Any], count: int) -> list[str]:
    """A line for each place, with how many calls of one machine wait there."""
    places = Counter(map(wait_line, records))
    shown = list(places.items())[:MOST_LINES]
    lines = [f"    {line}" + (f" ({calls:,} calls)" if calls > 1 else "") for line, calls in shown]
    if (more := count - sum(calls for _, calls in shown)) > 0:
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
    """Where a machine is: `A-0 in A.both (two.py:7)`."""
    text = str(record["machine"])
    method, kind = record.get("method"), record.get("class")
    if method:
        text += f" in {kind}.{method}" if kind and not str(method).startswith("(") else f" in {method}"
    if record.get("call_site"):
        text += f" ({short_site(record['call_site'])})"
    return text


def _targets(record: Mapping[str, Any]) -> str:
    names = [str(name) for name in record.get("waits_for", ())]
    calls = [str(call) for call in record.get("waits_for_calls", ())]
    if len(calls) == len(names):
        names = [f"{name} ({call})" for name, call in zip(names, calls, strict=True)]
    word = {"any": "any of ", "k_of_n": f"{record.get('k', 'some')} of "}.get(str(record.get("mode")), "")
    return (word if len(names) > 1 else "") + (", ".join(names) or "something that was not recorded")


def short_site(site: str) -> str:
    """A call site with a path as one would type it here."""
    path, _, line = site.rpartition(":")
    *packages, library = re.split(_PACKAGES, path)
    if packages:
        return f"{library}:{line}"
    try:
        return f"{Path(path).relative_to(Path.cwd())}:{line}"
    except ValueError:
        return site


def wait_tree(waits: Iterable[Mapping[str, Any]], places: Mapping[str, str]) -> list[str]:
    """Which machine waits for which, each once, as an indented tree: first from machines that no other waits for, then
    from the rest. An arrow closes a cycle."""
    edges: dict[str, list[str]] = {}
    for row in waits:
        if not row["satisfied"]:
            targets = edges.setdefault(row["machine"], [])
            name = row["on_machine"] or "something that was not recorded"
            if name not in targets:
                targets.append(name)
    waited_for = {name for targets in edges.values() for name in targets}
    lines: list[str] = []
    drawn: set[str] = set()
    for root in [*(name for name in edges if name not in waited_for), *edges]:
        if root not in drawn:
            _branch(root, edges, places, drawn, (), lines)
    return lines


def _branch(
    name: str,
    edges: Mapping[str, list[str]],
    places: Mapping[str, str],
    drawn: set[str],
    path: tuple[str, ...],
    lines: list[str],
) -> None:
    indent = "  " * len(path) + ("waits for " if path else "")
    if name in path:
        lines.append(f"{indent}{name}  <- a cycle: it waits for itself")
        return
    lines.append(f"{indent}{places.get(name, name)}")
    if name in drawn:
        return
    drawn.add(name)
    for target in edges.get(name, ()):
        _branch(target, edges, places, drawn, (*path, name), lines)
