"""Machine classes on their way to hosts: pickled once, sent once per link, unpickled once per host."""

from __future__ import annotations

import hashlib
import inspect
import os
import sys
from typing import Any

from ray import cloudpickle

from ray_snapshot import redaction
from ray_snapshot.errors import SettingError, UnpicklableMessageError
from ray_snapshot.runtime.faults import named
from ray_snapshot.runtime.mixin import SnapshotMixin, joins_of

_CHECKED: dict[type, tuple[str, bytes]] = {}


def packed(kind: Any) -> tuple[str, bytes]:
    """(key, pickled class); raises `SettingError` for what cannot be a machine's class."""
    kind = getattr(kind, "machine_class", kind)  # what @rs.remote returned
    if not inspect.isclass(kind) or not issubclass(kind, SnapshotMixin):
        raise SettingError(f"{kind!r} cannot be spawned: a machine's class extends rs.SnapshotMixin")
    if kind not in _CHECKED:
        joins = joins_of(kind)
        for name, member in inspect.getmembers(kind):
            if inspect.iscoroutinefunction(member) or inspect.isasyncgenfunction(member):
                raise SettingError(
                    f"{kind.__name__}.{name} is async: an action of a machine is atomic; write a plain method"
                )
        try:
            blob = cloudpickle.dumps(kind)
        except Exception as error:
            raise UnpicklableMessageError(
                f"class {kind.__name__} cannot be pickled ({named(error)})", machine=kind.__name__
            ) from error
        redaction.know(kind, joins)
        _CHECKED[kind] = hashlib.sha256(blob).hexdigest(), blob
    return _CHECKED[kind]


def import_path() -> tuple[str, ...]:
    """Where this process finds modules."""
    return tuple(dict.fromkeys(os.path.abspath(entry) for entry in sys.path))


def extend_import_path(entries: tuple[str, ...]) -> None:
    """Find modules where the driver does, too: classes come by the name of their module, if they have one.

    Ray tells workers of the script's folder and the current one only; a test runner, for one, imports from others.
    """
    sys.path.extend(entry for entry in entries if entry not in sys.path and os.path.exists(entry))


class ClassStore:
    """The machine classes that a host knows."""

    def __init__(self) -> None:
        self.known: dict[str, type] = {}
        self.joins: dict[type, dict[tuple[str, ...], str]] = {}
        self.blobs: dict[str, bytes] = {}
        self.keys: dict[type, str] = {}

    def add(self, key: str, blob: bytes) -> None:
        """Take a class in; a second time does nothing."""
        if key not in self.known:
            kind = self.known[key] = cloudpickle.loads(blob)
            self.joins[kind] = joins_of(kind)
            redaction.know(kind, self.joins[kind])
            self.blobs[key] = blob
            self.keys[kind] = key

    def get(self, key: str) -> type:
        """The class of a key that came before."""
        return self.known[key]
