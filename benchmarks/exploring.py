"""How fast `testing.explore` is on one core, over what is promised: states a second, and until it finds a mistake."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from statistics import median
from typing import Any

from benchmarks.measure import Result, alternate
from ray_snapshot import detectors, testing
from ray_snapshot.examples.algorithms import ALGORITHMS
from ray_snapshot.examples.bank_without_ray import Account, no_overdraft

NEEDS_RAY = False
PROMISED = 15_000.0
ACCOUNTS = 6
HOSTED_STATES = 5_000
PROMISED_S = 10.0
"""Until the mistake of an algorithm is found."""


def ring_of_payments(system: Any) -> None:
    """Each account pays the next two: 7 ** 6 states."""
    accounts = [system.spawn(Account, 100, name=f"account-{number}") for number in range(ACCOUNTS)]
    for number, account in enumerate(accounts):
        for ahead in (1, 2):
            account.transfer.send(accounts[(number + ahead) % ACCOUNTS], 10 + number)


def run(names: set[str]) -> Iterator[Result]:
    """Yield the figures that were asked for."""
    if "explore-states" in names:
        yield states_a_second()
    if "explore-mistakes" in names:
        yield seconds_to_a_mistake()


def states_a_second() -> Result:
    """With an invariant, a conservation law and deadlocks asked about every state."""
    money = detectors.TokenConservation(total=100 * ACCOUNTS, state="$.balance", messages={"deposit": "$[0]"})

    def explore() -> float:
        began = time.process_time()
        found = testing.explore(ring_of_payments, always=[money, no_overdraft], never=[detectors.Deadlock()])
        assert found.ok
        assert found.complete
        assert found.states == 117_649
        return found.states / (time.process_time() - began)

    result = alternate(
        "explore-states", ">= 1", ("states_per_second", explore), ("promised", lambda: PROMISED), pairs=2
    )
    return replace(result, parts={"states_per_second_under_a_protocol": _under_a_protocol()})


def _under_a_protocol() -> float:
    """Of hosts that take a snapshot, in every order: no end of it is reached, and each state is one of all hosts."""
    began = time.process_time()
    found = testing.explore(ring_of_payments, protocol="chandy-lamport", most_states=HOSTED_STATES)
    return found.states / (time.process_time() - began)


def seconds_to_a_mistake() -> Result:
    """Of the published algorithm whose mistake takes longest to find."""
    took: dict[str, list[float]] = {}

    def slowest() -> float:
        for one in ALGORITHMS:
            began = time.process_time()
            found = one.explore("broken")
            took.setdefault(f"{one.name}_s", []).append(time.process_time() - began)
            assert not found.ok, one.name
        return max(times[-1] for times in took.values())

    result = alternate("explore-mistakes", "<= 1", ("slowest_s", slowest), ("promised_s", lambda: PROMISED_S), pairs=2)
    return replace(result, parts={name: median(times) for name, times in took.items()})
