"""An analyst that lives in the process of another actor, which passes on what it is asked.

A Ray actor is a process: half a second to start, and some 70 MB. Calls go by Ray here as well, though the callee may be the
caller: so arguments are copied, and whoever asks need not know where an analyst lives.
"""

from __future__ import annotations

from typing import Any


class AnalystInside:
    """What is asked of the analyst inside an actor, as of an actor of its own: `found.drain.remote(60.0)`."""

    def __init__(self, actor: Any) -> None:
        """`actor`: a handle; its `ask_analyst` takes the name of a method, and its arguments."""
        self.actor = actor

    def __getattr__(self, name: str) -> _Method:
        if name.startswith("_"):
            raise AttributeError(name)
        return _Method(self.actor, name)


class _Method:
    def __init__(self, actor: Any, name: str) -> None:
        self.actor, self.name = actor, name

    def remote(self, *args: Any, **kwargs: Any) -> Any:
        """Ask; returns a reference to the answer."""
        return self.actor.ask_analyst.remote(self.name, *args, **kwargs)
