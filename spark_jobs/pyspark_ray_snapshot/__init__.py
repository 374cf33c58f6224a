"""Where Spark finds the data source without being told: it imports every top-level module named `pyspark_...`."""

from ray_snapshot.spark_jobs.source import HistorySource as DefaultSource

__all__ = ["DefaultSource"]
