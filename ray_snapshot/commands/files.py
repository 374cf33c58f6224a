"""Files that commands write for a person: whole, or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from ray_snapshot.errors import SettingError


def write_file(path: str | Path, text: str) -> None:
    """Write a text; raises `SettingError` if that cannot be done, and leaves nothing half written behind.

    What is no plain file (a device, a pipe) is written to as it is.
    """
    write_parts(path, [text])


def write_parts(path: str | Path, parts: Iterable[str]) -> None:
    """The same of a text that comes in parts; whatever making them raises is raised."""
    with _faults(path):
        place = Path(path).resolve()
        is_as_it_is = place.exists() and not place.is_file()
    beside = place if is_as_it_is else place.with_name(f".{place.name[:100]}.{os.getpid()}")
    try:
        with ExitStack() as stack:
            with _faults(path):
                file = stack.enter_context(open(beside, "w", encoding="utf-8", errors="backslashreplace", newline=""))
            for part in parts:
                with _faults(path):
                    file.write(part)
            with _faults(path):
                file.flush()
        with _faults(path):
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
