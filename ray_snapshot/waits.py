"""What a machine waits for: all of, any of, or k of some others, in any mixture.

A wait is a list of alternatives, any one of which is enough; an alternative is a number k and the machines of which k
must answer. `all_of(a, b)` is one alternative with k = 2, `any_of(a, b)` one with k = 1, and
`any_of(all_of(a, b), c)` two alternatives. This is the form that the `waits` table stores and `Deadlock` reduces.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any

from ray_snapshot.errors import SettingError

MOST_ALTERNATIVES = 1_000

SEE_WAITS = "see waits"
"""The `wait_mode` of a machine whose waits are not one number of one list of machines: the table `waits` has them."""

ShortForm = tuple[str | None, int | None, tuple[str, ...]]
"""(`wait_mode`, `wait_k`, `waits_for`) of a row of `machines`."""


@dataclass(frozen=True, slots=True)
class Alternative:
    """One sufficient condition: `k` of the machines `on`."""

    k: int
    on: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Wait:
    """A condition on other machines: any one of the `alternatives` suffices."""

    alternatives: tuple[Alternative, ...]

    @property
    def machines(self) -> tuple[str, ...]:
        """Every machine named in the wait, each once, in order."""
        return tuple(dict.fromkeys(name for alternative in self.alternatives for name in alternative.on))

    @property
    def short_form(self) -> ShortForm:
        """What a row of `machines` says of it."""
        if len(self.alternatives) != 1:
            return SEE_WAITS, None, self.machines
        (alternative,) = self.alternatives
        if alternative.k == len(alternative.on):
            return "all", alternative.k, alternative.on
        if alternative.k == 1:
            return "any", 1, alternative.on
        return "k_of_n", alternative.k, alternative.on


def short_form_of(rows: Sequence[Mapping[str, Any]]) -> ShortForm:
    """What a row of `machines` says of a machine that has these rows of `waits`."""
    if not rows:
        return None, None, ()
    on = [row["on_machine"] for row in rows]
    k, names = rows[0]["k"], tuple(dict.fromkeys(name for name in on if name is not None))
    mode = "all" if k == len(on) else "any" if k == 1 else "k_of_n" if len(names) == len(on) else SEE_WAITS
    is_one = len({(row["call_id"], row["alternative"]) for row in rows}) == 1
    return (mode, k, names) if is_one and None not in on and mode != SEE_WAITS else (SEE_WAITS, None, names)


def machine_name(item: Any) -> str:
    """The name of a machine given by handle or by name."""
    if isinstance(item, str):
        return item
    name = getattr(type(item), "__machine_name__", None)
    if name is None:
        raise SettingError(f"{item!r} is neither a machine's handle nor its name")
    return str(name(item))


def all_of(*items: Any) -> Wait:
    """Wait for every one of `items` (handles, names, or waits)."""
    names, waits = _split(items)
    parts = [*([Wait((Alternative(len(names), names),))] if names else []), *waits]
    if not parts:
        raise SettingError("all_of() needs at least one machine")
    if len(parts) == 1:
        return parts[0]
    # The conjunction of disjunctions, written out: it is exact only where each alternative needs all of its machines.
    if any(alternative.k != len(alternative.on) for part in parts for alternative in part.alternatives):
        parts = [_expanded(part) for part in parts]
    combined = []
    for choice in product(*(part.alternatives for part in parts)):
        on = tuple(dict.fromkeys(name for alternative in choice for name in alternative.on))
        combined.append(Alternative(len(on), on))
        _bound(len(combined))
    return Wait(tuple(combined))


def any_of(*items: Any) -> Wait:
    """Wait for one of `items` (handles, names, or waits), whichever comes first."""
    names, waits = _split(items)
    alternatives = [Alternative(1, names)] if names else []
    alternatives += [alternative for wait in waits for alternative in wait.alternatives]
    if not alternatives:
        raise SettingError("any_of() needs at least one machine")
    return Wait(tuple(alternatives))


def at_least(k: int, *items: Any) -> Wait:
    """Wait for `k` of the machines `items` (handles or names)."""
    names, waits = _split(items)
    if waits:
        raise SettingError("at_least() takes machines only; combine it with others by all_of() and any_of()")
    if not 1 <= k <= len(names):
        raise SettingError(
            f"at_least({k}, ...) of {len(names)} machines can never be met: k goes from 1 to {len(names)}"
        )
    return Wait((Alternative(k, names),))


def _split(items: tuple[Any, ...]) -> tuple[tuple[str, ...], list[Wait]]:
    waits = [item for item in items if isinstance(item, Wait)]
    names = tuple(dict.fromkeys(machine_name(item) for item in items if not isinstance(item, Wait)))
    return names, waits


def _expanded(wait: Wait) -> Wait:
    alternatives = []
    for alternative in wait.alternatives:
        for chosen in combinations(alternative.on, alternative.k):
            alternatives.append(Alternative(len(chosen), chosen))
            _bound(len(alternatives))
    return Wait(tuple(alternatives))


def _bound(count: int) -> None:
    if count > MOST_ALTERNATIVES:
        raise SettingError(
            f"a wait of more than {MOST_ALTERNATIVES} alternatives is not supported: nest fewer any_of in all_of"
        )
