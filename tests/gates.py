"""A gate at which a test can stop a machine, whichever process it is in."""

from __future__ import annotations

import os
import select
from pathlib import Path
from typing import ClassVar

BOUND_S = 60.0


class Gate:
    """Two named pipes: a machine says that it has come, and stays until the test lets it go, or has ended."""

    all: ClassVar[list[Gate]] = []
    """Those of the current test."""

    def __init__(self, folder: Path, name: str = "gate") -> None:
        Gate.all.append(self)
        self.path = str(folder / name)
        self._ends = {}
        for end in ("come", "go"):
            os.mkfifo(f"{self.path}.{end}")
            self._ends[end] = os.open(f"{self.path}.{end}", os.O_RDWR)

    def await_arrival(self, timeout: float = BOUND_S) -> None:
        poll = select.poll()
        poll.register(self._ends["come"], select.POLLIN)
        assert poll.poll(timeout * 1e3), f"no machine came to the gate within {timeout} s"
        os.read(self._ends["come"], 1)

    def open(self, times: int = 1) -> None:
        os.write(self._ends["go"], b"x" * times)


def pass_gate(path: str) -> None:
    """What a machine does at a gate."""
    with open(f"{path}.come", "wb", buffering=0) as come:
        come.write(b"x")
    with open(f"{path}.go", "rb", buffering=0) as go:
        go.read(1)
