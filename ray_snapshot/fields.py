"""What an object holds, read without asking it. Imports the standard library only."""

from __future__ import annotations

import types
from typing import Any

_BASES, _MEMBERS = type.__dict__["__mro__"], type.__dict__["__dict__"]


def in_class(kind: type, name: str) -> Any:
    """What a class or one of its bases defines under a name, without asking the class or its metaclass; None if nothing."""
    return next(
        (found for base in _BASES.__get__(kind) if (found := _MEMBERS.__get__(base).get(name)) is not None), None
    )


def fields_of(value: Any) -> dict[Any, Any] | None:
    """What `__slots__` and `__dict__` hold, whatever the class overrides; None if it has neither."""
    found: dict[Any, Any] | None = None
    for base in reversed(type(value).__mro__):
        if "__slots__" not in base.__dict__:
            continue
        found = {} if found is None else found
        for name, member in base.__dict__.items():
            if isinstance(member, types.MemberDescriptorType):
                try:
                    found[name] = member.__get__(value)
                except AttributeError:  # a slot that was never set
                    continue
    try:
        own = object.__getattribute__(value, "__dict__")
    except Exception:  # it has none, or its class has a property of that name, which may raise anything
        return found
    return {**(found or {}), **own} if isinstance(own, dict) else found
