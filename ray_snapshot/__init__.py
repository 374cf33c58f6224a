"""ray-snapshot: consistent global snapshots of running Ray actor systems.

The public names, loaded when they are first used: importing this package loads neither Ray nor Spark nor Arrow.
Read `docs/concepts/index.md` for the theory, `docs/protocols.md` for its form in this code,
`ray_snapshot.protocol.host` for the heart of the code.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ray_snapshot.errors import *  # noqa: F403
    from ray_snapshot.history import History as History
    from ray_snapshot.instrument.watching import install as install
    from ray_snapshot.instrument.watching import watch as watch
    from ray_snapshot.instrument.watching import wrap as wrap
    from ray_snapshot.redaction import redact as redact
    from ray_snapshot.runtime.handles import MachineHandle as MachineHandle
    from ray_snapshot.runtime.mixin import SnapshotMixin as SnapshotMixin
    from ray_snapshot.runtime.mixin import join as join
    from ray_snapshot.runtime.remote import remote as remote
    from ray_snapshot.runtime.system import Settings as Settings
    from ray_snapshot.runtime.system import System as System
    from ray_snapshot.snapshot import Snapshot as Snapshot
    from ray_snapshot.verdicts import Detector as Detector
    from ray_snapshot.verdicts import Verdict as Verdict
    from ray_snapshot.verdicts import detector as detector
    from ray_snapshot.waits import Wait as Wait
    from ray_snapshot.waits import all_of as all_of
    from ray_snapshot.waits import any_of as any_of
    from ray_snapshot.waits import at_least as at_least

__version__ = "0.1.0"

_WHERE = {
    "Snapshot": "ray_snapshot.snapshot",
    "Verdict": "ray_snapshot.verdicts",
    "Detector": "ray_snapshot.verdicts",
    "detector": "ray_snapshot.verdicts",
    "Wait": "ray_snapshot.waits",
    "all_of": "ray_snapshot.waits",
    "any_of": "ray_snapshot.waits",
    "at_least": "ray_snapshot.waits",
    "System": "ray_snapshot.runtime.system",
    "Settings": "ray_snapshot.runtime.system",
    "SnapshotMixin": "ray_snapshot.runtime.mixin",
    "MachineHandle": "ray_snapshot.runtime.handles",
    "remote": "ray_snapshot.runtime.remote",
    "join": "ray_snapshot.runtime.mixin",
    "History": "ray_snapshot.history",
    "redact": "ray_snapshot.redaction",
    "watch": "ray_snapshot.instrument.watching",
    "install": "ray_snapshot.instrument.watching",
    "wrap": "ray_snapshot.instrument.watching",
}

_ERRORS = "ray_snapshot.errors"


if not TYPE_CHECKING:  # a type checker would take any name for one of ours

    def __getattr__(name: str) -> Any:
        if name in _WHERE:
            return getattr(import_module(_WHERE[name]), name)
        if name.endswith("Error") and not name.startswith("_"):
            return getattr(import_module(_ERRORS), name)
        raise AttributeError(f"module 'ray_snapshot' has no attribute {name!r}")


def __dir__() -> list[str]:
    errors = [name for name in dir(import_module(_ERRORS)) if name.endswith("Error")]
    return sorted([*_WHERE, *errors, "__version__"])
