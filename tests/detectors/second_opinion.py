"""A second opinion: does what a verdict says follow from the rows? Small, slow and plain on purpose.

Shares no code with the detectors: a mistake there must not be repeated here. Works on whole machines where the detectors look
at single calls, so some of what they prove it can neither confirm nor refute.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any

from ray_snapshot.json_text import parsed_json
from ray_snapshot.snapshot import Snapshot

CONFIRMED, WRONG, UNCHECKED = "confirmed", "wrong", "unchecked"

Outcome = tuple[str, str]
"""CONFIRMED, WRONG or UNCHECKED, and why."""

Evidence = Mapping[str, Any]

_LARGEST_EXPONENT = 1_000
"""The largest power of ten in a number that is counted."""

_STEP = re.compile(r"\.([A-Za-z_]\w*)|\[(\d+)\]")


def check(snapshot: Snapshot, verdict: Mapping[str, Any]) -> Outcome:
    """Hold one verdict (`detector_spec` and `evidence` as JSON text, `holds`) against its snapshot."""
    if verdict["holds"] is None:
        return UNCHECKED, "the detector could not tell"
    try:
        spec = parsed_json(verdict["detector_spec"] or "{}")
        evidence = parsed_json(verdict["evidence"] or "{}")
        checker = _CHECKERS.get(spec.get("type"))
        if checker is None or spec.get("machines"):
            return UNCHECKED, "there is no checker for this detector"
        return checker(snapshot, spec, evidence, bool(verdict["holds"]))
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):  # damaged, or of another version
        return UNCHECKED, "its evidence is not of the shape that its detector gives"


# Termination


def _termination(snapshot: Snapshot, _: Evidence, evidence: Evidence, holds: bool) -> Outcome:
    status = _statuses(snapshot)
    busy = [machine for machine, word in status.items() if word not in ("passive", "stopped")]
    targets = [target for target in _column(snapshot, "messages", "target") if status.get(target) != "stopped"]
    if holds and (busy or targets):
        what = f"{busy[0]} is {status[busy[0]]}" if busy else f"a message to {targets[0]} is in flight"
        return WRONG, f"it says terminated, but {what}"
    if not holds and not busy and not targets:
        return WRONG, "it says not terminated, but all is quiet"
    counts = {
        "active": sum(status[one] != "blocked" for one in busy),
        "blocked": list(status.values()).count("blocked"),
    }
    for name, count in counts.items():
        if evidence.get(name, count) != count:
            return WRONG, f"it counts {evidence[name]} {name} machines, and there are {count}"
    return CONFIRMED, ""


# Deadlock


def _deadlock(snapshot: Snapshot, _: Evidence, evidence: Evidence, holds: bool) -> Outcome:
    return _is_closed(snapshot, evidence) if holds else _all_can_move(snapshot)


def _is_closed(snapshot: Snapshot, evidence: Evidence) -> Outcome:
    """Each named machine must wait, and each alternative of its waits must need a named machine."""
    records = [*evidence.get("members", ()), *evidence.get("stuck_behind", ())]
    named = {record["machine"] for record in records}
    if not records:
        return WRONG, "it names no machine"
    if len(records) < evidence.get("member_count", 0) + evidence.get("stuck_behind_count", 0):
        return UNCHECKED, "its evidence was cut off"
    waits, status = _waits(snapshot), _statuses(snapshot)
    if strange := sorted(named - set(status)):
        return WRONG, f"it names {strange[0]}, which the snapshot does not have"
    in_flight = set(_column(snapshot, "messages", "call_id"))
    for record in records:
        machine = record["machine"]
        own = {key: alternatives for key, alternatives in waits.items() if key[0] == machine}
        if not own and status[machine] != "blocked" and not (in_flight - {None}):
            return WRONG, f"it names {machine}, which is {status[machine]} and waits for nothing"
        if not own and status[machine] == "blocked":
            continue
        if not own:
            return UNCHECKED, f"{machine} is named for a call that has not begun"
        fails = [key for key, alternatives in own.items() if not any(_open(one, named, status) for one in alternatives)]
        if not fails:
            return WRONG, f"it names {machine}, whose waits can all end"
    return CONFIRMED, ""


def _open(alternative: _Alternative, named: set[str], status: Mapping[str, str]) -> bool:
    """Whether an alternative can be had with the help of active machines that are not named."""
    k, on = alternative
    can = [one for one, satisfied in on if satisfied or (one not in named and status.get(one) == "active")]
    return len(can) >= k


def _all_can_move(snapshot: Snapshot) -> Outcome:
    """Find the machines that can move, round by round, until a round finds no more; then none may be left that
    cannot."""
    waits, status = _waits(snapshot), _statuses(snapshot)
    waiting = {machine for machine, _ in waits}
    blocked = {machine for machine, word in status.items() if word == "blocked"} | waiting
    moving = {machine for machine, word in status.items() if word == "active"} - waiting
    moving |= set(_column(snapshot, "messages", "target")) - blocked
    while True:
        found = moving | {machine for machine, word in status.items() if word == "passive" and moving}
        for machine in blocked - found:
            own = [alternatives for key, alternatives in waits.items() if key[0] == machine]
            if own and all(any(_met(one, found) for one in alternatives) for alternatives in own):
                found.add(machine)
        if found == moving:
            break
        moving = found
    left = sorted(blocked - moving)
    return (UNCHECKED, f"machine by machine, {left[0]} cannot be seen to move") if left else (CONFIRMED, "")


def _met(alternative: _Alternative, moving: set[str]) -> bool:
    k, on = alternative
    return sum(satisfied or one in moving for one, satisfied in on) >= k


_Alternative = tuple[int, list[tuple[str, bool]]]
"""How many answers are needed; and the machines that may give one, each with whether its answer is on its way."""


def _waits(snapshot: Snapshot) -> dict[tuple[str, str | None], list[_Alternative]]:
    """The alternatives of each wait, by machine and call; a wait for a call counts as one for the machine that runs it."""
    runs = {row["call_id"]: row["machine"] for row in snapshot.calls}
    runs |= {row["call_id"]: row["target"] for row in snapshot.tables["messages"].to_pylist() if row["call_id"]}
    found: dict[tuple[str, str | None], dict[int, _Alternative]] = {}
    for row in snapshot.waits:
        on = runs.get(row["on_call_id"], row["on_machine"]) or "?"
        satisfied = bool(row["satisfied"]) or row["timeout_at"] is not None
        needed, listed = found.setdefault((row["machine"], row["call_id"]), {}).setdefault(
            row["alternative"] or 0, (row["k"] or 0, [])
        )
        listed.append((on, satisfied))
        found[row["machine"], row["call_id"]][row["alternative"] or 0] = needed, listed
    return {key: [(k or len(on), on) for k, on in alternatives.values()] for key, alternatives in found.items()}


# Conservation


def _conservation(snapshot: Snapshot, spec: Evidence, evidence: Evidence, holds: bool) -> Outcome:
    expected = evidence.get("expected")
    if expected is None:
        return UNCHECKED, "it says nothing of what it expected"
    try:
        meant, said = _exactly(expected), _exactly(evidence["found"])
        if spec.get("total") is not None and _exactly(spec["total"]) != meant:
            return WRONG, f"it expected {expected}, and its detector says {spec['total']}"
        found = _sum(snapshot, spec)
        allowed = _exactly(spec.get("tolerance", 1e-9)) * max(Fraction(1), abs(meant))
    except (TypeError, ValueError, LookupError, ArithmeticError):
        return UNCHECKED, "what it counts is no plain number everywhere"
    if abs(found - said) > allowed:
        return WRONG, f"it found {evidence['found']}, and there is {float(found):g}"
    same = abs(found - meant) <= (allowed if found.denominator > 1 else 0)
    return (CONFIRMED, "") if same == holds else (WRONG, f"{float(found):g} was found, {expected} expected")


def _sum(snapshot: Snapshot, spec: Evidence) -> Fraction:
    machines, messages = snapshot.tables["machines"], snapshot.tables["messages"]
    state, methods = spec.get("state"), spec.get("messages") or {}
    total = Fraction(0)
    for class_name, text, cut in _zipped(machines, "class_name", "state", "state_truncated"):
        path = state.get(class_name) if isinstance(state, dict) else state
        if path is not None and text is not None:
            total += _number(text, path, cut, missing=Fraction(0))
    for method, text, cut in _zipped(messages, "method", "args", "args_truncated"):
        if method in methods:
            total += _number(text, methods[method], cut, missing=None)
    return total


def _number(text: str, path: str, cut: bool | None, missing: Fraction | None) -> Fraction:
    """The number that a path leads to; raises `ValueError`, `TypeError` or `LookupError` if it is no plain one."""
    if cut or "".join(match[0] for match in _STEP.finditer(path[1:])) != path[1:]:
        raise ValueError(path)
    value = parsed_json(text, parse_float=_exactly)
    for match in _STEP.finditer(path[1:]):
        key: Any = match[1] if match[1] else int(match[2])
        if isinstance(value, dict) and key not in value and missing is not None:
            return missing
        value = value[key]
    if value is None and missing is not None:
        return missing
    if isinstance(value, str):
        raise TypeError(path)
    return Fraction(value)


def _exactly(value: Any) -> Fraction:
    """A number as it is written; raises `ValueError` or `ArithmeticError` for one of more digits than a sum may have."""
    written = Decimal(str(value))
    if not abs(written.adjusted()) <= _LARGEST_EXPONENT:
        raise ValueError(str(value)[:100])
    return Fraction(written)


# All


def _statuses(snapshot: Snapshot) -> dict[str, str]:
    return dict(_zipped(snapshot.tables["machines"], "machine", "status"))


def _column(snapshot: Snapshot, table: str, name: str) -> list[Any]:
    values: list[Any] = snapshot.tables[table][name].to_pylist()
    return values


def _zipped(table: Any, *names: str) -> Iterable[tuple[Any, ...]]:
    return zip(*(table[name].to_pylist() for name in names), strict=True)


_CHECKERS: dict[Any, Callable[[Snapshot, Evidence, Evidence, bool], Outcome]] = {
    "termination": _termination,
    "deadlock": _deadlock,
    "token-conservation": _conservation,
}
