"""Which of the user's own code a replay may load: classes and functions of modules that the user has named, no others.

A history is a stranger's file, and a name in it may be any name. So nothing is imported because the history names it, and
what is found must be defined in the module under whose name it was found: `bank:subprocess.Popen` is none of bank's.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ray_snapshot.decoding import NotDecodableError, named, places_of
from ray_snapshot.runtime.mixin import SnapshotMixin

_OURS = __name__.partition(".")[0]


@dataclass(frozen=True, slots=True)
class Modules:
    """The modules that the user has named, each with what lies below it; and machine classes that are loaded already."""

    allowed: frozenset[str] = field(default_factory=frozenset)

    def find(self, name: str) -> Any:
        """What stands under "module:name" or "module.name"; raises `NotDecodableError`."""
        if not any(self.allows(module) for module, _ in places_of(name)):
            raise NotDecodableError(
                f"{name} is named by the history alone, and nothing that a history names is imported: say --module"
                f" {next((place for place, _ in places_of(name)), 'NAME')} if its module is yours, or --trust if you trust"
                " whoever wrote the history"
            )
        found = named(name, self.allows)
        home = getattr(found, "__module__", None)
        if not isinstance(home, str) or not self.allows(home):
            raise NotDecodableError(f"{name} is defined in {home}, which nobody named with --module")
        return found

    def machine_class(self, name: str) -> Any:
        """A class of machines; raises `NotDecodableError` for whatever else stands under that name."""
        found = self.find(name)
        kind = getattr(found, "machine_class", found)
        if not isinstance(kind, type) or not issubclass(kind, SnapshotMixin):
            raise NotDecodableError(f"{name} is no class of machines: it does not extend rs.SnapshotMixin")
        return kind

    def allows(self, module: str) -> bool:
        """Whether code of that module may be used."""
        parts = module.split(".")
        return any(".".join(parts[:count]) in self.allowed for count in range(1, len(parts) + 1))


def loaded(class_names: Iterable[str]) -> frozenset[str]:
    """The modules of those machine classes that this process has loaded already and that are not ours, but the
    program's."""
    found = set()
    for name in class_names:
        module, _, path = name.partition(":")
        kind: Any = sys.modules.get(module)
        for part in path.split("."):
            kind = getattr(kind, "__dict__", {}).get(part)
        kind = getattr(kind, "machine_class", kind)
        is_machine = isinstance(kind, type) and issubclass(kind, SnapshotMixin) and kind.__module__ == module
        if is_machine and module.partition(".")[0] != _OURS:
            found.add(module)
    return frozenset(found)


def names_in(value: Any) -> Iterator[str]:
    """The names of classes and functions that recorded JSON would have looked up if it were built again."""
    if isinstance(value, Mapping):
        for tag in ("$type", "$name"):
            if isinstance(value.get(tag), str):
                yield value[tag]
    if isinstance(value, Mapping | list):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from names_in(item)
