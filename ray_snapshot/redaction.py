"""What must never reach the disk: the values of fields with certain names, and secrets, wherever their text turns up.

`redact("password")` names fields; whatever is recorded under such a name (a field, a key, a parameter of a method, however
deep) is written as `{"$redacted": name}`. A value that was met under such a name, or in a pydantic secret, is remembered in
this process when it is sent or arrives, and taken out of every text that is recorded here afterwards, the texts of errors
too. Where positional arguments go to a method whose parameters this process does not know, all of them are taken out. Only
the standard library is imported.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from ray_snapshot.errors import SettingError

REPLACEMENT = "[redacted]"

LEAST_CHARACTERS = 4
"""Shorter values are not looked for in texts: they would be found everywhere."""

MOST_SECRETS = 100_000
MOST_LOOKED_FOR = 200
"""More of them are not looked for one by one: every text is taken for one that may have a secret."""

MOST_DEPTH = 200
MOST_MET = 10_000
"""So many values of a call's arguments are looked at when they arrive."""

_names: frozenset[str] = frozenset()
_secrets: dict[str, None] = {}
_parameters: dict[str, list[tuple[tuple[str, ...], bool]]] = {}
"""By the name of a method: the parameters of those of that name, and whether the last takes all that follow."""

is_active = False
"""Whether there is anything to take out."""


def redact(*names: str) -> None:
    """Never write the values of fields, keys and parameters of these names, in any case, with or without `_` in front.

    Call it before the system is made: it goes with every machine from then on. Raises `SettingError` for what is no name.
    """
    global _names, is_active
    for name in names:
        if not isinstance(name, str) or not name.strip("_"):
            raise SettingError(f"redact({name!r}): name fields, like redact('password', 'token')")
    _names |= {_plain(name) for name in names}
    is_active = bool(_names or _secrets)


def names() -> tuple[str, ...]:
    """The names that are redacted in this process, for others to redact them, too."""
    return tuple(sorted(_names))


def forget() -> None:
    """Redact nothing any more; for tests."""
    global _names, is_active
    _names, is_active = frozenset(), False
    _secrets.clear()
    _parameters.clear()


def secret_count() -> int:
    """How many secrets are known; grows when one is met."""
    return len(_secrets)


def _plain(name: str) -> str:
    return name.casefold().strip("_")


def is_redacted(name: Any) -> bool:
    """Whether a field of that name is redacted; `_Account__password` is `password`."""
    if not isinstance(name, str):
        return False
    plain = _plain(str.__str__(name))
    return plain in _names or ("__" in plain and plain.rpartition("__")[2] in _names)


def learn(value: Any, depth: int = 0) -> None:
    """Remember a secret: its text is taken out of what is recorded from now on."""
    global is_active
    if isinstance(value, (bytes, bytearray)):
        value = bytes(value).decode("utf-8", "replace")
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        value = str(value)
    if isinstance(value, str):
        text = str.__str__(value)
        if len(text) >= LEAST_CHARACTERS and len(_secrets) < MOST_SECRETS:
            _secrets[text] = None
            is_active = True
    elif isinstance(value, (list, tuple, set, frozenset, dict)) and depth < MOST_DEPTH:
        for item in list(value.values() if isinstance(value, dict) else value):
            learn(item, depth + 1)
    elif depth < MOST_DEPTH and not hasattr(value, "__machine_name__"):
        learn(_fields(value), depth + 1)


def met(method: str, args: Sequence[Any], kwargs: Mapping[str, Any] | None) -> None:
    """Learn what is sent to a method, or arrives there, under a redacted name, before anything that may hold it is written.

    Under a name is: as a parameter of a method that this process knows, a keyword, a key or a field, at most `MOST_MET` values
    deep and wide. Call it only while something is redacted (`is_active`).
    """
    known = _parameters.get(method)
    left = [MOST_MET]
    with suppress(Exception):  # changed by another thread meanwhile: the call itself goes on
        for position, value in enumerate(args):
            if known is not None and _redacted_parameter(known, position) is not None:
                learn(value)
            else:
                _learn_inside(value, 0, left)
        _learn_inside(dict(kwargs or {}), 0, left)


