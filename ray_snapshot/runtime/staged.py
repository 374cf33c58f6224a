"""What a machine can ask of its host where there is none, and what is recorded of it: under the witness, and in
`ray_snapshot.testing`.

A *stage* does one action at a time of machines that no host has. What it answers is its own; that a machine asks, and by which
name, is said here once. Never imports Ray.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, NamedTuple, Protocol

from ray_snapshot.encoding import to_json
from ray_snapshot.json_text import parsed_json
from ray_snapshot.names import check_target_name
from ray_snapshot.runtime.handles import MachineHandle, handle_of

MEMBER = SimpleNamespace(host="a stage")
"""What a stage says of the process: that it drives no system (`runtime.waits`)."""


class Stage(Protocol):
    """Where the actions are done."""

    run_id: str

    def create(self, kind: Any, args: tuple[Any, ...], kwargs: dict[str, Any], name: str | None) -> MachineHandle:
        """A machine spawns another."""

    def stop(self, name: str) -> None:
        """A machine stops."""

    def request_snapshot(self) -> None:
        """A machine asks for a snapshot."""

    def now(self) -> float:
        """A machine asks for the time."""

    @property
    def chance(self) -> Any:
        """A machine asks for chance: a `random.Random`."""

    @property
    def is_acting(self) -> bool:
        """Whether an action is being done, by this thread."""

    def wait(self, refs: list[Any], k: int, timeout: float | None, *, is_get: bool) -> Any:
        """The answers that have come (`is_get`), or the places of those refs whose have; raises what was called raised."""


class StagedContext:
    """One machine's side of a stage; see `runtime.context.Context`."""

    __slots__ = ("handle", "name", "record", "stage")

    def __init__(self, stage: Stage, name: str) -> None:
        self.stage = stage
        self.name = name
        self.record = self
        self.handle = handle_of(stage.run_id, name)

    def machine(self, name: str) -> MachineHandle:
        return handle_of(self.stage.run_id, check_target_name(name))

    def spawn(self, kind: Any, args: tuple[Any, ...], kwargs: dict[str, Any], name: str | None) -> MachineHandle:
        return self.stage.create(kind, args, kwargs, name)

    def stop(self) -> None:
        self.stage.stop(self.name)

    def now(self) -> float:
        return self.stage.now()

    @property
    def random(self) -> Any:
        return self.stage.chance

    def request_snapshot(self) -> None:
        self.stage.request_snapshot()


# ---- what a snapshot records of it ------------------------------------------------------------------------------------------


class Said(NamedTuple):
    """What a machine that is in no action says by its hooks."""

    status: str
    wait: Any
    """What `waiting_for` has returned: a wait, None, or something that is neither."""


def said_by(body: Any) -> Said:
    """Ask a machine; as on Ray, a hook that raises stops nothing, and the machine may act."""
    try:
        wait = body.waiting_for()
        if wait is not None:
            return Said("blocked", wait)
        return Said("active" if body.is_active() else "passive", None)
    except Exception:  # the user's hook
        return Said("active", None)


def recorded(value: Any) -> Any:
    """A value as a snapshot holds it."""
    return parsed_json(to_json(value).text)


def recorded_state(body: Any) -> Any:
    """A machine's state as a snapshot holds it."""
    try:
        state = body.snapshot_state()
    except Exception as error:  # recorded like that on Ray, too
        state = {"$error": f"snapshot_state raised {type(error).__name__}: {error}"}
    return recorded(state)


def recorded_arguments(args: Iterable[Any], kwargs: dict[str, Any]) -> list[Any]:
    """Arguments as a snapshot holds them; what is too large to be recorded whole says so in place of them all."""
    found = recorded([*args, {"$kwargs": kwargs}] if kwargs else [*args])
    return found if isinstance(found, list) else [found]
