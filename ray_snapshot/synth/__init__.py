"""Histories made up: any number of machines and snapshots, consistent by construction, with known anomalies planted.

For trying the Spark jobs, for measuring them, and for tests that know the answer. Nothing runs: `plan` chooses where the
anomalies are, `motion` moves the counts on from snapshot to snapshot in numpy, `rows` makes Arrow tables of them, `writing`
puts them through the ordinary history writer, a few snapshots at a time. Nothing here imports Ray or Spark.
"""

from __future__ import annotations

from ray_snapshot.synth.plan import ANOMALIES, Planted, Settings
from ray_snapshot.synth.writing import synthesise

__all__ = ["ANOMALIES", "Planted", "Settings", "synthesise"]
