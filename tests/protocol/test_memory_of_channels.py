"""What a channel takes in the hosts of both its ends, when all that it carried was accepted."""

import gc
import pickle
import tracemalloc
from collections import deque
from collections.abc import Callable

from nets import Net

from ray_snapshot.protocol.host import HostCore
from ray_snapshot.protocol.mailbox import KEPT_QUEUES, LONG, MAIL

MACHINES, WAYS = 200, 10
NAMES = [f"machine-{number}" for number in range(MACHINES)]


def home(number: int) -> int:
    """Every other machine lives with the first host."""
    return number % 2


def carry(cores: list[HostCore], *, is_accepted: bool = True) -> None:
    """Let the machines accept all that was sent, as it comes from another process; or only bring it to them."""
    goes_on = True
    while goes_on:
        goes_on = False
        for core in cores:
            while is_accepted and (action := core.next_action()) is not None:
                core.end_action(action[0])
            for target, batch in core.take_batches():
                core.outputs[target].in_flight -= 1
                cores[int(target)].arrive(pickle.loads(pickle.dumps(batch)))
                goes_on = True


def send_all(cores: list[HostCore]) -> None:
    """Each machine sends to ten others, half of which live with the other host."""
    for number, name in enumerate(NAMES):
        core = cores[home(number)]
        for way in range(WAYS):
            target = NAMES[(number * WAYS + way) % MACHINES]
            core.send(core.machines[name], target, MAIL, "go", (), 0.0)


def two_hosts() -> list[HostCore]:
    """Both know where all machines live."""
    cores = [HostCore("0"), HostCore("1")]
    for number, name in enumerate(NAMES):
        cores[home(number)].born(name, object())
        cores[1 - home(number)].resolve(name, str(home(number)))
    carry(cores)
    return cores


def taken_by(work: Callable[[], None]) -> float:
    """Bytes for each channel that are taken once that is done."""
    gc.collect()
    tracemalloc.start()
    try:
        work()
        gc.collect()
        return tracemalloc.get_traced_memory()[0] / (MACHINES * WAYS)
    finally:
        tracemalloc.stop()


def test_a_channel_takes_less_than_300_bytes_at_both_ends_together() -> None:
    cores = two_hosts()

    def all_is_accepted() -> None:
        send_all(cores)
        carry(cores)

    taken = taken_by(all_is_accepted)
    assert sum(len(machine.outputs) for core in cores for machine in core.machines.values()) == MACHINES * WAYS
    assert sum(machine.accepted for core in cores for machine in core.machines.values()) == MACHINES * WAYS
    assert taken < 300


def test_where_each_channel_has_one_message_waiting_it_and_the_message_take_less_than_430_bytes() -> None:
    cores = two_hosts()

    def all_has_come() -> None:
        send_all(cores)
        carry(cores, is_accepted=False)

    taken = taken_by(all_has_come)
    machines = [machine for core in cores for machine in core.machines.values()]
    assert sum(len([*machine.inbox.waiting()]) for machine in machines) == MACHINES * WAYS
    assert taken < 430


def test_what_is_ready_is_taken_in_its_order_however_much_there_is() -> None:
    for senders in (KEPT_QUEUES, KEPT_QUEUES + 1, LONG, LONG + 1, 3 * LONG):
        names = [f"s{number}" for number in range(senders)]
        net = Net(dict.fromkeys([*names, "m"], "A"))
        for name in names:
            net.send(name, "m", (), "go")
        inbox = net.machine("m").inbox
        kept = {type(mailbox.kept) for mailbox in inbox.mailboxes.values()}
        assert kept == {tuple}, "a message that waits alone is what is kept"
        assert [mailbox.queue[0][2] for mailbox in inbox.mailboxes.values()] == ["go"] * senders
        assert type(inbox.ready) is (list if senders <= LONG else deque)
        for name in names:
            net.send(name, "m", (), "again")
        found = []
        while (taken := inbox.take()) is not None:
            found += [(mailbox.source, message[2]) for mailbox, message in taken]
        assert found == [(name, method) for method in ("go", "again") for name in names]
