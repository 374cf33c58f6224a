"""`python -m ray_snapshot.simulation PROFILE SEED`: one seeded run again, step by step."""

from __future__ import annotations

import sys

from ray_snapshot.simulation.oracle import OracleError
from ray_snapshot.simulation.schedules import PROFILES, run_seeded


def main(argv: list[str]) -> int:
    """Print the run's steps and what became of it."""
    if len(argv) != 2 or argv[0] not in PROFILES or not argv[1].isdigit():
        print(f"use: python -m ray_snapshot.simulation ({'|'.join(PROFILES)}) SEED", file=sys.stderr)
        return 2
    trace: list[str] = []
    try:
        world = run_seeded(argv[0], int(argv[1]), trace)
    except OracleError as error:
        print(*trace, error, sep="\n")
        return 1
    print(*trace, sep="\n")
    print(f"{len(world.completed)} snapshots completed and right, {len(world.aborted)} given up")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
