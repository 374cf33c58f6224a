"""A host's core and the ledgers of calls in its process turn red at once; a report counts while the core goes on."""

from collections.abc import Iterable

import pytest

from ray_snapshot.errors import ProtocolError
from ray_snapshot.parts import reporting
from ray_snapshot.parts.reporting import LinkCounts
from ray_snapshot.protocol.barrier_host import BarrierCore
from ray_snapshot.protocol.barriers import Mode
from ray_snapshot.protocol.calls import CallLedger
from ray_snapshot.protocol.chandy_lamport import ChandyLamport
from ray_snapshot.protocol.colours import Independent
from ray_snapshot.protocol.host import HostCore
from ray_snapshot.protocol.parts import GroupCopy


def test_a_request_to_either_is_due_for_both_and_the_hosts_boundary_records_both() -> None:
    core = HostCore("H")
    ledger = core.ledgers.of("m")
    assert core.ledgers.of("m") is ledger
    ledger.request(3)
    assert core.must_record
    assert core.boundary() == (1, 2, 3)
    assert (core.colour, ledger.colour, sorted(ledger.open)) == (3, 3, [1, 2, 3])


def test_a_header_cannot_carry_the_colour_of_independent_snapshots() -> None:
    core = HostCore("H", protocol=ChandyLamport(Independent()))
    with pytest.raises(ProtocolError, match="the machines of H cannot call watched actors under these colours"):
        core.ledgers.of("m")
    assert not core.ledgers.known


@pytest.mark.parametrize("mode", list(Mode))
def test_under_barriers_a_process_has_no_one_colour(mode: Mode) -> None:
    with pytest.raises(ProtocolError, match="m cannot call watched actors under a barrier protocol"):
        BarrierCore("H", mode).ledgers.of("m")


def test_a_ledger_is_born_with_the_colour_of_the_host_beside_it_and_no_other() -> None:
    core = HostCore("H")
    core.request(2)
    core.boundary()
    assert core.ledgers.of("m").colour == core.ledgers.of("m").born == 2
    with pytest.raises(ProtocolError, match="n cannot be born with colour 1 beside a host of 2"):
        CallLedger("n", colour=1, turning=core.turning)


def test_a_ledger_does_not_begin_anew_while_the_host_beside_it_stays() -> None:
    ledger = HostCore("H").ledgers.of("m")
    with pytest.raises(ProtocolError, match="m cannot begin anew without the host beside it"):
        ledger.successor(1, 0, {})
    assert CallLedger("n").successor(1, 2, {}).colour == 2


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
