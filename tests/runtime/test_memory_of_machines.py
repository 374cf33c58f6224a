"""What a machine takes in its host, beyond the program's own object."""

import gc
import sys
import tracemalloc
from collections.abc import Iterator

import pytest
from lone_host import LoneHost, lone_host
from until import until

import ray_snapshot as rs
from ray_snapshot.protocol.commands import Close, Request

MACHINES = 2_000
OF_THE_TEST = 100
"""Bytes a machine that the driver's side of `LoneHost` keeps: the name, and where it lives."""


class Idle(rs.SnapshotMixin):
    def __init__(self, number: int) -> None:
        self.number = number


OF_THE_PROGRAM = sys.getsizeof(Idle.__new__(Idle)) + sys.getsizeof({"number": 1}) + 32


@pytest.fixture
def counted() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


def taken(host: LoneHost, before: int) -> float:
    host.service.heard.clear()
    gc.collect()
    return (tracemalloc.get_traced_memory()[0] - before) / MACHINES


def take(host: LoneHost, *numbers: int) -> None:
    for number in numbers:
        host.obey(Request(number))
        host.report(number)
        host.obey(Close(number))
    host.service.heard.clear()


def test_an_idle_machine_takes_little_and_a_machine_at_rest_its_row(counted: None) -> None:
    with lone_host() as host:
        host.create("first", Idle, 0)
        until(lambda: host.post.constructed() == 1)
        take(host, 1, 2, 3)  # what is loaded once is no machine's
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        for number in range(MACHINES):
            host.create(f"idle-{number}", Idle, number)
        until(lambda: host.post.constructed() == MACHINES + 1)
        most = 700 + OF_THE_PROGRAM + OF_THE_TEST
        until(lambda: taken(host, before), good=lambda found: found < most)  # threads let go of what came with births
        take(host, 4, 5, 6)
        assert len(host.post.core.copying.awake) == 0
        until(lambda: taken(host, before), good=lambda found: found < most + 300)
