"""What goes wrong in a system stops it, and reaches the driver by name, soon, wherever it is."""

import os
import signal
import sys
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import ray
from runtime_machines import BOUND_S, Account, Gate, House, Log, Nursery, Sender, await_failure

import ray_snapshot as rs
from ray_snapshot import detectors
from ray_snapshot.runtime.driver import recorder

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_cluster")]


class Clumsy(rs.SnapshotMixin):
    def __init__(self, how: str = "", then: Any = None) -> None:
        self.how = how
        self.number = 5
        self.then = then
        if how == "constructor":
            raise ValueError("not today")

    def fail(self, how: str, *_: Any) -> Any:
        if how == "exit":
            sys.exit(3)
        if how == "mute":
            raise Mute
        return {}[how]

    def tell(self, name: str) -> None:
        self.machine(name).note.send(1)

    def tell_to(self, name: str, method: str) -> None:
        getattr(self.machine(name), method).send(1)

    def pid(self) -> int:
        return os.getpid()


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("I say nothing")


FAILURES = {
    "an action that raises": (
        lambda m: m.fail.send("key", [1, 2]),
        rs.MachineFailedError,
        "clumsy.fail raised KeyError: 'key'",
    ),
    "an action that exits": (lambda m: m.fail.send("exit"), rs.MachineFailedError, "clumsy.fail raised SystemExit: 3"),
    "an error without a text": (lambda m: m.fail.send("mute"), rs.MachineFailedError, "clumsy.fail raised Mute: .its text"),
    "an unknown method": (
        lambda m: m.tell_to.send("clumsy", "juggle"),
        rs.UnknownMethodError,
        r"clumsy \(Clumsy\) has no method 'juggle'; clumsy sent it",
    ),
    "an attribute that is no method": (lambda m: m.number.send(), rs.UnknownMethodError, "has no method 'number'"),
    "a name that is never spawned": (
        lambda m: m.tell.send("ghost"),
        rs.UnknownMachineError,
        "no machine 'ghost' was spawned within 0.2 s, but clumsy sent to it",
    ),
}  # fmt: skip


BY_DAY = "an action that raises"


@pytest.mark.contract
@pytest.mark.parametrize(
    "what", [pytest.param(what, marks=() if what == BY_DAY else pytest.mark.nightly) for what in FAILURES]
)
def test_it_reaches_the_driver_wherever_it_waits_sends_or_asks(what: str, tmp_path: Path) -> None:
    do, kind, text = FAILURES[what]
    gate = Gate(tmp_path)
    is_raised = what == BY_DAY
    with rs.System("failing", spawn_timeout=1_000 if is_raised else 0.2, history=tmp_path / "history") as system:
        (clumsy,) = system.spawn_many(Clumsy, names=["clumsy"])
        log = system.spawn(Log, name="log")
        before = system.snapshot()
        log.note_at_gate.send(1, gate.path)
        gate.await_arrival()
        answer = log.read.remote()
        with pytest.raises(rs.UnknownMachineError, match=r"no machine 'zz' has been spawned in failing"):
            system.stop("zz")
        do(clumsy)
        for call in (lambda: system.machine("ghost").hit.remote(1), lambda: system.stop("zz")) if is_raised else ():
            with pytest.raises(kind, match=text):
                call()  # nothing can come of waiting
        with pytest.raises(kind, match=text) as caught:
            system.wait_for("termination", timeout=BOUND_S)
        with pytest.raises(kind, match=text):
            clumsy.fail.send("again")
        with pytest.raises(kind, match=text):
            system.snapshot()
        with pytest.raises(kind, match=text):
            ray.get(answer, timeout=BOUND_S)  # on another host, whose machine does not end its action
    assert before.consistent
    kept = {row["snapshot_id"] for row in rs.History(tmp_path / "history").snapshots()}
    assert before.snapshot_id in kept, "nothing of what was recorded is lost"
    if is_raised:
        error = caught.value
        assert (error.machine, error.method, error.message) == ("clumsy", "fail", '["key",[1,2]]')
        assert "return {}[how]" in error.traceback
        (line,) = (
            n for n, text in enumerate(Path(__file__).read_text().splitlines(), 1) if text == "        return {}[how]"
        )
        assert f"KeyError: 'key' at {__file__}:{line} (message from driver" in str(error)


