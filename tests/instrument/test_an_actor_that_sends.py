"""A watched actor that sends to machines of hosts, without Ray: its ledger and what it sends turn red together."""

import asyncio
import pickle
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import pytest
import ray
from limited import limit
from lone_process import lone_process, wire
from ray.exceptions import RayTaskError
from until import until

from ray_snapshot.errors import MachineStoppedError, NotAMachineError, RolledBackError, SystemNotRunningError
from ray_snapshot.instrument.crossing.sending import ActorPost, open_post
from ray_snapshot.instrument.hooks import attaching, calls, tracking
from ray_snapshot.instrument.process.process import Process
from ray_snapshot.instrument.process.reloading import Share
from ray_snapshot.protocol.calls import CallLedger
from ray_snapshot.protocol.commands import HostsLeft, Release, Request, Roll, Stopped
from ray_snapshot.protocol.rollback import Asked, Step
from ray_snapshot.runtime.checkpointing import SavedMessage
from ray_snapshot.runtime.collected import JoinedSystem
from ray_snapshot.runtime.handles import ENTRANCES, POSTS, handle_of
from ray_snapshot.runtime.reply import accept
from ray_snapshot.runtime.rows import MailPart
from ray_snapshot.runtime.waits import CallBook

RUN = "1"
MACHINE = handle_of(RUN, "m", "host-0")


class Answered:
    """An answer that is there, with no acknowledgement."""

    def __await__(self) -> Any:
        return asyncio.sleep(0, []).__await__()


class Host:
    """Takes batches; `answers` end them."""

    def __init__(self) -> None:
        self.batches: list[Any] = []
        self.deliver = self

    def remote(self, generation: int, is_deaf: bool, *pieces: bytes) -> Any:
        assert is_deaf, "this process cannot be called"
        self.batches.append(pickle.loads(b"".join(pieces)))
        return Answered()

    def sent(self) -> list[tuple[int, str]]:
        """(colour, method) of each message."""
        return [(colour, one[2]) for batch in self.batches for colour, messages in batch[3] for one in messages]

    def colours(self) -> list[int]:
        """Of all segments: a marker is one with nothing in it."""
        return [colour for batch in self.batches for colour, _ in batch[3]]


@contextmanager
def sender(ledger: CallLedger | None = None) -> Iterator[Process]:
    """A watched process whose watch a system of machines has joined."""
    with lone_process(ledger) as found:
        found.watcher.joined_system = Terms()
        ENTRANCES[:] = [attaching._Entrance(found)]
        yield found
        ENTRANCES.clear()
        if found.mail is not None:
            found.obey(HostsLeft())


@pytest.fixture
def process() -> Iterator[Process]:
    with sender() as found:
        yield found


class Terms:
    def remote(self, machine: str) -> Any:
        assert machine, "the watcher notes who may send"
        return self

    def future(self) -> Any:
        return _done(JoinedSystem("chandy-lamport", 5.0, RUN, 1, ("stopped",)))


def post_of(process: Process, host: Host) -> ActorPost:
    found = open_post(process, RUN)
    assert isinstance(found, ActorPost)
    found.carrier.actors["host-0"] = host
    return found


def mail(process: Process, number: int) -> MailPart:
    found = process.recording.reports[number].mail
    assert found is not None
    return found


def counts(process: Process, number: int) -> dict[Any, int]:
    found = mail(process, number).counts
    assert found is not None
    return dict(found.sent)


def test_what_is_sent_has_the_colour_of_the_ledger_and_the_part_counts_what_was_white(process: Process) -> None:
    host = Host()
    post_of(process, host)
    MACHINE.put.send(1)
    process.obey(Request(1))
    assert counts(process, 1) == {("A", "host-0", "link"): 1}
    assert mail(process, 1).ends == [("A", "m", "mail", 1, 0, 0, 0, 0)]
    MACHINE.put.send(2)
    until(lambda: host.sent() == [(0, "put"), (1, "put")])
    assert host.colours() == sorted(host.colours()), "nothing white comes behind a marker"


def test_a_marker_leaves_at_once_though_nothing_more_is_sent(process: Process) -> None:
    host = Host()
    post_of(process, host)
    MACHINE.put.send(1)
    until(lambda: len(host.batches) == 1)
    process.obey(Request(1))
    until(lambda: host.colours()[-1] == 1)


def test_a_red_call_turns_what_it_sends_red(process: Process) -> None:
    host = Host()
    post_of(process, host)
    MACHINE.put.send(1)
    with calls._begun("f", wire(process, 1).replace(b"1 0 1", b"1 4 1"), (object(),)):
        MACHINE.put.send(2)
    until(lambda: host.sent() == [(0, "put"), (4, "put")])
    assert counts(process, 4) == {("A", "host-0", "link"): 1}


