"""Snapshots of simulated runs are consistent cuts of the events of their run, straight from the definition."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

import ray_snapshot as rs
from ray_snapshot import testing

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


payments = st.lists(
    st.tuples(st.sampled_from(NAMES), st.sampled_from(NAMES), st.integers(1, 9)), min_size=1, max_size=3
)


@given(payments, st.integers(0, 1_000))
@settings(max_examples=10, derandomize=True)
def test_what_is_accepted_in_the_cut_of_a_snapshot_was_sent_in_it(payments: list[Payment], seed: int) -> None:
    run = testing.simulate(_paying(payments), seed=seed, snapshots=2)
    assert run.is_over
    for taken, snapshot in zip(run.cuts, run.snapshots, strict=True):
        inside = [event for event in run.events if event.number <= taken.counts.get(event.machine, 0)]
        sent = {message for event in inside for message in event.sent}
        assert all(message in sent for event in inside for message in event.accepted)
        states = {name: one.state["past"] for name, one in snapshot.machines.items() if name in NAMES}
        assert states == {name: run.machines[name].past[: taken.counts.get(name, 0)] for name in states}
