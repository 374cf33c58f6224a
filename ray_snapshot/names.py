"""The names of systems and machines, checked where they enter; and the words that settings and commands share."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from itertools import groupby
from typing import Any, Literal

from ray_snapshot.errors import NameNotAllowedError

DRIVER = "driver"
"""The machine that the driver program is."""

CALLS = "calls"
"""How the processes of a watched app record where no hosts are beside them: each when it hears of a snapshot."""

NAMESPACE = "ray-snapshot"
"""The Ray namespace of all services."""

PREFIX = "system:"
"""Stands before a system's name in the name of its service."""

EDITED = "-edited-"
"""Stands in the id, and the run, of a snapshot that an earlier version has edited, behind that of the one it was made from."""

EVENT_WAIT = "threading.Event.wait"
"""What a thread is in that may have nothing more to do."""

NOT_RECORDED = "something that was not recorded"
"""What is waited for, or might end a wait, if nothing says what."""

HELD_BY = " held by "
"""Stands in the text of a primitive before the functions that hold it: "asyncio.Lock held by Ledger.add"."""

NO_CALL = "for an object that no watched call gives"
"""What a wait is for if nothing else is known of it (coverage, `unexplained`)."""

LONG_S = 10.0
"""A wait of so many seconds is listed, with its place."""

OnDeadlock = Literal["report", "raise", "exit"]
"""What is done about a deadlock that stands."""

_FREES_NAMES = sys.version_info[:2] != (3, 12)
"""Python 3.12 keeps for ever what is interned."""

_MACHINE = re.compile(r"[A-Za-z0-9_.-]+")
_SYSTEM = re.compile(r"[a-z_.-][a-z0-9_.-]*")


def one_of(name: Any) -> Any:
    """The one text of this process for all that are the same name, and of class `str` where it is of a class of the user's.

    Each message and each answer brings its own along; where a million names are kept by several tables, they would take as much
    as what they name.
    """
    if not isinstance(name, str):  # in the simulator it may be anything
        return name
    plain = name if type(name) is str else str.__str__(name)
    return sys.intern(plain) if _FREES_NAMES else plain


def check_machine_name(name: object) -> str:
    """Return `name` if a machine may bear it; raises `NameNotAllowedError`."""
    if not isinstance(name, str) or not _MACHINE.fullmatch(name):
        raise NameNotAllowedError(
            f"machine name {name!r} is not allowed: use letters, digits and _ . - only", name=name
        )
    return str.__str__(name)


def is_machine_name(name: object) -> bool:
    """Whether a machine may bear it."""
    return isinstance(name, str) and _MACHINE.fullmatch(name) is not None


def check_target_name(name: object) -> str:
    """Return `name` if messages may go to a machine of that name; raises `NameNotAllowedError`."""
    if name == DRIVER:
        raise NameNotAllowedError(
            f"{DRIVER!r} is the driver program: it sends, but nothing can be sent to it", name=name
        )
    return check_machine_name(name)


def check_system_name(name: object) -> str:
    """Return `name` if a system may bear it; raises `NameNotAllowedError`."""
    if not isinstance(name, str) or not _SYSTEM.fullmatch(name):
        raise NameNotAllowedError(
            f"system name {name!r} is not allowed: use lower-case letters, digits and _ . - only, no digit first",
            name=name,
        )
    return name


def is_actor(machine: str) -> bool:
    """Whether this is a watched actor's name between processes: only these have a colon."""
    return ":" in machine


LIFE = "+"
"""Between the name of an actor and its incarnation, in the name that a later one sends mail under."""


def sender_name(machine: str, incarnation: int) -> str:
    """The name that an actor sends mail under: a new incarnation numbers its batches and messages anew."""
    return machine if not incarnation else f"{machine}{LIFE}{incarnation}"


def life_of(sender: str) -> tuple[str, int]:
    """The actor that sends mail under this name, and its incarnation; a class may have the same sign in its name."""
    actor, _, incarnation = sender.rpartition(LIFE)
    return (actor, int(incarnation)) if actor and incarnation.isdecimal() else (sender, 0)


def run_of_machines(run_id: str, life: int) -> str:
    """What handles say of the system of machines that is the `life`-th to join the watch of a run."""
    return run_id if life <= 1 else f"{run_id}.{life}"


def run_of_watch(run_id: str) -> str:
    """The run of the watch that this system of machines has joined, or its own."""
    return run_id.partition(".")[0]


_NUMBERED = re.compile(r"(.*?)(\d{1,18})")
_MOST, _FEW, _LONG = 8, 3, 80
"""So many names, and ranges of one name, are listed; the second, if all have more characters than the third."""


def noun_of(protocol: str | None) -> str:
    """What a machine is called: "actor" where an app is watched."""
    return "actor" if protocol == CALLS else "machine"


def listed(names: Iterable[Any], count: int | None = None, most: int = 3, mark: str = ", ") -> str:
    """ "a, b, c and 4 more" of `names`, of which there are `count` in all."""
    shown = list(names)
    rest = (len(shown) if count is None else count) - min(most, len(shown))
    return mark.join(str(name) for name in shown[:most]) + (f" and {rest:,} more" if rest > 0 else "")


_OF_ACTORS = {
    "machine": "actor",
    "machines": "actors",
    "machine_count": "actor_count",
    "channel": "call pair",
    "channels": "call pairs",
    "channel_count": "call_pair_count",
    "accepted": "begun",
    "settled": "given up",
    "passive": "idle",
}


def word_for(name: str, noun: str) -> str:
    """What a status, a table or a column is called where a machine is called `noun`."""
    return _OF_ACTORS.get(name, name) if noun == "actor" else name


def name_ranges(names: Iterable[str], more: int = 0) -> str:
    """ "driver, rollout-[0-61,63]" of names that differ in their last number; `more`: so many are not among them."""
    numbered: dict[str, set[int]] = {}
    found: list[str] = []
    for name in names:
        parts = _NUMBERED.fullmatch(name)
        if parts is None or str(int(parts[2])) != parts[2]:
            found.append(name)
        else:
            numbered.setdefault(parts[1], set()).add(int(parts[2]))
    for prefix, numbers in numbered.items():
        if len(numbers) == 1:
            found.append(f"{prefix}{min(numbers)}")
            continue
        runs = []
        for _, run in groupby(enumerate(sorted(numbers)), lambda one: one[1] - one[0]):
            first, *_, last = [number for _, number in run] * 2
            runs.append(f"{first}-{last}" if last > first else f"{first}")
        rest = f" and {len(runs) - _MOST:,} more" if len(runs) > _MOST else ""
        found.append(f"{prefix}[{','.join(runs[:_MOST])}{rest}]")
    found.sort()
    most = _MOST if sum(map(len, found[:_MOST])) <= _LONG else _FEW
    return listed(found, max(0, more) + len(found), most)


A_REPLY = "a reply of "


def waker(names: Iterable[str], more: int = 0) -> str:
    """What could wake a call inside its own actor: "a call of a or b to wake it". `names`: of actors, behind `A_REPLY` of those
    whose replies could, or what is no actor."""
    known = [*names]
    replies = name_ranges(name.removeprefix(A_REPLY) for name in known if name.startswith(A_REPLY))
    callers = name_ranges((name for name in known if " " not in name), more).rpartition(", ")
    parts = [f"a call of {' or '.join(filter(None, callers[::2]))}"] * any(callers)
    parts += [A_REPLY + replies] * bool(replies)
    parts += [name for name in known if " " in name and not name.startswith(A_REPLY)]
    return f"{', or '.join(parts)} to wake it" if parts else "something to wake it, and no call can begin there"
