"""Which methods depend on the plain attributes of their actor alone."""

import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from ray_snapshot.instrument.process.plain_methods import is_plain

MOST = 8
STARTED: list[float] = []


class Buffer:
    most = 8

    def __init__(self) -> None:
        self.groups: list[Any] = []
        self.by_name: dict[str, set[int]] = {"a": {1}}
        self.asked = 0

    def sample(self, most: int = 8) -> Any:
        self.asked += 1
        return self.groups[:most] if len(self.groups) >= most else None

    def is_full(self) -> bool:
        return self.has(MOST) and self.has(self.most)

    def has(self, most: int) -> bool:
        return sum(1 for group in self.groups if group is not None) >= most

    def named(self, name: str) -> Any:
        found = self.by_name.get(name, set())
        return sorted(found) or None

    def clock(self) -> bool:
        return time.time() > 8

    def generated_clock(self) -> bool:
        return any(time.time() > group for group in self.groups)

    def shared(self) -> bool:
        return bool(STARTED)

    def file(self) -> bool:
        return Path("there").exists()

    def calls_clock(self) -> bool:
        return self.clock()

    def imports(self) -> bool:
        import os

        return os.path.exists("there")

    def default(self, since: Any = STARTED) -> bool:
        return bool(since)

    @property
    def now(self) -> float:
        return time.time()

    def by_property(self) -> bool:
        return self.now > 8

    def whatever(self, ask: Any) -> Any:
        return ask()

    def attribute(self) -> Any:
        return self.groups.__class__

    @staticmethod
    def static() -> bool:
        return False


@pytest.mark.parametrize("method", ["sample", "is_full", "has", "named"])
def test_operations_on_plain_containers_depend_on_nothing_else(method: str) -> None:
    assert is_plain(Buffer(), method)


@pytest.mark.parametrize(
    "method",
    [
        *("clock", "generated_clock", "shared", "file", "calls_clock", "imports", "default", "by_property", "whatever"),
        *("attribute", "static", "missing"),
    ],
)
def test_anything_else_may(method: str) -> None:
    assert not is_plain(Buffer(), method)


class Own(list[int]):
    def __len__(self) -> int:
        return int(time.time())


@pytest.mark.parametrize("kind", ["lock", "child", "own", "deep", "large"])
def test_so_may_what_has_anything_but_values_of_built_in_types(kind: str) -> None:
    buffer: Any = Buffer()
    match kind:
        case "lock":
            buffer.lock = threading.Lock()
        case "child":
            buffer.child = subprocess.Popen([sys.executable, "-c", ""], env={})
            buffer.child.wait()
        case "own":
            buffer.groups = Own()
        case "deep":
            buffer.groups = [{"a": (1, [Own()])}]
        case _:
            buffer.groups = [0] * 100_000
    assert not is_plain(buffer, "sample")


class Answering(Buffer):
    def __getattr__(self, name: str) -> Any:
        return time.time()


def test_a_class_that_answers_for_its_attributes_may() -> None:
    assert not is_plain(Answering(), "sample")


def test_an_attribute_in_place_of_a_method_may() -> None:
    buffer: Any = Buffer()
    buffer.sample = 7
    assert not is_plain(buffer, "sample")
