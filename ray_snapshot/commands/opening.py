"""How commands open the history that they read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ray_snapshot import first_array

if TYPE_CHECKING:
    from ray_snapshot.history import History


def open_history(path: str) -> History:
    """The history; in a process of the command's own with Arrow but without pandas, which would take as long again as a
    small answer. In a program that calls `cli.main` itself, pyarrow would do without it from then on.

    Raises `HistoryNotFoundError`, `HistoryFormatError`.
    """
    if first_array.has_own_process:
        first_array.warm_up_without_pandas()
    from ray_snapshot.history import History

    return History(path)
