"""The system that a `build` function is given: what `rs.System` has for setting machines up. Never imports Ray."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ray_snapshot.errors import SettingError, UnknownMachineError, UnknownMethodError
from ray_snapshot.names import DRIVER, check_target_name
from ray_snapshot.runtime.handles import MachineHandle, handle_of
from ray_snapshot.runtime.mixin import may_have
from ray_snapshot.testing.acts import Sent
from ray_snapshot.waits import machine_name

if TYPE_CHECKING:
    from ray_snapshot.testing.moments import Moment
    from ray_snapshot.testing.stage import Stage


class Front:
    """The driver's side of a system without Ray; `build` gets one."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._created: set[str] = set()
        self.name = "testing"
        self.restored = False
        """Whether it goes on from a snapshot; as of `rs.System`."""

    def spawn(
        self,
        kind: Any,
        *args: Any,
        name: str | None = None,
        resources: dict[str, float] | None = None,  # noqa: ARG002 - there is room for all
        role: str | None = None,  # noqa: ARG002
        **kwargs: Any,
    ) -> MachineHandle:
        """Create a machine; as `rs.System.spawn`. It is constructed before anything else happens."""
        found = self._stage.create(kind, args, kwargs, name)
        self._created.add(found._name)
        return found

    def spawn_many(
        self,
        kind: Any,
        args: Sequence[Any] | None = None,
        *,
        count: int | None = None,
        names: Sequence[str] | None = None,
        per_host: int = 1_000,
        resources: dict[str, float] | None = None,
        role: str | None = None,
    ) -> list[MachineHandle]:
        """Create many machines; as `rs.System.spawn_many`."""
        if per_host < 1:
            raise SettingError(f"spawn_many: per_host is {per_host}; it must be at least 1")
        if args is None:
            if count is None and names is None:
                raise SettingError("spawn_many: say how many, by args=[...], names=[...] or count=...")
            args = [()] * (count if count is not None else len(names or ()))
        if names is not None and len(names) != len(args):
            raise SettingError(f"spawn_many: {len(names)} names for {len(args)} machines")
        return [
            self.spawn(
                kind, *(item if isinstance(item, tuple | list) else (item,)),
                name=None if names is None else names[place], resources=resources, role=role,
            )
            for place, item in enumerate(args)
        ]  # fmt: skip

    def restore(self, moment: Moment) -> None:
        """Put in what a snapshot holds: machines, messages in flight, timers. Raises `DuplicateMachineError`."""
        for sent in moment.outputs(self._stage):
            if sent.what == "create":
                self._stage.check_new(sent.target)
                self._created.add(sent.target)
                self._stage.created[sent.target] = self._stage.kinds[sent.kind]
            self._stage.gather(sent)
        self.restored = True

    def machine(self, name: str) -> MachineHandle:
        """A machine by name; valid before it is spawned."""
        return handle_of("testing", check_target_name(name))

    def connect(self, source: Any, target: Any, port: str | None = None) -> None:
        """Declare who sends to a port; as `rs.System.connect`."""
        names = [machine_name(source), machine_name(target)]
        if port is not None and (not isinstance(port, str) or not port.isidentifier()):
            raise SettingError(f"connect(port={port!r}): it is the name of a port or a method")
        for name in names:
            if name not in self._created and name != DRIVER:
                raise UnknownMachineError(f"connect: no machine {name!r} has been spawned", machine=name)
        kind = self._stage.created.get(names[1])
        if port is not None and kind is not None and not may_have(kind, port):
            raise UnknownMethodError(
                f"connect(..., {names[1]!r}, port={port!r}): {kind.__name__} has no port and no method {port!r}",
                machine=names[1],
                method=port,
            )
        if (names[0], names[1]) not in self._stage.connections:
            self._stage.connections.append((names[0], names[1]))
        if port is not None:
            ports = self._stage.sources.setdefault(names[1], {})
            ports[port] = tuple(dict.fromkeys((*ports.get(port, ()), names[0])))

    def stop(self, machine: Any) -> None:
        """Stop a machine; it accepts nothing any more."""
        name = machine_name(machine)
        if name not in self._created:
            raise UnknownMachineError(f"stop: no machine {name!r} has been spawned", machine=name)
        self._stage.gather(Sent("stop", name))

    def start(self) -> Front:
        """Nothing to do: what was spawned is constructed."""
        return self
