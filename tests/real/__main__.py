"""Run the programs one after the other, keep what came of each, and make the page of all that is kept.

PYTHONPATH=tests python tests/real                 # all of them, into docs/real-programs.md
PYTHONPATH=tests python tests/real queues start    # these two anew; the others' rows stay as they were
"""

import argparse
import os
import platform
import sys
from dataclasses import replace
from pathlib import Path

from catalogue import ALL, named
from clean import hear_signals
from comparing import Result, compare
from planted_hangs import answer_to
from real_page import cells, hang_cells, page

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "build" / "real-programs"


def main() -> int:
    """Exit code 1 if a program differs when it is watched."""
    parser = argparse.ArgumentParser(prog="tests/real", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="PROGRAM")
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "real-programs.md")
    parser.add_argument("--histories", type=Path, help="keep what the watched runs recorded in this folder")
    parser.add_argument("--times", type=int, default=1, help="run each so often, in turns; the least wall time counts")
    options = parser.parse_args()
    hear_signals()
    KEPT.mkdir(parents=True, exist_ok=True)
    differ = False
    for program in map(named, options.names or [one.name for one in ALL]):
        kept = None if options.histories is None else options.histories / program.name
        result = compare(program, kept, options.times)
        result = replace(result, hangs=tuple(answer_to(program, hang) for hang in program.hangs))
        (KEPT / f"{program.name}.json").write_text(result.as_json())
        print(" | ".join(cells(result)), flush=True)
        for text in result.differences:
            print("    " + text.replace("\n", "\n    "), flush=True)
        for answer in result.hangs:
            print("    hang: " + " | ".join(hang_cells(answer)), flush=True)
            (KEPT / f"{program.name}.{answer.hang}.txt").write_text(answer.text)
        differ |= bool(result.differences)
    paths = [KEPT / f"{program.name}.json" for program in ALL]
    results = [Result.from_json(path.read_text()) for path in paths if path.exists()]
    cores = len(os.sched_getaffinity(0))
    options.page.write_text(page(results, f"{cores} cores with Python {platform.python_version()}"))
    return int(differ)


if __name__ == "__main__":
    sys.exit(main())
