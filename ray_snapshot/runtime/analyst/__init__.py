"""The process that judges and writes snapshots: `actor` takes them in (`arrivals`), has the detectors judge them, writes the
history, hands verdicts out (`verdict_queue`), and keeps what a restore needs (`keeping`).
"""
