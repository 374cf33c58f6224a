"""Few waits that can plainly all end: told from their own rows, without a graph of the snapshot.

That is the common case of a live run: a few machines or calls wait for some that act, or for what is on its way. It takes a
tenth of the time that `wait_graph` takes, which decides wherever this file gives up: it says only "each can move" (by the
rules of `deadlock`, or fewer), never that one cannot.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ray_snapshot.detectors.common import texts
from ray_snapshot.snapshot import Snapshot

_FEW = 500
"""Of more rows of waits, or of calls, `wait_graph` is faster."""

_IDLE = ("blocked", "passive", "stopped")
_COLUMNS = ("machine", "call_id", "alternative", "k", "on_machine", "on_call_id", "satisfied", "timeout_at")

_Node = tuple[str, str]
"""("machine", name) or ("call", id)."""

_NOTHING: _Node = "", ""


@dataclass(frozen=True, slots=True)
class Waiting:
    """So many wait, or are stuck."""

    machines: int
    calls: int


class _NotPlainError(Exception):
    """It takes the graph to tell."""


def blocked_that_can_move(snapshot: Snapshot) -> Waiting | None:
    """How many machines and calls are blocked, if each can plainly move; None: `wait_graph` must tell.

    Not with `undeclared` or `resources` in the coverage: there more is to be asked. O(machines + rows of waits and calls).
    """
    waits, calls = snapshot.tables["waits"], snapshot.tables["calls"]
    if max(waits.num_rows, calls.num_rows) > _FEW or snapshot.coverage.get("blocked_loops"):
        return None
    rows = list(zip(*(waits[name].to_pylist() for name in _COLUMNS), strict=True))
    try:
        running = _running(calls)
        return _decided(rows, running, _statuses(snapshot, rows, running))
    except _NotPlainError:
        return None


def _running(calls: pa.Table) -> dict[str, str]:
    """The machine of each call that is a node of its own."""
    pairs = [
        pair
        for pair in zip(calls["call_id"].to_pylist(), calls["machine"].to_pylist(), strict=True)
        if _is_call_id(pair[0])
    ]
    found = dict(pairs)
    if len(found) < len(pairs) or any("#" in call_id for call_id in found):
        raise _NotPlainError
    return found


def _is_call_id(call_id: str | None) -> bool:
    """As `call_graph.is_call_id`; a wait for one run of several is not plain."""
    return call_id is not None and call_id.count("/") == 3


def _statuses(snapshot: Snapshot, rows: list[tuple[Any, ...]], running: Mapping[str, str]) -> dict[str, str]:
    """The status of each recorded machine that is named; all blocked ones must be among them."""
    here, _ = snapshot.parted
    named = {name for row in rows for name in (row[0], row[4]) if name is not None}.union(running.values())
    names = texts(here["machine"])
    asked = here.select(["machine", "status"]).filter(pc.is_in(names, pa.array(list(named), pa.string())))
    found = dict(zip(asked["machine"].to_pylist(), asked["status"].to_pylist(), strict=True))
    blocked = int(snapshot.statuses_of(here).are("blocked").sum())
    if len(found) < asked.num_rows or sum(status == "blocked" for status in found.values()) < blocked:
        raise _NotPlainError
    return found


def _decided(rows: list[tuple[Any, ...]], running: Mapping[str, str], status: Mapping[str, str]) -> Waiting:
    moves = {("machine", name) for name, word in status.items() if word not in _IDLE}
    choices: dict[_Node, dict[Any, list[tuple[int | None, _Node | None]]]] = {}
    for machine, call_id, alternative, k, on_machine, on_call_id, satisfied, timeout_at in rows:
        owner = _owner(machine, call_id, running)
        if owner[0] == "call" or status.get(machine) == "blocked":
            on = None if satisfied else _awaited(on_machine, on_call_id, running)
            choices.setdefault(owner, {}).setdefault((call_id, alternative or 0), []).append((k, on))
            if timeout_at is not None:
                moves.add(owner)
    calls = {("call", call_id) for call_id in running}
    moves |= calls - choices.keys()
    _check_told(choices, running, status)
    _check_all_move(choices, moves)
    waiting = sum(kind == "call" for kind, _ in choices)
    return Waiting(len(choices) - waiting, waiting)


def _owner(machine: str, call_id: str | None, running: Mapping[str, str]) -> _Node:
    if not _is_call_id(call_id):
        return "machine", machine
    if call_id not in running:  # it may not have begun, and wait for its arguments
        raise _NotPlainError
    return "call", str(call_id)


def _awaited(on_machine: str | None, on_call_id: str | None, running: Mapping[str, str]) -> _Node:
    """The node that a row waits for; `_NOTHING`, which never moves, if it is not plain."""
    if _is_call_id(on_call_id):
        return ("call", str(on_call_id)) if on_call_id in running else _NOTHING
    return _NOTHING if on_machine is None else ("machine", on_machine)


def _check_told(choices: Mapping[_Node, Any], running: Mapping[str, str], status: Mapping[str, str]) -> None:
    """Of what is blocked it must be told for what it waits: of each call of a blocked machine, or of that itself."""
    busy = set(running.values())
    for name, word in status.items():
        if word == "blocked" and name not in busy and ("machine", name) not in choices:
            raise _NotPlainError
    for call_id, machine in running.items():
        if status.get(machine) == "blocked" and ("call", call_id) not in choices:
            raise _NotPlainError


def _check_all_move(
    choices: Mapping[_Node, Mapping[Any, list[tuple[int | None, _Node | None]]]], moves: set[_Node]
) -> None:
    left = choices.keys() - moves
    while left:
        freed = {node for node in left if any(_is_met(choice, moves) for choice in choices[node].values())}
        if not freed:
            raise _NotPlainError
        moves |= freed
        left -= freed


def _is_met(choice: list[tuple[int | None, _Node | None]], moves: set[_Node]) -> bool:
    """Whether enough of an alternative can be had; where its rows do not agree on how many that is, the most."""
    needed = max(len(choice) if k is None else k for k, _ in choice)
    return sum(on is None or on in moves for _, on in choice) >= needed
