"""What the kernel says a thread of this process is blocked in: the system call, and the file or child that it is about.

Reads `/proc/self/task`, which a process may do of its own threads. A wait with a bound of time, such as a sleep, is one only
for who asks for those. Where the kernel does not show that (macOS, some sandboxes) the answer is None.
Standard library only.
"""

from __future__ import annotations

import ipaddress
import os
import platform
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from types import FrameType
from typing import NamedTuple

_TASKS = Path("/proc/self/task")

_LOCK, _FILE, _FILES, _SELECT, _CHILD, _SIGNAL = "lock", "file", "files", "select", "child", "signal"
_OTHER, _OPEN, SLEEP = "other", "open", "sleep"

STANDARD_INPUT, A_SIGNAL, LISTENS = "its standard input", "a signal", "that listens on"
"""What only a person, or another program, gives."""

OF_PROCESS = " of process "
"""What stands before the number of a process that has the other end of a socket."""

_LONGEST_PATH = 4096
_NO_TIMEOUT = (0, 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF)
"""A null pointer, or -1: the call has no bound of time."""


class _Call(NamedTuple):
    kind: str
    timeout: int = -1
    """Which argument bounds it; -1: none does."""


_CALLS: dict[str, dict[int, _Call]] = {
    "x86_64": {
        **dict.fromkeys((0, 1, 19, 20, 42, 43, 44, 45, 46, 47, 72, 73, 288), _Call(_FILE)),  # read to accept4
        **dict.fromkeys((61, 247), _Call(_CHILD)),  # wait4, waitid
        **dict.fromkeys((34, 130), _Call(_SIGNAL)),  # pause, rt_sigsuspend
        **dict.fromkeys((35, 219, 230), _Call(SLEEP)),  # nanosleep, restart_syscall, clock_nanosleep
        7: _Call(_FILES, 2),  # poll
        23: _Call(_SELECT, 4),  # select
        128: _Call(_SIGNAL, 2),  # rt_sigtimedwait
        202: _Call(_LOCK, 3),  # futex
        232: _Call(_FILES, 3),  # epoll_wait
        270: _Call(_SELECT, 4),  # pselect6
        271: _Call(_FILES, 2),  # ppoll
        281: _Call(_FILES, 3),  # epoll_pwait
    },
    "aarch64": {
        **dict.fromkeys((25, 32, 63, 64, 65, 66, 202, 203, 206, 207, 211, 212, 242), _Call(_FILE)),
        **dict.fromkeys((260, 95), _Call(_CHILD)),
        **dict.fromkeys((101, 115, 128), _Call(SLEEP)),
        133: _Call(_SIGNAL),
        22: _Call(_FILES, 3),
        72: _Call(_SELECT, 4),
        73: _Call(_FILES, 2),
        98: _Call(_LOCK, 3),
        137: _Call(_SIGNAL, 2),
    },
}
"""By machine and number of the system call: what it is about, and its bound. Of others there is none."""


_PATHS = {"x86_64": {2: 0, 257: 1}, "aarch64": {56: 1}}
"""`open` and `openat`: which argument is the path."""


class KernelWait(NamedTuple):
    """A system call that ends only when something comes."""

    kind: str
    """`lock`, `file`, `files`, `select`, `child`, `signal`, `open`, `sleep`; `other`: a semaphore of the system, ..."""
    about: int
    """The descriptor of the file, the number of descriptors to select from, the pid of the child, the address of the path, or
    the number of the call."""

    @property
    def is_lock(self) -> bool:
        """Whether another thread ends it: a lock in memory."""
        return self.kind == _LOCK

    def awaited(self) -> str:
        """What it is about, for a person: "a socket connected to 127.0.0.1:80"; "" if that is not known."""
        if self.kind == _SELECT and self.about == 1:
            return STANDARD_INPUT  # the only descriptor below 1
        if self.kind == _FILE:
            return described_file(self.about)
        if self.kind == _CHILD:
            return described_child(self.about)
        if self.kind == _OPEN:
            return f"the opening of {_path_at(self.about) or 'a file'}"
        if self.kind == _OTHER:
            return f"the end of system call {self.about}"
        if self.kind == _FILES and self.about >= 0:
            return _described_set(self.about)
        return {_LOCK: "a lock", _SIGNAL: A_SIGNAL}.get(self.kind, _SEVERAL)


def kernel_wait(thread: int, *, is_timed: bool = False) -> KernelWait | None:
    """What a thread (its native id) waits in without a bound of time, or with one; None if not so, or that is not known."""
    try:
        words = (_TASKS / str(thread) / "syscall").read_text().split()
    except OSError:
        return None
    calls = _CALLS.get(platform.machine())
    if calls is None or not words or not words[0].isdecimal():
        return None
    call, path = calls.get(int(words[0])), _PATHS[platform.machine()].get(int(words[0]))
    if path is not None:
        return KernelWait(_OPEN, int(words[1 + path], 16))
    if call is None:
        return None if is_timed else KernelWait(_OTHER, int(words[0]))
    is_bounded = call.timeout >= 0 and int(words[1 + call.timeout], 16) not in _NO_TIMEOUT
    if (is_bounded or call.kind == SLEEP) is not is_timed:
        return None
    about = int(words[1], 16)
    return KernelWait(call.kind, about if about < 2**31 else -1)


