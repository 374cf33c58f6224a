"""The versions of Ray that this version of ray-snapshot is tested with: the one list of them. Imports nothing of Ray's.

`make ray-versions` runs tests with each; `tests/test_ray_versions.py` holds pyproject, README and the pages to this list.
"""

from __future__ import annotations

import re

from ray_snapshot.stderr import LOGGER

RAYS = (
    "2.60.0",
    "2.59.0",
    "2.58.1",
    "2.57.1",
    "2.56.1",
    "2.55.1",
    "2.54.1",
    "2.53.0",
    "2.52.1",
    "2.51.2",
    "2.50.1",
)
"""The last of each minor version, the newest first; the first is the one that everything else is tested with."""


def minor(version: str) -> tuple[int, int]:
    """The first two numbers of a version; (0, 0) if it has none."""
    found = re.match(r"(\d+)\.(\d+)", version)
    return (0, 0) if found is None else (int(found[1]), int(found[2]))


def _text(version: str) -> str:
    return ".".join(map(str, minor(version)))


RANGE = f"{_text(RAYS[-1])} to {_text(RAYS[0])}"
"""As it is told: `2.50 to 2.60`."""

_said: list[str] = []


def say_if_untested(version: str) -> None:
    """One line on stderr, once in a process, if this Ray is older or newer than those that were tested."""
    if not _said and not minor(RAYS[-1]) <= minor(version) <= minor(RAYS[0]):
        _said.append(version)
        LOGGER.warning(f"ray-snapshot is tested with Ray {RANGE}; this is Ray {version}")