@pytest.mark.contract
@pytest.mark.nightly
def test_a_constructor_that_raises_is_found_at_start_and_raised_again_at_the_end_if_nobody_asked() -> None:
    def run() -> None:
        with rs.System("unborn") as system:
            system.spawn(Clumsy, "constructor")
            await_failure(system)

    with pytest.raises(rs.MachineFailedError, match=r"Clumsy-0\.__init__ raised ValueError: not today") as caught:
        run()
    assert caught.value.method == "__init__"


@pytest.mark.contract
@pytest.mark.nightly
def test_an_error_that_was_caught_inside_the_block_is_not_raised_again_at_its_end() -> None:
    with rs.System("forgiven") as system:
        handle = system.spawn(Clumsy, "constructor")
        with pytest.raises(rs.MachineFailedError, match=r"not today"):
            system.start()
        await_failure(system)
        with pytest.raises(rs.MachineFailedError, match=r"not today"):
            handle.fail.send("x")


@pytest.mark.contract
def test_a_host_that_dies_is_noticed_though_nobody_sends_and_ends_an_open_snapshot_and_every_wait(
    tmp_path: Any,
) -> None:
    gate, opened = Gate(tmp_path), list[BaseException]()
    with rs.System("mortal", detectors=[]) as system:
        system.spawn_many(Clumsy, names=list("wxyz"), per_host=4)
        log = system.spawn(Log, name="log")
        system.start()
        log.note_at_gate.send(1, gate.path)
        gate.await_arrival()
        pid = ray.get(system.machine("x").pid.remote())

        def take() -> None:
            try:
                system.snapshot()
            except rs.RaySnapshotError as error:
                opened.append(error)

        taking = threading.Thread(target=take)
        taking.start()
        answer = log.read.remote()
        os.kill(pid, signal.SIGKILL)
        await_failure(system)
        with pytest.raises(rs.HostDiedError):
            ray.get(answer)
        taking.join(BOUND_S)
        assert isinstance(opened[0], rs.SnapshotAbortedError | rs.HostDiedError)
        said = "host-0 with w, x, y and 1 more of system mortal is gone"
        assert said in str(opened[0])
        with pytest.raises(rs.HostDiedError, match=said) as caught:
            system.wait_for(never, timeout=BOUND_S)
        assert (caught.value.host, caught.value.machines) == ("host-0", list("wxyz"))
        with pytest.raises(rs.HostDiedError):
            log.read.remote()
        with pytest.raises(rs.HostDiedError):
            system.snapshot()


@rs.detector
def never(_: rs.Snapshot) -> bool:
    return False


@pytest.mark.contract
@pytest.mark.by_day(1)
@pytest.mark.parametrize("who", ["service", "analyst"])
def test_a_service_that_dies_is_an_error_and_no_hang(who: str) -> None:
    with rs.System("headless") as system:
        system.spawn(Log, name="log")
        system.start()
        ray.kill(getattr(system, f"_{who}"))
        with pytest.raises(rs.HostDiedError, match=rf"{who}.* is gone"):
            system.wait_for(never, timeout=BOUND_S)


class Confused(rs.SnapshotMixin):
    def waiting_for(self) -> Any:
        return "a"


@pytest.mark.contract
@pytest.mark.nightly
def test_a_waiting_for_that_returns_no_wait_stops_the_system_and_says_what_to_return() -> None:
    with rs.System("confused") as system:
        system.spawn(Confused, name="puzzled")
        system.start()
        with pytest.raises(
            rs.MachineFailedError, match=r"puzzled \(Confused\): .*returned 'a', .*return rs.all_of"
        ) as caught:
            system.wait_for("termination", timeout=BOUND_S)
        assert (caught.value.machine, caught.value.method) == ("puzzled", "waiting_for")


