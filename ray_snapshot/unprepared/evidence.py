"""What the processes of a node do meanwhile: processor time, context switches, sleeps, and the stacks that py-spy shows.

Runs on the node concerned, in a task pinned to it, where nothing of ours is installed: it is sent by value, and imports the
standard library only. Of locals, which py-spy shows too, only the time-outs of waits in Ray and in Python leave the node.
"""

from __future__ import annotations

import json
import linecache
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ray_snapshot.limits import LIMITS

_SLEEPS = {"x86_64": (23, 35, 230, 270), "aarch64": (72, 101, 115)}
"""The numbers of the system calls select, nanosleep, clock_nanosleep and pselect6, by machine: in these Python sleeps, and
Ray does not wait."""

_WAITS = ("get_objects", "wait", "get", "join", "result")
"""Functions of which the local `timeout` is kept."""


def examine(pids: Sequence[int], seconds: float, shown: Sequence[int]) -> dict[int, dict[str, Any]]:
    """What these processes do in so many seconds, and the stacks of those of `shown`. By process id:

    `cpu_s`, `seconds`, `switches` ([name of the thread, its voluntary context switches, is it the first, was it seen to sleep]
    each), `threads` (stacks; see `_thread`) or `why` there are none. A process that is gone, or not to be read, is missing.
    """
    first = {pid: _sample(pid) for pid in pids}
    began = time.monotonic()
    asleep: set[int] = set()
    for _ in range(LIMITS.thread_glances):
        time.sleep(seconds / LIMITS.thread_glances)
        asleep.update(_asleep({thread: pid for pid, one in first.items() if one for thread in one[1]}))
    elapsed = time.monotonic() - began
    second = {pid: _sample(pid) for pid in pids}
    found: dict[int, dict[str, Any]] = {}
    for pid in pids:
        before, after = first[pid], second[pid]
        if before is not None and after is not None:
            found[pid] = {
                "seconds": elapsed,
                "cpu_s": after[0] - before[0],
                "switches": _switches(pid, before[1], after[1], asleep),
            }
    program = spy()
    wanted = [pid for pid in shown if pid in found]
    with ThreadPoolExecutor(2) as pool:
        for pid, told in zip(wanted, pool.map(lambda pid: stacks(program, pid), wanted), strict=True):
            found[pid].update(told)
    return found


def _sample(pid: int) -> tuple[float, dict[int, tuple[str, int]]] | None:
    """The processor time of a process in seconds, and of each thread its name and voluntary context switches."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        cpu_s = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        return cpu_s, dict(_threads(pid, os.listdir(f"/proc/{pid}/task")))
    except (OSError, ValueError, IndexError):
        return None


def _threads(pid: int, ids: Iterable[str]) -> Iterable[tuple[int, tuple[str, int]]]:
    for name in ids:
        try:
            with open(f"/proc/{pid}/task/{name}/status") as file:
                lines = dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
            yield int(name), (lines["Name"], int(lines["voluntary_ctxt_switches"]))
        except (OSError, ValueError, KeyError):  # it has just ended
            continue


def _asleep(threads: Mapping[int, int]) -> Iterable[int]:
    """Those of these threads, given with their processes, that sleep now; none where the kernel does not tell."""
    for thread, pid in threads.items():
        try:
            with open(f"/proc/{pid}/task/{thread}/syscall") as file:
                if int(file.read().split()[0]) in _SLEEPS.get(os.uname().machine, ()):
                    yield thread
        except (OSError, ValueError, IndexError):  # it has ended, it runs, or it may not be asked
            continue


def _switches(
    pid: int, before: dict[int, tuple[str, int]], after: dict[int, tuple[str, int]], asleep: Collection[int]
) -> list[list[Any]]:
    return [
        [name, count - before[key][1], key == pid, key in asleep]
        for key, (name, count) in sorted(after.items())
        if key in before
    ]


# ---- stacks ------------------------------------------------------------------------------------------------------------


def spy() -> str | None:
    """Where py-spy is; None if it is not installed."""
    beside = os.path.join(os.path.dirname(sys.executable), "py-spy")
    return beside if os.access(beside, os.X_OK) else shutil.which("py-spy")


def stacks(program: str | None, pid: int) -> dict[str, Any]:
    """`threads` of a process, or `why` they cannot be had: "not installed", "refused", or py-spy's own words."""
    if program is None:
        return {"why": "not installed"}
    command = [program, "dump", "--nonblocking", "--json", "--locals", "--full-filenames", "--pid", str(pid)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMITS.py_spy_s, check=False)
        if done.returncode == 0:
            return {"threads": [_thread(thread) for thread in json.loads(done.stdout)]}
    except (OSError, subprocess.TimeoutExpired, ValueError) as error:
        return {"why": type(error).__name__}
    is_refused = "ermission" in done.stderr or "EPERM" in done.stderr or "not permitted" in done.stderr
    return {"why": "refused" if is_refused else (done.stderr.strip().splitlines() or ["it failed"])[0][:200]}


def _thread(thread: dict[str, Any]) -> dict[str, Any]:
    """Its name, and its frames from the inside out: function, file, line, text of that line, time-out."""
    frames = [
        [
            frame["name"].rpartition(".")[2],
            frame["filename"],
            frame["line"],
            linecache.getline(frame["filename"], frame["line"]).strip()[:200] if place < 3 else "",
            _timeout(frame),
        ]
        for place, frame in enumerate(thread["frames"])
    ]
    return {"name": thread.get("thread_name") or "", "is_active": bool(thread.get("active")), "frames": frames}


def _timeout(frame: dict[str, Any]) -> str | None:
    """The time-out of a wait as it is written; None if this is no wait."""
    if frame["name"].rpartition(".")[2] not in _WAITS:
        return None
    found = [one.get("repr") for one in frame.get("locals") or () if one.get("name") == "timeout"]
    return None if not found else str(found[0])[:40]
