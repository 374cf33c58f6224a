"""A program that stands still says so by itself, once; one whose child works does not."""

import os
import re
import select
import signal
import socket
import sys
import threading

import pytest
from app_runner import Runner
from limited import limit
from started import started
from until import until

from ray_snapshot.instrument.process.kernel_waits import kernel_wait
from ray_snapshot.instrument.process.usage import Meter


@pytest.mark.ray
@pytest.mark.contract
@pytest.mark.nightly
def test_a_stall_is_told_with_who_stands_where(runner: Runner) -> None:
    app = runner.start_watched("stall", "--every", "0.5", "--stalled", "6", "stall.py")
    assert app.stderr is not None
    assert any("Nothing has moved for " in line for line in iter(app.stderr.readline, ""))
    told = [app.stderr.readline() for _ in range(3)]
    assert "driver in (the program) (stall.py:" in told[0], told
    assert re.match(r"  Rank-\[0-1\] \(2 of 2\) in Rank.step \(stall.py:\d+, in \S*recv\) for \d+ s\n", told[1]), told
    assert "ray-snapshot diagnose stall --address " in told[2], told
    app.send_signal(signal.SIGINT)
    assert "Nothing has moved" not in runner.finish(app).errors


def test_a_thread_in_epoll_on_a_listening_socket_is_one_that_serves() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, select.epoll() as chosen:
        chosen.register(server, select.EPOLLIN)
        thread = threading.Thread(target=chosen.poll)
        thread.start()
        wait = until(lambda: kernel_wait(thread.native_id or 0), seconds=10.0)
        with socket.create_connection(server.getsockname()):
            thread.join()
        assert f"that listens on 127.0.0.1:{server.getsockname()[1]}" in wait.awaited()


def test_a_thread_that_reads_from_a_child_names_it() -> None:
    with started(["cat"], env={}, takes_input=True) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        thread = threading.Thread(target=child.stdout.read)
        thread.start()
        wait = until(lambda: kernel_wait(thread.native_id or 0), seconds=10.0)
        told = until(wait.awaited, good=lambda text: "(cat)" in text, seconds=10.0)
        child.stdin.close()
        thread.join()
    assert told.startswith(f"a pipe of child process {child.pid} (cat), which is alive: begun at ")


BAD_NAME = "open('/proc/self/comm', 'wb').write(b'a' * 14 + 'ä'.encode()); print('named', flush=True); input(); exit(3)"


def test_a_child_is_measured_and_its_bad_end_is_told_whatever_it_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    limit(monkeypatch, usage_look_s=0.0)
    meter = Meter()
    with started([sys.executable, "-c", BAD_NAME], env={}, takes_input=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "named\n"
        meter.look(1.0)
        before = meter.usage
        assert before is not None
        assert meter.ended == ()
        assert child.stdin is not None
        child.stdin.write("\n")
        child.stdin.flush()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        meter.look(2.0)
        assert [(one.pid, one.how) for one in meter.ended] == [(child.pid, "exit code 3")]
    meter.look(3.0)
    after = meter.usage
    assert after is not None
    assert after.cpu_s > before.cpu_s, "what a child has used counts when it has ended, too"
    assert meter.ended == ()
    assert [(one.pid, one.how, one.seen_at) for one in meter.gone] == [(child.pid, "", 2.0)], (
        "the app has asked how it ended"
    )
