"""`possibly` and `definitely` of simulated runs of random systems, held against all consistent cuts, found in another way."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

import ray_snapshot as rs
from ray_snapshot import testing
from ray_snapshot.testing import Run
from ray_snapshot.witness.modalities import Cut, cuts_of, definitely, possibly, possibly_each

NAMES = ("a", "b", "c")
Payment = tuple[str, str, int]


class Payer(rs.SnapshotMixin):
    """Knows what it had behind each of its actions."""

    def __init__(self) -> None:
        self.past = [10]

    def pay(self, to: Any, amount: int) -> None:
        self.past.append(self.past[-1] - amount)
        to.get.send(amount)

    def get(self, amount: int) -> None:
        self.past.append(self.past[-1] + amount)


def _paying(payments: list[Payment]) -> Callable[[Any], None]:
    def paying(system: Any) -> None:
        handles = {name: system.spawn(Payer, name=name) for name in NAMES}
        for source, target, amount in payments:
            handles[source].pay.send(handles[target], amount)

    return paying


def _consistent(run: Run, machines: tuple[str, ...]) -> list[Cut]:
    """Straight from the definition: what is accepted in the cut was sent in it."""
    counts = [sum(event.machine == name for event in run.events) for name in machines]
    found = []
    for cut in product(*(range(count + 1) for count in counts)):
        inside = [event for event in run.events if event.number <= cut[machines.index(event.machine)]]
        sent = {message for event in inside for message in event.sent}
        if all(message in sent for event in inside for message in event.accepted):
            found.append(cut)
    return found


def _must_be_passed(cuts: list[Cut], holds: Callable[[Cut], bool]) -> bool:
    """Whether no chain of cuts on which it does not hold leads from the first to the last, an action at a time."""
    reached: set[Cut] = set()
    for cut in sorted(cuts, key=sum):
        before = [tuple(count - (at == place) for at, count in enumerate(cut)) for place in range(len(cut))]
        if not holds(cut) and (not any(cut) or any(one in reached for one in before)):
            reached.add(cut)
    return max(cuts, key=sum) not in reached


payments = st.lists(
    st.tuples(st.sampled_from(NAMES), st.sampled_from(NAMES), st.integers(1, 9)), min_size=1, max_size=3
)


@given(payments, st.integers(0, 1_000), st.integers(0, 25), st.integers(0, 25))
@settings(max_examples=10, derandomize=True)
def test_what_is_found_out_of_a_simulated_run_is_what_all_its_cuts_say(
    payments: list[Payment], seed: int, least: int, most: int
) -> None:
    run = testing.simulate(_paying(payments), seed=seed, snapshots=2)
    assert run.is_over
    by = {message: (event.machine, event.number) for event in run.events for message in event.sent}
    causes = cuts_of((event.machine, [by[message] for message in event.accepted]) for event in run.events)
    cuts = _consistent(run, causes.machines)
    place = {name: causes.machines.index(name) for name in NAMES}

    def had(name: str, count: int) -> int | None:
        return run.machines[name].past[count - 1] if count else None

    def holds(cut: Cut) -> bool:
        a, b = (had(name, cut[place[name]]) for name in "ab")
        return a is not None and b is not None and a >= least and b <= most

    found = possibly(causes, holds, 100_000)
    assert found.holds is any(map(holds, cuts))
    assert found.cut is None or (found.cut in cuts and holds(found.cut))
    assert found.holds or found.cuts == len(cuts)
    assert definitely(causes, holds, 100_000).holds is _must_be_passed(cuts, holds)
    true = {
        "a": [count > 0 and value >= least for count, value in enumerate([0, *run.machines["a"].past])],
        "b": [count > 0 and value <= most for count, value in enumerate([0, *run.machines["b"].past])],
    }
    assert possibly_each(causes, true).holds is found.holds
    for taken, snapshot in zip(run.cuts, run.snapshots, strict=True):
        cut = tuple(taken.counts.get(name, 0) for name in causes.machines)
        assert cut in cuts, "a snapshot is a consistent cut"
        states = {name: one.state["past"] for name, one in snapshot.machines.items() if name in NAMES}
        assert states == {name: run.machines[name].past[: cut[place[name]]] for name in states}