# ---- what is refused before anything happens ---------------------------------------------------------------------


@pytest.mark.contract
def test_bad_settings_names_and_classes_are_refused_in_one_line() -> None:
    for wrong in ({"every": 0}, {"mailbox_bound": 0}, {"every": "often"}, {"colour": "red"}, {"protocol": "two-phase"}):
        with pytest.raises(rs.SettingError, match=rf"System\(\): {next(iter(wrong))}: .*got"):
            rs.System("refused", **wrong)
    with pytest.raises(
        rs.SettingError, match=r"evry: no such setting \(got 1\); did you mean every\? there are address, ali"
    ):
        rs.System("refused", evry=1)
    for protocol in ("chandy-lamport", "observer", "at-least-once-barrier"):
        with pytest.raises(rs.SettingError, match=r"it belongs to protocol aligned-barrier and unaligned-barrier"):
            rs.System("refused", protocol=protocol, alignment_timeout=1)
    for name in ("Upper", "1st", "with space", "", 5):
        with pytest.raises(rs.NameNotAllowedError, match=r"system name"):
            rs.System(name)  # type: ignore[arg-type]
    with pytest.raises(rs.DetectorError, match=r"pass an instance"):
        rs.System("refused", detectors=[detectors.Termination])
    for alone in (detectors.Termination(), "termination"):
        with pytest.raises(rs.DetectorError, match=r"detectors= takes a list: .*termination"):
            rs.System("refused", detectors=alone)  # type: ignore[arg-type]
    with pytest.raises(rs.DetectorError, match=r"two detectors are named 'termination'"):
        rs.System("refused", detectors=["termination", detectors.Termination()])
    with pytest.raises(rs.SystemNotRunningError, match=r"no system is open"):
        rs.remote(Account).remote(1)


class Asynchronous(rs.SnapshotMixin):
    async def act(self) -> None: ...


class Plain:
    pass


def test_bad_spawns_are_refused_and_leave_nothing_behind(house: House) -> None:
    system = house.system
    hosts = ray.get(system._service.about.remote())["hosts"]
    with pytest.raises(rs.SettingError, match=r"Asynchronous.act is async"):
        system.spawn(Asynchronous)
    with pytest.raises(rs.SettingError, match=r"extends rs.SnapshotMixin"):
        system.spawn(Plain)
    with pytest.raises(rs.DuplicateMachineError, match=r"'north' already exists"):
        system.spawn(Log, name="north")
    with pytest.raises(rs.DuplicateMachineError, match=r"'twice'"):
        system.spawn_many(Log, names=["twice", "once", "twice"])
    with pytest.raises(rs.DuplicateMachineError, match=r"'driver'"):
        system.spawn(Log, name="driver")
    with pytest.raises(rs.SettingError, match=r"2 names for 1 machines"):
        system.spawn_many(Log, args=[()], names=["p", "q"])
    with pytest.raises(rs.SettingError, match=r"say how many"):
        system.spawn_many(Log)
    with pytest.raises(rs.SettingError, match=r"per_host is 0"):
        system.spawn_many(Log, count=3, per_host=0)
    with pytest.raises(rs.SettingError, match=r"role 'boss'"):
        system.spawn(Log, role="boss")
    with pytest.raises(rs.SettingError, match=r"resources="):
        system.spawn(Log, resources={"CPU": -1})
    with pytest.raises(rs.UnpicklableMessageError, match=r"__init__"):
        system.spawn(Account, (number for number in range(3)))
    with pytest.raises(rs.WrongArgumentsError, match=r"Account.__init__: missing a required argument: 'balance'"):
        system.spawn_many(Account, args=[(1,), ()])
    assert ray.get(system._service.about.remote())["hosts"] == hosts
    assert system.spawn_many(Log, count=0) == []
    for ask in (system.snapshot, lambda timeout: system.wait_for("termination", timeout=timeout)):
        with pytest.raises(rs.SettingError, match=r"\(timeout='x'\): it is a number of seconds"):
            ask(timeout="x")


