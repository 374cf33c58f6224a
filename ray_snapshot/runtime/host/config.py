"""What a host is told at its birth."""

from __future__ import annotations

from dataclasses import dataclass


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
