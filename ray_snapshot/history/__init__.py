"""The history: every snapshot and verdict of every run, as Delta tables that Spark and others can open.

The only folder that touches files; it imports neither Ray nor Spark. `tables` says what lies on disk and
turns the faults of `deltalake` into ours, `files` what a Parquet file is like, `commits` how files come into a table and
leave it, `writer` what is written when, `background` in which thread; `reader` reads. `owners` and `upkeep` clean up after
writers that died, `compaction` and `retention` keep it small. Read `docs/howto/history.md` first.
"""

from ray_snapshot.history.background import BackgroundWriter as BackgroundWriter
from ray_snapshot.history.reader import History as History
from ray_snapshot.history.records import Records as Records
from ray_snapshot.history.records import Row as Row
from ray_snapshot.history.writer import HistoryWriter as HistoryWriter

__all__ = ["BackgroundWriter", "History", "HistoryWriter", "Records", "Row"]
