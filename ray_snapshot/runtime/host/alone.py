"""Whether only a machine's own actions can change what a snapshot records of it.

Whoever could change an object holds a reference to it, and Python counts those. A thread that the machine has begun, a registry
in a module, another machine of the process that was given the same list: each holds one more than the machine's own attributes
do. So the count tells, from the object down to the last part that can change, and nothing has to be declared. It stays so: who
holds no reference cannot get one, but in an action of the machine.

What is counted: attributes whose parts are plain values, containers of Python's own, members of enums, and objects that are
nothing but their `__dict__`. Of anything else (an array, a connection, a lock, a function) it is not known what it shares with
others, and the answer is False: that costs time, never a wrong state.
"""

from __future__ import annotations

import datetime
import decimal
import enum
import types
import uuid
from collections import deque
from collections.abc import Sequence
from functools import lru_cache
from itertools import chain
from operator import attrgetter
from sys import getrefcount
from typing import Any
from weakref import getweakrefcount

from ray_snapshot.fields import in_class
from ray_snapshot.limits import LIMITS
from ray_snapshot.protocol.host import Machine
from ray_snapshot.runtime.handles import MachineHandle
from ray_snapshot.runtime.payload import ATOMS

_CONSTANTS = ATOMS - {MachineHandle} | {datetime.date, datetime.timedelta, decimal.Decimal, uuid.UUID, range}
_UNPICKLED = _CONSTANTS | {MachineHandle}
"""What stays as it is where states are only written."""
_FLAT = frozenset({dict, list, tuple, set})
_CONTAINERS = frozenset({dict, list, tuple, set, frozenset, deque})
_ZONES = (type(None), datetime.timezone)
_ROOM = object.__basicsize__ + 16
"""The size of an object that has its `__dict__` and its list of weak references, and no field of its own."""


def is_alone(machine: Machine, *, is_checkpointing: bool) -> bool:
    """Whether nothing but the machine refers to its object, or to any part of it that can change.

    Under the host's lock, with no reference to the object in any local variable of a caller; then the state does not change
    from now on until the machine acts. Each part is looked at behind what holds it, so no other thread comes in between.
    `is_checkpointing`: the state will be pickled, too. 4 us, and 1 us for each part that can change.
    """
    if _references(machine) != _OF_A_BODY or getweakrefcount(machine.body) != 1:  # `context.attach` has one
        return False
    todo, left = [machine.body], LIMITS.state_parts
    while todo:
        whole = todo.pop()
        if type(whole) not in _CONTAINERS:
            if _dict_references(whole) != _OF_A_DICT:
                return False
            whole = object.__getattribute__(whole, "__dict__")
        left -= len(whole)
        if left < 0:
            return False
        parts = _that_change(whole.values() if type(whole) is dict else whole, is_checkpointing)
        if type(whole) is dict:
            parts += _that_change(whole, is_checkpointing)
        if any(map(_ONCE.__ne__, map(getrefcount, parts))) or any(map(getweakrefcount, parts)):
            return False
        kinds: list[type] = [kind for part in parts if (kind := type(part)) not in _CONTAINERS]
        if not all(_is_its_dict(kind, is_checkpointing) for kind in kinds):
            return False
        todo += parts
    return True


def are_alone(machines: Sequence[Machine]) -> list[bool]:
    """`is_alone` of machines of one class whose state is their `__dict__`, without checkpoints; at least one.

    Where all have the same attributes, of plain values and containers of these, they are looked at attribute by attribute:
    some 0.5 us a machine, and 0.2 us for each container.
    """
    if (found := _are_plain_and_alone(machines)) is not None:
        return found
    return [is_alone(machine, is_checkpointing=False) for machine in machines]


def _are_plain_and_alone(machines: Sequence[Machine]) -> list[bool] | None:
    """`are_alone`; None if some attribute is neither a plain value nor a container of these.

    What it refers to is let go before anybody counts again.
    """
    bodies = [*map(_body, machines)]
    of_bodies, weakly = map(getrefcount, bodies), map(getweakrefcount, bodies)
    found = [count == _IN_A_LIST and weak == 1 for count, weak in zip(of_bodies, weakly, strict=True)]
    dicts = [*map(_dict, bodies)]
    found = [alone and count == _DICT_IN_A_LIST for alone, count in zip(found, map(getrefcount, dicts), strict=True)]
    try:
        kinds = {*map(type, chain.from_iterable(map(dict.values, dicts)))}
        if not {*map(type, chain.from_iterable(dicts))} <= _CONSTANTS:
            return None
        return found if kinds <= _UNPICKLED else _with_containers(found, dicts)
    except (RuntimeError, ValueError):  # another thread has changed one meanwhile, or they have not the same attributes
        return None


