"""Pipelines: sources whose positions are in the snapshot, and sinks that commit with it. Imports no Ray.

`Source` reads a `TextFile`, a `ParquetFolder` or a `Generated` sequence, a batch per action. What a `ParquetSink` or a
`DeltaSink` is sent shows when the snapshot that holds it can be restored, once; an `UpsertSink` keeps the latest row of each
key. Read `docs/howto/exactly-once.md` for what is promised, `two_phases` for how.
"""

from __future__ import annotations

from ray_snapshot.pipelines.readers import Generated, ParquetFolder, TextFile
from ray_snapshot.pipelines.sinks import DeltaSink, ParquetSink
from ray_snapshot.pipelines.sources import Source
from ray_snapshot.pipelines.upsert import UpsertSink

__all__ = ["DeltaSink", "Generated", "ParquetFolder", "ParquetSink", "Source", "TextFile", "UpsertSink"]
