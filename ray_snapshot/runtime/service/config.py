"""What a service is told at its birth."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ServiceConfig:
    """What a service is told at its birth."""

    system: str
    run_id: str
    protocol: str
    most_open: int
    snapshot_timeout: float
    checkpoint: bool = False
    recover: bool = False
    most_failures: int = 5
    failures_within: float = 60.0
    start_timeout: float = 120.0
