"""While a host makes a report, its threads take turns quickly; looking at the stacks of threads stops nobody."""

import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from clean import ran
from lone_host import lone_host

import ray_snapshot as rs
from ray_snapshot.limits import LIMITS
from ray_snapshot.protocol.commands import Request
from ray_snapshot.runtime.host.reporter import Reporter
from ray_snapshot.runtime.host.turns import HALF_S, TURNS


class Counter(rs.SnapshotMixin):
    def __init__(self) -> None:
        self.count = 0


def test_a_report_is_made_in_brisk_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    before, seen, made = sys.getswitchinterval(), [], Reporter._payload

    def noting(self: Reporter, *given: Any) -> Any:
        seen.append(sys.getswitchinterval())
        return made(self, *given)

    monkeypatch.setattr(Reporter, "_payload", noting)
    with lone_host() as host:
        host.create("counter", Counter)
        host.obey(Request(1))
        host.report(1)
    assert seen == [pytest.approx(LIMITS.switch_s)]
    assert sys.getswitchinterval() == pytest.approx(before)


def test_the_last_of_several_puts_back_what_was_there_before_the_first() -> None:
    before, begun, may_end = sys.getswitchinterval(), threading.Event(), threading.Event()

    def other() -> None:
        with TURNS.brisk():
            begun.set()
            assert may_end.wait(10)

    thread = threading.Thread(target=other)
    with suppress(KeyError), TURNS.brisk():
        thread.start()
        assert begun.wait(10)
        raise KeyError
    assert sys.getswitchinterval() == pytest.approx(LIMITS.switch_s)
    may_end.set()
    thread.join(10)
    assert sys.getswitchinterval() == pytest.approx(before)


@pytest.fixture
def interval() -> Iterator[None]:
    before = sys.getswitchinterval()
    yield
    sys.setswitchinterval(before + HALF_S)


@pytest.mark.usefixtures("interval")
def test_what_the_program_has_chosen_meanwhile_stays() -> None:
    with TURNS.brisk():
        sys.setswitchinterval(0.02)
    assert sys.getswitchinterval() == pytest.approx(0.02)


@pytest.mark.usefixtures("interval")
@pytest.mark.parametrize("chosen_us", [1, 299, 300, 5_000, 50_000, 19_999])
def test_an_interval_is_the_same_however_often_it_is_put_back(chosen_us: int) -> None:
    sys.setswitchinterval((chosen_us + 0.5) / 1e6)
    before = sys.getswitchinterval()
    for _ in range(50):
        with TURNS.brisk():
            assert sys.getswitchinterval() <= LIMITS.switch_s
    assert sys.getswitchinterval() == before


LOOKS_WHILE_GARBAGE_IS_DUE = """
import faulthandler, gc, threading, time

from ray_snapshot.runtime.here import frames_of_threads

faulthandler.dump_traceback_later(60, exit=True)

class SlowToGo:
    def __del__(self):
        time.sleep(0.2)  # other threads run meanwhile, and want the list of threads

def begins_threads():
    while True:
        thread = threading.Thread(target=int)
        thread.start()
        thread.join()

gc.collect()
gc.disable()
waiting, may_end = threading.Semaphore(0), threading.Event()

def waits():
    waiting.release()
    may_end.wait()

for target in (*[waits] * 20, begins_threads):
    threading.Thread(target=target, daemon=True).start()
for _ in range(20):
    waiting.acquire()
garbage = SlowToGo()
garbage.itself = garbage
del garbage
gc.set_threshold(gc.get_count()[0] + 8)
gc.enable()
assert len(frames_of_threads()) >= 21
assert gc.isenabled()
print("seen", flush=True)
may_end.set()
"""


def test_a_collection_that_is_due_stops_nobody() -> None:
    # without the collector's rest this hangs in each of ten tries under Python 3.11.7
    done = ran(sys.executable, "-c", LOOKS_WHILE_GARBAGE_IS_DUE)
    assert (done.returncode, done.stdout) == (0, "seen\n"), done.stderr
