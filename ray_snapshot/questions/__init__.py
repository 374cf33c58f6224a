"""Quick questions to a history, without Spark: answered in about a second where it has fewer than a million rows.

`conservation`, `since` and `diff` are what the Spark jobs `conservation`, `detections` and `changes` answer, with the same
columns, as Arrow tables by name; `sql` takes any query. The command line prints them. Nothing here imports Ray or Spark, and
nothing executes what a history names. Loaded when they are first used: a query starts sooner without the others. Read `ledger`
first, then `docs/howto/questions.md`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ray_snapshot.questions.differing import diff as diff
    from ray_snapshot.questions.differing import two_snapshots as two_snapshots
    from ray_snapshot.questions.ledger import conservation as conservation
    from ray_snapshot.questions.query import Answer as Answer
    from ray_snapshot.questions.query import sql as sql
    from ray_snapshot.questions.standing import since as since

_WHERE = {
    "conservation": "ledger",
    "since": "standing",
    "diff": "differing",
    "two_snapshots": "differing",
    "sql": "query",
    "Answer": "query",
}

__all__ = ["Answer", "conservation", "diff", "since", "sql", "two_snapshots"]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)
