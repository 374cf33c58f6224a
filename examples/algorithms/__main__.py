"""Explore the algorithms, the right ones and the broken ones: two lines each, and a drawing of what is wrong."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ray_snapshot.examples.algorithms import ALGORITHMS


def main(argv: list[str] | None = None) -> int:
    """Exit code 0 if the right ones hold and the broken ones do not."""
    names = [one.name for one in ALGORITHMS]
    parser = argparse.ArgumentParser(
        prog="python -m ray_snapshot.examples.algorithms", description="Explore published algorithms in every order."
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(names)}; default: all")
    parser.add_argument("--draw", metavar="FOLDER", help="draw the counterexamples of the broken ones there (SVG)")
    options = parser.parse_args(argv)
    if unknown := sorted(set(options.names) - set(names)):
        parser.error(f"no algorithm {', '.join(unknown)}: choose from {', '.join(names)}")
    if options.draw:
        try:
            Path(options.draw).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            parser.error(f"cannot draw in {options.draw}: {error.strerror}")
    is_as_told = True
    for one in ALGORITHMS:
        if options.names and one.name not in options.names:
            continue
        right, broken = one.explore(), one.explore("broken")
        wrong = broken.counterexample
        is_as_told = is_as_told and right.ok and right.complete and wrong is not None
        print(f"{one.name}: {right.states:,} states, {'all right' if right.ok else right.counterexample}", flush=True)
        if wrong is not None:
            print(f"    broken: {wrong.broken} fails after {len(wrong.steps)} steps", flush=True)
            if options.draw:
                print(f"    drawn: {wrong.diagram(Path(options.draw) / f'{one.name}.svg')}", flush=True)
    return 0 if is_as_told else 1


if __name__ == "__main__":
    sys.exit(main())
