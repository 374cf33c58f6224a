"""Every order of a small recovering system, with every death at every moment; and long ones by seed.

Not distinguished is when a host accepts: what is in flight to it and what it has accepted is in effect alike. So that is done
at once, here. Imports the standard library only.
"""

from __future__ import annotations

import pickle
import random

from ray_snapshot.simulation.mail.oracle import OracleError
from worlds import replay
from worlds.mail.every_order import Explored
from worlds.rollback.recovering import RecoveringWorld
from worlds.rollback.recovering_parties import Script, Step
from worlds.rollback.recovery_oracle import check_end

FAULT_SHARE = 0.05

RECOVERIES = {
    "recovering": Script(6, 6, ("any",) * 4, hiccups=2),
    "recovering-history": Script(6, 6, ("any",) * 4, restores=2, hiccups=2, has_history=True),
    "recovering-restores": Script(6, 6, ("any",) * 4, restores=2, most_kept=2),
}


def every_order(script: Script, most: int = 1_000_000) -> Explored:
    """Take every step at every moment. Raises `OracleError` with the steps that lead to what is wrong."""
    world = RecoveringWorld(script)
    found, seen = Explored(), {hash(world.fingerprint())}
    stack: list[tuple[bytes, tuple[Step, ...]]] = [(_packed(world), ())]
    while stack:
        packed, path = stack.pop()
        found.states += 1
        if found.states > most:
            raise OracleError(f"more than {most} states")
        world = pickle.loads(packed)
        steps = world.enabled()
        if not steps:
            found.ends += 1
            _told(path, ("end",), world)
        for step in world.faults() + steps:
            after = pickle.loads(packed)
            _told(path, step, after)
            mark = hash(after.fingerprint())
            if mark not in seen:
                seen.add(mark)
                stack.append((_packed(after), (*path, step)))
    return found


def _told(path: tuple[Step, ...], step: Step, world: RecoveringWorld) -> None:
    """Take a step; what goes wrong is told with all steps before it."""
    try:
        if step == ("end",):
            check_end(world)
            return
        world.perform(step)
        while world.to_host:
            world.perform(("accept",))
    except OracleError as error:
        raise OracleError(f"{error}\nsteps: {'; '.join(map(_text, (*path, step)))}") from None


def _packed(world: RecoveringWorld) -> bytes:
    return pickle.dumps(world, pickle.HIGHEST_PROTOCOL)


def run_recovery(name: str, seed: int, trace: list[str] | None = None) -> RecoveringWorld:
    """One long run of `RECOVERIES` by chance, then quiet. Raises `OracleError` with the command that replays it."""
    chance, world = random.Random(seed), RecoveringWorld(RECOVERIES[name])
    try:
        while steps := world.enabled():
            faults = world.faults()
            step = chance.choice(faults if faults and chance.random() < FAULT_SHARE else steps)
            if trace is not None:
                trace.append(_text(step))
            world.perform(step)
        check_end(world)
    except OracleError as error:
        raise OracleError(f"{error}\n{replay(name, seed)}") from None
    return world


def _text(step: Step) -> str:
    return " ".join(map(str, step))
