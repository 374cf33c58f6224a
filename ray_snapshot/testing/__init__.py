"""Your own machine classes, unchanged, in a deterministic world without Ray: every order tried, every failure a schedule.

`build` is a function of a system on which `spawn`, `spawn_many`, `connect`, `machine`, sends, timers and calls work as on
`rs.System`. An item of `always`, `never` and `eventually` is a detector, or a function of the machine objects by name that
returns a bool. Read `docs/howto/testing-machines.md` first, then `stage` (one action as a value), `space` (states and steps),
`exploring`. Needs no running Ray, and imports it only where a machine calls another.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from ray_snapshot.errors import SettingError
from ray_snapshot.testing.exploring import (
    MOST_STATES,
    Counterexample,
    Exploration,
    Progress,
    Report,
    listed,
    search,
)
from ray_snapshot.testing.judging import over
from ray_snapshot.testing.moments import Moment, from_snapshot
from ray_snapshot.testing.runs import Run, replay_states
from ray_snapshot.testing.schedules import Schedule, schedule_of
from ray_snapshot.witness.asking import Modal, definitely, possibly

__all__ = [
    "Counterexample",
    "Exploration",
    "Modal",
    "Moment",
    "Report",
    "Run",
    "Schedule",
    "check_stable",
    "definitely",
    "explore",
    "from_snapshot",
    "over",
    "possibly",
    "replay",
    "simulate",
]


def explore(
    build: Callable[[Any], object],
    *,
    always: Any = (),
    never: Any = (),
    eventually: Any = (),
    protocol: str | None = None,
    crashes: int = 0,
    within: Any = (),
    most_states: int = MOST_STATES,
    workers: int = 1,
    progress: Progress | None = None,
) -> Exploration:
    """Try every order in which a system may run, and look at every state that it can reach.

    `always`: what holds in every state. `never`: what holds in none. `eventually`: what comes to hold on every run in which
    each message that can be accepted is accepted at some time, each timer comes, and each reply. An action that raises is a
    counterexample by itself.

    `crashes`: so many machines may be lost at any moment, with their timers and mailboxes: a search of its own.
    `progress` hears a `Report` now and then. `workers`: 1, for one process searches.

    `within`: what holds in every state that is gone on from, of the same kind as `always` (TLC's CONSTRAINT). A state that
    breaks it is found and judged, and no step out of it is taken; `outside` counts these. `complete` is then said of all that
    can be reached so, and `eventually` of the runs that stay within: one that leads outside may still come to it.

    The first counterexample is a shortest one (of `eventually`: one with a shortest way into its end or loop), the same in
    every process. Where the search does not end (`most_states`, memory), `complete` is False and `why` says so. Raises
    `NotDeterministicError`, `UnwindingCaughtError`, `DetectorError`, `SettingError`.
    """
    _check("explore", most_states, crashes)
    if workers != 1:
        raise SettingError(
            f"explore: workers={workers}: one process searches; leave workers out, and run unlike searches side by side"
        )
    if protocol is not None:
        if crashes:
            raise SettingError("explore(protocol=...): crashes are not tried there: leave them out")
        if listed(within):
            raise SettingError("explore(protocol=...): no constraint is looked at there: leave within out")
        from ray_snapshot.testing.hosted_orders import explore_hosted

        return explore_hosted(
            build,
            protocol,
            always=always,
            never=never,
            eventually=eventually,
            most_states=most_states,
            progress=progress,
        )
    return search(
        build, always=always, never=never, eventually=eventually, crashes=crashes, within=within, most_states=most_states,
        progress=progress,
    )  # fmt: skip


def check_stable(
    detector: Any,
    build: Callable[[Any], object],
    *,
    within: Any = (),
    most_states: int = MOST_STATES,
    crashes: int = 0,
) -> Exploration:
    """Try whether a detector that says it is stable is: where it holds, it still holds after every step.

    A function of the machine objects by name is taken, too. The counterexample's last step is the one after which it does not
    hold any more. `within`: as of `explore`; steps into states outside count, steps out of them are not taken.
    """
    _check("check_stable", most_states, crashes)
    return search(build, stays=detector, within=within, most_states=most_states, crashes=crashes)


def _check(function: str, most_states: int, crashes: int) -> None:
    """Raises `SettingError` for numbers that bound nothing."""
    if most_states < 1:
        raise SettingError(f"{function}: most_states={most_states}: 1 or more")
    if crashes < 0:
        raise SettingError(f"crashes={crashes}: how many are tried, 0 or more")


def replay(build: Callable[[Any], object], schedule: Schedule | str | os.PathLike[str] | dict[str, Any]) -> Run:
    """Run a system once more as a schedule has it: `.schedule` of a run or of a counterexample, its text, or the file of it.

    Raises `ScheduleError` at the first step that cannot be taken: then the machines are not those of the schedule.
    """
    found = schedule_of(schedule)
    if found.settings.get("protocol") is not None:
        from ray_snapshot.testing.hosted_runs import replay_hosted

        return replay_hosted(build, found)
    return replay_states(build, found)


def simulate(
    build: Callable[[Any], object],
    *,
    seed: int = 0,
    protocol: str = "chandy-lamport",
    detectors: Any = (),
    snapshots: int = 1,
    hosts: int | None = None,
    crashes: int = 0,
    most_steps: int = 10_000,
) -> Run:
    """Run a system once, in an order that `seed` chooses, and take snapshots of it under a protocol.

    `hosts`: how many hosts the machines are dealt out to (default: one each). `snapshots`: how many are taken, at moments
    that the seed chooses; `detectors` are evaluated on each. `crashes`: so many hosts are lost on the way, without a rollback;
    snapshots that need them are given up. The same seed gives the same run in every process.
    """
    from ray_snapshot.testing.hosted_runs import simulate_hosted

    return simulate_hosted(
        build, seed=seed, protocol=protocol, detectors=listed(detectors), snapshots=snapshots, hosts=hosts, crashes=crashes,
        most_steps=most_steps,
    )  # fmt: skip
