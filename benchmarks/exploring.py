"""How many states a second `testing.explore` looks at on one core, over what is promised."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from benchmarks.measure import Result, alternate
from ray_snapshot import detectors, testing
from ray_snapshot.examples.bank_without_ray import Account, no_overdraft

NEEDS_RAY = False
PROMISED = 15_000.0
ACCOUNTS = 6
HOSTED_STATES = 5_000


def ring_of_payments(system: Any) -> None:
    """Each account pays the next two: 7 ** 6 states."""
    accounts = [system.spawn(Account, 100, name=f"account-{number}") for number in range(ACCOUNTS)]
    for number, account in enumerate(accounts):
        for ahead in (1, 2):
            account.transfer.send(accounts[(number + ahead) % ACCOUNTS], 10 + number)


def run(names: set[str]) -> Iterator[Result]:
    """Yield the figure `explore-states`."""
    if "explore-states" in names:
        yield states_a_second()


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