@pytest.mark.contract
def test_what_does_not_fit_a_method_is_refused_where_it_is_sent_and_the_system_goes_on(house: House) -> None:
    account = house.system.spawn(Account, 1, name="precise")
    for send in (account.deposit.send, partial(account.deposit.send_after, 0.0), account.deposit.remote):
        with pytest.raises(TypeError, match=r"precise.deposit: missing a required argument: 'amount'; it is Account"):
            send()
    account.deposit.send(1)
    house.system.wait_for("termination", timeout=BOUND_S)
    assert house.system.snapshot().machines["precise"].state == {"balance": 2}


def test_a_driver_that_cannot_report_learns_so_and_may_ask_again(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_room(*_given: Any, **_options: Any) -> Any:
        raise MemoryError("malloc of size 4000000000 failed")

    with monkeypatch.context() as patch:
        patch.setattr(recorder, "host_payload", no_room)
        told = "driver could not report: MemoryError: malloc of size 4000000000"
        with pytest.raises(rs.SnapshotAbortedError, match=told):
            house.system.snapshot()
    assert house.system.snapshot().status == "complete"


@pytest.mark.contract
def test_a_machine_that_spawns_a_second_one_of_a_name_can_catch_the_error(house: House) -> None:
    class Parent(rs.SnapshotMixin):
        def bear(self, name: str) -> str:
            try:
                self.spawn(Log, name=name)
            except rs.DuplicateMachineError as error:
                return f"{error.machine}: {error}"
            return "born"

    parent = house.make(Parent)
    assert ray.get(parent.bear.remote("heir")) == "born"
    assert ray.get(parent.bear.remote("heir")).startswith("heir: a machine 'heir' already exists")


@pytest.mark.contract
def test_a_machine_that_stops_keeps_its_mail_and_refuses_more(house: House, tmp_path: Any) -> None:
    class Mortal(Log):
        def die_at_gate(self, gate: str) -> None:
            self.note_at_gate("last", gate)
            self.stop()

    gate = Gate(tmp_path)
    mortal, sender = house.make(Mortal, at="south", name="mortal"), house.make(Sender, name="mourner")
    mortal.die_at_gate.send(gate.path)
    gate.await_arrival()
    mortal.note.send("too late")
    gate.open()
    house.settle()

    def send_until_it_is_known() -> None:
        while True:
            mortal.note.send("never")
            house.settle()

    with pytest.raises(rs.MachineStoppedError, match=r"mortal"):
        send_until_it_is_known()
    with pytest.raises(rs.MachineStoppedError, match=r"mortal"):
        ray.get(sender.ask_for.remote(mortal, "read"))
    snapshot = house.system.snapshot()
    snapshot.verify()
    assert snapshot.machines["mortal"].status == "stopped"
    assert snapshot.machines["mortal"].state == {"seen": ["last"]}
    assert snapshot.channels["driver", "mortal"].messages[0].args == ["too late"]


@pytest.mark.contract
@pytest.mark.nightly
def test_a_second_system_of_the_same_name_is_refused_and_the_name_is_free_again_after_the_first() -> None:
    with rs.System("once", detectors=[]) as first:
        with pytest.raises(rs.SystemRunningError, match=r"'once' is already running"):
            rs.System("once")
        log = first.spawn_many(Nursery, count=1)[0]
        first.snapshot()
    with pytest.raises(rs.NotAMachineError, match=r"system was closed"):
        log.make.send()
    with pytest.raises(rs.SystemNotRunningError, match=r"closed"):
        first.spawn(Log)
    with pytest.raises(rs.SystemNotRunningError, match=r"closed"):
        first.snapshot()
    first.close()
    with rs.System("once", detectors=[]) as second:
        assert second.snapshot().machine_count == 1
