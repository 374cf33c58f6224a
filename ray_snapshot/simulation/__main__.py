"""`python -m ray_snapshot.simulation NAME SEED`: one seeded run again, step by step.

NAME is a profile of `schedules`, a kind of run of `storms`, a recovery of `recovering_orders`, or `agreement`
(`following`).
"""

from __future__ import annotations

import sys

from ray_snapshot.simulation.following import check_agreement
from ray_snapshot.simulation.mail.oracle import OracleError
from ray_snapshot.simulation.mail.schedules import PROFILES, run_seeded
from ray_snapshot.simulation.rollback.recovering_orders import RECOVERIES, run_recovery
from ray_snapshot.simulation.rollback.storms import STORMS, run_storm

NAMES = (*PROFILES, *STORMS, *RECOVERIES, "agreement")


def main(argv: list[str]) -> int:
    """Print the run's steps and what became of it."""
    if len(argv) != 2 or argv[0] not in NAMES or not argv[1].isdigit():
        print(f"use: python -m ray_snapshot.simulation ({'|'.join(NAMES)}) SEED", file=sys.stderr)
        return 2
    trace: list[str] = []
    try:
        told = _run(argv[0], int(argv[1]), trace)
    except OracleError as error:
        print(*trace, error, sep="\n")
        return 1
    print(*trace, told, sep="\n")
    return 0


def _run(name: str, seed: int, trace: list[str]) -> str:
    if name in PROFILES:
        world = run_seeded(name, seed, trace)
        return f"{len(world.central.completed)} snapshots completed and right, {len(world.central.aborted)} given up"
    if name in STORMS:
        seen = run_storm(name, seed, trace).seen
        return ", ".join(f"{count} {what}" for what, count in seen.items() if count)
    if name in RECOVERIES:
        truth = run_recovery(name, seed, trace).truth
        return f"{len(truth.expected)} messages in effect, {len(truth.contents)} snapshots recorded"
    return f"all protocols agree; {check_agreement(seed, trace)} messages were in flight"


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
