"""What a host is told at its birth."""

from __future__ import annotations

import os
from dataclasses import dataclass

from ray_snapshot.errors import SettingError

AUDIT = "RAY_SNAPSHOT_AUDIT"
"""In the driver's environment: `HostConfig.audit`."""

KEEP_FROM = "RAY_SNAPSHOT_KEEP_FROM"
"""In the driver's environment: `HostConfig.keep_from`, where no history is written. Fewer rows cost more to ask for."""


OWN_PARTS = "RAY_SNAPSHOT_OWN_PARTS"
"""In the driver's environment: `HostConfig.own_from`, where a history is written."""


def asked_audit() -> float:
    """The percentage that the environment asks for; raises `SettingError` if it is none."""
    told = os.environ.get(AUDIT) or "0"
    try:
        found = float(told)
    except ValueError:
        found = -1.0
    if not 0 <= found <= 100:
        raise SettingError(f"{AUDIT}={told}: a percentage of the machines, such as 1 or 100")
    return found


def asked_keeping() -> int:
    """From how many rows on they are kept; raises `SettingError` if the environment has no such number."""
    told = os.environ.get(KEEP_FROM) or "1000"
    if not told.isdecimal() or int(told) < 1:
        raise SettingError(f"{KEEP_FROM}={told}: a number of machines, 1 or more")
    return int(told)


def asked_own_parts() -> int | None:
    """From how many rows on hosts write them into the history; raises `SettingError` if the environment has no such number."""
    told = os.environ.get(OWN_PARTS) or "0"
    if not told.isdecimal():
        raise SettingError(f"{OWN_PARTS}={told}: a number of machines, such as 65536; 0: hosts write no files")
    return int(told) or None


@dataclass(frozen=True, slots=True)
class HostConfig:
    """What a host is told at its birth."""

    run_id: str
    host: str
    colour: int
    open_at_birth: tuple[int, ...]
    protocol: str
    alignment_timeout: float | None
    mailbox_bound: int
    send_timeout: float
    spawn_timeout: float
    import_path: tuple[str, ...]
    trace: str | None = None
    """Whether to log every action: then the name by which the driver's `__main__` can be imported."""
    redacted: tuple[str, ...] = ()
    """Names of fields that are never recorded."""
    checkpoint: bool = False
    """Whether to keep what a restore needs with every snapshot."""
    recover: bool = False
    """Whether the system goes back to its last snapshot when a host dies."""
    generation: int = 0
    """The generation of the process that made the host."""
    incarnation: int = 0
    grace: float = 0.0
    """How long the last snapshot may take when this process gets SIGTERM; 0: none is taken."""
    stamp: str | None = None
    """What calls of watched actors say of the watch that this system has joined (`name:run_id`); None if there is none."""
    life: int = 0
    """Which of the systems that have joined that watch this is."""
    keep_from: int | None = None
    """From so many on, rows of machines at rest stay here until somebody asks for them; None: they are always sent."""
    own_from: int | None = None
    """From so many rows within some seconds on, this host keeps them for the history, and writes them there; None: never."""
    audit: float = 0.0
    """Of what percentage of the machines that have not acted the state is encoded anew, and compared with what was kept."""
