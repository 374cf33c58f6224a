"""The tests that tell about Ray, with each version of it that we are tested with: `make ray-versions`.

A version gets an environment of its own under .venv-rays/, with everything but Ray as constraints.txt has it. It is thrown
away behind its tests, unless it is to be kept. `python .ci/ray_versions.py 2.52.1 2.55.1` runs these only.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from ray_snapshot.tested import RAYS  # noqa: E402

ROOMS = ROOT / ".venv-rays"
INSTALL_S, TESTS_S = 900, 1_200

EXAMPLES = "tests/examples/test_examples_on_ray.py"

SELECTION = (
    "tests/instrument/test_an_unknown_ray.py",
    "tests/instrument/test_nothing_of_ours_is_seen.py",
    "tests/instrument/test_headers_on_their_way.py",
    "tests/instrument/test_delivery.py",
    "tests/instrument/test_apps_that_hang.py",
    "tests/instrument/test_apps_that_do_not_hang.py",
    "tests/instrument/test_apps_stay_as_they_are.py",
    "tests/instrument/test_going_back.py",
    "tests/instrument/test_a_raise_in_place_of_a_hang.py",
    "tests/runtime/test_runtime_messages.py",
    "tests/runtime/test_restore_leaving.py",
    "tests/commands/test_a_second_terminal.py",
    "tests/commands/test_addresses.py",
    "tests/real/test_real_programs.py::test_a_program_behaves_as_it_does_unwatched[tree_of_actors]",
    f"{EXAMPLES}::test_the_market_is_one_system_whose_coins_add_up_and_which_goes_back_out_of_a_deadlock_with_both_lines",
)
"""Every name in instrument/shape.py and runtime/leaving.py is used in these, on a cluster."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of the tests with one version of Ray."""

    version: str
    passed: int
    failed: int
    seconds: float
    remark: str = ""

    def line(self) -> str:
        """A line of the table."""
        return f"{self.version:<8} {self.passed:>6} {self.failed:>6} {self.seconds:>7.0f} s  {self.remark}".rstrip()


HEAD = f"{'Ray':<8} {'passed':>6} {'failed':>6} {'took':>9}"


def install(version: str) -> Path:
    """An environment with this Ray; returns its folder of programs."""
    room = ROOMS / version
    bin_ = room / "bin"
    if (room / "installed").exists():
        return bin_
    shutil.rmtree(room, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", str(room)], check=True, timeout=INSTALL_S)
    others = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("ray==")]
    constraints = room / "constraints.txt"
    constraints.write_text("\n".join(others) + "\n")
    pip = [str(bin_ / "pip"), "install", "--quiet", "--disable-pip-version-check", "-c", str(constraints)]
    what = ["-e", str(ROOT), f"ray=={version}", "pytest", "hypothesis"]
    subprocess.run([*pip, *what], check=True, timeout=INSTALL_S, cwd=ROOT)
    (room / "installed").touch()
    return bin_


def run(version: str, tests: list[str]) -> Outcome:
    """The tests, with this Ray."""
    began = time.monotonic()
    try:
        bin_ = install(version)
    except (OSError, subprocess.SubprocessError) as error:
        return Outcome(version, 0, 0, time.monotonic() - began, f"not installed: {error}")
    began = time.monotonic()
    command = [str(bin_ / "python"), "-m", "pytest", "-p", "no:cacheprovider", "-m", "not nightly and not libraries"]
    log = ROOMS / f"{version}.log"
    with log.open("w") as out:
        try:
            done = subprocess.run(
                [*command, *tests], check=False, timeout=TESTS_S, cwd=ROOT, stdout=out, stderr=subprocess.STDOUT
            )
        except subprocess.TimeoutExpired:
            return Outcome(version, 0, 0, time.monotonic() - began, f"not finished; see {log.relative_to(ROOT)}")
    found = counts(log.read_text())
    failed = found["failed"] + found["error"] + found["errors"]
    is_wrong = done.returncode != 0 or failed > 0
    remark = f"see {log.relative_to(ROOT)}" if is_wrong else ""
    return Outcome(version, found["passed"], max(failed, int(is_wrong)), time.monotonic() - began, remark)


def counts(log: str) -> dict[str, int]:
    """How many tests passed and failed, by pytest's last line."""
    last = log.rstrip().rpartition("\n")[2]
    found = {word: int(number) for number, word in re.findall(r"(\d+) ([a-z]+)", last)}
    return {word: found.get(word, 0) for word in ("passed", "failed", "error", "errors")}


def main() -> int:
    """All of them one after the other; 0 if every test passed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("versions", nargs="*", default=list(RAYS), help="default: all of ray_snapshot/tested.py")
    parser.add_argument("--keep", action="store_true", help="keep the environments for the next time")
    parser.add_argument("--tests", nargs="+", default=list(SELECTION), help="files of tests")
    given = parser.parse_args()
    ROOMS.mkdir(exist_ok=True)
    outcomes = []
    print(HEAD, flush=True)
    for version in given.versions:
        outcomes.append(run(version, given.tests))
        print(outcomes[-1].line(), flush=True)
        if not given.keep:
            shutil.rmtree(ROOMS / version, ignore_errors=True)
    return 0 if all(item.passed and not item.failed for item in outcomes) else 1


if __name__ == "__main__":
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    sys.exit(main())
