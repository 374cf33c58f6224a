"""Files that commands write for a person: whole, or not at all."""

from __future__ import annotations

import os
from pathlib import Path

from ray_snapshot.errors import SettingError


def write_file(path: str | Path, text: str) -> None:
    """Write a text; raises `SettingError` if that cannot be done, and leaves nothing half written behind.

    What is no plain file (a device, a pipe) is written to as it is.
    """
    content = text.encode("utf-8", "backslashreplace")
    try:
        place = Path(path).resolve()
        if place.exists() and not place.is_file():
            place.write_bytes(content)
            return
        _replace(place, content)
    except OSError as error:
        raise SettingError(f"{path} cannot be written: {error.strerror or error}") from None


def _replace(place: Path, content: bytes) -> None:
    beside = place.with_name(f".{place.name[:100]}.{os.getpid()}")
    try:
        beside.write_bytes(content)
        beside.replace(place)
    except OSError:
        beside.unlink(missing_ok=True)
        raise
