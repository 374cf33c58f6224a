"""The trace of a run, out of its history."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ray_snapshot.errors import HistoryFormatError, HistoryNotFoundError
from ray_snapshot.witness.log import Action, Log, log_of
from ray_snapshot.witness.steps import actions_of

if TYPE_CHECKING:
    from ray_snapshot.history import History


def run_of(history: History, snapshot_id: str) -> str:
    """The run of a snapshot, by its id, or what stands for one. Raises `HistoryNotFoundError`."""
    return history.load(history.resolve(snapshot_id)).run_id


def trace_of(history: History, run_id: str) -> Log:
    """The actions of a run in an order in which they happened.

    Raises `HistoryNotFoundError` if there is no trace, `HistoryFormatError` for rows that are none, `DiffersError` for one that
    cannot be followed.
    """
    return log_of(_actions(history, run_id))


def _actions(history: History, run_id: str) -> list[Action]:
    rows = history.actions(run_id)
    if not rows:
        raise HistoryNotFoundError(
            f"the history {history.path} holds no trace of run {run_id}: run the system with rs.System(..., trace=True)",
            path=history.path,
        )
    try:
        return actions_of(rows)
    except (KeyError, TypeError, AttributeError) as error:
        raise HistoryFormatError(
            f"history {history.path}: table actions has a row that is none: {type(error).__name__}: {error}",
            path=history.path,
            table="actions",
        ) from None
