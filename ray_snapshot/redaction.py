"""What must never be recorded, by name: the values of fields, keys and parameters that `redact` names.

Whatever stands under such a name, however deep, is written as `{"$redacted": name}`; a pydantic secret is so under any name.
That is seen to where a value becomes JSON (`plain`), where arguments are logged (`arguments`, `keywords`), and once more where
rows enter a history (`purged`). Other texts are recorded as they are. Only the standard library is imported.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ray_snapshot.errors import SettingError
from ray_snapshot.fields import in_class

UNKNOWN = "argument"
"""What stands for the name of a parameter that this process does not know."""


class Parameters(NamedTuple):
    """The parameters of a method; `rest` and `keywords` take what has no name of its own, if the method has them."""

    positional: tuple[str, ...]
    named: frozenset[str] = frozenset()
    rest: str | None = None
    keywords: str | None = None

    def at(self, position: int) -> str | None:
        """The name under which a positional argument arrives."""
        return self.positional[position] if position < len(self.positional) else self.rest


_names: frozenset[str] = frozenset()
_parameters: dict[str, list[Parameters]] = {}
"""By name: the parameters of the methods, or of the method of the ports, of that name."""

is_active = False
"""Whether anything is redacted."""

version = 0
"""Grows with the names: what was written before is to be written anew."""


def redact(*names: str) -> None:
    """Never write the values of fields, keys and parameters of these names, in any case, with or without `_` in front.

    Call it before the system is made: it goes with every machine from then on. Raises `SettingError` for what is no name.
    """
    global _names, is_active, version
    for name in names:
        if not isinstance(name, str) or not name.strip("_"):
            raise SettingError(f"redact({name!r}): name fields, like redact('password', 'token')")
    known, _names = _names, _names | {_plain(name) for name in names}
    is_active = bool(_names)
    version += _names != known  # behind all of it: what another thread writes meanwhile has the version before


def names() -> tuple[str, ...]:
    """The names that are redacted in this process, for others to redact them, too."""
    return tuple(sorted(_names))


def forget() -> None:
    """Redact nothing any more; for tests."""
    global _names, is_active, version
    _names, is_active, version = frozenset(), False, version + 1
    _parameters.clear()


def _plain(name: str) -> str:
    return name.casefold().strip("_")


def is_redacted(name: Any) -> bool:
    """Whether what stands under a name is redacted; `_Account__password` is `password`."""
    if not _names or not isinstance(name, str):
        return False
    plain = _plain(str.__str__(name))
    return plain in _names or ("__" in plain and plain.rpartition("__")[2] in _names)


def mark(name: str) -> dict[str, str]:
    """What stands for a value that is not written."""
    return {"$redacted": str.__str__(name)}


def under(name: Any, value: Any) -> Any:
    """What is written of a value that stands under a name."""
    return mark(name) if is_redacted(name) else value


def purged(value: Any) -> Any:
    """Parsed JSON without what is redacted here: for values recorded by a process that did not know the names."""
    if isinstance(value, list):
        return [purged(item) for item in value]
    if not isinstance(value, dict):
        return value
    if isinstance(pairs := value.get("$dict"), list):  # of a dictionary whose keys are not all texts
        value = {**value, "$dict": [[key, under(key, item)] for key, item in pairs]}
    return {key: mark(key) if is_redacted(key) else purged(item) for key, item in value.items()}


def pattern() -> str:
    """A regular expression that JSON text matches if it may have a redacted name."""
    if not all(map(str.isascii, _names)):
        return ""  # JSON writes such a name in several ways: look at every text
    return f'(?i)({"|".join(map(re.escape, names()))})_*"'


# Parameters


def know(kind: type, joins: Mapping[tuple[str, ...], str] | None = None) -> None:
    """Learn which parameters the methods of a machine's class have; `joins`: by its ports, which method takes them."""
    for base in kind.__mro__[:-1]:
        for name, member in vars(base).items():
            found = _parameters_of(member)
            if found is not None:
                _know(name, found)
    for ports, method in (joins or {}).items():
        for position, port in enumerate(ports):
            for found in list(_parameters.get(method, ())):
                taken = found.at(position)
                _know(port, Parameters((), frozenset(), taken, taken))


def _know(method: str, found: Parameters) -> None:
    known = _parameters.setdefault(method, [])
    if found not in known:
        known.append(found)


def _parameters_of(member: Any) -> Parameters | None:
    """The parameters of a method, or of what its decorator has wrapped; None if they cannot be told."""
    try:
        code = inspect.unwrap(getattr(member, "__func__", member)).__code__
        names, rest, keywords = inspect.getargs(code)
    except Exception:  # no function, or one of those that answer anything
        return None
    first = 0 if isinstance(member, staticmethod) else 1
    return Parameters(tuple(names[first : code.co_argcount]), frozenset(names), rest, keywords)


def arguments(method: str, args: Sequence[Any] | None) -> list[Any]:
    """Positional arguments with those of redacted parameters taken out; all of them if the method is unknown here."""
    if not _names:
        return list(args or ())
    return [_out(_name_at(method, position), value) for position, value in enumerate(args or ())]


def keywords(method: str, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Keyword arguments with those of redacted parameters taken out."""
    if not _names:
        return dict(kwargs)
    return {name: _out(_keyword_name(method, name), value) for name, value in kwargs.items()}


def _out(name: str | None, value: Any) -> Any:
    """The value, or what stands for it under a redacted name; None, booleans and handles of machines are no secrets."""
    if name is None or value is None or value is True or value is False:
        return value
    # Its class tells whether it is a handle: the value itself, which may answer anything, is not asked.
    return value if in_class(type(value), "__machine_name__") is not None else mark(name)


def _name_at(method: str, position: int) -> str | None:
    """The redacted name under which a positional argument arrives."""
    if is_redacted(method):
        return method
    known = _parameters.get(method)
    if known is None:
        return UNKNOWN
    return next((name for item in known if is_redacted(name := item.at(position))), None)


def _keyword_name(method: str, keyword: str) -> str | None:
    """The redacted name under which a keyword argument arrives."""
    taken = (item.keywords for item in _parameters.get(method, ()) if keyword not in item.named)
    return next((name for name in (keyword, method, *taken) if is_redacted(name)), None)
