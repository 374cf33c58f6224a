"""Bringing files, and the folders that name them, to the disk. Imports the standard library only."""

from __future__ import annotations

import os
from pathlib import Path


def sync(path: Path) -> None:
    """Return when a file's content, or a folder's list of names, would outlast a power cut."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_name(path: Path, top: Path) -> None:
    """The same of the name of a file, and of those of the folders between it and `top`."""
    for folder in path.parents:
        sync(folder)
        if folder == top:
            return


def sync_log(log: Path, since: int) -> None:
    """The same of a Delta log's entries after a version, up to the last."""
    version = since + 1
    while (entry := log / f"{version:020}.json").exists():
        sync(entry)
        version += 1
    sync(log)