def _learn_inside(value: Any, depth: int, left: list[int]) -> None:
    """Learn what stands under redacted names in a value."""
    left[0] -= 1
    if left[0] < 0 or depth > MOST_DEPTH or value is None or isinstance(value, (str, bytes, int, float)):
        return
    if isinstance(value, (list, tuple, set, frozenset)) and not hasattr(value, "_fields"):
        for item in list(value):
            _learn_inside(item, depth + 1, left)
        return
    for name, item in list((value if isinstance(value, dict) else _fields(value)).items()):
        if is_redacted(name) or name == "_secret_value":
            learn(item)
        else:
            _learn_inside(item, depth + 1, left)


def _fields(value: Any) -> dict[str, Any]:
    """The fields of an object, or of a named tuple, without asking it."""
    if isinstance(value, tuple):
        return dict(zip(getattr(value, "_fields", ()), value, strict=False))
    try:
        return dict(object.__getattribute__(value, "__dict__"))
    except (AttributeError, TypeError, ValueError, RuntimeError):
        return {}


def scrubbed(text: str) -> str:
    """`text` without any secret that this process has met."""
    if not is_active:
        return text
    for secret in sorted((secret for secret in _secrets if secret in text), key=len, reverse=True):
        text = text.replace(secret, REPLACEMENT)
    return text


def holds_secret(raw: bytes | memoryview) -> bool:
    """Whether bytes contain a secret's text."""
    whole = bytes(raw)
    return any(secret.encode("utf-8", "surrogatepass") in whole for secret in _secrets)


def mark(name: Any) -> dict[str, str]:
    """What stands for a value that is not written."""
    return {"$redacted": str.__str__(name)}


def purged(value: Any, depth: int = 0) -> Any:
    """Parsed JSON without what is redacted, for what was recorded where that was not known."""
    if isinstance(value, str):
        return scrubbed(value)
    if isinstance(value, list) and depth < MOST_DEPTH:
        return [purged(item, depth + 1) for item in value]
    if not isinstance(value, dict) or depth >= MOST_DEPTH:
        return value
    for key, item in value.items():
        if is_redacted(key) and not _is_mark(item):
            learn(item)
    return {
        key: (item if _is_mark(item) else mark(key)) if is_redacted(key) else purged(item, depth + 1)
        for key, item in value.items()
    }


def _is_mark(value: Any) -> bool:
    return isinstance(value, dict) and value.keys() == {"$redacted"}


def pattern() -> str | None:
    """A regular expression that JSON text matches if it may have a redacted name or a secret; None if there is nothing."""
    if len(_secrets) > MOST_LOOKED_FOR:
        return ""
    words = {f'{re.escape(name)}_*"' for name in _names}
    for secret in _secrets:
        written = (secret, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1])
        words |= {re.escape(form) for form in written}
    return f"(?i){'|'.join(sorted(words))}" if words else None


# Parameters


def know(kind: type) -> None:
    """Learn which parameters the methods of a machine's class have."""
    for base in kind.__mro__[:-1]:
        for name, member in vars(base).items():
            code = getattr(getattr(member, "__func__", member), "__code__", None)
            if code is not None:
                found = code.co_varnames[1 : code.co_argcount], bool(code.co_flags & 4)
                known = _parameters.setdefault(name, [])
                if found not in known:
                    known.append(found)


def arguments(method: str, args: Sequence[Any]) -> list[Any]:
    """Positional arguments with those of redacted parameters taken out; all of them if nobody knows the method."""
    if not _names:
        return list(args)
    known = _parameters.get(method)
    found = []
    for position, value in enumerate(args):
        name = _redacted_parameter(known, position)
        if (
            name is not None
            and value is not None
            and not isinstance(value, bool)
            and not hasattr(value, "__machine_name__")
        ):
            if known is not None:
                learn(value)
            found.append(mark(name))
        else:
            found.append(value)
    return found


def _redacted_parameter(known: list[tuple[tuple[str, ...], bool]] | None, position: int) -> str | None:
    if known is None:
        return "argument"
    for parameters, _ in known:
        if position < len(parameters) and is_redacted(parameters[position]):
            return parameters[position]
    return None
