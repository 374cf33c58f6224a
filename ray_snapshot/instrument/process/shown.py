"""An actor's state as JSON, to be looked at: within a budget of bytes and time, and not of Ray's own actors."""

from __future__ import annotations

from typing import Any

from ray_snapshot.encoding import Encoded, Patience, to_json
from ray_snapshot.runtime.faults import text_of

RAYS_OWN = "ray."
"""What the modules of Ray's own libraries begin with (Serve, Data, Tune, `ray.util`): megabytes that no user has made."""


class ShownStates:
    """The state of one actor as JSON, snapshot after snapshot; an app's object is asked for nothing that could run its code."""

    def __init__(self, library_states: bool) -> None:
        self.library_states = library_states
        self.patience = Patience()

    def of(self, body: Any) -> Encoded | None:
        """The state of an actor as JSON; None for an actor of Ray's own libraries, unless those are wanted."""
        if not self.library_states and type(body).__module__.startswith(RAYS_OWN):
            return None
        try:
            return self.patience.to_json(vars(body))
        except Exception as error:
            text = to_json({"$error": f"the state cannot be read: {type(error).__name__}: {text_of(error)}"}).text
            return Encoded(text, True, len(text))
