"""Detectors: pure functions of one completed snapshot, each giving a `Verdict` with evidence.

They work on the snapshot's Arrow tables, so that they run unchanged on a live snapshot, on one read from a
history and inside a Spark task. Nothing here may import Ray, Spark or touch a file. Read `termination`
first (the shortest), then `reduction` for the heart of `deadlock`, then `conservation`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from ray_snapshot.detectors.collective import Collective
from ray_snapshot.detectors.conservation import TokenConservation
from ray_snapshot.detectors.deadlock import Deadlock
from ray_snapshot.detectors.infeasible import Infeasible
from ray_snapshot.detectors.orphaned_wait import OrphanedWait
from ray_snapshot.detectors.reached import Reached
from ray_snapshot.detectors.restarting import Restarting
from ray_snapshot.detectors.stall import Stall
from ray_snapshot.detectors.termination import Termination
from ray_snapshot.detectors.unique_token import UniqueToken
from ray_snapshot.errors import DetectorError
from ray_snapshot.verdicts import Detector, load_detector

__all__ = [
    "Collective",
    "Deadlock",
    "Infeasible",
    "OrphanedWait",
    "Reached",
    "Restarting",
    "Stall",
    "Termination",
    "TokenConservation",
    "UniqueToken",
    "by_name",
    "from_spec",
]

_KINDS: dict[str, Callable[..., Detector]] = {
    "termination": Termination,
    "deadlock": Deadlock,
    "token-conservation": TokenConservation,
    "unique-token": UniqueToken,
    "reached": Reached,
    "orphaned-wait": OrphanedWait,
    "infeasible": Infeasible,
    "restarting": Restarting,
    "collective": Collective,
    "stall": Stall,
}
_ALSO = {"conservation": "token-conservation"}
_EXAMPLES = {
    "garbage": "ray_snapshot.examples.garbage:Garbage",
    "virtual-time": "ray_snapshot.examples.virtual_time:VirtualTime",
}
"""Kinds that histories hold verdicts of, and that `from_spec` alone knows: module:name of their classes."""
_NEED_SETTINGS = {
    "token-conservation": 'TokenConservation(total=..., state="$.balance", messages={...})',
    "reached": 'Reached("$.round", 3)',
}
_OF_A_GROUP = re.compile(r"termination\((?P<machines>.+)\)")


def by_name(name: str) -> Detector:
    """The ready-made detector of that name, default settings; raises `DetectorError` if there is none.

    `termination(worker-*)` is that of a group of machines.
    """
    group = _OF_A_GROUP.fullmatch(name) if isinstance(name, str) else None
    if group is not None:
        return Termination(machines=group["machines"].split(","))
    kind = _kind(name)
    if kind in _NEED_SETTINGS:
        raise DetectorError(
            f"detector {name!r} needs settings: pass detectors.{_NEED_SETTINGS[kind]},"
            " or name one of yours as module:name",
            detector=name,
        )
    return _KINDS[kind]()


def from_spec(spec: Mapping[str, Any]) -> Detector:
    """Rebuild a detector from the `detector_spec` stored with its verdicts.

    A spec of type `callable` imports the module that it names, so pass only specs of histories whose writer
    you trust. Raises `DetectorError` for a spec that no detector of this version understands.
    """
    if not isinstance(spec, Mapping):
        raise DetectorError(f"detector spec {spec!r} is not understood: it is no object", detector=None)
    settings = dict(spec)
    kind = settings.pop("type", None)
    if kind == "callable":
        return load_detector(str(settings.get("name")))
    try:
        return _class_of(kind)(**settings)
    except TypeError as error:
        raise DetectorError(f"detector spec {dict(spec)} is not understood: {error}", detector=str(kind)) from error


def _class_of(kind: object) -> Callable[..., Detector]:
    if isinstance(kind, str) and kind in _EXAMPLES:
        module, _, name = _EXAMPLES[kind].partition(":")
        return getattr(import_module(module), name)  # type: ignore[no-any-return]
    return _KINDS[_kind(kind)]


def _kind(name: object) -> str:
    kind = _ALSO.get(name, name) if isinstance(name, str) else None
    if name in _EXAMPLES:
        raise DetectorError(f"detector {name!r} is an example: name it as {_EXAMPLES[str(name)]}", detector=str(name))
    if kind not in _KINDS:
        known = ", ".join([*_KINDS, *_ALSO])
        raise DetectorError(f"no detector {name!r}; there are {known}, and your own as module:name", detector=str(name))
    return kind
