"""The program for `spark-submit`: `ray-snapshot analyze`, with the master, memory and Java that were submitted.

spark-submit [ITS OPTIONS] spark_jobs/submit.py HISTORY JOB [OPTIONS]
"""

from __future__ import annotations

import sys

from ray_snapshot.cli import main

if __name__ == "__main__":
    sys.exit(main(["analyze", *sys.argv[1:]]))