def _path_at(address: int) -> str:
    """The path at an address of this process, as it is there: to ask for its file may hang as the opening does."""
    with suppress(OSError, ValueError, OverflowError):
        memory = os.open("/proc/self/mem", os.O_RDONLY)
        try:
            return os.pread(memory, _LONGEST_PATH, address).partition(b"\0")[0].decode(errors="replace")
        finally:
            os.close(memory)
    return ""


def context_switches_of(thread: int) -> int:
    """How often a thread has been put to sleep so far: as long as that stays the same it has not run; -1: not known."""
    try:
        lines = (_TASKS / str(thread) / "status").read_text().splitlines()
        counts = [int(line.split()[1]) for line in lines if "voluntary_ctxt_switches" in line]
        return sum(counts) if counts else -1
    except (OSError, ValueError, IndexError):
        return -1


def standing(thread: int, frame: FrameType) -> tuple[int, int, int]:
    """Frame, instruction, and how often a thread (its native id) was put to sleep: equal as long as it has not run."""
    return id(frame), frame.f_lasti, context_switches_of(thread)


def described_file(descriptor: int) -> str:
    """ "a pipe", "a socket connected to HOST:PORT", "the file PATH", "its standard input"; "" if it is closed."""
    if descriptor == 0:
        return STANDARD_INPUT
    try:
        target = os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:
        return ""
    if target.startswith("socket:"):
        return _described_socket(target[len("socket:[") : -1])
    return f"a pipe{_of_child(target)}" if target.startswith("pipe:") else f"the file {target}"


def children(pid: int | str = "self") -> Iterator[int]:
    """The child processes of a process."""
    with suppress(OSError):  # it has ended
        for thread in os.listdir(f"/proc/{pid}/task"):
            with suppress(OSError):  # the thread has ended
                yield from map(int, Path(f"/proc/{pid}/task/{thread}/children").read_text().split())


def lists_children() -> bool:
    """Whether the kernel does."""
    return (_TASKS / str(os.getpid()) / "children").exists()


def program_of(pid: int) -> str:
    """The name of a process's program, as the kernel has it: cut, wherever that is in a character."""
    return Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()


def _of_child(pipe: str) -> str:
    """ " of child process 17 (cat), which is alive": a child that has the pipe open; "" if none has."""
    return next((f" of {described_child(pid)}" for pid in children() if _has_open(pid, pipe)), "")


_SEVERAL = "sockets, pipes or timers"


def _described_set(descriptor: int) -> str:
    """What is in a set of epoll's: the socket that listens, if one does."""
    try:
        text = Path(f"/proc/self/fdinfo/{descriptor}").read_text()
    except OSError:
        return _SEVERAL
    found = (described_file(int(one)) for one in re.findall(r"^tfd:\s*(\d+)", text, re.MULTILINE))
    return next((one for one in found if LISTENS in one), _SEVERAL)


def _described_socket(inode: str) -> str:
    """What the kernel's tables say of a socket; the socket itself is not touched, for its flags are the app's."""
    for table in ("tcp", "tcp6"):
        with suppress(OSError, ValueError, IndexError):
            rows = [line.split() for line in Path(f"/proc/self/net/{table}").read_text().splitlines()[1:]]
            here, there, state = next((row[1:4] for row in rows if row[9] == inode), ("", "", ""))
            if state == _LISTENS:
                return f"a socket {LISTENS} {_address(here)}"
            if state:
                other = next((row[9] for row in rows if row[1:3] == [there, here]), "0")
                pid = None if other == "0" else _process_with(f"socket:[{other}]")
                return f"a socket connected to {_address(there)}{'' if pid is None else f'{OF_PROCESS}{pid}'}"
    return "a socket"


@lru_cache(256)
def _process_with(file: str) -> int | None:
    """Which process has a file open: this one, one that it has started, or one that was started by what has started it."""
    for pid in dict.fromkeys((os.getpid(), *children(os.getppid()), *children())):
        if _has_open(pid, file):
            return pid
    return None


def _has_open(pid: int, file: str) -> bool:
    with suppress(OSError):  # it has ended
        for entry in os.scandir(f"/proc/{pid}/fd"):
            with suppress(OSError):  # it was closed
                if os.readlink(entry) == file:
                    return True
    return False


_LISTENS = "0A"


def _address(words: str) -> str:
    """ "127.0.0.1:80" of an address in hexadecimal words of this machine's order, as in `/proc/net/tcp`."""
    number, _, port = words.partition(":")
    parts = [int(number[at : at + 8], 16).to_bytes(4, sys.byteorder) for at in range(0, len(number), 8)]
    return f"{ipaddress.ip_address(b''.join(parts))}:{int(port, 16)}"


def described_child(pid: int) -> str:
    """ "child process 17 (sleep), which is alive: begun at 12:03:11 UTC, 0.2 s of processor time"; "any child process"."""
    if pid <= 0:
        return "any child process"
    try:
        name = program_of(pid)
        state, *words = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(") ")[2].split()
        boot_s = next(
            int(line.split()[1]) for line in Path("/proc/stat").read_text().splitlines() if line.startswith("btime")
        )
    except (OSError, StopIteration):
        return f"child process {pid}, which has ended"
    if state == "Z":
        return f"child process {pid} ({name}), which has ended"
    ticks = os.sysconf("SC_CLK_TCK")
    began, cpu_s = (
        datetime.fromtimestamp(boot_s + int(words[18]) / ticks, UTC),
        (int(words[10]) + int(words[11])) / ticks,
    )
    return (
        f"child process {pid} ({name}), which is alive: begun at {began:%H:%M:%S} UTC, {cpu_s:.1f} s of processor time"
    )
