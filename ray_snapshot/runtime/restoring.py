"""How a host takes its share of a checkpoint in, and what `ray-snapshot restore` wants of the program that it runs.

What becomes of what (decided as in `tests/worlds/rollback/restoring`): states are loaded; what was in flight is sent again
(`parts.refilling`); timers get what was left of their time. Nothing acts meanwhile: what is loaded here waits for the host to
start.
"""

from __future__ import annotations

import pickle
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ray_snapshot.errors import MachineFailedError, SettingError
from ray_snapshot.parts import refilling
from ray_snapshot.protocol.barrier_host import BarrierCore
from ray_snapshot.protocol.mailbox import TIMER
from ray_snapshot.runtime import handles
from ray_snapshot.runtime.checkpointing import payload_of
from ray_snapshot.runtime.context import Context, attach
from ray_snapshot.runtime.faults import text_of

if TYPE_CHECKING:
    from ray_snapshot.protocol.host import HostCore
    from ray_snapshot.runtime.checkpointing import SavedMessage
    from ray_snapshot.runtime.host.post import HostPost
    from ray_snapshot.runtime.planning import Share


# ---- a program that is started again --------------------------------------------------------------------------------------


@dataclass(slots=True)
class Wanted:
    """What `ray-snapshot restore` wants of the program that it runs: that its system goes on from this snapshot."""

    system: str
    snapshot_id: str
    history: str
    names: set[str]
    """The machines of the snapshot that the program has not spawned yet, also those that were just being created."""
    hosts: int | None = None
    """On how many hosts; None: as the program says."""
    is_taken: bool = False
    is_done: bool = False


_WANTED: list[Wanted] = []


def want(found: Wanted) -> None:
    """The next system of that name in this process is to go on from that snapshot."""
    _WANTED[:] = [found]


def is_to_be_restored() -> bool:
    """Whether this program was started to go on from a snapshot, and has not done so yet."""
    return any(not found.is_done for found in _WANTED)


def wanted(system: str) -> Wanted | None:
    """What the system of this name, which is being opened, is to go on from; None if it begins.

    Raises `SettingError` if another one is to be restored first: the program would do all its work anew.
    """
    found = next((item for item in _WANTED if not item.is_taken), None)
    if found is None:
        return None
    if found.system != system:
        raise SettingError(
            f"the program opens system {system!r}, and snapshot {found.snapshot_id} is of system {found.system!r}: nothing was"
            f" begun. Name a snapshot of {system!r} (`ray-snapshot history list HISTORY --system {system}`); a program that"
            f" opens several systems must open {found.system!r} first"
        )
    found.is_taken = True
    return found


# ---- loading ------------------------------------------------------------------------------------------------------------


def load(post: HostPost, share: Share) -> None:
    """Take a host's share in, in a thread that is no machine: hooks cannot send or call.

    Raises `MachineFailedError` if a machine does not take its state back.
    """
    handles.forget_places(post.member.run_id, share.aliases)
    if post.abroad is not None:
        post.abroad.load(share.abroad)
    for key, blob in share.classes.items():
        post.classes.add(key, blob)
    for name, key, blob, _ in share.machines:
        _load_machine(post, name, key, blob)
    with post.member.lock:
        core = post.core
        if isinstance(core, BarrierCore):
            core.acting = None
        for target, source, port in [(target, source, port) for source, target, port in share.declared]:
            if port is not None and target in core.machines:
                post.declare(target, port, source)
        post.timers = refill(core, share)
        for machine in [*core.machines.values()]:
            if machine.over:
                core.end_action(machine)
                post.held.add(machine)
        for name, _, _, is_stopped in share.machines:
            if is_stopped:
                core.machine(name).is_stopped = True
        core.learn_stopped(share.stopped)


def _load_machine(post: HostPost, name: str, key: str, blob: bytes) -> None:
    try:
        kind: Any = post.classes.get(key)
        body = kind.__new__(kind)
        with post.member.lock:
            machine = post.core.machine(name)
            post.core.born(name, body, tuple(post.classes.joins[kind]))
            attach(body, Context(post, machine))
        body.restore_state(pickle.loads(blob) if post.abroad is None else post.abroad.opened(blob))
    except Exception as error:
        raise MachineFailedError(
            f"{name} does not take its state back: {type(error).__name__}: {text_of(error)}",
            machine=name,
            method="restore_state",
            message=None,
            source=None,
            traceback="",
        ) from error


def refill(core: HostCore, share: Share) -> list[tuple[Any, int, float]]:
    """Send again what was in flight, and set the timers with what was left of their time; under the lock.

    Returns (channel, number, seconds left) of each timer.
    """
    now = time.time()
    creations = (
        refilling.Created(creator, child, (key, share.classes.get(key), payload_of(payload)), sent_at)
        for creator, child, key, payload, sent_at in share.creations
    )
    declared = ((source, target) for source, target, _ in share.declared)
    messages = (_again(message, now) for message in share.messages)
    timers = refilling.refill(core, share.places, creations, messages, awaited=share.awaited, declared=declared)
    return [(channel, number, due - now) for channel, number, due in timers]


def _again(message: SavedMessage, now: float) -> refilling.Sent:
    source, target, kind, _, method, payload, left, sent_at = message
    args = payload_of(payload)
    if kind != TIMER:
        return refilling.Sent(source, target, kind, method, args, sent_at)
    return refilling.Sent(source, target, kind, method, (now + left, args), sent_at, now + left)
