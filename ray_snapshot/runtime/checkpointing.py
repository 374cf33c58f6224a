"""What a host keeps of a snapshot so that it can be restored: states, messages, timers, creations, classes, as bytes.

A section is a pickle of plain values, one per report of a host. States and arguments are pickles inside it, opened nowhere but
on the host that loads them. What cannot be brought back in another process is an obstacle and is never pickled here: Ray would
pin what an ObjectRef names for good.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import ray
from pydantic import SecretBytes, SecretStr
from ray import cloudpickle

from ray_snapshot.parts.reporting import Late, show
from ray_snapshot.protocol.host import Creation, Recording
from ray_snapshot.protocol.mailbox import CALL, TIMER, Mailbox, Message
from ray_snapshot.protocol.parts import MachineCopy
from ray_snapshot.runtime.faults import first_line
from ray_snapshot.runtime.payload import Pickled, dumps

FOREIGN = (ray.ObjectRef, ray.ObjectRefGenerator, ray.actor.ActorHandle)
_MARKS = (b"_object_ref_deserializer", b"_actor_handle_deserializer", b"ObjectRefGenerator", b"_rdt_ref_deserializer")
"""What pickles of references and handles contain; a text that does is taken for one, which costs a restore, no more."""

SavedMachine = tuple[str, str, bytes, bool]
"""(name, key of its class, pickled state, whether it has stopped)."""

SavedMessage = tuple[str, str, str, int, str, "SavedPayload", float, float]
"""(source, target, kind, number, method, arguments, seconds left of a timer, time sent)."""

SavedPayload = tuple[bool, bytes]
"""(whether it is a tuple of what cannot change, its pickle)."""

SavedCreation = tuple[str, str, str, SavedPayload, float]
"""(creator, child, key of its class, arguments, time sent)."""


def saved_machine(copy: MachineCopy) -> SavedMachine:
    """What is kept of a machine whose state could be pickled."""
    key, state = copy.extra.kept
    return copy.machine, key, state, copy.extra.status == "stopped"


class _ForeignHandleError(Exception):
    """A reference or an actor handle, which is worth nothing once the process that owns it is gone."""


class _SecretError(Exception):
    """A pydantic secret, which never reaches the disk."""


class StatePickler(cloudpickle.CloudPickler):  # type: ignore[misc]
    """cloudpickle that refuses what only lives as long as its owner."""

    def reducer_override(self, item: Any) -> Any:
        if isinstance(item, FOREIGN):
            raise _ForeignHandleError(
                "a handle of a Ray actor" if isinstance(item, ray.actor.ActorHandle) else "an ObjectRef"
            )
        if isinstance(item, (SecretStr, SecretBytes)):
            raise _SecretError
        return super().reducer_override(item)


def pickled_state(state: Any) -> tuple[bytes | None, str | None]:
    """(pickle, None), or (None, why there is none, with the attribute that is to blame)."""
    return pickled(state, "its state", partial(dumps, pickler=StatePickler))


def pickled(value: Any, what: str, dumps: Callable[[Any], bytes]) -> tuple[bytes | None, str | None]:
    """(pickle, None), or (None, why there is none), for any value and pickler; `what` names the value in the reason."""
    try:
        return dumps(value), None
    except Exception as error:  # whatever the value's own classes raise
        where = next((f" at {name!r}" for name, item in _items(value) if not _is_picklable(item, dumps)), "")
        return None, f"{_reason(error)} in {what}{where}"


def _items(state: Any) -> list[tuple[Any, Any]]:
    return list(state.items()) if isinstance(state, dict) else []


def _is_picklable(value: Any, dumps: Callable[[Any], bytes]) -> bool:
    try:
        dumps(value)
    except Exception:  # as above
        return False
    return True


def _reason(error: Exception) -> str:
    if isinstance(error, _ForeignHandleError):
        return str(error)
    if isinstance(error, _SecretError):
        return "a secret (SecretStr or SecretBytes), which is never stored,"
    return f"something that cannot be pickled ({type(error).__name__}: {first_line(error)})"


@dataclass(slots=True)
class Section:
    """One report's part of a checkpoint, to which the recording is shown (`parts.reporting.Rows`)."""

    host: str
    machines: list[SavedMachine] = field(default_factory=list)
    messages: list[SavedMessage] = field(default_factory=list)
    creations: list[SavedCreation] = field(default_factory=list)
    classes: dict[str, bytes] = field(default_factory=dict)
    obstacles: list[str] = field(default_factory=list)
    """Why this part cannot be restored, machine by machine; not part of what is stored."""
    at: float = 0.0
    """When the host turned red: what is left of a timer is counted from here."""
    at_rest: Any = None
    """Machines beside these, as a table (`saved_machines.SAVED`); None if there are none."""

    def dumps(self) -> bytes:
        """The section as it is stored; `planning.opened_section` opens it."""
        from ray_snapshot.runtime.saved_machines import saved_bytes  # with Arrow, which an app's processes do not load

        whole = self.host, self.machines, self.messages, self.creations, self.classes
        at_rest = () if self.at_rest is None else (saved_bytes(self.at_rest),)
        return pickle.dumps((*whole, *at_rest), protocol=5)

    def machine(self, copy: MachineCopy) -> None:
        """A machine's pickled state."""
        if copy.is_born and copy.extra.kept is not None:
            self.machines.append(saved_machine(copy))

    def ends_of(self, copy: MachineCopy) -> None:
        """A machine's channels: of their counts nothing is kept, for numbering begins anew."""
        for (source, kind), repeated in copy.duplicates.items():
            if kind == CALL and repeated:
                self.obstacles.append(f"{copy.machine}: it has answered a call that {source} has not made yet")

    def late(self, mailbox: Mailbox, machine: str) -> None:
        """A channel on which a message came behind the copy."""

    def message(self, source: str, target: str, kind: str, message: Message) -> None:
        """A message in flight, or a pending timer."""
        _, number, method, payload, sent_at, _ = message
        if kind == CALL:
            self.obstacles.append(f"{source}: its call of {target}.{method} is in flight")
            return
        due, payload = payload if kind == TIMER else (self.at, payload)
        saved = _saved(payload)
        if _is_foreign(saved):
            self.obstacles.append(
                f"{source}: an ObjectRef or a handle of a Ray actor in a message to {target}.{method}"
            )
        if _is_secret(saved):
            self.obstacles.append(f"{source}: a secret, which is never stored, in a message to {target}.{method}")
            return
        left = max(0.0, due - self.at)
        self.messages.append((source, target, kind, number, method, saved, left, sent_at))

    def creation(self, creation: Creation) -> None:
        """A creation in flight."""
        key, blob, payload = creation.payload
        saved = _saved(payload)
        if _is_foreign(saved):
            self.obstacles.append(f"{creation.child}: an ObjectRef or a handle of a Ray actor in what it is made from")
        if _is_secret(saved):
            self.obstacles.append(f"{creation.child}: a secret, which is never stored, in what it is made from")
            return
        if blob is not None:
            self.classes[key] = blob
        self.creations.append((creation.creator, creation.child, key, saved, creation.sent_at))


