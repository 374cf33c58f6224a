"""Where time goes: the processor time of each of a system's processes, and for how long it waited, from Linux's own counts."""

from __future__ import annotations

import os
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_OURS = {"Host": "hosts", "Service": "service", "Analyst": "analyst", "Watcher": "watcher"}
"""What Ray calls the processes of our actors."""


def cpu_s() -> Counter[str]:
    """Seconds of processor time so far: of hosts, service, analyst and driver, and of all Ray's own processes."""
    found: Counter[str] = Counter()
    for name, text in _each("stat"):
        counts = text.rpartition(")")[2].split()
        found[name] += (int(counts[11]) + int(counts[12])) * _TICK_S
    return found


def memory_gb() -> dict[str, float]:
    """Gigabytes of memory by the same names, what processes share in parts; and of all together."""
    found: Counter[str] = Counter()
    for name, text in _each("smaps_rollup"):
        found[name] += next(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:")) / 1e6
    return {**found, "all": found.total()}


def _each(file: str) -> Iterator[tuple[str, str]]:
    """Of each process of this program's systems: what it is called here, and one of Linux's files on it."""
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError):  # it has ended meanwhile
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                name = _name(int(folder.name), command)
                if name is not None and _is_below_this(folder):
                    yield name, (folder / file).read_text()


def _name(pid: int, command: str) -> str | None:
    if pid == os.getpid():
        return "driver"
    if command.startswith("ray::"):
        return _OURS.get(command[5:].split(".", maxsplit=1)[0].split("(", maxsplit=1)[0].strip())
    return "ray" if "raylet" in command or "gcs_server" in command else None


def _is_below_this(folder: Path) -> bool:
    """Whether it is this process, or was started by it or by one that was: there may be another Ray on the machine."""
    while folder.name not in ("0", "1", str(os.getpid())):
        folder = folder.with_name((folder / "stat").read_text().rpartition(")")[2].split()[1])
    return folder.name == str(os.getpid())


@dataclass(slots=True)
class Spent:
    """What two arms took, one with snapshots and one without; the difference is what a snapshot costs."""

    hosts: int
    seconds: dict[bool, float] = field(default_factory=lambda: defaultdict(float))
    cpu: dict[bool, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    snapshots: Counter[bool] = field(default_factory=Counter)

    @contextmanager
    def measured(self, count: Callable[[], int], *, is_with: bool) -> Iterator[None]:
        """Count what is done inside for an arm; `count`: how many snapshots there have been."""
        began, before, first = time.monotonic(), cpu_s(), count()
        yield
        self.seconds[is_with] += time.monotonic() - began
        self.cpu[is_with].update(cpu_s() - before)
        self.snapshots[is_with] += count() - first

    def per_snapshot(self) -> dict[str, float]:
        """Milliseconds of processor time that a snapshot takes, by process; and for which share of the time hosts waited.

        Of busy hosts the time may be below zero: what they wait longer, they do not work.
        """
        more = self.snapshots[True] - self.snapshots[False] * self.seconds[True] / self.seconds[False]
        found = {}
        ours = [name for name in ("hosts", "service", "analyst", "watcher", "driver", "ray") if self.cpu[True][name]]
        for name in ours:
            spent = (self._a_second(name, True) - self._a_second(name, False)) * self.seconds[True]
            found[f"{name}_cpu_ms"] = 1e3 * spent / more
        for words, is_with in (("with", True), ("without", False)):
            found[f"hosts_waiting_{words}"] = 1 - self._a_second("hosts", is_with) / self.hosts
        return found

    def _a_second(self, name: str, is_with: bool) -> float:
        return self.cpu[is_with][name] / self.seconds[is_with]
