"""The package as its users have it: built as a wheel and installed in an environment of its own, away from the sources."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("ray_snapshot", "detectors", "spark_jobs", "examples", "pyproject.toml", "README.md", "LICENSE")
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
        """A command as a user runs it: nothing is in its environment but HOME and PATH."""
        bare = {"HOME": str(cwd), "PATH": os.environ["PATH"]}
        return subprocess.run(
            command, cwd=cwd, env=bare, text=True, capture_output=True, timeout=LONGEST_S, check=False
        )


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    """Build the wheel from a copy of the sources, as `pip install .` does, and unpack it into an empty environment."""
    place = tmp_path_factory.mktemp("installed")
    sources, wheels, folder = place / "sources", place / "wheels", place / "venv"
    sources.mkdir()
    for part in PARTS:
        source = ROOT / part
        if source.is_dir():
            shutil.copytree(source, sources / part, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, sources / part)
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", wheels, sources], check=True
    )
    (wheel,) = wheels.glob("*.whl")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(packages)
    ours = next(entry for entry in sys.path if entry.endswith("site-packages"))
    (packages / "dependencies.pth").write_text(ours)
    yield Installed(folder, wheel, sources)
    shutil.rmtree(place, ignore_errors=True)