def section_of(
    host: str,
    recording: Recording,
    at: float,
    classes: Mapping[str, bytes],
    late: Sequence[Late],
    late_creations: Sequence[Creation],
    at_rest: Any = None,
) -> Section:
    """The section of a host's report; O(machines + channels + messages in flight), but for machines at rest."""
    found = Section(host, classes=dict(classes), at=at, at_rest=at_rest)
    show(recording, found)
    _add_late(found, late, late_creations)
    return found


def late_section(
    host: str,
    at: float,
    late: Sequence[Late],
    late_creations: Sequence[Creation],
) -> Section:
    """What came behind a host's report."""
    found = Section(host, at=at)
    _add_late(found, late, late_creations)
    return found


def _add_late(found: Section, late: Any, creations: Any) -> None:
    for mailbox, machine, message in late:
        found.message(mailbox.source, machine.name, mailbox.kind, message)
    for creation in creations:
        found.creation(creation)


def _saved(payload: Any) -> SavedPayload:
    if type(payload) is tuple:
        return True, pickle.dumps(payload, protocol=5)
    return False, bytes(payload)


def _is_foreign(saved: SavedPayload) -> bool:
    return not saved[0] and any(mark in saved[1] for mark in _MARKS)


def _is_secret(saved: SavedPayload) -> bool:
    return not saved[0] and any(mark in saved[1] for mark in (b"SecretStr", b"SecretBytes"))


def payload_of(saved: SavedPayload) -> Any:
    """What travels in a message, again."""
    is_plain, blob = saved
    return pickle.loads(blob) if is_plain else Pickled(blob)
