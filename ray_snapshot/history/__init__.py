"""The history: every snapshot and verdict of every run, as Delta tables that Spark and others can open.

The only folder that touches files; it imports neither Ray nor Spark. `tables` says what lies on disk and
turns the faults of `deltalake` into ours, `writer` commits, `reader` reads. Read `docs/history.md` first.
"""

from ray_snapshot.history.reader import History as History
from ray_snapshot.history.records import Records as Records
from ray_snapshot.history.records import Row as Row
from ray_snapshot.history.writer import HistoryWriter as HistoryWriter

__all__ = ["History", "HistoryWriter", "Records", "Row"]