def test_what_was_read_outside_a_wait_is_recorded_before_anything_is_sent(process: Process) -> None:
    host = Host()
    post_of(process, host)
    process.heard(3)
    MACHINE.put.send(1)
    until(lambda: host.sent() == [(3, "put")])


def test_a_reply_of_a_machine_is_heard_though_nothing_was_sent_to_any(process: Process) -> None:
    assert accept(RUN, 2, "value") == "value"
    assert process.heard_of == [2]
    assert accept("another run", 5, "value") == "value"
    assert process.heard_of == [2]


def test_a_wait_for_a_machine_says_which_call_it_owes(process: Process) -> None:
    host, ref, other = Host(), ray.ObjectRef.from_random(), ray.ObjectRef.from_random()
    post_of(process, host).calls.add(ref, "m", "A/1")
    with calls._begun("f", wire(process, 1), (object(),)):
        process.waiting.begin([ref], 1, None, "app.py:1", is_blocking=True)
        process.obey(Request(1))
        (wait,) = process.recording.reports[1].report.waits
        assert (wait.calls, wait.owed, wait.may_act) == ((), (("m", "A/1"),), False)
        assert process.recording.reports[1].report.status == "blocked"
        process.waiting.begin([other], 1, None, "app.py:2", is_blocking=True)
        process.obey(Request(2))
        assert process.recording.reports[2].report.waits[1].may_act, "of that nobody knows who answers"


def test_a_later_life_sends_under_another_name_for_it_numbers_anew() -> None:
    with sender(CallLedger("A", incarnation=2)) as process:
        host = Host()
        post_of(process, host)
        MACHINE.put.send(1)
        until(lambda: host.batches)
        assert host.batches[0][0] == "A+2"
        assert [(source, target) for _, source, target, _ in host.batches[0][2]] == [("A+2", "m")]


def test_a_machine_that_has_stopped_is_sent_nothing_and_the_error_names_the_class() -> None:
    with sender(CallLedger("Vault:0123")) as process:
        post_of(process, Host())
        process.obey(Stopped(("m",), 2))
        assert process.ledger.colour == 2
        with pytest.raises(MachineStoppedError, match=r"^Vault cannot send to m: it has stopped$"):
            MACHINE.put.send(1)


def test_when_the_machines_have_ended_the_process_is_alone_again(process: Process) -> None:
    post = post_of(process, Host())
    thread = post.thread
    process.obey(HostsLeft())
    thread.join(30)
    assert not thread.is_alive()
    assert RUN not in POSTS
    process.obey(Request(1))
    assert process.recording.reports[1].mail is None
    assert process.ledger.successor(1, 1, {}).incarnation == 1


def test_without_machines_in_its_watch_it_is_part_of_no_system(process: Process, monkeypatch: Any) -> None:
    monkeypatch.setattr(Terms, "future", lambda _: _done(None))
    with pytest.raises(NotAMachineError, match="this process is no part"):
        MACHINE.put.send(1)
    with pytest.raises(NotAMachineError):
        handle_of("another run", "m").put.send(1)
    assert process.mail is None
    monkeypatch.setattr(Terms, "future", lambda _: _done(JoinedSystem("chandy-lamport", 5.0, f"{RUN}.2", 2)))
    with pytest.raises(NotAMachineError):  # a handle of the system before
        MACHINE.put.send(1)
    assert process.mail is None


def test_a_watcher_that_does_not_answer_is_an_error_of_ours(process: Process, monkeypatch: Any) -> None:
    limit(monkeypatch, machines_answer_s=0.01)
    monkeypatch.setattr(Terms, "future", lambda _: Future())
    with pytest.raises(SystemNotRunningError, match=r"what watches app does not answer \(TimeoutError\)"):
        MACHINE.put.send(1)


def test_who_comes_late_knows_what_has_stopped(process: Process) -> None:
    post_of(process, Host())
    with pytest.raises(MachineStoppedError):
        handle_of(RUN, "stopped", "host-0").put.send(1)


def test_an_actor_in_an_action_is_not_recorded_for_a_machine_that_has_stopped(process: Process) -> None:
    host = Host()
    post_of(process, host)
    with calls._begun("f", wire(process, 1), (object(),)):
        process.obey(Stopped(("m",), 2))
        assert process.ledger.colour == 0
        MACHINE.put.send(1)
    assert process.ledger.colour == 2
    with pytest.raises(MachineStoppedError):
        MACHINE.put.send(2)
    until(lambda: host.sent() == [(0, "put")])


