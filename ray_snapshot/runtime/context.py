"""What a machine object can ask of the host it lives on; kept beside the object, so that its `__dict__` is its own."""

from __future__ import annotations

import time
import weakref
from random import Random
from typing import TYPE_CHECKING, Any

from ray_snapshot.names import check_target_name
from ray_snapshot.runtime.handles import MachineHandle, handle_of

if TYPE_CHECKING:
    from ray_snapshot.protocol.host import Machine
    from ray_snapshot.runtime.host.post import HostPost


class Context:
    """One machine's side of its host."""

    __slots__ = ("chance", "post", "record")

    def __init__(self, post: HostPost, machine: Machine) -> None:
        self.post = post
        self.record = machine
        self.chance: Random | None = None

    @property
    def handle(self) -> MachineHandle:
        return handle_of(self.post.member.run_id, self.record.name, self.post.member.host)

    def machine(self, name: str) -> MachineHandle:
        return handle_of(self.post.member.run_id, check_target_name(name))

    def spawn(self, kind: type, args: tuple[Any, ...], kwargs: dict[str, Any], name: str | None) -> MachineHandle:
        self.post.acting()  # a hook must not
        return self.post.spawn_here(self.record, kind, args, kwargs, name)

    def stop(self) -> None:
        self.post.acting()
        self.post.stop_machine(self.record)

    def now(self) -> float:
        return time.time()

    @property
    def random(self) -> Random:
        if self.chance is None:
            self.chance = Random()
        return self.chance

    def request_snapshot(self) -> None:
        self.post.member.service.begin_snapshot.remote()


class _Attached(weakref.ref[Any]):
    """A machine object, for as long as it lives, with its context: a third of what a finalizer takes."""

    __slots__ = ("context", "key")

    context: Any
    key: int


_ATTACHED: dict[int, _Attached] = {}
"""By `id` of the machine object."""


def _forget(found: _Attached) -> None:
    if _ATTACHED.get(found.key) is found:
        del _ATTACHED[found.key]


def attach(body: Any, context: Any) -> None:
    """Give a machine object its context, for as long as it lives."""
    found = _Attached(body, _forget)
    found.context, found.key = context, id(body)
    _ATTACHED[id(body)] = found


def context_of(body: Any) -> Context | None:
    """The context of a machine object; None if it was not spawned."""
    found = _ATTACHED.get(id(body))
    return None if found is None or found() is not body else found.context
