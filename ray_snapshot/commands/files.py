"""Files that commands write for a person: whole, or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from ray_snapshot.errors import SettingError


def write_file(path: str | Path, text: str) -> None:
    """Write a text; raises `SettingError` if that cannot be done, and leaves nothing half written behind.

    What is no plain file (a device, a pipe) is written to as it is.
    """
    write_parts(path, [text])


def write_parts(path: str | Path, parts: Iterable[str]) -> None:
    """The same of a text that comes in parts; whatever making them raises is raised."""
    try:
        place = Path(path).resolve()
        if place.exists() and not place.is_file():
            _write(place, parts)
            return
        beside = place.with_name(f".{place.name[:100]}.{os.getpid()}")
        try:
            _write(beside, parts)
            beside.replace(place)
        except BaseException:
            beside.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise SettingError(f"{path} cannot be written: {error.strerror or error}") from None


def _write(place: Path, parts: Iterable[str]) -> None:
    with open(place, "w", encoding="utf-8", errors="backslashreplace", newline="") as file:
        for part in parts:
            file.write(part)
