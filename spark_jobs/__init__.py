"""Spark jobs over a history, one file a question; the only folder that imports pyspark.

This module imports nothing, so that `ray-snapshot --help` can list the jobs. Read `traffic.py` for what a job looks
like, `session.py` for how Spark is started, `docs/howto/spark.md` for how to run them.
"""

from __future__ import annotations

JOBS = {
    "detections": "every detector evaluated again: since when does it hold, for how long, and did it ever go back",
    "conservation": "the ledger of a conserved quantity over time, and the snapshot at which it broke",
    "changes": "which machines appeared or vanished, and which fields changed where, from what to what",
    "deadlocks": "each deadlock once: how it formed edge by edge, who is in it, how long before it was reported",
    "traffic": "messages per channel and interval, hot machines, growing backlogs, heads of line that do not move",
    "progress": "what is active, blocked and in flight over time, in which phases, and when nothing moved any more",
    "cost": "what snapshots cost, which were given up, and which host made the slow ones slow",
    "possibly": "of each traced run: could it have been looked at when a predicate held, and must it have passed such a moment",
}
"""Each job's name (its module) and the question it answers."""
