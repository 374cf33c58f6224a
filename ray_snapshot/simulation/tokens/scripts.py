"""The files of `ray-snapshot simulate`: topology, events, schedule; each error names its file and line.

Formats: `docs/howto/simulator.md`. Imports the standard library only.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from ray_snapshot.errors import NameNotAllowedError, ScriptError
from ray_snapshot.names import check_machine_name
from ray_snapshot.protocol.coordinator import reachable

MOST = 10**18 - 1
"""The largest number in a file of lines."""

_AT_MOST = f"at most {MOST:,}"


@dataclass(slots=True)
class Topology:
    """Machines with their tokens, and directed channels, each in the order of the file."""

    machines: dict[str, int] = field(default_factory=dict)
    channels: dict[tuple[str, str], None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SendTokens:
    """One message of `tokens` tokens."""

    line: int
    source: str
    target: str
    tokens: int


@dataclass(frozen=True, slots=True)
class StartSnapshot:
    """A snapshot with these initiators (sources, observers)."""

    line: int
    machines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Deliver:
    """The head of a channel, message or marker, is delivered."""

    line: int
    source: str
    target: str


@dataclass(frozen=True, slots=True)
class Ask:
    """A request of the observer reaches a machine."""

    line: int
    observer: str
    machine: str


@dataclass(frozen=True, slots=True)
class Tick:
    """Time passes."""

    line: int
    count: int


Operation = SendTokens | StartSnapshot | Deliver | Ask | Tick


@dataclass(slots=True)
class Script:
    """The operations of an events or schedule file."""

    path: str
    operations: list[Operation]


def fail(path: str, line: int | None, message: str) -> NoReturn:
    """Raise `ScriptError` for a line of a file."""
    where = path if line is None else f"{path}:{line}"
    raise ScriptError(f"{where}: {message}", path=path, line=line)


def read_topology(path: str) -> Topology:
    """A topology: the number of machines, `NAME TOKENS` lines, then `SOURCE TARGET` lines; raises `ScriptError`."""
    lines = list(_lines(path))
    if not lines:
        fail(path, 1, "the file is empty: its first line is the number of machines")
    number, first = lines[0]
    count = _whole(first.strip())
    if count is None or count < 1:
        fail(path, number, f"expected the number of machines, found {first!r}")
    topology = Topology()
    for number, text in lines[1 : count + 1]:
        _add_machine(topology, path, number, text, count)
    if len(topology.machines) < count:
        fail(
            path,
            lines[-1][0],
            f"{count} machines were announced, but the file ends after {len(topology.machines)}",
        )
    for number, text in lines[count + 1 :]:
        _add_channel(topology, path, number, text)
    return topology


def _add_machine(topology: Topology, path: str, line: int, text: str, count: int) -> None:
    words = text.split()
    which = f"machine {len(topology.machines) + 1} of {count}"
    tokens = _whole(words[1]) if len(words) == 2 else None
    if tokens is None:
        fail(
            path,
            line,
            f"expected NAME TOKENS ({which}), found {text!r}; TOKENS is a whole number, 0 or more and {_AT_MOST}",
        )
    try:
        name = check_machine_name(words[0])
    except NameNotAllowedError as error:
        fail(path, line, str(error))
    if name in topology.machines:
        fail(path, line, f"a second machine {name!r}: each name may be used once")
    topology.machines[name] = tokens


def _add_channel(topology: Topology, path: str, line: int, text: str) -> None:
    words = text.split()
    if len(words) != 2:
        fail(path, line, f"expected SOURCE TARGET, found {text!r}")
    source, target = words
    for name in words:
        _check_machine(topology, path, line, name)
    if source == target:
        fail(path, line, f"a channel from {source} to itself: a channel joins two machines")
    if (source, target) in topology.channels:
        fail(path, line, f"a second channel from {source} to {target}: there is at most one each way")
    topology.channels[source, target] = None


def read_events(path: str, topology: Topology, *, by_channels: bool = True) -> Script:
    """An events file: `send SOURCE TARGET K`, `snapshot NAME...`, `tick [N]`; raises `ScriptError`.

    `by_channels`: a snapshot spreads over channels, so that every machine must be reachable from its initiators.
    """
    return Script(path, [_event(topology, path, line, text, by_channels) for line, text in _lines(path)])


def _event(topology: Topology, path: str, line: int, text: str, by_channels: bool) -> Operation:
    match text.split():
        case ["send", source, target, amount]:
            return _send(topology, path, line, source, target, _whole(amount))
        case ["snapshot", machine, *more]:
            return _snapshot(topology, path, line, [machine, *more], by_channels)
        case ["tick"]:
            return Tick(line, 1)
        case ["tick", amount] if _whole(amount):
            return Tick(line, int(amount))
        case ["tick", amount]:
            fail(path, line, f"the N of 'tick N' is a whole number, 1 or more and {_AT_MOST}; found {text!r}")
    fail(path, line, f"expected 'send SOURCE TARGET K', 'snapshot NAME' or 'tick [N]', found {text!r}")


def read_schedule(path: str, topology: Topology, *, by_channels: bool = True) -> Script:
    """A schedule: one JSON object a line, with "op": "send", "snapshot", "deliver" or "ask"; raises `ScriptError`."""
    return Script(path, [_scheduled(topology, path, line, text, by_channels) for line, text in _lines(path)])


def _scheduled(topology: Topology, path: str, line: int, text: str, by_channels: bool) -> Operation:
    try:
        found = json.loads(text)
    except ValueError as error:
        fail(path, line, f"no JSON object: {error}")
    match found:
        case {"op": "send", "source": source, "target": target, "tokens": tokens, **rest} if not rest:
            return _send(topology, path, line, source, target, tokens)
        case {"op": "snapshot", "machine": machine, **rest} if not rest:
            return _snapshot(topology, path, line, machine if isinstance(machine, list) else [machine], by_channels)
        case {"op": "deliver", "source": source, "target": target, **rest} if not rest:
            _check_channel(topology, path, line, source, target)
            return Deliver(line, source, target)
        case {"op": "ask", "observer": observer, "machine": machine, **rest} if not rest:
            for name in (observer, machine):
                _check_machine(topology, path, line, name)
            return Ask(line, observer, machine)
    fail(
        path,
        line,
        'expected {"op": "send", "source", "target", "tokens"}, {"op": "snapshot", "machine"} or'
        f' {{"op": "deliver", "source", "target"}}, found {text}',
    )


def _send(topology: Topology, path: str, line: int, source: Any, target: Any, tokens: Any) -> SendTokens:
    _check_channel(topology, path, line, source, target)
    if type(tokens) is not int or tokens < 1:
        fail(path, line, f"the number of tokens to send is a whole number, 1 or more and {_AT_MOST}")
    return SendTokens(line, source, target, tokens)


def _snapshot(topology: Topology, path: str, line: int, machines: list[Any], by_channels: bool) -> StartSnapshot:
    for machine in machines:
        _check_machine(topology, path, line, machine)
    if len(set(machines)) < len(machines):
        fail(path, line, f"a machine starts a snapshot once: {', '.join(machines)}")
    found = reachable(topology.channels, machines)
    missing = [name for name in topology.machines if name not in found]
    if missing and by_channels:
        start = ", ".join(machines)
        fail(
            path,
            line,
            f"a snapshot from {start} cannot reach {', '.join(missing[:5])}: no channels lead there from {start};"
            " start it elsewhere, or add a channel",
        )
    return StartSnapshot(line, tuple(machines))


def _check_machine(topology: Topology, path: str, line: int, name: Any) -> None:
    if not isinstance(name, str) or name not in topology.machines:
        known = ", ".join(list(topology.machines)[:8])
        fail(path, line, f"no machine {name!r}; the topology has {known}")


def _check_channel(topology: Topology, path: str, line: int, source: Any, target: Any) -> None:
    for name in (source, target):
        _check_machine(topology, path, line, name)
    if (source, target) not in topology.channels:
        fail(path, line, f"no channel from {source} to {target} in the topology")


def _lines(path: str) -> Iterator[tuple[int, str]]:
    """The lines that are neither empty nor comments, numbered from 1."""
    try:
        text = Path(path).read_text("utf-8-sig")
    except OSError as error:
        fail(path, None, f"cannot be read: {error.strerror or error}")
    except UnicodeDecodeError:
        fail(path, None, "cannot be read: it is no UTF-8 text")
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.lstrip().startswith("#"):
            yield number, line.strip()


def _whole(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= len(str(MOST)) else None
