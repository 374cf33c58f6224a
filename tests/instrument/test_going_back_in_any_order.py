"""Going back in any order: calls of two pasts and of the present on one network, actions that end late, and deaths."""

from typing import Any

import pytest
from rolled_back_app import TOKENS, App, played

SEEDS = 40
BY_NIGHT = 1_000


def tokens_of(found: Any) -> int:
    snapshot = found.snapshot()
    snapshot.verify()
    states = sum(machine.state["tokens"] for machine in snapshot.machines.values() if machine.state is not None)
    return int(states + sum(message.args[0] for message in snapshot.messages))


async def story(app: App) -> tuple[int, int]:
    """Work, go back to a snapshot while all goes on, work again; returns how often that was, and the calls made again."""
    await app.begin()
    backs = again = 0
    for _ in range(3):
        await app.run(120)
        can = [name for name, found in app.analyst.found.items() if found.snapshot().restorable]
        if not can:
            continue
        chosen = app.draw.choice(can)
        await app.go_back(chosen)
        backs += 1
        again += app.analyst.found[chosen].snapshot().in_flight_count
        await app.run(60)
    await app.quiet()
    assert app.tokens() == TOKENS
    await app.snapshot()
    await app.quiet()
    for found in app.analyst.found.values():
        if not app.deaths and found.snapshot().restorable:  # nobody was inside an action, so every state is there
            assert tokens_of(found) == TOKENS
    assert tokens_of(list(app.analyst.found.values())[-1]) == TOKENS
    assert all(not process.is_closed for process in app.machines.values())
    return backs, again


@pytest.mark.nightly
@pytest.mark.parametrize("deaths", [0, 2])
def test_no_token_is_lost_or_doubled_whatever_happens_meanwhile(deaths: int) -> None:
    found = [played(App(seed, deaths), story) for seed in range(SEEDS)]
    assert sum(backs for backs, _ in found) > SEEDS, "there must be something to go back to"
    assert sum(again for _, again in found) > SEEDS, "calls must be in flight"


@pytest.mark.nightly
@pytest.mark.parametrize("deaths", [0, 1, 4])
def test_no_token_is_lost_or_doubled_in_thousands_of_runs(deaths: int, seed: int) -> None:
    """Others every night; the last number that is printed is that of the run that failed."""
    for number in range(seed, seed + BY_NIGHT):
        print(number)
        played(App(number, deaths), story)
