"""Spark jobs over a history, one file a question; the only folder that imports pyspark.

This module imports nothing, so that `ray-snapshot --help` can list the jobs. Read `traffic.py` for what a job looks
like, `session.py` for how Spark is started, `docs/spark.md` for how to run them.
"""

from __future__ import annotations

JOBS = {
    "detections": "every detector evaluated again: since when does it hold, for how long, and did it ever go back",
    "conservation": "the ledger of a conserved quantity over time, and the snapshot at which it broke",
    "traffic": "messages per channel and interval, growing backlogs, heads of line that do not move",
}
"""Each job's name (its module) and the question it answers."""
