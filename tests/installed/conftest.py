"""The package as its users have it: built as a wheel and installed in an environment of its own, away from the sources."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from clean import clean_environment
from installation import Installed

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("ray_snapshot", "detectors", "spark_jobs", "examples", ".ci", "pyproject.toml", "README.md", "LICENSE")


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
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", wheels, sources],
        check=True,
        env=clean_environment(),
    )
    (wheel,) = wheels.glob("*.whl")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True, env=clean_environment())
    (packages,) = folder.glob("lib/python*/site-packages")
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(packages)
    ours = next(entry for entry in sys.path if entry.endswith("site-packages"))
    (packages / "dependencies.pth").write_text(ours)
    yield Installed(folder, wheel, sources)
    shutil.rmtree(place, ignore_errors=True)
