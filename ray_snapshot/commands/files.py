"""Files that commands write for a person: whole, or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ray_snapshot.errors import SettingError


def write_file(path: str | Path, text: str) -> None:
    """Write a text; raises `SettingError` if that cannot be done, and leaves nothing half written behind.

    What is no plain file (a device, a pipe) is written to as it is.
    """
    with _faults(path):
        place = Path(path).resolve()
        is_as_it_is = place.exists() and not place.is_file()
    beside = place if is_as_it_is else place.with_name(f".{place.name[:100]}.{os.getpid()}")
    try:
        with _faults(path):
            with open(beside, "w", encoding="utf-8", errors="backslashreplace", newline="") as file:
                file.write(text)
            if not is_as_it_is:
                beside.replace(place)
    except BaseException:
        with suppress(OSError):
            if not is_as_it_is:
                beside.unlink()
        raise


@contextmanager
def _faults(path: str | Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise SettingError(f"{path} cannot be written: {error.strerror or error}") from None
