"""Reports are made in a thread of their own: what becomes known to the host meanwhile changes no count."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from ray_snapshot.parts import reporting
from ray_snapshot.parts.reporting import LinkCounts
from ray_snapshot.protocol.host import HostCore
from ray_snapshot.protocol.parts import GroupCopy


@pytest.mark.parametrize("is_together", [False, True])
@pytest.mark.parametrize("at", range(6))
def test_a_host_that_becomes_known_while_a_report_counts_takes_nothing_from_its_link(
    at: int, is_together: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    core = HostCore("A")
    core.resolve("near", "B")
    machines = [core.born("one", object()), core.born("two", object())]
    core.send(machines[0], "far", "mail", "held", (), 0.0)
    core.send(machines[1], "near", "mail", "going", (), 0.0)
    core.take_batches()
    core.request(1)
    core.boundary()
    while core.copy_next():
        pass
    recording, counts, add, steps = core.open[1], LinkCounts("A"), reporting._add, [0]
    group = GroupCopy(machines, (), lambda _: True)

    def resolving(sums: dict[str, int], hosts: Iterable[str | None], given: Iterable[int]) -> None:
        add(sums, hosts, given)
        if steps[0] == at:
            core.resolve("far", "B")
        steps[0] += 1

    monkeypatch.setattr(reporting, "_add", resolving)
    if is_together:
        counts.group(group)
    for copy in () if is_together else recording.each_copy():
        counts.ends_of(copy)
    assert counts.sent == {("A", "B", reporting.LINK): 1}, "the one that is on its way"
