"""Speed, as ratios of two arms run alternately in one process lifetime; `python -m benchmarks [NAME ...] [--json]`."""
