"""How actors have ended, in words, of what Ray records. Pure: imports nothing of Ray."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple


class Life(NamedTuple):
    """An actor that has died, or has been started again, as Ray's table has it."""

    is_dead: bool
    restarts: int
    changed_s: float
    """When its state has changed last: of a dead one, when it died."""
    cause: str = ""
    """Ray's text of why it is dead."""


def lives_of(rows: Mapping[str, Mapping[str, Any]]) -> dict[str, Life]:
    """Of the rows of Ray's table of actors, by key, those that have died or were started again."""
    return {
        key: Life(
            row["State"] == "DEAD",
            int(row.get("NumRestarts") or 0),
            float(row.get("EndTime") or row.get("Timestamp") or 0) / 1_000,
            str(row.get("DeathCause") or "") if row["State"] == "DEAD" else "",
        )
        for key, row in rows.items()
    }


def is_meant(cause: str) -> bool:
    """Whether the program wanted it: `ray.kill`, `exit_actor`, or no handle was left. Ray says so only in words."""
    return "INTENDED_USER_EXIT" in cause or any(f"reason: {reason}" in cause for reason in _MEANT)


_MEANT = ("RAY_KILL", "OUT_OF_SCOPE", "REF_DELETED")

KILLED = "killed by ray.kill"
_UNKNOWN = "killed by a signal, or by os._exit: Ray records no exit code"

_WORDS = (
    ("oom_context", "out of memory: Ray has killed it"),
    ("reason: RAY_KILL", KILLED),
    ("reason: OUT_OF_SCOPE", "no handle of it was left"),
    ("reason: REF_DELETED", "no handle of it was left"),
    ("reason: OWNER_DIED", "its owner has died"),
    ("reason: NODE_DIED", "its node has died"),
    ("actor_unschedulable_context", "Ray could not place it"),
    ("runtime_env_failed_context", "its runtime environment could not be made"),
    ("exit_actor() is called", "by exit_actor"),
    ("connection error code", _UNKNOWN),
)


def in_words(cause: str) -> str:
    """Why a process or an actor has ended: "killed by ray.kill", "exit code 3"; of errors only the type."""
    if "creation_task_failure_context" in cause:
        found = re.findall(
            r"(?:^|\\n|\n)(?:\w+\.)*(\w+)(?::|\\n|\n|\"|$)", cause.partition("formatted_exception_string")[2]
        )
        return f"its constructor raised {found[-1]}" if found else "its constructor raised"
    for mark, words in _WORDS:
        if mark in cause:
            return words
    code = re.search(r"exit code (\d+)", cause)
    return f"exit code {code[1]}" if code else "Ray records no cause"
