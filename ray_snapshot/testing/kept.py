"""What one run keeps of machines whose attributes are atoms: mostly an action begins where the last one has ended.

Nothing tells such a machine's object from one made of its bytes, so it stays, and there are no bytes (`values.Loose`).
"""

from __future__ import annotations

from typing import Any

from ray_snapshot.testing.acts import Act
from ray_snapshot.testing.values import are_atoms

Atoms = dict[str, Any]


class KeptBodies:
    """The objects of machines, each in just the state that it was left in."""

    def __init__(self) -> None:
        self._bodies: dict[str, tuple[Atoms, Any]] = {}

    def take(self, act: Act) -> Any:
        """The machine's object in the state before an action; None if it is not kept."""
        state, found = self._bodies.pop(act.machine, (None, None))
        return found if state is act.before else None

    def keep(self, act: Act, body: Any) -> Atoms | None:
        """Keep an object; returns a copy of its attributes in the order of their names. None if they are no atoms."""
        attributes = body.__dict__
        if not are_atoms(attributes.values()):
            return None
        names, before = [*attributes], act.before
        found: Atoms = attributes.copy()
        if type(before) is not dict or names != [*before]:
            if not all(type(name) is str for name in names):
                return None
            found = dict(sorted(found.items()))
            attributes.clear()
            attributes.update(found)
        self._bodies[act.machine] = found, body
        return found