def _with_containers(found: list[bool], dicts: Sequence[dict[Any, Any]]) -> list[bool] | None:
    """Which are alone with the containers that are their attributes; None as above. Some raise what `zip` does."""
    for column in zip(*map(dict.values, dicts), strict=True):
        kinds = {*map(type, column)}
        if kinds <= _UNPICKLED:
            continue
        if len(kinds) > 1 or kinds.isdisjoint(_FLAT) or max(map(len, column)) > LIMITS.container_items:
            return None
        inner = {*map(type, chain.from_iterable(column))}
        if dict in kinds:
            inner.update(map(type, chain.from_iterable(map(dict.values, column))))
        if not inner <= _UNPICKLED:
            return None
        if tuple not in kinds:
            counts, weakly = map(getrefcount, column), map(getweakrefcount, column)
            found = [
                alone and count == _IN_A_COLUMN and not weak
                for alone, count, weak in zip(found, counts, weakly, strict=True)
            ]
    return found


def _that_change(items: Any, is_checkpointing: bool) -> list[Any]:
    return [item for item in items if type(item) not in _CONSTANTS and not _is_constant(item, is_checkpointing)]


def _is_constant(value: Any, is_checkpointing: bool) -> bool:
    """Whether a value stays as it is and where it is. Of a handle its place may be learned, which is pickled, not written."""
    kind = type(value)
    if kind is MachineHandle:
        return not is_checkpointing or value._host is not None
    if kind is tuple or kind is frozenset:
        return len(value) < LIMITS.state_parts and all(type(item) in _CONSTANTS for item in value)
    if kind is datetime.datetime or kind is datetime.time:
        return type(value.tzinfo) in _ZONES
    return not is_checkpointing and issubclass(kind, enum.Enum) and type(value._value_) in _CONSTANTS


@lru_cache(10_000)
def _is_its_dict(kind: type, is_checkpointing: bool) -> bool:
    """Whether objects of a class are nothing but their `__dict__`. Pickled, they may ask their class, or show it."""
    return (
        not is_checkpointing
        and has_a_dict(kind)
        and kind.__basicsize__ <= _ROOM
        and not kind.__itemsize__
        and not isinstance(kind, enum.EnumMeta)
        and in_class(kind, "__machine_name__") is None
        and not any(type(item) is types.MemberDescriptorType for base in kind.__mro__ for item in vars(base).values())
    )


def has_a_dict(kind: type) -> bool:
    """Whether objects of a class have a `__dict__`, and no property of that name."""
    return type(in_class(kind, "__dict__")) is types.GetSetDescriptorType


def _references(machine: Any) -> int:
    return getrefcount(machine.body)


def _dict_references(owner: Any) -> int:
    return getrefcount(object.__getattribute__(owner, "__dict__"))


class _Sample:
    """An object to which one attribute refers, as a machine does to its own."""

    def __init__(self, body: Any) -> None:
        self.body = body


_OF_A_BODY, _OF_A_DICT = _references(_Sample(_Sample(None))), _dict_references(_Sample(None))
_body, _dict = attrgetter("body"), attrgetter("__dict__")
_BODIES = [_Sample(_Sample(None)).body]
_IN_A_LIST = next(map(getrefcount, _BODIES)) + 1
"""Of an object that one attribute refers to, and an item of a list."""
_DICT_IN_A_LIST = next(map(getrefcount, [*map(_dict, _BODIES)]))
_SAMPLE: dict[str, Any] = {"part": []}
_IN_A_COLUMN = next(map(getrefcount, next(zip(*map(dict.values, [_SAMPLE]), strict=True))))
"""Of an attribute's value, and an item of a tuple."""
_ONCE = next(map(getrefcount, _that_change(_SAMPLE.values(), False)))
"""What Python counts of what is held once: how many references its own call of `getrefcount` adds differs by version."""
