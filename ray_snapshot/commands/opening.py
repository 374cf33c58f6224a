"""How commands open the history that they read; it is imported once a command is really run."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ray_snapshot.history import History


def open_history(path: str) -> History:
    """The history. Raises `HistoryNotFoundError`, `HistoryFormatError`."""
    from ray_snapshot.history import History

    return History(path)