def test_a_process_that_ends_waits_until_its_mail_has_arrived(process: Process, monkeypatch: Any) -> None:
    limit(monkeypatch, last_mail_s=60.0)
    host = Host()
    post = post_of(process, host)
    for number in range(50):
        MACHINE.put.send(number)
    post._see_off()
    assert len(host.sent()) == 50
    assert all(link.in_flight == 0 for link in post.core.outputs.values())
    process.obey(Request(1))
    assert mail(process, 1).life == 1


@pytest.mark.parametrize(("refs", "answered"), [(1, True), (2, False)])
def test_an_error_tells_of_a_call_only_if_nothing_else_was_waited_for(refs: int, answered: bool) -> None:
    """The other may be a machine's reply, or a plain task's: the call may still be in its queue."""
    end = tracking._End(refs)
    end.by(RayTaskError("f", "", ValueError("no")), ["A/0/B/1"])
    assert bool(end.answered) is answered


def _done(value: Any) -> Any:
    found: Future[Any] = Future()
    found.set_result(value)
    return found


# ---- going back -------------------------------------------------------------------------------------------------------------


def roll(process: Process, step: Step, generation: int, share: Share | None = None) -> None:
    process.obey(Roll(Asked(step, generation), share))


JOINED = JoinedSystem("chandy-lamport", 5.0, RUN, 1)


def saved(number: int, *args: Any) -> SavedMessage:
    return ("A", "m", "mail", number, "put", (True, pickle.dumps(args)), 0.0, 1.0)


def test_nothing_is_sent_while_the_app_goes_back_and_all_goes_on_when_that_is_given_up(process: Process) -> None:
    host = Host()
    post = post_of(process, host)
    MACHINE.put.send(1)
    roll(process, Step.STOP, 1)
    for work in (MACHINE.put.send, lambda count: MACHINE.put.send_after(0.0, count), MACHINE.put.remote):
        with pytest.raises(RolledBackError, match="what A was asked for, or asked for itself"):
            work(2)
    process.obey(Release(1))
    MACHINE.put.send(3)
    until(lambda: [one[3] for batch in host.batches for _, messages in batch[3] for one in messages] == [(1,), (3,)])
    assert process.mail is post


def test_what_was_in_flight_is_sent_again_by_a_life_of_another_name_before_anything_else(process: Process) -> None:
    post = post_of(process, Host())
    MACHINE.put.send(1)
    roll(process, Step.STOP, 1)
    share = Share(1, 4, {"A": 1, "m": 2}, None, joined=JOINED, mail=[saved(8, "first"), saved(9, "second")])
    roll(process, Step.LOAD, 1, share)
    assert (process.mail, POSTS) == (None, {})
    with pytest.raises(RolledBackError):
        post.check()
    post.thread.join(30)
    assert not post.thread.is_alive()
    watcher: Any = process.watcher
    host = Host()
    watcher.locate, watcher.actor_of = Knows({"m": "host-0"}), Knows([host])
    roll(process, Step.START, 1)
    later: Any = process.mail
    assert open_post(process, RUN) is later
    MACHINE.put.send("third")
    until(lambda: len(host.sent()) == 3)
    assert {batch[0] for batch in host.batches} == {"A+1"}
    sent = [one for batch in host.batches for _, messages in batch[3] for one in messages]
    assert [one[3] for one in sent] == [("first",), ("second",), ("third",)]
    assert {colour for colour, _ in host.sent()} == {4}, "red for all numbers so far"
    assert (later.member.generation, process.stamp) == (1, "app:1:1")


class Knows:
    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def remote(self, *_: Any) -> Any:
        return asyncio.sleep(0, self.answer)


class Part:
    """The program's part in a system of machines, as its process meets it."""

    def __init__(self) -> None:
        self.told: list[Any] = []
        self.calls = CallBook()

    def turn(self) -> tuple[int, ...]:
        return ()

    def pause(self) -> None:
        self.told.append("pause")

    def load(self, generation: int, share: bytes | None) -> bool:
        self.told.append((generation, share))
        return True

    def resume(self) -> None:
        self.told.append("resume")

    def leave(self) -> None:
        self.told.append("leave")


def test_the_programs_part_loads_with_its_process_and_turns_red_with_its_next_ledger() -> None:
    with lone_process(CallLedger("driver", acts_unasked=True)) as process:
        part = Part()
        with process.lock:
            process.send_with(part)  # type: ignore[arg-type]
        before = process.ledger
        roll(process, Step.STOP, 1)
        roll(process, Step.LOAD, 1, Share(1, 4, {}, None, joined=JOINED, post=b"share"))
        assert process.ledger is not before
        assert (process.mail, process.ledger.turn) == (part, part.turn)
        roll(process, Step.START, 1)
        assert part.told == ["pause", (1, b"share"), "resume"]
