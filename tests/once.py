"""Folders that tests begin with: made once for a process, and copied for each of them."""

import atexit
import pickle
import shutil
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from ray_snapshot import Snapshot

_MADE: dict[object, Path] = {}


def once(path: Path, key: object, make: Callable[[Path], object]) -> Path:
    """What `make` makes of a path, at this path; made in its place where something is there already."""
    if path.exists() and any(path.iterdir()):
        make(path)
        return path
    if key not in _MADE:
        folder = Path(tempfile.mkdtemp(prefix="once-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        make(folder / "made")
        _MADE[key] = folder / "made"
    shutil.copytree(_MADE[key], path, dirs_exist_ok=True)
    return path


def content(snapshots: Iterable[Snapshot]) -> bytes:
    """All that snapshots hold: the key of a history of these."""
    return pickle.dumps([(dict(one.tables), one.shapes) for one in snapshots])
