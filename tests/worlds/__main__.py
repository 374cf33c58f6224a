"""`PYTHONPATH=tests python -m worlds NAME SEED`: one seeded run again, step by step.

NAME is a profile of `mail.schedules`, a kind of run of `rollback.storms`, a recovery of `rollback.recovering_orders`,
`agreement` (`following`), `crowd` (`calls.crowds`), or `calls/` and a profile of `calls.schedules`.
"""

from __future__ import annotations

import sys

from ray_snapshot.simulation.mail.oracle import OracleError
from worlds.calls.crowds import run_crowd
from worlds.calls.schedules import CALL_PROFILES, run_calls
from worlds.following import check_agreement
from worlds.mail.schedules import PROFILES, run_seeded
from worlds.rollback.recovering_orders import RECOVERIES, run_recovery
from worlds.rollback.storms import STORMS, run_storm

NAMES = (*PROFILES, *STORMS, *RECOVERIES, "agreement", "crowd", *(f"calls/{name}" for name in CALL_PROFILES))


def main(argv: list[str]) -> int:
    """Print the run's steps and what became of it."""
    if len(argv) != 2 or argv[0] not in NAMES or not argv[1].isdigit():
        print(f"use: PYTHONPATH=tests python -m worlds ({'|'.join(NAMES)}) SEED", file=sys.stderr)
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
    if name in STORMS:
        seen = run_storm(name, seed, trace).seen
        return ", ".join(f"{count} {what}" for what, count in seen.items() if count)
    if name in RECOVERIES:
        truth = run_recovery(name, seed, trace).truth
        return f"{len(truth.expected)} messages in effect, {len(truth.contents)} snapshots recorded"
    if name == "agreement":
        return f"all protocols agree; {check_agreement(seed, trace)} messages were in flight"
    if name in PROFILES:
        world = run_seeded(name, seed, trace)
        return f"{len(world.central.completed)} snapshots completed and right, {len(world.central.aborted)} given up"
    app = run_crowd(seed, trace).world if name == "crowd" else run_calls(name.removeprefix("calls/"), seed, trace)
    return f"{len(app.central.completed)} snapshots completed and right"


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
