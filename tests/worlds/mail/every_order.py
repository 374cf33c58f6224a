"""Every order of the steps of a small world, by depth first search over distinct states; and one order, until all is calm.

A world is pickled once, and each step is taken in a copy. Imports the standard library only.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from ray_snapshot.simulation.mail.oracle import OracleError

Step = tuple[Any, ...]


class Stepped(Protocol):
    """A world of which a schedule chooses the steps."""

    def enabled(self) -> list[Any]:
        """Every step that something waits for."""
        ...

    def perform(self, step: Any, /) -> None:
        """Take one step."""
        ...


AnyWorld = TypeVar("AnyWorld")


def calm(world: Stepped, most: int = 20_000) -> None:
    """Let everything happen that is enabled, in turn and without any choice. Raises `OracleError` if that never ends."""
    for turn in range(most):
        steps = world.enabled()
        if not steps:
            return
        world.perform(steps[turn % len(steps)])
    raise OracleError(f"{most} steps of quiet, and still {len(world.enabled())} are enabled")


@dataclass(slots=True)
class Explored:
    """What `explored` has seen."""

    states: int = 0
    ends: int = 0
    """States in which nothing is left to try."""
    snapshots: int = 0
    """Distinct completed snapshots, each checked by the oracle."""


def explored(
    begin: AnyWorld,
    steps_of: Callable[[AnyWorld], Sequence[Step]],
    take: Callable[[AnyWorld, Step], None],
    at_end: Callable[[AnyWorld], Iterable[str]],
    fingerprint: Callable[[AnyWorld], Hashable],
    most: int,
) -> Explored:
    """Try every step of `steps_of` in every state; where there is none, `at_end` checks the world and tells its snapshots.

    `take` performs a step, and what is always done at once behind it. Worlds of one `fingerprint` are one state. Raises
    `OracleError` on the first order that is wrong, or when there are more than `most` states.
    """
    found, distinct, seen, stack = Explored(), set[str](), {hash(fingerprint(begin))}, [begin]
    while stack:
        now = stack.pop()
        found.states += 1
        if found.states > most:
            raise OracleError(f"more than {most} states: make the system smaller")
        steps = steps_of(now)
        if not steps:
            found.ends += 1
            distinct.update(at_end(now))
            continue
        saved = pickle.dumps(now, pickle.HIGHEST_PROTOCOL)
        for step in steps:
            after: AnyWorld = pickle.loads(saved)
            take(after, step)
            mark = hash(fingerprint(after))
            if mark not in seen:
                seen.add(mark)
                stack.append(after)
    found.snapshots = len(distinct)
    return found
