"""How commands open the history that they read."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ray_snapshot.history import History


def open_history(path: str) -> History:
    """The history, with Arrow and without pandas, which would take as long again as a small answer.

    Raises `HistoryNotFoundError`, `HistoryFormatError`.
    """
    from ray_snapshot.first_array import warm_up_without_pandas

    warm_up_without_pandas()
    from ray_snapshot.history import History

    return History(path)
