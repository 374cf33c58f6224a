"""Type-check the package as it is installed, and `tests/worlds`: `detectors/`, `spark_jobs/` and `examples/` are parts of it.

mypy does not follow setuptools' mapping of an editable install, so the tree is laid out as links under build/types.
"""

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TREE = ROOT / "build" / "types"
PACKAGE = TREE / "ray_snapshot"


def lay_out() -> None:
    shutil.rmtree(TREE, ignore_errors=True)
    PACKAGE.mkdir(parents=True)
    for part in (ROOT / "ray_snapshot").iterdir():
        if part.name != "__pycache__":
            (PACKAGE / part.name).symlink_to(part)
    for folder in ("detectors", "spark_jobs", "examples"):
        (PACKAGE / folder).symlink_to(ROOT / folder)
    (TREE / "worlds").symlink_to(ROOT / "tests" / "worlds")


if __name__ == "__main__":
    lay_out()
    packages = ["-p", "ray_snapshot", "-p", "worlds"]
    command = [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml"), *packages]
    sys.exit(subprocess.run(command, cwd=TREE, check=False).returncode)
