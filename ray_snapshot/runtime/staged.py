"""What a machine can ask of its host where there is none: under the witness, and in `ray_snapshot.testing`.

A *stage* does one action at a time of machines that no host has. What it answers is its own; that a machine asks, and by which
name, is said here once. Never imports Ray.
"""

from __future__ import annotations

from typing import Any, Protocol

from ray_snapshot.names import check_target_name
from ray_snapshot.runtime.handles import MachineHandle, handle_of


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
