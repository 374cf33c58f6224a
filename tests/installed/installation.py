"""The environment that the package is installed in, and how a user runs something in it."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from clean import ran

LONGEST_S = 600.0


@dataclass(frozen=True, slots=True)
class Installed:
    """An environment with the wheel in it; what the package needs is that of the tests' own."""

    folder: Path
    wheel: Path
    sources: Path
    """The copy that the wheel was made of."""

    @property
    def python(self) -> str:
        return str(self.folder / "bin" / "python")

    def run(self, *command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
        """A command as a user runs it who has activated the environment: nothing is in that but HOME and PATH."""
        bare = {"HOME": str(cwd), "PATH": f"{self.folder / 'bin'}{os.pathsep}{os.environ['PATH']}"}
        return ran(*command, env=bare, cwd=cwd, seconds=LONGEST_S)
